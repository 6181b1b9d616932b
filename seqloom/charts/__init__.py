"""The drawing layer of all pages: pictures (`draw`), pages and tables (`pages`), colours and signs (`palette`)."""

from seqloom.charts.axes import escaped
from seqloom.charts.draw import (
    FIT,
    Curve,
    Estimate,
    Mark,
    Square,
    as_file,
    bars,
    chart,
    decimals,
    grid,
    intervals,
    matrix,
    plane,
)
from seqloom.charts.pages import NONE, Cell, Section, TableCell, csv_text, figure, note, page, table
from seqloom.charts.palette import Look, look, looks

__all__ = [
    "FIT", "NONE", "Cell", "Curve", "Estimate", "Look", "Mark", "Section", "Square", "TableCell",
    "as_file", "bars", "chart", "csv_text",
    "decimals",
    "escaped", "figure", "grid", "intervals", "look", "looks", "matrix", "note", "page", "plane", "table",
]  # fmt: skip

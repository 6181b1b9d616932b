"""One self-contained HTML page about some runs: curves, table, samples, commands. No script, no font, no link outside."""

from collections.abc import Sequence
from typing import NamedTuple

from seqloom.charts import COLOURS, Curve, chart, escaped, page, table


class Page(NamedTuple):
    title: str
    remarks: Sequence[str]
    charts: Sequence[tuple[str, str, str, Sequence[Curve]]]  # heading, name of x, name of y, curves
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first cell of each is the name of a curve
    samples: Sequence[tuple[str, str]]
    commands: Sequence[str]


def render(report: Page) -> str:
    colour = {row[0]: COLOURS[i % len(COLOURS)] for i, row in enumerate(report.rows)}
    parts = [f"<h1>{escaped(report.title)}</h1>"]
    parts += [f'<p class="note">{escaped(remark)}</p>' for remark in report.remarks]
    parts.append("<h2>Result</h2>" + table(report.header, report.rows, colour))
    for heading, x, y, curves in report.charts:
        parts.append(f"<h2>{escaped(heading)}</h2>" + chart(x, y, curves, colour))
    boxes = [f"<div><h3>{escaped(name)}</h3><pre>{escaped(text)}</pre></div>" for name, text in report.samples]
    parts.append(f'<h2>Samples</h2><div class="samples">{"".join(boxes)}</div>')
    parts.append(f"<h2>Go on</h2><pre>{escaped(chr(10).join(report.commands))}</pre>")
    return page(report.title, parts)

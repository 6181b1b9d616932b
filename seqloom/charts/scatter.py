"""Points in a plane whose axes mean nothing: colours and signs are groups."""

from collections.abc import Sequence

import numpy as np

from seqloom.charts.axes import escaped, shortened
from seqloom.charts.draw import Entry, draw_legend, marker, svg
from seqloom.charts.palette import Look, looks

SIZE = 460
LONGEST_HINT = 700.0  # pixels of a text


def scatter(places: np.ndarray, groups: Sequence[str], hints: Sequence[str], name: str) -> str:
    """places (n, 2); a text for each, shown when a pointer rests on it."""
    signs = looks(sorted(set(groups)))
    low, high = places.min(0), places.max(0)
    span = max(float((high - low).max()), 1e-12)
    middle = (low + high) / 2

    def sign_of(found: Look) -> object:
        return lambda x, y: marker(found, x + 14, y, 0.8)

    entries = [Entry(group or "occurrence", sign_of(found), group) for group, found in signs.items()]  # type: ignore[arg-type]
    legend, tall = draw_legend(entries, 8, 14, SIZE - 16)
    top = 14 + tall
    parts = [*legend]
    for (x, y), group, hint in zip((places - middle) / span, groups, hints, strict=True):
        at = SIZE / 2 + x * (SIZE - 32), top + SIZE / 2 - y * (SIZE - 32)
        title = f"<title>{escaped(shortened(hint, LONGEST_HINT))}</title>"
        parts.append(f'<g data-row="{escaped(group)}" fill-opacity=".75">{title}{marker(signs[group], *at, 0.75)}</g>')
    return svg(parts, SIZE, top + SIZE, name)

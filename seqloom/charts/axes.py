"""The two axes of a chart: which values they show, and where on the picture a value is."""

import math
from collections.abc import Iterable
from html import escape
from typing import NamedTuple

from seqloom.charts.palette import AXIS, GRID, MUTED
from seqloom.charts.ticks import Labels, linear_ticks, log_ticks, tick_labels

FONT = 13  # pixels
LOG = "log scale"
GRID_LINE = f'class="grid" stroke="{GRID.light}"'
AXIS_LINE = f'class="axis" stroke="{AXIS.light}"'
MUTED_TEXT = f'class="muted" fill="{MUTED.light}"'


def escaped(text: str) -> str:
    return escape(text)


NARROWEST = 0.34  # of a letter, by the size of the font


def text_width(text: str) -> float:
    """About how many pixels a text takes; a picture is drawn without knowing the reader's font."""
    wide = 0.0
    for letter in text:
        if letter in "ijltfrI.,:;'|!()[]· ":
            wide += NARROWEST
        elif letter in "mwMW@%≈▲▼★☆" or ord(letter) > 0x2E80:
            wide += 0.95
        else:
            wide += 0.66 if letter.isupper() else 0.58
    return wide * FONT


def shortened(text: str, longest: float) -> str:
    """At most so many pixels wide."""
    text = text[: int(longest / (NARROWEST * FONT)) + 2]  # no more can fit: widths of long texts take long
    if text_width(text) <= longest:
        return text
    while text and text_width(text + "…") > longest:
        text = text[:-1]
    return text + "…"


class Axis(NamedTuple):
    """From `low` at pixel `start` to `high` at pixel `stop`."""

    name: str
    low: float
    high: float
    log: bool
    start: float = 0.0
    stop: float = 1.0
    whole: bool = False  # it counts something: only whole numbers are written

    def at(self, value: float) -> float:
        low, high, value = (math.log10(x) for x in (self.low, self.high, value)) if self.log else (*self[1:3], value)
        return self.start + (value - low) / (high - low) * (self.stop - self.start)

    def ticks(self) -> list[float]:
        found = (log_ticks if self.log else linear_ticks)(self.low, self.high)
        return [value for value in found if value == round(value)] or found if self.whole else found

    def labels(self) -> Labels:
        return tick_labels(self.ticks(), self.log)

    def title(self) -> str:
        """Its name, whether it is logarithmic, and what its values are to be multiplied by."""
        remarks = [*([LOG] if self.log else []), *([self.labels().factor] if self.labels().factor else [])]
        return self.name + (f" ({', '.join(remarks)})" if remarks else "")

    def minor_ticks(self) -> list[float]:
        """2 to 9 times powers of ten, where they can be told from one another: a reader sees that the axis is logarithmic."""
        first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
        if last - first > 6:
            return []
        values = (m * 10.0**k for k in range(first, last + 1) for m in range(2, 10))
        return [value for value in values if self.low <= value <= self.high]


def is_shown(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def fit_axis(name: str, values: Iterable[float], log: bool = False, pad: float = 0.04) -> Axis | None:
    """An axis that shows all values with some room on both sides; None where there is no value to show."""
    known = [float(value) for value in values if is_shown(value, log)]  # perhaps of numpy
    if not known:
        return None
    low, high = min(known), max(known)
    if log:
        low, high = math.log10(low), math.log10(high)
    if high - low <= 1e-9 * max(abs(low), abs(high)):
        around = 0.3 if log else 0.1 * abs(high) or 1.0
        low, high = low - around, high + around
    spare = pad * (high - low)
    low, high = low - spare, high + spare
    return Axis(name, 10**low, 10**high, True) if log else Axis(name, low, high, False)


def draw_x_axis(axis: Axis, top: float, bottom: float) -> list[str]:
    """Values, a line for each, and the name below; vertical lines from top to bottom."""
    parts, labels = [], axis.labels()
    last = -math.inf
    for value, label in zip(axis.ticks(), labels.texts, strict=True):
        x, half = axis.at(value), text_width(label) / 2
        parts.append(f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{top:.1f}" y2="{bottom:.1f}" {GRID_LINE}/>')
        if x - half > last + 4:  # labels do not touch
            parts.append(f'<text x="{x:.1f}" y="{bottom + 18:.1f}" text-anchor="middle">{label}</text>')
            last = x + half
    if axis.log:
        minor = (f"M{axis.at(value):.1f} {bottom:.1f}v4" for value in axis.minor_ticks())
        parts.append(f'<path d="{"".join(minor)}" {AXIS_LINE}/>')
    parts.append(f'<line x1="{axis.start:.1f}" x2="{axis.stop:.1f}" y1="{bottom:.1f}" y2="{bottom:.1f}" {AXIS_LINE}/>')
    middle, room = (axis.start + axis.stop) / 2, axis.stop - axis.start
    title = escaped(shortened(axis.title(), room))
    parts.append(f'<text x="{middle:.1f}" y="{bottom + 38:.1f}" text-anchor="middle">{title}</text>')
    return parts


def draw_y_axis(axis: Axis, left: float, right: float) -> list[str]:
    """axis: its start is at the bottom. The name is drawn by the chart, above."""
    parts = []
    for value, label in zip(axis.ticks(), axis.labels().texts, strict=True):
        y = axis.at(value)
        parts.append(f'<line x1="{left:.1f}" x2="{right:.1f}" y1="{y:.1f}" y2="{y:.1f}" {GRID_LINE}/>')
        parts.append(f'<text x="{left - 8:.1f}" y="{y + 4.5:.1f}" text-anchor="end">{label}</text>')
    if axis.log:
        minor = (f"M{left:.1f} {axis.at(value):.1f}h-4" for value in axis.minor_ticks())
        parts.append(f'<path d="{"".join(minor)}" {AXIS_LINE}/>')
    parts.append(f'<line x1="{left:.1f}" x2="{left:.1f}" y1="{axis.start:.1f}" y2="{axis.stop:.1f}" {AXIS_LINE}/>')
    return parts

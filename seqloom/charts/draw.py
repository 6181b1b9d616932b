"""Pictures as SVG in plain strings, without scripts or fonts: curves, intervals, bars, matrices.

Texts in them may come from users: all of them are escaped. What belongs to a row is marked with its name (`data-row`), so that a
page can hide it.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from seqloom.charts.axes import (
    AXIS_LINE,
    FONT,
    GRID_LINE,
    MUTED_TEXT,
    Axis,
    draw_x_axis,
    draw_y_axis,
    escaped,
    fit_axis,
    is_shown,
    shortened,
    text_width,
)
from seqloom.charts.palette import (
    BETTER,
    INK,
    MARKERS,
    PAPER,
    TINT,
    WORSE,
    Look,
    fill,
    look,
    looks,
    picture_style,
    stroke,
)

WIDTH = 720  # of a chart
PLOT = 290  # the height between its axes
RIGHT = 18
LEGEND_LINE = 20
NOTHING = "<p>no measurements</p>"


class Curve(NamedTuple):
    """points: (x, y); a curve of one point has its name beside it. spread: the low and high end at each point, where known."""

    name: str
    points: Sequence[tuple[float, float]]
    dash: str | None = None  # SVG's stroke-dasharray; that of its look unless given
    spread: Sequence[tuple[float, float]] = ()
    band: bool = False  # the spread is an area, not error bars
    line: bool = True  # points are joined
    markers: bool = True
    like: str | None = None  # the series whose look it has, such as the one that it is fitted to
    legend: bool = True


class Mark(NamedTuple):
    """A remark in a chart: at a point, or a line across it where only x or only y is given."""

    text: str
    x: float | None = None
    y: float | None = None


FIT = "6 4"  # the dash of fitted curves


def svg(parts: Sequence[str], width: float, height: float, name: str, wide: bool = False) -> str:
    """wide: as wide as the page."""
    kind = "chart wide" if wide else "chart"
    return (
        f'<svg class="{kind}" viewBox="0 0 {width:.0f} {height:.0f}" width="{width:.0f}" height="{height:.0f}" role="img" '
        f'aria-label="{escaped(name)}" fill="{INK.light}" font-family="system-ui, sans-serif" font-size="{FONT}">'
        f'<rect class="paper" width="100%" height="100%" fill="{PAPER.light}"/>{"".join(parts)}</svg>'
    )


def as_file(picture: str) -> str:
    """A picture as a file of its own, light or dark as its reader prefers."""
    start, rest = picture.split(">", 1)
    start = start.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return f"{start}><style>{picture_style()}</style>{rest}\n"


def marker(found: Look, x: float, y: float, scale: float = 1.0) -> str:
    size = f" scale({scale:g})" if scale != 1 else ""
    return f'<path d="{MARKERS[found.marker]}" transform="translate({x:.1f} {y:.1f}){size}" {fill(found.colour)}/>'


def dashed(dash: str) -> str:
    return f' stroke-dasharray="{escaped(dash)}"' if dash else ""


def sign(found: Look, x: float, y: float, line: bool = True, markers: bool = True, dash: str | None = None) -> str:
    """The sign of a series in a legend, 28 pixels wide."""
    dash = found.dash if dash is None else dash
    parts = [
        f'<path d="M{x:.1f} {y:.1f}h28" fill="none" {stroke(found.colour)} stroke-width="2"{dashed(dash)}/>'
    ] * line
    return "".join([*parts, *([marker(found, x + 14, y, 0.8)] if markers else [])])


class Entry(NamedTuple):
    """Of a legend: what is drawn for it at (x, y), 28 pixels wide, and its text."""

    text: str
    draw: Callable[[float, float], str]
    row: str | None = None


def draw_legend(entries: Sequence[Entry], left: float, top: float, room: float) -> tuple[list[str], float]:
    """In as many lines as needed; also their height."""
    parts, x, y = [], left, top
    for entry in entries:
        text = shortened(entry.text, room - 40)
        wide = 34 + text_width(text) + 18
        if x > left and x + wide - 18 > left + room:
            x, y = left, y + LEGEND_LINE
        belongs = "" if entry.row is None else f' data-row="{escaped(entry.row)}"'
        parts.append(
            f'<g{belongs}>{entry.draw(x, y)}<text x="{x + 34:.1f}" y="{y + 4.5:.1f}">{escaped(text)}</text></g>'
        )
        x += wide
    return parts, (y - top + LEGEND_LINE) if entries else 0.0


# ---- curves


def chart(
    x_name: str,
    y_name: str,
    curves: Sequence[Curve],
    signs: Mapping[str, Look] | None = None,
    *,
    log_x: bool = False,
    log_y: bool = False,
    marks: Sequence[Mark] = (),
    better: str = "",
    whole_x: bool = False,
) -> str:
    """Curves over two axes with a legend. signs: of the curves by their names. better: 'lower' or 'higher', where y has
    a better direction. whole_x: x counts something. What a logarithmic axis cannot show is left out, and counted in the
    legend."""
    signs = signs or looks(curve.like or curve.name for curve in curves)
    shown = [visible(curve, log_x, log_y) for curve in curves]
    lost = sum(len(curve.points) for curve in curves) - sum(len(curve.points) for curve in shown)
    shown = [curve for curve in shown if curve.points]
    xs, ys = values_of(shown, marks)
    name = y_name + (f", {better} is better" if better else "")
    x_axis, y_axis = fit_axis(x_name, xs, log_x), fit_axis(name, ys, log_y)
    if x_axis is None or y_axis is None or not shown:
        return NOTHING
    left = 18 + max(text_width(label) for label in y_axis.labels().texts)
    legend, tall = draw_legend(curve_entries(shown, signs, lost), left, 34, WIDTH - left - RIGHT)
    top = 34 + tall
    bottom = top + PLOT
    x_axis = x_axis._replace(start=left, stop=WIDTH - RIGHT, whole=whole_x)
    y_axis = y_axis._replace(start=bottom, stop=top)
    parts = [f'<text x="{left:.1f}" y="16">{escaped(shortened(y_axis.title(), WIDTH - left - RIGHT))}</text>', *legend]
    parts += [*draw_y_axis(y_axis, left, WIDTH - RIGHT), *draw_x_axis(x_axis, top, bottom)]
    parts += chain.from_iterable(mark_line(mark, x_axis, y_axis) for mark in marks)
    for number, curve in enumerate(shown):
        drawn = "".join(draw_curve(curve, x_axis, y_axis, look_of(curve, signs), number))
        parts.append(f'<g data-row="{escaped(curve.like or curve.name)}">{drawn}</g>')
    parts += draw_names(shown, marks, x_axis, y_axis)
    return svg(parts, WIDTH, bottom + 48, f"{y_axis.title()} against {x_axis.title()}", wide=True)


def values_of(curves: Sequence[Curve], marks: Sequence[Mark]) -> tuple[list[float], list[float]]:
    """All that the two axes must show."""
    points = [point for curve in curves for point in curve.points]
    xs = [x for x, _y in points] + [mark.x for mark in marks if mark.x is not None]
    ys = [y for _x, y in points] + [mark.y for mark in marks if mark.y is not None]
    return xs, ys + [y for curve in curves for pair in curve.spread for y in pair]


def draw_names(curves: Sequence[Curve], marks: Sequence[Mark], x_axis: Axis, y_axis: Axis) -> list[str]:
    """The names of single points and of marks, where no point is."""
    single = [curve for curve in curves if len(curve.points) == 1]
    places = [(x_axis.at(curve.points[0][0]), y_axis.at(curve.points[0][1])) for curve in single]
    taken = [Box(x - 6, y - 6, x + 6, y + 6) for x, y in places]
    parts: list[str] = []
    for curve in single:
        if curve.legend:
            parts += name_beside(curve, x_axis, y_axis, taken)
    for mark in marks:
        parts += mark_text(mark, x_axis, y_axis, taken)
    return parts


def visible(curve: Curve, log_x: bool, log_y: bool) -> Curve:
    """With the points that the axes can show. Ends of intervals that they cannot show are those of the point."""
    spread = curve.spread or [(math.nan, math.nan)] * len(curve.points)
    points, ends = [], []
    for (x, y), pair in zip(curve.points, spread, strict=True):
        if is_shown(x, log_x) and is_shown(y, log_y):
            points.append((x, y))
            low, high = (end if is_shown(end, log_y) else y for end in pair)
            ends.append((low, high))
    return curve._replace(points=points, spread=ends if curve.spread else ())


def look_of(curve: Curve, signs: Mapping[str, Look]) -> Look:
    found = signs.get(curve.like or curve.name, look(0))
    return found if curve.dash is None else found._replace(dash=curve.dash)


def curve_entries(curves: Sequence[Curve], signs: Mapping[str, Look], lost: int) -> list[Entry]:
    entries = {}
    for curve in curves:
        if curve.legend and curve.name not in entries:
            found = look_of(curve, signs)
            line = curve.line and len(curve.points) > 1

            def draw(x: float, y: float, found: Look = found, line: bool = line, markers: bool = curve.markers) -> str:
                return sign(found, x, y, line, markers)

            entries[curve.name] = Entry(curve.name, draw, curve.like or curve.name)
    left_out = [Entry(f"{lost} points cannot be shown", lambda x, y: "")] if lost else []
    return [*entries.values(), *left_out]


def draw_curve(curve: Curve, x_axis: Axis, y_axis: Axis, found: Look, number: int) -> list[str]:
    places = [(x_axis.at(x), y_axis.at(y)) for x, y in curve.points]
    ends = [(y_axis.at(low), y_axis.at(high)) for low, high in curve.spread]
    parts = []
    if curve.band and len(places) > 1 and ends:
        upper = [(x, high) for (x, _y), (_low, high) in zip(places, ends, strict=True)]
        lower = [(x, low) for (x, _y), (low, _high) in zip(places, ends, strict=True)]
        parts.append(
            f'<polygon points="{joined([*upper, *reversed(lower)])}" fill-opacity=".16" {fill(found.colour)}/>'
        )
    elif ends:
        bars = "".join(
            f"M{x:.1f} {low:.1f}V{high:.1f}M{x - 4:.1f} {low:.1f}h8M{x - 4:.1f} {high:.1f}h8"
            for (x, _y), (low, high) in zip(places, ends, strict=True)
            if low != high
        )
        parts.append(f'<path d="{bars}" fill="none" {stroke(found.colour)} stroke-width="1.5"/>')
    if curve.line and len(places) > 1:
        parts.append(
            f'<polyline points="{joined(places)}" fill="none" {stroke(found.colour)} stroke-width="2" '
            f'stroke-linejoin="round"{dashed(found.dash)}/>'
        )
    if curve.markers:
        every = max(len(places) // 6, 1) if curve.line and len(places) > 12 else 1
        parts += [marker(found, x, y) for x, y in places[(3 * number) % every :: every]]
    return parts


def joined(places: Sequence[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in places)


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float

    def meets(self, other: "Box") -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


def name_beside(curve: Curve, x_axis: Axis, y_axis: Axis, taken: list[Box]) -> list[str]:
    """The name of a single point, where there is room for it; the legend has it in any case."""
    x, y = x_axis.at(curve.points[0][0]), y_axis.at(curve.points[0][1])
    wide = text_width(curve.name)
    for left, middle in ((x - wide / 2, y - 15), (x + 10, y), (x - 10 - wide, y), (x - wide / 2, y + 15)):
        box = Box(left, middle - 8, left + wide, middle + 8)
        inside = box.left >= x_axis.start and box.right <= x_axis.stop and box.top >= y_axis.stop
        if inside and box.bottom <= y_axis.start and not any(box.meets(other) for other in taken):
            taken.append(box)
            row = escaped(curve.like or curve.name)
            return [f'<g data-row="{row}">{on_paper(box)}{text_in(box, curve.name)}</g>']
    return []


def on_paper(box: Box) -> str:
    """Behind a text that may stand on curves."""
    wide, high = box.right - box.left + 4, box.bottom - box.top
    return (
        f'<rect class="paper" x="{box.left - 2:.1f}" y="{box.top:.1f}" width="{wide:.1f}" height="{high:.1f}" '
        f'fill="{PAPER.light}" fill-opacity=".75"/>'
    )


def text_in(box: Box, text: str, style: str = "") -> str:
    return f'<text x="{box.left:.1f}" y="{box.top + 12.5:.1f}"{style}>{escaped(text)}</text>'


def can_be_marked(mark: Mark, x_axis: Axis, y_axis: Axis) -> bool:
    given = [(value, axis.log) for value, axis in ((mark.x, x_axis), (mark.y, y_axis)) if value is not None]
    return bool(given) and all(is_shown(value, log) for value, log in given)


def mark_line(mark: Mark, x_axis: Axis, y_axis: Axis) -> list[str]:
    """A line across the chart, or a ring around a point."""
    if not can_be_marked(mark, x_axis, y_axis):
        return []
    x, y = (None if value is None else axis.at(value) for value, axis in ((mark.x, x_axis), (mark.y, y_axis)))
    if x is not None and y is not None:
        return [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" {AXIS_LINE} stroke-width="1.5"/>']
    vertical = f"M{x:.1f} {y_axis.start:.1f}V{y_axis.stop:.1f}" if x is not None else ""
    horizontal = f"M{x_axis.start:.1f} {y:.1f}H{x_axis.stop:.1f}" if y is not None else ""
    return [f'<path d="{vertical}{horizontal}" {AXIS_LINE} stroke-width="1.5" stroke-dasharray="3 3"/>']


def mark_text(mark: Mark, x_axis: Axis, y_axis: Axis, taken: list[Box]) -> list[str]:
    """Beside the top of a vertical line, above the end of a horizontal one, or above a point; lower where another text stands."""
    if not can_be_marked(mark, x_axis, y_axis):
        return []
    wide = text_width(mark.text)
    x = x_axis.stop - 12 - wide if mark.x is None else x_axis.at(mark.x)
    y = y_axis.stop + 9 if mark.y is None else y_axis.at(mark.y) - 10
    y -= 8 if mark.x is not None and mark.y is not None else 0
    left = x + 6 if x + 6 + wide <= x_axis.stop else x - 6 - wide
    box = Box(left, y - 8, left + wide, y + 8)
    while any(box.meets(other) for other in taken) and box.bottom < y_axis.start:
        box = box._replace(top=box.top + 16, bottom=box.bottom + 16)
    taken.append(box)
    return [on_paper(box), text_in(box, mark.text, f" {MUTED_TEXT}")]


# ---- intervals and bars

ROW = 30  # the height of a row
LONGEST_LABEL = 210  # pixels


class Estimate(NamedTuple):
    """A value with its interval, which has no line where it is unbounded, and the numbers that it is the mean of."""

    name: str
    value: float
    low: float
    high: float
    dots: Sequence[float] = ()


def intervals(
    estimates: Sequence[Estimate],
    x_name: str,
    signs: Mapping[str, Look] | None = None,
    *,
    log_x: bool = False,
    better: str = "",
    dot_name: str = "one seed",
) -> str:
    """A line for each estimate: its sign at the value, its interval, and its dots below it."""
    signs = signs or looks(each.name for each in estimates)
    values = [number for each in estimates for number in (each.value, each.low, each.high, *each.dots)]
    name = x_name + (f", {better} is better" if better else "")
    axis = fit_axis(name, values, log_x)
    if axis is None:
        return NOTHING
    left = 16 + min(max(text_width(each.name) for each in estimates), LONGEST_LABEL)
    axis = axis._replace(start=left + 8, stop=WIDTH - 78)
    has_ends = any(math.isfinite(each.low) and math.isfinite(each.high) for each in estimates)
    entries = [Entry("mean", lambda x, y: muted_marker(x + 14, y))]
    entries += [Entry("95% confidence interval", lambda x, y: whisker(x, x + 28, y, "axis"))] * has_ends
    entries += [Entry(dot_name, lambda x, y: muted_dot(x + 14, y))] * any(each.dots for each in estimates)
    legend, tall = draw_legend(entries, left + 8, 14, WIDTH - left - 16)
    top = 14 + tall
    bottom = top + ROW * len(estimates)
    parts = [*legend, *draw_x_axis(axis, top, bottom)]
    digits = decimals(each.value for each in estimates)
    for i, each in enumerate(estimates):
        found, y = signs.get(each.name, look(0)), top + ROW * i + ROW / 2
        drawn = [
            f'<text x="{left:.1f}" y="{y + 4.5:.1f}" text-anchor="end">{escaped(shortened(each.name, left - 8))}</text>'
        ]
        up = y - 4 if each.dots else y
        if is_shown(each.low, log_x) and is_shown(each.high, log_x):
            drawn.append(whisker(axis.at(each.low), axis.at(each.high), up, stroke(found.colour)))
        if is_shown(each.value, log_x):
            drawn.append(marker(found, axis.at(each.value), up))
        drawn += [
            f'<circle cx="{axis.at(dot):.1f}" cy="{y + 8:.1f}" r="2.6" fill="none" {stroke(found.colour)} stroke-width="1.3"/>'
            for dot in each.dots
            if is_shown(dot, log_x)
        ]
        drawn.append(f'<text x="{WIDTH - 8}" y="{y + 4.5:.1f}" text-anchor="end">{each.value:.{digits}f}</text>')
        parts.append(f'<g data-row="{escaped(each.name)}">{"".join(drawn)}</g>')
    return svg(parts, WIDTH, bottom + 48, name, wide=True)


def decimals(values: Iterable[float], significant: int = 4) -> int:
    """Digits behind the point with which the largest of some values has so many significant ones."""
    largest = max((abs(value) for value in values if math.isfinite(value)), default=0.0)
    return min(max(significant - 1 - math.floor(math.log10(largest)), 0), 9) if largest > 0 else 1


def whisker(start: float, stop: float, y: float, style: str) -> str:
    """style: attributes of its colour, or 'axis'."""
    colour = AXIS_LINE if style == "axis" else style
    path = f"M{start:.1f} {y:.1f}H{stop:.1f}M{start:.1f} {y - 5:.1f}v10M{stop:.1f} {y - 5:.1f}v10"
    return f'<path d="{path}" fill="none" {colour} stroke-width="2"/>'


def muted_marker(x: float, y: float) -> str:
    return f'<path d="{MARKERS[0]}" transform="translate({x:.1f} {y:.1f})" {MUTED_TEXT}/>'


def muted_dot(x: float, y: float) -> str:
    return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6" fill="none" {AXIS_LINE} stroke-width="1.3"/>'


def bars(names: Sequence[str], shares: Sequence[float], x_name: str) -> str:
    """Numbers from 0 upwards as horizontal bars, with the numbers beside them."""
    axis = fit_axis(x_name, [0.0, *shares], pad=0.0)
    if axis is None or not names:
        return NOTHING
    left = 16 + min(max(map(text_width, names)), LONGEST_LABEL)
    axis = axis._replace(start=left + 8, stop=WIDTH - 78)
    bottom = 8.0 + 26 * len(names)
    parts = draw_x_axis(axis, 8, bottom)
    for i, (label, share) in enumerate(zip(names, shares, strict=True)):
        y, end = 8 + 26 * i + 13, axis.at(share) if math.isfinite(share) else axis.start
        parts += [
            f'<text x="{left:.1f}" y="{y + 4.5:.1f}" text-anchor="end">{escaped(shortened(label, left - 8))}</text>',
            f'<rect x="{axis.start:.1f}" y="{y - 9}" width="{max(end - axis.start, 0):.1f}" height="18" {fill(BETTER)}/>',
            f'<text x="{end + 6:.1f}" y="{y + 4.5:.1f}">{share:.3f}</text>',
        ]
    return svg(parts, WIDTH, bottom + 48, x_name, wide=True)


def plane(points: Sequence[tuple[str, Sequence[complex]]], signs: Mapping[str, Look] | None = None) -> str:
    """Points in the complex plane, with the unit circle."""
    size, middle = 420, 210
    signs = signs or looks(name for name, _group in points)
    reach = max([1.0, *(max(abs(z.real), abs(z.imag)) for _name, group in points for z in group)]) * 1.15
    scale = middle / reach
    entries = [
        Entry(name, lambda x, y, found=signs.get(name, look(0)): marker(found, x + 14, y, 0.6), name)  # type: ignore[misc]
        for name, _group in points
    ]
    entries.append(Entry("unit circle", lambda x, y: f'<circle cx="{x + 14}" cy="{y}" r="7" fill="none" {AXIS_LINE}/>'))
    legend, tall = draw_legend(entries, 8, 14, size - 16)
    top = 14 + tall
    parts = [
        *legend,
        f'<g transform="translate(0 {top:.1f})">',
        f'<path d="M0 {middle}H{size}M{middle} 0V{size}" {GRID_LINE}/>',
        f'<circle cx="{middle}" cy="{middle}" r="{scale:.1f}" fill="none" {AXIS_LINE}/>',
        f'<text x="{middle + scale + 4:.1f}" y="{middle - 5}">1</text>',
        f'<text x="{middle - scale - 4:.1f}" y="{middle - 5}" text-anchor="end">−1</text>',
        f'<text x="{middle + 5}" y="{middle - scale - 5:.1f}">i</text>',
        f'<text x="{middle + 5}" y="{middle + scale + 15:.1f}">−i</text>',
        f'<text x="{size - 4}" y="{middle + 16}" text-anchor="end">real part</text>',
        f'<text x="{middle - 6}" y="12" text-anchor="end">imaginary part</text>',
    ]
    for name, group in points:
        drawn = [
            marker(signs.get(name, look(0)), middle + z.real * scale, middle - z.imag * scale, 0.45) for z in group
        ]
        parts.append(f'<g data-row="{escaped(name)}">{"".join(drawn)}</g>')
    return svg([*parts, "</g>"], size, top + size, "complex plane")


# ---- matrices


class Square(NamedTuple):
    """Of a matrix. shade: from −1 (worse, below the middle) over 0 (no colour) to 1."""

    text: str
    shade: float = 0.0
    hint: str = ""  # shown when a pointer rests on it


def grid(
    rows: Sequence[str],
    columns: Sequence[str],
    squares: Sequence[Sequence[Square]],
    name: str,
    scale: Sequence[Square] = (),
) -> str:
    """Squares with a text in each, and what their shades stand for below them (scale)."""
    longest = max((text_width(square.text) for line in squares for square in line), default=0.0)
    wide, high = round(max(longest + 12, 24)), 24
    row_names = [shortened(row, LONGEST_LABEL) for row in rows]
    column_names = [shortened(column, LONGEST_LABEL) for column in columns]
    over = max(map(text_width, column_names), default=0.0)
    left, top = 14 + max(map(text_width, row_names), default=0.0), 12 + over * 0.87 + 10  # names lean over to the right
    legend, tall = draw_legend(
        [Entry(each.text, tinted(each.shade)) for each in scale], 8, 0, max(400, left + wide * len(columns))
    )
    width = max(left + wide * len(columns) + over * 0.5 + 16, 420 if scale else 0)
    height = top + high * len(rows) + 22 + tall
    parts = []
    for j, column in enumerate(column_names):
        x, y = left + wide * j + wide / 2, top - 6
        parts.append(f'<text transform="translate({x:.1f} {y:.1f}) rotate(-60)">{escaped(column)}</text>')
    for i, (row, line) in enumerate(zip(row_names, squares, strict=True)):
        y = top + high * i
        parts.append(f'<text x="{left - 6:.1f}" y="{y + 16.5:.1f}" text-anchor="end">{escaped(row)}</text>')
        drawn = [draw_square(square, left + wide * j, y, wide, high) for j, square in enumerate(line)]
        parts.append(f'<g class="squares" text-anchor="middle">{"".join(drawn)}</g>')
    parts.append(f'<g transform="translate(0 {top + high * len(rows) + 20:.1f})">{"".join(legend)}</g>')
    return svg(parts, width, height, name)


def tinted(shade: float) -> Callable[[float, float], str]:
    return lambda x, y: draw_square(Square("", shade), x + 8, y - 8, 20, 17)


def draw_square(square: Square, x: float, y: float, wide: float, high: float) -> str:
    """There may be thousands in a picture: what has no colour and no hint is its text alone."""
    colour, opacity = BETTER if square.shade >= 0 else WORSE, min(abs(square.shade), 1.0) * TINT
    found = ""
    if opacity >= 0.005 or square.hint:
        hint = f"<title>{escaped(square.hint)}</title>" if square.hint else ""
        size = f'width="{wide - 1:.0f}" height="{high - 1:.0f}"'
        found = f'<rect x="{x:.0f}" y="{y:.0f}" {size} fill-opacity="{opacity:.2f}" {fill(colour)}>{hint}</rect>'
    text = (
        f'<text x="{x + wide / 2:.0f}" y="{y + high / 2 + 4:.0f}">{escaped(square.text)}</text>' if square.text else ""
    )
    return found + text


def matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    name: str,
    middle: float = 0.0,
    write: Callable[[float], str] = "{:.2f}".format,
) -> str:
    """Numbers from 0 to 1, each in a square. middle: the value without colour; values below it have another colour. write: a
    number as it stands in its square."""

    def shade(number: float) -> float:
        reach = (1 - middle if number >= middle else middle) or 1.0
        return (number - middle) / reach if math.isfinite(number) else 0.0

    squares = [
        [Square(write(number) if math.isfinite(number) else "–", shade(number)) for number in line] for line in values
    ]
    ends = sorted({0.0, middle / 2, middle, (1 + middle) / 2, 1.0})
    return grid(rows, columns, squares, name, [Square(write(value) or f"{value:g}", shade(value)) for value in ends])

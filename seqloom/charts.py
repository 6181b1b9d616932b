"""Self-contained charts and pages, without scripts, fonts or external links: SVG and HTML as plain strings."""

import html
import math
import re
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.progress import human

COLOURS = (
    "#c2410c", "#0369a1", "#15803d", "#7e22ce", "#a16207", "#be123c", "#0f766e", "#4338ca", "#4d7c0f", "#a21caf",
    "#475569", "#b45309", "#1d4ed8", "#86198f", "#065f46", "#9f1239",
)  # fmt: skip

STYLE = """
:root { color-scheme: light dark; --line: #8884; --soft: #8882; }
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.7rem; margin-bottom: .2rem } h2 { font-size: 1.2rem; margin-top: 2.2rem }
.note { opacity: .75 }
table { border-collapse: collapse; width: 100% } th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
th { text-align: right; font-weight: 600 } td { text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child { text-align: left }
pre { background: var(--soft); padding: .8rem; border-radius: .4rem; white-space: pre-wrap; overflow-wrap: anywhere }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(17rem, 1fr)); gap: 1rem }
.samples pre { font-size: .82rem; max-height: 24rem; overflow: auto }
svg { width: 100%; height: auto } svg text { fill: currentColor; font: 12px system-ui, sans-serif }
.swatch { display: inline-block; width: .8em; height: .8em; border-radius: .2em; margin-right: .4em }
"""


class Curve(NamedTuple):
    name: str
    points: list[tuple[float, float]]
    dash: str = ""  # SVG's stroke-dasharray; a solid line unless given
    spread: Sequence[tuple[float, float]] = ()  # the lowest and highest value at each point, where known


def page(title: str, parts: Sequence[str]) -> str:
    """A whole HTML document."""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escaped(title)}</title><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def escaped(text: str) -> str:
    return html.escape(text)


INTERVAL = re.compile(r"± \S+( [★☆])?|\[[^]]*\]")


def keep_together(found: re.Match[str]) -> str:
    return found[0].replace(" ", "\u00a0")


def table(header: Sequence[str], rows: Sequence[Sequence[str]], colour: dict[str, str] | None = None) -> str:
    """colour: of rows, by their first cell."""
    head = "".join(f"<th>{escaped(cell)}</th>" for cell in header)
    body = ""
    for row in rows:
        shade = (colour or {}).get(row[0])
        swatch = f'<span class="swatch" style="background:{shade}"></span>' if shade else ""
        # no line break inside an interval
        cells = "".join(f"<td>{INTERVAL.sub(keep_together, escaped(cell))}</td>" for cell in row[1:])
        body += f"<tr><td>{swatch}{escaped(row[0])}</td>{cells}</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"


WIDTH, HEIGHT = 860, 370  # of a chart
LEFT, RIGHT, BOTTOM, TOP = 56, 12, 40, 24  # its margins


class Axes(NamedTuple):
    """The part of the plane that a chart shows, and where its points are on the picture."""

    x0: float
    x1: float
    y0: float
    y1: float
    log_x: bool = False  # x is a logarithm to base 10

    def place(self, x: float, y: float) -> str:
        across = LEFT + (x - self.x0) / (self.x1 - self.x0) * (WIDTH - LEFT - RIGHT)
        up = HEIGHT - BOTTOM - (y - self.y0) / (self.y1 - self.y0) * (HEIGHT - BOTTOM - TOP)
        return f"{across:.1f},{up:.1f}"


def chart(x_name: str, y_name: str, curves: Sequence[Curve], colour: dict[str, str], log_x: bool = False) -> str:
    """Curves over two axes, as SVG; a curve of one point is a dot with its name beside it. log_x: a logarithmic x axis."""
    if log_x:
        positive = [(curve, [(x, y) for x, y in curve.points if x > 0]) for curve in curves]
        curves = [curve._replace(points=[(math.log10(x), y) for x, y in points]) for curve, points in positive]
    axes = fit_axes(curves, log_x)
    if axes is None:
        return "<p>no measurements</p>"
    parts = [
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" role="img" aria-label="{escaped(y_name)} against {escaped(x_name)}">',
        *draw_grid(axes, x_name, y_name),
    ]
    for curve in curves:
        draw = draw_dot if len(curve.points) == 1 else draw_curve
        parts += draw(curve, axes, colour.get(curve.name, COLOURS[0]))
    return "".join(parts) + "</svg>"


def fit_axes(curves: Sequence[Curve], log_x: bool) -> Axes | None:
    """Axes that show all curves; None where there is no point."""
    xs = [x for curve in curves for x, _y in curve.points]
    ys = [y for curve in curves for _x, y in curve.points]
    ys += [y for curve in curves for pair in curve.spread for y in pair]
    if not xs:
        return None
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    x1, y1 = x1 + (x1 == x0), y1 + (y1 == y0)
    if any(len(curve.points) == 1 for curve in curves):  # a dot on the edge would be cut off
        spare_x, spare_y = 0.06 * (x1 - x0), 0.06 * (y1 - y0)
        x0, x1, y0, y1 = x0 - spare_x, x1 + spare_x, y0 - spare_y, y1 + spare_y
    return Axes(x0, x1, y0, y1, log_x)


def draw_grid(axes: Axes, x_name: str, y_name: str) -> list[str]:
    """Five values on each axis, and the names of both."""
    parts, right = [], WIDTH - RIGHT
    for i in range(5):
        value = axes.y0 + (axes.y1 - axes.y0) * i / 4
        at = axes.place(axes.x0, value).split(",")[1]
        parts.append(f'<line x1="{LEFT}" x2="{right}" y1="{at}" y2="{at}" stroke="currentColor" opacity=".15"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{at}" text-anchor="end" dominant-baseline="middle">{value:.4g}</text>')
        value = axes.x0 + (axes.x1 - axes.x0) * i / 4
        at, label = axes.place(value, axes.y0).split(",")[0], 10**value if axes.log_x else value
        anchor = "start" if i == 0 else "end" if i == 4 else "middle"
        base = HEIGHT - BOTTOM + 18
        parts.append(f'<text x="{at}" y="{base}" text-anchor="{anchor}">{human(label, ".3g", ".3g")}</text>')
    parts.append(f'<text x="{right}" y="{HEIGHT - 4}" text-anchor="end">{escaped(x_name)}</text>')
    parts.append(f'<text x="{LEFT}" y="12">{escaped(y_name)}</text>')
    return parts


def draw_dot(curve: Curve, axes: Axes, stroke: str) -> list[str]:
    across, up = axes.place(*curve.points[0]).split(",")
    aside, anchor = (-9, "end") if float(across) > 0.8 * WIDTH else (9, "start")
    return [
        f'<circle cx="{across}" cy="{up}" r="5" fill="{stroke}"/>',
        f'<text x="{float(across) + aside:.1f}" y="{up}" text-anchor="{anchor}" dominant-baseline="middle">'
        f"{escaped(curve.name)}</text>",
    ]


def draw_curve(curve: Curve, axes: Axes, stroke: str) -> list[str]:
    line = " ".join(axes.place(x, y) for x, y in curve.points)
    dash = f' stroke-dasharray="{curve.dash}"' if curve.dash else ""
    parts = [f'<polyline points="{line}" fill="none" stroke="{stroke}" stroke-width="2"{dash}/>']
    for (x, _y), ends in zip(curve.points, curve.spread, strict=False):
        line = " ".join(axes.place(x, end) for end in ends)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{stroke}" stroke-width="6" opacity=".35"/>')
    return parts


def bars(names: Sequence[str], shares: Sequence[float], name: str) -> str:
    """Fractions from 0 to 1 as horizontal bars, as SVG."""
    width, height, left = 560, 24, 130
    longest = max([*shares, 1e-9])
    parts = [
        f'<svg viewBox="0 0 {width} {height * len(names)}" role="img" aria-label="{escaped(name)}" style="max-width:{width}px">'
    ]
    for i, (label, share) in enumerate(zip(names, shares, strict=True)):
        y, long = height * i, (width - left - 60) * share / longest
        parts += [
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" dominant-baseline="middle">{escaped(label)}</text>',
            f'<rect x="{left}" y="{y + 2}" width="{long:.1f}" height="{height - 4}" fill="{COLOURS[1]}"/>',
            f'<text x="{left + long + 6:.1f}" y="{y + 12}" dominant-baseline="middle">{share:.3f}</text>',
        ]
    return "".join(parts) + "</svg>"


def whiskers(
    names: Sequence[str], ends: Sequence[tuple[float, float, float]], name: str, colour: dict[str, str]
) -> str:
    """A dot for each name with a line for its interval, as SVG. ends: value, low, high; an unbounded interval has no line."""
    width, height, left, right = 860, 26, 210, 70
    known = [number for each in ends for number in each if math.isfinite(number)]
    low, high = min(known), max(known)
    spare = (high - low or abs(high) or 1.0) * 0.04
    low, high = low - spare, high + spare
    parts = [f'<svg viewBox="0 0 {width} {height * len(names) + 22}" role="img" aria-label="{escaped(name)}">']

    def across(value: float) -> str:
        return f"{left + (value - low) / (high - low) * (width - left - right):.1f}"

    for i, (label, (value, start, stop)) in enumerate(zip(names, ends, strict=True)):
        y, stroke = height * i + height // 2, colour.get(label, COLOURS[0])
        parts.append(
            f'<text x="{left - 12}" y="{y}" text-anchor="end" dominant-baseline="middle">{escaped(label)}</text>'
        )
        if math.isfinite(start) and math.isfinite(stop):
            parts.append(
                f'<line x1="{across(start)}" x2="{across(stop)}" y1="{y}" y2="{y}" stroke="{stroke}" stroke-width="5" '
                'opacity=".4"/>'
            )
        parts.append(f'<circle cx="{across(value)}" cy="{y}" r="5" fill="{stroke}"/>')
        parts.append(f'<text x="{width - 4}" y="{y}" text-anchor="end" dominant-baseline="middle">{value:.4g}</text>')
    base = height * len(names) + 16
    parts += [
        f'<text x="{across(value)}" y="{base}" text-anchor="middle" opacity=".7">{value:.4g}</text>'
        for value in (low, (low + high) / 2, high)
    ]
    return "".join(parts) + "</svg>"


def as_file(picture: str, colour: dict[str, str], rising: bool = False) -> str:
    """A chart as a file of its own, with the names of its curves in it and a style of its own. rising: curves leave the lower
    right corner free, not the left one."""
    place = 'x="840" text-anchor="end"' if rising else 'x="72"'
    names = "".join(
        f'<text {place} y="{300 - 18 * i}" fill="{stroke}">{escaped(name)}</text>'
        for i, (name, stroke) in enumerate(reversed(colour.items()))
    )
    style = '<svg xmlns="http://www.w3.org/2000/svg" font-family="sans-serif" font-size="13" '
    return picture.replace("<svg ", style, 1).replace("</svg>", f"{names}</svg>\n")


def plane(points: Sequence[tuple[str, Sequence[complex]]], colour: dict[str, str]) -> str:
    """Points in the complex plane, with the unit circle, as SVG."""
    size, middle = 420, 210
    reach = max([1.0, *(max(abs(z.real), abs(z.imag)) for _name, group in points for z in group)]) * 1.1
    scale = middle / reach
    parts = [
        f'<svg viewBox="0 0 {size} {size}" role="img" aria-label="complex plane" style="max-width:30rem">',
        f'<circle cx="{middle}" cy="{middle}" r="{scale:.1f}" fill="none" stroke="currentColor" opacity=".5"/>',
        f'<line x1="0" x2="{size}" y1="{middle}" y2="{middle}" stroke="currentColor" opacity=".15"/>',
        f'<line y1="0" y2="{size}" x1="{middle}" x2="{middle}" stroke="currentColor" opacity=".15"/>',
        f'<text x="{min(middle + scale, size - 4):.1f}" y="{middle - 6}" text-anchor="end">1</text>',
    ]
    for name, group in points:
        fill = colour.get(name, COLOURS[0])
        parts += [
            f'<circle cx="{middle + z.real * scale:.1f}" cy="{middle - z.imag * scale:.1f}" r="2" fill="{fill}"/>'
            for z in group
        ]
    return "".join(parts) + "</svg>"


def matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    name: str,
    middle: float = 0.0,
    cell_format: str = "",
) -> str:
    """Numbers from 0 to 1 as a heat map, one row for each name on the left, as SVG. middle: the value without colour; values
    below it have another colour. cell_format: how a number is written into its square, if it is."""
    wide, high = (42 if cell_format else 22), 22
    left, top = max(110, 8 + 7 * max(map(len, rows), default=0)), max(100, 14 + 6 * max(map(len, columns), default=0))
    spare = 4 * max(map(len, columns), default=0)  # names lean over to the right
    width, height = left + wide * len(columns) + spare, top + high * len(rows) + 8
    parts = [
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escaped(name)}" style="max-width:{width}px">'
    ]
    for j, column in enumerate(columns):
        x = left + wide * j + wide / 2
        parts.append(f'<text x="{x}" y="{top - 6}" transform="rotate(-60 {x} {top - 6})">{escaped(column)}</text>')
    for i, (row, numbers) in enumerate(zip(rows, values, strict=True)):
        y = top + high * i
        parts.append(
            f'<text x="{left - 6}" y="{y + high / 2}" text-anchor="end" dominant-baseline="middle">{escaped(row)}</text>'
        )
        for j, number in enumerate(numbers):
            x, above = left + wide * j, number >= middle
            reach = (1 - middle if above else middle) or 1.0
            darkest = 0.7 if cell_format else 1.0  # a number in the square stays readable
            shade = min(abs(number - middle) / reach, 1.0) * darkest
            parts.append(
                f'<rect x="{x}" y="{y}" width="{wide - 1}" height="{high - 1}" fill="{COLOURS[1 if above else 0]}" '
                f'fill-opacity="{shade:.3f}"><title>{escaped(row)} → {escaped(columns[j])}: {number:.3f}</title></rect>'
            )
            if cell_format:
                parts.append(
                    f'<text x="{x + wide / 2}" y="{y + high / 2}" text-anchor="middle" dominant-baseline="middle">'
                    f"{cell_format.format(number)}</text>"
                )
    return "".join(parts) + "</svg>"

"""One self-contained HTML page about some runs: curves, table, samples, commands. No script, no font, no link outside."""

import html
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.progress import human

COLOURS = ("#c2410c", "#0369a1", "#15803d", "#7e22ce", "#a16207", "#be123c")

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


class Page(NamedTuple):
    title: str
    remarks: Sequence[str]
    charts: Sequence[tuple[str, str, str, Sequence[Curve]]]  # heading, name of x, name of y, curves
    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first cell of each is the name of a curve
    samples: Sequence[tuple[str, str]]
    commands: Sequence[str]


def render(page: Page) -> str:
    colour = {row[0]: COLOURS[i % len(COLOURS)] for i, row in enumerate(page.rows)}
    parts = [f"<h1>{_(page.title)}</h1>"]
    parts += [f'<p class="note">{_(remark)}</p>' for remark in page.remarks]
    parts.append("<h2>Result</h2>" + table(page.header, page.rows, colour))
    for heading, x, y, curves in page.charts:
        parts.append(f"<h2>{_(heading)}</h2>" + chart(x, y, curves, colour))
    boxes = [f"<div><h3>{_(name)}</h3><pre>{_(text)}</pre></div>" for name, text in page.samples]
    parts.append(f'<h2>Samples</h2><div class="samples">{"".join(boxes)}</div>')
    parts.append(f"<h2>Go on</h2><pre>{_(chr(10).join(page.commands))}</pre>")
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{_(page.title)}</title><style>{STYLE}</style></head>'
        f"<body>{''.join(parts)}</body></html>\n"
    )


def _(text: str) -> str:
    return html.escape(text)


def table(header: Sequence[str], rows: Sequence[Sequence[str]], colour: dict[str, str]) -> str:
    head = "".join(f"<th>{_(cell)}</th>" for cell in header)
    body = ""
    for row in rows:
        swatch = f'<span class="swatch" style="background:{colour[row[0]]}"></span>'
        body += f"<tr><td>{swatch}{_(row[0])}</td>" + "".join(f"<td>{_(cell)}</td>" for cell in row[1:]) + "</tr>"
    return f"<table><tr>{head}</tr>{body}</table>"


def chart(x_name: str, y_name: str, curves: Sequence[Curve], colour: dict[str, str]) -> str:
    """Lines over two linear axes, as SVG."""
    width, height, left, bottom, top = 860, 360, 56, 40, 12
    xs = [x for curve in curves for x, _y in curve.points]
    ys = [y for curve in curves for _x, y in curve.points]
    if not xs:
        return "<p>no measurements</p>"
    x0, x1, y0, y1 = min(xs), max(xs), min(ys), max(ys)
    x1, y1 = x1 + (x1 == x0), y1 + (y1 == y0)

    def place(x: float, y: float) -> str:
        across = left + (x - x0) / (x1 - x0) * (width - left - 12)
        up = height - bottom - (y - y0) / (y1 - y0) * (height - bottom - top)
        return f"{across:.1f},{up:.1f}"

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{_(y_name)} against {_(x_name)}">']
    for i in range(5):
        value = y0 + (y1 - y0) * i / 4
        at = place(x0, value).split(",")[1]
        parts.append(f'<line x1="{left}" x2="{width - 12}" y1="{at}" y2="{at}" stroke="currentColor" opacity=".15"/>')
        parts.append(f'<text x="{left - 8}" y="{at}" text-anchor="end" dominant-baseline="middle">{value:.2f}</text>')
        value = x0 + (x1 - x0) * i / 4
        at = place(value, y0).split(",")[0]
        anchor = "start" if i == 0 else "end" if i == 4 else "middle"
        parts.append(
            f'<text x="{at}" y="{height - bottom + 18}" text-anchor="{anchor}">{human(value, ".3g", ".3g")}</text>'
        )
    parts.append(f'<text x="{width - 12}" y="{height - 4}" text-anchor="end">{_(x_name)}</text>')
    parts.append(f'<text x="{width - 12}" y="{top + 14}" text-anchor="end">{_(y_name)}</text>')
    for curve in curves:
        line = " ".join(place(x, y) for x, y in curve.points)
        stroke = colour.get(curve.name, COLOURS[0])
        parts.append(f'<polyline points="{line}" fill="none" stroke="{stroke}" stroke-width="2"/>')
    return "".join(parts) + "</svg>"

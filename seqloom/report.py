"""One self-contained HTML page about some runs: curves, table, samples, commands. No script, no font, no link outside."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from seqloom.charts import COLOURS, Curve, chart, escaped, page, table
from seqloom.train.find_rate import Found


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


def rate_page(recipe: str, found: Found, command: str) -> str:
    """The curve of a learning-rate range test."""
    loss, marks = "loss while the rate rises", {"suggested": found.suggestion, "steepest fall": found.steepest}
    low, high = min(found.losses), max(found.losses)
    curves = [Curve(loss, [(math.log10(rate), value) for rate, value in zip(found.rates, found.losses, strict=True)])]
    curves += [
        Curve(name, [(math.log10(rate), low), (math.log10(rate), high)], dash="4 4") for name, rate in marks.items()
    ]
    colour = {curve.name: COLOURS[i] for i, curve in enumerate(curves)}
    rows = [[name, f"{rate:.2g}"] for name, rate in marks.items()]
    parts = [
        f"<h1>A learning rate for {escaped(recipe)}</h1>",
        table(["", "rate"], rows, colour),
        chart("rate, logarithm to base 10", "loss, nats a token", curves, colour),
        f"<h2>Go on</h2><pre>{escaped(command)}</pre>",
    ]
    return page(f"Learning rate of {recipe}", parts)

"""The page of a comparison, and the same as tables for other programs: report.html, table.csv, comparison.json, *.svg."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from seqloom.charts import COLOURS, Curve, as_file, chart, escaped, matrix, page, table, whiskers
from seqloom.comparison.caveats import BITS
from seqloom.comparison.folder import (
    comparison_path,
    earlier_pictures,
    picture_path,
    report_path,
    run_path,
    slug,
    table_path,
)
from seqloom.comparison.metric import ALPHA, Metric
from seqloom.comparison.table import Comparison, pareto_front
from seqloom.cost import DeviceLog
from seqloom.files import write_bytes, write_json
from seqloom.metrics.differences import Difference
from seqloom.metrics.intervals import Interval
from seqloom.progress import clock, human

WINNER, AMONG = " ★", " ☆"
EFFORTS = {
    "tokens": "tokens read", "flops": "floating-point operations", "seconds": "seconds", "joules": "joules",
}  # fmt: skip
LEGEND = (
    "★ significantly better than every other row; ☆ not significantly different from the best, so that there is no winner. "
    "Intervals are 95% confidence intervals; where there are two, the first is for other sets of items and the second for other "
    "items of the same sets. p values are corrected for multiple comparisons."
)


def write_report(found: Comparison, folder: Path) -> Path:
    """Returns the page."""
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(found.rows)}
    pictures = draw_pictures(found, colour)
    names = []
    for picture in pictures:
        path, named = picture_path(folder, picture.name), {row: colour[row] for row in picture.rows}
        write_bytes(path, as_file(picture.drawn, named, picture.rising).encode())
        names.append(path.name)
    for name in earlier_pictures(folder) - set(names):  # of rows and metrics that have left the plan
        (folder / name).unlink(missing_ok=True)
    write_json(comparison_path(folder), found.record() | {"pictures": names})
    write_bytes(table_path(folder), as_csv(found).encode())
    parts = [f"<h1>{escaped(found.name)}</h1>", table(header(found), cells(found), colour)]
    methods = "<br>".join(escaped(metric.method()) for metric in found.metrics)
    parts += [f'<p class="note">{escaped(LEGEND)}</p><p class="note">{methods}</p>', *missing_values(found)]
    parts += bullets(found.caveats, "Before you believe a difference", "note")
    parts += answers_section(found)
    for each in pictures:
        note = f'<p class="note">{escaped(each.note)}</p>' if each.note else ""
        parts.append(f"<h2>{escaped(each.title)}</h2>{each.drawn}{note}")
    parts += significant_differences(found)
    parts.append("<h2>What it cost</h2>" + table(cost_header(found), cost_cells(found), colour) + cost_note(found))
    boxes = [f"<div><h3>{escaped(name)}</h3><pre>{escaped(text)}</pre></div>" for name, text in found.samples.items()]
    parts.append(f'<h2>Samples</h2><div class="samples">{"".join(boxes)}</div>')
    parts += bullets(found.held, "What was held fixed", "")
    parts.append(f"<h2>How it was made</h2><pre>{escaped(chr(10).join(commands(found, folder)))}</pre>")
    path = report_path(folder)
    write_bytes(path, page(found.name, parts).encode())
    return path


def bullets(lines: list[str], title: str, kind: str) -> list[str]:
    if not lines:
        return []
    return [
        f"<h2>{escaped(title)}</h2><ul class='{kind}'>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>"
    ]


# ---- tables


def metric_cell(metric: Metric, row: str, best: list[str]) -> str:
    if row not in metric.values:
        return "–"
    interval = metric.interval(row)
    mark = "" if row not in best else WINNER if len(best) == 1 else AMONG
    if not interval.is_bounded:
        return f"{interval.value:.4f}"
    ends = [interval, metric.interval(row, by_item=True)] if metric.has_sampled_sets else [interval]
    half = " / ".join(f"{(each.high - each.low) / 2:.4f}" for each in ends)
    return f"{interval.value:.4f} ± {half}{mark}"


def header(found: Comparison) -> list[str]:
    arrows = [f"{metric.name} {'↓' if metric.lower else '↑'}" for metric in found.metrics]
    return ["", "parameters", "words", "FLOPs", "seeds", *arrows]


def leaders_of(found: Comparison) -> dict[str, list[str]]:
    return {metric.name: metric.leaders() for metric in found.metrics}


def cells(found: Comparison) -> list[list[str]]:
    best, rows = leaders_of(found), []
    for name in found.rows:
        cost = found.costs[name]
        about = [
            f"{cost['parameters']:,.0f}",
            human(cost["words"]),
            f"{cost['flops']:.2e}",
            "–" if any(name in metric.deterministic for metric in found.metrics) else str(len(found.seeds[name])),
        ]
        rows.append([name, *about, *(metric_cell(metric, name, best[metric.name]) for metric in found.metrics)])
    return rows


def as_text(found: Comparison) -> str:
    """The table for a terminal, with what a reader must know about it."""
    rows = [header(found), *cells(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    answers = [f"? {question} {': '.join(answer)}" for question, *answer in answer_cells(found)]
    methods = [f"± {metric.method()}" for metric in found.metrics]
    return "\n".join([*lines, "", LEGEND, *methods, *answers, *(f"- {line}" for line in found.caveats)])


def missing_values(found: Comparison) -> list[str]:
    """Why rows have no value."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for metric in found.metrics:
        for row, reason in metric.missing.items():
            reasons.setdefault((metric.name, reason), []).append(row)
    lines = [f"– {metric}: {', '.join(rows)}: {reason}" for (metric, reason), rows in reasons.items()]
    return [f'<p class="note">{"<br>".join(map(escaped, lines))}</p>'] if lines else []


def cost_header(found: Comparison) -> list[str]:
    price = found.plan.price
    return ["", "tokens", "FLOPs", "time", "kWh", *([price.currency] if price else [])]


def cost_cells(found: Comparison) -> list[list[str]]:
    rows = []
    for name in found.rows:
        cost = found.costs[name]
        row = [name, human(cost["tokens"]), f"{cost['flops']:.3e}", clock(cost["seconds"]), f"{cost['energy_kwh']:.2e}"]
        rows.append([*row, *([f"{cost['price']:.4f}"] if "price" in cost else [])])
    return rows


def cost_note(found: Comparison) -> str:
    """Times are wall-clock times; energy and price are shared by jobs that ran at the same time."""
    lines = [f"Energy: {method}." for method in found.energy]
    if found.plan.price:
        lines.append(f"Price: by the hour, {DeviceLog.METHOD}.")
    return f'<p class="note">{"<br>".join(map(escaped, lines))}</p>'


def significant_differences(found: Comparison) -> list[str]:
    """All significant differences, and the number of the others."""
    lines, others = [], 0
    for metric in found.metrics:
        for a, b, each, p in metric.differences:
            if p >= ALPHA:
                others += 1
                continue
            lines.append([metric.name, *higher_over_lower(a, b, each), f"{p:.2g}"])
    head = ["metric", "higher over lower", "difference", "p, corrected"]
    parts = ["<h2>Significant differences</h2>"]
    parts.append(table(head, lines) if lines else "<p>None: every difference may be noise.</p>")
    return [*parts, f'<p class="note">{others} other differences may be noise.</p>']


def higher_over_lower(a: str, b: str, each: Difference) -> tuple[str, str]:
    value, low, high = each.interval
    if value < 0:
        a, b, value, low, high = b, a, -value, -high, -low
    return f"{a} over {b}", f"{value:.4f} [{low:.4f}, {high:.4f}]" if each.interval.is_bounded else f"{value:.4f}"


def answer_cells(found: Comparison) -> list[list[str]]:
    lines = []
    for each in found.answers:
        conclusion = f"{each.better} is better" if each.better else "may be noise"
        difference = higher_over_lower(*each.rows, each.difference)
        lines.append([each.question, each.metric, *difference, f"p {each.p_adjusted:.2g}", conclusion])
    return lines


def answers_section(found: Comparison) -> list[str]:
    """Every question, whatever the answer."""
    questions = [question.name for question in found.plan.questions]
    if not questions:
        return []
    head = ["question", "metric", "higher over lower", "difference", "corrected for all questions", ""]
    unanswered = [name for name in questions if name not in {each.question for each in found.answers}]
    text = f"No metric that both rows have yet: {'; '.join(unanswered)}" if unanswered else ""
    note = f'<p class="note">{escaped(text)}</p>' if text else ""
    return ["<h2>Questions</h2>" + (table(head, answer_cells(found)) if found.answers else "") + note]


def as_csv(found: Comparison) -> str:
    """One line a row: its costs, and by every metric its value, the ends of its interval and whether it may be the best."""
    stream = io.StringIO()
    ends = ("low by item", "high by item")
    names = [
        f"{metric.name} {part}"
        for metric in found.metrics
        for part in ("value", "low", "high", "may be the best", *(ends if metric.has_sampled_sets else ()))
    ]
    costs = list(next(iter(found.costs.values()), {}))
    best = leaders_of(found)
    writer = csv.writer(stream)
    writer.writerow(["row", "seeds", *costs, *names])
    for row in found.rows:
        line: list[object] = [row, len(found.seeds[row]), *found.costs[row].values()]
        for metric in found.metrics:
            if row not in metric.values:
                line += [""] * (6 if metric.has_sampled_sets else 4)
                continue
            interval = metric.interval(row)
            line += [interval.value, *bounds(interval), int(row in best[metric.name])]
            line += bounds(metric.interval(row, by_item=True)) if metric.has_sampled_sets else []
        writer.writerow(line)
    return stream.getvalue()


def bounds(interval: Interval) -> list[object]:
    return [interval.low, interval.high] if interval.is_bounded else ["", ""]


# ---- pictures


class Picture(NamedTuple):
    name: str  # of its file
    title: str
    note: str
    drawn: str
    rows: Sequence[str] = ()  # rows that are named beside their colours on the page, but not in the picture
    rising: bool = False


def draw_pictures(found: Comparison, colour: dict[str, str]) -> list[Picture]:
    metrics = [draw_metric(metric, colour) for metric in found.metrics]
    pareto = draw_pareto(found, colour)
    return [
        *metrics,
        *([pareto] if pareto else []),
        *draw_milestones(found, colour),
        *draw_categories(found),
        *draw_losses(found, colour),
    ]


def draw_metric(metric: Metric, colour: dict[str, str]) -> Picture:
    rows = list(metric.values)
    drawn = whiskers(rows, [metric.interval(row) for row in rows], metric.name, colour)
    return Picture(slug(metric.name), metric.name, "", drawn)


def draw_pareto(found: Comparison, colour: dict[str, str]) -> Picture | None:
    """None where fewer than two rows have bits per byte."""
    bits = next((metric for metric in found.metrics if metric.name == BITS), None)
    if bits is None or len(bits.values) < 2:
        return None
    points = {row: (found.costs[row]["flops"], bits.interval(row).value) for row in bits.values}
    points = {row: point for row, point in points.items() if point[0] > 0}
    best = [points[row] for row in pareto_front(points)]
    line = [Curve("Pareto", best, dash="5 5")] if len(best) > 1 else []
    dots = [Curve(row, [point]) for row, point in points.items()]
    note = "The dashed line joins rows that no other row beats in both." if line else ""
    drawn = chart("floating-point operations", "bits per byte", [*dots, *line], colour | {"Pareto": "#888"}, log_x=True)
    title = "Bits per byte against computation"
    return Picture(slug(title), title, note, drawn)


def draw_milestones(found: Comparison, colour: dict[str, str]) -> list[Picture]:
    pictures = []
    for suite, rows in found.milestones.items():
        drawn = chart("words", suite, [Curve(row, points) for row, points in rows.items()], colour, log_x=True)
        title = f"{suite} against words read"
        pictures.append(Picture(slug(title), title, "", drawn, rows=list(rows), rising=True))
    return pictures


def draw_categories(found: Comparison) -> list[Picture]:
    pictures = []
    for suite, rows in found.by_category.items():
        categories = list(next(iter(rows.values())))
        values = [[rows[row][category] for row in rows] for category in categories]
        title = f"{suite} by category"
        drawn = matrix(categories, list(rows), values, title, middle=0.5, cell_format="{:.2f}")
        note = "Means over seeds, without intervals: what stands out may be noise."
        pictures.append(Picture(slug(f"{suite} by kind"), title, note, drawn))
    return pictures


def draw_losses(found: Comparison, colour: dict[str, str]) -> list[Picture]:
    """Rows are drawn together where their losses mean the same."""
    groups: dict[str, list[str]] = {}
    for row, each in found.curves.items():
        groups.setdefault(each.meaning, []).append(row)
    pictures = []
    for rows in groups.values():
        for effort, title in EFFORTS.items():
            curves = [
                Curve(r, list(zip(getattr(found.curves[r], effort), found.curves[r].loss, strict=True))) for r in rows
            ]
            drawn = chart(title, "training loss, nats per target", curves, colour, log_x=effort == "flops")
            heading, several = f"Loss against {title}", len(groups) > 1
            # the first row is enough for a file name: each row is in one group
            name = slug(heading + f" {rows[0]}" * several)
            pictures.append(Picture(name, heading + f" ({', '.join(rows)})" * several, "", drawn, rows=rows))
    return pictures


def commands(found: Comparison, folder: Path) -> list[str]:
    versions = found.versions
    rows = [row for row in found.plan.rows if row.name in found.rows]
    lines = [f"seqloom compare PLAN.toml --out {folder}"]
    lines += [f"# {row.name}: {row.recipe.name}, {row.solved or 'the size of its recipe'}" for row in rows]
    if rows:
        first = run_path(folder, rows[0].place, found.seeds[rows[0].name][0])
        lines += [f"seqloom evaluate {first} --data {folder / rows[0].data}", f"seqloom score {first} sentences.txt"]
    made = ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    return [*lines, f"# {made}"]

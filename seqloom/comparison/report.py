"""The page of a comparison, and the same as tables for other programs: report.html, table.csv, comparison.json, *.svg."""

import csv
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.charts import COLOURS, Curve, as_file, chart, escaped, matrix, page, table, whiskers
from seqloom.comparison.plan import slug
from seqloom.comparison.table import BITS, CHANCE, Comparison, Figure, pareto
from seqloom.cost import DeviceLog
from seqloom.files import read_json, write_bytes, write_json
from seqloom.metrics.differences import Difference
from seqloom.metrics.intervals import Interval
from seqloom.progress import clock, human

WINNER, AMONG = " ★", " ☆"
EFFORTS = {
    "tokens": "tokens read", "flops": "floating-point operations", "seconds": "seconds", "joules": "joules",
}  # fmt: skip
LEGEND = (
    "★ significantly better than every other row; ☆ not significantly different from the best: no winner is named inside the "
    "noise. Intervals are 95%; where there are two, the first is for other sets of items and the second for other items of the "
    "same sets. Many comparisons are corrected for."
)


def write_report(found: Comparison, folder: Path) -> Path:
    """Returns the page."""
    colour = {name: COLOURS[i % len(COLOURS)] for i, name in enumerate(found.rows)}
    pictures = draw(found, colour)
    names = [f"{picture.name}.svg" for picture in pictures]
    for name, picture in zip(names, pictures, strict=True):
        named = {row: colour[row] for row in picture.rows}
        write_bytes(folder / name, as_file(picture.drawn, named, picture.rising).encode())
    for name in drawn_before(folder) - set(names):  # of rows and figures that have left the plan
        (folder / name).unlink(missing_ok=True)
    write_json(folder / "comparison.json", found.record() | {"pictures": names})
    write_bytes(folder / "table.csv", as_csv(found).encode())
    parts = [f"<h1>{escaped(found.name)}</h1>", table(header(found), cells(found), colour)]
    methods = "<br>".join(escaped(figure.method()) for figure in found.figures)
    parts += [f'<p class="note">{escaped(LEGEND)}</p><p class="note">{methods}</p>', *missing(found)]
    parts += bullets(found.caveats, "Before you believe a difference", "note")
    parts += answered(found)
    for each in pictures:
        note = f'<p class="note">{escaped(each.note)}</p>' if each.note else ""
        parts.append(f"<h2>{escaped(each.title)}</h2>{each.drawn}{note}")
    parts += told_apart(found)
    parts.append("<h2>What it cost</h2>" + table(cost_header(found), cost_cells(found), colour) + cost_note(found))
    boxes = [f"<div><h3>{escaped(name)}</h3><pre>{escaped(text)}</pre></div>" for name, text in found.samples.items()]
    parts.append(f'<h2>Samples</h2><div class="samples">{"".join(boxes)}</div>')
    parts += bullets(found.held, "What was held fixed", "")
    parts.append(f"<h2>How it was made</h2><pre>{escaped(chr(10).join(commands(found, folder)))}</pre>")
    path = folder / "report.html"
    write_bytes(path, page(found.name, parts).encode())
    return path


def drawn_before(folder: Path) -> set[str]:
    """The pictures of an earlier call, and no others that somebody has put beside them."""
    path = folder / "comparison.json"
    try:
        names = read_json(path)["pictures"] if path.exists() else []
        return {Path(name).name for name in names if Path(name).suffix == ".svg"}
    except (ValueError, LookupError, TypeError, RecursionError):  # it is written anew
        return set()


def bullets(lines: list[str], title: str, kind: str) -> list[str]:
    if not lines:
        return []
    return [
        f"<h2>{escaped(title)}</h2><ul class='{kind}'>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>"
    ]


# ---- tables


def shown(figure: Figure, row: str, best: list[str]) -> str:
    if row not in figure.values:
        return "–"
    interval = figure.interval(row)
    mark = "" if row not in best else WINNER if len(best) == 1 else AMONG
    if not interval.is_bounded:
        return f"{interval.value:.4f}"
    ends = [interval, figure.interval(row, by_item=True)] if figure.sampled_sets else [interval]
    half = " / ".join(f"{(each.high - each.low) / 2:.4f}" for each in ends)
    return f"{interval.value:.4f} ± {half}{mark}"


def header(found: Comparison) -> list[str]:
    arrows = [f"{figure.name} {'↓' if figure.lower else '↑'}" for figure in found.figures]
    return ["", "parameters", "words", "FLOPs", "seeds", *arrows]


def leaders_of(found: Comparison) -> dict[str, list[str]]:
    return {figure.name: figure.leaders() for figure in found.figures}


def cells(found: Comparison) -> list[list[str]]:
    best, rows = leaders_of(found), []
    for name in found.rows:
        cost = found.costs[name]
        about = [
            f"{cost['parameters']:,.0f}",
            human(cost["words"]),
            f"{cost['flops']:.2e}",
            "–" if any(name in figure.deterministic for figure in found.figures) else str(len(found.seeds[name])),
        ]
        rows.append([name, *about, *(shown(figure, name, best[figure.name]) for figure in found.figures)])
    return rows


def as_text(found: Comparison) -> str:
    """The table for a terminal, and what must be known about it."""
    rows = [header(found), *cells(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = [
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    ]
    asked = [f"? {question} {': '.join(told)}" for question, *told in answer_cells(found)]
    methods = [f"± {figure.method()}" for figure in found.figures]
    return "\n".join([*lines, "", LEGEND, *methods, *asked, *(f"- {line}" for line in found.caveats)])


def missing(found: Comparison) -> list[str]:
    """Why a row has no figure."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for figure in found.figures:
        for row, reason in figure.missing.items():
            reasons.setdefault((figure.name, reason), []).append(row)
    lines = [f"– {figure}: {', '.join(rows)}: {reason}" for (figure, reason), rows in reasons.items()]
    return [f'<p class="note">{"<br>".join(map(escaped, lines))}</p>'] if lines else []


def cost_header(found: Comparison) -> list[str]:
    price = found.plan["price"]
    return ["", "tokens", "FLOPs", "time", "kWh", *([price["currency"]] if price else [])]


def cost_cells(found: Comparison) -> list[list[str]]:
    rows = []
    for name in found.rows:
        cost = found.costs[name]
        row = [name, human(cost["tokens"]), f"{cost['flops']:.3e}", clock(cost["seconds"]), f"{cost['energy_kwh']:.2e}"]
        rows.append([*row, *([f"{cost['price']:.4f}"] if "price" in cost else [])])
    return rows


def cost_note(found: Comparison) -> str:
    """Seconds are those of the clock; energy and price are shares, where several jobs ran at the same time."""
    lines = [f"Energy: {method}." for method in found.energy]
    if found.plan["price"]:
        lines.append(f"Price: by the hour of the device, {DeviceLog.METHOD}.")
    return f'<p class="note">{"<br>".join(map(escaped, lines))}</p>'


def told_apart(found: Comparison) -> list[str]:
    """All differences that are more than noise; how many others there are."""
    lines, noise = [], 0
    for figure in found.figures:
        for a, b, each, p in figure.differences():
            if p >= CHANCE:
                noise += 1
                continue
            lines.append([figure.name, *higher_over_lower(a, b, each), f"{p:.2g}"])
    head = ["figure", "higher over lower", "difference", "p, corrected"]
    parts = ["<h2>Significant differences</h2>"]
    parts.append(table(head, lines) if lines else "<p>Nothing: every difference may be noise.</p>")
    return [*parts, f'<p class="note">{noise} other differences may be noise.</p>']


def higher_over_lower(a: str, b: str, each: Difference) -> tuple[str, str]:
    value, low, high = each.interval
    if value < 0:
        a, b, value, low, high = b, a, -value, -high, -low
    return f"{a} over {b}", f"{value:.4f} [{low:.4f}, {high:.4f}]" if each.interval.is_bounded else f"{value:.4f}"


def answer_cells(found: Comparison) -> list[list[str]]:
    lines = []
    for each in found.answers:
        verdict = f"{each.better} is better" if each.better else "may be noise"
        lines.append(
            [each.question, each.figure, *higher_over_lower(*each.rows, each.found), f"p {each.p:.2g}", verdict]
        )
    return lines


def answered(found: Comparison) -> list[str]:
    """What was asked, whatever came of it."""
    questions = [question["name"] for question in found.plan["questions"]]
    if not questions:
        return []
    head = ["question", "figure", "higher over lower", "difference", "corrected for all questions", ""]
    open_ones = [name for name in questions if name not in {each.question for each in found.answers}]
    told = f"No figure yet that both rows have: {'; '.join(open_ones)}" if open_ones else ""
    note = f'<p class="note">{escaped(told)}</p>' if told else ""
    return ["<h2>What was asked</h2>" + (table(head, answer_cells(found)) if found.answers else "") + note]


def as_csv(found: Comparison) -> str:
    """One line a row: costs, and of every figure its value, the ends of its interval, and whether it may be the best."""
    stream = io.StringIO()
    ends = ("low by item", "high by item")
    names = [
        f"{figure.name} {part}"
        for figure in found.figures
        for part in ("value", "low", "high", "may be the best", *(ends if figure.sampled_sets else ()))
    ]
    costs = list(next(iter(found.costs.values()), {}))
    best = leaders_of(found)
    writer = csv.writer(stream)
    writer.writerow(["row", "seeds", *costs, *names])
    for row in found.rows:
        line: list[object] = [row, len(found.seeds[row]), *found.costs[row].values()]
        for figure in found.figures:
            if row not in figure.values:
                line += [""] * (6 if figure.sampled_sets else 4)
                continue
            interval = figure.interval(row)
            line += [interval.value, *bounds(interval), int(row in best[figure.name])]
            line += bounds(figure.interval(row, by_item=True)) if figure.sampled_sets else []
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
    rows: Sequence[str] = ()  # whose names stand in no picture, but beside their colours on the page
    rising: bool = False


def draw(found: Comparison, colour: dict[str, str]) -> list[Picture]:
    pictures: list[Picture] = []

    def add(title: str, drawn: str, note: str = "", name: str = "", **more: Any) -> None:
        pictures.append(Picture(slug(name or title), title, note, drawn, **more))

    for figure in found.figures:
        rows = list(figure.values)
        ends = [figure.interval(row) for row in rows]
        add(figure.name, whiskers(rows, ends, figure.name, colour))
    bits = next((figure for figure in found.figures if figure.name == BITS), None)
    if bits is not None and len(bits.values) > 1:
        points = {row: (found.costs[row]["flops"], bits.interval(row).value) for row in bits.values}
        points = {row: point for row, point in points.items() if point[0] > 0}
        best = [points[row] for row in pareto(points)]
        line = [Curve("Pareto", best, dash="5 5")] if len(best) > 1 else []
        dots = [Curve(row, [point]) for row, point in points.items()]
        remark = "The dashed line joins rows that no other one beats in both." if line else ""
        picture = chart(
            "floating-point operations", "bits per byte", [*dots, *line], colour | {"Pareto": "#888"}, log_x=True
        )
        add("Bits per byte against computation", picture, remark)
    for suite, rows_of in found.milestones.items():
        curves = [Curve(row, points) for row, points in rows_of.items()]
        drawn = chart("words", suite, curves, colour, log_x=True)
        add(f"{suite} against words read", drawn, rows=list(rows_of), rising=True)
    for suite, by_row in found.kinds.items():
        kinds = list(next(iter(by_row.values())))
        values = [[by_row[row][kind] for row in by_row] for kind in kinds]
        drawn = matrix(kinds, list(by_row), values, f"{suite} by kind", middle=0.5, told="{:.2f}")
        add(f"{suite} by kind", drawn, "Means over seeds, without intervals: what stands out may be chance.")
    groups: dict[str, list[str]] = {}
    for row, each in found.curves.items():
        groups.setdefault(each.meaning, []).append(row)
    for rows in groups.values():
        for effort, title in EFFORTS.items():
            curves = [
                Curve(r, list(zip(getattr(found.curves[r], effort), found.curves[r].loss, strict=True))) for r in rows
            ]
            drawn = chart(title, "training loss, nats a target", curves, colour, log_x=effort == "flops")
            heading, several = f"Loss against {title}", len(groups) > 1
            # of any number of rows the first is name enough: each is in one group
            name = heading + f" {rows[0]}" * several
            add(heading + f" ({', '.join(rows)})" * several, drawn, name=name, rows=rows)
    return pictures


def commands(found: Comparison, folder: Path) -> list[str]:
    versions = found.versions
    rows = [row for row in found.plan["rows"] if row["name"] in found.rows]
    lines = [f"seqloom compare PLAN.toml --out {folder}"]
    lines += [f"# {row['name']}: {row['recipe']['name']}, {row['solved'] or 'the size of its recipe'}" for row in rows]
    if rows:
        first = f"{folder}/runs/{rows[0]['place']}/seed-{found.seeds[rows[0]['name']][0]}"
        lines += [f"seqloom evaluate {first} --data {folder / rows[0]['data']}", f"seqloom score {first} sentences.txt"]
    made = ", ".join(f"{name} {value}" for name, value in versions.items() if value)
    return [*lines, f"# {made}"]

"""The page of a comparison, and the same as tables for other programs: report.html, table.csv, table-long.csv, comparison.json,
*.svg."""

import textwrap
from collections.abc import Sequence
from pathlib import Path

from seqloom.charts import Cell, Look, Section, TableCell, as_file, csv_text, escaped, figure, looks, note, page, table
from seqloom.comparison.folder import (
    comparison_path,
    earlier_pictures,
    long_table_path,
    picture_path,
    plan_path,
    report_path,
    run_path,
    table_path,
)
from seqloom.comparison.latex import latex_table
from seqloom.comparison.long_form import LongRow, long_rows
from seqloom.comparison.methods import methods_sentences
from seqloom.comparison.metric import ALPHA, Metric, PairDifference
from seqloom.comparison.pictures import Picture, better_first, draw_pictures
from seqloom.comparison.records import read_plan_record
from seqloom.comparison.table import Answer, Comparison, collect
from seqloom.cost import DeviceLog
from seqloom.errors import ModelError
from seqloom.files import write_bytes, write_json
from seqloom.metrics.intervals import Interval
from seqloom.progress import clock, human

WINNER, AMONG, EDGE = " ★", " ☆", " ⚠"
LEGEND = (
    "↓ lower is better, ↑ higher is better. ★ significantly better than every other row; ☆ not significantly different from the "
    "best, so there is no single winner. "
    "Intervals are 95% confidence intervals; where there are two, the first is for other sets of items and the second for other "
    "items of the same sets. p values are corrected for multiple comparisons."
)

CORRECTION = (
    "Here p values are corrected for all pairs of rows. ★ and ☆ come from a test of the best row against the others, which can "
    "find more."
)


def read_comparison(folder: Path) -> Comparison:
    """The results that are in the folder of a comparison, finished or not."""
    if not plan_path(folder).exists():
        raise ModelError(f"{folder} holds no comparison (it has no plan.json): give the --out of seqloom compare")
    return collect(folder, read_plan_record(folder), {})


def write_report(found: Comparison, folder: Path) -> Path:
    """Returns the page."""
    signs = looks(found.rows)
    pictures = draw_pictures(found, signs)
    for picture in pictures:
        write_bytes(picture_path(folder, picture.name), as_file(picture.drawn).encode())
    names = [picture_path(folder, picture.name).name for picture in pictures]
    for name in earlier_pictures(folder) - set(names):  # of rows and metrics that have left the plan
        (folder / name).unlink(missing_ok=True)
    write_json(comparison_path(folder), found.record() | {"pictures": names})
    write_bytes(table_path(folder), as_csv(found).encode())
    write_bytes(long_table_path(folder), as_long_csv(found).encode())
    path = report_path(folder)
    write_bytes(path, page(found.name, page_parts(found, folder, pictures, signs)).encode())
    return path


def page_parts(
    found: Comparison, folder: Path, pictures: Sequence[Picture], signs: dict[str, Look]
) -> list[str | Section]:
    sections = list(dict.fromkeys(picture.section for picture in pictures))
    drawn = {name: pictures_section(name, [each for each in pictures if each.section == name]) for name in sections}
    methods = "".join(f"<li>{escaped(metric.method())}</li>" for metric in found.metrics)
    covered = f'<details class="note"><summary>What the intervals cover</summary><ul>{methods}</ul></details>'
    main = table(header(found), cells(found), signs, file="table.csv", as_csv=as_csv(found), choose=True)
    boxes = [f"<div><h3>{escaped(name)}</h3><pre>{escaped(text)}</pre></div>" for name, text in found.samples.items()]
    costs = table(cost_header(found), cost_cells(found), signs, file="costs.csv")
    parts: list[str | Section] = [
        f"<h1>{escaped(found.name)}</h1>",
        Section("Results", main + note(LEGEND) + missing_values(found) + covered),
        *bullets(found.caveats, "Before you believe a difference"),
        *answers_section(found),
        *([drawn.pop("Metrics")] if "Metrics" in drawn else []),
        differences_section(found, drawn.pop("Differences", Section("", "")).body),
        *search_section(found, drawn.pop("Search", Section("", "")).body, signs),
        *drawn.values(),
        Section("What it cost", costs + cost_note(found)),
        Section("Samples", f'<div class="samples">{"".join(boxes)}</div>'),
        *bullets(found.held, "What was held fixed"),
        paper_section(found),
        Section("How it was made", f"<pre>{escaped(chr(10).join(commands(found, folder)))}</pre>"),
    ]
    return parts


def pictures_section(title: str, pictures: Sequence[Picture]) -> Section:
    shown = [
        f"<h3>{escaped(each.title)}</h3>{figure(each.drawn, each.name, each.note, file=f'{each.name}.svg')}"
        for each in pictures
    ]
    return Section(title, "".join(shown))


def paper_section(found: Comparison) -> Section:
    text = f"<p>{escaped(' '.join(methods_sentences(found)))}</p>"
    code = f"<details><summary>The table in LaTeX</summary><pre>{escaped(latex_table(found))}</pre></details>"
    return Section("For a paper", text + code)


def bullets(lines: list[str], title: str) -> list[Section]:
    if not lines:
        return []
    return [Section(title, f"<ul>{''.join(f'<li>{escaped(line)}</li>' for line in lines)}</ul>")]


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


def cells(found: Comparison) -> list[list[TableCell]]:
    best = leaders_of(found)
    rows: list[list[TableCell]] = []
    for name in found.rows:
        cost = found.costs[name]
        about: list[TableCell] = [
            f"{cost['parameters']:,.0f}",
            Cell(human(cost["words"]), cost["words"]),
            f"{cost['flops']:.2e}",
            "–" if any(name in metric.deterministic for metric in found.metrics) else str(len(found.seeds[name])),
        ]
        scores = [
            Cell(
                metric_cell(metric, name, best[metric.name]),
                metric.interval(name).value if name in metric.values else None,
            )
            for metric in found.metrics
        ]
        rows.append([name, *about, *scores])
    return rows


def notebook_table(found: Comparison) -> str:
    """The table for a notebook, with what a reader must know about it."""
    caveats = [f"{LEGEND}", *(f"± {metric.method()}" for metric in found.metrics), *found.caveats]
    return table(header(found), cells(found)) + "".join(map(note, caveats)) + missing_values(found)


def as_text(found: Comparison, width: int | None = None) -> str:
    """The table for a terminal, with what a reader must know about it. width: of its lines; None: as long as they are."""
    rows = [header(found)]
    rows += [[cell.text if isinstance(cell, Cell) else cell for cell in row] for row in cells(found)]
    answers = [f"? {answer.question} {answer.metric}: {answer_sentence(found, answer)}" for answer in found.answers]
    methods = [f"± {metric.method()}" for metric in found.metrics]
    remarks = [LEGEND, *methods, *answers, *(f"- {line}" for line in found.caveats)]
    if width is not None:
        remarks = [line for each in remarks for line in textwrap.wrap(each, width, subsequent_indent="  ")]
    return "\n".join([*table_lines(rows, width), "", *remarks])


def table_lines(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Columns side by side; those that do not fit into the width come below, with the names of rows again."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    groups: list[list[int]] = [[]]
    for i in range(1, len(widths)):
        needed = widths[0] + sum(widths[j] + 2 for j in [*groups[-1], i])
        if width is not None and needed > width and groups[-1]:
            groups.append([])
        groups[-1].append(i)
    blocks = [
        ["  ".join([row[0].ljust(widths[0]), *(row[i].rjust(widths[i]) for i in group)]) for row in rows]
        for group in groups
    ]
    return [line for number, block in enumerate(blocks) for line in ([""] if number else []) + block]


def missing_values(found: Comparison) -> str:
    """Why rows have no value."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for metric in found.metrics:
        for row, reason in metric.missing.items():
            reasons.setdefault((metric.name, reason), []).append(row)
    lines = [f"– {metric}: {', '.join(rows)}: {reason}" for (metric, reason), rows in reasons.items()]
    return f'<p class="note">{"<br>".join(map(escaped, lines))}</p>' if lines else ""


def search_section(found: Comparison, pictures: str, signs: dict[str, Look]) -> list[Section]:
    """The settings that were chosen, and what the search for them has cost."""
    if not found.searches:
        return []
    names = list(dict.fromkeys(name for each in found.searches.values() for name in each.settings))
    head = ["", *names, "validation loss", "trials", "FLOPs", "time", "kWh"]
    lines: list[list[TableCell]] = []
    for row, each in found.searches.items():
        chosen, costs = each.chosen and each.chosen.result, each.costs
        values = {} if chosen is None else chosen.settings
        marked = {edge.partition(" = ")[0] for edge in each.edges}
        settings = [f"{values.get(name, '–')}{EDGE if name in marked else ''}" for name in names]
        time = Cell(clock(costs["seconds"]), costs["seconds"])
        effort: list[TableCell] = [str(len(each.trials)), f"{costs['flops']:.3e}", time, f"{costs['energy_kwh']:.2e}"]
        lines.append([row, *settings, "–" if chosen is None else f"{chosen.score:.4f}", *effort])
    remark = note(
        f"{EDGE.strip()} the lowest or highest that was tried. FLOPs, time and energy are of all trials together."
    )
    return [Section("Search", table(head, lines, signs, file="search.csv") + remark + pictures)]


def cost_header(found: Comparison) -> list[str]:
    price = found.plan.price
    return ["", "tokens", "FLOPs", "time", "kWh", *([price.currency] if price else [])]


def cost_cells(found: Comparison) -> list[list[TableCell]]:
    rows: list[list[TableCell]] = []
    for name in found.rows:
        cost = found.costs[name]
        tokens, seconds = Cell(human(cost["tokens"]), cost["tokens"]), Cell(clock(cost["seconds"]), cost["seconds"])
        price = [f"{cost['price']:.4f}"] if "price" in cost else []
        rows.append([name, tokens, f"{cost['flops']:.3e}", seconds, f"{cost['energy_kwh']:.2e}", *price])
    return rows


def cost_note(found: Comparison) -> str:
    """Times are wall-clock times; energy and price are shared by jobs that ran at the same time."""
    lines = [f"Energy: {method}." for method in found.energy]
    if found.plan.price:
        lines.append(f"Price: by the hour, {DeviceLog.METHOD}.")
    return f'<p class="note">{"<br>".join(map(escaped, lines))}</p>'


def differences_section(found: Comparison, matrices: str) -> Section:
    """All significant differences, and the number of the others. matrices: pictures of all pairs, or nothing."""
    lines: list[list[TableCell]] = []
    others = 0
    for metric in found.metrics:
        for pair in metric.differences:
            if pair.p_adjusted >= ALPHA:
                others += 1
                continue
            better, worse, gain = better_first(metric, pair)
            amount = Cell(interval_text(gain), gain.value)
            lines.append([metric.name, better, worse, amount, f"{pair.p_adjusted:.2g}"])
    head = ["metric", "better", "worse", "difference", "p, corrected"]
    shown = table(head, lines, file="differences.csv") if lines else "<p>None: every difference may be noise.</p>"
    remark = note(f"{others} other differences may be noise. {CORRECTION}" if others else "")
    if matrices and lines:
        shown = f"<details><summary>Significant differences as a table</summary>{shown}</details>"
    return Section("Significant differences", matrices + shown + remark)


def interval_text(interval: Interval) -> str:
    value, low, high = interval
    return f"{value:.4f} [{low:.4f}, {high:.4f}]" if interval.is_bounded else f"{value:.4f}"


def answer_difference(found: Comparison, answer: Answer) -> tuple[str, str, Interval]:
    """The row that looks better, the other one, and by how much."""
    metric = next(each for each in found.metrics if each.name == answer.metric)
    return better_first(metric, PairDifference(*answer.rows, answer.difference, answer.p_adjusted))


def answer_sentence(found: Comparison, answer: Answer) -> str:
    better, worse, gain = answer_difference(found, answer)
    amount, p = interval_text(gain), f"p {answer.p_adjusted:.2g}"
    if answer.better:
        return f"{better} is better than {worse} by {amount}, {p}"
    return f"{better} and {worse} are not significantly different: {amount}, {p}; it may be noise"


def answers_section(found: Comparison) -> list[Section]:
    """Every question, whatever the answer."""
    questions = [question.name for question in found.plan.questions]
    if not questions:
        return []
    head = ["question", "metric", "answer", "difference", "p, corrected for all questions"]
    lines: list[list[TableCell]] = []
    for each in found.answers:
        better, worse, gain = answer_difference(found, each)
        answer = f"{better} is better than {worse}" if each.better else f"{better} or {worse}: may be noise"
        lines.append(
            [each.question, each.metric, answer, Cell(interval_text(gain), gain.value), f"{each.p_adjusted:.2g}"]
        )
    unanswered = [name for name in questions if name not in {each.question for each in found.answers}]
    text = f"No metric that both rows have yet: {'; '.join(unanswered)}" if unanswered else ""
    return [Section("Questions", (table(head, lines, file="questions.csv") if lines else "") + note(text))]


def as_csv(found: Comparison) -> str:
    """One line a row: its costs, and by every metric its value, the ends of its interval and whether it may be the best."""
    ends = ("low by item", "high by item")
    names = [
        f"{metric.name} {part}"
        for metric in found.metrics
        for part in ("value", "low", "high", "may be the best", *(ends if metric.has_sampled_sets else ()))
    ]
    costs = list(next(iter(found.costs.values()), {}))
    best = leaders_of(found)
    lines: list[list[object]] = [["row", "seeds", *costs, *names]]
    for row in found.rows:
        line: list[object] = [row, len(found.seeds[row]), *found.costs[row].values()]
        for metric in found.metrics:
            if row not in metric.values:
                line += [""] * (6 if metric.has_sampled_sets else 4)
                continue
            interval = metric.interval(row)
            line += [interval.value, *bounds(interval), int(row in best[metric.name])]
            line += bounds(metric.interval(row, by_item=True)) if metric.has_sampled_sets else []
        lines.append(line)
    return csv_text(lines)


def as_long_csv(found: Comparison, items: bool = False) -> str:
    """One line a score: of each row, seed and metric, or of each item as well."""
    lines = [["" if value is None else value for value in row] for row in long_rows(found.metrics, found.seeds, items)]
    return csv_text([LongRow._fields, *lines])


def bounds(interval: Interval) -> list[object]:
    return [interval.low, interval.high] if interval.is_bounded else ["", ""]


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

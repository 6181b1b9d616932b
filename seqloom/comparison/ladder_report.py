"""The page of a ladder, and the same as tables for other programs: report.html, ladder.json, ladder.csv, ladder-*.svg."""

import math
from pathlib import Path

import numpy as np

from seqloom.charts import (
    FIT,
    Cell,
    Curve,
    Look,
    Section,
    TableCell,
    as_file,
    chart,
    csv_text,
    escaped,
    figure,
    looks,
    note,
    page,
    table,
)
from seqloom.comparison.folder import slug
from seqloom.comparison.laws import LADDER, Ladder, LadderMetric, Pair, budget_path, called
from seqloom.comparison.plan import Rung
from seqloom.files import write_bytes, write_json
from seqloom.metrics.intervals import Interval

PLACES = 41  # points of a curve
BEYOND = 1.5  # how far a law is drawn beyond the largest budget, as a factor


def write_ladder_report(found: Ladder, folder: Path) -> None:
    signs = looks(dict.fromkeys(row for metric in found.metrics for row in metric.values))
    pictures = {f"ladder-{slug(metric.name)}": draw_metric(found, metric, signs) for metric in found.metrics}
    over_passes = draw_passes(found, signs)
    for name, drawn in (pictures | over_passes).items():
        write_bytes(folder / f"{name}.svg", as_file(drawn).encode())
    write_bytes(folder / "ladder.csv", ladder_csv(found).encode())
    write_json(folder / LADDER, found.record())
    write_bytes(folder / "report.html", page(found.name, page_parts(found, pictures, over_passes, signs)).encode())


def page_parts(
    found: Ladder, pictures: dict[str, str], over_passes: dict[str, str], signs: dict[str, Look]
) -> list[str | Section]:
    drawn = "".join(
        f"<h3>{escaped(metric.name)}</h3>{figure(picture, name, curve_note(metric), file=f'{name}.svg')}"
        for metric, (name, picture) in zip(found.metrics, pictures.items(), strict=True)
    )
    caveats = "".join(f"<li>{escaped(line)}</li>" for line in found.caveats)
    return [
        f"<h1>{escaped(found.name)}</h1>",
        Section("Results", "".join(metric_table(found, metric, signs) for metric in found.metrics)),
        *([Section("Before you believe a law", f"<ul>{caveats}</ul>")] if caveats else []),
        Section(f"Against {found.unit}", drawn),
        *passes_section(over_passes),
        *laws_section(found),
        *predictions_section(found),
        *pairs_section(found),
        Section("Each budget", budgets_list(found)),
    ]


def curve_note(metric: LadderMetric) -> str:
    if not metric.laws:
        return "Means over seeds with 95% intervals for other seeds."
    return "Means over seeds with 95% intervals for other seeds; dashed: a power law with an offset, and its 95% band."


def draw_metric(found: Ladder, metric: LadderMetric, signs: dict[str, Look]) -> str:
    curves = []
    for row, by_budget in metric.intervals.items():
        points = [(budget, each.value) for budget, each in by_budget.items()]
        spread = [(each.low, each.high) if each.is_bounded else (each.value,) * 2 for each in by_budget.values()]
        curves.append(Curve(row, points, spread=spread, line=row not in metric.laws))
        if row in metric.laws:
            curves.append(draw_law(found, metric, row))
    return chart(found.unit, metric.name, curves, signs, log_x=True, better="lower" if metric.lower else "higher")


def draw_passes(found: Ladder, signs: dict[str, Look]) -> dict[str, str]:
    """By file name, a picture of each measure at each budget: the rows against passes over the same text."""
    pictures = {}
    for measure in dict.fromkeys(metric.measure for metric in found.metrics if metric.passes is not None):
        same = [metric for metric in found.metrics if metric.measure == measure]
        for budget in (*found.budgets, *found.predicted):
            curves = []
            for row in dict.fromkeys(row for metric in same for row in metric.intervals):
                means = {m.passes: each for m in same if (each := m.intervals.get(row, {}).get(budget)) is not None}
                points = [(passes, each.value) for passes, each in means.items() if passes is not None]
                spread = [(each.low, each.high) if each.is_bounded else (each.value,) * 2 for each in means.values()]
                if points:
                    curves.append(Curve(row, points, spread=spread, line=True))
            if curves:
                title = f"passes over {budget:,.6g} {found.unit}"
                better = "lower" if same[0].lower else "higher"
                drawn = chart(title, measure, curves, signs, log_x=True, better=better)
                pictures[f"ladder-passes-{slug(f'{measure} {budget:.12g}')}"] = drawn
    return pictures


def passes_section(pictures: dict[str, str]) -> list[Section]:
    if not pictures:
        return []
    text = "Means over seeds with 95% intervals for other seeds; the text is the same for all passes."
    drawn = "".join(figure(picture, name, text, file=f"{name}.svg") for name, picture in pictures.items())
    return [Section("Against passes", drawn)]


def draw_law(found: Ladder, metric: LadderMetric, row: str) -> Curve:
    budgets = [*found.budgets, *found.predicted]
    xs = np.geomspace(budgets[0], max(budgets[-1], BEYOND * found.budgets[-1]), PLACES).tolist()
    law = [(x, metric.law_at(row, x)) for x in xs]
    points = [(x, each.value) for x, each in law]
    spread = [(each.low, each.high) if each.is_bounded else (each.value, each.value) for _, each in law]
    return Curve(f"{row}, law", points, FIT, spread, band=True, markers=False, like=row, legend=False)


def interval_text(interval: Interval, digits: int = 4) -> str:
    ends = [f"{end:.{digits}g}" if math.isfinite(end) else ("−∞" if end < 0 else "∞") for end in interval[1:]]
    value = f"{interval.value:.{digits}g}" if math.isfinite(interval.value) else "–"
    return f"{value} [{ends[0]}, {ends[1]}]"


def metric_table(found: Ladder, metric: LadderMetric, signs: dict[str, Look]) -> str:
    budgets = [*found.budgets, *found.predicted]
    lines: list[list[TableCell]] = []
    for row, by_budget in metric.intervals.items():
        cells: list[TableCell] = []
        for budget in budgets:
            each = by_budget.get(budget)
            half = f" ± {(each.high - each.low) / 2:.4f}" if each is not None and each.is_bounded else ""
            cells.append("–" if each is None else Cell(f"{each.value:.4f}{half}", each.value))
        lines.append([row, *cells])
    head = ["", *(f"{budget:,.6g} {found.unit}" for budget in budgets)]
    arrow = "↓ lower is better" if metric.lower else "↑ higher is better"
    return f"<h3>{escaped(metric.name)}</h3>{table(head, lines, signs, file=f'{slug(metric.name)}.csv')}{note(arrow)}"


def laws_section(found: Ladder) -> list[Section]:
    lines: list[list[TableCell]] = []
    for metric in found.metrics:
        for row, law in metric.laws.items():
            fit = "–" if law.misfit == 1.0 else f"{law.misfit:.2g}"
            lines.append([metric.name, row, interval_text(law.exponent()), interval_text(law.offset()), fit])
        for row, budget in metric.turned.items():
            lines.append([metric.name, row, f"none: worse after {budget:,.6g} {found.unit}", "–", "–"])
    if not lines:
        return []
    head = ["metric", "row", "exponent", "offset", "p that the law holds"]
    text = (
        f"loss = offset + factor · {found.unit}^−exponent, with 95% intervals (profile likelihood); ∞ where every value fits. "
        f"Of a perplexity the law is that of its logarithm."
    )
    return [Section("Power laws", table(head, lines, file="laws.csv") + note(text))]


def predictions_section(found: Ladder) -> list[Section]:
    if not found.predictions:
        return []
    lines: list[list[TableCell]] = []
    for each in found.predictions:
        measured = "not yet" if each.measured is None else f"{each.measured:.4f}"
        inside = "" if each.measured is None else "inside" if each.interval.contains(each.measured) else "outside"
        where = f"{each.budget:,.6g} {found.unit}"
        lines.append([each.metric, each.row, where, interval_text(each.interval), measured, inside])
    head = ["metric", "row", "budget", "predicted", "measured", ""]
    text = "Predicted for the mean of as many seeds, with 95% intervals, before the budget was run (predictions.json)."
    return [Section("Predictions", table(head, lines, file="predictions.csv") + note(text))]


def pairs_section(found: Ladder) -> list[Section]:
    if not found.pairs:
        return []
    lines: list[list[TableCell]] = [
        [pair.metric, f"{pair.rows[0]}, {pair.rows[1]}", ahead_text(found, pair), crossing_text(found, pair)]
        for pair in found.pairs
    ]
    head = ["metric", "rows", "who is ahead", "they cross at"]
    text = "By the laws, within the budgets that were run; corrected for all pairs of rows and budgets."
    return [Section("Who is ahead where", table(head, lines, file="ahead.csv") + note(text))]


def ahead_text(found: Ladder, pair: Pair) -> str:
    parts = []
    for each in pair.stretches:
        who = "nobody for sure" if each.ahead is None else pair.rows[each.ahead]
        parts.append(f"{who} from {each.low:,.3g} to {each.high:,.3g}")
    return "; ".join(parts)


def crossing_text(found: Ladder, pair: Pair) -> str:
    where = pair.crossing.interval
    return pair.crossing.reason if where is None else f"{interval_text(where, 3)} {found.unit}"


def budgets_list(found: Ladder) -> str:
    lines = []
    for key in found.comparisons:
        rung = Rung(*key) if isinstance(key, tuple) else Rung(key)
        place = budget_path(Path(), found.unit, rung)
        lines.append(f'<li><a href="{place}/report.html">{escaped(called(rung, found.unit))}</a></li>')
    return f"<ul>{''.join(lines)}</ul>"


def ladder_csv(found: Ladder) -> str:
    return csv_text(long_rows(found))


def long_rows(found: Ladder) -> list[list[object]]:
    """One line a score: of each metric, row, budget and seed. The first has their names."""
    lines: list[list[object]] = [["metric", "lower_is_better", "row", "unit", "budget", "predicted", "seed", "value"]]
    for metric in found.metrics:
        for row, by_budget in metric.values.items():
            for budget, seeds in by_budget.items():
                for i, value in enumerate(seeds):
                    late = budget in found.predicted
                    lines.append([metric.name, metric.lower, row, found.unit, budget, late, i, value])
    return lines


def as_text(found: Ladder) -> str:
    """For a terminal."""
    lines = []
    for metric in found.metrics:
        lines.append(f"{metric.name} ({'lower' if metric.lower else 'higher'} is better)")
        for row, by_budget in metric.intervals.items():
            cells = "  ".join(f"{budget:g}: {each.value:.4f}" for budget, each in by_budget.items())
            law = f"  exponent {interval_text(metric.laws[row].exponent(), 3)}" if row in metric.laws else ""
            law = f"  worse after {metric.turned[row]:g}" if row in metric.turned else law
            lines.append(f"  {row:20} {cells}{law}")
    for each in found.predictions:
        measured = "not measured yet" if each.measured is None else f"measured {each.measured:.4f}"
        lines.append(
            f"{each.row}, {each.metric} at {each.budget:g}: predicted {interval_text(each.interval)}, {measured}"
        )
    return "\n".join([*lines, *(f"- {line}" for line in found.caveats)])

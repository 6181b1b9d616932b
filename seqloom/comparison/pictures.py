"""The pictures of a comparison: metrics, differences, quality against cost, curves."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from seqloom.charts import Curve, Estimate, Look, Square, chart, decimals, grid, intervals, matrix
from seqloom.comparison.folder import slug
from seqloom.comparison.metric import ALPHA, Metric, PairDifference
from seqloom.comparison.search import is_number
from seqloom.comparison.table import Comparison, pareto_front
from seqloom.comparison.text_measure import NAMES
from seqloom.metrics.intervals import Interval

Signs = Mapping[str, Look]

EFFORTS = {
    "tokens": "tokens read", "flops": "floating-point operations", "seconds": "seconds", "joules": "joules",
}  # fmt: skip
FEW_ROWS = 3  # with more, differences are drawn as a matrix
VALID = "validation loss, nats per target"
ONE_TRIAL = "One point for each trial, of one seed; settings that are not shown vary too."
BEST_OF = "Estimated from the trials without bias, with 95% intervals where they are known."
FRONT = "no other row beats it in both"


class Picture(NamedTuple):
    name: str  # of its file
    section: str  # of the page
    title: str
    note: str
    drawn: str


def draw_pictures(found: Comparison, signs: Signs) -> list[Picture]:
    pareto = draw_pareto(found, signs)
    return [
        *(draw_metric(metric, signs) for metric in found.metrics),
        *(draw_differences(metric) for metric in found.metrics if len(metric.values) > FEW_ROWS),
        *([pareto] if pareto else []),
        *draw_searches(found, signs),
        *draw_milestones(found, signs),
        *draw_categories(found),
        *draw_losses(found, signs),
    ]


def direction(metric: Metric) -> str:
    return "lower" if metric.lower else "higher"


def draw_metric(metric: Metric, signs: Signs) -> Picture:
    """The best row first. Seeds that are copies have no dots."""
    estimates = []
    for row, values in metric.values.items():
        dots = [] if row in metric.deterministic else (values if values.ndim == 1 else values.mean(1)).tolist()
        estimates.append(Estimate(row, *metric.interval(row), dots if len(dots) > 1 else []))
    estimates.sort(key=lambda each: each.value, reverse=not metric.lower)
    drawn = intervals(estimates, metric.name, signs, better=direction(metric))
    return Picture(slug(metric.name), "Metrics", metric.name, "", drawn)


def better_first(metric: Metric, pair: PairDifference) -> tuple[str, str, Interval]:
    """The row that looks better, the other one, and how much better it looks: at least 0."""
    interval = pair.difference.interval
    gain = Interval(-interval.value, -interval.high, -interval.low) if metric.lower else interval
    if gain.value >= 0:
        return pair.first, pair.second, gain
    return pair.second, pair.first, Interval(-gain.value, -gain.high, -gain.low)


def draw_differences(metric: Metric) -> Picture:
    """A square for each pair of rows. Significant differences have a colour and an arrow."""
    rows = sorted(metric.values, key=lambda row: metric.interval(row).value, reverse=not metric.lower)
    squares = {(row, row): Square("") for row in rows}
    digits = decimals((pair.difference.interval.value for pair in metric.differences), significant=3)
    for pair in metric.differences:
        better, worse, gain = better_first(metric, pair)
        sure = pair.p_adjusted < ALPHA
        amount = f"{gain.value:.{digits}f}"
        hint = f"{better} better than {worse} by {amount}, corrected p {pair.p_adjusted:.2g}"
        squares[better, worse] = Square(f"▲ {amount}" if sure else f"≈ {amount}", 1.0 if sure else 0.0, hint)
        squares[worse, better] = Square(f"▼ {amount}" if sure else f"≈ {amount}", -1.0 if sure else 0.0, hint)
    scale = [
        Square("▲ the row is significantly better than the column", 1.0),
        Square("▼ significantly worse", -1.0),
        Square("≈ may be noise", 0.0),
    ]
    title = f"{metric.name}: differences of all pairs"
    drawn = grid(rows, rows, [[squares[a, b] for b in rows] for a in rows], title, scale)
    return Picture(slug(f"{metric.name} differences"), "Differences", title, "", drawn)


def draw_pareto(found: Comparison, signs: Signs) -> Picture | None:
    """None where fewer than two rows are measured left to right."""
    metric = next((each for each in found.metrics if each.name in NAMES), None)
    if metric is None or len(metric.values) < 2:
        return None
    every = {row: (found.costs[row]["flops"], metric.interval(row).value) for row in metric.values}
    points = {row: point for row, point in every.items() if point[0] > 0}
    front = [points[row] for row in pareto_front(points)]
    line = [Curve(FRONT, front, dash="5 5", markers=False)] if len(front) > 1 else []
    dots = [Curve(row, [point]) for row, point in points.items()]
    without = [row for row in every if row not in points]
    note = f"Not shown, for lack of floating-point operations: {', '.join(without)}." if without else ""
    neutral = Look(colour=10, marker=0, dash="5 5")
    looks = {**signs, FRONT: neutral}
    drawn = chart("floating-point operations", metric.name, [*line, *dots], looks, log_x=True, better=direction(metric))
    title = f"{metric.name.capitalize()} against computation"
    return Picture(slug(title), "Quality against cost", title, note, drawn)


def draw_searches(found: Comparison, signs: Signs) -> list[Picture]:
    """The validation loss of every trial by the settings that were searched for, and what the best of fewer trials is expected to
    have. Rows are drawn together where their losses mean the same."""
    pictures = []
    for rows in rows_by_loss(found).values():
        searched = [row for row in rows if row in found.searches]
        if not searched:
            continue
        suffix = f" ({', '.join(searched)})" if len(found.searches) > len(searched) else ""
        for setting in dict.fromkeys(name for row in searched for name in found.searches[row].settings):
            curves, log = trial_points(found, searched, setting)
            if curves:
                drawn = chart(setting, VALID, curves, signs, log_x=log, better="lower")
                title = f"Validation loss against {setting}{suffix}"
                pictures.append(Picture(slug(f"search {setting} {searched[0]}"), "Search", title, ONE_TRIAL, drawn))
        best = [curve for row in searched for curve in best_of_curves(row, found.searches[row].curve)]
        if best:
            drawn = chart("trials", VALID, best, signs, better="lower")
            title = f"Expected best of so many trials{suffix}"
            pictures.append(Picture(slug(f"search best of {searched[0]}"), "Search", title, BEST_OF, drawn))
    return pictures


def best_of_curves(row: str, curve: Sequence[Interval]) -> list[Curve]:
    """With a band as far as intervals are known: not for all trials together, of which there is only one best."""
    known = [(float(k), each) for k, each in enumerate(curve, 1) if math.isfinite(each.value)]
    sure = [(k, each) for k, each in known if each.is_bounded]
    points = [(k, each.value) for k, each in known]
    band = [(k, each.value) for k, each in sure]
    spread = [(each.low, each.high) for _, each in sure]
    found = [Curve(row, points)] if points else []
    return found + ([Curve(row, band, spread=spread, band=True, legend=False, like=row)] if band else [])


def trial_points(found: Comparison, rows: Sequence[str], setting: str) -> tuple[list[Curve], bool]:
    """A point for each trial that has a number for the setting, and whether it was drawn on a logarithmic scale."""
    curves = []
    for row in rows:
        trials = [each.result for each in found.searches[row].trials if each.trial.rung == 0]
        points = [
            (float(each.settings[setting]), each.score)
            for each in trials
            if is_number(each.settings.get(setting)) and math.isfinite(each.score)
        ]
        if len({x for x, _ in points}) > 1:
            curves.append(Curve(row, sorted(points)))
    scales = {row.ranges[setting].scale for row in found.plan.rows if row.name in rows and setting in row.ranges}
    return [curve._replace(line=scales != {""}) for curve in curves], "log" in scales


def draw_milestones(found: Comparison, signs: Signs) -> list[Picture]:
    pictures = []
    for suite, rows in found.milestones.items():
        curves = [Curve(row, points) for row, points in rows.items()]
        drawn = chart("words", suite, curves, signs, log_x=True, better="higher")
        title = f"{suite} against words read"
        pictures.append(Picture(slug(title), "During training", title, "Means over seeds.", drawn))
    return pictures


def draw_categories(found: Comparison) -> list[Picture]:
    pictures = []
    for suite, rows in found.by_category.items():
        categories = list(next(iter(rows.values())))
        values = [[rows[row][category] for row in rows] for category in categories]
        title = f"{suite} by category"
        drawn = matrix(categories, list(rows), values, title, middle=0.5)
        note = "Means over seeds, without intervals: what stands out may be noise. Higher is better."
        pictures.append(Picture(slug(f"{suite} by kind"), "By category", title, note, drawn))
    return pictures


def rows_by_loss(found: Comparison) -> dict[str, list[str]]:
    groups: dict[str, list[str]] = {}
    for row, each in found.curves.items():
        groups.setdefault(each.meaning, []).append(row)
    return groups


def draw_losses(found: Comparison, signs: Signs) -> list[Picture]:
    """Rows are drawn together where their losses mean the same."""
    groups, pictures = rows_by_loss(found), []
    for rows in groups.values():
        for effort, title in EFFORTS.items():
            curves = [
                Curve(r, list(zip(getattr(found.curves[r], effort), found.curves[r].loss, strict=True))) for r in rows
            ]
            log = effort == "flops"
            drawn = chart(title, "training loss, nats per target", curves, signs, log_x=log, better="lower")
            heading, several = f"Loss against {title}", len(groups) > 1
            # the first row is enough for a file name: each row is in one group
            name = slug(heading + f" {rows[0]}" * several)
            pictures.append(Picture(name, "Training loss", heading + f" ({', '.join(rows)})" * several, "", drawn))
    return pictures

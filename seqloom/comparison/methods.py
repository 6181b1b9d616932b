"""How a comparison was made, in sentences that can be pasted into a paper. They are computed from the plan and the results."""

from seqloom.comparison.metric import ALPHA
from seqloom.comparison.table import Comparison


def methods_sentences(found: Comparison) -> list[str]:
    return [
        sentence(line) for part in (training, tuning, measurements, tests, questions, software) for line in part(found)
    ]


def sentence(line: str) -> str:
    return line[:1].upper() + line[1:]


def joined(names: list[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def number(value: float) -> str:
    return f"{value:,.0f}" if value == round(value) and value < 1e12 else f"{value:.4g}"


def training(found: Comparison) -> list[str]:
    if not found.rows:
        return []
    plan = found.plan
    budget = " and ".join(f"{number(value)} {name}" for name, value in plan.budget.items())
    counts = {len(seeds) for seeds in found.seeds.values()}
    many = f"{min(counts)} to {max(counts)}" if len(counts) > 1 else str(max(counts))
    seeds = f"{many} seed{'s' if max(counts) > 1 else ''}"
    rows = (
        f"Each of the {len(found.rows)} models was trained on the same text"
        if found.rows[1:]
        else "The model was trained"
    )
    lines = [f"{rows} with a budget of {budget} and {seeds}."]
    if found.unfinished:
        lines.append(f"There are no results of {joined(found.unfinished)}.")
    if plan.parameters is not None:
        lines.append(f"The sizes of trained models were set to about {plan.parameters:,.0f} parameters.")
    fixed = sorted({row for metric in found.metrics for row in metric.deterministic if row in found.rows})
    if fixed:
        lines.append(f"{joined(fixed)} {'is' if len(fixed) == 1 else 'are'} deterministic: seeds change nothing.")
    return lines


def tuning(found: Comparison) -> list[str]:
    search = found.plan.search
    if search is None:
        return ["Settings were not tuned."]
    if not found.searches:
        return []
    rows = [row for row in found.plan.rows if row.name in found.searches]
    ranges = {f"{name} from {each}" for row in rows for name, each in row.ranges.items()}
    how = {
        "random": f"{search.trials} random trials",
        "quasirandom": f"{search.trials} quasirandom trials",
        "grid": f"a grid of {search.trials} points",
        "halving": f"successive halving of {search.trials} random trials",
    }[search.method]
    share = "the whole budget" if search.budget == 1 else f"{search.budget:.3g} of the budget"
    again = f"; the best {search.finalists} were run again at the whole budget" if search.finalists else ""
    return [
        f"Each trained model was tuned with {how} at {share}, the same for all ({'; '.join(sorted(ranges))}){again}, and the "
        f"settings with the lowest validation loss were taken; neither test data nor suites were used for that."
    ]


def measurements(found: Comparison) -> list[str]:
    lines = []
    for metric in found.metrics:
        first = next(iter(metric.values.values()))
        items = f" on {first.shape[1]:,} {metric.items}" if first.ndim == 2 else ""
        lines.append(f"{metric.name} was measured{items} ({'lower' if metric.lower else 'higher'} is better).")
    if lines:
        lines.append("Intervals are 95% confidence intervals.")
    return lines


def tests(found: Comparison) -> list[str]:
    compared = [metric for metric in found.metrics if len(metric.values) > 1]
    if not compared or max(map(len, found.seeds.values())) < 2:
        return []
    paired = [metric.name for metric in compared if next(iter(metric.values.values())).ndim == 2]
    by_seed = [metric.name for metric in compared if metric.name not in paired]
    lines = []
    if paired:
        lines.append(
            f"Differences in {joined(paired)} were tested by t tests paired over items, with the variance between seeds included."
        )
    if by_seed:
        lines.append(f"Differences in {joined(by_seed)} were tested by Welch's t test (1947) over seeds.")
    lines.append(
        f"The p values of all pairs of rows were corrected within each metric by Holm's method (1979), at a level of {ALPHA:g}; "
        f"rows that may be the best were found by a closed test (Marcus, Peritz and Gabriel, 1976)."
    )
    return lines


def questions(found: Comparison) -> list[str]:
    asked = found.plan.questions
    if not asked:
        return []
    late = sum(question.late for question in asked)
    when = "before there were results" if not late else f"{late} of them after there were results"
    count = f"{len(asked)} question{'s were' if len(asked) > 1 else ' was'} asked"
    return [f"{count}, {when}; their p values were corrected for all questions within each metric (Holm)."]


def software(found: Comparison) -> list[str]:
    made = [f"{name} {value[:10] if name == 'git' else value}" for name, value in found.versions.items() if value]
    return [f"Made with {', '.join(made)}."] if made else []

"""Learning curves: a task trained on more and more examples, by a pre-trained model and by the same model from scratch.

Both have the same tokenizer, model and examples. Each seed has its own order of the examples, and each size takes the first ones:
smaller sets are subsets of larger ones. Every size is trained for at least `MIN_STEPS` steps, unless a budget is given.
"""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.charts import Curve, Mark, chart, escaped, figure, looks, note, page, table
from seqloom.errors import UsageError
from seqloom.files import read_json, write_bytes, write_json
from seqloom.metrics.intervals import Interval, student
from seqloom.plugins import Plugin
from seqloom.progress import say
from seqloom.recipes.schema import BudgetConfig, Recipe
from seqloom.runs.examples import LabelledFiles
from seqloom.runs.first_weights import transfer_from
from seqloom.runs.load import Trained
from seqloom.runs.options import RunOptions
from seqloom.runs.seeds import NOTHING, holding_runs
from seqloom.runs.training import (
    Files,
    beside_of,
    files_of,
    layout_of,
    open_start,
    train_run,
)
from seqloom.runs.transfer_recipe import check_transfer, recipe_after
from seqloom.tasks import task_class

MIN_STEPS = 100  # an epoch of ten examples is only one step
EVALUATIONS = 20  # in these steps
KINDS = {"pretrained": "pre-trained", "scratch": "from scratch"}


class Size(NamedTuple):
    """The scores for one number of training examples, over the seeds."""

    examples: int
    pretrained: Interval
    scratch: Interval
    gain: Interval  # the difference, paired by seed


def learning_curve(
    start: str | Path | Trained,
    task: str,
    files: Mapping[str, Files],
    out: str | Path,
    sizes: Sequence[int],
    *,
    how: str = "finetune",
    beside: Files = (),
    columns: Mapping[str, str] | None = None,
    encoding: str | None = None,
    settings: list[str] | None = None,
    seeds: Sequence[int] = range(3),
    plugin: str | Path | Plugin | None = None,
    language: str | None = None,
    options: RunOptions = RunOptions(),
) -> list[Size]:
    """Train the runs in OUT/curve and write OUT/curve.json and OUT/curve.html. files: train, and valid or test or both. The
    scores are those on test, otherwise on valid, on which the weights were chosen as well."""
    check_transfer(task, how)
    if not files.get("valid") and not files.get("test"):
        raise UsageError("--curve needs --valid or --test, on which each size is scored")
    before, folder = open_start(start, out, plugin, language), Path(out)
    given = files_of(**files)
    split = "test" if "test" in given else "valid"
    cls: Any = task_class(task)
    layout: dict[str, Any] = layout_of(task, columns, encoding)
    examples = list(cls.read(given["train"], **layout))
    kept = sorted({min(size, len(examples)) for size in sizes})
    if max(sizes) > len(examples):
        say(f"there are {len(examples):,} training examples: larger sizes become {len(examples):,}")
    fixed = any(each.startswith("budget") for each in settings or [])
    recipes = {kind: recipe_after(before, task, how if kind == "pretrained" else "scratch", settings) for kind in KINDS}
    others: dict[str, Any] = beside_of(beside, recipes["pretrained"], folder, options, trained=before)
    values: dict[tuple[str, int], list[float]] = {(kind, size): [] for size in kept for kind in KINDS}
    score = baseline = None
    with holding_runs(folder, options.resume, options.overwrite):
        for seed in seeds:
            order = nested_order([stratum(example) for example in examples], seed)
            for kind, size in values:
                recipe = recipes[kind] if fixed else long_enough(recipes[kind], size)
                dataset = LabelledFiles(recipe, given, before.source_tokenizer, order[:size], **layout, **others)
                place = folder / "curve" / kind / str(size) / f"seed-{seed}"
                transfer = transfer_from(before, weights=kind == "pretrained")
                run: Any = train_run(dataset, place, replace(options, seed=seed), transfer)
                scores = read_json(place / "metrics.json")[f"{split}_scores"]
                score, baseline = run.learner.main_metric, scores.get("majority")
                values[kind, size].append(scores["score"])
        found = [size_of(values["pretrained", size], values["scratch", size], size) for size in kept]
        record = {
            "task": task, "from": str(before.folder), "score": score, "split": split, "seeds": list(seeds), "majority": baseline,
            "sizes": [
                {
                    "examples": each.examples,
                    **{kind: getattr(each, kind).record() | {"values": values[kind, each.examples]} for kind in KINDS},
                    "gain": each.gain.record(),
                }
                for each in found
            ],
        }  # fmt: skip
        write_json(folder / "curve.json", record)
        write_bytes(folder / "curve.html", curve_page(record, found).encode())
    return found


def stratum(example: Any) -> Hashable:
    """What subsets are stratified by: the class, or whether there is an answer."""
    label = getattr(example, "label", None)
    return label if isinstance(label, str) else getattr(example, "impossible", None)


def nested_order(strata: Sequence[Hashable], seed: int) -> list[int]:
    """An order of the examples in which every prefix has the strata in about their overall proportions."""
    random = np.random.default_rng(seed)
    groups: dict[Hashable, list[int]] = {}
    for i, each in enumerate(strata):
        groups.setdefault(each, []).append(i)
    place = np.empty(len(strata))
    for group in groups.values():  # the members of each are spread evenly, from a random offset
        place[random.permutation(group)] = (np.arange(len(group)) + random.random()) / len(group)
    return np.argsort(place, kind="stable").tolist()


def long_enough(recipe: Recipe, size: int) -> Recipe:
    steps, epochs = recipe.steps_an_epoch(size), recipe.budget.epochs
    if epochs is None or epochs * steps >= MIN_STEPS:
        return recipe
    every = recipe.train.eval_every or max(steps, MIN_STEPS // EVALUATIONS)
    return recipe.model_copy(
        update={
            "budget": BudgetConfig(epochs=MIN_STEPS / steps),
            "train": recipe.train.model_copy(update={"eval_every": every}),
        }
    )


def size_of(pretrained: Sequence[float], scratch: Sequence[float], size: int) -> Size:
    gains = np.array(pretrained) - np.array(scratch)
    return Size(size, student(pretrained), student(scratch), student(gains))


def rows_of(found: Sequence[Size]) -> list[list[str]]:
    return [[f"{each.examples:,}", str(each.pretrained), str(each.scratch), str(each.gain)] for each in found]


HEADER = ["examples", *KINDS.values(), "gain"]


def format_table(found: Sequence[Size], count: int) -> str:
    """The table as text. count: the number of seeds."""
    rows = [HEADER, *rows_of(found)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*lines, remark(count)])


def remark(count: int) -> str:
    return (
        NOTHING
        if count == 1
        else f"means and 95% intervals over {count} seeds; gain: difference of the two, paired by seed"
    )


def curve_page(record: dict[str, Any], found: Sequence[Size]) -> str:
    """An HTML page with the curves; sizes are on a logarithmic axis."""
    get: dict[str, Callable[[Size], Interval]] = {
        "pre-trained": lambda size: size.pretrained,
        "from scratch": lambda size: size.scratch,
    }
    curves = []
    for name, of in get.items():
        points = [(float(each.examples), of(each).value) for each in found]
        spread = [(of(each).low, of(each).high) for each in found]  # unbounded ones are not drawn
        curves.append(Curve(name, points, spread=spread))
    signs = looks(get)
    names = [[curve.name, f"{curve.points[-1][1]:.4f}"] for curve in curves]
    marks = []
    if record["majority"] is not None:
        marks.append(Mark("majority class", y=record["majority"]))
        names.append(["majority class", f"{record['majority']:.4f}"])
    title = f"{record['task']} trained on {found[0].examples:,} to {found[-1].examples:,} examples"
    metric = f"{record['score']} on {record['split']}"
    parts = [
        f"<h1>{escaped(title)}</h1>",
        note(f"{metric}; pre-trained: {record['from']}; {remark(len(record['seeds']))}"),
        figure(chart("examples", metric, curves, signs, log_x=True, marks=marks), "learning-curve"),
        table(["", f"{metric}, {found[-1].examples:,} examples"], names, signs),
        "<h2>All sizes</h2>",
        table(HEADER, rows_of(found), file="learning-curve.csv"),
    ]
    return page(title, parts)

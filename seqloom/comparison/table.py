"""What the jobs of a comparison have found, put together: figures with intervals, what can be told apart, what differed.

A figure has a number for each seed, or for each seed and item of a test that all rows have taken. Rows that have no such number
say why. Rows are compared by a figure only if it means the same for all of them. A row in which nothing is random has items
alone: its seeds are copies.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.comparison.job import DOCUMENTS, result_of, run_of
from seqloom.errors import ModelError
from seqloom.evaluate.suites import SUITES, find_suite
from seqloom.files import read_json
from seqloom.metrics.differences import Difference, difference, difference_of_seeds, holm, leaders
from seqloom.metrics.intervals import Interval, Sample, by_set, nested, ratio_items, student
from seqloom.metrics.variances import Pool, pool
from seqloom.objectives import objective_class
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.replaced import ReplacedToken
from seqloom.recipes.schema import BatchesConfig
from seqloom.runs.folder import decisive
from seqloom.training.log import read_log

Failures = Mapping[str, tuple[int, str]]
COSTS = ("parameters", "tokens", "words", "flops", "seconds", "energy_kwh")
KINDS = {"blimp": "by_phenomenon", "agreement": "by_attractors"}  # what the items of a suite are told apart by
CHANCE = 0.05  # a difference is told from noise where it would come by chance less often than this
BITS = "bits per byte"
NOTHING = np.zeros(0)
NO_ORDER = "it has no probability of the next token"


class Figure(NamedTuple):
    """name: of a column. values: of each row (S,) or (S, n). missing: of each other row the reason."""

    name: str
    lower: bool  # the lowest is the best
    values: dict[str, np.ndarray]
    missing: dict[str, str]
    deterministic: frozenset[str] = frozenset()  # rows whose seeds are copies of one another
    items: str = "items"  # what they are
    outcomes: bool = False  # items are right, wrong or in between
    sets: np.ndarray | None = None  # (n,) of the items: intervals are for other sets of the kind, unless asked by item
    fixed_sets: bool = False  # there are no other sets: all are meant
    df: float | None = None  # of the variance over items that are not of one size

    @property
    def sampled_sets(self) -> bool:
        return self.sets is not None and not self.fixed_sets

    def sample(self, row: str, by_item: bool = False) -> Sample:
        """Before seeds are pooled."""
        found = Sample(
            self.values[row], row in self.deterministic, strata=self.sets, df=self.df, outcomes=self.outcomes
        )
        return by_set(found, self.sets) if self.sets is not None and self.sampled_sets and not by_item else found

    def pool(self) -> Pool | None:
        return pool([self.sample(row, by_item=True) for row in self.values])

    def samples(self, by_item: bool = False) -> dict[str, Sample]:
        together = self.pool()
        part = together and together.component
        return {row: self.sample(row, by_item)._replace(pooled=part) for row in self.values}

    def interval(self, row: str, by_item: bool = False) -> Interval:
        """by_item: for other items of the same sets."""
        found = self.samples(by_item)[row]
        return nested(found) if found.scores.ndim == 2 else student(found)

    def leaders(self) -> list[str]:
        """The rows that are not told apart from the best; one alone is the winner. Of one row nothing is said."""
        names = list(self.values)
        return [names[i] for i in leaders(list(self.samples().values()), self.lower)] if len(names) > 1 else []

    def method(self) -> str:
        """What its intervals are over, in words."""
        of, random = [], [row for row in self.values if row not in self.deterministic]
        if random:
            of.append("other seeds")
        arrays = list(self.values.values())
        if arrays[0].ndim == 2:
            count = f"{arrays[0].shape[1]:,} {self.items}"
            if self.sampled_sets:
                assert self.sets is not None
                count += (
                    f" in {len(np.unique(self.sets)):,} sets: ± for other sets, then for other items of the same sets"
                )
            of.append(f"other {self.items} ({count})")
        lines = [f"{self.name}: intervals are for {' and '.join(of) or 'nothing that was sampled'}"]
        if arrays[0].ndim == 2 and self.deterministic:
            lines.append(f"{', '.join(self.deterministic)} is deterministic, and no seed changes it")
        together = self.pool()
        if together is not None:
            names = [list(self.values)[i] for i in together.rows]
            done = "pooled over" if together.component else "not pooled over"
            lines.append(
                f"seed variance {done} {', '.join(names)} (Bartlett's test of equal variances: p = {together.p:.2g})"
            )
        return "; ".join(lines)

    def differences(self, asked: Sequence[tuple[str, str]] | None = None) -> list[tuple[str, str, Difference, float]]:
        """Of all pairs of rows, or of those that were asked about, with the p value that so many comparisons leave of it
        (Holm, 1979)."""
        pairs = list(combinations(self.values, 2)) if asked is None else asked
        found, samples = [], self.samples()
        for a, b in pairs:
            test = difference if samples[a].scores.ndim == 2 else difference_of_seeds
            found.append(test(samples[a], samples[b]))
        adjusted = holm([each.p for each in found])
        return [(a, b, each, p) for (a, b), each, p in zip(pairs, found, adjusted, strict=True)]


class Answer(NamedTuple):
    """What a figure says to a question: the first row less the second, and p corrected for all questions that it answers."""

    question: str
    figure: str
    rows: tuple[str, str]
    found: Difference
    p: float
    better: str | None  # of the two; None inside the noise


class Curves(NamedTuple):
    """What was logged while a row was trained, the mean of its seeds: a loss for each of several measures of effort."""

    meaning: str  # of the loss: only rows with the same are drawn together
    loss: list[float]
    tokens: list[float]
    flops: list[float]
    seconds: list[float]
    joules: list[float]


class Comparison(NamedTuple):
    name: str
    rows: list[str]
    seeds: dict[str, list[int]]  # those that are finished
    costs: dict[str, dict[str, float]]  # of a row, the mean over its seeds
    energy: list[str]  # how it was measured
    figures: list[Figure]
    answers: list[Answer]
    curves: dict[str, Curves]
    milestones: dict[str, dict[str, list[tuple[float, float]]]]  # by suite and row: words, accuracy
    kinds: dict[str, dict[str, dict[str, float]]]  # by suite, row and kind of item: accuracy, the mean of the seeds
    samples: dict[str, str]
    held: list[str]
    caveats: list[str]
    plan: dict[str, Any]
    versions: dict[str, str]

    def record(self) -> dict[str, Any]:
        """comparison.json."""
        figures = []
        for figure in self.figures:
            rows = {}
            for name, values in figure.values.items():
                means = values if values.ndim == 1 else values.mean(1)
                rows[name] = figure.interval(name).record() | {"values": [float(value) for value in means]}
                if figure.sampled_sets:
                    rows[name]["by_item"] = figure.interval(name, by_item=True).record()
            pairs = [
                {"rows": [a, b], **found.interval.record(), "p": found.p, "p_adjusted": p}
                for a, b, found, p in figure.differences()
            ]
            figures.append(
                {
                    "name": figure.name, "lower_is_better": figure.lower, "method": figure.method(),
                    "deterministic": sorted(figure.deterministic & set(figure.values)), "rows": rows,
                    "missing": figure.missing,
                    "not_told_apart_from_the_best": figure.leaders(), "differences": pairs,
                }
            )  # fmt: skip
        answers = [
            {"question": each.question, "figure": each.figure, "rows": list(each.rows), **each.found.interval.record()}
            | {"p": each.found.p, "p_adjusted": each.p, "better": each.better}
            for each in self.answers
        ]
        return {
            "name": self.name, "seeds": self.seeds, "costs": self.costs, "energy_methods": self.energy,
            "figures": figures, "answers": answers,
            "milestones": self.milestones, "kinds": self.kinds, "held_fixed": self.held, "caveats": self.caveats,
            "samples": self.samples, "versions": self.versions, "plan": self.plan,
        }  # fmt: skip


def collect(folder: Path, record: dict[str, Any], failures: Failures) -> Comparison:
    try:
        return put_together(folder, record, failures)
    except (LookupError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise ModelError(
            f"{folder / 'results'}: a result, or a metrics.jsonl or config.json in {folder / 'runs'}, is damaged "
            f"({type(error).__name__}: {str(error)[:200]}): remove the result that was changed last and call it again"
        ) from error


def put_together(folder: Path, record: dict[str, Any], failures: Failures) -> Comparison:
    results: dict[str, dict[int, dict[str, Any]]] = {}
    items: dict[str, dict[int, dict[str, np.ndarray]]] = {}
    for row in record["rows"]:
        paths = {seed: result_of(folder, row["place"], seed) for seed in record["seeds"]}
        there = {seed: path for seed, path in paths.items() if path.exists()}
        results[row["name"]] = {seed: read_json(path) for seed, path in there.items()}
        items[row["name"]] = {seed: dict(np.load(path.with_suffix(".npz"))) for seed, path in there.items()}
    rows = [row for row in record["rows"] if results[row["name"]]]
    names = [row["name"] for row in rows]
    runs = {row["name"]: [run_of(folder, row["place"], seed) for seed in results[row["name"]]] for row in rows}
    configs = {name: read_json(places[0] / "config.json") for name, places in runs.items()}
    figures = [
        bits_figure(rows, results, items),
        *masked_figures(rows, results, configs),
        *(suite_figure(suite, rows, results, items, sets_of(folder, suite)) for suite in record["suites"]),
        *(task_figure(task["name"], rows, results) for task in record["tasks"]),
    ]
    figures, empty = [each for each in figures if each.values], [each for each in figures if not each.values]
    costs = {name: costs_of(results[name].values(), record["price"]) for name in names}
    return Comparison(
        name=record["name"],
        rows=names,
        seeds={name: list(results[name]) for name in names},
        costs=costs,
        energy=sorted({each["metrics"]["energy_method"] for seeds in results.values() for each in seeds.values()}),
        figures=figures,
        answers=answers(record["questions"], figures),
        curves={row["name"]: curves_of(runs[row["name"]], meaning(row, configs)) for row in rows if not counted(row)},
        milestones=milestones_of(record["suites"], results),
        kinds=kinds_of(record["suites"], results),
        samples={name: next(iter(results[name].values()))["sample"] for name in names},
        held=held_fixed(rows, configs, record),
        caveats=[
            *caveats(rows, configs, results, costs, record, failures),
            *nobody_has(empty),
            *without_items(figures, items),
        ],
        plan=record,
        versions=next(iter(configs.values()))["versions"] if configs else record["versions"],
    )


def without_items(figures: Sequence[Figure], items: dict[str, dict[int, dict[str, np.ndarray]]]) -> list[str]:
    """Where seeds alone are counted in, though there could be more."""
    found = []
    for figure in figures:
        if figure.name == BITS and next(iter(figure.values.values())).ndim == 1:
            old = [row for row in figure.values if not all(f"{DOCUMENTS}.bits" in each for each in items[row].values())]
            why = f"{', '.join(old)} measured by an earlier version, without single documents" if old else ""
            found.append(
                f"intervals of {BITS} are for other seeds on the same text alone: {why or 'it has no two documents'}"
            )
        if figure.name in SUITES and SUITES[figure.name].sets is not None and figure.sets is None:
            found.append(
                f"intervals of {figure.name} are for items as if they had nothing in common: the file that tells their "
                f"sets is not there"
            )
    return found


def nobody_has(empty: list[Figure]) -> list[str]:
    asked = [figure for figure in empty if figure.name != BITS]
    return [f"no row has {each.name}: {reason}" for each in asked for reason in dict.fromkeys(each.missing.values())]


def answers(questions: Sequence[dict[str, Any]], figures: Sequence[Figure]) -> list[Answer]:
    """One question after the other, by every figure that both rows have."""
    found: dict[str, list[Answer]] = {question["name"]: [] for question in questions}
    for figure in figures:
        asked = [question for question in questions if all(row in figure.values for row in question["rows"])]
        told = figure.differences([(first, second) for first, second in (question["rows"] for question in asked)])
        for question, (first, second, each, p) in zip(asked, told, strict=True):
            better = None if p >= CHANCE else first if (each.interval.value < 0) == figure.lower else second
            found[question["name"]].append(Answer(question["name"], figure.name, (first, second), each, p, better))
    return [answer for each in found.values() for answer in each]


def costs_of(results: Iterable[dict[str, Any]], price: dict[str, Any] | None) -> dict[str, float]:
    metrics = [result["metrics"] for result in results]
    found = {name: float(np.mean([each[name] for each in metrics])) for name in COSTS}
    if price is not None:
        # results of earlier versions have no share of the device
        shares = [each.get("device_seconds", each["seconds"]) for each in metrics]
        found["price"] = float(np.mean(shares)) / 3600 * price["hour"]
    return found


# ---- figures


def learns(row: dict[str, Any]) -> dict[str, Any]:
    return row["recipe"]["objective"]


def counted(row: dict[str, Any]) -> bool:
    return learns(row)["name"] == "counts"


def copied(rows: list[dict[str, Any]], results: dict[str, dict[int, dict[str, Any]]]) -> frozenset[str]:
    """Rows in which nothing is random: those that count the whole text. A smaller budget takes documents by the seed."""
    return frozenset(
        row["name"]
        for row in rows
        if counted(row) and all(each["metrics"]["epochs"] >= 1 for each in results[row["name"]].values())
    )


def bits_figure(
    rows: list[dict[str, Any]],
    results: dict[str, dict[int, dict[str, Any]]],
    items: dict[str, dict[int, dict[str, np.ndarray]]],
) -> Figure:
    values, missing = {}, {}
    for row in rows:
        found = [result["held_out"].get("bits_per_byte") for result in results[row["name"]].values()]
        if None not in found:
            values[row["name"]] = np.array(found, float)
        elif issubclass(objective_class(learns(row)["name"]), MaskedLM):
            missing[row["name"]] = NO_ORDER
        else:
            missing[row["name"]] = "its tokenizer does not account for every byte"
    figure = Figure(BITS, True, values, missing, copied(rows, results), "documents")
    sizes = [each.get(f"{DOCUMENTS}.bytes", NOTHING) for row in values for each in items[row].values()]
    if not sizes or len(sizes[0]) < 2 or not all(np.array_equal(each, sizes[0]) for each in sizes):
        return figure
    scores: dict[str, np.ndarray] = {}
    for row, bits in values.items():
        totals = np.stack([each[f"{DOCUMENTS}.bits"] for each in items[row].values()])
        scores[row], df = ratio_items(totals, sizes[0].astype(float))
        scores[row] += (bits - scores[row].mean(1))[:, None]  # sums of single precision: the figure is that of the run
    return figure._replace(values=scores, df=df)


def masked_figures(
    rows: list[dict[str, Any]], results: dict[str, dict[int, dict[str, Any]]], configs: dict[str, Any]
) -> list[Figure]:
    """One for every way to hide tokens of every vocabulary, and for all that decides which are hidden where: only
    perplexities of the same guesses are comparable."""
    groups: dict[tuple[Any, ...], dict[str, np.ndarray]] = {}
    for row in rows:
        cls: Any = objective_class(learns(row)["name"])
        if not issubclass(cls, MaskedLM) or issubclass(cls, ReplacedToken):
            continue
        hides = cls.Config(**{name: value for name, value in learns(row).items() if name != "name"})
        batches = row["recipe"]["batches"]
        key = (f"{100 * hides.rate:g}% by {hides.unit}", hides.keep, hides.random, hides.static)
        group = groups.setdefault((*key, batches["length"], batches["budget"], configs[row["name"]]["tokenizer"]), {})
        group[row["name"]] = np.array([each["held_out"]["masked_perplexity"] for each in results[row["name"]].values()])
    found = []
    for number, ((hidden, *_), values) in enumerate(groups.items(), 1):
        title = "masked perplexity" + (f" ({number}: {hidden})" if len(groups) > 1 else "")
        missing = {}
        for row in rows:
            if row["name"] in values:
                continue
            of_generator = issubclass(objective_class(learns(row)["name"]), ReplacedToken)
            missing[row["name"]] = "it is its generator that guesses" if of_generator else "it guesses other tokens"
        found.append(Figure(title, True, values, missing))
    return found


def suite_figure(
    suite: dict[str, str],
    rows: list[dict[str, Any]],
    results: dict[str, dict[int, dict[str, Any]]],
    items: dict[str, dict[int, dict[str, np.ndarray]]],
    sets: np.ndarray | None = None,
) -> Figure:
    values, missing = {}, {}
    for row in rows:
        reasons = [result["suites"][suite["name"]].get("refused") for result in results[row["name"]].values()]
        if any(reasons):
            missing[row["name"]] = next(reason for reason in reasons if reason)
        else:
            values[row["name"]] = np.stack([each[suite["name"]] for each in items[row["name"]].values()]).astype(float)
    same = sets is not None and all(scores.shape[1:] == sets.shape for scores in values.values())
    told = sets if same else None
    return Figure(
        suite["name"],
        False,
        values,
        missing,
        copied(rows, results),
        outcomes=True,
        sets=told,
        fixed_sets=suite["name"] == "pairs",
    )


def sets_of(folder: Path, suite: dict[str, str]) -> np.ndarray | None:
    """Which set each item of a suite belongs to, numbered; None where it has none, or its file is gone."""
    read, _, tell = find_suite(suite["suite"])[1:]
    path = folder / suite["data"]
    if tell is None or not path.exists():
        return None
    return np.unique(tell(read(path)), return_inverse=True)[1].reshape(-1)


def task_figure(name: str, rows: list[dict[str, Any]], results: dict[str, dict[int, dict[str, Any]]]) -> Figure:
    values, missing = {}, {}
    for row in rows:
        found = [result["tasks"][name] for result in results[row["name"]].values()]
        if all("score" in each for each in found):
            values[row["name"]] = np.array([each["score"] for each in found], float)
        else:
            missing[row["name"]] = next(each["refused"] for each in found if "refused" in each)
    return Figure(name, False, values, missing)  # what is learnt from labelled examples begins with random weights


# ---- curves


def meaning(row: dict[str, Any], configs: dict[str, Any]) -> str:
    """Losses are comparable where the same tokens are told in the same way."""
    settings = {key: value for key, value in learns(row).items() if key not in ("tie", "bias")}
    return json.dumps([settings, configs[row["name"]]["tokenizer"]], sort_keys=True)


def curves_of(runs: list[Path], means: str) -> Curves:
    """Runs of several seeds have the same steps; where one has fewer, the mean ends with it."""
    logs = [[line for line in read_log(run) if "loss" in line] for run in runs]
    count = min(map(len, logs))
    every = max(count // 80, 1)  # points that an eye can tell apart

    def mean(name: str) -> list[float]:
        table = np.array([[line[name] for line in log[:count]] for log in logs], float).mean(0)
        whole = count // every * every
        return [float(value) for value in table[:whole].reshape(-1, every).mean(1)]

    return Curves(means, *(mean(name) for name in ("loss", "tokens", "flops", "seconds", "joules")))


def milestones_of(
    suites: list[dict[str, str]], results: dict[str, dict[int, dict[str, Any]]]
) -> dict[str, dict[str, list[tuple[float, float]]]]:
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for suite in suites:
        for row, seeds in results.items():
            points: dict[float, list[float]] = {}
            for result in seeds.values():
                for mark in result["milestones"]:
                    accuracy = mark["suites"].get(suite["name"])
                    if accuracy is not None:
                        points.setdefault(mark["words"], []).append(accuracy)
            if points:
                line = [(float(words), float(np.mean(values))) for words, values in sorted(points.items())]
                found.setdefault(suite["name"], {})[row] = line
    return found


def kinds_of(
    suites: list[dict[str, str]], results: dict[str, dict[int, dict[str, Any]]]
) -> dict[str, dict[str, dict[str, float]]]:
    found: dict[str, dict[str, dict[str, float]]] = {}
    for suite in suites:
        for row, seeds in results.items():
            parted = [result["suites"][suite["name"]].get(KINDS.get(suite["suite"], "")) for result in seeds.values()]
            if parted and all(parted):
                means = {kind: float(np.mean([each[kind] for each in parted])) for kind in parted[0]}
                found.setdefault(suite["name"], {})[row] = means
    return found


# ---- what is the same, and what is not


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found


def settings_of(row: dict[str, Any]) -> dict[str, Any]:
    """What decides a training beside the model and what it learns by; of models that count nothing does."""
    if counted(row):
        return {}
    batches, train = BatchesConfig(**row["recipe"]["batches"]), decisive(row["recipe"])["train"]
    found: dict[str, Any] = {"batches.kind": batches.kind, "batches.length": batches.length}
    found["tokens a step"] = batches.tokens * train["accumulate"]
    if batches.short:
        found |= {"batches.short": batches.short, "batches.short_share": batches.short_share}
    return found | flat({name: value for name, value in train.items() if name != "log_every"}, "train.")


def held_fixed(rows: list[dict[str, Any]], configs: dict[str, Any], record: dict[str, Any]) -> list[str]:
    ends = ", ".join(f"{value:,.6g} {name}" for name, value in record["budget"].items())
    found = [f"budget: {ends}", f"seeds: {', '.join(map(str, record['seeds']))}"]
    if record["parameters"] is not None:
        sizes = "; ".join(f"{row['name']}: {row['solved']}" for row in rows)
        found.append(f"parameters: {record['parameters']:,.0f} ({sizes})")
    if len({configs[row["name"]]["data"]["fingerprint"] for row in rows}) == 1:
        found.append("the text and its tokens")
    tables = [settings_of(row) for row in rows if not counted(row)]
    if tables:
        same = [key for key in tables[0] if all(key in table and table[key] == tables[0][key] for table in tables)]
        found += [f"{key} = {tables[0][key]}" for key in same if tables[0][key] is not None]
    return found


def caveats(
    rows: list[dict[str, Any]],
    configs: dict[str, Any],
    results: dict[str, dict[int, dict[str, Any]]],
    costs: dict[str, dict[str, float]],
    record: dict[str, Any],
    failures: Failures,
) -> list[str]:
    """What a reader must know before a difference is believed."""
    found = [f"{name} failed: {reason}" for name, (_, reason) in failures.items()]
    few = [row["name"] for row in rows if len(results[row["name"]]) < len(record["seeds"])]
    if few:
        found.append(f"not all seeds are finished of: {', '.join(few)}")
    if any(len(results[row["name"]]) == 1 for row in rows if not counted(row)):
        found.append("one seed: nothing can be concluded from differences between rows, however large they look")
    if any(each["held_out"]["split"] == "valid" for seeds in results.values() for each in seeds.values()):
        found.append(
            "the text has no test part: rows are measured on the valid part, by which their weights were chosen, too"
        )
    if len({configs[row["name"]]["tokenizer"] for row in rows}) > 1:
        found.append("tokenizers differ: losses a token cannot be compared across them, bits per byte can")
    for name in ("parameters", "tokens", "words"):
        values = {row["name"]: costs[row["name"]][name] for row in rows if name != "parameters" or not counted(row)}
        if values and max(values.values()) > 1.05 * max(min(values.values()), 1e-9):
            shown = ", ".join(f"{row} {value:,.0f}" for row, value in values.items())
            found.append(f"{name} could not be held fixed: {shown}")
    found += [f"{row['name']} counts: its size is the number of n-grams in the text" for row in rows if counted(row)]
    found += [f"{row['name']}: {row['ungrown']}" for row in rows if row.get("ungrown")]
    kinds = {row["name"]: next(iter(results[row["name"]].values()))["definition"] for row in rows}
    if len(set(kinds.values())) > 1:
        told = "; ".join(
            f"{kind}: {', '.join(n for n in kinds if kinds[n] == kind)}" for kind in dict.fromkeys(kinds.values())
        )
        found.append(f"sentences are scored by what each model has learnt: {told}")
    late = [question["name"] for question in record["questions"] if question["late"]]
    if late:
        found.append(
            f"asked when there were results already, so that what stood out may have been asked about: {'; '.join(late)}"
        )
    tables = {row["name"]: settings_of(row) for row in rows if not counted(row)}
    for key in dict.fromkeys(key for table in tables.values() for key in table):
        chosen = {name: table[key] for name, table in tables.items() if key in table}
        if len({json.dumps(value) for value in chosen.values()}) > 1:
            found.append(f"{key} differs: {', '.join(f'{name} {value}' for name, value in chosen.items())}")
    return found


def pareto(points: Mapping[str, tuple[float, float]]) -> list[str]:
    """The names of those that no other one beats in both numbers, by the first of them; less is better."""
    best, found = math.inf, []
    for name, (_, value) in sorted(points.items(), key=lambda each: each[1]):
        if value < best:
            best = value
            found.append(name)
    return found

"""Verify an archive: train one of its rows again, with one of its seeds, and compare the scores.

How far a score may lie from the archived one depends on what is different now (`choose_tolerance`):

equal        the same processor, precision, threads and versions: the same numbers, up to 1e-6 of the value
rounding     another machine, but the same random numbers: sums are rounded otherwise, and training carries that on. Allowed is
             0.5% of the bits (of a perplexity: of its logarithm), or a quarter of the standard deviation between the seeds of the
             row, if that is more. Items that were right and are wrong now, or the reverse, turn in either direction alike: of t
             such items the share of right ones may change by 2.58·√t items, which is 99% of a sign test, with t at least a
             fiftieth and at most 15% of all items
redrawn      random numbers are drawn on the device (dropout), and another kind of device draws other ones; or a task, which
             begins with random weights and few examples; or a budget in minutes. It is another seed of the row: allowed is the
             99% interval of the difference between two seeds, at least what rounding may do and at most 5% of the value

Numbers that chance has no part in (parameters; tokens and operations on the same kind of device) must be equal.
"""

import math
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.batches.subset import subset
from seqloom.charts import note, table
from seqloom.comparison.environment import Environment, current_environment
from seqloom.comparison.folder import built_in_path, plan_path, result_path, subset_path
from seqloom.comparison.job import run_job
from seqloom.comparison.metric import Metric
from seqloom.comparison.pairs import write_pairs
from seqloom.comparison.plan import TextConfig
from seqloom.comparison.plan_text import prepare_options, request_of
from seqloom.comparison.records import (
    HeldOutScores,
    JobResult,
    Number,
    ResolvedPlan,
    Row,
    SuiteRecord,
    TaskRecord,
    read_items,
    read_result,
)
from seqloom.comparison.resume import hash_content
from seqloom.comparison.table import FORMS, INFILLED, MASKED
from seqloom.comparison.text_measure import text_measure
from seqloom.comparison.tuning import tuned
from seqloom.comparison.unpack import Archive, manifest_of
from seqloom.config import unknown_name
from seqloom.cost import cores
from seqloom.errors import DataError, Interrupted, UsageError
from seqloom.files import sha256, write_json
from seqloom.metrics.intervals import VarianceComponent, seed_component
from seqloom.metrics.student_t import student_quantile
from seqloom.models import model_class
from seqloom.progress import say
from seqloom.runs.results import one_line, short
from seqloom.text.built_in import write_built_in_text
from seqloom.text.survey import SPLITS

EQUAL = 1e-6  # of the value
ROUNDING = 0.005  # of the bits
TURNED = (1 / 50, 0.15)  # of all items: how many rounding may turn
LEVEL = 0.99
Z = 2.576  # of the normal distribution, for that level
MOST = 0.05  # of the value: intervals from few seeds hold nearly everything
SAME_DRAWS = (
    "next-token",
    "masked",
    "next-sentence",
    "sentence-order",
    "counts",
)  # objectives that draw nothing on the device

Kind = Literal["equal", "rounding", "redrawn"]


class Score(NamedTuple):
    """One number of the row, archived and now. tolerance: how far they may be apart."""

    name: str
    archived: float
    now: float
    tolerance: float
    why: str  # of the tolerance

    @property
    def difference(self) -> float:
        return self.now - self.archived

    @property
    def inside(self) -> bool:
        return abs(self.difference) <= self.tolerance

    def record(self) -> dict[str, Any]:
        return self._asdict() | {"difference": self.difference, "inside": self.inside}


class Verification(NamedTuple):
    row: str
    seed: int
    archived: Environment | None
    now: Environment
    changed: list[str]  # of the environment
    scores: list[Score]
    unchecked: dict[str, str]  # suites and tasks that were not measured, and why

    @property
    def inside(self) -> bool:
        return all(score.inside for score in self.scores)

    def __repr__(self) -> str:
        words = "as archived" if self.inside else "NOT as archived"
        count = f"{len(self.scores)} score{'s' * (len(self.scores) != 1)}"
        return one_line(f"<verification of {self.row}, seed {self.seed}: {count}, {words}>")

    def _repr_html_(self) -> str:
        names = list(self.scores[0].record()) if self.scores else ["scores"]
        lines = [[short(value) for value in each.record().values()] for each in self.scores]
        return table(names, lines) + "".join(note(f"{name}: {why}") for name, why in self.unchecked.items())

    def record(self) -> dict[str, Any]:
        return {
            "row": self.row, "seed": self.seed, "inside": self.inside,
            "environment": {
                "archived": self.archived and self.archived.model_dump(), "now": self.now.model_dump(),
                "changed": self.changed,
            },
            "scores": [score.record() for score in self.scores], "unchecked": self.unchecked,
        }  # fmt: skip


class Given(NamedTuple):
    """What the user has given: a prepared folder, text files, folders with the files of suites and tasks."""

    data: Path | None = None
    text: Sequence[Path] = ()
    files: Sequence[Path] = ()


def verify(archive: Archive, row: str, seed: int, given: Given = Given(), device: str = "auto") -> Verification:
    """Train one row again and compare its scores with the archived ones."""
    plan = archive.plan
    rows = {each.name: each for each in plan.rows}
    if row not in rows:
        raise UsageError(f"--row: {unknown_name('row', row, row, list(rows))}")
    seeds = archive.found.seeds.get(row, [])
    if seed not in seeds:
        known = ", ".join(map(str, seeds)) or "none"
        raise UsageError(f"--seed {seed}: row {row!r} has no result with this seed (it has: {known})")
    chosen = tuned(archive.folder, plan, rows[row])
    assert chosen is not None, "the archive was checked"
    path = result_path(archive.folder, chosen.place, seed)
    before = read_result(path)
    precision = chosen.recipe.train.precision
    with tempfile.TemporaryDirectory(prefix="seqloom-") as place, archived_threads(before.environment):
        out = Path(place)
        data, texts = find_text(archive, rows[row], given, out)
        suites, tasks, unchecked = find_tests(archive, given, data, texts, out)
        # all rows, of which one is trained: the others say in what context and forms it is measured
        repeated = plan.model_copy(
            update={
                "rows": tuple(each.model_copy(update={"data": str(data)}) for each in plan.rows),
                "seeds": (seed,), "suites": tuple(suites), "tasks": tuple(tasks), "milestones": (), "questions": (),
                "device": device,
            }
        )  # fmt: skip
        write_json(plan_path(out), repeated.record())
        if (archive.folder / "search").exists():
            shutil.copytree(archive.folder / "search", out / "search")
        say(f"{row}, seed {seed}")
        try:
            run_job(out, chosen.place, seed)
        except Interrupted as error:
            raise Interrupted("stopped: nothing is kept of a verification; run the same command again") from error
        now = current_environment(device, precision)
        result, items = read_result(again := result_path(out, chosen.place, seed)), read_items(again)
    changed = ["its environment is not recorded"] if before.environment is None else before.environment.differences(now)
    floors = {name: allowed_share(values, items.get(name)) for name, values in read_items(path).items()}
    scores = list(compare_scores(archive, chosen, before, result, choose_tolerance(plan, chosen, before, now), floors))
    return Verification(row, seed, before.environment, now, changed, scores, unchecked)


@contextmanager
def archived_threads(made: Environment | None) -> Iterator[None]:
    """As many threads as then, where there are so many cores: sums are rounded alike."""
    before = torch.get_num_threads()
    if made is not None and made.device == "cpu" and made.threads <= cores():
        torch.set_num_threads(made.threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


# ---- the text, and the files of suites and tasks


def find_text(archive: Archive, row: Row, given: Given, out: Path) -> tuple[Path, list[Path]]:
    """The prepared text of a row, and the files that it was made from, where they are known. It is the same text, or refused."""
    text, manifest = archive.plan.text, manifest_of(archive.folder, row)
    packed = archive.folder / row.data
    if given.data is not None:
        return checked_text(part_of(given.data, text, row, out), row), []
    if (packed / "tokenizer.json").exists():  # it was packed as prepared
        return checked_text(packed, row), []
    if text.prepared is not None:
        whole = archive.folder / "data" / text.prepared
        if (whole / "tokenizer.json").exists():
            return checked_text(part_of(whole, text, row, out), row), []
        raise UsageError(
            f"row {row.name!r} learnt from prepared text ({text.prepared}), which is not packed: give it by --data"
        )
    if text.built_in and not given.text and not packed_file(archive, manifest.sources[0].sha256):
        path = built_in_path(out)
        path.parent.mkdir(parents=True)
        write_built_in_text(path)
        if sha256(path) != manifest.sources[0].sha256:
            raise DataError(
                "the built-in text is that of this Python, and the archive was made with another one: pack it with --with-text, "
                "or give the file data/built-in.jsonl of that comparison by --text"
            )
        files = [path]
    else:
        files = [source_file(archive, source.name, source.sha256, given.text) for source in manifest.sources]
    place = out / "data" / Path(row.data).name.partition(".")[0]  # the whole text, of which rows may have learnt a part
    kind, _, size = place.name.partition("-")
    options = prepare_options(text, files)
    prepare(files, place, tokenizer=kind, vocab_size=int(size) if size.isdecimal() else None, **options)
    return checked_text(part_of(place, text, row, out), row), files


def part_of(place: Path, text: TextConfig, row: Row, out: Path) -> Path:
    """What rows learnt from: the text itself, or so many words of it."""
    if text.words is None or Store.open(place).manifest.fingerprint == row.fingerprint:
        return place
    part = subset_path(out, place, text.words)
    part.parent.mkdir(exist_ok=True)
    subset(place, text.words, part)
    return part


def checked_text(folder: Path, row: Row) -> Path:
    found = Store.open(folder, verify=True).manifest.fingerprint
    if found != row.fingerprint:
        raise DataError(
            f"{folder} is another text than the one that row {row.name!r} learnt from (fingerprint {found[:12]}…, archived "
            f"{row.fingerprint[:12]}…): give the files that it was made from by --text, or the prepared folder by --data"
        )
    return folder.resolve()


def packed_file(archive: Archive, digest: str) -> Path | None:
    return next((archive.folder / "files" / digest).glob("*"), None)


def source_file(archive: Archive, name: str, digest: str, given: Sequence[Path]) -> Path:
    found = packed_file(archive, digest)
    if found is not None:
        return found
    if not given:
        raise UsageError(
            f"the text ({name}) is not in the archive: give its files by --text, or the prepared folder by --data"
        )
    same = next((path for path in given if path.is_file() and sha256(path) == digest), None)
    if same is None:
        missing = next((path for path in given if not path.is_file()), None)
        if missing is not None:
            raise UsageError(f"--text {missing}: no such file")
        raise DataError(f"--text: no file has the content of {name} that was learnt from (SHA-256 {digest[:12]}…)")
    return same


def find_tests(
    archive: Archive, given: Given, data: Path, texts: list[Path], out: Path
) -> tuple[list[SuiteRecord], list[TaskRecord], dict[str, str]]:
    """Suites and tasks with the files that they need, and why others cannot be measured."""
    suites, tasks, unchecked = [], [], {}
    lacking = "its files are neither in the archive nor, with the same content, in a folder given by --files"
    for suite in archive.plan.suites:
        path = (
            make_pairs(archive, suite, data, texts, out)
            if suite.name == "pairs"
            else found_file(archive, suite.data, suite.content, given.files)
        )
        if path is None:
            unchecked[suite.name] = (
                "made from this text they are other pairs: give --text" if suite.name == "pairs" else lacking
            )
        else:
            suites.append(suite.model_copy(update={"data": str(path)}))
    for task in archive.plan.tasks:
        files = {
            split: [
                found_file(archive, name, digest, given.files)
                for name, digest in zip(getattr(task, split), task.content[split], strict=True)
            ]
            for split in SPLITS
        }
        if any(path is None for paths in files.values() for path in paths):
            unchecked[task.name] = lacking
        else:
            tasks.append(task.model_copy(update={split: tuple(map(str, paths)) for split, paths in files.items()}))
    return suites, tasks, unchecked


def make_pairs(archive: Archive, suite: SuiteRecord, data: Path, texts: list[Path], out: Path) -> Path | None:
    """The same minimal pairs again; None where they are others."""
    text, number = archive.plan.text, suite.data.removeprefix("pairs-").removesuffix(".jsonl")
    path = out / "pairs.jsonl"
    write_pairs(request_of(text, texts) if texts else data, path, int(number) if number.isdecimal() else 0)
    return path if sha256(path) == archive.manifest.pairs else None


def found_file(archive: Archive, name: str, digest: str, places: Sequence[Path]) -> Path | None:
    """A file or folder with this content: packed, or below one of these places under the same name."""
    packed = packed_file(archive, digest)
    if packed is not None:
        return packed if hash_content(packed) == digest else None
    for place in places:
        if not place.exists():
            raise UsageError(f"--files {place}: no such file or folder")
        for path in (place, *place.rglob("*")):
            if path.name == name and hash_content(path) == digest:
                return path.resolve()
    return None


# ---- scores


def choose_tolerance(plan: ResolvedPlan, row: Row, before: JobResult, now: Environment) -> Kind:
    made = before.environment
    if "minutes" in plan.budget:
        return "redrawn"
    if made is not None and not made.differences(now) and (now.device == "cpu" or plan.deterministic):
        return "equal"
    same_device = made is not None and made.device == now.device
    return "rounding" if same_device or row.is_count_based or not draws_on_device(row) else "redrawn"


def draws_on_device(row: Row) -> bool:
    """Whether training draws random numbers there: weights, batches and masked tokens are drawn on the host."""
    model = row.recipe.model
    config: Any = getattr(model_class(model["name"]), "Config", None)
    defaults = {} if config is None else {name: field.default for name, field in config.model_fields.items()}
    settings = defaults | model
    drops = [value for name, value in settings.items() if "drop" in name and isinstance(value, int | float)]
    return any(value > 0 for value in drops) or row.objective["name"] not in SAME_DRAWS


def compare_scores(
    archive: Archive, row: Row, before: JobResult, now: JobResult, kind: Kind, floors: dict[str, float]
) -> Iterator[Score]:
    """floors: what rounding may change in the scores of suites."""
    metrics = {metric.name: metric for metric in archive.found.metrics if row.name in metric.values}
    yield Score("parameters", before.metrics.parameters, now.metrics.parameters, 0.0, "equal")
    if kind == "equal":
        yield Score("tokens", before.metrics.tokens, now.metrics.tokens, 0.0, "equal")
        yield Score("flops", before.metrics.flops, now.metrics.flops, 0.0, "equal")
    measure = text_measure([before.held_out])
    columns: list[tuple[str, HeldOutScores, HeldOutScores]] = [(measure.name, before.held_out, now.held_out)]
    if before.common is not None and now.common is not None:
        columns.append((measure.at(before.common.tokens_of_context), before.common, now.common))
    for name, *both in columns:
        value, value_now = map(measure.of, both)
        if value is not None:
            yield score_of(name, value, value_now, kind, seed_spread(metrics.get(name), row), ROUNDING * value)
    found, found_now = (dict(perplexities(each.held_out)) for each in (before, now))
    for name, value in found.items():
        metric = next((each for title, each in metrics.items() if title.startswith(name)), None)
        floor = value * (math.exp(ROUNDING * math.log(max(value, 1.0))) - 1)
        yield score_of(name, value, found_now.get(name), kind, seed_spread(metric, row), floor)
    for name, suite in now.suites.items():
        score = before.suites[name].main if name in before.suites else None
        if score is not None:
            yield score_of(name, score, suite.main, kind, seed_spread(metrics.get(name), row), floors.get(name, 0.0))
    for name, task in now.tasks.items():
        score = before.tasks[name].score if name in before.tasks else None
        if score is not None:
            # few examples and random first weights: whatever is rounded otherwise leads elsewhere
            drawn: Kind = "equal" if kind == "equal" else "redrawn"
            yield score_of(name, score, task.score, drawn, seed_spread(metrics.get(name), row), ROUNDING * abs(score))


def perplexities(scores: HeldOutScores) -> Iterator[tuple[str, Number]]:
    """Those of rows that are not measured left to right."""
    if scores.masked_perplexity is not None:
        yield MASKED, scores.masked_perplexity
    for form, value in scores.masked_perplexity_by_form.items():
        if form != "single":
            yield MASKED + FORMS[form], value
    if scores.infilled_perplexity is not None:
        yield INFILLED, scores.infilled_perplexity


def allowed_share(before: np.ndarray, now: np.ndarray | None) -> float:
    """How far the share of right items may change by those that rounding turns."""
    turned = 0 if now is None or len(now) != len(before) else int((np.abs(now - before) > 0.5).sum())
    fewest, most = (share * len(before) for share in TURNED)
    return Z * math.sqrt(min(max(turned, fewest), most)) / max(len(before), 1)


def seed_spread(metric: Metric | None, row: Row) -> VarianceComponent | None:
    """The variance of a single seed's score, pooled over rows where they vary alike; None where it is not known."""
    if metric is None:
        return None
    sample = metric.pooled_sample(row.name, by_item=True)
    found = seed_component(sample)
    if not math.isfinite(found.variance) or found.df <= 0:
        return None
    return VarianceComponent(found.variance * len(sample.replicates), found.df)


def score_of(
    name: str, archived: float, now: float | None, kind: Kind, spread: VarianceComponent | None, floor: float
) -> Score:
    """floor: what rounding may change."""
    value = math.nan if now is None else float(now)  # of another model it may be missing: outside
    if kind == "equal":
        return Score(name, archived, value, EQUAL * abs(archived), "the same environment: equal up to 1e-6")
    deviation = math.sqrt(spread.variance) if spread is not None else 0.0
    tolerance, why = floor, "rounding"
    if 0.25 * deviation > tolerance:
        tolerance, why = 0.25 * deviation, "rounding: a quarter of the deviation between seeds"
    if kind == "redrawn":
        most = MOST * abs(archived)
        between = most if spread is None else student_quantile(spread.df, 1 - LEVEL) * math.sqrt(2) * deviation
        if between > tolerance:
            tolerance = max(min(between, most), tolerance)
            why = "another seed: 99% interval of the difference" if between <= most else "another seed: at most 5%"
    return Score(name, archived, value, tolerance, why)


# ---- in words


def as_text(found: Verification) -> str:
    head = ["", "archived", "now", "difference", "tolerance", "", ""]
    rows = [
        [
            each.name, f"{each.archived:.6g}", f"{each.now:.6g}", f"{each.difference:+.2g}", f"{each.tolerance:.2g}",
            "inside" if each.inside else "OUTSIDE", each.why,
        ]
        for each in found.scores
    ]  # fmt: skip
    widths = [max(len(row[i]) for row in (head, *rows)) for i in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if i in (0, 5, 6) else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in (head, *rows)
    ]
    made = [f"archived: {found.archived or 'environment not recorded'}", f"now: {found.now}"]
    unchecked = [f"not checked: {name}: {why}" for name, why in found.unchecked.items()]
    return "\n".join([f"{found.row}, seed {found.seed}", *made, "", *lines, *unchecked])

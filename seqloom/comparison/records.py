"""What a comparison writes and reads again: the resolved plan (plan.json) and the result of every job (results/ROW/seed-N.json).

Records that are read again keep keys that they do not know: other versions may have written them.
"""

import math
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pydantic import ConfigDict

from seqloom.batch import Objective
from seqloom.comparison.environment import Environment
from seqloom.comparison.folder import items_path, plan_path
from seqloom.comparison.plan import JointConfig, PriceConfig, QuestionConfig, TaskConfig, TextConfig
from seqloom.comparison.search import Range, parse_range
from seqloom.config import Config, flatten, problems
from seqloom.errors import ModelError
from seqloom.files import read_json, read_record
from seqloom.migrations import COMPARISON, RESULT
from seqloom.objectives import objective_class
from seqloom.recipes.schema import Recipe
from seqloom.runs.folder import plain
from seqloom.text.survey import SPLITS

Number = int | float  # written again as it was read
PLACES = ("data", *SPLITS)  # where the files of suites and tasks lie; what they hold is their `content`
C = TypeVar("C", bound=Config)


def parse(cls: type[C], values: object) -> C:
    """One line with everything that is wrong, as a ValueError."""
    found = problems(cls, values)
    if found:
        raise ValueError("; ".join(found))
    return cls.model_validate(values)


def read_as(cls: type[C], path: Path, remedy: str) -> C:
    values = read_record(path, remedy)
    try:
        return parse(cls, values)
    except ValueError as error:
        raise ModelError(f"{path} is damaged ({str(error)[:200]}): {remedy}") from error


class Open(Config):
    """Unknown keys are kept."""

    model_config = ConfigDict(extra="allow")


# ---- plan.json


class Row(Config):
    """One model of the comparison, completely decided but for its seed."""

    name: str
    recipe: Recipe
    data: str  # the prepared folder
    fingerprint: str  # of the prepared text
    solved: str = ""  # what its size was solved for, in words
    ungrown: str = ""  # the widths that were not scaled with it, in words
    place: str
    search: dict[str, tuple[Any, ...]] = {}  # noqa: RUF012  # the ranges of its settings; none: it is not searched for
    narrowed: str = ""  # what is narrower than in the plan, in words
    joint: JointConfig | None = None  # all tasks are learnt on one body

    @property
    def ranges(self) -> dict[str, Range]:
        return {name: parse_range(name, given) for name, given in self.search.items()}

    @property
    def objective(self) -> dict[str, Any]:
        """Its name and settings: rows learn from plain text."""
        assert self.recipe.objective is not None
        return self.recipe.objective

    @property
    def objective_class(self) -> type[Objective]:
        return objective_class(self.objective["name"])

    @property
    def is_count_based(self) -> bool:
        return self.recipe.count_based


class SearchRecord(Config):
    """How settings are searched for; the ranges are those of the rows."""

    method: str
    trials: int
    budget: float
    seed: int
    settings: tuple[str, ...]  # their names, in the order of the plan
    finalists: int = 0  # trials that are run again with the whole budget; earlier versions had none


class SuiteRecord(Config):
    name: str
    suite: str  # the kind of suite: pairs are scored as BLiMP is
    data: str
    content: str  # a hash of its files


class TaskRecord(TaskConfig):
    name: str
    place: str
    content: dict[str, tuple[str, ...]]  # hashes of its files


class QuestionRecord(QuestionConfig):
    late: bool  # there were results when it was first asked


class ResolvedPlan(Config):
    """plan.json: rows with complete recipes, and where everything is. It is all that a job needs."""

    format: int = COMPARISON.number
    needs: str = COMPARISON.since[-1]
    name: str
    text: TextConfig
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    budget: dict[str, float]
    parameters: float | None
    widths_together: bool
    settings: tuple[str, ...]
    search: SearchRecord | None = None
    suites: tuple[SuiteRecord, ...]
    milestones: tuple[str, ...]
    tasks: tuple[TaskRecord, ...]
    questions: tuple[QuestionRecord, ...]
    price: PriceConfig | None
    prompt: str
    device: str
    deterministic: bool
    shared: str | None = None  # where the runs of a ladder share their start
    versions: dict[str, str | None]

    def record(self) -> dict[str, Any]:
        return plain(self.model_dump())


def read_plan_record(out: Path) -> ResolvedPlan:
    return read_as(ResolvedPlan, plan_path(out), "rerun the comparison, which writes it again")


# ---- plan.json of an earlier call, perhaps of an earlier version


class Described(Open):
    """A row, suite or task by its name and whatever was decided about it."""

    name: str

    def flat_settings(self) -> dict[str, object]:
        """By their dotted paths, except where files lie: a comparison may have been moved."""
        return flatten({key: value for key, value in self.model_dump().items() if key not in PLACES})


class EarlierTask(Described):
    place: str


class EarlierQuestion(Open):
    rows: tuple[str, ...]
    late: bool


class EarlierPlan(Open):
    """widths_together: sizes were solved by scaling all widths; earlier versions scaled dim alone and did not say so."""

    tasks: tuple[EarlierTask, ...]
    questions: tuple[EarlierQuestion, ...] = ()
    widths_together: object = None


NO_EARLIER_PLAN = EarlierPlan(tasks=(), widths_together=True)


# ---- results of jobs


class MeasuredBy(Open):
    """The suites and tasks by which a row was measured, or is to be, and how it was asked about held-out text."""

    suites: tuple[Described, ...] = ()
    tasks: tuple[Described, ...] = ()
    milestones: tuple[str, ...] = ()
    text: tuple[str, ...] | None = (
        None  # the common context or the forms of passages; None: an earlier version did not say
    )
    joint: dict[str, Any] | None = None  # how all tasks were learnt on one body, if they were

    @classmethod
    def of(
        cls, plan: ResolvedPlan, text: tuple[str, ...] | None = None, joint: JointConfig | None = None
    ) -> "MeasuredBy":
        asked = plain(plan.model_dump(include={"suites", "tasks", "milestones"})) | {"text": text}
        return cls.model_validate(asked | {"joint": None if joint is None else plain(joint.model_dump())})

    def lacks(self, wanted: "MeasuredBy") -> bool:
        """Whether the row must be measured again. What an earlier version did not measure is missing from the table instead: the
        weights may be gone by now."""
        added = self.text is not None and set(wanted.text or ()) - set(self.text)
        return bool(wanted.names() - self.names() or added)

    def names(self) -> set[tuple[str, str]]:
        """What is measured: kinds and names."""
        found = {("suites", each.name) for each in self.suites} | {("tasks", each.name) for each in self.tasks}
        return found | {("milestones", suite) for suite in self.milestones}


class RunMetrics(Open):
    """Of metrics.json what a comparison needs."""

    parameters: Number
    tokens: Number
    words: Number
    epochs: Number
    flops: Number
    seconds: Number
    energy_kwh: Number
    energy_method: str
    device_seconds: Number | None = None  # its share of the device; earlier versions did not measure it
    valid_loss: Number | None = None

    def costs(self) -> dict[str, float]:
        return {name: getattr(self, name) for name in COSTS}


class TrialCosts(Open):
    """What a trial has cost; of one that broke off what it had used by then."""

    tokens: Number = 0
    flops: Number = 0
    seconds: Number = 0
    energy_kwh: Number = 0
    device_seconds: Number | None = None


COSTS = ("parameters", "tokens", "words", "flops", "seconds", "energy_kwh")


class HeldOutScores(Open):
    """Bits per byte of left-to-right rows, on songs nats per event; of masked ones the masked perplexity of single passages, and
    that of other forms."""

    split: str
    bits_per_byte: Number | None = None
    nats_per_event: Number | None = None
    masked_perplexity: Number | None = None
    masked_perplexity_by_form: dict[str, Number] = {}  # noqa: RUF012
    infilled_perplexity: Number | None = None


class CommonScores(HeldOutScores):
    """tokens_of_context: the same for all left-to-right rows."""

    tokens_of_context: int


DOCUMENTS, COMMON = "documents", "common_documents"  # the items of the two; no suite has such a name


class SuiteScores(Open):
    """Scores, or why there are none."""

    refused: str | None = None
    accuracy: Number | None = None
    spearman: Number | None = None
    by_phenomenon: dict[str, Number] | None = None
    by_attractors: dict[str, Number] | None = None
    by_section: dict[str, Number] | None = None

    @property
    def main(self) -> Number | None:
        """The mean of its items: an accuracy, or of similarity a correlation."""
        return self.spearman if self.accuracy is None else self.accuracy

    @property
    def by_category(self) -> dict[str, Number] | None:
        """Of BLiMP and pairs by phenomenon, of agreement by the number of attractors, of analogies by section."""
        return self.by_phenomenon or self.by_attractors or self.by_section


class TaskScores(Open):
    """Scores, or why there are none."""

    refused: str | None = None
    score: Number | None = None


class MilestoneScores(Open):
    words: Number
    suites: dict[str, Number | None]


class JobResult(Open):
    """Of one row and seed. held_out: at its own context; common: at that of all left-to-right rows, if theirs differ. items: the
    hash of the scores of single items; whole: that of this record. Earlier versions wrote none of the last three, nor what the
    row was measured by, nor where."""

    metrics: RunMetrics
    held_out: HeldOutScores
    common: CommonScores | None = None
    definition: str  # of the score of a sentence
    suites: dict[str, SuiteScores]
    milestones: tuple[MilestoneScores, ...]
    tasks: dict[str, TaskScores]
    sample: str
    by: MeasuredBy = MeasuredBy()
    environment: Environment | None = None
    items: str | None = None
    whole: str | None = None

    def record(self) -> dict[str, Any]:
        """With the keys that it was given, and no others."""
        return plain(self.model_dump(exclude_unset=True))

    @property
    def scores_by_items(self) -> dict[str, HeldOutScores]:
        """The scores of held-out text, by the name of their items."""
        return {DOCUMENTS: self.held_out} | ({COMMON: self.common} if self.common is not None else {})


def read_result(path: Path) -> JobResult:
    return parse(JobResult, RESULT.migrate(read_json(path), path))


def read_items(result: Path) -> dict[str, np.ndarray]:
    with np.load(items_path(result)) as arrays:
        return dict(arrays)


class TrialResult(Open):
    """Of one trial. valid_loss: the lowest; None where the training broke off because its numbers were not finite. recipe and
    fingerprint: what was trained on what, so that a plan that has changed does not take it for its own."""

    settings: dict[str, str | bool | int | float]
    valid_loss: Number | None
    failed: str = ""
    metrics: TrialCosts
    recipe: dict[str, Any]
    fingerprint: str
    whole: str | None = None

    @property
    def score(self) -> float:
        """Lower is better."""
        return math.inf if self.valid_loss is None else float(self.valid_loss)


class RunData(Open):
    fingerprint: str


class RunRecord(Open):
    """Of a run's config.json what a comparison needs."""

    tokenizer: str  # its hash
    data: RunData
    versions: dict[str, str | None]

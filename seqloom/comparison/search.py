"""Searching for settings: what a plan says about it, and the trials that follow from that.

    [search]
    trials = 8                                          # of every row
    budget = 0.25                                       # of a trial, as a share of a run's
    method = "random"                                   # or "quasirandom", "grid", "halving"
    settings = {train.optim.lr = [1e-4, 3e-3, "log"], model.dropout = [0.0, 0.1, 0.2]}

A setting has a range, which is [lowest, highest, scale] with the scale "log", "linear" or "whole", or a list of values. All rows
have the same trials: trial i takes the same place in every range, whatever row it is of and however many trials there are. A row
may narrow a range (`search = {train.optim.lr = [3e-4, 1e-3, "log"]}`), or leave a setting out (`= false`).

The settings of a row are those of the trial with the lowest validation loss. Neither the test split nor a suite is opened for a
trial (`job.run_trial`). quasirandom: places are spread evenly over the ranges (Halton, 1960, shifted by a random number for
each setting), so that few trials leave no gap; but they are not independent, and there is no expected best of fewer trials.
halving (Jamieson & Talwalkar, 2016): all trials have a short run; the better half are run again with twice the budget, and so
on, and only the last have the whole budget of a trial.

finalists: so many of the best trials are run again with the whole budget of a run, and these decide. What is best for a quarter
of a run may break a whole one: a rate at the edge of what is stable is the best of all while the run is short.
"""

import itertools
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field, model_validator

from seqloom.config import Config, flatten
from seqloom.errors import UsageError
from seqloom.randomness import derive_seed
from seqloom.recipes.schema import Recipe, build_recipe

TRIALS = 8  # unless a plan says otherwise
MOST_TRIALS = 1000
FIRST_SEED = 1_000_000  # of trials: seeds of results are smaller, so that no result has the luck of a chosen trial
DIGITS = 3  # of a drawn number: more would not be read
PRIMES = (2, 3, 5, 7, 11, 13)  # bases of the settings of a quasirandom search; larger ones are not spread evenly
SCALES = ("log", "linear", "whole")
Value = str | bool | int | float

# what the validation loss is measured by: trials that differ in it have losses that cannot be compared
MEASURES = ("objective", "objectives", "task", "tasks", "valid", "batches.length", "batches.kind")
FIXED = ("budget", "name", "model.name", "train.milestones", "train.watch")


class Range(NamedTuple):
    """Where the values of one setting come from: between two ends, or out of a list."""

    values: tuple[Value, ...]
    scale: str = ""  # empty for a list

    def at(self, place: float) -> Value:
        """The value at a place in [0, 1)."""
        if not self.scale:
            return self.values[min(int(place * len(self.values)), len(self.values) - 1)]
        low, high = (float(end) for end in self.values)
        if self.scale == "whole":
            return int(low) + min(int(place * (high - low + 1)), int(high - low))
        value = low * (high / low) ** place if self.scale == "log" else low + (high - low) * place
        return min(max(float(f"{value:.{DIGITS}g}"), low), high)

    def contains(self, other: "Range") -> bool:
        if not self.scale:
            return not other.scale and set(other.values) <= set(self.values)
        low, high = (float(end) for end in self.values)
        return all(is_number(value) and low <= float(value) <= high for value in other.values)

    def edge(self, value: Value, tried: Sequence[Value]) -> str:
        """ "lowest" or "highest" where a value is the first or last of several that were tried; else empty."""
        several = sorted({float(each) for each in tried if is_number(each)})
        if not is_number(value) or len(several) < 3:
            return ""
        return {several[0]: "lowest", several[-1]: "highest"}.get(float(value), "")

    def __str__(self) -> str:
        if not self.scale:
            return ", ".join(map(str, self.values))
        return f"{self.values[0]:g} to {self.values[1]:g} ({self.scale})"


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def parse_range(name: str, given: object) -> Range:
    """Raises ValueError."""
    if not isinstance(given, list | tuple) or not given:
        raise ValueError(f"{name}: give [lowest, highest, scale] or a list of values, not {given!r}")
    for value in given:
        if not isinstance(value, str | bool | int | float) or (isinstance(value, float) and not math.isfinite(value)):
            raise ValueError(f"{name}: {value!r} is no value of a setting")
    if given[-1] not in SCALES:
        if len(set(map(str, given))) < len(given):
            raise ValueError(f"{name}: a value is there twice: {', '.join(map(str, given))}")
        return Range(tuple(given))
    *ends, scale = given
    if len(ends) != 2 or not all(map(is_number, ends)):
        raise ValueError(f'{name}: a range is [lowest, highest, "{scale}"] with two numbers')
    if ends[0] >= ends[1]:
        raise ValueError(
            f"{name}: the range from {ends[0]:g} to {ends[1]:g} is {'empty' if ends[0] == ends[1] else 'reversed'}"
        )
    if scale == "log" and ends[0] <= 0:
        raise ValueError(f"{name}: a logarithmic range has no {ends[0]:g}: begin it above 0")
    if scale == "whole" and any(end != int(end) for end in ends):
        raise ValueError(f"{name}: a range of whole numbers ends with whole numbers")
    return Range(tuple(ends), scale)


class SearchConfig(Config):
    settings: dict[str, Any] = Field(
        min_length=1,
        description="Ranges of the settings: [lowest, highest, scale] with the scale log, linear or whole, or a list of values.",
    )
    trials: int | None = Field(
        None,
        ge=2,
        le=MOST_TRIALS,
        description="Trials of each row: 8 unless given; a grid has as many as it has points.",
    )
    budget: float = Field(0.25, gt=0, le=1, description="Budget of a trial as a share of a run's.")
    method: Literal["random", "quasirandom", "grid", "halving"] = Field("random", description="How trials are chosen.")
    finalists: int = Field(
        0,
        ge=0,
        description="How many of the best trials of each row are run again with the whole budget, to choose among them; 0: none.",
    )
    seed: int = Field(0, ge=0, description="Seed of the trials.")

    @model_validator(mode="after")
    def makes_sense(self) -> "SearchConfig":
        found = []
        ranges: dict[str, Range] = {}
        for name, given in flatten(self.settings).items():
            try:
                ranges[name] = parse_range(name, given)
            except ValueError as error:
                found.append(str(error))
        if self.method == "grid":
            found += [
                f'{name}: a grid has lists of values: write them out, or use method = "random"'
                for name, each in ranges.items()
                if each.scale
            ]
            points = self.num_trials(ranges)
            if points > MOST_TRIALS:
                found.append(f"a grid of {points:,} points is more than {MOST_TRIALS:,} trials: leave values out")
            if self.trials not in (None, points):
                found.append(f"trials = {self.trials}, but the grid has {points} points: leave trials out")
        last = rungs(self.method, self.num_trials(ranges), self.budget)[-1]
        if self.finalists and self.budget == 1:
            found.append("finalists: trials with budget = 1 have the whole budget already: leave finalists out")
        elif self.finalists and not 2 <= self.finalists <= last.size:
            found.append(f"finalists = {self.finalists}: choose 2 to {last.size}, the trials that there are by then")
        if self.method == "quasirandom" and len(flatten(self.settings)) > len(PRIMES):
            found.append(f'a quasirandom search has at most {len(PRIMES)} settings: use method = "random"')
        if found:
            raise ValueError("; ".join(found))
        return self

    def ranges(self) -> dict[str, Range]:
        return {name: parse_range(name, given) for name, given in flatten(self.settings).items()}

    def num_trials(self, ranges: Mapping[str, Range]) -> int:
        """Of a row, before any is run again."""
        if self.method == "grid":
            return math.prod(len(each.values) for each in ranges.values())
        return self.trials or TRIALS


class Trial(NamedTuple):
    """One set of settings, trained once. rung: how often it was among the best, and run again with a larger budget."""

    number: int
    rung: int = 0

    @classmethod
    def parse(cls, name: str) -> "Trial":
        number, _, rung = name.removeprefix("trial-").partition("-rung-")
        return cls(int(number), int(rung or 0))

    @property
    def name(self) -> str:
        return f"trial-{self.number}" + (f"-rung-{self.rung}" if self.rung else "")

    @property
    def seed(self) -> int:
        return FIRST_SEED + self.number

    def __str__(self) -> str:
        return self.name.replace("-", " ")


def row_ranges(search: SearchConfig, narrowed: Mapping[str, Any]) -> dict[str, Range]:
    """The ranges of a row. Raises ValueError where it does not narrow those of the plan."""
    ranges, found = search.ranges(), []
    for name, given in flatten(narrowed).items():
        if name not in ranges:
            found.append(f"{name} is not searched in this plan (it has: {', '.join(ranges)})")
        elif given is False:
            del ranges[name]
        else:
            try:
                own = parse_range(name, given)
            except ValueError as error:
                found.append(str(error))
                continue
            if not ranges[name].contains(own):
                found.append(f"{name}: {own} is not within the plan's range, {ranges[name]}")
            ranges[name] = own
    if found:
        raise ValueError("; ".join(found))
    return ranges


def conflicts(name: str, settings: Sequence[str], solved: bool) -> str:
    """Why a setting cannot be searched for; empty where it can. settings: those that the plan and the row hold fixed; solved:
    the plan solves for sizes."""
    for assignment in settings:
        fixed = assignment.partition("=")[0].strip()
        if fixed == name or fixed.startswith(f"{name}.") or name.startswith(f"{fixed}."):
            return f"{name} is searched, and held fixed by settings ({assignment}): leave one of them out"
    if any(name == place or name.startswith(f"{place}.") for place in MEASURES):
        return f"{name} decides what the validation loss means, so that trials could not be compared: make rows of it"
    if any(name == place or name.startswith(f"{place}.") for place in FIXED):
        return f"{name} is held fixed by the plan: it cannot be searched"
    sizes = ("dim", "num_heads", "num_layers", "embedding_dim", "proj_dim", "ffn_dim", "head_dim")
    if solved and name in {f"model.{size}" for size in sizes}:
        return f"{name} is a size, and the plan solves for sizes: leave it out of the search"
    return ""


# ---- trials


class Rung(NamedTuple):
    """Trials with one budget. size: how many of a row; share: their budget, as a share of a run's."""

    size: int
    share: float


def rungs(method: str, trials: int, share: float, finalists: int = 0) -> list[Rung]:
    """From the first trials to those that decide: each has the best of the one before. Halving leaves two trials for its last."""
    count = max(int(math.log2(trials)), 1) if method == "halving" else 1
    found = [Rung(max(trials >> i, 1), share / 2 ** (count - 1 - i)) for i in range(count)]
    return [*found, Rung(finalists, 1.0)] if finalists else found


def draw(
    ranges: Mapping[str, Range], method: str, seed: int, number: int, order: Sequence[str] = ()
) -> dict[str, Value]:
    """The settings of a trial. order: of all settings that the plan searches for."""
    if method == "grid":
        points = itertools.product(*(each.values for each in ranges.values()))
        return dict(zip(ranges, next(itertools.islice(points, number, None)), strict=True))
    places = {}
    for name in ranges:
        key = zlib.crc32(name.encode())
        if method == "quasirandom":
            places[name] = (radical_inverse(number, PRIMES[order.index(name)]) + derive_seed(seed, key) / 2**63) % 1
        else:
            places[name] = derive_seed(seed, number, key) / 2**63
    return {name: each.at(places[name]) for name, each in ranges.items()}


def radical_inverse(number: int, base: int) -> float:
    """The digits of a number, mirrored at the point: 0, 1/2, 1/4, 3/4, 1/8 … with base 2."""
    found, scale = 0.0, 1.0 / base
    while number:
        number, digit = divmod(number, base)
        found, scale = found + digit * scale, scale / base
    return found


def with_values(recipe: Recipe, settings: Mapping[str, Value], share: float, source: str) -> Recipe:
    """A recipe with the settings of a trial, and a share of its budget."""
    values = recipe.plain()
    for name, value in settings.items():
        *path, last = name.split(".")
        place = values
        for key in path:
            if not isinstance(place.get(key), dict):
                raise UsageError(f"{source}: it has no setting {name}")
            place = place[key]
        place[last] = value
    ends = recipe.budget.model_dump(exclude_none=True)
    values["budget"] = {end: max(round(share * n), 1) if end == "steps" else share * n for end, n in ends.items()}
    return build_recipe(values, source)


def illegal_values(recipe: Recipe, ranges: Mapping[str, Range], source: str) -> Iterator[str]:
    """Values that the recipe does not take: the ends of ranges, and every value of a list."""
    for name, each in ranges.items():
        wrong = []
        for value in each.values:
            try:
                with_values(recipe, {name: value}, 1.0, source)
            except UsageError as error:
                wrong.append(f"{error}".removeprefix(f"{source}: "))
        if len(wrong) == len(each.values):
            yield f"no value of {name} ({each}) is possible here ({wrong[0]}): search = {{{name} = false}} leaves it out"
        elif wrong:
            yield f"{name}: {wrong[0]}"

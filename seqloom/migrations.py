"""Versions of the files that seqloom writes, and how older ones are read.

Every record says its `format`, and by `needs` the first seqloom that reads it. Where it is read, `migrate` takes an older one
through the migrations up to today's form, in memory: reading never rewrites a file. A newer one is refused with the version
that is needed.

To change a format: append the version of seqloom that brings it, and a function from the record before to the record after.
The function is pure, and stays as long as the project: folders of every release are read.
"""

import copy
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from seqloom import __version__
from seqloom.errors import DataError, ModelError, SeqloomError

Record = dict[str, Any]
VERSION = re.compile(r"\d{1,4}(\.\d{1,4}){1,2}([a-z]{1,4}\d{1,4})?")


class NewerFormat(ModelError):
    """A newer seqloom has written it: nothing is damaged, and nothing may be done about it here."""


class Format(NamedTuple):
    """One kind of record. Format n came with `since[n - 1]`; `steps[n - 1]` makes n + 1 of it."""

    since: tuple[str, ...]
    steps: tuple[Callable[[Record], Record], ...]
    unstamped: int | None = None  # what a record is that does not say its format
    newer: type[SeqloomError] = NewerFormat

    @property
    def number(self) -> int:
        return len(self.since)

    def stamp(self) -> Record:
        """What every new record of this kind says about itself."""
        return {"format": self.number, "needs": self.since[-1]}

    def number_of(self, record: Record, where: object) -> int:
        """The format of a record that can be read here. where: the file that it stands in. What has no format is damaged, a
        ValueError: whoever reads it knows what to do about that."""
        if not isinstance(record, dict):
            raise ValueError("no JSON object")
        found = record.get("format", self.unstamped)
        if type(found) is not int or found < 1:
            raise ValueError(f"its format is {found!r}, not a number from 1 to {self.number}")
        if found > self.number:
            needs = record.get("needs")
            wanted = (
                f"seqloom {needs} or later"
                if isinstance(needs, str) and VERSION.fullmatch(needs)
                else "a newer seqloom"
            )
            raise self.newer(
                f"{where} has format {found}, and seqloom {__version__} reads formats up to {self.number}: "
                f"{wanted} is needed"
            )
        return found

    def migrate(self, record: Record, where: object) -> Record:
        """The record as today's seqloom writes it."""
        found = self.number_of(record, where)
        if found == self.number:
            return record
        record = copy.deepcopy(record)  # a careless step harms nobody's record
        for step in self.steps[found - 1 :]:
            record = step(record)
        return record | self.stamp()


def recipe_2(recipe: Record) -> Record:
    """A recipe of 0.1 as one of 0.2: what is learnt is a list. Renamed keys go here: whatever holds a recipe comes through."""
    changed = {key: value for key, value in recipe.items() if key not in ("objective", "task")}
    for one, several in (("objective", "objectives"), ("task", "tasks")):
        changed.setdefault(several, [recipe[one]] if recipe.get(one) is not None else [])
    return changed


def run_2(config: Record) -> Record:
    return config | {"recipe": recipe_2(config["recipe"])}


def comparison_2(plan: Record) -> Record:
    return plan | {"rows": [row | {"recipe": recipe_2(row["recipe"])} for row in plan["rows"]]}


def unchanged(record: Record) -> Record:
    return record


RENAMED_TENSORS = {"verdict.": "discriminator_head."}  # by the beginnings of their names, since 0.2


def rename_tensors(tensors: dict[str, Any]) -> dict[str, Any]:
    """Stored tensors under the names that they have today."""

    def renamed(name: str) -> str:
        old = next((old for old in RENAMED_TENSORS if name.startswith(old)), None)
        return name if old is None else RENAMED_TENSORS[old] + name.removeprefix(old)

    return {renamed(name): tensor for name, tensor in tensors.items()}


RELEASES = ("0.1.0", "0.2.0")
RUN = Format(RELEASES, (run_2,))  # config.json of a run
CHECKPOINT = Format(RELEASES, (unchanged,), unstamped=1)  # state.json of a checkpoint
PREPARED = Format(RELEASES, (unchanged,), newer=DataError)  # manifest.json of prepared text
COMPARISON = Format(RELEASES, (comparison_2,), unstamped=1)  # plan.json of a comparison
RESULT = Format(RELEASES, (unchanged,), unstamped=1)  # results/ROW/seed-N.json of a comparison
TRIAL = Format(("0.2.0",), ())  # search/ROW/trial-N.json of a comparison
ARCHIVE = Format(("0.2.0",), (), newer=DataError)  # manifest.json of a packed comparison

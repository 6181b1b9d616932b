"""Which of two wordings a model prefers: he or she, by occupation, and any other choice between two texts.

A translator from a language whose pronouns have no gender must choose one, and it chooses what its text has most often beside
the occupation (the lecture's "Dia bekerja sebagai jururawat"). Here the choice is a number: log p(first) − log p(second) of two
whole texts, given the source for translators. Beside it stands what a translator writes by itself.
"""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.finding import Finding, as_record
from seqloom.charts import Estimate, Section, TableCell, escaped, figure, intervals, table
from seqloom.errors import DataError
from seqloom.metrics.intervals import Interval, Sample, nested
from seqloom.text.tables import fields_of, rows_of

FIELDS = ("first", "second")
SIDES = {1: "first", -1: "second", 0: "neither"}


class Choice(NamedTuple):
    """Two wordings of one thing."""

    place: str  # file:line
    text: str  # the source for a translator, what stands before both for other models; may be empty
    first: str
    second: str
    group: str


class Chosen(NamedTuple):
    choice: Choice
    odds: float  # log p(first) − log p(second)
    written: str | None  # what a translator writes for the source
    sided: int  # with words of the first wording alone 1, of the second alone −1, of both or neither 0


def read_choices(path: Path) -> list[Choice]:
    """Of a table with the columns first and second, and text and group if there are such. Raises DataError for a bad row."""
    found = []
    for place, row in rows_of(path, FIELDS):
        try:
            fields = {name: str(value).strip() for name, value in fields_of(row).items()}
        except ValueError as error:
            raise DataError(f"{place}: {error}") from error
        if any(not fields.get(name) for name in FIELDS):
            raise DataError(f"{place}: both wordings are needed, in the columns first and second")
        if fields["first"] == fields["second"]:
            raise DataError(f"{place}: both wordings are {fields['first'][:40]!r}: they must differ")
        found.append(
            Choice(place, fields.get("text", ""), fields["first"], fields["second"], fields.get("group") or "all")
        )
    if not found:
        raise DataError(f"{path} has no rows: give at least one choice")
    return found


def side_of(written: str, choice: Choice) -> int:
    """By the words that only one of the wordings has."""
    words = [set(words_of(text)) for text in (choice.first, choice.second, written)]
    first, second = bool(words[2] & (words[0] - words[1])), bool(words[2] & (words[1] - words[0]))
    return int(first) - int(second)


def words_of(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Preference(Finding):
    """Which of two wordings a run prefers."""

    title = "Which wording is preferred"

    def __init__(self, run: str, source: str, definition: str, chosen: Sequence[Chosen]):
        self.run, self.source, self.definition, self.chosen = run, source, definition, list(chosen)

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def groups(self) -> dict[str, list[Chosen]]:
        """All of them, then each group, those that prefer the first wording most first."""
        found: dict[str, list[Chosen]] = {}
        for each in self.chosen:
            found.setdefault(each.choice.group, []).append(each)
        ordered = dict(sorted(found.items(), key=lambda item: -mean_odds(item[1])))
        return ordered if len(found) == 1 else {"all": self.chosen} | ordered

    def figures(self, some: Sequence[Chosen]) -> tuple[Interval, Interval]:
        """Mean log odds, and the share that prefers the first wording, with intervals for other rows of the kind."""
        odds = np.array([[each.odds for each in some]])
        shares = (odds > 0) + (odds == 0) / 2
        return nested(Sample(odds, deterministic=True)), nested(Sample(shares, deterministic=True, outcomes=True))

    def lines(self) -> list[str]:
        found = []
        for name, some in self.groups().items():
            odds, share = self.figures(some)
            line = f"{self.run}: {name}, {len(some)} rows: the first wording is preferred in {share}, log odds {odds}"
            if some[0].written is not None:
                line += (
                    f"; written by itself: first {count(some, 1)}, second {count(some, -1)}, neither {count(some, 0)}"
                )
            found.append(line)
        return found

    def rows(self) -> list[list[object]]:
        header: list[object] = ["group", "text", "first", "second", "log odds", "written", "side"]
        return [
            header,
            *(
                [c.group, c.text, c.first, c.second, odds, written or "", sided]
                for c, odds, written, sided in self.chosen
            ),
        ]

    def record(self) -> dict[str, Any]:
        groups = {}
        for name, some in self.groups().items():
            odds, share = self.figures(some)
            groups[name] = {"rows": len(some), "log_odds": as_record(odds), "prefers_first": as_record(share)}
            if some[0].written is not None:
                groups[name] |= {
                    "writes": {"first": count(some, 1), "second": count(some, -1), "neither": count(some, 0)}
                }
        rows = [each.choice._asdict() | {"log_odds": each.odds, "written": each.written} for each in self.chosen]
        return {"run": self.run, "text": self.source, "definition": self.definition, "groups": groups, "rows": rows}

    def pictures(self) -> dict[str, str]:
        estimates = []
        for name, some in self.groups().items():
            odds, _ = self.figures(some)
            estimates.append(Estimate(name, odds.value, odds.low, odds.high))
        return {"preference": intervals(estimates, "log p(first wording) − log p(second wording)")}

    def parts(self) -> list[str | Section]:
        shown: list[list[TableCell]] = []
        for name, some in self.groups().items():
            odds, share = self.figures(some)
            own = [str(count(some, side)) for side in (1, -1, 0)] if some[0].written is not None else ["–"] * 3
            shown.append([name, str(len(some)), str(share), str(odds), *own])
        header = [
            "group",
            "rows",
            "share that prefers the first",
            "log odds",
            "writes the first",
            "the second",
            "neither",
        ]
        head = (
            f'<p class="note">Two wordings of each row of {escaped(self.source)} under {escaped(self.run)}, by '
            f"{escaped(self.definition)}. Above 0 the first one is preferred. Intervals are for other rows of the kind; where "
            "rows share a template they say little about other templates.</p>"
        )
        every: list[list[TableCell]] = [
            [c.group, c.text, c.first, c.second, f"{odds:+.3f}", *([] if written is None else [written, SIDES[sided]])]
            for c, odds, written, sided in self.chosen
        ]
        names = ("group", "text", "first", "second", "log odds", "written", "as")
        return [
            head, Section("Picture", figure(self.pictures()["preference"], "preference")),
            Section("Groups", table(header, shown, file="groups.csv")),
            Section("Rows", table(names[: len(every[0])], every, file="rows.csv")),
        ]  # fmt: skip


def mean_odds(some: Sequence[Chosen]) -> float:
    return float(np.mean([each.odds for each in some]))


def count(some: Sequence[Chosen], side: int) -> int:
    return sum(each.sided == side for each in some)

"""The page of what single units follow."""

from typing import Any

import numpy as np

from seqloom.analyse.finding import Finding
from seqloom.analyse.units import Units, saturation, unit_values
from seqloom.charts import Curve, Section, TableCell, chart, escaped, figure, note, table
from seqloom.charts.weights import coloured_text

SHOWN = 1500  # characters that are coloured
BEST, LEAST = 4, 2  # units whose text is shown


class Cells(Finding):
    """Units of a recurrent run over a text."""

    title = "Cells"

    def __init__(self, run: str, units: Units, unit: str | None = None):
        self.run, self.units, self.asked = run, units, unit
        if unit is not None:
            unit_values(units, unit)

    def __repr__(self) -> str:
        return f"<Cells of {self.run}: {self.lines()[0]}>"

    def lines(self) -> list[str]:
        found = [
            f"{each.predicate}: {each.unit}, correlation {each.first:+.3f} on the first half, {each.second:+.3f} on the second"
            for each in self.units.found
        ]
        return found or ["nothing changes in this text that units could follow"]

    def coloured(self, unit: str) -> str:
        """The beginning of the text, coloured by a unit from −1 to 1."""
        values = unit_values(self.units, unit)
        count = int(np.searchsorted(np.cumsum([len(piece) for piece in self.units.pieces]), SHOWN)) + 1
        return coloured_text(self.units.pieces[:count], np.clip(values[:count], -1, 1).tolist())

    def scatter(self, layer: str) -> str:
        """Of each gate of a layer: how often each unit is closed and open."""
        curves = []
        for name, gate in self.units.gates.items():
            if name.startswith(f"{layer}."):
                closed, opened = saturation(gate)
                points = list(zip((100 * closed).tolist(), (100 * opened).tolist(), strict=True))
                curves.append(Curve(f"gate {name.split('.', 1)[1]}", points, line=False))
        return chart("closed (below 0.1), % of the time", "open (above 0.9), % of the time", curves)

    def pictures(self) -> dict[str, str]:
        wanted = [self.asked] if self.asked else []
        wanted += [each.unit for each in self.units.found[:BEST]] + [unit for unit, _ in self.units.least[:LEAST]]
        drawn = {unit: self.coloured(unit) for unit in dict.fromkeys(wanted)}
        for layer in dict.fromkeys(name.split(".")[0] for name in self.units.gates):
            drawn[f"{layer}-saturation"] = self.scatter(layer)
        return drawn

    def parts(self) -> list[str | Section]:
        drawn, units = self.pictures(), self.units
        mirrored = " Each line is read from its end: a unit knows what stands behind a token." if units.mirrored else ""
        found: list[str | Section] = [
            f'<p class="note">What single units of {escaped(self.run)} follow in a text of {len(units.pieces):,} tokens. Units '
            "are chosen by their correlation on the first half of the text, and checked on the second. Blue is a positive state, "
            f"orange a negative one: tanh of the cell, or h where there is no cell.{mirrored}</p>"
        ]
        if self.asked:
            found.append(Section(f"Unit {self.asked}", figure(drawn[self.asked], self.asked)))
        cells: list[list[TableCell]] = [
            [each.predicate, each.unit, f"{each.first:+.3f}", f"{each.second:+.3f}"] for each in units.found
        ]
        header = ("what is followed", "unit", "first half", "second half")
        body = table(header, cells, file="units.csv") + note(
            "A correlation that falls on the second half was found by chance."
        )
        found.append(Section("Units that follow something", body))
        for each in units.found[:BEST]:
            words = f"correlation {each.first:+.2f} on the first half, {each.second:+.2f} on the second"
            found.append(Section(f"{each.predicate}: {each.unit}", note(words) + figure(drawn[each.unit], each.unit)))
        for unit, best in units.least[:LEAST]:
            words = f"The highest correlation with anything on the list is {best:.2f}. Most units are like this."
            found.append(Section(f"Follows nothing: {unit}", note(words) + figure(drawn[unit], unit)))
        for name in drawn:
            if name.endswith("-saturation"):
                words = "A unit whose forget gate is mostly open remembers for long; one that is mostly closed remembers nothing."
                found.append(Section(f"Gates of {name.split('-')[0]}", note(words) + figure(drawn[name], name)))
        return found

    def rows(self) -> list[list[Any]]:
        return [["followed", "unit", "first_half", "second_half"], *(list(each) for each in self.units.found)]

    def record(self) -> dict[str, Any]:
        gates = {}
        for name, gate in self.units.gates.items():
            closed, opened = saturation(gate)
            gates[name] = {"closed": closed.tolist(), "open": opened.tolist()}
        asked = None if self.asked is None else unit_values(self.units, self.asked).tolist()
        return {
            "run": self.run, "tokens": self.units.pieces, "follows": [each._asdict() for each in self.units.found],
            "follow_nothing": self.units.least, "gates": gates, "unit": self.asked, "values": asked,
        }  # fmt: skip

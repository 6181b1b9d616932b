"""The page of which heads and layers a model needs."""

import math
from typing import Any

import numpy as np

from seqloom.analyse.finding import Finding
from seqloom.analyse.heads import HeadReport
from seqloom.charts import Curve, Section, Square, TableCell, chart, escaped, figure, grid, note, table


class Heads(Finding):
    """Which attention heads and layers of a run matter."""

    title = "Heads and layers"

    def __init__(self, run: str, source: str, found: HeadReport):
        self.run, self.source, self.found = run, source, found

    def __repr__(self) -> str:
        return f"<Heads of {self.run}: {self.lines()[0]}>"

    def lines(self) -> list[str]:
        found = self.found
        (part, layer), values = max(found.ablation.items(), key=lambda each: float(each[1].max()))
        half = min(found.pruned, key=lambda point: abs(point[0] - 0.5))
        return [
            f"loss {found.loss:.4f} {found.unit}; without {part} layer {layer + 1}, head {int(values.argmax()) + 1}: "
            f"{values.max():+.4f}; with the most important {half[0]:.0%} of the heads: {half[1]:.4f}",
            f"rank correlation of importance and true ablation: {found.rank_correlation:.3f}",
        ]

    def map_of(self, values: dict[tuple[str, int], np.ndarray], name: str) -> str:
        """A square a head, the bluer the more it matters; below zero, the model is better without it."""
        largest = max(float(np.abs(each).max()) for each in values.values()) or 1.0
        widest = max(map(len, values.values()))
        squares = [
            [Square(f"{value:.3f}", float(value) / largest) for value in each] + [Square("")] * (widest - len(each))
            for each in values.values()
        ]
        rows = [f"{part} {layer + 1}".replace("model", "layer") for part, layer in values]
        scale = [Square(f"{share * largest:+.3f}", share) for share in (-1.0, -0.5, 0.5, 1.0)]
        return grid(rows, [str(i + 1) for i in range(widest)], squares, name, scale)

    def pictures(self) -> dict[str, str]:
        found = self.found
        curves = [Curve("least important first", [(100 * share, loss) for share, loss in found.pruned])]
        for number, points in enumerate(found.at_random):
            curves.append(
                Curve(
                    "at random", [(100 * share, loss) for share, loss in points], like="at random", markers=False,
                    legend=number == 0,
                )
            )  # fmt: skip
        drawn = {
            "pruning": chart("heads that are left, %", f"loss, {found.unit}", curves, better="lower"),
            "ablation": self.map_of(found.ablation, "growth of the loss"),
            "importance": self.map_of(found.importance, "importance by gradient"),
        }
        if found.layers_pruned:
            points = [(100 * share, loss) for share, loss in found.layers_pruned]
            drawn["layers"] = chart(
                "layers that are left, %", f"loss, {found.unit}", [Curve("cheapest first", points)], better="lower"
            )
        return drawn

    def parts(self) -> list[str | Section]:
        found, drawn = self.found, self.pictures()
        layers: list[list[TableCell]] = [
            [f"{part} {layer + 1}".replace("model", "layer"), f"{growth:+.4f}"]
            for (part, layer), growth in found.layers.items()
        ]
        known = (
            ""
            if math.isnan(found.rank_correlation)
            else f" The rank correlation of the two is {found.rank_correlation:.2f}."
        )
        return [
            f'<p class="note">What {escaped(self.run)} loses without attention heads or layers, on {escaped(self.source)}: the '
            f"loss of the whole model is {found.loss:.4f} {escaped(found.unit)}.</p>",
            Section(
                "Heads taken away",
                note("In the order of their importance, the least first, and in three orders at random.")
                + figure(drawn["pruning"], "pruning"),
            ),
            Section(
                "Each head alone",
                note("How much the loss grows without the head (rows: layers, columns: heads).")
                + figure(drawn["ablation"], "ablation"),
            ),
            Section(
                "Importance by gradient",
                note(
                    f"The mean size of the gradient of a text's loss by a gate on the head (Michel et al., 2019).{known}"
                )
                + figure(drawn["importance"], "importance"),
            ),
            Section(
                "Each layer alone",
                note("How much the loss grows when a layer passes on what it reads.")
                + table(("layer", "growth of the loss"), layers, file="layers.csv"),
            ),
            *(
                [
                    Section(
                        "Layers taken away",
                        note("In the order of what each alone costs, the cheapest first.")
                        + figure(drawn["layers"], "layers"),
                    )
                ]
                if "layers" in drawn
                else []
            ),
        ]

    def rows(self) -> list[list[Any]]:
        header: list[Any] = ["part", "layer", "head", "importance", "ablation"]
        return [
            header,
            *(
                [part, layer + 1, head + 1, float(self.found.importance[part, layer][head]), float(value)]
                for (part, layer), values in self.found.ablation.items()
                for head, value in enumerate(values)
            ),
        ]

    def record(self) -> dict[str, Any]:
        found = self.found
        correlation = found.rank_correlation
        return {
            "run": self.run, "source": self.source, "unit": found.unit, "loss": found.loss,
            "heads": [dict(zip(self.rows()[0], row, strict=True)) for row in self.rows()[1:]],
            "layers": [
                {"part": part, "layer": layer + 1, "growth": growth} for (part, layer), growth in found.layers.items()
            ],
            "pruned": found.pruned, "pruned_at_random": found.at_random, "layers_pruned": found.layers_pruned,
            "rank_correlation": None if math.isnan(correlation) else correlation,
        }  # fmt: skip

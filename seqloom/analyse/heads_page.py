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
        lines = [
            f"loss {found.loss:.4f} {found.unit}; without {part} layer {layer + 1}, head {int(values.argmax()) + 1}: "
            f"{values.max():+.4f}; with the most important {half[0]:.0%} of the heads: {half[1]:.4f}",
            f"rank correlation of importance and true ablation: {found.rank_correlation:.3f} of heads",
        ]
        if not math.isnan(found.layer_rank_correlation):
            lines[-1] += f", {found.layer_rank_correlation:.3f} of {len(found.layers)} layers"
        return lines

    def map_of(self, values: dict[tuple[str, int], np.ndarray], name: str) -> str:
        """A square a head, the bluer the more it matters; below zero, the model is better without it."""
        largest = max(float(np.abs(each).max()) for each in values.values()) or 1.0
        widest = max(map(len, values.values()))
        squares = [
            [Square(f"{value:.3f}", float(value) / largest) for value in each] + [Square("")] * (widest - len(each))
            for each in values.values()
        ]
        rows = [f"{part} {layer + 1}".replace("model", "layer") for part, layer in values]
        has_negative = any(float(each.min()) < 0 for each in values.values())
        shares = (-1.0, -0.5, 0.5, 1.0) if has_negative else (0.25, 0.5, 0.75, 1.0)
        scale = [Square(f"{share * largest:{'+.3f' if has_negative else '.3f'}}", share) for share in shares]
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
        points = [(100 * share, loss) for share, loss in found.layers_pruned]
        drawn["layers"] = chart(
            "layers that are left, %", f"loss, {found.unit}", [Curve("cheapest first", points)], better="lower"
        )
        return drawn

    def parts(self) -> list[str | Section]:
        found, drawn = self.found, self.pictures()
        layers: list[list[TableCell]] = []
        for (part, layer), growth in found.layers.items():
            name = f"{part} {layer + 1}".replace("model", "layer")
            layers.append([name, f"{growth:+.4f}", f"{found.layer_importance[part, layer]:.4f}"])
        known, known_of_layers = (
            "" if math.isnan(each) else f" The rank correlation of the two is {each:.2f}."
            for each in (found.rank_correlation, found.layer_rank_correlation)
        )  # fmt: skip
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
                note(
                    "How much the loss grows when a layer passes on what it reads, and its importance: the mean size of the "
                    f"gradient of a text's loss by a gate on what the layer adds.{known_of_layers}"
                )
                + table(("layer", "growth of the loss", "importance"), layers, file="layers.csv"),
            ),
            Section(
                "Layers taken away",
                note("In the order of what each alone costs, the cheapest first.") + figure(drawn["layers"], "layers"),
            ),
        ]

    def rows(self) -> list[list[Any]]:
        """First of single heads, then of whole layers, which have no number of a head."""
        found = self.found
        rows: list[list[Any]] = [["part", "layer", "head", "importance", "ablation"]]
        for (part, layer), values in found.ablation.items():
            sizes = found.importance[part, layer]
            rows += [[part, layer + 1, i + 1, float(sizes[i]), float(value)] for i, value in enumerate(values)]
        for (part, layer), growth in found.layers.items():
            rows.append([part, layer + 1, None, found.layer_importance[part, layer], growth])
        return rows

    def record(self) -> dict[str, Any]:
        found = self.found
        of_heads, of_layers = (
            None if math.isnan(each) else each for each in (found.rank_correlation, found.layer_rank_correlation)
        )
        header, *rows = self.rows()
        return {
            "run": self.run, "source": self.source, "unit": found.unit, "loss": found.loss,
            "heads": [dict(zip(header, row, strict=True)) for row in rows if row[2] is not None],
            "layers": [
                {"part": part, "layer": layer, "growth": growth, "importance": size}
                for part, layer, head, size, growth in rows if head is None
            ],
            "pruned": found.pruned, "pruned_at_random": found.at_random, "layers_pruned": found.layers_pruned,
            "rank_correlation": of_heads, "layer_rank_correlation": of_layers,
        }  # fmt: skip

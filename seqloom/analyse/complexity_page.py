"""The page of what one layer of each kind costs as texts grow."""

from typing import Any

from seqloom.analyse.complexity import Measured, Shape, layers_of
from seqloom.analyse.finding import Finding
from seqloom.charts import Curve, Section, TableCell, chart, figure, note, table
from seqloom.weights import shapes_only


class Complexity(Finding):
    """Operations, sequential steps, path length and latency of layers by the length of a text."""

    title = "What a layer costs"

    def __init__(self, shape: Shape, found: list[Measured], device: str):
        self.shape, self.found, self.device = shape, found, device
        with shapes_only():
            self.letters = {layer.name: layer.per_layer for layer in layers_of(shape)}
        self.lengths = sorted({each.length for each in found})

    def __repr__(self) -> str:
        return f"<Complexity of {len(self.letters)} layers at {len(self.lengths)} lengths>"

    def of(self, layer: str) -> list[Measured]:
        return [each for each in self.found if each.layer == layer]

    def lines(self) -> list[str]:
        found = []
        for layer in self.letters:
            last = self.of(layer)[-1]
            found.append(
                f"{layer}: at {last.length:,} tokens {last.operations:.3g} operations, {last.steps:,} sequential steps, "
                f"path {last.path:,}, {last.milliseconds:.1f} ms"
            )
        return found

    def pictures(self) -> dict[str, str]:
        def drawn(name: str, field: str) -> str:
            curves = [
                Curve(layer, [(each.length, getattr(each, field)) for each in self.of(layer)]) for layer in self.letters
            ]
            return chart("tokens", name, curves, log_x=True, log_y=True, better="lower")

        return {
            "latency": drawn(f"milliseconds ({self.device})", "milliseconds"),
            "operations": drawn("operations of a forward pass", "operations"),
            "path": drawn("layers and steps from the first token to the last", "path"),
        }

    def parts(self) -> list[str | Section]:
        shape, pictures = self.shape, self.pictures()
        longest = self.lengths[-1]
        rows: list[list[TableCell]] = []
        for layer, letters in self.letters.items():
            first, last = self.of(layer)[0], self.of(layer)[-1]
            rows.append(
                [layer, letters, f"{last.operations:.3g}", f"{last.steps:,}", f"{last.path:,}",
                 f"{first.milliseconds:.2f}", f"{last.milliseconds:.2f}"]
            )  # fmt: skip
        header = (
            "layer", "operations", f"at {longest:,} tokens", "sequential steps", "longest path",
            f"ms at {self.lengths[0]:,}", f"ms at {longest:,}",
        )  # fmt: skip
        heading = (
            f'<p class="note">One causal layer of each kind, d = {shape.dim}, {shape.num_heads} heads, over one text of n tokens '
            f"(Vaswani et al., 2017, table 1). Paths are those of stacked layers: as many as it takes to reach the first "
            f"token.</p>"
        )
        return [
            heading,
            Section("The table", table(header, rows, file="complexity.csv")),
            Section(
                "Latency",
                note("A forward pass without gradients: what is done at once is quick until the device is busy.")
                + figure(pictures["latency"], "latency"),
            ),
            Section("Operations", figure(pictures["operations"], "operations")),
            Section("Path length", figure(pictures["path"], "path")),
        ]

    def rows(self) -> list[list[Any]]:
        return [list(Measured._fields), *(list(each) for each in self.found)]

    def record(self) -> dict[str, Any]:
        return {
            "shape": self.shape._asdict(), "device": self.device,
            "layers": [each._asdict() for each in self.found],
        }  # fmt: skip

"""The page of how much of a word's loss reaches the states before it."""

import math
from collections.abc import Sequence
from typing import Any

from seqloom.analyse.finding import Finding
from seqloom.analyse.flow import PARTS, Flow
from seqloom.charts import NONE, Curve, Look, Section, chart, escaped, figure, look, plane, table
from seqloom.charts.palette import DASHES


class GradientFlow(Finding):
    """Gradients of the loss at one word by the states before it, of several runs."""

    title = "Gradients through time"

    def __init__(self, flows: Sequence[Flow], source: str):
        self.flows, self.source = list(flows), source

    def __repr__(self) -> str:
        return f"<GradientFlow of {', '.join(flow.name for flow in self.flows)}: {self.steps} steps back>"

    @property
    def steps(self) -> int:
        return max(len(norms) for flow in self.flows for norms in flow.norms.values()) - 1

    def lines(self) -> list[str]:
        return [
            f"{flow.name} {part}: {norms[1]:.3e} one step back, {norms[-1]:.3e} {self.steps} steps back"
            for flow in self.flows
            for part, norms in flow.norms.items()
        ]

    def pictures(self) -> dict[str, str]:
        drawn = {}
        for part in PARTS:
            if any(name.endswith(f".{part}") for flow in self.flows for name in flow.norms):
                drawn[f"gradients-{part}"] = draw_flow(self.flows, part)
                if any(flow.shrink < 1 for flow in self.flows):
                    drawn[f"gradients-{part}-clipped"] = draw_flow(self.flows, part, clipped=True)
        for i, flow in enumerate(self.flows):
            for name, values in flow.eigenvalues.items():
                drawn[f"eigenvalues-{flow.name}-{name}"] = plane([(flow.name, values.tolist())], {flow.name: look(i)})
        return drawn

    def parts(self) -> list[str | Section]:
        drawn = self.pictures()
        found: list[str | Section] = [
            f'<p class="note">How much of the loss at one word reaches the states up to {self.steps} steps before it: the norm '
            f"of its gradient, the mean over {self.flows[0].windows} windows of {escaped(self.source)}. A straight falling line "
            "is a gradient that vanishes by the same factor at every step. Layers differ in their dashes: the lowest is drawn "
            "through. Of a model that reads all tokens at once the states are what its layers hand on. Clipping is that of the "
            "run's recipe, for the mean loss of these words.</p>",
            flow_table(self.flows),
        ]
        for part in PARTS:
            for name, words in ((f"gradients-{part}", ""), (f"gradients-{part}-clipped", ", as clipping leaves it")):
                if name in drawn:
                    found.append(Section(f"By {part}{words}", figure(drawn[name], name)))
        planes = [
            f"<div><h3>{escaped(flow.name)} {escaped(name)}</h3>"
            + figure(drawn[f"eigenvalues-{flow.name}-{name}"], f"eigenvalues-{flow.name}-{name}")
            + "</div>"
            for flow in self.flows
            for name in flow.eigenvalues
        ]
        if planes:
            boxes = f'<div class="samples">{"".join(planes)}</div>'
            found.append(Section("Eigenvalues of the recurrent matrices", boxes))
        return found

    def rows(self) -> list[list[Any]]:
        return [
            ["run", "state", "steps_back", "gradient", "after_clipping"],
            *(
                [flow.name, name, step, norm, norm * flow.shrink]
                for flow in self.flows
                for name, norms in flow.norms.items()
                for step, norm in enumerate(norms)
                if not math.isnan(norm)
            ),
        ]

    def record(self) -> dict[str, Any]:
        return {
            "text": self.source,
            "runs": [
                {
                    "name": flow.name, "windows": flow.windows, "clip": flow.clip, "factor_of_clipping": flow.shrink,
                    "gradients": {
                        name: [None if math.isnan(norm) else norm for norm in norms] for name, norms in flow.norms.items()
                    },
                    "eigenvalues": {
                        name: [[value.real, value.imag] for value in values.tolist()]
                        for name, values in flow.eigenvalues.items()
                    },
                }
                for flow in self.flows
            ],
        }  # fmt: skip


def draw_flow(flows: Sequence[Flow], part: str, clipped: bool = False) -> str:
    """One chart of all runs: a colour and a marker a run, a dash a layer. As SVG."""
    curves, signs = [], {}
    for i, flow in enumerate(flows):
        for j, (name, norms) in enumerate((n, v) for n, v in flow.norms.items() if n.endswith(f".{part}")):
            factor = flow.shrink if clipped else 1.0
            points = [(float(k), v * factor) for k, v in enumerate(norms) if v > 0]
            curves.append(Curve(f"{flow.name} {name}", points))
            signs[f"{flow.name} {name}"] = state_look(i, j)
    return chart("steps before the last word", f"norm of the gradient by {part}", curves, signs, log_y=True)


def state_look(run: int, layer: int) -> Look:
    return look(run)._replace(dash=DASHES[layer % len(DASHES)])


def flow_table(flows: Sequence[Flow]) -> str:
    """A row for each state of each run: its gradients, nearest and farthest, and what they shrink by."""
    signs, rows = {}, []
    for i, flow in enumerate(flows):
        layers: dict[str, int] = {}  # of each part, those before
        for name, norms in flow.norms.items():
            label, part = f"{flow.name} {name}", name.rsplit(".", 1)[-1]
            signs[label] = state_look(i, layers.get(part, 0))
            layers[part] = layers.get(part, 0) + 1
            known = [(k, v) for k, v in enumerate(norms) if v > 0] or [(0, 0.0)]
            (first, a), (last, b) = known[0], known[-1]
            rate = (b / a) ** (1 / (last - first)) if last > first else math.nan
            own = [abs(v).max() for key, v in flow.eigenvalues.items() if key.split(".")[0] == name.split(".")[0]]
            radius = ", ".join(f"{value:.2f}" for value in own) if name.endswith(".h") and own else NONE
            rows.append(
                (label, f"{a:.2e}", f"{b:.2e}", f"{rate:.3f}" if rate == rate else NONE, f"{flow.shrink:.2f}", radius)
            )
    header = ("run and state", "nearest", "farthest", "factor a step", "factor of clipping", "spectral radii by gate")
    return table(header, rows, signs, file="gradients.csv")

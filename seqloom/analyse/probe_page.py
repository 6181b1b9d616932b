"""The page of probes: scores by layer of several runs, with what says whether to believe them."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.finding import Finding
from seqloom.analyse.probe import LayerScores
from seqloom.charts import NONE, Cell, Curve, Mark, Section, TableCell, bars, chart, figure, looks, note, table
from seqloom.metrics.intervals import Interval, Sample, by_set, nested


class ProbedRun(NamedTuple):
    """One run on one task."""

    run: str
    task: str
    layers: list[LayerScores]  # the first is the embedding
    owners: np.ndarray  # (n,) the text of each test example
    majority: float  # the share of the most frequent training label among the test labels
    weights: np.ndarray | None  # (layers,) of a probe of all layers; None where they cannot be mixed
    train: int  # examples
    labels: int

    def score(self, layer: int) -> Interval:
        return self.interval(self.layers[layer].right)

    def control(self, layer: int) -> Interval | None:
        found = self.layers[layer].control
        return None if found is None else self.interval(found)

    def interval(self, right: np.ndarray) -> Interval:
        """For other texts of the same kind, and other seeds of the probe where there are several."""
        sample = Sample(right, deterministic=len(right) == 1)
        return nested(by_set(sample, self.owners))

    def compression(self, layer: int) -> float:
        found = self.layers[layer]
        return math.nan if not found.bits or found.uniform_bits is None else found.uniform_bits / found.bits

    @property
    def best(self) -> int:
        return max(range(len(self.layers)), key=lambda i: self.layers[i].right.mean())

    @property
    def centre(self) -> float:
        """The mean layer by the weights of a probe of all layers."""
        return math.nan if self.weights is None else float(np.arange(len(self.weights)) @ self.weights)


class Probing(Finding):
    """Probes of the layers of runs, for one task or several."""

    title = "Probes"

    def __init__(self, found: Sequence[ProbedRun], kind: str):
        self.found, self.kind = list(found), kind

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def lines(self) -> list[str]:
        """A line for each run and task: its best layer."""
        rows = []
        for each in self.found:
            best = each.best
            selective = each.control(best)
            more = "" if selective is None else f", selectivity {each.score(best).value - selective.value:.3f}"
            more += "" if math.isnan(each.centre) else f", centre of gravity {each.centre:.2f}"
            rows.append(
                f"{each.task} {each.run}: best layer {best} of {len(each.layers) - 1}, accuracy {each.score(best)} "
                f"(most frequent label {each.majority:.3f}){more}"
            )
        return rows

    @property
    def tasks(self) -> list[str]:
        return list(dict.fromkeys(each.task for each in self.found))

    def of(self, task: str) -> list[ProbedRun]:
        return [each for each in self.found if each.task == task]

    def curves(self, task: str, what: str) -> str:
        runs = self.of(task)
        curves = []
        for each in runs:
            points, spread = [], []
            for layer in range(len(each.layers)):
                score, control = each.score(layer), each.control(layer)
                if what == "accuracy":
                    points.append((float(layer), score.value))
                    spread.append((score.low, score.high))
                elif what == "selectivity" and control is not None:
                    points.append((float(layer), score.value - control.value))
                elif what == "compression" and each.layers[layer].bits:
                    points.append((float(layer), each.compression(layer)))
            curves.append(Curve(each.run, points, spread=spread))
        marks = [Mark("most frequent label", y=runs[0].majority)] if what == "accuracy" else []
        signs = looks(each.run for each in runs)
        return chart("layer (0: embedding)", what, curves, signs, better="higher", marks=marks, whole_x=True)

    def pictures(self) -> dict[str, str]:
        found = {}
        for task in self.tasks:
            for what in ("accuracy", "selectivity", "compression"):
                drawn = self.curves(task, what)
                if drawn.startswith("<svg"):
                    found[f"{task}-{what}"] = drawn
            for each in self.of(task):
                if each.weights is not None and len(each.weights) > 1:
                    names = [f"layer {i}" if i else "embedding" for i in range(len(each.weights))]
                    found[f"{task}-weights-{each.run}"] = bars(names, each.weights.tolist(), f"weight, {each.run}")
        return found

    def parts(self) -> list[str | Section]:
        found: list[str | Section] = [
            note(
                f"How well a {'linear' if self.kind == 'linear' else 'small multi-layer'} classifier finds labels in the frozen "
                "states of each layer. Intervals are for other texts. Selectivity is the accuracy minus that on a control task, "
                "in which every word form has a label drawn at random (Hewitt & Liang, 2019): where it is small, the "
                "classifier may only remember words. Compression says how many times shorter the labels become when they are "
                "sent with the help of the states (Voita & Titov, 2020). The centre of gravity is the mean layer by the weights "
                "of a probe of all layers (Tenney et al., 2019)."
            )
        ]
        if len(self.found) > 1:
            found.append(Section("Best layers", self.summary()))
        drawn = self.pictures()
        for task in self.tasks:
            body = "".join(figure(drawn[name], name) for name in drawn if name.startswith(f"{task}-"))
            found.append(Section(task, body + self.numbers(task)))
        return found

    def summary(self) -> str:
        header = ("task and run", "best layer", "accuracy", "most frequent label", "selectivity", "centre of gravity")
        rows: list[list[TableCell]] = []
        for each in self.found:
            score, control = each.score(each.best), each.control(each.best)
            selectivity = NONE if control is None else f"{score.value - control.value:.3f}"
            centre = NONE if math.isnan(each.centre) else f"{each.centre:.2f}"
            name = f"{each.task}, {each.run}"
            rows.append([name, str(each.best), shown(score), f"{each.majority:.3f}", selectivity, centre])
        return table(header, rows, file="probes.csv")

    def numbers(self, task: str) -> str:
        header = ("run and layer", "accuracy", "control", "selectivity", "compression")
        rows: list[list[TableCell]] = []
        for each in self.of(task):
            for layer in range(len(each.layers)):
                score, control, shorter = each.score(layer), each.control(layer), each.compression(layer)
                rows.append([
                    f"{each.run}, {layer}", shown(score), NONE if control is None else shown(control),
                    NONE if control is None else f"{score.value - control.value:.3f}",
                    NONE if math.isnan(shorter) else f"{shorter:.2f}",
                ])  # fmt: skip
        return table(header, rows, file=f"{task}.csv")

    def rows(self) -> list[list[Any]]:
        header = [
            "task", "run", "layer", "accuracy", "low", "high", "control", "selectivity", "bits", "compression", "weight",
            "most frequent label", "train items", "test items",
        ]  # fmt: skip
        return [header, *([record[name] for name in header] for record in self.record()["layers"])]

    def record(self) -> dict[str, Any]:
        layers = []
        for each in self.found:
            for i, layer in enumerate(each.layers):
                score, control = each.score(i), each.control(i)
                bounded = score.is_bounded
                layers.append({
                    "task": each.task, "run": each.run, "layer": i, "accuracy": score.value,
                    "low": score.low if bounded else None, "high": score.high if bounded else None,
                    "control": None if control is None else control.value,
                    "selectivity": None if control is None else score.value - control.value,
                    "bits": layer.bits, "compression": None if layer.bits is None else each.compression(i),
                    "weight": None if each.weights is None else float(each.weights[i]),
                    "most frequent label": each.majority, "train items": each.train, "test items": layer.right.shape[1],
                })  # fmt: skip
        centres = [
            {"task": each.task, "run": each.run, "best_layer": each.best, "centre_of_gravity": each.centre}
            for each in self.found
            if not math.isnan(each.centre)
        ]
        return {"probe": self.kind, "layers": layers, "runs": centres}


def shown(found: Interval) -> Cell:
    text = f"{found.value:.3f}" + (f" [{found.low:.3f}, {found.high:.3f}]" if found.is_bounded else "")
    return Cell(text, found.value)

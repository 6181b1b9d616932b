"""The page of a word's senses."""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.finding import Finding
from seqloom.analyse.senses import Threshold
from seqloom.charts import NONE, Curve, Mark, Section, TableCell, chart, escaped, figure, looks, table
from seqloom.charts.scatter import scatter
from seqloom.metrics.intervals import Interval, Sample, nested


class LayerSenses(NamedTuple):
    """What one layer of a run does with the occurrences. NaN where senses, or pairs, are not known."""

    right: np.ndarray | None  # (n,) nearest neighbours have the right sense
    silhouette: float
    self_similarity: float  # mean cosine of occurrences
    anisotropy: float  # and of other words at random
    same: tuple[Threshold, np.ndarray] | None  # the threshold, and (pairs,) whether other pairs are right by it

    @property
    def accuracy(self) -> Interval | None:
        return None if self.right is None else nested(Sample(self.right[None], deterministic=True, outcomes=True))

    @property
    def same_accuracy(self) -> Interval | None:
        return None if self.same is None else nested(Sample(self.same[1][None], deterministic=True, outcomes=True))


class RunSenses(NamedTuple):
    run: str
    layers: list[LayerSenses]
    shown: int  # the layer of the picture
    places: dict[str, np.ndarray]  # by way of drawing (n, 2)

    @property
    def best(self) -> int:
        known = [i for i, layer in enumerate(self.layers) if layer.right is not None]
        return max(known, key=lambda i: float(self.layers[i].right.mean())) if known else len(self.layers) - 1  # type: ignore[union-attr]


class Senses(Finding):
    """Senses of a word in the layers of runs."""

    title = "Senses"

    def __init__(
        self, word: str, senses: Sequence[str], texts: Sequence[str], runs: Sequence[RunSenses], majority: float
    ):
        self.word, self.senses, self.texts, self.runs, self.majority = (
            word,
            list(senses),
            list(texts),
            list(runs),
            majority,
        )

    def __repr__(self) -> str:
        return "\n".join(self.lines())

    def missing(self) -> str:
        """Why there is no self-similarity."""
        if all(math.isfinite(layer.anisotropy) for run in self.runs for layer in run.layers):
            return ""
        return (
            "Self-similarity is left out: it is compared with random words, one of each text, and two different ones are "
            "needed: give a file with more texts."
        )

    def lines(self) -> list[str]:
        found = []
        for run in self.runs:
            layer = run.layers[run.best]
            words = f"{run.run}: {self.word}, {len(self.texts)} occurrences, layer {run.best} of {len(run.layers) - 1}"
            if layer.accuracy is not None:
                words += f", nearest-neighbour accuracy {layer.accuracy} (most frequent sense {self.majority:.3f})"
            if layer.same_accuracy is not None:
                best = max(run.layers, key=lambda each: each.same[1].mean() if each.same else -1.0)
                words += f", same or not {best.same_accuracy}"
            similarity = layer.self_similarity - layer.anisotropy
            found.append(words + (f", self-similarity {similarity:.3f}" if math.isfinite(similarity) else ""))
        return [*found, *filter(None, [self.missing()])]

    def curves(self, what: str) -> str:
        curves = []
        for run in self.runs:
            points, spread = [], []
            for i, layer in enumerate(run.layers):
                value = {
                    "accuracy": layer.accuracy, "same": layer.same_accuracy, "silhouette": layer.silhouette,
                    "similarity": layer.self_similarity - layer.anisotropy,
                }[what]  # fmt: skip
                if isinstance(value, Interval):
                    points.append((float(i), value.value))
                    spread.append((value.low, value.high))
                elif value is not None and math.isfinite(value):
                    points.append((float(i), value))
            curves.append(Curve(run.run, points, spread=spread))
        names = {
            "accuracy": "nearest-neighbour accuracy", "same": "accuracy of same or not", "silhouette": "silhouette",
            "similarity": "self-similarity, less that of random words",
        }  # fmt: skip
        marks = (
            [Mark("most frequent sense", y=self.majority)]
            if what == "accuracy" and not math.isnan(self.majority)
            else []
        )
        signs = looks(run.run for run in self.runs)
        better = "" if what == "similarity" else "higher"
        return chart("layer (0: embedding)", names[what], curves, signs, marks=marks, better=better, whole_x=True)

    def pictures(self) -> dict[str, str]:
        drawn = {what: self.curves(what) for what in ("accuracy", "same", "silhouette", "similarity")}
        drawn = {what: picture for what, picture in drawn.items() if picture.startswith("<svg")}
        for run in self.runs:
            for way, places in run.places.items():
                drawn[f"{run.run}-{way}"] = scatter(places, self.senses, self.texts, f"{way}, layer {run.shown}")
        return drawn

    def parts(self) -> list[str | Section]:
        drawn = self.pictures()
        whose = f"occurrences of “{escaped(self.word)}”" if self.word else "occurrences of words"
        found: list[str | Section] = [
            f'<p class="note">The vectors of {len(self.texts):,} {whose}, layer by layer. Nearest-neighbour accuracy: an '
            "occurrence has the sense of most of its five nearest neighbours by cosine. Self-similarity is the mean cosine of "
            "occurrences less that of random words (Ethayarajh, 2019): near 1, the context changes nothing. Intervals are for "
            f"other occurrences. {self.missing()}</p>"
        ]
        names = {
            "accuracy": "Are senses kept apart?", "same": "Same sense or not", "silhouette": "Silhouette",
            "similarity": "How much the context changes",
        }  # fmt: skip
        found += [Section(names[what], figure(drawn[what], what)) for what in names if what in drawn]
        for run in self.runs:
            body = "".join(figure(drawn[f"{run.run}-{way}"], f"{run.run}-{way}", way) for way in run.places)
            found.append(Section(f"{run.run}, layer {run.shown}", body))
        found.append(Section("Numbers", table(self.rows()[0], self.cells(), file="senses.csv")))
        return found

    def cells(self) -> list[list[TableCell]]:
        return [
            [
                f"{row[0]}",
                *(
                    NONE if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
                    for value in row[1:]
                ),
            ]
            for row in self.rows()[1:]
        ]

    def rows(self) -> list[list[Any]]:
        header: list[Any] = [
            "run",
            "layer",
            "nearest",
            "low",
            "high",
            "silhouette",
            "self-similarity",
            "random words",
            "same or not",
        ]
        body = []
        for run in self.runs:
            for i, layer in enumerate(run.layers):
                near, same = layer.accuracy, layer.same_accuracy
                values = [
                    None if near is None else near.value, None if near is None else near.low, None if near is None else near.high,
                    layer.silhouette, layer.self_similarity, layer.anisotropy, None if same is None else same.value,
                ]  # fmt: skip
                body.append(
                    [
                        run.run,
                        i,
                        *(None if value is None or not math.isfinite(value) else float(value) for value in values),
                    ]
                )
        return [header, *body]

    def record(self) -> dict[str, Any]:
        header, *body = self.rows()
        majority = None if math.isnan(self.majority) else self.majority
        return {
            "word": self.word, "occurrences": len(self.texts), "most_frequent_sense": majority,
            "layers": [dict(zip(header, row, strict=True)) for row in body],
            "pictures": [
                {"run": run.run, "layer": run.shown, **{way: places.round(4).tolist() for way, places in run.places.items()}}
                for run in self.runs
            ],
            "senses": self.senses,
        }  # fmt: skip

"""The page of which tokens an answer hangs on."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from seqloom.analyse.finding import Finding
from seqloom.analyse.saliency import METHODS, Erasure, Saliency
from seqloom.charts import Section, TableCell, escaped, figure, note, table
from seqloom.charts.weights import coloured_text
from seqloom.metrics.intervals import Interval, Sample, nested

WORDS = {
    "gradient": "Gradient × input: how fast the answer changes with each token.",
    "integrated": "Integrated gradients: the share of each token in the answer, which add up to the whole.",
    "occlusion": "Occlusion: how much the answer falls without the token.",
}


class SaliencyFinding(Finding):
    """Which tokens the answers of a run hang on."""

    title = "Saliency"

    def __init__(self, run: str, text: str, found: Saliency, erased: Sequence[Erasure]):
        self.run, self.text, self.found, self.erased = run, text, found, list(erased)

    def __repr__(self) -> str:
        return f"<Saliency of {self.run}: {self.lines()[0]}>"

    def lines(self) -> list[str]:
        best = int(self.found.values["integrated"].argmax())
        words = (
            f"{self.found.question.name} = {self.found.value:.4f}, {self.found.empty:.4f} without the text; most by "
            f"{self.found.words[best]!r} ({self.found.values['integrated'][best]:+.4f}); integrated gradients "
            f"{self.found.completeness}"
        )
        falls = ", ".join(f"{name} {found.value:+.4f}" for name, found in self.falls().items())
        return [words, f"fall of the answer without the tokens chosen by: {falls}"]

    def falls(self) -> dict[str, Interval]:
        """By method, and of random tokens: the mean fall over texts, with its interval for other texts."""
        rows = {name: [each.falls[name] for each in self.erased] for name in METHODS}
        rows["random"] = [float(each.random.mean()) for each in self.erased]
        return {name: nested(Sample(np.array([values]), deterministic=True)) for name, values in rows.items()}

    def pictures(self) -> dict[str, str]:
        drawn = {}
        for name in ("integrated", "gradient", "occlusion"):
            values = self.found.values[name]
            scaled = values / max(float(np.abs(values).max()), 1e-12)
            drawn[name] = coloured_text(self.found.words, scaled.tolist())
        return drawn

    def parts(self) -> list[str | Section]:
        found = self.found
        drawn = self.pictures()
        parts: list[str | Section] = [
            f'<p class="note">What {escaped(found.question.name)} hangs on, for {escaped(self.run)}. It is {found.value:.4f}, '
            f"and {found.empty:.4f} if no token of the text is seen. Blue tokens raise it, orange ones lower it; the strongest "
            f"of each picture has the full colour, numbers are in the table.</p>"
        ]
        parts += [
            Section(
                WORDS[name].split(":")[0], note(WORDS[name].split(": ")[1].capitalize()) + figure(drawn[name], name)
            )
            for name in drawn
        ]
        parts.append(Section("Numbers", self.numbers()))
        if self.erased:
            parts.append(Section("Does it mean anything?", self.test()))
        return parts

    def numbers(self) -> str:
        rows: list[list[TableCell]] = [
            [word, *(f"{self.found.values[name][i]:+.4f}" for name in METHODS)]
            for i, word in enumerate(self.found.words)
        ]
        sums = ", ".join(f"{name} {self.found.values[name].sum():+.4f}" for name in METHODS)
        whole = (
            f"Sums: {sums}. The answer with all tokens minus that with none is {self.found.value - self.found.empty:+.4f}; "
            f"integrated gradients ({self.found.steps} steps) are {self.found.completeness}."
        )
        return table(("token", *METHODS), rows, file="saliency.csv") + note(whole)

    def test(self) -> str:
        count = len(self.erased)
        words = note(
            f"How far the answer falls when the fifth of the tokens with the highest values is taken away, and when as many are "
            f"chosen at random; {f'the mean over {count} texts' if count > 1 else 'of this text alone'}. A method whose fall is "
            f"not larger than that at random says nothing about this model."
        )
        rows: list[list[TableCell]] = [
            [name, f"{found.value:+.4f}" + (f" [{found.low:+.4f}, {found.high:+.4f}]" if found.is_bounded else "")]
            for name, found in self.falls().items()
        ]
        return words + table(("tokens chosen by", "fall of the answer"), rows, file="erasure.csv")

    def rows(self) -> list[list[Any]]:
        body = [
            [word, *(float(self.found.values[name][i]) for name in METHODS)] for i, word in enumerate(self.found.words)
        ]
        return [["token", *METHODS], *body]

    def record(self) -> dict[str, Any]:
        return {
            "run": self.run, "text": self.text, "answer": self.found.question.name, "value": self.found.value,
            "empty": self.found.empty, "tokens": self.found.words, "steps": self.found.steps, "gap": self.found.gap,
            **{name: values.tolist() for name, values in self.found.values.items()},
            "erasure": {name: found.record() for name, found in self.falls().items()} if self.erased else {},
            "texts": len(self.erased),
        }  # fmt: skip

"""The page of how many tokens before a word lower its loss."""

import math
from collections.abc import Sequence
from typing import Any

from seqloom.analyse.context import GAIN, HARDEST, ContextLosses, reaches
from seqloom.analyse.finding import Finding
from seqloom.charts import Curve, Mark, Section, chart, escaped, figure, table

HEADER = ("run", "effective context")


class EffectiveContext(Finding):
    """The loss of the same words by the number of tokens before them, of several runs."""

    title = "Effective context"

    def __init__(self, group: Sequence[ContextLosses], source: str):
        self.group, self.source, self.reaches = list(group), source, reaches(group)
        self.contexts = group[0].contexts

    def __repr__(self) -> str:
        return f"<EffectiveContext: {'; '.join(self.lines())}>"

    def lines(self) -> list[str]:
        return [
            f"{each.name}: effective context {'at least ' if reach.at_end else ''}{reach.length} tokens; "
            f"{each.losses[0].mean():.4f} nats a token after {self.contexts[0]}, {each.losses[-1].mean():.4f} after "
            f"{self.contexts[-1]}"
            for each, reach in zip(self.group, self.reaches, strict=True)
        ]

    def means(self, each: ContextLosses) -> list[float]:
        """Bits a token by context."""
        found: list[float] = (each.losses.mean(1) / math.log(2)).tolist()
        return found

    def pictures(self) -> dict[str, str]:
        means = [
            Curve(each.name, list(zip(map(float, self.contexts), self.means(each), strict=True))) for each in self.group
        ]
        gains = [
            Curve(each.name, list(zip(map(float, self.contexts[1:]), (100 * g for g in each.gains), strict=True)))
            for each in self.reaches
        ]
        drawn = {"context-loss": chart("tokens before the word", "bits a token", means, better="lower")}
        if gains[0].points:
            drawn["context-gain"] = chart(
                "tokens before the word",
                "gain of the step, %",
                gains,
                better="higher",
                marks=[Mark("1%", y=100 * GAIN)],
            )
        return drawn

    def parts(self) -> list[str | Section]:
        words = self.group[0].losses.shape[1]
        rows = [
            (
                each.name,
                f"{'at least ' if reach.at_end else ''}{reach.length:,}",
                *(f"{self.means(each)[i]:.3f}" for i in (0, -1)),
            )
            for each, reach in zip(self.group, self.reaches, strict=True)
        ]
        header = (*HEADER, *(f"bits a token, {self.contexts[i]:,} before" for i in (0, -1)))
        drawn = self.pictures()
        found: list[str | Section] = [
            f'<p class="note">The loss of the same {words:,} words of {escaped(self.source)} when a model reads only the last '
            f"tokens before each. The effective context is the length from which one step further lowers the perplexity by less "
            f"than {GAIN:.0%}, against the best of these runs, at the {HARDEST:.0%} of the words that are hardest for that one; "
            f"it holds for this group and these steps.</p>",
            table(header, rows, file="context.csv"),
            Section("Loss by context", figure(drawn["context-loss"], "context-loss")),
        ]
        if "context-gain" in drawn:
            found.append(Section("What each step gains", figure(drawn["context-gain"], "context-gain")))
        return found

    def rows(self) -> list[list[Any]]:
        return [
            ["run", "context", "bits_per_token", "gain"],
            *(
                [each.name, context, bits, gain]
                for each, reach in zip(self.group, self.reaches, strict=True)
                for context, bits, gain in zip(self.contexts, self.means(each), ["", *reach.gains], strict=True)
            ),
        ]

    def record(self) -> dict[str, Any]:
        return {
            "text": self.source, "words": self.group[0].losses.shape[1], "contexts": list(self.contexts),
            "runs": [
                {
                    "name": each.name, "effective_context": reach.length, "at_least": reach.at_end,
                    "bits_per_token": self.means(each), "gains": list(reach.gains),
                }
                for each, reach in zip(self.group, self.reaches, strict=True)
            ],
        }  # fmt: skip

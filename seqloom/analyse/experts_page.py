"""The page of which experts words of each kind go through."""

from typing import Any

import numpy as np

from seqloom.analyse.experts import ExpertUse, information
from seqloom.analyse.finding import Finding
from seqloom.charts import Section, Square, escaped, figure, grid, note

MOST_TAGS = 24  # rows of a picture
MOST_EXPERTS = 64  # and columns


class ExpertsFinding(Finding):
    """Use of the experts of a run by the tags of words."""

    title = "Use of experts"

    def __init__(self, run: str, source: str, found: ExpertUse):
        self.run, self.source, self.found = run, source, found

    def __repr__(self) -> str:
        return f"<ExpertsFinding of {self.run}: {self.lines()[0]}>"

    def lines(self) -> list[str]:
        found = []
        for name, use in zip(self.found.names, self.found.use, strict=True):
            shares = use.sum(0) / use.sum()
            found.append(
                f"{name}: {len(shares)} experts, the busiest has {shares.max():.1%} of the tokens, the idlest "
                f"{shares.min():.1%}; tags tell {information(use):.3f} bits of the expert"
            )
        return found

    def pictures(self) -> dict[str, str]:
        drawn = {}
        for name, use in zip(self.found.names, self.found.use, strict=True):
            shares = (use / np.maximum(use.sum(1, keepdims=True), 1e-12))[:MOST_TAGS, :MOST_EXPERTS]
            largest = float(shares.max()) or 1.0
            squares = [[Square(f"{100 * value:.0f}", float(value) / largest) for value in row] for row in shares]
            rows = [f"{tag} ({count:,})" for tag, count in zip(self.found.tags, self.found.counts, strict=True)]
            scale = [Square(f"{100 * part * largest:.0f}%", part) for part in (0.25, 0.5, 0.75, 1.0)]
            columns = [str(i + 1) for i in range(shares.shape[1])]
            drawn[name] = grid(
                rows[: len(shares)], columns, squares, f"share of a tag's tokens by expert, {name}", scale
            )
        return drawn

    def parts(self) -> list[str | Section]:
        first = (
            f'<p class="note">Which experts of {escaped(self.run)} the words of {escaped(self.source)} go through. Rows are tags '
            f"with their tokens, columns experts, numbers per cent of a tag's tokens, weighed by their gates.</p>"
        )
        sections = [
            Section(name, note(escaped(line)) + figure(picture, name.replace(" ", "-")))
            for (name, picture), line in zip(self.pictures().items(), self.lines(), strict=True)
        ]
        return [first, *sections]

    def rows(self) -> list[list[Any]]:
        header: list[Any] = ["layer", "tag", "tokens", "expert", "share"]
        return [
            header,
            *(
                [name, tag, int(count), i + 1, float(value / max(count, 1))]
                for name, use in zip(self.found.names, self.found.use, strict=True)
                for tag, count, row in zip(self.found.tags, self.found.counts, use, strict=True)
                for i, value in enumerate(row)
            ),
        ]

    def record(self) -> dict[str, Any]:
        return {
            "run": self.run, "source": self.source, "tags": self.found.tags, "tokens": self.found.counts.tolist(),
            "layers": [
                {"name": name, "use": use.tolist(), "information_bits": information(use)}
                for name, use in zip(self.found.names, self.found.use, strict=True)
            ],
        }  # fmt: skip

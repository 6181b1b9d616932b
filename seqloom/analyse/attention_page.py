"""The page of what attention heads look at."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.attention import MEASURES, Chosen, HeadMaps, HeadStatistics
from seqloom.analyse.finding import Finding
from seqloom.charts import Cell, Section, TableCell, escaped, figure, matrix, note, table
from seqloom.charts.weights import fan, lines, small_maps

DEBATE = (
    "Weights say what a head looked at, not why the model answered as it did: changing them often changes little (Jain & "
    "Wallace, 2019; Wiegreffe & Pinter, 2019). Heads that matter are found by removing them (--show heads)."
)
NAMES = {
    "attention": "Attention", "encoder": "Attention of the encoder", "decoder": "Attention of the decoder",
    "cross": "Attention to the source",
}  # fmt: skip


def short(value: float) -> str:
    """A share as it stands in a square: .05; nothing below."""
    return f"{value:.2f}".removeprefix("0") if value >= 0.05 else ""


class Shown(NamedTuple):
    """The maps of one part with what is shown large of them."""

    maps: HeadMaps
    chosen: Chosen


class Attention(Finding):
    """Attention of a run on a text, and statistics of its heads."""

    title = "Attention"

    def __init__(self, run: str, text: str, shown: Sequence[Shown], statistics: HeadStatistics | None = None):
        self.run, self.text, self.shown, self.statistics = run, text, list(shown), statistics

    def __repr__(self) -> str:
        sizes = [f"{each.maps.part}: {len(each.maps.weights)} layers" for each in self.shown]
        return f"<Attention of {self.run}, {', '.join(sizes)}>"

    def lines(self) -> list[str]:
        return [
            f"{maps.part}: layer {layer + 1}, head {head + 1}, token {maps.queries[token]!r} of {len(maps.queries)}"
            for maps, (layer, head, token) in self.shown
        ]

    def weights(self, part: str | None = None) -> list[np.ndarray]:
        """Of each layer (heads, queries, keys). part: "attention", or "encoder", "decoder" or "cross"; the first unless given."""
        return next(each.maps.weights for each in self.shown if part in (None, each.maps.part))

    def pictures(self) -> dict[str, str]:
        found = {}
        for maps, (layer, head, token) in self.shown:
            name = f"{maps.part}, layer {layer + 1}, head {head + 1}"
            found[f"{maps.part}-lines"] = lines(maps.queries, maps.keys, maps.weights[layer][head], name)
            found[f"{maps.part}-heads"] = small_maps(maps.weights, f"{maps.part} of all heads")
            rows = maps.weights[layer][:, token]
            found[f"{maps.part}-token"] = fan(token, maps.queries, maps.keys, rows, f"{maps.part} of one token")
            found[f"{maps.part}-matrix"] = matrix(
                maps.queries, maps.keys, maps.weights[layer][head].tolist(), name, write=short
            )
            if maps.is_square:
                weighted = maps.norm_weighted(layer)[head].tolist()
                found[f"{maps.part}-norms"] = matrix(maps.queries, maps.keys, weighted, "norm-weighted", write=short)
                found[f"{maps.part}-rollout"] = matrix(
                    maps.queries, maps.keys, maps.rollout().tolist(), "rollout", write=short
                )
        return found

    def parts(self) -> list[str | Section]:
        found: list[str | Section] = [
            f'<p class="note">What the attention heads of {escaped(self.run)} look at. {escaped(DEBATE)}</p>'
            f"<pre>{escaped(self.text)}</pre>"
        ]
        drawn = self.pictures()
        for maps, chosen in self.shown:
            found += self.sections(maps, chosen, drawn)
        if self.statistics is not None:
            found.append(Section("What each head does on average", self.averages(self.statistics)))
        return found

    def sections(self, maps: HeadMaps, chosen: Chosen, drawn: dict[str, str]) -> list[Section]:
        def picture(kind: str) -> str:
            return figure(drawn[f"{maps.part}-{kind}"], f"{maps.part}-{kind}")

        where = f"layer {chosen.layer + 1}, head {chosen.head + 1}"
        token, name = maps.queries[chosen.token], NAMES[maps.part]
        words = "Rows are tokens that look, columns what they look at"
        words += "; a row is what is looked at while its token is written." if not maps.is_square else "."
        found = [
            Section(name, note(f"{words} The darker, the nearer to the largest weight of the map.") + picture("heads")),
            Section(f"{name}: {where}", picture("lines") + picture("matrix")),
            Section(
                f"{name}: “{token}” in all heads of layer {chosen.layer + 1}",
                note("Colours are heads; lines and squares are the darker the more a head looks there.")
                + picture("token"),
            ),
        ]
        if maps.is_square:
            weighted = note(
                "Each weight times the length of the vector that it weighs (Kobayashi et al., 2020), as a share of its row: "
                "tokens that are looked at but hand little on are pale here."
            )
            rolled = note(
                "(A + I) / 2 of all layers multiplied, A being the mean over heads (Abnar & Zuidema, 2020): what each token's "
                "place at the top is made of, as far as attention alone decides it."
            )
            found.append(Section(f"{name}: norm-weighted, {where}", weighted + picture("norms")))
            found.append(Section(f"{name}: rollout", rolled + picture("rollout")))
        return found

    def averages(self, statistics: HeadStatistics) -> str:
        cut = (
            f" {statistics.cut:,} texts are longer than the model reads: their beginning was read."
            if statistics.cut
            else ""
        )
        words = (
            f"The mean over {statistics.rows:,} tokens of {statistics.texts:,} texts.{cut} Entropy is in bits, distance in "
            f"tokens; the others are shares of a head's attention. The first token may be the previous one, too."
        )
        body: list[list[TableCell]] = [
            [Cell(f"{row[0]}.{row[1]}", row[0] * 1000 + row[1]), *(f"{value:.3f}" for value in row[2:])]
            for row in self.rows()[1:]
        ]
        return note(words) + table(("layer.head", *MEASURES), body, file="heads.csv")

    def rows(self) -> list[list[Any]]:
        header: list[Any] = ["layer", "head", *MEASURES]
        if self.statistics is None:
            header = ["part", "layer", "head", "query", "key", "weight"]
            return [header, *self.long_form()]
        return [
            header,
            *(
                [i + 1, h + 1, *map(float, values)]
                for i, layer in enumerate(self.statistics.values)
                for h, values in enumerate(layer)
            ),
        ]

    def long_form(self) -> list[list[Any]]:
        return [
            [maps.part, i + 1, h + 1, query, key, float(weights[h, q, k])]
            for maps, _ in self.shown
            for i, weights in enumerate(maps.weights)
            for h in range(len(weights))
            for q, query in enumerate(maps.queries)
            for k, key in enumerate(maps.keys)
        ]

    def record(self) -> dict[str, Any]:
        maps = [
            {
                "part": each.maps.part, "queries": each.maps.queries, "keys": each.maps.keys,
                "weights": [layer.tolist() for layer in each.maps.weights],
                "shown": {"layer": each.chosen.layer + 1, "head": each.chosen.head + 1, "token": each.chosen.token + 1},
            }
            for each in self.shown
        ]  # fmt: skip
        heads = [dict(zip(self.rows()[0], row, strict=True)) for row in self.rows()[1:]] if self.statistics else []
        return {"run": self.run, "text": self.text, "maps": maps, "heads": heads}

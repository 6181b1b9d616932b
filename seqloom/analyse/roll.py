"""A song as a piano roll, with what attention heads look at from one of its tokens."""

from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.attention import Chosen, HeadMaps, choose, self_attention
from seqloom.analyse.finding import Finding
from seqloom.analyse.read import read_text
from seqloom.charts import Section, escaped, figure, note
from seqloom.charts.roll import Arc, Bar, piano_roll, pitch_name
from seqloom.errors import UsageError
from seqloom.evaluate.encode import Reading
from seqloom.text.midi import Note
from seqloom.text.music import FRAME, STEPS_A_SECOND, VOICES, meaning, notes_of

LONGEST = 1024  # tokens of a song that are drawn
VISIBLE = 0.02  # arcs of smaller weights are left out

Spot = tuple[float, int | None]  # the time of a token, and its pitch if it has one


class Arcs(NamedTuple):
    """What one token looks at. weights: (heads, tokens) of the layer."""

    chosen: Chosen
    weights: np.ndarray
    heads: list[int]  # that are drawn


def spots_of(kind: str, text: str) -> list[Spot]:
    """Where each word of a song stands in its picture."""
    found: list[Spot] = []
    now = 0
    for number, word in enumerate(text.split()):
        name, value = meaning(kind, word)
        if kind == "grid":
            found.append((number // VOICES * FRAME, None if value < 0 else value))
            continue
        now += value if name == "shift" else 0
        found.append((now / STEPS_A_SECOND, value if name in ("on", "off") else None))
    return found


def look_from(
    reading: Reading, kind: str, text: str, layer: int | None, head: int | None, token: str | None
) -> tuple[str, Arcs | None]:
    """The part of a song that is drawn, and what a token of it (the last unless given) looks at; None for a model without
    attention."""
    backbone: Any = reading.encoder.backbone
    around = len(reading.encoder.before) + len(reading.encoder.after)
    room = LONGEST if backbone.max_len is None else min(LONGEST, backbone.max_len - around)
    room -= room % VOICES if kind == "grid" else 0
    drawn = " ".join(text.split()[:room])
    read = read_text(reading, drawn, "the song", None)
    maps = self_attention(backbone, read)
    if maps is None:
        for option, value in (("--layer", layer), ("--head", head), ("--token", token)):
            if value is not None:
                raise UsageError(f"{option} {value}: this model has no attention, and no arcs to draw: leave it out")
        return drawn, None
    inside = [weights[:, read.own, read.own] for weights in maps.weights]  # without the special tokens
    words = HeadMaps(maps.part, read.tokens[read.own], read.tokens[read.own], inside, [])
    chosen = choose(words, layer, head, str(len(words.queries)) if token is None else token)
    weights = inside[chosen.layer][:, chosen.token]
    return drawn, Arcs(chosen, weights, [chosen.head] if head is not None else list(range(len(weights))))


class Roll(Finding):
    """A song, and what a run looks at from one of its tokens."""

    title = "Piano roll"

    def __init__(self, run: str, song: str, kind: str, text: str, arcs: Arcs | None):
        self.run, self.song, self.kind, self.text, self.arcs = run, song, kind, text, arcs
        self.spots = spots_of(kind, text)
        self.notes: list[Note] = notes_of(kind, text)

    def __repr__(self) -> str:
        return f"<Roll of {self.song}: {len(self.notes):,} notes>"

    def lines(self) -> list[str]:
        found = [f"{self.song}: {len(self.notes):,} notes, {max((note.end for note in self.notes), default=0):.1f} s"]
        return found if self.arcs is None else [*found, f"arcs: {self.where(self.arcs)}"]

    def where(self, arcs: Arcs) -> str:
        word = self.text.split()[arcs.chosen.token]
        heads = ", ".join(str(head + 1) for head in arcs.heads)
        return f"layer {arcs.chosen.layer + 1}, head {heads}, from token {arcs.chosen.token + 1} ({word})"

    def pictures(self) -> dict[str, str]:
        bars = [
            Bar(each.start, each.end, each.pitch, f"{pitch_name(each.pitch)}, {each.start:.2f}–{each.end:.2f} s")
            for each in self.notes
        ]
        if self.arcs is None:
            return {"roll": piano_roll(bars, [], f"piano roll of {self.song}")}
        begin = self.spots[self.arcs.chosen.token]
        arcs = [
            Arc(begin, self.spots[key], float(self.arcs.weights[head, key]), head)
            for head in self.arcs.heads
            for key in np.flatnonzero(self.arcs.weights[head] >= VISIBLE).tolist()
        ]
        legend = [f"head {head + 1}" for head in range(len(self.arcs.weights))]
        return {"roll": piano_roll(bars, arcs, f"piano roll of {self.song} with attention", legend, begin)}

    def parts(self) -> list[str | Section]:
        words = f"{self.song}, {len(self.notes):,} notes; bars are notes, the higher the pitch the higher."
        if self.arcs is None:
            words += f" {self.run} has no attention: there are no arcs to draw."
        else:
            words += (
                f" Arcs lead from the token in the ring to those that {self.run} looks at ({self.where(self.arcs)}), the "
                f"thicker the more; tokens without a pitch are on the lowest line. Weights below {VISIBLE} are left out."
            )
        return [
            f'<p class="note">{escaped(words)}</p>',
            Section("Roll", note("Hover over a note for its name.") + self.drawn()),
        ]

    def drawn(self) -> str:
        return figure(self.pictures()["roll"], "roll")

    def rows(self) -> list[list[Any]]:
        if self.arcs is None:
            return [["start", "end", "pitch", "velocity"], *map(list, self.notes)]
        words = self.text.split()
        return [
            ["head", "token", "word", "seconds", "weight"],
            *(
                [head + 1, key + 1, words[key], self.spots[key][0], float(self.arcs.weights[head, key])]
                for head in self.arcs.heads
                for key in range(self.arcs.chosen.token + 1)
            ),
        ]

    def record(self) -> dict[str, Any]:
        found: dict[str, Any] = {"run": self.run, "song": self.song, "notes": [note._asdict() for note in self.notes]}
        if self.arcs is not None:
            layer, _, token = self.arcs.chosen
            found["arcs"] = {"layer": layer + 1, "token": token + 1, "heads": [head + 1 for head in self.arcs.heads]}
            found["arcs"]["weights"] = self.arcs.weights[self.arcs.heads].tolist()
        return found

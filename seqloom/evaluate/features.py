"""Features of a trained model for stretches of texts, such as the words that another model reads.

A stretch is known by its characters, so that the two models may have any tokenizers: its tokens are those that stand for some of
its characters. Its features are the state of one of them, or their mean; or those of contextual string embeddings (Akbik et al.,
2018): a left-to-right model of characters is read at the character behind the stretch, a right-to-left one at the character
before it, so that both have read it and its border. Where a text begins or ends, the token that ends documents is read there.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from seqloom import cost
from seqloom.batch import Sizes
from seqloom.blocks.pooling import LAYERS, check_layers
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Reading
from seqloom.tasks.tag import pieces
from seqloom.tokens.spelling import spell_text

AT_ONCE = 1 << 25  # numbers of states that are held in memory


class Piece(NamedTuple):
    """A text, or a part of it that the model can read at once, as the model reads it."""

    ids: np.ndarray
    unknown: list[str]
    stretches: np.ndarray  # the numbers of those whose features are in it
    places: np.ndarray  # (stretches, 2) their first and last token in `ids`


class FeatureReader:
    """Reads the features of stretches of texts. reading: of a trained run; layers: as in `embed --layers`; read: "first",
    "last", "mean", "border" or "auto"; name: what messages begin with."""

    allowed = tuple(each for each in LAYERS if each != "all")

    def __init__(self, reading: Reading, layers: str, read: str, name: str):
        self.reading, self.layers, self.name = reading, layers, name
        backbone, kind = reading.encoder.backbone, reading.tokenizer.kind
        stack = getattr(backbone, "stack", None)
        depth = 1 if stack is None else len(stack.unrolled_layers)
        check_layers(layers, depth, f"{name}: 'task.beside.layers' =", self.allowed)
        by_character = kind in ("char", "byte")
        if read == "border" and not (by_character and backbone.causal):
            reads = f"has tokens of {kind}" if backbone.causal else "reads in both directions"
            raise DataError(
                f"{name} {reads} and cannot be aligned with the borders of words: 'task.beside.read' = \"border\" is "
                f"for left-to-right models of characters or bytes; leave it out"
            )
        if read == "auto":  # the token that is read last has seen the whole word
            causal = "border" if by_character else "first" if reading.backward else "last"
            read = causal if backbone.causal else "mean"
        self.read = read
        self.width = int(np.prod(reading.encoder.shape(layers)))
        self.flops = 0  # of all that was read

    def features(self, texts: Sequence[str], stretches: Sequence[np.ndarray], out: np.ndarray) -> int:
        """Fills in the features of all stretches, zeros for one without a token, and returns how many of these are not blank.
        stretches: of each text (U, 2), the first character and the one behind the last; out: (of all texts, width)."""
        found, reached, missing = [], 0, 0
        waiting, most = 0, max(AT_ONCE // self.width, 1)
        for text, each in zip(texts, stretches, strict=True):
            each = without_blanks(text, each)
            some = self.pieces_of(text, each)
            found += [(piece, reached) for piece in some]
            waiting += sum(len(piece.ids) for piece in some)
            missing += int((each[:, 0] < each[:, 1]).sum()) - sum(len(piece.stretches) for piece in some)
            reached += len(each)
            if waiting > most:
                self.fill(found, out)
                found, waiting = [], 0
        self.fill(found, out)
        return missing

    def pieces_of(self, text: str, stretches: np.ndarray) -> list[Piece]:
        """A text as it is read, usually in one piece, and where its stretches are in that."""
        tokenizer, backward = self.reading.tokenizer, self.reading.backward
        listed, spans = tokenizer.encode_with_offsets(text)
        ids, spots = np.array(listed, np.int64), np.array(spans, np.int64).reshape(-1, 2)
        starts, ends = spots[:, 0], spots[:, 1]
        if (np.diff(starts) < 0).any() or (np.diff(ends) < 0).any():
            raise DataError(
                f"{self.name}: its tokens are not in the order of the text {text[:40]!r} and cannot be aligned with "
                f"words: choose a run with another tokenizer"
            )
        begin, end = stretches[:, 0], stretches[:, 1]
        first, last = np.searchsorted(ends, begin, "right"), np.searchsorted(starts, end, "left") - 1
        kept = np.flatnonzero((first <= last) & (begin < end))
        first, last = first[kept], last[kept]
        found = []
        for low, high in self.cuts(first, len(ids)):
            inside = (first >= low) & (first < high)
            size = high - low
            one, other = first[inside] - low, np.minimum(last[inside], high - 1) - low
            if self.read == "border":
                # the last token of the character behind, or the first of the one before; else the end token
                behind = np.searchsorted(starts, end[kept][inside], "right") - 1
                before = np.searchsorted(ends, begin[kept][inside] - 1, "right")
                behind = np.where((end[kept][inside] < len(text)) & (behind < high), behind - low, size)
                before = np.where((begin[kept][inside] > 0) & (before >= low), before - low, -1)
                one = other = before if backward else behind
            elif self.read != "mean":
                one = other = one if self.read == "first" else other
            part = ids[low:high]
            unknown = [text[a:b] for a, b in spots[low:high][part == tokenizer.unk_id].tolist()]
            if backward:
                part, unknown, one, other = part[::-1], unknown[::-1], size - 1 - other, size - 1 - one
            if self.read == "border":
                part = np.append(part, tokenizer.end_id)
            found.append(Piece(part, unknown, kept[inside], np.stack((one, other), 1)))
        return found

    def cuts(self, first: np.ndarray, size: int) -> list[tuple[int, int]]:
        """The parts of so many tokens that are read at once, cut before stretches, whose first tokens these are."""
        encoder = self.reading.encoder
        limit, around = encoder.backbone.max_len, len(encoder.before) + len(encoder.after) + (self.read == "border")
        if limit is None or size + around <= limit:
            return [(0, size)]
        room = limit - around
        if room < 1:
            raise UsageError(f"{self.name} reads {limit} tokens at most: choose a run that reads more")
        borders = np.unique(np.concatenate(([0], first, [size])))
        sizes = [
            min(room, rest - step) for rest in np.diff(borders).tolist() for step in range(0, rest, room)
        ]  # of a longer stretch several
        reached = np.concatenate(([0], np.cumsum(sizes)))
        return [(int(reached[a]), int(reached[b])) for a, b in pieces(sizes, room)]

    def fill(self, found: Sequence[tuple[Piece, int]], out: np.ndarray) -> None:
        """Reads pieces. found: each, and where the features of its text's stretches begin in `out`."""
        reads = [(piece, begin) for piece, begin in found if len(piece.stretches)]
        if not reads:
            return
        reading = self.reading
        unknown = [word for piece, _ in reads for word in piece.unknown]
        table = reading.table
        states, borders = reading.encoder.encode(
            [piece.ids for piece, _ in reads],
            self.layers,
            "none",
            spell=lambda flat: None if table is None else spell_text(flat, unknown, reading.tokenizer, table),
        )
        states = states.reshape(len(states), self.width)
        where = np.concatenate([piece.stretches + begin for piece, begin in reads])
        places = np.concatenate([piece.places + start for (piece, _), start in zip(reads, borders, strict=False)])
        first, last = places[:, 0], places[:, 1]
        if self.read == "mean":
            padded = np.concatenate((states, np.zeros((1, self.width), states.dtype)))
            sums = np.add.reduceat(padded, np.stack((first, last + 1), 1).ravel())[::2]
            out[where] = sums / (last - first + 1)[:, None]
        else:
            out[where] = states[first]
        self.count([len(piece.ids) for piece, _ in reads])

    def count(self, sizes: Sequence[int]) -> None:
        encoder = self.reading.encoder
        lengths = [size + len(encoder.before) + len(encoder.after) for size in sizes]
        read = sum(lengths)
        pairs = sum(length * length for length in lengths)
        self.flops += cost.total(encoder.backbone).forward(Sizes(read, pairs, read, 0, lengths=tuple(lengths)))


class LayerReader(FeatureReader):
    """With the layers "all", the features are those of each layer, one after the other."""

    allowed = LAYERS


def without_blanks(text: str, stretches: np.ndarray) -> np.ndarray:
    """(U, 2) without the blanks at their ends: a token may have one before its word. Of blanks alone nothing is left."""
    inked = np.append(np.flatnonzero([not character.isspace() for character in text]), len(text))
    begin = inked[np.searchsorted(inked, stretches[:, 0])]
    last = inked[np.maximum(np.searchsorted(inked, stretches[:, 1]) - 1, 0)]
    return np.stack((begin, np.maximum(np.minimum(last + 1, stretches[:, 1]), begin)), 1)

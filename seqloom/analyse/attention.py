"""What attention heads look at: the weights of one text, and what each head does on average over many.

rollout         (A + I) / 2 of each layer, the mean over its heads, multiplied from the first layer up: how much of each token's
                place at the top comes from each token, if weights were all that counts. Abnar & Zuidema, 2020 (arXiv 2005.00928).
norm-weighted   a weight times the length of the vector that it weighs: a head may look at what it hands nothing on of.
                Kobayashi et al., 2020 (arXiv 2004.10102).
statistics      over the rows of a few tokens of each text, computed beside the fast kernels (batch.MapRows).
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.analyse.read import ReadText, choose_number, read_text
from seqloom.batch import MapRows, Pair, exact, pack, to_device
from seqloom.batches.plan import portions
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.blocks.stack import count_heads
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Reading
from seqloom.progress import Progress
from seqloom.tokens.spelling import spell_text

ROWS = 8  # tokens of each text whose attention is averaged
MOST = 4000  # texts that are
MEASURES = ("entropy", "distance", "previous", "same place", "next", "first", "separator", "punctuation", "same word")


class HeadMaps(NamedTuple):
    """The weights of all heads of a part of a model on one text."""

    part: str  # "attention"; of an encoder–decoder "encoder", "decoder" and "cross"
    queries: list[str]
    keys: list[str]
    weights: list[np.ndarray]  # of each layer with attention (heads, queries, keys)
    lengths: list[np.ndarray]  # of each layer (keys, heads), of the vectors that are weighed; none across

    @property
    def is_square(self) -> bool:
        return self.part != "cross"

    def norm_weighted(self, layer: int) -> np.ndarray:
        """(heads, queries, keys) weights times lengths of vectors, as shares of each row."""
        found = self.weights[layer] * self.lengths[layer].T[:, None]
        return found / np.maximum(found.sum(-1, keepdims=True), 1e-12)

    def rollout(self) -> np.ndarray:
        """(tokens, tokens) from the first layer to the last."""
        found = np.eye(len(self.queries))
        for weights in self.weights:
            found = (weights.mean(0) + np.eye(len(found))) / 2 @ found
        return found


def numbers(weights: Tensor) -> np.ndarray:
    return exact(weights).cpu().numpy()


@torch.no_grad()
def self_attention(backbone: Any, read: ReadText, part: str = "attention") -> HeadMaps | None:
    """The maps of what reads one text; None where it has no attention heads."""
    heads = count_heads(backbone)
    if not any(heads):
        return None
    output = backbone(read.batch, layers=True, maps=True)
    layers = backbone.stack.unrolled_layers
    chosen = [i for i, count in enumerate(heads) if count]
    lengths = [numbers(layers[i].value_norms(output.layers[i])) for i in chosen]
    return HeadMaps(part, read.tokens, read.tokens, [numbers(output.maps[i][0]) for i in chosen], lengths)


@torch.no_grad()
def pair_attention(
    model: Any, source: ReadText, start: Sequence[int], target: list[int], names: list[str], end: str
) -> list[HeadMaps]:
    """The maps of an encoder–decoder that reads a source and writes a target. start: what it is written from; names: of the
    target's tokens; end: of the token that ends it. Across, a row is what is looked at while its token is written."""
    device = source.batch.ids.device
    batch = to_device(pack([[*start, *target]]), device)
    output = model(Pair(source.batch, batch, batch.ids), layers=True, maps=True)
    skip = len(start) - 1
    read = [""] * skip + ["⟨start⟩", *names]
    found = [self_attention(model.view("encoder").eval(), source, "encoder")]
    heads = count_heads(model.decoder)
    if any(heads):
        chosen = [i for i, count in enumerate(heads) if count]
        layers = model.decoder.stack.unrolled_layers
        lengths = [numbers(layers[i].value_norms(output.layers[i])) for i in chosen]
        weights = [numbers(output.maps[i][0]) for i in chosen]
        found.append(HeadMaps("decoder", read, read, weights, lengths))
    across = [numbers(weights)[skip:].transpose(1, 0, 2) for weights in output.cross if weights is not None]
    if across:
        found.append(HeadMaps("cross", [*names, end], source.tokens, across, []))
    return [each for each in found if each is not None]


# ---- statistics


class HeadStatistics(NamedTuple):
    """What heads do on average: entropy in bits, distance in tokens, all others as shares of their attention."""

    values: list[np.ndarray]  # of each layer (heads, measures)
    texts: int
    cut: int  # texts of which only the beginning was read
    rows: int  # tokens whose attention was averaged


def head_statistics(reading: Reading, texts: Sequence[str], batch_tokens: int = 8192) -> HeadStatistics:
    """Averages over at most ROWS tokens of each text. Texts that are longer than the model reads are cut."""
    encoder, tokenizer = reading.encoder, reading.tokenizer
    if not any(count_heads(encoder.backbone)):
        raise UsageError("this model has no attention heads to measure")
    turn = slice(None, None, -1 if reading.backward else 1)
    encoded, unknown = tokenizer.encode_batch_with_unknown(list(texts[:MOST]))
    room = encoder.backbone.max_len
    most = None if room is None else room - len(encoder.before) - len(encoder.after)
    cut = sum(most is not None and len(ids) > most for ids in encoded)
    ids = [np.array(each[:most])[turn] for each in encoded if len(each)]
    if not ids:
        raise DataError("the texts are empty: give at least one word")
    found = SpecialTokenTexts(ids, encoder.before, encoder.after)
    if reading.table is not None:
        words = [word for some in unknown for word in some[turn]]
        found.characters = spell_text(found.flat, words, tokenizer, reading.table)
    marks = punctuation(tokenizer)
    sums: list[Any] = []
    rows = 0
    order = np.argsort(found.lengths, kind="stable")
    with Progress("attention", total=float(found.lengths.sum()), unit="tokens") as bar:
        for part in portions([found.lengths[order]], [batch_tokens]):
            batch = to_device(found.batch(order[part]), encoder.device)
            sizes = found.sizes[order[part]]
            chosen = spread(found.lengths[order[part]], sizes, len(encoder.before)).to(encoder.device)
            own = len(encoder.before)
            each = measure_heads(encoder.backbone, batch, chosen, (own, len(encoder.after)), marks.to(encoder.device))
            sums = each if not sums else [a + b for a, b in zip(sums, each, strict=True)]
            rows += len(chosen)
            bar.advance(int(found.lengths[order[part]].sum()))
    return HeadStatistics([numbers(total / rows) for total in sums], len(ids), cut, rows)


def spread(lengths: np.ndarray, sizes: np.ndarray, before: int) -> Tensor:
    """The numbers of at most ROWS tokens of each text, evenly over it, in a batch of these lengths."""
    starts = np.cumsum(lengths) - lengths
    rows = [
        start + before + np.unique(np.linspace(0, size - 1, min(ROWS, size)).astype(np.int64))
        for start, size in zip(starts, sizes, strict=True)
    ]
    return torch.from_numpy(np.concatenate(rows))


def punctuation(tokenizer: Any) -> Tensor:
    """(V,) which tokens are signs alone."""
    entries = [tokenizer.entry(i) or "" for i in range(tokenizer.vocab_size)]
    bare = [entry.strip("Ġ▁# ") for entry in entries]
    return torch.tensor([bool(each) and not any(c.isalnum() for c in each) for each in bare])


@torch.no_grad()
def measure_heads(backbone: Any, batch: Any, rows: Tensor, around: tuple[int, int], marks: Tensor) -> list[Tensor]:
    """Sums over rows, of each layer with heads (heads, measures). around: how many special tokens are before and after."""
    output = backbone(batch, maps=MapRows(rows))
    device, owner = rows.device, batch.owner[rows]
    starts, lengths = batch.offsets[:-1].long(), batch.offsets.diff().long()
    place, size = (rows - starts[owner])[:, None], lengths[owner][:, None]
    key = torch.arange(batch.max_len, device=device)
    inside = key < size
    ids = batch.ids[(starts[owner][:, None] + key).clamp(max=len(batch.ids) - 1)]
    sorts = {
        "previous": key == place - 1, "same place": key == place, "next": key == place + 1, "first": (key == 0).expand_as(inside),
        "separator": inside & (key >= size - around[1]), "punctuation": inside & marks[ids],
        "same word": inside & (ids == batch.ids[rows][:, None]) & (key != place),
    }  # fmt: skip
    columns = torch.stack([(key - place).abs(), *(sorts[name] for name in MEASURES[2:])], -1)  # (R, K, measures − 1)
    found = []
    for weights, heads in zip(output.maps, count_heads(backbone), strict=True):
        if heads:
            shares = torch.einsum("rhk,rkm->hm", weights, columns.to(weights.dtype))
            entropy = torch.special.entr(weights).sum((0, 2)) / np.log(2)
            found.append(torch.cat((entropy[:, None], shares), 1))
    return found


# ---- what is shown


class Chosen(NamedTuple):
    """The head and the token that a page shows large, counted from 0."""

    layer: int
    head: int
    token: int


def choose(maps: HeadMaps, layer: int | None, head: int | None, token: str | None) -> Chosen:
    """What is asked for, numbered from 1; a token by its number or its first occurrence. Else the head that looks most at single
    tokens that are neither its neighbours nor at the ends of the text, and the token that does so most."""
    at = choose_number("--layer", layer, len(maps.weights), "layers with attention")
    counts = {len(each) for each in maps.weights} if at is None else {len(maps.weights[at])}
    which = choose_number("--head", head, min(counts), "heads")
    where = None if token is None else find_token(maps.queries, token)
    best = (-1.0, 0, 0, 0)
    far = np.abs(np.arange(len(maps.keys)) - np.arange(len(maps.queries))[:, None]) > 1
    far[:, 0] = far[:, -1] = False
    far = far if maps.is_square else np.ones_like(far)
    for i, weights in enumerate(maps.weights):
        for h, each in enumerate(weights):
            if at in (None, i) and which in (None, h):
                peaks = (each * far).max(1)
                row = int(peaks.argmax()) if where is None else where
                best = max(best, (float(peaks.mean() if where is None else peaks[row]), i, h, row))
    return Chosen(*best[1:])


def find_token(tokens: Sequence[str], asked: str) -> int:
    if asked in tokens:
        return tokens.index(asked)
    if asked.isdecimal():
        number = choose_number("--token", int(asked), len(tokens), "tokens")
        assert number is not None
        return number
    raise UsageError(
        f"--token {asked}: the text has no such token: choose one of {', '.join(tokens[:12])} …, or its number"
    )


def read_alone(reading: Reading, text: str) -> list[HeadMaps]:
    """Of a model that reads single texts. Raises UsageError where it has no attention."""
    found = self_attention(reading.encoder.backbone, read_text(reading, text))
    if found is None:
        raise UsageError(
            "this model has no attention heads: 'seqloom inspect RUN --show cells' shows the units of a recurrent one"
        )
    return [found]

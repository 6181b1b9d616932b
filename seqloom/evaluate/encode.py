"""Texts as vectors: hidden states of any backbone, by layer and pooling.

Layers, as in table 7 of the BERT paper (arXiv 1810.04805): `embedding`, `last`, `second-to-last`, `sum` (of all layers above the
embedding), `sum4` and `concat4` (of the last four); `mix`, the mean of all layers and the embedding, which is the scalar mix of
ELMo before a task has learnt its weights; a number, 0 being the embedding; `all`, side by side. The last layer is what an output
layer reads: a final norm is in it.

Pooling is over a text's own tokens: what stands around them is read and left out, but for `first`, which is the special token
where a model has one in front ([CLS]).
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import Backbone, Ragged, pack, to_device, wide
from seqloom.batches.plan import portions
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.blocks import pooling
from seqloom.config import unknown_name
from seqloom.errors import UsageError
from seqloom.tokens.spelling import Characters, spell_text
from seqloom.tokens.tokenizer import Tokenizer

POOLS = ("mean", "first", "last", "max", "none")

Spell = Callable[[np.ndarray], np.ndarray | None]


class Reading(NamedTuple):
    """How a trained run reads texts."""

    encoder: "Encoder"
    tokenizer: Tokenizer
    table: Characters | None = None  # the spelling of words, of a model that reads characters
    backward: bool = False  # it reads texts from their end

    def encode(
        self, texts: Sequence[str], layers: str | int, pool: str, names: Sequence[str] | None
    ) -> np.ndarray | list[np.ndarray]:
        return self.encoder.read(texts, self.tokenizer, layers, pool, names, self.table, self.backward)


class Encoder:
    """Encodes texts with a backbone. before, after: the special tokens around a text, as in training."""

    def __init__(self, backbone: Backbone, before: Sequence[int], after: Sequence[int], device: torch.device):
        if backbone.learns_from == "counts":
            raise UsageError("this model counts words and has no vectors: use one that has, from lstm to bert")
        self.backbone, self.before, self.after, self.device = backbone, before, after, device

    def read(
        self,
        texts: Sequence[str],
        tokenizer: Tokenizer,
        layers: str | int = "last",
        pool: str = "mean",
        names: Sequence[str] | None = None,
        table: Characters | None = None,
        backward: bool = False,
    ) -> np.ndarray | list[np.ndarray]:
        """Tokenises texts and encodes them; with pool "none" one array for each text. table: the spelling of words, for models
        that read characters; backward: texts are read from their end, and vectors are in the order of the text."""
        texts = [texts] if isinstance(texts, str) else texts
        turn = slice(None, None, -1 if backward else 1)
        encoded, unknown_words = tokenizer.encode_batch_with_unknown(list(texts))
        unknown = [word for words in unknown_words for word in words[turn]]
        found, borders = self.encode(
            [row[turn].copy() for row in encoded],
            str(layers),
            pool,
            names,
            spell=lambda flat: None if table is None else spell_text(flat, unknown, tokenizer, table),
        )
        if pool != "none" or not len(texts):
            return found
        return [part[turn] for part in np.split(found, borders[1:-1])]

    @torch.no_grad()
    def encode(
        self,
        texts: Sequence[Sequence[int] | np.ndarray],
        layers: str = "last",
        pool: str = "mean",
        names: Sequence[str] | None = None,
        spell: Spell = lambda flat: None,
        batch_tokens: int = 16384,
    ) -> tuple[np.ndarray, np.ndarray]:
        """(N, D) in the order of the texts, an empty one being zeros; with pool "none" (T, D). (N, layers, D) with "all".
        And the borders of the texts, (N+1,), in the latter. names: where each text is from, for messages."""
        if pool not in POOLS:
            raise UsageError(unknown_name("pooling", pool, pool, list(POOLS)))
        shape = self.shape(layers)  # wrong names of layers are found before anything is computed
        found = SpecialTokenTexts(texts, self.before, self.after, self.backbone.segment_kind == "relative")
        found.check(self.backbone.max_len, names)
        found.characters = spell(found.flat)
        borders = np.concatenate(([0], np.cumsum(found.sizes)))
        result = np.zeros((int(borders[-1]) if pool == "none" else len(texts), *shape), np.float32)
        order = np.argsort(found.lengths, kind="stable")
        order = order[found.sizes[order] > 0]
        for part in portions([found.lengths[order]], [batch_tokens]):
            index = order[part]
            batch = to_device(found.batch(index), self.device)
            own = self.own(batch, torch.from_numpy(found.sizes[index]).to(self.device))
            rows = self.pool(self.states(batch, layers), batch, own, pool)
            where = index
            if pool == "none":
                sizes = found.sizes[index]
                where = np.repeat(borders[index] - (np.cumsum(sizes) - sizes), sizes) + np.arange(int(sizes.sum()))
            result[where] = rows.float().cpu().numpy()
        return result, borders

    def states(self, batch: Ragged, layers: str) -> Tensor:
        output = self.backbone(batch, layers=layers != "last")
        return wide(pooling.choose((*output.layers[:-1], output.hidden), layers))

    def shape(self, layers: str) -> tuple[int, ...]:
        probe = to_device(pack([[*self.before, *self.after]]), self.device)
        return tuple(self.states(probe, layers).shape[1:])

    def own(self, batch: Ragged, sizes: Tensor) -> Tensor:
        """(T,) whether a token belongs to the text, not to the special tokens around it."""
        place = batch.positions - len(self.before)
        return (place >= 0) & (place < sizes[batch.owner])

    def pool(self, states: Tensor, batch: Ragged, own: Tensor, pool: str) -> Tensor:
        if pool == "none":
            return states[own]
        special = pool == "first" and self.backbone.head_style.pooling == "first"
        return pooling.pool(states, batch, pool, None if special else own)

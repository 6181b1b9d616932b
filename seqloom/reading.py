"""What a trained model makes of given texts: scores, words for gaps, vectors."""

import time
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from seqloom.batch import Objective
from seqloom.batches.enclosed import Enclosed
from seqloom.decode.fill import Filled, fill_each, fill_jointly, read_gaps
from seqloom.errors import UsageError
from seqloom.evaluate.encode import Encoder
from seqloom.evaluate.minimal import minimal_pairs, read_minimal
from seqloom.evaluate.pseudo import DEFINITIONS, definition, pseudo
from seqloom.evaluate.score import Scored, score
from seqloom.objectives.masked import MaskedLM
from seqloom.tokens.spelling import Characters, spelling_table, spelt
from seqloom.tokens.tokenizer import Tokenizer


class Reading:
    """A part of every language model that was trained; `Run` is the whole."""

    folder: Path
    learner: Objective
    tokenizer: Tokenizer
    device: torch.device
    characters: int  # that it reads of an unknown word
    backward: bool = False  # it reads texts from their end

    # ---- scores

    def definition(self, pll: str | None = None) -> str:
        """What `score` gives, in words."""
        return DEFINITIONS[definition(self.learner, pll)]

    def score(
        self,
        texts: Sequence[str],
        pll: str | None = None,
        names: Sequence[str] | None = None,
        batch_tokens: int = 16384,
    ) -> list[Scored]:
        """A logarithm for every token of every text, and of its end where a model reads from left to right.

        pll: of masked models, how pseudo-log-likelihoods are taken: "within-word" (the default) or "plain". names: where
        each text is from, for messages: models that read in both directions refuse a text longer than their context.
        """
        kind = definition(self.learner, pll)
        encoded, strange = self.tokenizer.encode_batch_with_unknown(list(texts))
        if isinstance(self.learner, MaskedLM):
            enclosed = self.enclose(encoded, names)
            return [Scored(row, None) for row in pseudo(self.learner, enclosed, self.device, kind, batch_tokens)]
        ids, unknown = [part.tolist() for part in encoded], [word for words in strange for word in words]
        if self.backward:
            found = score(self.learner, [row[::-1] for row in ids], self.tokenizer.end_id, self.device, batch_tokens)  # type: ignore[arg-type]
            return [Scored(each.log_probs[::-1], each.end) for each in found]
        return score(
            self.learner,  # type: ignore[arg-type]
            ids,
            self.tokenizer.end_id,
            self.device,
            batch_tokens,
            spell=lambda flat: self.spell(flat, unknown),
        )

    def enclose(self, encoded: Sequence[Sequence[int] | np.ndarray], names: Sequence[str] | None = None) -> Enclosed:
        """As passages were in training, and no longer than they may be."""
        found = Enclosed(encoded, [self.tokenizer.first_id], [self.tokenizer.separator_id])
        found.check(self.learner.backbone.max_len, names)
        return found

    def evaluate_suite(
        self, suite: str, data: str | Path, pll: str | None = None, batch_tokens: int = 16384
    ) -> dict[str, Any]:
        """Minimal pairs: the share in which the good sentence has the higher score, by set, phenomenon and field."""
        if suite != "blimp":
            raise UsageError(f"--suite {suite}: there is no such suite; there is: blimp")
        told, started = self.definition(pll), time.monotonic()
        result = minimal_pairs(
            read_minimal(Path(data)),
            lambda texts, names: [sum(found.log_probs) for found in self.score(texts, pll, names, batch_tokens)],
        )
        seconds = round(time.monotonic() - started, 3)
        figures = {"suite": suite, "definition": told, **result}
        return figures | {"parameters": self.learner.size(), "seconds": seconds}

    # ---- gaps

    def fill(self, text: str, *, top: int = 5, joint: bool = False, beam: int = 64) -> list[list[Filled]]:
        """The likeliest words for every [MASK] (or <mask>) of a text: a list for each of them. joint: one list, of
        combinations for all of them, found by a beam over p(m1) · p(m2 | m1) · …"""
        learner = self.learner
        if not isinstance(learner, MaskedLM):
            raise UsageError(
                f"{self.folder} reads from left to right and does not see what comes after a gap: let it go on from what "
                f"comes before, with 'seqloom generate {self.folder} --prompt TEXT'"
            )
        if not 1 <= top <= 10_000 or not 1 <= beam <= 10_000:
            raise UsageError(f"top = {top}, beam = {beam}: each is between 1 and 10,000")
        ids, gaps = read_gaps(text, self.tokenizer)
        if not gaps:
            raise UsageError(f"no gap in {text[:60]!r}: write [MASK] (or <mask>) where a word is to be found")
        row = self.enclose([ids], ["the text"]).flat.tolist()
        places = [gap + 1 for gap in gaps]
        if joint:
            found = fill_jointly(learner, row, places, top, beam, self.device)
            return [[Filled(tokens, share, self.filled(ids, gaps, tokens)) for tokens, share in found]]
        return [
            [Filled(tokens, share, self.filled(ids, [gap], tokens)) for tokens, share in some]
            for gap, some in zip(gaps, fill_each(learner, row, places, top, self.device), strict=True)
        ]

    def filled(self, ids: list[int], gaps: list[int], tokens: list[int]) -> str:
        put = dict(zip(gaps, tokens, strict=True))
        return self.tokenizer.decode([put.get(i, token) for i, token in enumerate(ids)], specials=True)

    # ---- vectors

    def encode(
        self, texts: Sequence[str], layers: str | int = "last", pool: str = "mean", names: Sequence[str] | None = None
    ) -> np.ndarray | list[np.ndarray]:
        """A vector for each text, (N, D), in their order, an empty text being zeros; with pool "none" a list of (tokens, D).

        layers: "embedding", "last", "second-to-last", "sum", "sum4", "concat4", "mix", a number, or "all" for (N, layers, D).
        pool: "mean", "max" and "last" over a text's own tokens; "first": [CLS] where the model has it.
        """
        encoded, strange = self.tokenizer.encode_batch_with_unknown(list(texts))
        unknown = [word for words in strange for word in words]
        rows = [row[::-1].copy() for row in encoded] if self.backward else encoded
        found, borders = self.encoder.encode(
            rows, str(layers), pool, names, spell=lambda flat: self.spell(flat, unknown)
        )
        if self.backward and pool == "none":  # in the order of the text
            return [part[::-1] for part in np.split(found, borders[1:-1])] if len(texts) else found
        return np.split(found, borders[1:-1]) if pool == "none" and len(texts) else found

    @cached_property
    def encoder(self) -> Encoder:
        tokenizer, backbone = self.tokenizer, self.learner.backbone
        around: tuple[list[int], list[int]] = ([tokenizer.end_id], [])  # as left-to-right models read
        if not backbone.causal:
            around = ([tokenizer.first_id], [tokenizer.separator_id])
        return Encoder(backbone, *around, self.device)

    # ---- characters

    def spell(self, ids: npt.ArrayLike, unknown: list[str]) -> Characters | None:
        """(T, C) the characters of a text, if the model reads those of unknown words."""
        if not self.characters:
            return None
        return spelt(ids, unknown, self.tokenizer, self._spellings)

    @cached_property
    def _spellings(self) -> Characters:
        return spelling_table(self.tokenizer, self.characters)

"""An objective of a third kind: each word from the words around it. It has no next word and hides nothing."""

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, Excerpt, Loss, Objective, State, pack, to_device
from seqloom.batches.plan import Pieces, excerpt
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.evaluate.evaluators import EncodedTexts, Evaluator, HeldOutText
from seqloom.evaluate.score import Scored
from seqloom.training.share import ALONE, Share


class MiddleWord(Objective):
    evaluator = "tests.planted.middle_word:MiddleWordEvaluator"

    class Config(BaseConfig):
        pass

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return super().fits(model) and not model.causal

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__()
        self.backbone = backbone
        self.softmax = Softmax(backbone.dim, backbone.vocab_size, None, bias=True)
        self.softmax.init_weights(std=0.02, tied=False)

    def forward(self, example: Excerpt, carry: State | None = None) -> Loss:
        real = example.targets != IGNORE  # filler is no word of anybody
        words = example.batch.ids.where(real, IGNORE)
        return Loss(self.softmax(self.backbone(example.batch).hidden, words), real.sum())

    def losses(self, example: Any) -> Tensor:
        return self.softmax(self.backbone(example).hidden, example.ids, each=True)


class MiddleWordEvaluator(Evaluator):
    definitions = {"around": "Σ log p(word | the words around it)"}  # noqa: RUF012
    word_definitions = definitions

    @torch.no_grad()
    def measure(
        self, prepared: HeldOutText, limit: int | None = None, share: Share = ALONE, title: str = ""
    ) -> dict[str, Any]:
        split, nats, tokens = prepared.split, 0.0, 0
        last = len(split.offsets) - 1 if limit is None else int(np.searchsorted(split.offsets, limit))
        documents = list(pairwise(split.offsets[: last + 1].tolist()))

        def add_up(number: int) -> tuple[float, int]:
            start, end = documents[number]
            pieces = Pieces(np.array([start]), np.array([end - start]), np.zeros(1, np.int64))
            found = self.learner.losses(to_device(excerpt(split, pieces, end - start).batch, self.device))
            return float(found.double().sum()), len(found)

        for own_nats, own_tokens in share.each(len(documents), add_up):
            nats, tokens = nats + own_nats, tokens + own_tokens
        return {"loss": nats / tokens, "perplexity_around": math.exp(nats / tokens), "tokens": tokens}

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        return self.measure(text)

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "around")
        return "around"

    @torch.no_grad()
    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        rows: Sequence[Any] = [np.asarray(row).tolist() for row in texts.ids]
        found = [self.learner.losses(to_device(pack([row]), self.device)) for row in rows]
        return [Scored((-each.double()).tolist(), None) for each in found]

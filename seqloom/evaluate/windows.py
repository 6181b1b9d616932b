"""Evaluation of skip-gram and CBOW on held-out text: the mean loss, with windows and negatives that are the same every time."""

from typing import Any, NoReturn

import numpy as np
import torch

from seqloom.batch import to_device
from seqloom.batches.plan import Pieces, cut_documents, excerpt, portions
from seqloom.errors import UsageError
from seqloom.evaluate.evaluators import EncodedTexts, Evaluator, HeldOutText
from seqloom.progress import Progress
from seqloom.randomness import derive_seed
from seqloom.training.share import ALONE, Share

AT_ONCE = 16384  # tokens


class WindowEvaluator(Evaluator):
    no_scores = "has vectors of words and no probability of a text"
    definitions = {"none": f"it {no_scores}"}  # noqa: RUF012
    word_definitions = definitions

    @torch.no_grad()
    def measure(
        self, prepared: Any, limit: int | None = None, share: Share = ALONE, title: str = "evaluate"
    ) -> dict[str, Any]:
        pieces = cut_documents(prepared.split.offsets, prepared.length)
        if limit is not None:
            most = max(int(np.searchsorted(np.cumsum(pieces.lengths), limit)), 1)
            pieces = Pieces(*(part[:most] for part in pieces))
        batches = list(portions([pieces.lengths], [AT_ONCE]))

        def add_up(number: int) -> tuple[float, int, int]:
            cut = excerpt(prepared.split, Pieces(*(part[batches[number]] for part in pieces)), prepared.length)
            # windows and negatives of a batch are its own, whoever computes it
            rng = torch.Generator().manual_seed(derive_seed(0, number))
            example = to_device(self.learner.corrupt(cut, rng), self.device)
            loss = self.learner(example)
            return float(loss.total), int(loss.count), example.words

        nats, count, tokens, training = 0.0, 0, 0, self.learner.training
        self.learner.eval()
        try:
            with Progress(title, total=float(pieces.lengths.sum()), unit="tokens") as bar:
                for own_nats, own_count, words in share.each(len(batches), add_up):
                    nats, count, tokens = nats + own_nats, count + own_count, tokens + words
                    bar.advance(words)
        finally:
            self.learner.train(training)
        return {"loss": nats / max(count, 1), "predictions": count, "tokens": tokens}

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        if options.get("carry"):
            raise UsageError("--carry is for models that carry a state: leave it out for this model, which has none")
        return self.measure(self.prepare(text))

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "none")
        return "none"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> NoReturn:
        raise UsageError(
            f"this model {self.no_scores}: ask for its neighbours, or evaluate it with --suite analogies or similarity"
        )

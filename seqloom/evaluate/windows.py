"""Evaluation of skip-gram and CBOW on held-out text: the mean loss, with windows and negatives that are the same every time."""

from typing import Any, NoReturn

import numpy as np
import torch

from seqloom.batch import to_device
from seqloom.batches.plan import Pieces, cut_documents, excerpt, portions
from seqloom.errors import UsageError
from seqloom.evaluate.evaluators import EncodedTexts, Evaluator, HeldOutText
from seqloom.evaluate.perplexity import Stop, never
from seqloom.progress import Progress

AT_ONCE = 16384  # tokens


class WindowEvaluator(Evaluator):
    no_scores = "has vectors of words and no probability of a text"
    definitions = {"none": f"it {no_scores}"}  # noqa: RUF012
    word_definitions = definitions

    @torch.no_grad()
    def measure(
        self, prepared: HeldOutText, limit: int | None = None, stop: Stop = never, title: str = "evaluate"
    ) -> dict[str, Any]:
        pieces = cut_documents(prepared.split.offsets, prepared.length)
        if limit is not None:
            most = max(int(np.searchsorted(np.cumsum(pieces.lengths), limit)), 1)
            pieces = Pieces(*(part[:most] for part in pieces))
        rng = torch.Generator().manual_seed(0)
        nats, count, tokens, training = 0.0, 0, 0, self.learner.training
        self.learner.eval()
        with Progress(title, total=float(pieces.lengths.sum()), unit="tokens") as bar:
            for some in portions([pieces.lengths], [AT_ONCE]):
                stop()
                cut = excerpt(prepared.split, Pieces(*(part[some] for part in pieces)), prepared.length)
                example = to_device(self.learner.corrupt(cut, rng), self.device)
                loss = self.learner(example)
                nats, count = nats + float(loss.total), count + int(loss.count)
                tokens += example.words
                bar.advance(example.words)
        self.learner.train(training)
        return {"loss": nats / max(count, 1), "predictions": count, "tokens": tokens}

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        if options.get("carry"):
            raise UsageError("--carry is for models that carry a state: leave it out for this model, which has none")
        return self.measure(text)

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "none")
        return "none"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> NoReturn:
        raise UsageError(
            f"this model {self.no_scores}: ask for its neighbours, or evaluate it with --suite analogies or similarity"
        )

"""Models of two directions: each is measured as the left-to-right model that it is, the backward one on mirrored text.

Both predict every word of every document, from its start or from its end, with the state carried along. `loss` is the mean of
the two, which is what is learnt from; perplexities and bits per byte are those of each direction.
"""

from typing import Any, cast

import numpy as np

from seqloom.batches.plan import Corpus
from seqloom.batches.store import Split
from seqloom.errors import UsageError
from seqloom.evaluate.evaluators import Cut, EncodedTexts, Evaluator, HeldOutText
from seqloom.evaluate.perplexity import clip_borders, perplexity
from seqloom.evaluate.score import Scored, score
from seqloom.training.share import Share

OF_EACH = ("perplexity", "bits_per_word", "bits_per_char", "bits_per_byte")


class Mirrored:
    """The first `limit` tokens of a text from their end, the end token before them included: every document is again a row of
    words and an end token."""

    def __init__(self, text: Split, limit: int | None = None):
        self.text, self.name, self.entry = text, text.name, text.entry
        borders = text.offsets if limit is None else clip_borders(text.offsets, limit)
        self.size = int(borders[-1])
        self.offsets = self.size - borders[::-1]
        self.num_documents = len(borders) - 1

    def spans(self, starts: np.ndarray, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Where the spans start in the text, and for each token of the mirrored ones its place in what is read there."""
        ends = np.cumsum(lengths)
        turned = np.repeat(2 * ends - lengths - 1, lengths) - np.arange(int(lengths.sum()))
        return self.size - 1 - starts - lengths, turned

    def read_many(self, starts: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        begin, turned = self.spans(starts, lengths)
        return self.text.read_many(begin, lengths)[turned]

    def characters_of(self, starts: np.ndarray, lengths: np.ndarray, ids: np.ndarray) -> np.ndarray | None:
        begin, turned = self.spans(starts, lengths)
        as_read = np.empty_like(ids)
        as_read[turned] = ids
        characters = self.text.characters_of(begin, lengths, as_read)
        return None if characters is None else characters[turned]


class BothDirectionsEvaluator(Evaluator):
    definitions = {  # noqa: RUF012
        "both": "½ Σ log p(token | the text before it) + ½ Σ log p(token | the text after it)"
    }
    word_definitions = {  # noqa: RUF012
        "both": "½ log p(word | the sentence before it) + ½ log p(word | the sentence after it), Σ over its tokens"
    }

    @property
    def reads(self) -> Cut:
        return "documents" if self.learner.direction(False).backbone.carries else "windows"

    def measure(self, prepared: HeldOutText, limit: int | None, share: Share, title: str) -> dict[str, Any]:
        return self.evaluate(prepared, warmup=prepared.warmup, limit=limit, share=share, title=title)

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        if options.pop("carry", False):
            raise UsageError("--carry is for models that read one way: leave it out for this model, which reads both")
        options.pop("items", None)  # of bits per byte, of which the two directions together have none
        title = options.pop("title", "") or "evaluate"
        found = []
        for backward, name in enumerate(("forward", "backward")):
            corpus: Corpus = Mirrored(text.split, options.get("limit")) if backward else text.split
            learner = self.learner.direction(bool(backward))
            found.append(perplexity(learner, cast(Split, corpus), self.device, title=f"{title}, {name}", **options))
        ahead, back = found
        result = {"loss": (ahead["loss"] + back["loss"]) / 2}
        result |= {f"{key}_forward": ahead[key] for key in OF_EACH if key in ahead}
        result |= {f"{key}_backward": back[key] for key in OF_EACH if key in back}
        return result | {key: value for key, value in ahead.items() if key not in ("loss", *OF_EACH)}

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "both")
        return "both"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        def spell_mirrored(flat: np.ndarray) -> np.ndarray | None:
            characters = texts.spell(flat[::-1])
            return None if characters is None else characters[::-1]

        rows = [np.asarray(row)[::-1] for row in texts.ids][::-1]
        ahead = score(self.learner.direction(False), texts.ids, texts.end_id, self.device, batch_tokens, texts.spell)
        back = score(self.learner.direction(True), rows, texts.end_id, self.device, batch_tokens, spell_mirrored)
        return [mean_of(left, right) for left, right in zip(ahead, back[::-1], strict=True)]


def mean_of(ahead: Scored, back: Scored) -> Scored:
    """Of each token the mean of both logarithms; of the ends likewise, that after the text and that before it."""
    each = [(left + right) / 2 for left, right in zip(ahead.log_probs, back.log_probs[::-1], strict=True)]
    return Scored(each, None if ahead.end is None or back.end is None else (ahead.end + back.end) / 2)

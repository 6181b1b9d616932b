"""Evaluation of objectives on held-out text, and how their models score texts.

An objective names its evaluator (`Objective.evaluator`); nothing else depends on the kind of objective. To add one, write a
class with these methods.
"""

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
import torch

from seqloom.batch import Objective
from seqloom.batches.languages import WithLanguage
from seqloom.batches.passages import Passages
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.batches.store import Split
from seqloom.config import named_object, unknown_name
from seqloom.errors import UsageError
from seqloom.evaluate.masked import HeldOut, masked_loss
from seqloom.evaluate.perplexity import half_context, perplexity
from seqloom.evaluate.pseudo import VARIANTS, pseudo, unreplaced_scores
from seqloom.evaluate.score import Scored, score
from seqloom.training.share import ALONE, Share

Cut = Literal["passages", "windows", "documents"]  # how held-out text is read: as in training, or from left to right


class HeldOutText(NamedTuple):
    """One split, and how a recipe reads it."""

    split: Split
    passages: Callable[[str], Passages | WithLanguage]  # of a form, such as "single", in the full length
    length: int  # of a window during training
    stride: int | None = None
    warmup: int | None = None


class EncodedTexts(NamedTuple):
    """Texts as tokens, for models of every kind."""

    ids: Sequence[Sequence[int] | np.ndarray]
    add_special_tokens: Callable[[], SpecialTokenTexts]  # with their special tokens; DataError where one is too long
    spell: Callable[[np.ndarray], np.ndarray | None]  # the characters of all of them end to end, if they are read
    end_id: int
    backward: bool = False  # they are read from their end


class Evaluator:
    """What evaluates the models of an objective, and scores texts with them."""

    # what a score is, by its name: of whole texts, and of a word in its sentence
    definitions: dict[str, str]
    word_definitions: dict[str, str]
    no_scores: str | None = None  # why its models score no texts

    def __init__(self, learner: Any, device: torch.device):
        self.learner, self.device = learner, device

    @property
    def reads(self) -> Cut:
        """How held-out text is read unless it is said how long windows are."""
        return "passages"

    def prepare(self, text: HeldOutText) -> Any:
        """Prepares what several evaluations on one text share."""
        return text

    def measure(self, prepared: Any, limit: int | None, share: Share, title: str) -> dict[str, Any]:
        """Evaluates during training, on about `limit` tokens: "loss" in nats, and more. prepared: the result of `prepare`;
        share: of the work that is done here."""
        raise NotImplementedError

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        """Evaluates on a split, as `evaluate --data` reports it."""
        raise NotImplementedError

    def definition(self, variant: str | None, backward: bool) -> str:
        """The name of the definition of scores. variant: the one asked for; raises UsageError where there is no choice."""
        raise NotImplementedError

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        """The log-probability of every token. asked: (T,) over all tokens end to end, which are needed: the others may get
        0 where that saves work."""
        raise NotImplementedError

    def reject_variant(self, variant: str | None, definition: str) -> None:
        if variant is None:
            return
        if variant not in VARIANTS:
            raise UsageError(unknown_name("--pll", variant, variant, list(VARIANTS)))
        raise UsageError(
            f"--pll {variant} is for masked models; this one is scored by {self.definitions[definition]}: leave it out"
        )


def evaluator_of(learner: Objective, device: torch.device) -> Evaluator:
    return named_object(learner.evaluator)(learner, device)


class LeftToRightEvaluator(Evaluator):
    definitions = {  # noqa: RUF012
        "causal": "Σ log p(token | the text before it)",
        "backward": "Σ log p(token | the text after it)",
    }
    word_definitions = {  # noqa: RUF012
        "causal": "log p(word | the sentence before it): Σ over its tokens; what comes after is not read",
        "backward": "Σ log p(token | the text after it) over the whole sentence with the word",
    }

    @property
    def reads(self) -> Cut:
        return "documents" if self.learner.backbone.carries else "windows"

    def measure(self, prepared: HeldOutText, limit: int | None, share: Share, title: str) -> dict[str, Any]:
        return perplexity(
            self.learner,
            prepared.split,
            self.device,
            stride=prepared.stride,
            max_len=None if self.learner.backbone.carries else prepared.length,
            warmup=prepared.warmup,
            limit=limit,
            share=share,
            title=title,
        )

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        """A stride that is not given is half of the context."""
        if options.get("stride") is None:
            options["stride"] = half_context(self.learner, options.get("max_len"))
        return perplexity(self.learner, text.split, self.device, **options)

    def definition(self, variant: str | None, backward: bool) -> str:
        name = "backward" if backward else "causal"
        self.reject_variant(variant, "causal")
        return name

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        if not texts.backward:
            return score(self.learner, texts.ids, texts.end_id, self.device, batch_tokens, texts.spell)
        rows = [row[::-1] for row in texts.ids]
        found = score(self.learner, rows, texts.end_id, self.device, batch_tokens)
        return [Scored(each.log_probs[::-1], each.end) for each in found]


class MaskedEvaluator(Evaluator):
    definitions = {  # noqa: RUF012
        "within-word": "pseudo-log-likelihood, within-word: Σ log p(token | the text without it and the rest of its word)",
        "plain": "pseudo-log-likelihood: Σ log p(token | the text without it)",
    }
    word_definitions = {  # noqa: RUF012
        "within-word": "log p(word | the sentence before and after it): Σ over its tokens, each hidden with the rest of the word",
        "plain": "log p(word | the sentence before and after it): Σ over its tokens, each hidden alone",
    }

    def prepare(self, text: HeldOutText, forms: Sequence[str] = ()) -> HeldOut:
        return {form: text.passages(form) for form in dict.fromkeys((self.learner.form, "single", *forms))}

    def measure(
        self, prepared: HeldOut, limit: int | None = None, share: Share = ALONE, title: str = "evaluate"
    ) -> dict[str, Any]:
        return masked_loss(self.learner, prepared, self.device, limit=limit, share=share, title=title)

    def evaluate(self, text: HeldOutText, **options: Any) -> dict[str, Any]:
        if options.get("carry"):
            raise UsageError("--carry is for models that carry a state: leave it out for this model, which has none")
        forms = options.get("forms", ())
        return masked_loss(self.learner, self.prepare(text, forms), self.device, by_form=bool(forms))

    def definition(self, variant: str | None, backward: bool) -> str:
        if variant is not None and variant not in VARIANTS:
            self.reject_variant(variant, "plain")
        return variant or "within-word"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        rows = pseudo(self.learner, texts.add_special_tokens(), self.device, definition, batch_tokens, asked)
        return [Scored(row, None) for row in rows]


class ReplacedEvaluator(MaskedEvaluator):
    definitions = {"replaced": "Σ log(1 − p(replaced))"}  # noqa: RUF012
    word_definitions = {"replaced": "Σ log(1 − p(replaced)) over the whole sentence with the word"}  # noqa: RUF012

    def definition(self, variant: str | None, backward: bool) -> str:
        self.reject_variant(variant, "replaced")
        return "replaced"

    def score(
        self, texts: EncodedTexts, definition: str, batch_tokens: int, asked: np.ndarray | None = None
    ) -> list[Scored]:
        return [
            Scored(row, None)
            for row in unreplaced_scores(self.learner, texts.add_special_tokens(), self.device, batch_tokens)
        ]

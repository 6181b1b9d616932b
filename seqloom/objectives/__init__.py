"""The objectives, which learn from plain text. Adding an objective is one file here and one line in OBJECTIVES."""

from typing import TYPE_CHECKING

from seqloom.config import named_class

if TYPE_CHECKING:
    from seqloom.batch import Backbone, Objective

OBJECTIVES = {
    "next-token": "next_token:NextToken",
    "scheduled-sampling": "scheduled:ScheduledSampling",
    "regularized": "regularized:Regularized",
    "bidirectional": "bidirectional:Bidirectional",
    "counts": "counted:Counted",
    "skip-gram": "skip_gram:SkipGram",
    "cbow": "cbow:Cbow",
    "glove": "glove:LogCounts",
    "permuted": "permuted:PermutedLM",
    "masked": "masked:MaskedLM",
    "next-sentence": "next_sentence:NextSentence",
    "sentence-order": "sentence_order:SentenceOrder",
    "replaced-token": "replaced:ReplacedToken",
    "denoising": "denoising:Denoising",
}


def objective_class(name: str) -> "type[Objective]":
    return named_class("objective", name, OBJECTIVES, __name__)


def fitting_objectives(model: "type[Backbone]") -> list[str]:
    """The names of the objectives that a model can be trained with."""
    return [name for name in OBJECTIVES if objective_class(name).fits(model)]

"""What a run is trained on: prepared text, pairs, tagged sentences or labelled examples."""

from typing import Any, Protocol

import torch

from seqloom.batch import Learner, Vocabulary
from seqloom.batches.plan import Batches
from seqloom.randomness import derive_seed
from seqloom.recipes.schema import Recipe
from seqloom.runs.beside import BesideRuns
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.training.loop import Precompute
from seqloom.training.share import Share
from seqloom.training.state import Budget


class Dataset(Protocol):
    """The data of a run: its batches for training, and its held-out part for evaluation."""

    recipe: Recipe  # with what follows from the data: classes, when to validate
    beside: BesideRuns | None  # other runs whose features its examples have
    source_tokenizer: Tokenizer | None  # of the sources of pairs, if they have a vocabulary of their own

    @property
    def tokenizer(self) -> Tokenizer: ...
    @property
    def num_tokens(self) -> int:
        """The tokens of a training epoch, as a budget counts them."""

    @property
    def words(self) -> float: ...
    @property
    def vocabulary(self) -> Vocabulary:
        """What a learner may ask about the vocabulary before training."""

    @property
    def summary(self) -> str:
        """The training data in a few words."""

    @property
    def validates(self) -> bool:
        """Whether there are held-out examples to choose the best weights by."""

    @property
    def scored(self) -> tuple[str, ...]:
        """The splits on which a finished run is scored."""

    def batches(self, epochs: float, shapes: str) -> Batches:
        """The training batches. epochs: how many the run has; shapes: "free", or on a GPU "row" and "grid", which repeat."""

    def evaluate(self, learner: Any, device: torch.device, share: Share) -> dict[str, Any]:
        """Evaluates during training, on the valid split: "loss", and more. share: of the work that is done here."""

    def precompute(self, learner: Any, device: torch.device, budget: Budget) -> Precompute | None:
        """What is computed once, before the first step, instead of in each epoch of the budget. None: nothing."""

    def calibrate(self, run: Any) -> None:
        """Fits what a task's settings ask for to the valid split, before a finished run is scored."""

    def score(self, run: Any, split: str, share: Share) -> dict[str, Any]:
        """The scores of a finished run on a split."""

    def source(self) -> dict[str, Any]:
        """The entry of config.json about the data: folder or files, and a fingerprint."""

    def describe(self) -> dict[str, Any]:
        """The data as the card shows it: splits with their documents, words, tokens and bytes; the sources; the tokenizer."""


def build_learner(dataset: Dataset, seed: int, plugin: Any = None) -> Learner:
    """The learner of a dataset's recipe, with initial weights drawn from the seed."""
    with torch.random.fork_rng():
        torch.manual_seed(derive_seed(seed))  # the values that the weights start from
        learner: Learner = dataset.recipe.learner(dataset.tokenizer.vocab_size, plugin)
    learner.set_vocabulary(dataset.vocabulary)
    return learner

"""What a learner may ask about its vocabulary. It is part of the contract, and imported from `batch`."""

from typing import Protocol

from torch import Tensor

MOST_SENTINELS = 100  # as T5 has


class Vocabulary(Protocol):
    """What a learner may ask about the vocabulary before training; each answer is computed only when asked for."""

    @property
    def has_counts(self) -> bool:
        """Whether there is a text in which words can be counted: a task has examples alone."""

    def counts(self) -> Tensor:
        """(V,) how often each token occurs in the training text."""

    def spellings(self, longest: int) -> Tensor:
        """(V, C ≤ longest) the characters of each token, as `tokens.spelling` numbers them."""

    def continues(self) -> Tensor:
        """(V,) which tokens continue the word of the token before them."""

    def specials(self) -> list[int]:
        """The special tokens."""

    def words(self) -> list[str]:
        """The text of each token, without the space before it; of special tokens none."""

    def mask(self) -> int:
        """The mask token. Raises ModelError where there is none."""

    def stops(self) -> Tensor:
        """(V,) which tokens end with a mark that ends sentences."""

    def frame(self) -> tuple[int, int, int]:
        """The first token of a text, the separator, and the end of a document."""

    def sentinels(self) -> list[int]:
        """The tokens <extra_id_0>, <extra_id_1> and so on."""

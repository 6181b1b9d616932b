"""Texts in memory, each between the tokens that its model has around a text: what a trained model is asked about."""

from collections.abc import Sequence

import numpy as np
import torch

from seqloom.batch import APART, Ragged, ragged
from seqloom.errors import DataError


class SpecialTokenTexts:
    """flat: all of them end to end. characters: (T, C) of `flat`, for a model that reads them. apart: the last token of each has
    a segment of its own."""

    characters: np.ndarray | None = None

    def __init__(
        self,
        texts: Sequence[Sequence[int] | np.ndarray],
        before: Sequence[int],
        after: Sequence[int],
        apart: bool = False,
    ):
        self.sizes = np.array([len(text) for text in texts], np.int64)  # without what is around them
        self.lengths = self.sizes + len(before) + len(after)
        self.starts = np.cumsum(self.lengths) - self.lengths
        self.before, self.apart = len(before), apart
        whole = [np.array([*before, *text, *after], np.int64) for text in texts]
        self.flat = np.concatenate(whole) if whole else np.zeros(0, np.int64)

    def check(self, limit: int | None, names: Sequence[str] | None = None) -> None:
        """Refuses a text that is longer than the model reads. names: where each is from, else its number."""
        for i in np.flatnonzero(self.lengths > limit).tolist() if limit is not None else ():
            around = int(self.lengths[i] - self.sizes[i])
            raise DataError(
                f"{names[i] if names is not None else f'text {i + 1}'} has {self.sizes[i]:,} tokens and {around} special tokens, "
                f"but the model reads at most {limit:,}: split it into sentences"
            )

    def batch(self, texts: np.ndarray) -> Ragged:
        """These texts, of which one may come several times."""
        lengths = self.lengths[texts]
        first = np.cumsum(lengths) - lengths
        where = np.arange(int(lengths.sum())) + np.repeat(self.starts[texts] - first, lengths)
        found = ragged(torch.from_numpy(self.flat[where]), torch.from_numpy(lengths))
        if self.apart:
            found = found._replace(
                segments=torch.zeros_like(found.ids).index_fill(0, found.offsets[1:].long() - 1, APART)
            )
        if self.characters is None:
            return found
        return found._replace(chars=torch.from_numpy(self.characters[where]))

"""What a learner may ask about the words of a prepared text before it learns (`batch.Vocabulary`)."""

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.store import Split
from seqloom.errors import ModelError
from seqloom.text.sentences import STOPS
from seqloom.tokens.spelling import spelling_table
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.words import WORD_START, continues, texts_of

AT_ONCE = 1 << 24  # tokens


class PreparedVocabulary:
    """train: the text that words are counted in, where there is one; several of it: a language each."""

    def __init__(self, tokenizer: Tokenizer, train: Sequence[Split] = ()):
        self.tokenizer, self.train = tokenizer, train

    @property
    def has_counts(self) -> bool:
        return bool(self.train)

    def counts(self) -> Tensor:
        assert self.train, "words can be counted in a text only"
        counts = np.zeros(self.tokenizer.vocab_size, np.int64)
        for split in self.train:
            for start in range(0, split.num_tokens, AT_ONCE):
                ids = split.read(start, min(start + AT_ONCE, split.num_tokens))
                counts += np.bincount(ids, minlength=len(counts))[: len(counts)]
        return torch.from_numpy(counts)

    def spellings(self, longest: int) -> Tensor:
        return torch.from_numpy(spelling_table(self.tokenizer, longest))

    def continues(self) -> Tensor:
        return torch.from_numpy(continues(self.tokenizer))

    def specials(self) -> list[int]:
        return sorted(
            {*self.tokenizer.special_ids.values(), *([] if self.tokenizer.unk_id is None else [self.tokenizer.unk_id])}
        )

    def words(self) -> list[str]:
        return [text.replace(WORD_START, " ").strip() for text in texts_of(self.tokenizer)]

    def mask(self) -> int:
        if self.tokenizer.mask_id is None:
            raise ModelError(
                f"{self.tokenizer.where} has no mask token, which the objective needs: use a tokenizer that has "
                "'<mask>' or '[MASK]', or learn one with 'seqloom prepare'"
            )
        return self.tokenizer.mask_id

    def stops(self) -> Tensor:
        return torch.tensor([word.endswith(tuple(STOPS)) for word in self.words()])

    def frame(self) -> tuple[int, int, int]:
        return self.tokenizer.first_id, self.tokenizer.separator_id, self.tokenizer.end_id

    def sentinels(self) -> list[int]:
        known = self.tokenizer.special_ids
        found: list[int] = []
        while (number := known.get(f"<extra_id_{len(found)}>")) is not None:
            found.append(number)
        return found

"""What a learner may ask about the words of a prepared text before it learns (`batch.Vocabulary`)."""

import numpy as np
import torch
from torch import Tensor

from seqloom.batches.store import Split
from seqloom.tokens.spelling import spelling_table
from seqloom.tokens.tokenizer import Tokenizer

AT_ONCE = 1 << 24  # tokens


class PreparedVocabulary:
    def __init__(self, tokenizer: Tokenizer, train: Split):
        self.tokenizer, self.train = tokenizer, train

    def counts(self) -> Tensor:
        counts = np.zeros(self.tokenizer.vocab_size, np.int64)
        for start in range(0, self.train.num_tokens, AT_ONCE):
            ids = self.train.read(start, min(start + AT_ONCE, self.train.num_tokens))
            counts += np.bincount(ids, minlength=len(counts))[: len(counts)]
        return torch.from_numpy(counts)

    def spellings(self, longest: int) -> Tensor:
        return torch.from_numpy(spelling_table(self.tokenizer, longest))

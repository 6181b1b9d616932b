"""Sampled softmax: learning from the target and some other words. Bengio & Senécal, 2008; Jean et al., 2015 (arXiv 1412.2007).

The sum over the vocabulary in  −log p(t) = log Σ exp(s_w) − s_t  is estimated from S different words, drawn for a whole
batch, the frequent ones more often. Each stands for 1/π words, π the number of times it was to be expected among the S
(between 0 and 1), so that the expected value of the sum is the true one:

    exp(s_t)  +  Σ over the drawn w ≠ t  exp(s_w − log π_w)

Every word has a clock that rings after an exponential time at a rate from Zipf's law; the S that ring first are drawn.
With τ the time of the next one, π = 1 − exp(−rate · τ) makes the estimate unbiased (Duffield et al., 2007, for sums in
general), and with S = V it is the full softmax. Departures: the papers draw with replacement, or until S are together,
and correct the target's score too; here it is always there, once. Measurements use the full softmax.
"""

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import IGNORE, Vocabulary
from seqloom.blocks.ranks import Ranks
from seqloom.blocks.softmax import Softmax


class SampledSoftmax(Softmax):
    """In training the loss of a target costs `samples` scores, not V; else it is the full softmax in everything."""

    def __init__(self, dim: int, vocab_size: int, samples: int, bias: bool = False):
        super().__init__(dim, vocab_size, bias=bias)
        self.samples = min(samples, vocab_size)
        self.ranks = Ranks(vocab_size)

    @property
    def multiplied(self) -> int:
        return self.samples * self.weight.shape[1]

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.ranks.set_vocabulary(vocabulary.counts())

    def validate_loaded(self) -> None:
        self.ranks.validate_loaded()

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        each: bool = False,
        smoothing: float = 0.0,
        weights: Tensor | None = None,
    ) -> Tensor:
        if targets is None or each or not self.training or weights is not None:
            return super().forward(hidden, targets, each, smoothing, weights)
        return self.estimate(hidden, targets, *self.draw())

    def draw(self) -> tuple[Tensor, Tensor]:
        """(S,) different words, and the logarithm of how often each was to be expected among them."""
        rate = self.ranks.zipf()
        if self.samples == len(rate):
            return torch.arange(len(rate), device=rate.device), torch.zeros_like(rate)
        times, words = (torch.empty_like(rate).exponential_() / rate).topk(self.samples + 1, largest=False)
        drawn = words[:-1]
        return drawn, torch.log(-torch.expm1(-rate[drawn] * times[-1]))

    def estimate(self, hidden: Tensor, targets: Tensor, drawn: Tensor, log_count: Tensor) -> Tensor:
        """The summed loss; its scores (T, S) are kept for the backward pass."""
        wanted = targets.clamp(min=0)
        own = (hidden * F.embedding(wanted, self.weight)).sum(1)
        bias = None if self.bias is None else self.bias[drawn]
        others = F.linear(hidden, F.embedding(drawn, self.weight), bias).to(own.dtype) - log_count
        others = others.masked_fill(drawn == wanted[:, None], float("-inf"))  # the target is in the sum already
        if self.bias is not None:
            own = own + self.bias[wanted]
        scores = torch.cat((own[:, None], others), dim=1)
        first = torch.where(targets == IGNORE, IGNORE, 0)
        return F.cross_entropy(scores, first, ignore_index=IGNORE, reduction="sum")

"""Language modelling by counts: interpolated modified Kneser–Ney smoothing. Chen & Goodman, 1998 (TR-10-98).

    p(w | u v…) = (c(u v… w) − D(c)) / c(u v… •)  +  left(u v…) · p(w | v…)

down to 1/V under the single words, so that every history's probabilities sum to 1 over the whole vocabulary. The longest
runs have their counts; shorter ones the number of different words that stand before them, but for those that begin with
the start of a document: nothing stands before it, and they keep their counts (as KenLM has it). D has three values an
order, for counts of 1, 2 and more; `left` is what they took away, and is 1 after what was never seen.
"""

import math

import torch
from torch import Tensor, nn

from seqloom.batch import IGNORE, Backbone
from seqloom.blocks.trie import Trie
from seqloom.config import Config as BaseConfig
from seqloom.models.ngram import Ngram
from seqloom.objectives.next_token import LeftToRight

FALLBACK = (0.5, 1.0, 1.5)  # discounts where none follow from the counts


class KneserNey(nn.Module):
    """hidden (T, order), the numbers of the runs before a word → log-probabilities, in fp64."""

    discounts: Tensor  # (order, 3) for counts of 1, 2, and 3 or more

    def __init__(self, trie: Trie):
        super().__init__()
        self.trie, self.order = trie, trie.order
        self.register_buffer("discounts", torch.tensor([FALLBACK] * self.order, dtype=torch.float64))
        for k in range(1, self.order + 1):
            size = trie.size(k)
            self.register_buffer(f"counts{k}", torch.zeros(size, dtype=torch.int32))
            # made from the counts; one entry more, which the number −1 of the unknown leads to
            share, left = torch.zeros(size + 1, dtype=torch.float64), torch.ones(trie.size(k - 1) + 1).double()
            self.register_buffer(f"share{k}", share, persistent=False)  # of a run's last word, after the discount
            self.register_buffer(f"left{k}", left, persistent=False)  # what a run leaves to the shorter one

    @property
    def device(self) -> torch.device:
        return self.get_buffer("counts1").device

    def validate_loaded(self) -> None:
        """Checks the counts and makes the shares from them. ValueError where they cannot be counts."""
        if not bool(((self.discounts > 0) & (self.discounts <= torch.arange(1, 4, device=self.device))).all()):
            raise ValueError("a discount is not above 0 and at most the count that it is taken from")
        self.trie.check()
        for k in range(1, self.order + 1):
            counts, size = self.get_buffer(f"counts{k}"), self.trie.size(k)
            if counts.shape[0] != size or (size and int(counts.min()) < min(k - 1, 1)):
                raise ValueError(f"the counts do not fit the {size:,} {k}-grams")
            before = torch.zeros_like(counts).long() if k == 1 else self.trie.keys(k) // self.trie.vocab_size
            taken = torch.cat((self.discounts.new_zeros(1), self.discounts[k - 1]))[counts.clamp(max=3).long()]
            nothing = taken.new_zeros(self.trie.size(k - 1))
            total = nothing.index_add(0, before, counts.to(taken.dtype))
            left = torch.where(total > 0, nothing.index_add(0, before, taken) / total.clamp(min=1), 1.0)
            share = (counts - taken) / total.clamp(min=1)[before]
            self.register_buffer(f"share{k}", torch.cat((share, share.new_zeros(1))), persistent=False)
            self.register_buffer(f"left{k}", torch.cat((left, left.new_ones(1))), persistent=False)

    def forward(self, hidden: Tensor, targets: Tensor | None = None, each: bool = False) -> Tensor:
        """Without targets log p (T, V); with targets the summed loss; with each=True the loss of every target (T,)."""
        if targets is None:
            return self.distribution(hidden).log()
        words = targets.clamp(min=0)
        p = torch.full(words.shape, 1 / self.trie.vocab_size, dtype=torch.float64, device=words.device)
        for k in range(1, self.order + 1):
            share, left = self.get_buffer(f"share{k}"), self.get_buffer(f"left{k}")
            before = hidden[:, k - 1]
            p = share[self.trie.find(k, before, words)] + left[before] * p
        losses = torch.where(targets == IGNORE, 0.0, -p.log())
        return losses if each else losses.sum()

    def distribution(self, hidden: Tensor) -> Tensor:
        """(T, V): the single words', to which each longer run adds what is known to follow it."""
        share, left = self.get_buffer("share1"), self.get_buffer("left1")
        p = (share[:-1] + left[0] / self.trie.vocab_size).repeat(hidden.shape[0], 1)
        for k in range(2, self.order + 1):
            before = hidden[:, k - 1]
            row, number, word = self.trie.following(k, before)
            p *= self.get_buffer(f"left{k}")[before][:, None]
            p[row, word] += self.get_buffer(f"share{k}")[number]
        return p


class Counted(LeftToRight):
    """Learns by counting (training/count.py). Without counts every word is equally likely."""

    backbone: Ngram
    softmax: KneserNey
    count_based = True

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return issubclass(model, Backbone) and model.learns_from == "counts"

    class Config(BaseConfig):
        pass

    def __init__(self, backbone: Ngram, config: Config):
        super().__init__()
        self.backbone, self.softmax = backbone, KneserNey(backbone.trie)

    def initial_loss(self) -> float:
        return math.log(self.backbone.trie.vocab_size)

    def size(self) -> int:
        """How many n-grams it has counts of."""
        counts = [self.softmax.get_buffer(f"counts{k}") for k in range(1, self.backbone.order + 1)]
        return sum(int((c > 0).sum()) for c in counts)

    def resize_to(self, tensors: dict[str, Tensor]) -> None:
        for k in range(2, self.backbone.order + 1):
            for part, name in (("backbone.trie", f"keys{k}"), ("softmax", f"counts{k}")):
                given, module = tensors.get(f"{part}.{name}"), self.get_submodule(part)
                if given is not None and given.ndim == 1 and given.dtype == module.get_buffer(name).dtype:
                    module.register_buffer(name, given)

    def validate_loaded(self) -> None:
        self.softmax.validate_loaded()

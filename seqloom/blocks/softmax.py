"""The output layer: scores over the vocabulary, and the loss without ever holding all of them.

At V = 50k the scores of a batch are its largest tensor by far. The loss is therefore taken chunk by chunk, and each
chunk's gradient at once, while its scores are at hand: nothing of size T × V is kept, and nothing is computed twice.
"""

from functools import cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from seqloom.batch import IGNORE, Vocabulary, wide
from seqloom.blocks.uncompiled import uncompiled

# the scores of one chunk, in fp32: small enough for a CPU's caches, large enough for a GPU's matrix units
CHUNK_BYTES = {"cpu": 64 << 20, "cuda": 2 << 30}
BLOCK = 64  # rows of the weight, for a GPU


class Softmax(nn.Module):
    """hidden (N, D) → log-probabilities. `table`: share the weight of these input embeddings (Press & Wolf, 2017)."""

    def __init__(self, dim: int, vocab_size: int, table: nn.Embedding | None = None, bias: bool = False):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(vocab_size, dim)) if table is None else table.weight
        self.bias = nn.Parameter(torch.empty(vocab_size)) if bias else None

    @property
    def device(self) -> torch.device:
        return self.weight.device

    @property
    def multiplied(self) -> int:
        """How many numbers of its weights a target is multiplied with while learning, on average."""
        return self.weight.numel()

    def init_weights(self, std: float, tied: bool = False) -> None:
        if not tied:
            nn.init.normal_(self.weight, std=std)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """It needs nothing of the vocabulary."""

    def validate_loaded(self) -> None:
        """Nothing to check: any numbers are valid."""

    def forward(
        self,
        hidden: Tensor,
        targets: Tensor | None = None,
        each: bool = False,
        smoothing: float = 0.0,
        weights: Tensor | None = None,
    ) -> Tensor:
        """Without targets the scores (T, V); with targets the summed loss; with each=True the loss of every target (T,).

        smoothing: this share of every target is spread evenly over all words (Szegedy et al., 2015, arXiv 1512.00567).
        weights: (T,) how much each target counts in the sum.
        """
        if targets is None:
            return F.linear(hidden, self.weight, self.bias)
        rows = chunk_rows(hidden, self.weight.shape[0])
        if each:
            parts = zip(hidden.split(rows), targets.split(rows), strict=True)
            return torch.cat([_losses(F.linear(h, self.weight, self.bias), t, smoothing) for h, t in parts])
        return self.summed(hidden, targets, rows, smoothing, weights)

    # Dynamo of torch 2.11 traces the function below but loses its gradients; what is worth compiling in it is, apart
    @uncompiled
    def summed(
        self, hidden: Tensor, targets: Tensor, rows: int, smoothing: float = 0.0, weights: Tensor | None = None
    ) -> Tensor:
        if torch.is_autocast_enabled(hidden.device.type):
            hidden = hidden.to(torch.get_autocast_dtype(hidden.device.type))
        if not torch.is_grad_enabled():  # the function below cannot tell
            losses = self(hidden, targets, each=True, smoothing=smoothing)
            return (losses if weights is None else losses * weights).sum()
        return ChunkedLoss.apply(hidden, self.weight, self.bias, targets, rows, smoothing, weights)


def chunk_rows(hidden: Tensor, vocab_size: int) -> int:
    """Equal chunks, where the number of tokens allows it: one shape for the compiled part."""
    limit = CHUNK_BYTES.get(hidden.device.type, CHUNK_BYTES["cpu"])
    chunks = -(-hidden.shape[0] * vocab_size * 4 // limit)
    return max(256, -(-hidden.shape[0] // (1 << (chunks - 1).bit_length()))) if chunks > 0 else 256


def _losses(scores: Tensor, targets: Tensor, smoothing: float) -> Tensor:
    return F.cross_entropy(wide(scores), targets, ignore_index=IGNORE, reduction="none", label_smoothing=smoothing)


class ChunkedLoss(torch.autograd.Function):
    """Sum of cross-entropies of hidden · weightᵀ + bias; gradients are made in the forward pass, chunk by chunk."""

    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        rows: int,
        smoothing: float,
        weights: Tensor | None = None,
    ) -> Tensor:
        words, dim = weight.shape
        narrow = for_products(weight, hidden)  # in their type; sums stay in the type of the weight
        if narrow.shape[1] > dim:
            hidden = F.pad(hidden, (0, narrow.shape[1] - dim))
        total = torch.zeros((), dtype=weight.dtype, device=hidden.device)
        d_hidden = torch.empty_like(hidden)
        d_weight = torch.zeros_like(weight)
        d_bias = torch.zeros_like(bias) if bias is not None else None
        differentiate = _compiled_slope() if hidden.is_cuda else slope
        for start in range(0, hidden.shape[0], rows):
            part, wanted = hidden[start : start + rows], targets[start : start + rows]
            counts = None if weights is None else weights[start : start + rows]
            found = differentiate(part @ narrow.T, bias, wanted, weight.dtype, smoothing, counts, words)
            loss, d_scores, index, d_right = found
            d_scores.scatter_(1, index, d_right)
            total += loss
            if d_bias is not None:
                d_bias += d_scores[:, :words].sum(0, dtype=d_bias.dtype)
            torch.mm(d_scores, narrow, out=d_hidden[start : start + rows])
            if d_scores.dtype == d_weight.dtype:
                d_weight.addmm_(d_scores[:, :words].T, part[:, :dim])
            else:
                d_weight += (d_scores.T @ part)[:words, :dim]
        ctx.save_for_backward(d_hidden[:, :dim], d_weight, d_bias)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, d_total: Tensor) -> tuple[Tensor | None, ...]:
        d_hidden, d_weight, d_bias = ctx.saved_tensors
        return (
            d_hidden * d_total.to(d_hidden.dtype),
            d_weight * d_total,
            None if d_bias is None else d_bias * d_total,
            *(None,) * 4,
        )


def for_products(weight: Tensor, hidden: Tensor) -> Tensor:
    """The weight in the type of the hidden states. For a GPU's matrix units with rows of zeros up to a whole block, and columns
    up to a multiple of 8: scores of 50,257 words begin at odd places in memory, as rows of 410 numbers do, and products of such
    rows take several times as long as of 50,304 or 416."""
    narrow = weight.to(hidden.dtype)
    if not hidden.is_cuda or hidden.element_size() != 2:
        return narrow
    words, dim = weight.shape
    more = -dim % 8, -words % BLOCK if words % 8 else 0
    return F.pad(narrow, (0, more[0], 0, more[1])) if any(more) else narrow


def slope(
    scores: Tensor,
    bias: Tensor | None,
    targets: Tensor,
    wide: torch.dtype,
    smoothing: float = 0.0,
    weights: Tensor | None = None,
    words: int | None = None,
) -> tuple[Tensor, ...]:
    """The summed loss of some scores (which may be overwritten) and its derivative by them, in their own type; that by
    the scores of the targets apart, with the places where they belong: one pass over the scores need not search for them.
    words: how many of the columns stand for words; what the derivative says of the others means nothing."""
    narrow = scores.dtype
    words = words or scores.shape[1]
    scores = scores.to(wide)
    if words < scores.shape[1]:
        scores = scores.masked_fill(torch.arange(scores.shape[1], device=scores.device) >= words, float("-inf"))
        bias = None if bias is None else F.pad(bias, (0, scores.shape[1] - words))
    if bias is not None:
        scores += bias
    kept = (targets != IGNORE).unsqueeze(1)
    if weights is not None:
        kept = kept * weights.to(wide).unsqueeze(1)
    index = targets.clamp(min=0).unsqueeze(1)
    highest = scores.amax(1, keepdim=True)
    right = scores.gather(1, index) - highest
    scores = scores.sub_(highest)
    wanted = right if smoothing == 0 else (1 - smoothing) * right + smoothing * scores[:, :words].mean(1, keepdim=True)
    d_scores = scores.exp_()
    mass = d_scores.sum(1, keepdim=True)
    loss = ((mass.log() - wanted) * kept).sum()
    d_scores *= kept / mass
    d_right = (right.exp() / mass - 1) * kept
    if smoothing:
        spread = smoothing / words
        d_scores -= spread * kept.to(wide)
        d_right += (smoothing - spread) * kept.to(wide)
    return loss, d_scores.to(narrow), index, d_right.to(narrow)


@cache
def _compiled_slope() -> Any:
    return torch.compile(slope)

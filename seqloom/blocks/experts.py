"""A mixture of experts: many feed-forward networks, a few of them for each token. Shazeer et al., 2017 (arXiv 1701.06538).

y = Σ G(x)ᵢ Eᵢ(x), G = softmax of the k largest of H, the others 0. In training H(x) = x W_g + N(0, 1) · softplus(x W_noise):
noise has neighbours of the chosen ones tried, and makes the load of an expert smooth in the weights. Two losses keep experts in
use: squared coefficients of variation of importance Σ G(x) and of load Σ P(x), P(x)ᵢ being the probability that expert i is
chosen when its own noise is drawn again. Both matrices begin with zeros: at first all experts are equally likely.

No expert has a limit, and no token is dropped: those of one expert are put together and multiplied by its matrices at once.
"""

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Ragged, wide
from seqloom.blocks.feedforward import ACTIVATIONS, FeedForward
from seqloom.blocks.layers import Mixed

# of the Config of every model with experts
EXPERTS: Any = Field(
    1,
    ge=1,
    le=65_536,
    description="Experts in the place of each feed-forward layer (of LSTMs: between layers); 1: none.",
)
EXPERTS_K: Any = Field(2, ge=1, description="Experts that each token goes through.")
EXPERT_DIM: Any = Field(
    None,
    gt=0,
    description="Width inside an expert; that of the feed-forward layer / experts_k unless given: a token costs the same.",
)
BALANCE: Any = Field(0.1, ge=0, description="Weight of the two losses that keep all experts in use.")
FEW = 512  # rows on a GPU for which every expert is run: nothing then asks the host, and a step can be recorded


def experts_fit(config: Any) -> Any:
    """Checks of a Config that no token goes through more experts than there are, and that there are some to be so wide."""
    if config.experts == 1 and config.expert_dim is not None:
        raise ValueError(f"expert_dim {config.expert_dim} is for layers with experts: give experts, too")
    if config.experts > 1 and config.experts_k > config.experts:
        raise ValueError(f"experts_k {config.experts_k} is more than the experts, {config.experts}: lower it")
    return config


class Gates(NamedTuple):
    chosen: Tensor  # (T, k) numbers of experts
    shares: Tensor  # (T, k) how much of each; they sum to 1
    clean: Tensor  # (T, n) x W_g
    noisy: Tensor  # (T, n) H
    spread: Tensor | None  # (T, n) of the noise; None: there is none


class Bank(nn.Module):
    """n linear layers of one shape."""

    def __init__(self, count: int, in_features: int, out_features: int):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(count, out_features, in_features))
        self.bias = nn.Parameter(torch.empty(count, out_features))

    def __getitem__(self, i: int) -> tuple[Tensor, Tensor]:
        return self.weight[i], self.bias[i]


class Experts(nn.Module):
    """In the place of a FeedForward: (T, D) → (T, D), and in training what is learnt beside, a sum over tokens."""

    has_penalty = True

    def __init__(self, dim: int, expert_dim: int, activation: str, count: int, chosen: int, balance: float = 0.1):
        super().__init__()
        self.count, self.chosen, self.balance = count, chosen, balance
        self.gate, self.noise = (nn.Linear(dim, count, bias=False) for _ in range(2))
        self.up, self.down = Bank(count, dim, expert_dim), Bank(count, expert_dim, dim)
        self.activation = ACTIVATIONS[activation]

    def forward(self, x: Tensor, batch: Ragged) -> tuple[Tensor, ...]:
        gates = self.gates(x)
        out = self.mix(x, gates)
        learnt = self.training and self.balance and self.count > 1
        return (out, self.penalty(gates, batch.real)) if learnt else (out,)

    def gates(self, x: Tensor) -> Gates:
        clean, spread = wide(self.gate(x)), None
        noisy = clean
        if self.training and self.count > 1:
            spread = F.softplus(wide(self.noise(x))) + 1e-6
            noisy = clean + torch.randn_like(clean) * spread
        values, chosen = noisy.topk(self.chosen, dim=1)
        return Gates(chosen, values.softmax(1), clean, noisy, spread)

    def shares(self, x: Tensor) -> Tensor:
        """(T, n) how much of each expert a token gets, 0 of those that are not chosen."""
        gates = self.gates(x)
        return torch.zeros_like(gates.clean).scatter(1, gates.chosen, gates.shares)

    def mix(self, x: Tensor, gates: Gates) -> Tensor:
        if x.is_cuda and not self.grouped(x) and x.shape[0] <= FEW:
            return self.mix_all(x, gates)
        order = gates.chosen.flatten().argsort(stable=True)  # expert by expert, its tokens in their order
        counts = torch.bincount(gates.chosen.flatten(), minlength=self.count)
        token = order // self.chosen
        rows = self.run(x[token], counts)
        weighed = rows * gates.shares.flatten()[order, None].to(rows.dtype)
        return torch.zeros_like(x, dtype=rows.dtype).index_add(0, token, weighed)

    def run(self, rows: Tensor, counts: Tensor) -> Tensor:
        """Rows that stand expert by expert, so many each."""
        if self.grouped(rows):
            return self.run_grouped(rows, counts)
        out, begin = [], 0
        for i, count in enumerate(counts.tolist()):
            if count:
                inner = self.activation(F.linear(rows[begin : begin + count], *self.up[i]))
                out.append(F.linear(inner, *self.down[i]))
                begin += count
        return torch.cat(out) if out else rows

    def grouped(self, x: Tensor) -> bool:
        """PyTorch's grouped product is for bf16 on newer GPUs, in rows of whole 16 bytes."""
        if not x.is_cuda or half_type(x) != torch.bfloat16 or not hasattr(torch, "_grouped_mm"):
            return False
        whole = all(size % 8 == 0 for size in self.up.weight.shape[1:])
        return whole and torch.cuda.get_device_capability(x.device) >= (9, 0)

    def run_grouped(self, rows: Tensor, counts: Tensor) -> Tensor:
        """By one kernel for all experts, which reads from the device where each one's rows end."""
        dtype, ends = half_type(rows), counts.cumsum(0).int()
        of_row = torch.searchsorted(ends, torch.arange(rows.shape[0], device=rows.device), right=True)

        def apply(bank: Bank, x: Tensor) -> Tensor:
            product = torch._grouped_mm(x.to(dtype), bank.weight.to(dtype).transpose(1, 2), offs=ends)
            return product + bank.bias.to(dtype)[of_row]

        return apply(self.down, self.activation(apply(self.up, rows)))

    def mix_all(self, x: Tensor, gates: Gates) -> Tensor:
        """Every expert on every token: for few tokens, of which each would wait for the host otherwise."""
        inner = torch.einsum("td,nfd->ntf", x, self.up.weight.to(x.dtype)) + self.up.bias.to(x.dtype)[:, None]
        out = torch.einsum("ntf,ndf->ntd", self.activation(inner), self.down.weight.to(x.dtype))
        out = out + self.down.bias.to(x.dtype)[:, None]
        shares = torch.zeros_like(gates.clean).scatter(1, gates.chosen, gates.shares)
        return torch.einsum("tn,ntd->td", shares.to(out.dtype), out)

    def penalty(self, gates: Gates, real: Tensor | None) -> Tensor:
        """For each token that is text: w (CV(importance)² + CV(load)²)."""
        shares = torch.zeros_like(gates.clean).scatter(1, gates.chosen, gates.shares)
        keep = torch.ones_like(shares[:, 0]) if real is None else real.to(shares.dtype)
        spread = variation((shares * keep[:, None]).sum(0))
        if self.chosen < self.count:  # otherwise every expert has every token
            spread = spread + variation((self.load(gates) * keep[:, None]).sum(0))
        return self.balance * keep.sum() * spread

    def load(self, gates: Gates) -> Tensor:
        """(T, n) how likely each expert is to be chosen if its own noise were drawn again and that of the others kept."""
        assert gates.spread is not None, "without noise nothing is likely or unlikely"
        highest = gates.noisy.topk(self.chosen + 1, dim=1).values
        inside = torch.zeros_like(gates.noisy, dtype=torch.bool).scatter(1, gates.chosen, True)
        # the k-th largest of the others: one that is chosen leaves its place to the next
        border = torch.where(inside, highest[:, -1:], highest[:, -2:-1])
        return 0.5 * (1 + torch.erf((gates.clean - border) / gates.spread / math.sqrt(2)))


def variation(values: Tensor) -> Tensor:
    """The squared coefficient of variation."""
    return values.var(correction=0) / (values.mean().square() + 1e-10)


def half_type(x: Tensor) -> torch.dtype:
    return torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else x.dtype


class ExpertsLayer(nn.Module):
    """x + experts(x) as a layer of a Stack, with nothing to remember: what stands between two recurrent layers."""

    gates = ("experts",)

    def __init__(self, experts: Experts, dropout: float):
        super().__init__()
        self.experts, self.dropout = experts, nn.Dropout(dropout)

    def forward(
        self, x: Tensor, batch: Ragged, state: Any = None, context: Context | None = None, maps: bool = False
    ) -> Mixed:
        y, *penalty = self.experts(x, batch)
        return x + self.dropout(y), (), self.experts.shares(x)[:, None] if maps else None, *penalty

    def start(self, n: int, max_len: int) -> tuple[()]:
        return ()


def init_experts(model: nn.Module, init: Callable[[Tensor], Any]) -> None:
    """The matrices of every expert as `init` fills one; no biases, and gates that prefer none."""
    for module in model.modules():
        if isinstance(module, Bank):
            for matrix in module.weight.data:
                init(matrix)
            nn.init.zeros_(module.bias)
        elif isinstance(module, Experts):
            nn.init.zeros_(module.gate.weight)
            nn.init.zeros_(module.noise.weight)


def feed_forward(config: Any, activation: str, ffn_dim: int) -> nn.Module:
    """What stands between two mixers: one network, or as many as a config asks for."""
    if config.experts == 1:
        return FeedForward(config.dim, ffn_dim, activation)
    width = config.expert_dim or max(ffn_dim // config.experts_k, 1)
    return Experts(config.dim, width, activation, config.experts, config.experts_k, config.balance)

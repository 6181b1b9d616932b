"""Recurrent cells: their equations, one step at a time. How they run over a batch, and fast, is in `recurrent`.

A cell is a small class: what it computes from the input of all steps at once (`inputs`), and one step from that and the
state (`step`). The standard cells keep their weights in the torch.nn module whose kernel runs them, so that the loop and
the kernel share one set of weights and are each other's check.
"""

from collections.abc import Callable
from typing import Any, Protocol, Self

import torch
from torch import Tensor, nn

from seqloom.errors import UsageError

CellState = tuple[Tensor, ...]  # (N, D) each; the first one is the output h


class Cell(Protocol):
    gates: tuple[str, ...]  # names of what `step` returns second

    def inputs(self, x: Tensor) -> Tensor: ...
    def step(self, x: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]: ...
    def start(self, n: int) -> CellState: ...


class TorchCell(nn.Module):
    """A cell whose weights live in a one-layer torch.nn recurrent module, `kernel`."""

    gates: tuple[str, ...]
    kernel: Any  # nn.RNN, nn.GRU or nn.LSTM
    kernel_name: str  # of the function behind it; "" where there is none
    unbounded = False  # whether h may grow without end

    def inputs(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.kernel.weight_ih_l0, self.kernel.bias_ih_l0)

    @property
    def hidden_weight(self) -> Tensor:
        """What h is multiplied by."""
        return self.kernel.weight_hh_l0

    def recurrent(self, h: Tensor) -> Tensor:
        return nn.functional.linear(h, self.hidden_weight, self.kernel.bias_hh_l0)

    def drawn(self) -> Self:
        """The cell as one call sees it from its first step to its last: a cell with random weights draws them here."""
        return self

    def widths(self) -> tuple[int, ...]:
        return (self.kernel.hidden_size,)

    def start(self, n: int) -> CellState:
        return tuple(self.kernel.weight_hh_l0.new_zeros(n, width) for width in self.widths())

    def make_room(self, width: int) -> None:
        """Widens its input by so many numbers; the weights are new."""
        old = self.kernel
        projected = {"proj_size": old.proj_size} if old.proj_size else {}
        self.kernel = type(old)(old.input_size + width, old.hidden_size, **projected)

    def weights(self) -> list[Tensor]:
        """What the kernel computes with, in its order."""
        return self.kernel._flat_weights


class ElmanCell(TorchCell):
    """h = f(W x + U h + b). Elman, 1990. f: tanh, or the sigmoid of the first papers, or ReLU."""

    gates = ("h",)
    functions = {"tanh": torch.tanh, "sigmoid": torch.sigmoid, "relu": torch.relu}  # noqa: RUF012

    def __init__(self, input_dim: int, dim: int, nonlinearity: str = "tanh"):
        super().__init__()
        self.function = self.functions[nonlinearity]
        self.kernel_name = {"tanh": "rnn_tanh", "relu": "rnn_relu"}.get(nonlinearity, "")
        self.kernel = nn.RNN(input_dim, dim)
        self.unbounded = nonlinearity == "relu"

    def step(self, x: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h = self.function(x + self.recurrent(state[0]))
        return (h,), (h,)


class GruCell(TorchCell):
    """Gated recurrent unit. Cho et al., 2014 (arXiv 1406.1078), with the reset gate after the matrix as kernels have it."""

    gates = ("reset", "update", "candidate", "h")
    kernel_name = "gru"

    def __init__(self, input_dim: int, dim: int):
        super().__init__()
        self.kernel = nn.GRU(input_dim, dim)

    def step(self, x: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        (h,) = state
        xr, xu, xc = x.chunk(3, dim=-1)
        hr, hu, hc = self.recurrent(h).chunk(3, dim=-1)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xu + hu)
        candidate = torch.tanh(xc + reset * hc)
        h = candidate + update * (h - candidate)
        return (h,), (reset, update, candidate, h)


class ResetFirstGruCell(GruCell):
    """The same with the reset gate before the matrix, tanh(W x + U (r ∘ h)), as the paper writes it. No kernel does that: it runs
    by the loop."""

    kernel_name = ""

    def step(self, x: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        (h,), width = state, self.kernel.hidden_size
        xr, xu, xc = x.chunk(3, dim=-1)
        gates, matrix = self.hidden_weight.split((2 * width, width))
        of_gates, bias = self.kernel.bias_hh_l0.split((2 * width, width))
        hr, hu = nn.functional.linear(h, gates, of_gates).chunk(2, dim=-1)
        reset, update = torch.sigmoid(xr + hr), torch.sigmoid(xu + hu)
        candidate = torch.tanh(xc + nn.functional.linear(reset * h, matrix, bias))
        h = candidate + update * (h - candidate)
        return (h,), (reset, update, candidate, h)


class LstmCell(TorchCell):
    """Long short-term memory with a forget gate. Hochreiter & Schmidhuber, 1997; Gers et al., 2000.

    proj_dim > 0: h is projected to that width (Sak et al., 2014, arXiv 1402.1128); the gates keep theirs.
    """

    gates = ("input", "forget", "candidate", "output", "cell")
    kernel_name = "lstm"

    def __init__(self, input_dim: int, dim: int, proj_dim: int = 0):
        super().__init__()
        if proj_dim >= dim:
            raise UsageError(
                f"'model.proj_dim' = {proj_dim} is not smaller than 'model.dim' = {dim}: lower it, or 0 for none"
            )
        self.kernel = nn.LSTM(input_dim, dim, proj_size=proj_dim)

    def widths(self) -> tuple[int, ...]:
        return self.kernel.proj_size or self.kernel.hidden_size, self.kernel.hidden_size

    def step(self, x: Tensor, state: CellState) -> tuple[CellState, tuple[Tensor, ...]]:
        h, c = state
        i, f, g, o = (x + self.recurrent(h)).chunk(4, dim=-1)
        i, f, g, o = torch.sigmoid(i), torch.sigmoid(f), torch.tanh(g), torch.sigmoid(o)
        c = self.bounded(f * c + i * g)
        return (self.projected(o * torch.tanh(c)), c), (i, f, g, o, c)

    def bounded(self, cell: Tensor) -> Tensor:
        """The cell as it is kept."""
        return cell

    def projected(self, h: Tensor) -> Tensor:
        """The output as it is given on."""
        return nn.functional.linear(h, self.kernel.weight_hr_l0) if self.kernel.proj_size else h


class ClippedLstmCell(LstmCell):
    """An LSTM whose cell and projected output are cut to ±cell_clip and ±proj_clip at every step (0: not at all), as ELMo's
    are. No kernel does that: it runs by the loop."""

    kernel_name = ""

    def __init__(self, input_dim: int, dim: int, proj_dim: int = 0, cell_clip: float = 0.0, proj_clip: float = 0.0):
        super().__init__(input_dim, dim, proj_dim)
        self.cell_clip, self.proj_clip = cell_clip or torch.inf, proj_clip or torch.inf

    def bounded(self, cell: Tensor) -> Tensor:
        return cell.clamp(-self.cell_clip, self.cell_clip)

    def projected(self, h: Tensor) -> Tensor:
        return super().projected(h).clamp(-self.proj_clip, self.proj_clip)


CELLS: dict[str, Callable[[int, int], TorchCell]] = {"gru": GruCell, "lstm": LstmCell}

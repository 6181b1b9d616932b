"""Recurrent layers: any cell through one loop (`scan`), the standard ones through PyTorch's fused kernels.

Asking for the gates takes the loop.
"""

import warnings
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor, nn

from seqloom.batch import Context, Edit, Output, Ragged, State
from seqloom.blocks.cells import Cell, CellState, TorchCell
from seqloom.blocks.grid import from_grid, lengths, to_grid
from seqloom.blocks.record_gates import STEPS, GatedScan, Values
from seqloom.blocks.stack import Stack
from seqloom.blocks.uncompiled import uncompiled
from seqloom.errors import UsageError

# true, said once a process, and nothing that whoever trains such a model could change
warnings.filterwarnings("ignore", "LSTM with projections is not supported with oneDNN")
warnings.filterwarnings("ignore", "RNN module weights are not part of single contiguous chunk")

SHUT = 100.0  # what a gate reads to be shut, and with the other sign to be open: σ is then 0 and 1, in fp16 too


def scan(
    cell: Cell,
    x: Tensor,
    batch: Ragged,
    state: CellState | None = None,
    gates: bool = False,
    memory: tuple[Tensor, ...] = (),
) -> tuple[Tensor, CellState, Tensor | None]:
    """x (T, D) → h (T, D), the state after the last token of each sequence, and with gates=True all gates (T, G, D).

    memory: what every step gets beside its input and its state, for a cell that looks at another sequence.
    """
    cell = cell.drawn() if isinstance(cell, TorchCell) else cell
    grid = to_grid(cell.inputs(x), batch).transpose(0, 1)  # (L, N, ·)
    state = cell.start(batch.num_sequences) if state is None else state
    alive = None if batch.is_full else torch.arange(batch.max_len, device=x.device)[:, None] < lengths(batch)
    outputs, seen = [], []
    # a training loop on a GPU is worth the compiling of one step; the loop itself would be unrolled
    step: Callable[..., Any] = cell.step
    if x.is_cuda and torch.is_grad_enabled():
        step = partial(compiled_step(type(cell)), cell)
    for t, now in enumerate(grid.unbind(0)):
        new, values = step(now, state, *memory)
        if alive is not None:  # a sequence that has ended keeps its state
            new = tuple(torch.where(alive[t, :, None], n, o) for n, o in zip(new, state, strict=True))
        state = new
        outputs.append(state[0])
        if gates:
            seen.append(torch.stack(values, dim=1))
    hidden = from_grid(torch.stack(outputs, dim=1), batch)
    return hidden, state, from_grid(torch.stack(seen, dim=1), batch) if gates else None


@cache
def compiled_step(kind: type[Cell]) -> Callable[..., Any]:
    torch._dynamo.config.allow_rnn = True  # a step reads the weights of a torch.nn module, and never calls it
    return torch.compile(kind.step)


# Dynamo cannot trace these kernels; what stands around them is compiled all the same
@uncompiled
def fused(
    cells: Sequence[TorchCell], x: Tensor, batch: Ragged, states: Sequence[CellState | None]
) -> tuple[Tensor, list[CellState]]:
    """Layers of one shape, one on the other, in one call of PyTorch's kernel: a GPU then works on several at once. Where
    lengths differ there is one layer, because its state is taken where each sequence ends."""
    n, first = batch.num_sequences, cells[0]
    if torch.is_autocast_enabled(x.device.type) and (x.is_cuda or kernel_dtype(first, x) == torch.float32):
        # left to autocast cuDNN computes in fp16, whatever was asked for, and fp16 ends at 65,504
        with torch.autocast(x.device.type, enabled=False):
            return fused(cells, x.to(kernel_dtype(first, x)), batch, states)
    before = [cell.start(n) if state is None else state for cell, state in zip(cells, states, strict=True)]
    if not batch.is_full:
        ((cell, given),) = zip(cells, before, strict=True)
        out, final = ended(cell, x, batch, given)
        return out, [final]
    weights = [weight for cell in cells for weight in cell.drawn().weights()]
    out, *after = kernel(first, len(cells), to_grid(x, batch), before, weights)
    return from_grid(out, batch), list(zip(*(part.unbind(0) for part in after), strict=True))


def kernel_dtype(cell: TorchCell, x: Tensor) -> torch.dtype:
    """What a kernel computes in under autocast: the format that was asked for; fp32 where states have no bound, and in place of
    fp16 on the CPU, which has no such kernel."""
    asked = torch.get_autocast_dtype(x.device.type)
    return torch.float32 if cell.unbounded or (asked == torch.float16 and not x.is_cuda) else asked


def kernel(cell: TorchCell, layers: int, grid: Tensor, before: Sequence[CellState], weights: list[Tensor]) -> Values:
    """grid (N, L, D) → h (N, L, D), and the parts of the last state (layers, N, D)"""
    given = [torch.stack([part.to(grid.dtype) for part in parts]) for parts in zip(*before, strict=True)]
    options = (True, layers, 0.0, cell.training, False, True)  # biases, ·, dropout, ·, bidirectional, batch first
    if weights[0].dtype != grid.dtype:
        weights = [weight.to(grid.dtype) for weight in weights]
    return getattr(torch._VF, cell.kernel_name)(grid, given if len(given) > 1 else given[0], weights, *options)


def ended(cell: TorchCell, x: Tensor, batch: Ragged, given: CellState) -> tuple[Tensor, CellState]:
    """Sequences of several lengths, filled up to the longest. Nothing in it asks the host for the lengths, as a packed
    sequence would. A kernel returns h at every step, but the LSTM's cell after the last one only: a further input, which is 1
    behind the end, shuts the input gate there and opens the forget gate, so that the cell stays as it was at the end."""
    grid, weights, sizes = to_grid(x, batch), cell.drawn().weights(), lengths(batch)
    if len(given) > 1:
        behind = (torch.arange(batch.max_len, device=x.device) >= sizes[:, None])[..., None]
        quarter = (weights[0].shape[0] // 4, 1)  # input, forget, candidate, output
        hold = [weights[0].new_full(quarter, value) for value in (-SHUT, SHUT, 0.0, 0.0)]
        # with zeros beside it: matrix units of GPUs want widths that are multiples of 8
        wider = [nn.functional.pad(part, (0, 7)) for part in (torch.cat(hold), behind.to(grid.dtype))]
        weights = [torch.cat((weights[0], wider[0]), dim=1), *weights[1:]]
        grid = torch.cat((grid, wider[1]), dim=2)
    out, *after = kernel(cell, 1, grid, [given], weights)
    last = out[torch.arange(batch.num_sequences, device=x.device), (sizes - 1).clamp(min=0)]
    parts = (last, *(part[0] for part in after[1:]))
    # an empty sequence has read nothing
    final = tuple(torch.where((sizes > 0)[:, None], a, b.to(a.dtype)) for a, b in zip(parts, given, strict=True))
    return from_grid(out, batch), final


def has_gates(cell: Any) -> bool:
    """LSTM and GRU without projection: `gated` runs them."""
    return isinstance(cell, TorchCell) and cell.kernel_name in STEPS and not cell.kernel.proj_size


@uncompiled
def gated(
    cell: TorchCell, x: Tensor, batch: Ragged, state: CellState | None
) -> tuple[Tensor, CellState, Tensor | None]:
    """What `scan` gives with gates=True, for an LSTM or GRU. Nothing in it asks the host, whatever the lengths are: the grid
    is gone through to its end, and each sequence's state is taken where it ends."""
    cell = cell.drawn()
    given = cell.start(batch.num_sequences) if state is None else state
    h, *rest = given
    _, weight, _, bias = cell.weights()
    grid = to_grid(cell.inputs(x), batch).transpose(0, 1)  # (L, N, ·)
    hidden, gates, *after = GatedScan.apply(cell.kernel_name, grid, weight, bias, h, rest[0] if rest else h)
    final = tuple(after) if rest else (after[0],)
    if not batch.is_full:
        sizes = lengths(batch)
        last, row = (sizes - 1).clamp(min=0), torch.arange(batch.num_sequences, device=x.device)
        ends = (hidden[last, row], *([gates[last, row, -1]] if rest else []))  # the last of an LSTM's gates is its cell
        # an empty sequence has read nothing
        final = tuple(torch.where((sizes > 0)[:, None], a.to(b.dtype), b) for a, b in zip(ends, given, strict=True))
    return from_grid(hidden.transpose(0, 1), batch), final, from_grid(gates.transpose(0, 1), batch)


def has_kernel(cell: Any) -> bool:
    return isinstance(cell, TorchCell) and bool(cell.kernel_name)


def is_sound(cell: Any, batch: Ragged) -> bool:
    """With projections, cuDNN's gradients of filled-up sequences did not pass tests/gpu/test_cuda.py: the loop's do."""
    return batch.is_full or not batch.owner.is_cuda or not cell.kernel.proj_size


class RecurrentLayer(nn.Module):
    """A cell over a ragged batch, as a layer of a Stack; dropout on what it reads (Zaremba et al., 2014, arXiv 1409.2329)."""

    def __init__(self, cell: nn.Module, dropout: float = 0.0):
        super().__init__()
        self.cell: Any = cell
        self.dropout: Any = nn.Dropout(dropout)

    def read(self, x: Tensor, batch: Ragged) -> Tensor:
        return self.dropout(x)

    def forward(
        self, x: Tensor, batch: Ragged, state: Any = None, context: Context | None = None, maps: bool = False
    ) -> tuple[Tensor, CellState, Tensor | None]:
        x = self.read(x, batch)
        if has_kernel(self.cell) and not maps and is_sound(self.cell, batch):
            hidden, (after,) = fused([self.cell], x, batch, [state])
            return hidden, after, None
        if has_gates(self.cell) and batch.max_len > 1:  # a single step is no loop
            return gated(self.cell, x, batch, state)
        return scan(self.cell, x, batch, state, gates=maps)

    def start(self, n: int, max_len: int) -> CellState:
        return self.cell.start(n)

    def make_room(self, width: int) -> None:
        if not isinstance(self.cell, TorchCell):
            raise UsageError("other features cannot stand before a layer with a cell of your own: use LSTM or GRU")
        self.cell.make_room(width)

    @property
    def gates(self) -> tuple[str, ...]:
        """Names of what maps=True shows."""
        return self.cell.gates


class RecurrentStack(Stack):
    """Where nothing stands between the layers, nothing of theirs is asked for and no sequence ends before the others, they
    run in one call."""

    @property
    def units(self) -> list[nn.Module]:
        return []

    def forward(
        self,
        x: Tensor,
        batch: Ragged,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
        edit: Edit | None = None,
    ) -> Output:
        plain = self.room_before is None and self.is_plain()
        if layers or maps or edit is not None or not batch.is_full or not plain:
            return super().forward(x, batch, state, context, layers, maps, edit)
        before = state.own if state is not None else [None] * len(self.layers)
        cells: list[Any] = [layer.cell for layer in self.layers]
        x, after = fused(cells, x, batch, before)
        return Output(x if self.top is None else self.top(x), State(tuple(after)))

    def is_plain(self) -> bool:
        """One shape, one kernel, no dropout: PyTorch's own between the layers keeps its randomness to itself."""
        layers = [layer for layer in self.layers if isinstance(layer, RecurrentLayer) and has_kernel(layer.cell)]
        alike = {(layer.cell.kernel_name, *layer.cell.widths(), layer.cell.kernel.input_size) for layer in layers}
        quiet = not self.training or all(layer.dropout.p == 0 for layer in layers)
        return len(layers) == len(self.layers) and len(alike) == 1 and quiet


def mirrored(batch: Ragged) -> Tensor:
    """(T,) for each place the one as far from the other end of its own sequence. Taken twice it is the identity."""
    begin, end = batch.offsets[:-1].long()[batch.owner], batch.offsets[1:].long()[batch.owner]
    return begin + end - 1 - torch.arange(batch.owner.shape[0], device=batch.owner.device)


class BothWays(nn.Module):
    """Two layers, of which one reads each sequence from its start and the other from its end."""

    def __init__(self, ahead: nn.Module, back: nn.Module):
        super().__init__()
        self.ahead: Any = ahead
        self.back: Any = back

    @property
    def gates(self) -> tuple[str, ...]:
        return *(f"forward.{name}" for name in self.ahead.gates), *(f"backward.{name}" for name in self.back.gates)

    def read(
        self, left: Tensor, right: Tensor, batch: Ragged, states: Sequence[Any], maps: bool
    ) -> tuple[Tensor, tuple[CellState, CellState], Tensor | None]:
        """What the two make of (T, D) each: side by side, (T, 2 D); their states after the last token and after the first."""
        mirror = mirrored(batch)
        ahead, after, seen = self.ahead(left, batch, states[0], None, maps)
        back, before, seen_back = self.back(right[mirror], batch, states[1], None, maps)
        weights = torch.cat((seen, seen_back[mirror]), dim=1) if maps else None
        return torch.cat((ahead, back[mirror]), dim=1), (after, before), weights


class Apart(BothWays):
    """Each of the two reads its own half of x (T, 2 D) and writes that half: however many of these layers stand on each other,
    nothing goes over from one direction to the other. A stack of `Bidirectional` layers sees everything from its second on."""

    def forward(
        self, x: Tensor, batch: Ragged, state: Any = None, context: Context | None = None, maps: bool = False
    ) -> tuple[Tensor, tuple[CellState, CellState], Tensor | None]:
        left, right = x.chunk(2, dim=1)
        return self.read(left, right, batch, (None, None) if state is None else state, maps)

    def start(self, n: int, max_len: int) -> tuple[CellState, CellState]:
        return self.ahead.start(n, max_len), self.back.start(n, max_len)


class Bidirectional(BothWays):
    """One cell reads each sequence from its start, another from its end; their outputs side by side, (T, 2 D).

    Schuster & Paliwal, 1997. It needs whole sequences, so no state is carried into it; the states that come out are
    those after the last token (forward) and after the first (backward).
    """

    def __init__(self, forward_cell: nn.Module, backward_cell: nn.Module, dropout: float = 0.0):
        super().__init__(RecurrentLayer(forward_cell), RecurrentLayer(backward_cell))
        self.dropout = nn.Dropout(dropout)  # one for both: they read the same

    def forward(
        self, x: Tensor, batch: Ragged, state: Any = None, context: Context | None = None, maps: bool = False
    ) -> tuple[Tensor, tuple[CellState, CellState], Tensor | None]:
        if state is not None:
            raise ValueError("a bidirectional layer reads whole sequences: it cannot go on from a carried state")
        x = self.dropout(x)
        return self.read(x, x, batch, (None, None), maps)

    def make_room(self, width: int) -> None:
        for each in (self.ahead, self.back):
            each.make_room(width)

    def start(self, n: int, max_len: int) -> CellState:
        raise ValueError("a bidirectional layer reads whole sequences: there is no state to begin a stream with")


def init_recurrent(model: nn.Module, spread: float = 0.5) -> None:
    """Embeddings uniform in ±spread, matrices in ±1/√dim, as torch.nn has them.

    The papers' ±0.1 belongs to SGD with rates of 1 and more: under Adam it keeps the gates in their linear range for
    thousands of steps (an LSTM of a million parameters after 1.2M tokens: 4.70 nats with ±0.1, 4.14 with ±0.5).
    Where the embedding itself reaches the top, a tied output layer would see every word in its own place: ±0.1 it is.
    """
    if any(getattr(module, "identity_path", False) for module in model.modules()):
        spread = min(spread, 0.1)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            nn.init.uniform_(module.weight, -spread, spread)
        elif isinstance(module, nn.RNNBase | nn.Linear):
            module.reset_parameters()
    for module in model.modules():
        if module is not model and hasattr(module, "init_weights"):  # a block that wants other values
            module.init_weights()  # type: ignore[operator]


def init_lstm(model: nn.Module) -> None:
    """The same, and the forget gates start open (bias 1; Józefowicz et al., 2015)."""
    init_recurrent(model)
    for name, bias in model.named_parameters():
        if name.endswith(("bias_ih_l0", "bias_hh_l0")):  # input, forget, candidate, output
            nn.init.constant_(bias.data.chunk(4)[1], 1.0 if "bias_ih" in name else 0.0)

"""A recurrent decoder's look at its source: weights over the source's places, and the mean of its states by them."""

from typing import Any, Literal, NamedTuple, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, Output, Ragged, State
from seqloom.blocks.cells import CellState, TorchCell
from seqloom.blocks.grid import lengths, to_grid
from seqloom.blocks.scores import SCORES
from seqloom.config import Config

ScoreName = Literal["dot", "general", "additive", "location", "cosine", "scaled-dot"]


class AlignedConfig(Config):
    score: ScoreName = Field("additive", description="How a decoder state is scored against the encoder states.")
    max_len: int | None = Field(
        None, gt=0, multiple_of=8, description="The most tokens of a source; only the location score needs to know it."
    )

    @model_validator(mode="after")
    def places_are_known(self) -> Self:
        if self.score == "location" and self.max_len is None:
            raise ValueError('the score "location" knows sources by their places: give max_len, a multiple of 8')
        return self


class Memory(NamedTuple):
    """What is looked at, made ready once for all steps. Dim 0 is the source."""

    keys: Tensor  # (N, S, ·) as the score wants them
    values: Tensor  # (N, S, D)
    behind: Tensor  # (N, 1, S) the places after a source's end; an empty one keeps its first, which holds zeros


class Alignment(nn.Module):
    def __init__(self, config: AlignedConfig, query_dim: int, hidden_dim: int):
        super().__init__()
        self.score: Any = SCORES[config.score](query_dim, hidden_dim, config.max_len or 0)
        self.hidden_dim = hidden_dim

    def read(self, context: Context) -> Memory:
        keys = to_grid(self.score.keys(context.hidden), context)
        place = torch.arange(context.max_len, device=keys.device)
        behind = place >= lengths(context).clamp(min=1)[:, None]
        return Memory(keys, to_grid(context.hidden, context), behind[:, None])

    def forward(self, query: Tensor, keys: Tensor, values: Tensor, behind: Tensor) -> tuple[Tensor, Tensor]:
        """(R, Q) → what is seen (R, D), and the weights (R, S). Queries of one source stand together, however many."""
        scores = self.score(query.unflatten(0, (keys.shape[0], -1)), keys)
        weights = scores.masked_fill(behind, float("-inf")).softmax(-1)
        return (weights.to(values.dtype) @ values).flatten(0, 1), weights.flatten(0, 1)


class AlignedCell(nn.Module):
    """Looks at the source with its state, then takes a step with what it saw: Bahdanau et al., 2015.

    Its output, the first part of its state, is [h ; what was seen on the way to it].
    """

    gates: tuple[str, ...] = ("alignment",)

    def __init__(self, cell: TorchCell, alignment: Alignment):
        super().__init__()
        self.cell, self.alignment, self.dim = cell, alignment, cell.widths()[0]
        self.feed = nn.Linear(alignment.hidden_dim, cell.kernel.weight_ih_l0.shape[0], bias=False)

    def inputs(self, x: Tensor) -> Tensor:
        return self.cell.inputs(x)

    def look(self, h: Tensor, *memory: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
        """What is seen (R, D), and the weights (R, S)."""
        seen, weights = self.alignment(h, *memory)
        return seen, (weights,)

    def step(self, x: Tensor, state: CellState, *memory: Tensor) -> tuple[CellState, tuple[Tensor, ...]]:
        h = state[0][:, : self.dim]
        seen, values = self.look(h, *memory)
        (h, *rest), _ = self.cell.step(x + self.feed(seen), (h, *state[1:]))  # type: ignore[operator]
        return (torch.cat((h, seen), dim=1), *rest), values

    def start(self, n: int) -> CellState:
        h, *rest = self.cell.start(n)
        return torch.cat((h, h.new_zeros(n, self.alignment.hidden_dim)), dim=1), *rest


class AlignedDecoder(Backbone):
    """Reads the target's tokens and looks at the source. Papers differ in how they begin and in how they write.

    `layers=True` gives the embedding and what predicts: between them lies one loop.
    """

    embedding: Any
    cell: Any  # has the alignment
    recurrent = carries = True

    @property
    def table(self) -> nn.Embedding:
        return self.embedding.token

    def begin(self, context: Context) -> Any:
        """What each sequence remembers before its first token."""
        raise NotImplementedError

    def write(self, x: Tensor, batch: Ragged, own: Any, memory: Memory, maps: bool) -> tuple[Tensor, Any, Any]:
        """(T, D), what is remembered after it, and with maps=True the weights (T, 1, S)."""
        raise NotImplementedError

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        if state is None:
            state = self.start(batch.num_sequences, 0, context)
        x = self.embedding(batch)
        hidden, own, weights = self.write(x, batch, state.own, state.shared, maps)
        return Output(
            hidden,
            State(own, state.shared),
            layers=(x, hidden) if layers else (),
            cross=(weights,) if maps else (),
        )

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        assert context is not None, "a decoder begins with what it looks at"
        return State(self.begin(context), self.cell.alignment.read(context))

    def init_weights(self) -> None:
        """The whole model does it."""

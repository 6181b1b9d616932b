"""A linear-chain conditional random field: a whole sequence of labels is scored, not one place after the other.

Lafferty et al., 2001; over the states of a network: Collobert et al., 2011, Lample et al., 2016. The score of a sequence is the
sum of what the network says of its labels and of its moves from one to the next, the first and the last move included; its
probability is taken over all sequences. Moves that are not allowed have no probability.
Departure: forbidden moves are scored −10,000 instead of −∞, so that a wrong example costs much and has a gradient.
Steps are taken on the grid, for all sequences at once, over (N, L, L) numbers each: many labels (hundreds) are dear.

Letters here: L labels, P places of the grid.
"""

import torch
from torch import Tensor, nn

from seqloom.batch import Borders, wide
from seqloom.blocks.grid import from_grid, lengths, to_grid

FORBIDDEN = -1e4


class Crf(nn.Module):
    """allowed: (L+2, L+2), whether the label of a column may follow that of the row; row L is the start, column L+1 the end."""

    allowed: Tensor

    def __init__(self, labels: int, allowed: Tensor | None = None):
        super().__init__()
        self.labels = labels
        self.moves = nn.Parameter(torch.zeros(labels, labels))
        self.begin = nn.Parameter(torch.zeros(labels))
        self.end = nn.Parameter(torch.zeros(labels))
        size = (labels + 2, labels + 2)
        if allowed is not None and tuple(allowed.shape) != size:
            raise ValueError(f"allowed moves of {labels} labels are {size}, not {tuple(allowed.shape)}: start and end")
        self.register_buffer("allowed", torch.ones(size, dtype=torch.bool) if allowed is None else allowed.clone())

    def forward(self, scores: Tensor, tags: Tensor, batch: Borders) -> Tensor:
        """scores: (T, L), of every label at every place; tags: (T,), the true ones → −log p of each sequence, (N,), 0 of an empty
        one."""
        grid, size = to_grid(wide(scores), batch), lengths(batch)
        return self._log_total(self._alphas(grid, size), size) - self._path(grid, to_grid(tags, batch), size)

    @torch.no_grad()
    def decode(self, scores: Tensor, batch: Borders) -> tuple[Tensor, Tensor]:
        """The best labels (T,), and the score of each sequence with them (N,), 0 for an empty one (Viterbi)."""
        grid, size = to_grid(wide(scores), batch), lengths(batch)
        moves, begin, end = self._tables(grid)
        best = begin.expand(len(size), -1)
        sources = []  # of every place: which label before leads best to each label
        for t, here in enumerate(grid.unbind(1)):
            value, source = (best[:, :, None] + moves).max(1) if t else (best, torch.zeros_like(here, dtype=torch.long))
            best = torch.where((t < size)[:, None], value + here, best)
            sources.append(source)
        total, label = (best + end).max(1)
        found = []
        for t in range(len(sources) - 1, -1, -1):
            found.append(label)
            before = sources[t].gather(1, label[:, None])[:, 0]
            label = torch.where(t < size, before, label)  # behind its end a sequence keeps its last label
        tags = torch.stack(found[::-1], 1) if found else grid.new_zeros(len(size), 0, dtype=torch.long)
        return from_grid(tags, batch), total.where(size > 0, 0)

    @torch.no_grad()
    def marginals(self, scores: Tensor, batch: Borders) -> Tensor:
        """(T, L) how probable each label is at each place, whatever the others are."""
        grid, size = to_grid(wide(scores), batch), lengths(batch)
        moves, _, end = self._tables(grid)
        alphas = self._alphas(grid, size)
        beta, found = end.expand(len(size), -1), []
        for t in range(grid.shape[1] - 1, -1, -1):
            found.append(alphas[t + 1] + beta)
            before = (moves + (beta + grid[:, t])[:, None]).logsumexp(2)
            beta = torch.where((t < size)[:, None], before, beta)
        # the total is the same at every place, but for rounding, which this leaves out
        return from_grid(torch.stack(found[::-1], 1).softmax(2), batch) if found else wide(scores)

    def _tables(self, grid: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Moves (L, L), first and last ones (L,), with what is forbidden; as wide as the scores."""
        n = self.labels
        parts = (
            (self.moves, self.allowed[:n, :n]),
            (self.begin, self.allowed[n, :n]),
            (self.end, self.allowed[:n, n + 1]),
        )
        moves, begin, end = (wide(part).to(grid.dtype).masked_fill(~may, FORBIDDEN) for part, may in parts)
        return moves, begin, end

    def _alphas(self, grid: Tensor, size: Tensor) -> list[Tensor]:
        """Before the first place and after each one: log of the sum over all ways to each label, (N, L). Behind its end a
        sequence stays as it is."""
        moves, begin, _ = self._tables(grid)
        alphas = [begin.expand(len(size), -1)]
        for t, here in enumerate(grid.unbind(1)):
            before = alphas[-1]
            value = (before[:, :, None] + moves).logsumexp(1) if t else before
            alphas.append(torch.where((t < size)[:, None], value + here, before))
        return alphas

    def _log_total(self, alphas: list[Tensor], size: Tensor) -> Tensor:
        _, _, end = self._tables(alphas[-1])
        return (alphas[-1] + end).logsumexp(1).where(size > 0, 0)

    def _path(self, grid: Tensor, tags: Tensor, size: Tensor) -> Tensor:
        """(N,) the score of each sequence with these labels, (N, P)."""
        if not tags.shape[1]:
            return grid.new_zeros(len(size))
        moves, begin, end = self._tables(grid)
        place = torch.arange(tags.shape[1], device=tags.device)
        said = grid.gather(2, tags[:, :, None])[:, :, 0] * (place < size[:, None])
        moved = moves[tags[:, :-1], tags[:, 1:]] * (place[1:] < size[:, None])
        last = tags.gather(1, (size - 1).clamp(min=0)[:, None])[:, 0]
        return said.sum(1) + moved.sum(1) + (begin[tags[:, 0]] + end[last]) * (size > 0)

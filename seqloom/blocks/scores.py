"""Six ways to say how well a state of the decoder and a state of the encoder fit: one interface.

dot          q · h                      Luong et al., 2015 (arXiv 1508.04025)
general      q · W h                    Luong et al., 2015
additive     v · tanh(W q + U h)        Bahdanau et al., 2015 (arXiv 1409.0473); Luong's `concat`
location     (W q) at h's place         Luong et al., 2015: it does not look at h itself
cosine       β cos(q, h)                Graves et al., 2014 (arXiv 1410.5401); departure: one learnt β, not one a step
scaled-dot   q · h / √D                 Vaswani et al., 2017 (arXiv 1706.03762)

A score has two halves: what is made of the source once (`keys`), and what each query does with that (`forward`).
The softmax over the places of a source is not theirs: `blocks/alignment.py`.
"""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.errors import UsageError


class Score(nn.Module):
    over_source: tuple[str, ...] = ()

    def __init__(self, query_dim: int, hidden_dim: int, max_len: int):
        super().__init__()
        self.multiplied = query_dim  # products for each pair of a query and a key

    def keys(self, hidden: Tensor) -> Tensor:
        """(S, D) → (S, ·)"""
        return hidden

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        """(N, K, Q), (N, S, ·) → (N, K, S)"""
        raise NotImplementedError


class Dot(Score):
    def __init__(self, query_dim: int, hidden_dim: int, max_len: int):
        super().__init__(query_dim, hidden_dim, max_len)
        if query_dim != hidden_dim:
            raise UsageError(
                f"this score compares vectors of one width, but the decoder's states have {query_dim} numbers and the "
                f'encoder\'s {hidden_dim}: make them equal, or set \'model.score\' to "general" or "additive"'
            )

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class ScaledDot(Dot):
    def keys(self, hidden: Tensor) -> Tensor:
        return hidden / hidden.shape[-1] ** 0.5


class Cosine(Dot):
    """β starts at √D, where vectors of random directions have scores of variance 1."""

    def __init__(self, query_dim: int, hidden_dim: int, max_len: int):
        super().__init__(query_dim, hidden_dim, max_len)
        self.dim = query_dim
        self.log_sharpness = nn.Parameter(torch.empty(1))
        self.init_weights()

    def init_weights(self) -> None:
        nn.init.constant_(self.log_sharpness, math.log(self.dim) / 2)

    def keys(self, hidden: Tensor) -> Tensor:
        return F.normalize(hidden, dim=-1) * self.log_sharpness.exp()

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return super().forward(F.normalize(query, dim=-1), keys)


class General(Score):
    over_source = ("key",)

    def __init__(self, query_dim: int, hidden_dim: int, max_len: int):
        super().__init__(query_dim, hidden_dim, max_len)
        self.key = nn.Linear(hidden_dim, query_dim, bias=False)

    def keys(self, hidden: Tensor) -> Tensor:
        return self.key(hidden)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        return query @ keys.transpose(1, 2)


class Additive(Score):
    over_source = ("key",)

    def __init__(self, query_dim: int, hidden_dim: int, max_len: int):
        super().__init__(query_dim, hidden_dim, max_len)
        self.query = nn.Linear(query_dim, query_dim, bias=False)
        self.key = nn.Linear(hidden_dim, query_dim, bias=False)
        self.weigh = nn.Parameter(torch.empty(query_dim))
        self.init_weights()

    def init_weights(self) -> None:
        nn.init.uniform_(self.weigh, -(len(self.weigh) ** -0.5), len(self.weigh) ** -0.5)

    def keys(self, hidden: Tensor) -> Tensor:
        return self.key(hidden)

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        mixed = torch.tanh(self.query(query).unsqueeze(2) + keys.unsqueeze(1))  # (N, K, S, Q)
        return F.linear(mixed, self.weigh[None]).squeeze(3)


class Location(Score):
    """It knows max_len places. Of a source it needs their number alone: its keys have no numbers in them."""

    def __init__(self, query_dim: int, hidden_dim: int, max_len: int):
        super().__init__(query_dim, hidden_dim, max_len)
        self.places = nn.Parameter(torch.empty(max_len, query_dim))
        self.init_weights()

    def init_weights(self) -> None:
        nn.init.uniform_(self.places, -(self.multiplied**-0.5), self.multiplied**-0.5)

    def keys(self, hidden: Tensor) -> Tensor:
        return hidden[:, :0]

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        if keys.shape[1] > len(self.places):
            raise UsageError(
                f"a source of up to {keys.shape[1]} tokens, but the location score knows {len(self.places)} "
                "places: shorten the source, or train with a larger 'model.max_len'"
            )
        return F.linear(query, self.places[: keys.shape[1]])


SCORES: dict[str, type[Score]] = {
    "dot": Dot,
    "general": General,
    "additive": Additive,
    "location": Location,
    "cosine": Cosine,
    "scaled-dot": ScaledDot,
}

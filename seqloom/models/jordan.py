"""The network whose only recurrence comes from its output. Jordan, 1986, Serial order; Elman, 1990, is its contrast.

What is fed back is the output of the step before, here the embedding of that word. While a text is read (training,
evaluation, prompts), the word fed back is the true one: teacher forcing. In a language model that is the input itself,
x(t). While a text is generated it is the word that was drawn, which is the next input again. So one rule covers both,
and with the model's own text as the input the feedback is exact. The consequence: the state depends on the words alone
and on nothing that was computed from them, so all steps can be computed at once.

Departures: what is fed back is a word and not the output units; one table embeds both what is read and what is fed back.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Lineage, Ragged
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.grid import from_grid, lengths, to_grid
from seqloom.blocks.layers import Mixed
from seqloom.blocks.recurrent import init_recurrent
from seqloom.blocks.stack import Stack, StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dim, Dropout, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe


class JordanLayer(nn.Module):
    """s(t) = α s(t−1) + y(t−1), h(t) = tanh(W x(t) + U s(t) + b), where y(t−1) = x(t). Its state is s, (N, D)."""

    gates = ("state", "h")

    def __init__(self, dim: int, alpha: float, dropout: float):
        super().__init__()
        self.alpha = alpha
        self.read = nn.Linear(dim, dim)
        self.feedback = nn.Linear(dim, dim, bias=False)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor, batch: Ragged, state: Any, context: Context | None, maps: bool) -> Mixed:
        (before,) = self.start(batch.num_sequences, 0) if state is None else state
        s = to_grid(x, batch)  # (N, L, D); the state before is one more word in front of the first
        s = torch.cat((s[:, :1] + self.alpha * before.to(s.dtype).unsqueeze(1), s[:, 1:]), dim=1)
        reach = 1
        while reach < batch.max_len:  # each s(t) sums the last `reach` words, decayed; doubled in every round
            s = s + self.alpha**reach * nn.functional.pad(s, (0, 0, reach, 0))[:, : batch.max_len]
            reach *= 2
        after = torch.cat((before.to(s.dtype).unsqueeze(1), s), dim=1)
        after = after[torch.arange(batch.num_sequences, device=s.device), lengths(batch)]
        s = from_grid(s, batch)
        h = torch.tanh(self.read(self.dropout(x)) + self.feedback(self.dropout(s)))
        return h, (after,), torch.stack((s, h), dim=1) if maps else None

    def start(self, n: int, max_len: int) -> tuple[Tensor]:
        return (self.read.weight.new_zeros(n, self.read.in_features),)


class Jordan(StackedBackbone):
    """alpha: how much of the state is left after a word. 0 makes it a bigram model: the last word is all that it knows."""

    lineage = Lineage("Jordan, Serial order: a parallel distributed processing approach", 1986)
    recurrent = carries = True

    class Config(BaseConfig):
        vocab_size: VocabSize
        dim: Dim = 256
        alpha: float = Field(
            0.5, ge=0, lt=1, description="Share of the state that is left after a word; 0 makes a bigram model."
        )
        dropout: Dropout = 0.0

    presets = {"tiny": {"dim": 96}, "small": {"dim": 650}}  # noqa: RUF012

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        layer = JordanLayer(config.dim, config.alpha, config.dropout)
        embedding = TokenEmbedding(config.vocab_size, config.dim, dropout=0.0)
        super().__init__(embedding, Stack([layer], top=nn.Dropout(config.dropout)), config.dim)

    def init_weights(self) -> None:
        init_recurrent(self)

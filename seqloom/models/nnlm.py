"""The feed-forward language model over a window of words. Bengio et al., 2003, A neural probabilistic language model (JMLR 3).

Departures: a full softmax trained with whatever optimizer the recipe names; optional dropout.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Backbone, Context, Lineage, Output, Ragged, State
from seqloom.blocks.grid import from_grid, lengths, to_grid
from seqloom.blocks.recurrent import init_recurrent
from seqloom.config import Config as BaseConfig
from seqloom.models.fields import Dropout, VocabSize
from seqloom.models.shared_recipes import recurrent_recipe

NOTHING = -1  # stands in the window where the text has not begun


class Nnlm(Backbone):
    """x = the embeddings of the last order − 1 words, end to end; y = b + W x + U tanh(d + H x), the W x only if `direct`.

    hidden is [x ; tanh(…)], so that the output layer's weight is [W U]; without direct connections it is the tanh alone.
    The state is the last order − 2 token ids of each sequence, (N, order − 2), −1 before the text begins: those places
    of the window are zero vectors. The embeddings are narrower than what the output layer reads, so the two are not tied.
    """

    lineage = Lineage("Bengio et al., A neural probabilistic language model", 2003, "feed-forward", parent="ngram")
    recurrent = carries = True  # a state of constant size, though no loop is needed to compute it

    class Config(BaseConfig):
        vocab_size: VocabSize
        order: int = Field(
            5, ge=2, le=1024, description="Order n of the n-gram: the word and the n − 1 words before it."
        )
        embedding_dim: int = Field(60, gt=0, description="Width of a word's feature vector (m in the paper).")
        dim: int = Field(100, gt=0, description="Number of tanh units (h in the paper).")
        direct: bool = Field(False, description="Connect the word features directly to the output.")
        dropout: Dropout = 0.0

    presets = {  # noqa: RUF012
        "tiny": {"order": 5, "embedding_dim": 48, "dim": 64},
        "small": {"order": 5, "embedding_dim": 200, "dim": 650},
        # MLP1 of the paper's table 1: of the networks alone the best on Brown's test text (perplexity 268)
        "bengio-brown": {"vocab_size": 16383, "order": 5, "embedding_dim": 60, "dim": 50, "direct": True},
    }

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        return recurrent_recipe(preset, cls.presets[preset])

    def __init__(self, config: Config):
        super().__init__()
        width = (config.order - 1) * config.embedding_dim
        self.order, self.direct = config.order, config.direct
        self.dim = width + config.dim if config.direct else config.dim
        self.token = nn.Embedding(config.vocab_size, config.embedding_dim)
        self.units = nn.Linear(width, config.dim)
        self.dropout = nn.Dropout(config.dropout)
        self.init_weights()

    @property
    def gates(self) -> tuple[tuple[str, ...], ...]:
        return (("h",),)

    @property
    def table(self) -> nn.Embedding:
        return self.token

    def init_weights(self) -> None:
        init_recurrent(self)

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        (before,) = (self.start(batch.num_sequences, 0) if state is None else state).own
        line = torch.cat((before, to_grid(batch.ids, batch)), dim=1)  # (N, order − 2 + L)
        window = from_grid(line.unfold(1, self.order - 1, 1), batch)  # (T, order − 1), the word itself last
        known = (window != NOTHING).unsqueeze(2)
        x = self.dropout((self.token(window.clamp(min=0)) * known).flatten(1))
        h = torch.tanh(self.units(x))
        hidden = torch.cat((x, self.dropout(h)), dim=1) if self.direct else self.dropout(h)
        last = lengths(batch)[:, None] + torch.arange(self.order - 2, device=line.device)
        return Output(
            hidden,
            State((line.gather(1, last),)),
            layers=(x, h) if layers else (),
            maps=(h.unsqueeze(1),) if maps else (),
        )

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        nothing: Tensor = torch.full((n, self.order - 2), NOTHING, device=self.token.weight.device)
        return State((nothing,))

"""Translation language modelling: words hidden in a sentence and in its translation, predicted from both.

Lample & Conneau, 2019 (arXiv 1901.07291), XLM. A sentence and its translation are one sequence; each token has the embedding
of its language (its segment) and its place in its own sentence. The other batches have the two sides apart: masked language
modelling on two languages, which is what is left at `parallel` = 0.
"""

import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqloom.batch import IGNORE, Backbone, Pair, Passage, Ragged
from seqloom.objectives.masked import Masked, MaskedLM


class TranslationLM(MaskedLM):
    reads, languages = "pairs", ("source", "target")
    pair_evaluator = "seqloom.evaluate.pairs:parallel_loss"

    class Config(MaskedLM.Config):
        parallel: float = Field(
            0.5, ge=0, le=1, description="Share of the batches in which a sentence stands beside its translation."
        )

        @model_validator(mode="after")
        def always_anew(self) -> "TranslationLM.Config":
            if self.static:
                raise ValueError("static masks are for plain text, whose places are numbered: pairs are hidden anew")
            return self

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        """Whether a model has language embeddings."""
        return super().fits(model) and model.segment_kind == "languages"

    def __init__(self, backbone: Backbone, config: Config):
        super().__init__(backbone, config)
        self.parallel = config.parallel

    def corrupt(self, cut: Pair, rng: torch.Generator) -> Masked:  # type: ignore[override]
        together = bool(torch.rand((), generator=rng) < self.parallel)
        return super().corrupt(beside(cut) if together else apart(cut), rng)


def sides(pair: Pair) -> tuple[Tensor, list[tuple[Tensor, Tensor, Tensor]]]:
    """The first token, and of either side the ids with the end behind them, the owners, and which are text.

    Filler has no text on either side: its targets are not predicted."""
    filler = torch.zeros(pair.source.num_sequences, dtype=torch.bool)
    filler[pair.target.owner[pair.targets == IGNORE]] = True
    first = pair.target.ids[:1]  # a target is read from the end token on, which begins everything here
    target = pair.targets.where(pair.targets != IGNORE, pair.target.ids)
    found = []
    for ids, batch in ((pair.source.ids, pair.source), (target, pair.target)):
        text = ~filler[batch.owner]
        ends = batch.offsets[1:].long() - 1
        text[ends[batch.offsets.diff() > 0]] = False
        found.append((ids, batch.owner, text))
    return first, found


def beside(pair: Pair) -> Passage:
    """[END] source [END] target [END], one sequence a pair."""
    first, (source, target) = sides(pair)
    n = pair.source.num_sequences
    starts = torch.arange(n)
    owner = torch.cat((starts, source[1], target[1]))
    ids = torch.cat((first.expand(n), source[0], target[0]))
    text = torch.cat((torch.zeros(n, dtype=torch.bool), source[2], target[2]))
    language = torch.cat(
        (torch.zeros(n + len(source[0]), dtype=torch.long), torch.ones(len(target[0]), dtype=torch.long))
    )
    places = torch.cat((torch.zeros(n, dtype=torch.long), pair.source.positions + 1, pair.target.positions))
    longest = pair.source.max_len + pair.target.max_len + 1
    return lay_end_to_end(ids, owner, text, language, places, n, longest)


def apart(pair: Pair) -> Passage:
    """[END] source [END] and [END] target [END], two sequences a pair."""
    first, (source, target) = sides(pair)
    n = pair.source.num_sequences
    owner = torch.cat((torch.arange(2 * n), source[1], target[1] + n))
    ids = torch.cat((first.expand(2 * n), source[0], target[0]))
    text = torch.cat((torch.zeros(2 * n, dtype=torch.bool), source[2], target[2]))
    language = (owner >= n).long()
    places = torch.cat((torch.zeros(2 * n, dtype=torch.long), pair.source.positions + 1, pair.target.positions + 1))
    return lay_end_to_end(ids, owner, text, language, places, 2 * n, max(pair.source.max_len, pair.target.max_len) + 1)


def lay_end_to_end(
    ids: Tensor, owner: Tensor, text: Tensor, language: Tensor, places: Tensor, n: int, max_len: int
) -> Passage:
    """Tokens of n sequences, in their order within each, laid end to end."""
    order = torch.sort(owner, stable=True).indices
    offsets = torch.zeros(n + 1, dtype=torch.int32)
    offsets[1:] = torch.bincount(owner, minlength=n).cumsum(0)
    batch = Ragged(ids[order], places[order], owner[order], offsets, max_len, segments=language[order])
    spots = torch.arange(len(ids)).where(text[order], -1)
    return Passage(batch, spots, torch.full((n,), IGNORE))

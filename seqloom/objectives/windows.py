"""What skip-gram and CBOW share: windows of words around each word, and words that do not stand there to tell them from.

Mikolov et al., 2013 (arXiv 1310.4546), with the details of their program:

    words       special tokens and unknown words are left out, as words below the least count are there
    subsampling an occurrence of a word of frequency f is kept with probability √(t/f) + t/f, before windows are cut: what is
                left moves together
    windows     reach 1 … window words to either side, drawn for each word alone; none reaches out of its document
    negatives   drawn with the probabilities count^0.75 / Σ count^0.75

A hierarchical softmax (blocks/huffman.py) can stand in the place of negatives.

Departures: the words of a block of BLOCK tokens share `samples` negatives, each weighted by negatives / samples. That is the sum
over `negatives` words of each pair in expectation, and a product of two matrices instead of one row at a time. The program skips
a negative that is the word to be predicted; here, as in the paper, it is drawn like any other.
"""

from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import IGNORE, Backbone, Excerpt, Objective, Ragged, Sizes, Vocabulary, ragged
from seqloom.blocks.block_product import BlockProduct
from seqloom.blocks.huffman import HuffmanTree
from seqloom.config import Config as BaseConfig
from seqloom.errors import DataError, ModelError
from seqloom.models.word2vec import Word2vec

BLOCK = 32  # words whose windows are one matrix, and which share their negatives
POWER = 0.75  # of the counts, where negatives are drawn


class Windowed(NamedTuple):
    """Words that were kept of a text, in blocks, with the words around each of them."""

    batch: Ragged  # (T,) T is a multiple of BLOCK; the filler at its end is a sequence of its own
    near: Tensor  # (T / BLOCK, BLOCK + 2 · window) the places in the row that a block's windows can reach
    seen: Tensor  # (T / BLOCK, BLOCK, BLOCK + 2 · window) whether each word's own window reaches them
    negatives: Tensor  # (T / BLOCK, samples) ids
    words: int  # tokens of the text before any was left out
    pairs: int  # of a word and one in its window

    def sizes(self) -> Sizes:
        kept = int(self.batch.offsets[-2])
        return Sizes(self.words, self.pairs, kept, self.pairs)


class Draws:
    """What is drawn for a text, by how often each word occurs in the training text."""

    def __init__(self, counts: Tensor, specials: Tensor, subsample: float):
        counts = counts.cpu().double().clone()
        counts[specials.cpu()] = 0
        if not counts.sum() > 0:
            raise ModelError(
                "the run does not know how often its words occur, because its vectors were imported: nothing can be drawn"
            )
        frequency = counts / counts.sum()
        ratio = subsample / frequency.clamp(min=1e-30)
        keep = (ratio.sqrt() + ratio).clamp(max=1.0) if subsample else torch.ones_like(frequency)
        self.keep = torch.where(counts > 0, keep, 0.0).float()
        self.known = torch.ones(len(counts), dtype=torch.bool)
        self.known[specials.cpu()] = False
        weights = counts**POWER
        self.borders = (weights.cumsum(0) / weights.sum()).float()

    def kept(self, ids: Tensor, rng: torch.Generator) -> Tensor:
        """Which of the tokens stay. A word that the training text does not have is rarer than any: it stays."""
        keep = torch.where(self.keep[ids] > 0, self.keep[ids], 1.0)
        return self.known[ids] & (torch.rand(ids.shape, generator=rng) < keep)

    def negatives(self, shape: tuple[int, int], rng: torch.Generator) -> Tensor:
        drawn = torch.rand(shape, generator=rng)
        return torch.searchsorted(self.borders, drawn, right=True).clamp(max=len(self.borders) - 1)


def cut_windows(ids: Tensor, lengths: Tensor, reach: Tensor, window: int) -> tuple[Ragged, Tensor, Tensor]:
    """Lays words out in blocks: the batch, `near` and `seen` of Windowed. lengths: of the documents; reach: (T,) of each word's
    window, at most `window`."""
    kept = len(ids)
    # few shapes: rounded up to a sixteenth, at most
    blocks = max(-(-kept // BLOCK), 1)
    step = max(1 << (blocks.bit_length() - 5), 1) if blocks >= 32 else 1
    blocks = -(-blocks // step) * step
    filler = blocks * BLOCK - kept
    batch = ragged(
        F.pad(ids, (0, filler)), F.pad(lengths, (0, 1), value=filler), max_len=max(int(lengths.max()), filler, 1)
    )
    place = torch.arange(blocks * BLOCK).view(blocks, BLOCK)
    around = torch.arange(-window, BLOCK + window) + place[:, :1]
    near = around.clamp(0, blocks * BLOCK - 1)
    apart = torch.arange(-window, BLOCK + window) - torch.arange(BLOCK)[:, None]  # the same in every block
    far = apart.abs().masked_fill(apart == 0, window + 1)
    reach = F.pad(reach, (0, filler)).view(blocks, BLOCK)
    owner = batch.owner.view(blocks, BLOCK)
    beside = torch.where(around == near, batch.owner[near], -1)
    return batch, near, (far <= reach[:, :, None]) & (beside[:, None, :] == owner[:, :, None])


class Windows(Objective):
    """Learns vectors of words by telling the words around them from others. `context` is the table W′."""

    evaluator = "seqloom.evaluate.windows:WindowEvaluator"
    few_rows = True
    counts: Tensor  # (V,)
    specials: Tensor  # (V,) which tokens are no words

    class Config(BaseConfig):
        window: int = Field(5, ge=1, le=1000, description="The most words to either side that are predicted.")
        negatives: int = Field(5, ge=1, le=1000, description="Words that do not stand there, for each that does.")
        samples: int = Field(32, ge=1, le=4096, description="Negatives that the words of a block share.")
        output: Literal["negatives", "hierarchical"] = Field(
            "negatives", description="How words are predicted: told from negatives, or by a hierarchical softmax."
        )
        subsample: float = Field(
            1e-3, ge=0, le=1, description="Frequency t above which occurrences of a word are left out; 0: none is."
        )

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        return issubclass(model, Backbone) and model.learns_from == "windows"

    def __init__(self, backbone: Word2vec, config: Config):
        super().__init__()
        self.static = backbone.static
        self.backbone, self.window, self.subsample = backbone, config.window, config.subsample
        self.num_negatives, self.samples = config.negatives, config.samples
        self.context: nn.Embedding | None = None
        self.tree: HuffmanTree | None = None
        if config.output == "hierarchical":
            self.tree = HuffmanTree(backbone.vocab_size, backbone.dim)
        else:
            self.context = nn.Embedding(backbone.vocab_size, backbone.dim)
            nn.init.zeros_(self.context.weight)
            self.negative_scores = BlockProduct(backbone.dim, config.samples)
        self.register_buffer("counts", torch.zeros(backbone.vocab_size, dtype=torch.long))
        self.register_buffer("specials", torch.zeros(backbone.vocab_size, dtype=torch.bool))
        self.draws: Draws | None = None  # made of the two; on the host, where text is cut

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)
        self.counts.copy_(vocabulary.counts())
        self.specials.zero_()
        self.specials[vocabulary.specials()] = True
        if not (self.counts[~self.specials] > 0).any():
            raise DataError("the training text has no word of the vocabulary: prepare it from more text")
        self.prepare()

    def validate_loaded(self) -> None:
        self.backbone.validate_loaded()
        if bool((self.counts < 0).any()):
            raise ValueError("a count of a word is below 0")
        self.prepare()

    def prepare(self) -> None:
        """Makes what follows from the counts."""
        self.draws = None
        if self.tree is not None:
            self.tree.build(self.counts, ~self.specials, self.inputs_of_a_word)

    def corrupt(self, cut: Excerpt, rng: torch.Generator) -> Windowed:
        """The words of an excerpt with their windows. What follows each token is the text: each token of it once."""
        if self.draws is None:
            self.draws = Draws(self.counts, self.specials, self.subsample)
        real = cut.targets != IGNORE
        ids, owner = cut.targets[real], cut.batch.owner[real]
        stays = self.draws.kept(ids, rng)
        kept = ids[stays]
        lengths = torch.bincount(owner[stays], minlength=1)
        reach = torch.randint(1, self.window + 1, kept.shape, generator=rng)
        batch, near, seen = cut_windows(kept, lengths, reach, self.window)
        negatives = self.draws.negatives((near.shape[0], self.samples), rng)
        return Windowed(batch, near, seen, negatives, len(ids), int(seen.sum()))

    @property
    def inputs_of_a_word(self) -> int:
        """From how many hidden states the hierarchical softmax predicts each word."""
        raise NotImplementedError

    def around_each(self, example: Windowed) -> tuple[Tensor, Tensor]:
        """(T, 2 · window + 1) of each word the places that its window can reach, and whether it does."""
        blocks = len(example.near)
        own = torch.arange(BLOCK, device=example.near.device)[:, None]
        columns = (own + torch.arange(2 * self.window + 1, device=own.device)).expand(blocks, -1, -1)
        near = example.near[:, None, :].expand(-1, BLOCK, -1).gather(2, columns)
        return near.flatten(0, 1), example.seen.gather(2, columns).flatten(0, 1)

    def against_negatives(self, words: Tensor, negatives: Tensor) -> Tensor:
        """(blocks, BLOCK) what telling each word from its negatives costs: the sum over `negatives` of them in expectation."""
        assert self.context is not None
        scores = self.negative_scores(words, self.context(negatives).transpose(1, 2))
        return against(scores, False).sum(2) * (self.num_negatives / self.samples)

    def vectors(self, table: str) -> Tensor | None:
        inside = super().vectors("in")
        # without counts nothing was learnt: the vectors were imported, and W′ is not in their file
        learnt = self.context is not None and bool(self.counts.any())
        if table == "in" or not learnt or inside is None:
            return inside if table == "in" else None
        assert self.context is not None
        return self.context.weight if table == "out" else (inside + self.context.weight) / 2


def in_blocks(hidden: Tensor) -> Tensor:
    return hidden.view(-1, BLOCK, hidden.shape[-1])


def against(scores: Tensor, right: bool) -> Tensor:
    """−log σ(score) of a word that stands there, −log σ(−score) of one that does not."""
    return F.softplus(-scores if right else scores)

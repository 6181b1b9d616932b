"""Denoising: an encoder reads noised text, a decoder restores it. Lewis et al., 2019 (arXiv 1910.13461).

Five noises, which may be combined, and insertion: sentences are permuted; words become masks, are deleted, or are hidden in
spans with one mask each (infilling: lengths by Poisson's law, one of 0 being an insertion); masks are inserted; texts are
rotated. The rates of what is hidden are shares of words and exclude each other. What the decoder writes:

    whole       the text as it was (BART)
    sentinels   a sentinel for each span, and the words of it (T5, Raffel et al., 2020, arXiv 1910.10683)
    fragment    the one span alone, in its own places; the encoder sees as many masks (MASS, Song et al., 2019, arXiv 1905.02450)

Departures: BART's code places spans without regard to each other, so that they may meet and less is hidden than asked for; here
they never do, and shares are exact. T5's spans never touch and one ends each text; here they stand anywhere, and one whose long
words would make a target longer than a passage is not hidden. A sentence ends with a token that ends with a stop.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from pydantic import Field, model_validator
from torch import Tensor

from seqloom.batch import (
    IGNORE,
    EncoderDecoder,
    Loss,
    Objective,
    Output,
    Pair,
    Passage,
    Ragged,
    Sizes,
    State,
    Vocabulary,
    with_penalty,
)
from seqloom.batches.noise import (
    DELETED,
    KEPT,
    MASKED,
    SPAN,
    Hidden,
    Items,
    budgets,
    cut_spans,
    first_places,
    hide,
    permuted,
    place_within,
    poisson_spans,
    rotated,
    shuffled,
    singles,
    tokens_of,
)
from seqloom.batches.pairs import Fixed, lay_pair
from seqloom.blocks.softmax import Softmax
from seqloom.config import Config as BaseConfig
from seqloom.errors import ModelError
from seqloom.vocabulary import MOST_SENTINELS

STEPS = 8  # shapes of batches are eighths of their usual number of tokens
RATES = ("mask", "delete", "infill")  # of what is hidden


class Noised(NamedTuple):
    """Noised sources, and what is to be written of them."""

    source: Ragged
    target: Ragged
    targets: Tensor  # (T,) IGNORE where there is nothing to predict (filler)
    hidden: Tensor  # (T,) which targets the source does not show
    text: Tensor  # () how many tokens of text this was made of

    @property
    def batch(self) -> Ragged:
        return self.target

    def sizes(self) -> Sizes:
        return Pair(self.source, self.target, self.targets).sizes()._replace(tokens=int(self.text))


class Denoising(Objective):
    """Restores noised text."""

    reads, form = "passages", "single"
    fills_any_length = True
    evaluator = "seqloom.evaluate.denoised:DenoisingEvaluator"
    backbone: EncoderDecoder  # type: ignore[assignment]
    start_id: int | None = None  # a target begins with the token that ends one

    class Config(BaseConfig):
        permute: float = Field(1.0, ge=0, le=1, description="Share of the sentences that change their places.")
        mask: float = Field(0.0, ge=0, le=1, description="Share of the words that become masks, one for each token.")
        delete: float = Field(0.0, ge=0, le=1, description="Share of the words that are deleted.")
        infill: float = Field(
            0.3, ge=0, le=1, description="Share of the words that are hidden in spans, one mask for each."
        )
        insert: float = Field(0.0, ge=0, le=1, description="Masks that are inserted, for each word.")
        rotate: float = Field(0.0, ge=0, le=1, description="Share of the texts that begin at one of their tokens.")
        random: float = Field(0.1, ge=0, le=1, description="Share of the masks that become a random token.")
        spans: Literal["poisson", "cut", "one"] = Field(
            "poisson",
            description="Lengths of spans: by Poisson's law, as many words cut at random into none that is empty, or one span.",
        )
        length: float = Field(3.0, ge=0.5, le=100, description="Mean length of spans, in words.")
        unit: Literal["word", "token"] = Field("word", description="What is hidden as a whole: words or single tokens.")
        targets: Literal["whole", "sentinels", "fragment"] = Field(
            "whole",
            description="What the decoder writes: the whole text, each span after its sentinel, or the one span alone.",
        )
        bias: bool = Field(False, description="Add a bias to the output layer.")

        @model_validator(mode="after")
        def goes_together(self) -> "Denoising.Config":
            total = sum(getattr(self, name) for name in RATES)
            if total > 1:
                raise ValueError(f"mask, delete and infill hide {total:.3g} of the words, more than all")
            if self.targets == "whole":
                return self
            spans = {"sentinels": "cut", "fragment": "one"}[self.targets]
            others = [
                name for name in ("permute", "mask", "delete", "insert", "rotate", "random") if getattr(self, name)
            ]
            if self.spans != spans or others or not self.infill:
                wrong = f", and {', '.join(others)} = 0" if others else ""
                raise ValueError(
                    f'targets "{self.targets}" are of spans alone: set spans = "{spans}", infill above 0{wrong}'
                )
            if self.targets == "sentinels" and (self.infill > 0.5 or self.length < 2):
                raise ValueError(
                    'targets "sentinels" are shorter than the text: infill is at most 0.5, length at least 2'
                )
            return self

    mask_id: Tensor
    is_special: Tensor
    continues: Tensor
    is_stop: Tensor
    frame_ids: Tensor
    sentinel_ids: Tensor

    @classmethod
    def fits(cls, model: Any) -> bool:
        """Models that read a source and write a target."""
        return issubclass(model, EncoderDecoder) and model.sources == "texts"

    def __init__(self, backbone: EncoderDecoder, config: Config):
        super().__init__()
        table = backbone.table
        self.backbone, self.config = backbone, config
        self.fills_gaps = config.targets != "fragment"  # which would be told how long a gap is
        tied = table if table is not None and table.embedding_dim == backbone.dim else None
        self.softmax = Softmax(backbone.dim, backbone.vocab_size, tied, config.bias)
        self.softmax.init_weights(std=0.02, tied=tied is not None)
        size = backbone.vocab_size
        for name in ("is_special", "continues", "is_stop"):
            self.register_buffer(name, torch.zeros(size, dtype=torch.bool))
        self.register_buffer("mask_id", torch.tensor(-1))
        self.register_buffer("frame_ids", torch.full((3,), -1))
        self.register_buffer("sentinel_ids", torch.full((MOST_SENTINELS,), -1))

    # ---- the vocabulary

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        vocabulary.mask()
        if self.config.targets == "sentinels" and len(vocabulary.sentinels()) < 2:
            has = "only <extra_id_0>" if vocabulary.sentinels() else "no tokens <extra_id_0>, <extra_id_1> and so on"
            raise ModelError(
                f"'objective.targets' = \"sentinels\": the vocabulary has {has}, but one stands before each span and one behind "
                "the last: prepare the text with --sentinels 20"
            )

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.mask_id.fill_(vocabulary.mask())
        self.is_special[vocabulary.specials()] = True
        self.continues.copy_(vocabulary.continues())
        self.is_stop.copy_(vocabulary.stops())
        self.frame_ids.copy_(torch.tensor(vocabulary.frame()))
        sentinels = vocabulary.sentinels()[:MOST_SENTINELS]
        self.sentinel_ids[: len(sentinels)] = torch.tensor(sentinels, dtype=torch.long)
        self.validate_loaded()

    def validate_loaded(self) -> None:
        """Keeps on the host what data workers need."""
        size = self.backbone.vocab_size
        self.mask = int(self.mask_id)
        numbers = [self.mask, *self.frame_ids.tolist()]
        if not all(0 <= number < size for number in numbers) or not bool((self.sentinel_ids < size).all()):
            raise ValueError(f"the special tokens have the numbers {numbers}, outside the vocabulary")
        self.before, self.between, self.after = self.backbone.surround(*self.frame_ids.tolist())
        self.ordinary = (~self.is_special.cpu()).nonzero().flatten().numpy()
        self.inside, self.stops = self.continues.cpu().numpy(), self.is_stop.cpu().numpy()
        self.sentinels = self.sentinel_ids[self.sentinel_ids >= 0].cpu().numpy()

    def initial_loss(self) -> float:
        return math.log(self.backbone.vocab_size)

    # ---- noise

    def corrupt(self, cut: Passage, rng: torch.Generator, noise: "Denoising.Config | None" = None) -> Noised:
        """noise: another than its own, for whole targets."""
        noise = noise or self.config
        drawn = np.random.default_rng(int(torch.randint(2**62, (), generator=rng)))
        text = cut.places >= 0
        ids = cut.batch.ids[text].numpy()
        _, owner = np.unique(cut.batch.owner[text].numpy(), return_inverse=True)
        order = permuted(owner, self.stops[ids], noise.permute, drawn) if noise.permute else np.arange(len(ids))
        begins = self.word_begins(ids[order], owner, noise.unit)
        items = self.draw_items(np.bincount(owner[begins], minlength=1), noise, drawn)
        room = cut.batch.max_len - len(self.before) - len(self.after)
        if noise.targets == "sentinels":
            items = spans_that_fit(items, tokens_of(items, begins), room - 1)
        hidden = hide(ids[order], owner, begins, items, self.mask, room, noise.targets == "fragment")
        source = hidden.ids.copy()
        if noise.random:
            other = hidden.is_mask & (drawn.random(len(source)) < noise.random)
            source[other] = drawn.choice(self.ordinary, int(other.sum()))
        if noise.rotate and len(source):
            source = source[rotated(hidden.owner, noise.rotate, drawn)]
        gone = np.zeros(len(ids), bool)
        gone[order] = hidden.gone
        return self.lay_out(
            ids, owner, hidden._replace(ids=source, gone=gone), cut.batch.max_len, len(cut.batch.ids), noise
        )

    def word_begins(self, ids: np.ndarray, owner: np.ndarray, unit: str) -> np.ndarray:
        """(T,) which tokens begin what is hidden as a whole."""
        if unit == "token":
            return np.ones(len(ids), bool)
        return ~self.inside[ids] | (place_within(owner) == 0)

    def draw_items(self, words: np.ndarray, noise: "Denoising.Config", rng: np.random.Generator) -> Items:
        masked, deleted, infilled = budgets(words, [getattr(noise, name) for name in RATES], rng)
        if noise.spans == "poisson":
            spans = poisson_spans(infilled, noise.length, rng)
        elif noise.spans == "cut":
            spans = cut_spans(infilled, noise.length, max(len(self.sentinels) - 1, 1), rng)
        else:
            if noise.targets == "fragment":
                infilled = np.maximum(infilled, 1)  # every text has a target
            spans = np.flatnonzero(infilled), infilled[infilled > 0]
        inserted = np.repeat(np.arange(len(words)), np.floor(words * noise.insert + rng.random(len(words))).astype(int))
        inserted = inserted if noise.insert else inserted[:0]
        kept = words - masked - deleted - infilled
        parts = [singles(KEPT, kept), singles(MASKED, masked), singles(DELETED, deleted)]
        parts += [(SPAN, *spans), (SPAN, inserted, np.zeros(len(inserted), np.int64))]
        return shuffled(parts, rng)

    def lay_out(
        self, ids: np.ndarray, owner: np.ndarray, hidden: Hidden, max_len: int, usual: int, noise: "Denoising.Config"
    ) -> Noised:
        """Sources and targets between their special tokens. ids, owner: of the texts; usual: the tokens of a batch, of which the
        shapes are eighths; 0: shapes are as they come."""
        many = int(owner[-1]) + 1
        noised, wanted, asked, text = hidden.ids, ids, hidden.gone, owner
        if noise.targets == "sentinels":
            noised, wanted, asked, text = self.with_sentinels(ids, owner, hidden)
        source, source_lengths = self.framed(noised, np.bincount(hidden.owner, minlength=many))
        own = np.bincount(text, minlength=many)
        following, lengths = self.framed(wanted, own)
        asked, _ = self.framed(asked, own, ((False,) * len(self.before), (False,) * len(self.after)))
        read = np.concatenate((following[:1], following[:-1]))
        read[first_places(lengths)] = self.after[-1]  # a target is written from the token on that ends one
        places = place_within(np.repeat(np.arange(many), lengths))
        if noise.targets == "fragment":
            lengths = np.bincount(np.repeat(np.arange(many), lengths)[asked], minlength=many)
            following, read, places, asked = (each[asked] for each in (following, read, places, asked))
        fixed = fitting(many, len(source), len(read), usual, max_len) if usual else None
        pair = lay_pair(source, source_lengths, read, following, lengths, fixed)
        spare = len(pair.targets) - len(asked)
        target = pair.target
        if noise.targets == "fragment":
            target = target._replace(positions=torch.cat((torch.from_numpy(places), target.positions[len(places) :])))
        shown = torch.from_numpy(np.pad(asked, (0, spare)))
        return Noised(pair.source, target, pair.targets, shown, torch.tensor(len(ids)))

    def framed(
        self, row: np.ndarray, lengths: np.ndarray, frame: tuple[tuple[Any, ...], tuple[Any, ...]] | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Each text between its special tokens, or between other values; and how long it is with them."""
        before, after = (self.before, self.after) if frame is None else frame
        sizes = lengths + len(before) + len(after)
        starts = first_places(sizes)
        found = np.empty(int(sizes.sum()), row.dtype)
        for i, value in enumerate(before):
            found[starts + i] = value
        for i, value in enumerate(after):
            found[starts + sizes - len(after) + i] = value
        found[np.arange(len(row)) + np.repeat(starts + len(before) - first_places(lengths), lengths)] = row
        return found, sizes

    def with_sentinels(self, ids: np.ndarray, owner: np.ndarray, hidden: Hidden) -> tuple[np.ndarray, ...]:
        """The sources with a sentinel in the place of each mask; and of the targets, the sentinels and the words of each span and
        a last sentinel, the ids, which of them were hidden, and their owners."""
        source, gone = hidden.ids.copy(), hidden.gone
        source[hidden.is_mask] = self.sentinels[place_within(hidden.owner[hidden.is_mask])]
        words, text, span = ids[gone], owner[gone], hidden.span[gone]
        begins = np.flatnonzero((np.diff(span, prepend=-1) != 0) | (np.diff(text, prepend=-1) != 0))
        many = int(owner[-1]) + 1
        texts = np.concatenate((text[begins], np.arange(many)))
        places = np.concatenate((begins, np.bincount(text, minlength=many).cumsum()))
        values = self.sentinels[np.concatenate((span[begins], np.bincount(text[begins], minlength=many)))]
        order = np.lexsort((texts, places))  # at one place the last of a text before the first of the next
        added = [np.insert(row, places[order], new) for row, new in ((words, values[order]), (text, texts[order]))]
        return source, added[0], np.insert(np.ones(len(words), bool), places[order], False), added[1]

    def cover(self, ids: np.ndarray, owner: np.ndarray, covered: np.ndarray, max_len: int) -> Noised:
        """Texts in each of which some tokens that stand together are hidden, as its noise hides words. covered: (T,) them."""
        begins = ~covered | (np.diff(covered.astype(np.int8), prepend=0) > 0) | (place_within(owner) == 0)
        starts = np.flatnonzero(begins)
        kinds = np.where(covered[starts], SPAN, KEPT)
        items = Items(owner[starts], kinds, np.diff(np.append(starts, len(ids))))
        each = self.config.targets == "fragment" or (self.config.mask > 0 and not self.config.infill)
        hidden = hide(ids, owner, np.ones(len(ids), bool), items, self.mask, max_len, each)
        return self.lay_out(ids, owner, hidden, max_len, 0, self.config)

    # ---- restoring

    def forward(self, example: Noised, carry: State | None = None) -> Loss:
        output: Output = self.backbone(Pair(example.source, example.target, example.targets).with_real())
        total = self.softmax(output.hidden, example.targets)
        return with_penalty(Loss(total, (example.targets != IGNORE).sum()), output)

    def losses(self, example: Noised) -> Tensor:
        """(T,) −log p of every target, in fp32 at least."""
        return self.softmax(self.backbone(example).hidden, example.targets, each=True)


def spans_that_fit(items: Items, tokens: np.ndarray, room: int) -> Items:
    """Items without those spans, from the first one on, that with a sentinel each are longer than the room of their text: of few
    long words one holds most of it. tokens: of each item."""
    hidden = items.kind == SPAN
    written = np.where(hidden, tokens + 1, 0)
    ends = np.cumsum(written)
    before = (ends - written)[place_within(items.owner) == 0]
    taken = ends - np.repeat(before, np.bincount(items.owner))
    return items._replace(kind=np.where(hidden & (taken > room), KEPT, items.kind))


def fitting(many: int, source: int, target: int, usual: int, max_len: int) -> Fixed:
    """The shape for so many texts, and so many tokens of their sources and targets: few shapes occur."""
    step = max(usual // STEPS, 8)
    sizes = [-(-size // step) * step for size in (source, target)]
    while True:
        filler = [sizes[0] - source, sizes[1] - target]
        pieces = max(-(-size // max_len) for size in filler)
        if min(filler) >= pieces:  # filler has a source for each of its targets
            return Fixed(sizes[0], sizes[1], 1 << (many + pieces - 1).bit_length(), max_len)
        sizes[filler[0] > filler[1]] += step

"""The contract between data, models, losses and decoders.

Letters, the same in every file:
    T tokens in the batch   N sequences   D model width   H heads   E width of one head
    V vocabulary   L longest sequence   C characters in a word   S source tokens
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from seqloom.config import named_object
from seqloom.state import Cache as Cache
from seqloom.state import Joints as Joints
from seqloom.state import Ring as Ring
from seqloom.state import State as State
from seqloom.state import Tree as Tree
from seqloom.state import detach as detach
from seqloom.state import join as join
from seqloom.state import join_streams as join_streams
from seqloom.state import replace as replace
from seqloom.state import select as select
from seqloom.state import widen as widen
from seqloom.vocabulary import Vocabulary as Vocabulary

IGNORE = -100  # the target of a place that is not to be predicted
APART = (
    2  # the segment of a token that stands for a whole text, where segments are relative: other than those of its texts
)
STATIC = ("windows", "cells")  # what models learn from whose words have one vector each, whatever stands around them


class Borders(Protocol):
    """Where sequences begin and end in a row of tokens: all that the grid and the kernels read of a batch."""

    @property
    def owner(self) -> Tensor: ...
    @property
    def offsets(self) -> Tensor: ...
    @property
    def max_len(self) -> int: ...
    @property
    def num_sequences(self) -> int: ...
    @property
    def is_full(self) -> bool: ...


class Images(NamedTuple):
    """N pictures, or published features of their regions: what the encoder of a captioner reads. The borders are of regions."""

    values: Tensor  # (N, side, side, 3) uint8 pixels, or (S, D) features
    owner: Tensor  # (S,)
    offsets: Tensor  # (N+1,)
    max_len: int
    texts: Tensor | None = None  # (texts,) the picture of each text, where several texts are about one picture

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        return self.owner.shape[0] == self.num_sequences * self.max_len


class Ragged(NamedTuple):
    """N sequences laid end to end in one row of T tokens, with no padding between them."""

    ids: Tensor  # (T,)   token ids
    positions: Tensor  # (T,)   place in the own sequence; absolute when a state is carried
    owner: Tensor  # (T,)   which sequence the token belongs to
    offsets: Tensor  # (N+1,) int32 borders; trailing sequences may be empty
    max_len: int  # no sequence is longer; known on the host, so that nothing has to ask the device
    segments: Tensor | None = None  # (T,)
    chars: Tensor | None = None  # (T, C)
    order: Tensor | None = None  # (T,)   factorisation order
    max_position: int | None = None  # no position is larger, if the host knows: a cache need not be read behind it
    beside: Tensor | None = None  # (T, B) features from other models, which stand beside what some layer reads
    real: Tensor | None = None  # (T,) whether a token is text and no filler, where it is known: balance losses ask it
    pictures: Images | None = None  # where texts are about pictures
    states: Tensor | None = None  # (T, S) what a frozen model makes of the tokens, where that was computed before

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        """Every sequence has max_len tokens. It follows from the shapes alone: none is longer, and together they have T."""
        return self.ids.shape[0] == self.num_sequences * self.max_len


class Sizes(NamedTuple):
    """The sizes of a batch that its cost follows from; filler does not count."""

    tokens: int  # of text: what a budget counts
    pairs: int  # of tokens in one sequence, Σ L²: the cost of attention
    read: int  # tokens that go through the model, special ones included
    targets: int  # tokens that are predicted
    source_tokens: int = 0
    source_pairs: int = 0
    cross: int = 0  # pairs of a token and one of its source
    # of each sequence: attention over a window has fewer pairs
    lengths: tuple[int, ...] = ()
    source_lengths: tuple[int, ...] = ()
    task: int = 0  # of several


class Excerpt(NamedTuple):
    """A piece of a corpus, cut out by the loader: tokens, and the token that follows each of them."""

    batch: Ragged
    targets: Tensor  # (T,) IGNORE where there is nothing to predict (filler)
    joints: Joints | None = None  # None: each sequence continues the state with its own number
    last_chars: Tensor | None = None  # (N, C) the characters of the last target of each sequence, where they are read

    def sizes(self) -> Sizes:
        lengths = torch.bincount(self.batch.owner[self.targets != IGNORE])
        tokens = int(lengths.sum())
        return Sizes(
            tokens, int((lengths * lengths).sum()), tokens, tokens, lengths=tuple(lengths[lengths > 0].tolist())
        )


class Pair(NamedTuple):
    """N sources and their N targets, with the token that follows each token of the targets."""

    source: Any  # Borders: a Ragged of tokens, or what else its encoder reads: Images
    target: Ragged
    targets: Tensor  # (T,) IGNORE where there is nothing to predict (filler)

    @property
    def batch(self) -> Ragged:
        """The target, under the name that an Excerpt has for its tokens."""
        return self.target

    def with_real(self) -> "Pair":
        """The same, told which of its tokens are text. Filler of a source has a target of filler."""
        real = self.targets != IGNORE
        target = self.target._replace(real=real)
        if not isinstance(self.source, Ragged):
            return self._replace(target=target)
        known = torch.zeros_like(self.source.offsets[1:]).index_add(0, self.target.owner, real.int()) > 0
        return self._replace(source=self.source._replace(real=known[self.source.owner]), target=target)

    def sizes(self) -> Sizes:
        n = self.source.num_sequences
        lengths = torch.bincount(self.target.owner[self.targets != IGNORE], minlength=n)
        sources = self.source.offsets.diff().long() * (lengths > 0)
        tokens, both = int(lengths.sum()), ((lengths, lengths), (sources, sources), (sources, lengths))
        own, source_pairs, cross = (int((a * b).sum()) for a, b in both)
        target, source = (tuple(each[each > 0].tolist()) for each in (lengths, sources))
        return Sizes(tokens, own, tokens, tokens, int(sources.sum()), source_pairs, cross, target, source)


class Passage(NamedTuple):
    """Sequences of one or two parts with their special tokens, for models that read in both directions."""

    batch: Ragged
    places: Tensor  # (T,) where each token stands in the corpus; −1: a special token, or filler
    labels: Tensor  # (N,) 0: the two parts are as in their document, 1: they are not; IGNORE where there is one part
    joined: Tensor | None = None  # (T,) which tokens continue the entity of the token before, where entities are tagged


class Words(NamedTuple):
    """The words of each example, laid end to end: Borders, of words instead of tokens."""

    owner: Tensor  # (W,)
    offsets: Tensor  # (N+1,)
    max_len: int

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        return self.owner.shape[0] == self.num_sequences * self.max_len


class Labelled(NamedTuple):
    """Texts with their labels: of whole texts, of each word, of a choice among texts, or of a span."""

    batch: Ragged
    own: Tensor  # (T,) the tokens that labels are about: no special tokens, no filler; of two texts sometimes only one
    real: Tensor  # (T,) whether a token is read at all, and not filler
    labels: Tensor  # in the form of the task; IGNORE, or NaN for numbers, where there is no label
    groups: Tensor  # (N,) the example of each sequence: a choice has several sequences; filler has one of its own
    places: Tensor | None = None  # (W, 2) of labelled words: the first token of each, and the one behind its last
    words: Words | None = None

    @property
    def known(self) -> Tensor:
        """Which labels are known: (N,) of sequences, or (W,) of words."""
        first = self.labels if self.labels.ndim == 1 else self.labels[:, 0]
        return ~first.isnan() if first.is_floating_point() else first != IGNORE

    def sizes(self) -> Sizes:
        lengths = torch.bincount(self.batch.owner[self.real])
        targets = int(self.known.sum()) if self.labels.ndim == 1 else int((lengths > 0).sum())
        pairs = int((lengths * lengths).sum())
        found = Sizes(
            int(self.own.sum()), pairs, int(lengths.sum()), targets, lengths=tuple(lengths[lengths > 0].tolist())
        )
        pictures = self.batch.pictures
        if pictures is None:
            return found
        regions = pictures.offsets.diff().long()
        of = torch.arange(len(regions), device=regions.device) if pictures.texts is None else pictures.texts
        of = of[: len(lengths)]
        sources = regions[of[lengths > 0].unique()]
        cross = int((regions[of] * lengths).sum())
        return found._replace(
            source_tokens=int(sources.sum()), source_pairs=int(sources.square().sum()), cross=cross,
            source_lengths=tuple(sources.tolist()),
        )  # fmt: skip


class Context(NamedTuple):
    """What a decoder attends to: encoder states, image regions, or another model's memory."""

    hidden: Tensor  # (S, D)
    owner: Tensor  # (S,)
    offsets: Tensor  # (N+1,)
    max_len: int
    final: State | None = None  # of a recurrent encoder: its state after the last token of each sequence
    penalty: Tensor | None = None  # () what its encoder adds to the loss

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        return self.owner.shape[0] == self.num_sequences * self.max_len


class MapRows(NamedTuple):
    """In place of maps=True: the tokens whose attention is wanted. All others go through the fast kernels alone."""

    tokens: Tensor  # (R,) their numbers in the batch, rising


class Output(NamedTuple):
    hidden: Tensor  # (T, D) the top layer
    state: State | None = None
    layers: tuple[Tensor, ...] = ()  # the embedding and every layer, (T, D) each, when layers=True
    # when maps=True, one a layer: attention weights (N, H, L, L) or gates (T, G, D). With a state the weights are those of the
    # new tokens on what is kept: (T, H, capacity), in order of position; with a window (T, H, window), the last on itself.
    # maps=MapRows: weights (R, H, L), and those across (R, H, S)
    maps: tuple[Tensor, ...] = ()
    # when maps=True, one a layer that looks at a context: how much each token looks at each place of its source, (T, H, S)
    # with S the longest source, 0 behind the end of a shorter one; steps with a state have it, too
    cross: tuple[Tensor, ...] = ()
    query: Tensor | None = None  # (Q, D) a second stream of some places, which has not seen the tokens there
    penalty: Tensor | None = None  # () a sum learnt from beside the objective: of experts, attention, relaxation
    log_choice: Tensor | None = None  # (T,) log-probability of what hard attention drew for a token


def without_state(output: Output) -> Output:
    """The output of a body that reads whole texts and has no state. Not by `_replace`: torch 2.11 cannot compile that."""
    return Output(output.hidden, None, output.layers, output.maps, output.cross, output.query, output.penalty)


class Edit(NamedTuple):
    """Gates on parts of a model while it computes: 1 leaves a part as it is, 0 removes it. Gradients flow into them."""

    heads: Mapping[int, Tensor] = {}  # by layer: (H,), or (T, H), on the output of each attention head
    # (layers,), or (layers, T): 0 passes the input of the layer on, values between mix the two
    layers: Tensor | None = None


class Loss(NamedTuple):
    """Sums, never means: right under ragged batches, accumulation and many ranks."""

    total: Tensor  # ()
    count: Tensor  # type: ignore[assignment]  # () how many targets
    # more sums over the same targets; "penalty": the part of the total that is trained on but not reported
    logs: dict[str, Tensor] = {}  # noqa: RUF012
    carry: State | None = None  # handed to the next batch of the same streams


def with_penalty(loss: Loss, output: Output) -> Loss:
    """The loss with the penalty of the backbone's output, which is trained on but not reported."""
    return add_penalty(loss, output.penalty)


def add_penalty(loss: Loss, penalty: Tensor | None) -> Loss:
    if penalty is None:
        return loss
    logs = loss.logs | {"penalty": loss.logs.get("penalty", 0.0) + penalty.detach()}
    return loss._replace(total=loss.total + penalty, logs=logs)


class Lineage(NamedTuple):
    """Where a model comes from."""

    paper: str
    year: int
    kind: str = ""  # what it is, where neither "recurrent" nor "transformer" says it
    parent: str = ""  # the model whose file is the one to read before this one


class HeadStyle(NamedTuple):
    """How objectives and tasks build their layers on top of a model."""

    pooling: str = "last"  # of a whole sequence: "first", "last", "mean" or "max"
    # of a layer between the model and the label layer of whole texts; none: there is no such layer
    hidden_activation: str = ""
    activation: str = "gelu"
    eps: float = 1e-5  # of norms


class Backbone(nn.Module):
    """A model up to its hidden states. The output layers belong to an objective or a task."""

    dim: int
    max_len: int | None = None  # the longest context that it can read; None: no limit
    causal: bool = True
    carries: bool = False  # True: a state of constant size goes from batch to batch
    recurrent: bool = False  # True: it computes step by step, and its state is a hidden state
    no_next_word: str = ""  # why nothing can be predicted from the tokens before it, where somebody might think so
    # counts: of n-grams, without gradients; windows: what stands around a word, which it does not read; cells: how often two
    # words stand near each other; labels: not pre-trained
    learns_from: Literal["text", "counts", "windows", "cells", "labels"] = "text"
    # what segment ids stand for: the two texts of a pair; the same, told only whether they differ; languages
    segment_kind: Literal["", "texts", "relative", "languages"] = ""
    head_style: HeadStyle = HeadStyle()
    lineage: Lineage
    presets: ClassVar[dict[str, dict[str, Any]]]  # published and small sizes, as values of Config

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """How a size of it is trained unless somebody says otherwise: the sections of a recipe beside [model]."""
        raise NotImplementedError

    @property
    def gates(self) -> tuple[tuple[str, ...], ...]:
        """The names of what maps=True returns for each layer; empty: attention weights."""
        return ()

    @property
    def characters(self) -> int:
        """How many characters of a word it reads; 0: it reads token ids."""
        return 0

    @property
    def table(self) -> nn.Embedding | None:
        """Token embeddings, which an output layer may share; None where words have no vectors of their own."""
        raise NotImplementedError

    @property
    def vocab_size(self) -> int:
        assert self.table is not None
        return self.table.num_embeddings

    def word_vectors(self) -> Tensor | None:
        """(V, D) the vectors that tokens are read as; None where words have none of their own."""
        return None if self.table is None else self.table.weight

    def vector_of(self, word: str) -> Tensor | None:
        """(D,) of a word that is not in the vocabulary; None where there is none."""
        return None

    def forward(
        self,
        batch: Ragged,
        *,
        state: State | None = None,
        context: Context | None = None,
        layers: bool = False,
        maps: bool = False,
    ) -> Output:
        raise NotImplementedError

    def as_backbone(self) -> "Backbone":
        """What texts are embedded with."""
        return self

    def surround(
        self, first: int, separator: int, end: int, extract: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The special tokens before the first text of a task, between two texts and after the last. extract: the last token for
        left-to-right models."""
        if self.causal:
            return (end,), (separator,), (extract,)
        return (first,), (separator,) if self.segment_kind == "texts" else (separator, separator), (separator,)

    def start(self, n: int, max_len: int, context: Context | None = None) -> State:
        """The state of n sequences that have read nothing yet and will read at most max_len tokens."""
        raise NotImplementedError

    def init_weights(self) -> None:
        """Fills the values; `__init__` only builds shapes."""
        raise NotImplementedError

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Called before training; few models use it."""

    def validate_loaded(self) -> None:
        """As Learner.validate_loaded."""


class EncoderDecoder(nn.Module):
    """Reads whole sources, then writes a target for each, token by token. Ends at hidden states, as a Backbone does.

    The decoder is a Backbone that looks at a context: given as `context=` where whole targets are read, put into the
    state by `start(n, max_len, context)` where they are written step by step.
    """

    over_source = ("encoder",)  # the parts that run over the source, not over the target: their cost follows its length
    encoder: nn.Module
    decoder: Backbone
    dim: int
    max_len: int | None = None  # of a source and of a target, if there is a limit
    aligned: bool = True  # its attention to the source is in Output.cross
    sources: Literal["texts", "pictures"] = "texts"  # what it reads before it writes
    causal = True
    recurrent = carries = False  # nothing is carried from batch to batch
    learns_from: Literal["text", "labels"] = "labels"  # how its recipes train it; `denoising` can train every one
    usual_view: Literal["encoder", "whole"] = "encoder"  # what tasks that predict labels use, unless told otherwise
    head_style: HeadStyle = HeadStyle(pooling="last")  # of the view "whole"
    segment_kind = ""
    characters = 0
    presets: ClassVar[dict[str, dict[str, Any]]]
    lineage: Lineage

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """How a size of it is trained unless somebody says otherwise: the sections of a recipe beside [model]."""
        raise NotImplementedError

    def encode(self, source: Any) -> Context:
        raise NotImplementedError

    @staticmethod
    def surround(first: int, separator: int, end: int) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The special tokens before a source or a target, between two texts of it, and after the last; that begins a target."""
        return (), (end,), (end,)

    def view(self, part: str) -> Backbone:
        """Itself as a Backbone that reads a text (blocks/views.py): its "encoder", or "whole", the decoder after both read it."""
        return named_object("seqloom.blocks.views:VIEWS")[part](self)

    def as_backbone(self) -> Backbone:
        """What texts are embedded with: its encoder."""
        return self.view("encoder").eval()

    def forward(self, pair: Pair, *, layers: bool = False, maps: bool = False) -> Output:
        return self.decoder(pair.target, context=self.encode(pair.source), layers=layers, maps=maps)

    @property
    def table(self) -> nn.Embedding | None:
        """Embeddings of the target's tokens, which an output layer may share."""
        return self.decoder.table

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size

    def init_weights(self) -> None:
        raise NotImplementedError


def reads_pictures(model: type[nn.Module]) -> bool:
    """Whether a model's sources are pictures."""
    return issubclass(model, EncoderDecoder) and model.sources == "pictures"


class Learner(nn.Module):
    """What the training loop trains: an example goes in, a summed loss and a count come out."""

    static: bool = True  # examples of one shape run the same kernels: nothing is decided on the host
    # what the loader cuts out for it: excerpts, passages, pairs, tagged passages, labelled texts or cells of counts
    reads: str = "excerpts"
    parted_by: str = "punctuation"  # what separates words, where a vocabulary of words is built for it
    count_based: bool = False  # True: it learns by counting, without gradients
    few_rows: bool = False  # True: a step moves few rows of its tables, so that gradients of these alone are cheaper
    languages: tuple[str, ...] = ()  # where it defines the languages of its texts itself
    # what measures it, as "module:name": on held-out text an Evaluator (evaluate/evaluators.py); on held-out pairs a function of
    # the learner, the pairs and the device
    evaluator: str = ""
    pair_evaluator: str = ""

    def forward(self, example: Any, carry: State | None = None) -> Loss:
        raise NotImplementedError

    def corrupt(self, cut: Any, rng: torch.Generator) -> Any:
        """Makes a training example, with `sizes`, from what the loader cut out: a pure function of it and the generator."""
        return cut

    def start(self, n: int) -> State | None:
        """The state of n streams before their first batch; None where no state is carried."""
        return None

    def advance(self, spent: float) -> None:
        """Called before every step with the share of the budget that is spent, 0 to 1. What it sets follows from that alone."""

    @property
    def extra_forwards(self) -> int:
        """Forward passes without a gradient in a training step, which count in its cost."""
        return 0

    def size(self) -> int:
        """The number of parameters."""
        return sum(parameter.numel() for parameter in self.parameters())

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Raises where it cannot be trained with a vocabulary; called before anything is written."""

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Called before training. What it keeps are buffers, stored with the weights."""

    def resize_to(self, tensors: dict[str, Tensor]) -> None:
        """Takes over stored tensors whose sizes do not follow from the config; few learners have such."""

    def validate_loaded(self) -> None:
        """Called after its tensors were loaded: checks what does not follow from shapes. Raises ValueError."""


class Objective(Learner):
    """Learns from plain text. Owns its output layers."""

    backbone: Backbone
    form: str = ""  # of the passages that it is trained on
    has_next_word: bool = False  # it gives the probability of the next word: it can generate, be mixed, use a cache
    fills_gaps: bool = False  # it gives the probability of a word in the place of the mask token
    fills_any_length: bool = False  # and of any number of words there
    chosen_by_loss: bool = True  # the best weights are those with the least loss on held-out text

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        """Whether models of this class can be trained with it."""
        return issubclass(model, Backbone) and model.learns_from == "text"

    def vectors(self, table: str) -> Tensor | None:
        """(V, D) of the words: "in" those that are read, "out" those that are predicted, "mean" of both; None: it has none."""
        return self.backbone.as_backbone().word_vectors() if table == "in" else None

    def start(self, n: int) -> State | None:
        return self.backbone.start(n, 0) if self.backbone.carries else None


class Task(Learner):
    """Learns from labelled examples. Owns its output layers."""

    backbone: Any  # what transfers

    @classmethod
    def fits(cls, model: Any) -> bool:
        """Whether models of this class can be trained for it."""
        raise NotImplementedError


def wide(x: Tensor) -> Tensor:
    """The numbers in fp32 at least: sums and logarithms in half precision are too inexact."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def exact(x: Tensor) -> Tensor:
    """The numbers in fp64, for sums over a whole text: on the host where the device is an Apple GPU, which has no fp64."""
    return (x.cpu() if x.device.type == "mps" else x).double()


def to_device(example: Tree, device: torch.device) -> Tree:
    if device.type == "cpu":
        return example
    if device.type != "cuda":
        return pytree.tree_map_only(Tensor, lambda t: t.to(device), example)
    return pytree.tree_map_only(Tensor, lambda t: t.pin_memory().to(device, non_blocking=True), example)


def ragged(ids: Tensor, lengths: Tensor, max_len: int | None = None, start: Tensor | None = None) -> Ragged:
    """Lays sequences of these lengths over one row of ids; `start` (N,) is where each one's positions begin."""
    n = lengths.shape[0]
    offsets = torch.zeros(n + 1, dtype=torch.int32, device=ids.device)
    offsets[1:] = lengths.cumsum(0)
    owner = torch.arange(n, device=ids.device).repeat_interleave(lengths)
    positions = torch.arange(ids.shape[0], device=ids.device) - offsets[:-1].long()[owner]
    if start is not None:
        positions = positions + start[owner]
    return Ragged(ids, positions, owner, offsets, int(lengths.max()) if max_len is None else max_len)


def pack(sequences: list[list[int]]) -> Ragged:
    """A batch of plain lists."""
    ids = torch.tensor([i for sequence in sequences for i in sequence], dtype=torch.long)
    return ragged(ids, torch.tensor([len(sequence) for sequence in sequences]))

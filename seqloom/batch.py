"""The contract between data, models, losses and decoders.

Letters, the same in every file:
    T tokens in the batch   N sequences   D model width   H heads   E width of one head
    V vocabulary   L longest sequence   C characters in a word   S source tokens
"""

from collections.abc import Mapping
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeVar

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from seqloom.config import named_object

IGNORE = -100  # the target of a place that is not to be predicted

Tree = TypeVar("Tree")


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
    max_position: int | None = (
        None  # no position is larger, if the host knows: what a cache holds behind it need not be read
    )

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        """Every sequence has max_len tokens. It follows from the shapes alone: none is longer, and together they have T."""
        return self.ids.shape[0] == self.num_sequences * self.max_len


class Sizes(NamedTuple):
    """What a batch costs by: filler is not in it."""

    tokens: int  # of text, which a budget counts
    pairs: int  # of tokens in one sequence: Σ L², which attention pays for
    read: int  # tokens that go through the model, special ones included
    targets: int  # that are predicted
    source_tokens: int = 0
    source_pairs: int = 0
    cross: int = 0  # of a token and one of its source
    # of the sequences that the pairs are of: attention over a window pays for fewer
    lengths: tuple[int, ...] = ()
    source_lengths: tuple[int, ...] = ()


class Joints(NamedTuple):
    """Where the sequences of a batch join on to N streams, if documents are sequences of their own in them."""

    first: Tensor  # (N,) the sequence that a stream begins the batch with
    last: Tensor  # (N,) the one that it ends with
    goes_on: Tensor  # (N,) whether the first one goes on with a document of the batch before


class Excerpt(NamedTuple):
    """What the loader cuts out of a corpus: the tokens, and the one that follows each of them there."""

    batch: Ragged
    targets: Tensor  # (T,) IGNORE where there is nothing to predict (filler)
    joints: Joints | None = None  # none: every sequence goes on with the state of its own number

    def sizes(self) -> Sizes:
        lengths = torch.bincount(self.batch.owner[self.targets != IGNORE])
        tokens = int(lengths.sum())
        return Sizes(
            tokens, int((lengths * lengths).sum()), tokens, tokens, lengths=tuple(lengths[lengths > 0].tolist())
        )


class Pair(NamedTuple):
    """Texts and what they are turned into: N sources, and as many targets with the token that follows each of theirs."""

    source: Any  # Borders: a Ragged of tokens, or whatever else its encoder reads, image regions for one
    target: Ragged
    targets: Tensor  # (T,) IGNORE where there is nothing to predict (filler)

    @property
    def batch(self) -> Ragged:
        """What is predicted, as an Excerpt has it."""
        return self.target

    def sizes(self) -> Sizes:
        n = self.source.num_sequences
        lengths = torch.bincount(self.target.owner[self.targets != IGNORE], minlength=n)
        sources = self.source.offsets.diff().long() * (lengths > 0)
        tokens = int(lengths.sum())
        return Sizes(
            tokens,
            int((lengths * lengths).sum()),
            tokens,
            tokens,
            int(sources.sum()),
            int((sources * sources).sum()),
            int((sources * lengths).sum()),
            tuple(lengths[lengths > 0].tolist()),
            tuple(sources[sources > 0].tolist()),
        )


class Passage(NamedTuple):
    """Sequences with their special tokens, one part or two: what is cut out for models that read in both directions."""

    batch: Ragged
    places: Tensor  # (T,) where each token stands in the corpus; −1: a special token, or filler
    labels: Tensor  # (N,) of two parts: 0 they are as in their document, 1 not; IGNORE where there are no two
    joined: Tensor | None = None  # (T,) which tokens go on with the entity of the token before, where that is told


class Words(NamedTuple):
    """Where the words of each example stand in a row of words: Borders, of words instead of tokens."""

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
    """Texts with what is to be told about them: about whole texts, each word, a choice among texts, a stretch of a text."""

    batch: Ragged
    own: Tensor  # (T,) which tokens are asked about: no special tokens, no filler, of two texts sometimes one
    real: Tensor  # (T,) whether a token is read at all, and not filler
    labels: Tensor  # as the task has them; IGNORE, of numbers NaN, where there is nothing to tell
    groups: Tensor  # (N,) the example that each sequence belongs to: several for a choice; filler has one of its own
    places: Tensor | None = (
        None  # (W, 2) where labels are of words: the first token of each, and the one behind its last
    )
    words: Words | None = None

    @property
    def known(self) -> Tensor:
        """Which labels there are: of each sequence, or of each word."""
        first = self.labels if self.labels.ndim == 1 else self.labels[:, 0]
        return ~first.isnan() if first.is_floating_point() else first != IGNORE

    def sizes(self) -> Sizes:
        lengths = torch.bincount(self.batch.owner[self.real])
        told = int(self.known.sum()) if self.labels.ndim == 1 else int((lengths > 0).sum())
        pairs = int((lengths * lengths).sum())
        return Sizes(int(self.own.sum()), pairs, int(lengths.sum()), told, lengths=tuple(lengths[lengths > 0].tolist()))


class State(NamedTuple):
    """What a model remembers. Dim 0 of every tensor is the sequence, so beam search is one `select`.

    Where a decoder looks at sources, `own` may have several rows for each row of `shared`: the K hypotheses of a source
    stand together, rows K·i to K·i + K − 1. A search moves `own` only.
    A state that goes into a call is used up by it: key/value caches are extended in place.
    """

    own: Any = ()  # one entry a layer: h and c, keys and values, memory
    shared: Any = ()  # what all hypotheses of one source share: what is looked at, made ready once


class Cache(NamedTuple):
    """Of a State: what is kept of every token that was read, at its position. Dim 1 is how many there is room for."""

    kept: Tensor  # (n, capacity, …)


class Ring(NamedTuple):
    """Of a State: what is kept of the last tokens that were read, the one at position p in place p modulo their number. It never
    needs more room."""

    kept: Tensor  # (n, window, …)


class Context(NamedTuple):
    """What a decoder looks at: encoder states, image regions, or another model's memory."""

    hidden: Tensor  # (S, D)
    owner: Tensor  # (S,)
    offsets: Tensor  # (N+1,)
    max_len: int
    final: State | None = None  # of a recurrent encoder: what it remembers after the last token of each sequence

    @property
    def num_sequences(self) -> int:
        return self.offsets.shape[0] - 1

    @property
    def is_full(self) -> bool:
        return self.owner.shape[0] == self.num_sequences * self.max_len


class Output(NamedTuple):
    hidden: Tensor  # (T, D) the top layer
    state: State | None = None
    layers: tuple[Tensor, ...] = ()  # the embedding and every layer, (T, D) each, when layers=True
    # when maps=True, one a layer: attention weights (N, H, L, L) or gates (T, G, D). With a state the weights are those of the
    # new tokens on what is kept: (T, H, capacity), in order of position; with a window (T, H, window), the last on itself
    maps: tuple[Tensor, ...] = ()
    # when maps=True, one a layer that looks at a context: how much each token looks at each place of its source, (T, H, S)
    # with S the longest source, 0 behind the end of a shorter one; steps with a state have it, too
    cross: tuple[Tensor, ...] = ()
    query: Tensor | None = None  # (T, D) a second stream, which has not seen the token of its own place
    penalty: Tensor | None = (
        None  # () a sum that is learnt from beside the objective: of experts, attention, relaxation
    )


def without_state(output: Output) -> Output:
    """The output of a body that reads whole texts and has no state. Not by `_replace`: torch 2.11 cannot compile that."""
    return Output(output.hidden, None, output.layers, output.maps, output.cross, output.query, output.penalty)


class Edit(NamedTuple):
    """Gates on parts of a model while it computes: 1 leaves a part as it is, 0 takes it away. Gradients flow into them."""

    heads: Mapping[int, Tensor] = {}  # by layer: (H,), or (T, H), on the output of each attention head
    layers: Tensor | None = None  # (layers,): 0 hands on what the layer has read, values between mix the two


class Loss(NamedTuple):
    """Sums, never means: right under ragged batches, accumulation and many ranks."""

    total: Tensor  # ()
    count: Tensor  # type: ignore[assignment]  # () how many targets
    # more sums over the same targets; "penalty": that part of the total which is learnt from, but not reported
    logs: dict[str, Tensor] = {}  # noqa: RUF012
    carry: State | None = None  # handed to the next batch of the same streams


def with_penalty(loss: Loss, output: Output) -> Loss:
    """What a body adds to whatever is learnt from it; it is learnt from and not reported."""
    if output.penalty is None:
        return loss
    before = loss.logs.get("penalty", 0.0)
    logs = loss.logs | {"penalty": before + output.penalty.detach()}
    return loss._replace(total=loss.total + output.penalty, logs=logs)


class Vocabulary(Protocol):
    """What a learner may want to know of the words before it learns; it costs something only if it is asked."""

    def counts(self) -> Tensor:
        """(V,) how often each occurs in the training text."""

    def spellings(self, longest: int) -> Tensor:
        """(V, C ≤ longest) the characters of each, as `tokens.spelling` numbers them."""

    def continues(self) -> Tensor:
        """(V,) which go on with the word that the token before them has begun."""

    def specials(self) -> list[int]:
        """Those that are no text."""

    def mask(self) -> int:
        """The one that stands for a hidden word. ModelError where there is none."""


class Lineage(NamedTuple):
    """Where a model comes from."""

    paper: str
    year: int
    kind: str = ""  # what it is, where neither "recurrent" nor "transformer" says it


class HeadStyle(NamedTuple):
    """How the layers that objectives and tasks put on top of a model are made, so that they fit it."""

    pooling: str = "last"  # where a whole sequence is read: "first", "last", "mean" or "max"
    # of a layer between the model and the label layer of whole texts; none: there is no such layer
    hidden_activation: str = ""
    activation: str = "gelu"
    eps: float = 1e-5  # of norms


class Backbone(nn.Module):
    """Ends at hidden states. What is predicted from them belongs to an objective or a task."""

    dim: int
    max_len: int | None = None  # the longest context that it can take in; None: no limit
    causal: bool = True
    carries: bool = False  # True: a state of constant size goes from batch to batch
    recurrent: bool = False  # True: one step after the other, and what it remembers is a hidden state
    learns_from: Literal["text", "counts", "labels"] = (
        "text"  # counts of text have no gradient; labels: it is not pre-trained
    )
    segment_kind: Literal["", "texts", "languages"] = (
        ""  # what its segments tell apart, the two texts of a pair or languages
    )
    head_style: HeadStyle = HeadStyle()
    lineage: Lineage
    presets: ClassVar[dict[str, dict[str, Any]]]  # published and small sizes, as values of Config

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """How a size of it is trained unless somebody says otherwise: the sections of a recipe beside [model]."""
        raise NotImplementedError

    @property
    def gates(self) -> tuple[tuple[str, ...], ...]:
        """Of each layer, the names of what maps=True shows; none: attention weights."""
        return ()

    @property
    def characters(self) -> int:
        """That it reads of a word; 0: it knows words by their ids."""
        return 0

    @property
    def table(self) -> nn.Embedding | None:
        """Token embeddings, which an output layer may share; None where words have no vectors of their own."""
        raise NotImplementedError

    @property
    def vocab_size(self) -> int:
        assert self.table is not None
        return self.table.num_embeddings

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

    def surround(
        self, first: int, separator: int, end: int, extract: int
    ) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
        """The special tokens that texts of a task have before the first, between two and behind the last. extract: what a model
        that reads from left to right ends them with."""
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
        """Told before training what the words are; few models ask."""

    def validate_loaded(self) -> None:
        """As Learner.validate_loaded."""


class EncoderDecoder(nn.Module):
    """Reads whole sources, then writes a target for each, token by token. Ends at hidden states, as a Backbone does.

    The decoder is a Backbone that looks at a context: given as `context=` where whole targets are read, put into the
    state by `start(n, max_len, context)` where they are written step by step.
    """

    over_source = ("encoder",)  # which parts of it run over the source and not over the target: they cost by its length
    encoder: nn.Module
    decoder: Backbone
    dim: int
    max_len: int | None = None  # of a source and of a target, if there is a limit
    aligned: bool = True  # it tells where it looks: Output.cross
    causal = True
    recurrent = carries = False  # nothing is carried from batch to batch
    learns_from = "labels"
    characters = 0
    presets: ClassVar[dict[str, dict[str, Any]]]
    lineage: Lineage

    @classmethod
    def recipe(cls, preset: str) -> dict[str, Any]:
        """How a size of it is trained unless somebody says otherwise: the sections of a recipe beside [model]."""
        raise NotImplementedError

    def encode(self, source: Any) -> Context:
        raise NotImplementedError

    def view(self, part: str) -> Backbone:
        """Itself as a Backbone that reads a text: "encoder", the encoder's states, or "whole", the decoder's after both have
        read it (blocks/views.py)."""
        return named_object("seqloom.blocks.views:VIEWS")[part](self)

    def forward(self, pair: Pair, *, layers: bool = False, maps: bool = False) -> Output:
        return self.decoder(pair.target, context=self.encode(pair.source), layers=layers, maps=maps)

    @property
    def table(self) -> nn.Embedding | None:
        """Of the target's tokens, which an output layer may share."""
        return self.decoder.table

    @property
    def vocab_size(self) -> int:
        return self.decoder.vocab_size

    def init_weights(self) -> None:
        raise NotImplementedError


class Learner(nn.Module):
    """All that the training loop knows: an example goes in, a sum and a count come out."""

    static: bool = True  # examples of one shape take one course: nothing is decided on the host
    # what the loader cuts out for it: excerpts, passages, pairs, tagged passages or labelled texts
    reads: str = "excerpts"
    parted_by: str = "punctuation"  # what parts words, where a vocabulary of words is learnt for it
    count_based: bool = False  # True: it learns by counting, and no gradient is followed
    languages: tuple[str, ...] = ()  # that it names itself, where texts of it have a language
    # what measures it, as "module:name": on held-out text an Evaluator (evaluate/evaluators.py); on held-out pairs a function of
    # the learner, the pairs and the device
    evaluator: str = ""
    pair_evaluator: str = ""

    def forward(self, example: Any, carry: State | None = None) -> Loss:
        raise NotImplementedError

    def corrupt(self, cut: Any, rng: torch.Generator) -> Any:
        """What is learnt from, made of what the loader has cut out: a pure function of the text and the generator, which
        may run in a data worker. It can tell its `sizes`."""
        return cut

    def start(self, n: int) -> State | None:
        """The state that n streams carry before their first batch; None where nothing is carried."""
        return None

    def advance(self, spent: float) -> None:
        """Told before every step how much of the budget is spent, 0 to 1. What it sets must follow from that alone: a
        resumed run is told the same."""

    @property
    def extra_forwards(self) -> int:
        """Forward passes without a gradient in a training step, beside the one that is learnt from: they cost, too."""
        return 0

    def size(self) -> int:
        """How many numbers it learns."""
        return sum(parameter.numel() for parameter in self.parameters())

    def check_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Refuses, before anything is written, a vocabulary that it cannot learn with."""

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        """Told before training what the words are. What it keeps of that are buffers, stored with the weights."""

    def resize_to(self, tensors: dict[str, Tensor]) -> None:
        """Takes over stored tensors whose sizes the config does not tell; few learners have such."""

    def validate_loaded(self) -> None:
        """After its tensors were filled from a file: checks what shapes alone do not tell. ValueError if it is wrong."""


class Objective(Learner):
    """Learns from plain text. Owns its output layers."""

    backbone: Backbone
    form: str = ""  # of the passages that it learns from
    has_next_word: bool = False  # it gives the probability of the next word: it can be generated from, mixed and cached
    fills_gaps: bool = False  # it gives the probability of a word that the mask token stands for

    @classmethod
    def fits(cls, model: type[Backbone]) -> bool:
        """Whether models of this kind can learn by it."""
        return issubclass(model, Backbone) and model.learns_from == "text"

    def start(self, n: int) -> State | None:
        return self.backbone.start(n, 0) if self.backbone.carries else None


class Task(Learner):
    """Learns from labelled examples. Owns its output layers."""

    backbone: Any  # what transfers

    @classmethod
    def fits(cls, model: Any) -> bool:
        """Whether models of this kind can learn it."""
        raise NotImplementedError


def select(state: Tree, index: Tensor) -> Tree:
    """Reorders, repeats or drops the sequences of a state."""
    return pytree.tree_map_only(Tensor, lambda t: t.index_select(0, index), state)


def join(first: Tree, second: Tree) -> Tree:
    """The sequences of one state, and behind them those of another of the same model. Caches have room for the longer one."""

    def joined(a: Any, b: Any) -> Any:
        if isinstance(a, Cache):
            capacity = max(a.kept.shape[1], b.kept.shape[1])
            return Cache(torch.cat((widen(a, capacity).kept, widen(b, capacity).kept)))
        return torch.cat((a, b.to(a.dtype)))

    return pytree.tree_map(joined, first, second, is_leaf=lambda part: isinstance(part, Cache))


def join_streams(fresh: Tree, carried: Tree, joints: Joints) -> Tree:
    """The state of all sequences of a batch: that of a stream for those that go on with one, a fresh one for the others."""

    def joined(new: Tensor, old: Tensor) -> Tensor:
        goes_on = joints.goes_on.view(-1, *[1] * (old.dim() - 1))
        return new.index_copy(0, joints.first, torch.where(goes_on, old.to(new.dtype), new[joints.first]))

    return pytree.tree_map(joined, fresh, carried)


def widen(state: Tree, capacity: int) -> Tree:
    """Makes room for more tokens in the caches of a state."""

    def wider(part: Any) -> Any:
        if not isinstance(part, Cache):
            return part
        n, held, *rest = part.kept.shape
        return Cache(torch.cat((part.kept, part.kept.new_zeros(n, capacity - held, *rest)), 1))

    return pytree.tree_map(wider, state, is_leaf=lambda part: isinstance(part, Cache))


def detach(state: Tree) -> Tree:
    return pytree.tree_map_only(Tensor, lambda t: t.detach(), state)


def wide(x: Tensor) -> Tensor:
    """In fp32 at least: sums and logarithms of half-precision numbers are no measurement."""
    return x.float() if x.dtype in (torch.bfloat16, torch.float16) else x


def to_device(example: Tree, device: torch.device) -> Tree:
    if device.type == "cpu":
        return example
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

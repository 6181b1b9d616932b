"""What every model and learner must do. Each check raises AssertionError where it does not hold."""

import hashlib
import math
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from seqloom.batch import IGNORE, Backbone, Excerpt, Ragged, pack, ragged, select
from seqloom.blocks.experts import Experts
from seqloom.blocks.lsh import LshAttention
from seqloom.models import model_class
from seqloom.objectives.counted import Counted
from seqloom.objectives.next_token import NextToken
from seqloom.tokens.spelling import BEGIN, END, FIRST_BYTE, spell
from seqloom.training.count import count_ngrams, put
from seqloom.training.optim import OptimConfig, build_optimizer, step

VOCAB = 61
LENGTHS = (31, 32, 33, 63, 64, 65, 1, 2)

SMALL: dict[str, dict[str, Any]] = {
    "ngram": {"order": 4},
    "nnlm": {"order": 4, "embedding_dim": 12, "dim": 24},
    "rnn": {"dim": 24, "num_layers": 2},
    "irnn": {"dim": 24, "num_layers": 2, "scale": 0.9},
    "jordan": {"dim": 24},
    "gru": {"dim": 24, "num_layers": 2},
    "lstm": {"dim": 24, "num_layers": 2},
    "awd-lstm": {"embedding_dim": 20, "dim": 24, "num_layers": 2},
    "big-lstm": {
        "dim": 32,
        "proj_dim": 24,
        "num_layers": 2,
        "max_chars": 7,
        "char_dim": 8,
        "filters": ((1, 6), (2, 8), (4, 8)),
    },
    "gpt": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 96, "dropout": 0.0},
    "gpt2": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 96, "dropout": 0.0},
    "gpt3": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 96, "dropout": 0.0},
    "bytenet": {"dim": 24, "num_layers": 4, "dilations": (1, 2, 4), "width": 3},
    "reformer": {
        "dim": 24,
        "num_layers": 2,
        "num_heads": 3,
        "max_len": 96,
        "axial": (12, 8),
        "buckets": (4,),
        "chunk": 4,
        "dropout": 0.0,
    },
    "music-transformer": {
        "dim": 24,
        "num_layers": 2,
        "num_heads": 3,
        "max_distance": 40,
        "max_len": 96,
        "dropout": 0.0,
    },
    "transformer-xl": {"dim": 24, "num_layers": 2, "num_heads": 3, "mem_len": 9, "dropout": 0.0},
}
VARIANTS = {
    "nnlm-direct": ("nnlm", {"direct": True}),
    "nnlm-bigram": ("nnlm", {"order": 2}),
    "jordan-bigram": ("jordan", {"alpha": 0.0}),
    "rnn-residual": ("rnn", {"connection": "residual", "num_layers": 3}),
    "irnn-identity": ("irnn", {"scale": 1.0}),
    "rnn-dense": ("rnn", {"connection": "dense", "num_layers": 3}),
    "gru-highway": ("gru", {"connection": "highway", "num_layers": 3}),
    "gru-reset-first": ("gru", {"reset": "before"}),
    "lstm-dense": ("lstm", {"connection": "dense", "num_layers": 3, "proj_dim": 16}),
    "ngram-unigram": ("ngram", {"order": 1}),
    "ngram-bigram": ("ngram", {"order": 2}),
    "rnn-sigmoid": ("rnn", {"nonlinearity": "sigmoid"}),
    "rnn-relu": ("rnn", {"nonlinearity": "relu"}),
    "lstm-projected": ("lstm", {"proj_dim": 16}),
    "awd-lstm-dropped": (
        "awd-lstm",
        {
            "num_layers": 3,
            "dropout": 0.4,
            "layer_dropout": 0.3,
            "input_dropout": 0.4,
            "embedding_dropout": 0.1,
            "weight_drop": 0.5,
        },
    ),
    "awd-lstm-square": ("awd-lstm", {"embedding_dim": 24, "num_layers": 3, "weight_drop": 0.5}),
    "big-lstm-words": ("big-lstm", {"inputs": "words"}),
    "big-lstm-plain": ("big-lstm", {"proj_dim": 0, "dim": 24, "num_highways": 0}),
    "gpt2-deep": ("gpt2", {"num_layers": 4}),
    "transformer-xl-pre": ("transformer-xl", {"norm": "pre", "head_dim": 5, "eval_len": 11, "clamp_len": 7}),
    "music-transformer-near": ("music-transformer", {"max_distance": 1, "head_dim": 5}),
    "gpt2-window": ("gpt2", {"window": 7, "head_dim": 5}),
    "gpt2-turns": ("gpt2", {"window": 7, "global_every": 2, "num_layers": 3}),
    "gpt2-experts": ("gpt2", {"experts": 5, "experts_k": 2}),
    "gpt2-experts-all": ("gpt2", {"experts": 3, "experts_k": 3}),
    "lstm-experts": ("lstm", {"experts": 4, "experts_k": 1, "num_layers": 3}),
    "bytenet-wide": ("bytenet", {"width": 5, "dilations": (1, 3), "num_layers": 2}),
    "reformer-factors": (
        "reformer",
        {"buckets": (4, 2), "rounds": 3, "head_dim": 6, "axial_dims": (7, 17), "ffn_chunk": 5},
    ),
    "reformer-one-bucket": ("reformer", {"buckets": (1,), "chunk": 96, "rounds": 1}),
    "reformer-plain": ("reformer", {"reversible": False, "chunk": 8, "eval_rounds": 3}),
    "bytenet-words": ("bytenet", {"width": 1, "num_layers": 2}),
}
# those that learn by gradients
NEURAL = [name for name in (*SMALL, *VARIANTS) if model_class(VARIANTS.get(name, (name,))[0]).learns_from != "counts"]


class Words:
    """A vocabulary in which every word is one character of its own, and later ones are rarer."""

    has_counts = True

    def counts(self) -> Tensor:
        return torch.arange(VOCAB, 0, -1)

    def spellings(self, longest: int) -> Tensor:
        return torch.from_numpy(spell([bytes([i]) for i in range(VOCAB)], longest))

    def words(self) -> list[str]:
        return [chr(0x4E00 + i) for i in range(VOCAB)]


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> Backbone:
    base, extra = VARIANTS.get(name, (name, {}))
    cls: Any = model_class(base)
    torch.manual_seed(seed)
    model = cls(cls.Config(**({"vocab_size": VOCAB} | SMALL[base] | extra | changes)))
    if cls.learns_from == "counts":  # it must have read some of what it is asked about, and not all
        learner = Counted(model, Counted.Config())
        texts = [text for lengths in (LENGTHS, (65,), (50, 41, 33)) for text in sequences(seed, lengths)]
        row, sizes = np.array([i for text in texts for i in [0, *text]]), np.array([1 + len(text) for text in texts])
        put(learner, count_ngrams(row, np.cumsum(sizes) - sizes, model.order, VOCAB))
    model.set_vocabulary(Words())
    prefer_experts(model)
    with torch.no_grad():  # zeros and ones would hide a missing bias or norm
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def prefer_experts(model: torch.nn.Module) -> None:
    """Gates as they are after some training: at first they prefer no expert, and all tokens go through the same ones."""
    for module in model.modules():
        if isinstance(module, Experts):
            torch.nn.init.normal_(module.gate.weight)
            torch.nn.init.normal_(module.noise.weight, std=0.1)


def learner_of(model: Backbone, **config: Any) -> NextToken:
    dtype = next(model.parameters()).dtype
    tie = model.table is not None and model.table.embedding_dim == model.dim
    return NextToken(model, NextToken.Config(**({"tie": tie} | config))).to(dtype)


def sequences(seed: int, lengths: tuple[int, ...] = LENGTHS) -> list[list[int]]:
    rng = torch.Generator().manual_seed(seed)
    return [torch.randint(0, VOCAB, (n,), generator=rng).tolist() for n in lengths]


def following(texts: list[list[int]]) -> Tensor:
    return torch.tensor([i for text in texts for i in [*text[1:], IGNORE]])


def close(a: Tensor, b: Tensor, limit: float) -> None:
    assert a.shape == b.shape, (a.shape, b.shape)
    assert torch.isfinite(a).all() and torch.isfinite(b).all()
    worst = (a - b).abs().max().item() if a.numel() else 0.0
    assert worst <= limit, f"differ by {worst:.3g}, allowed {limit:.3g}"


def has_experts(model: torch.nn.Module) -> bool:
    return any(isinstance(module, Experts) for module in model.modules())


def single(model: Backbone) -> bool:
    return any(parameter.dtype == torch.float32 for parameter in model.parameters())


def widened(batch: Ragged, max_len: int, empty: int) -> Ragged:
    """The same batch with a longer max_len and empty sequences behind it, as the loader pads shapes."""
    tail = batch.offsets[-1:].expand(empty)
    return batch._replace(offsets=torch.cat((batch.offsets, tail)), max_len=max_len)


@torch.no_grad()
def causality(model: Backbone, seed: int) -> None:
    """Tokens after t are replaced: outputs up to t move by exactly 0."""
    (text,) = sequences(seed, (65,))
    other = sequences(seed + 1, (65,))[0]
    for t in (0, 1, 31, 32, 63):
        changed = text[: t + 1] + [(b + 1) % VOCAB if a == b else b for a, b in zip(text[t + 1 :], other, strict=False)]
        assert changed[: t + 1] == text[: t + 1] and changed != text
        before = model(pack([text, other])).hidden[: t + 1]
        after = model(pack([changed, other])).hidden[: t + 1]
        # which tokens an expert multiplies together, or stand in one chunk, decides the last bit of each
        sorts = has_experts(model) or any(isinstance(module, LshAttention) for module in model.modules())
        same = (before - after).abs().max() < 1e-13 if sorts else torch.equal(before, after)
        assert same, f"token {t} sees later ones"


@torch.no_grad()
def packing(model: Backbone, seed: int) -> None:
    """A sequence gives the same in a packed batch, alone, and with padded shapes."""
    texts = sequences(seed)
    together = model(pack(texts)).hidden
    alone = torch.cat([model(pack([text])).hidden for text in texts])
    limit = (1e-6 if single(model) else 1e-12) * max(1.0, alone.abs().max().item())
    close(together, alone, limit)
    close(model(widened(pack(texts), 80, 3)).hidden, alone, limit)


@torch.no_grad()
def batch_order(model: Backbone, seed: int) -> None:
    """The order and the company of a sequence change nothing."""
    texts = sequences(seed)
    first = dict(zip(map(tuple, texts), split(model(pack(texts)).hidden, texts), strict=True))
    mixed = [texts[i] for i in torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()]
    mixed = mixed[2:] + sequences(seed + 9, (40,))
    for text, hidden in zip(mixed, split(model(pack(mixed)).hidden, mixed), strict=True):
        if tuple(text) in first:
            close(hidden, first[tuple(text)], 1e-12)


def split(hidden: Tensor, texts: list[list[int]]) -> list[Tensor]:
    return list(hidden.split([len(text) for text in texts]))


@torch.no_grad()
def steps(model: Backbone, seed: int) -> None:
    """Step by step through forward(state=) = one full forward, for several sequences at once."""
    limit = 1e-5 if single(model) else 1e-10
    texts = sequences(seed, (20, 20, 20))
    full = model(pack(texts)).hidden.view(3, 20, -1)
    state = model.start(3, 20)
    for t in range(20):
        batch = ragged(
            torch.tensor([text[t] for text in texts]), torch.ones(3, dtype=torch.long), 1, torch.full((3,), t)
        )
        output = model(batch, state=state)
        close(output.hidden, full[:, t], limit)
        state = output.state


@torch.no_grad()
def chunks(model: Backbone, seed: int) -> None:
    """In chunks of unequal length, some of them empty, the state carried and reordered on the way, = one pass."""
    texts = sequences(seed, (50, 41, 33))
    full = split(model(pack(texts)).hidden, texts)
    rows, read, state = [0, 1, 2], [0, 0, 0], model.start(3, 50)  # which text is in which row, how far it is read
    for ends in ((20, 11, 30), (25, 12, 33), (50, 41, 33)):
        parts = [texts[k][read[k] : ends[k]] for k in rows]
        lengths = torch.tensor([len(part) for part in parts])
        ids = torch.tensor([i for part in parts for i in part])
        output = model(ragged(ids, lengths, int(lengths.max()), torch.tensor([read[k] for k in rows])), state=state)
        for k, piece in zip(rows, output.hidden.split(lengths.tolist()), strict=True):
            close(piece, full[k][read[k] : ends[k]], 1e-10)
        read = list(ends)
        state = select(output.state, torch.tensor([2, 0, 1]))
        rows = [rows[2], rows[0], rows[1]]


def segment_gradient(model: Backbone, seed: int) -> None:
    """The gradient stops at the border of a segment: the loss of the second one does not reach what the first one read."""
    learner = learner_of(model, tie=False)  # a tied output layer would touch every row of the table
    first, second = [list(range(0, 12))], [list(range(20, 32))]
    carry = learner(Excerpt(pack(first), following(first))).carry
    learner(Excerpt(pack(second), following(second)), carry).total.backward()
    table: Any = model.table or model.embedding.cnn.character  # of words, or of the one character that each consists of
    assert table.weight.grad is not None
    reached = table.weight.grad.abs().sum(1).nonzero().flatten().tolist()
    if model.table is None:
        reached = [character - FIRST_BYTE for character in reached if character not in (BEGIN, END)]
    learner.zero_grad()
    # a state that holds tokens, and not what was computed from them, has them read again
    leaves = [leaf for leaf in pytree.tree_leaves(carry) if leaf.ndim > 1 and not leaf.is_floating_point()]
    again = [i for leaf in leaves for i in leaf.flatten().tolist()]
    assert reached == again + list(range(20, 31)), f"the gradient reached {reached}"


def every_gradient(model: Backbone, seed: int) -> None:
    learner = learner_of(model).train()  # some weights are read in training alone
    texts = sequences(seed, (20, 96 if model.max_len is None else model.max_len))
    learner(Excerpt(pack(texts), following(texts))).total.backward()
    silent = [n for n, p in learner.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    learner.zero_grad()
    assert not silent, f"no gradient: {silent}"


def initial_loss(model: Backbone, seed: int) -> None:
    torch.manual_seed(seed)
    model.init_weights()
    learner = learner_of(model)
    texts = sequences(seed)
    loss = learner(Excerpt(pack(texts), following(texts)))
    assert abs(loss.total.item() / loss.count.item() / learner.initial_loss() - 1) < 0.05
    assert math.isclose(learner.initial_loss(), math.log(VOCAB))


def all_ignored(model: Backbone, seed: int) -> None:
    """Nothing to predict: loss 0, finite, and the weights do not move."""
    learner = learner_of(model)
    texts = sequences(seed)
    loss = learner(Excerpt(pack(texts), torch.full_like(following(texts), IGNORE)))
    assert loss.total.item() == 0 and loss.count.item() == 0
    loss.total.backward()
    before = digest(learner)
    step(build_optimizer(OptimConfig(weight_decay=0.1), learner), loss.count, clip=1.0)
    assert digest(learner) == before


def accumulation(model: Backbone, seed: int) -> None:
    """Ragged micro-batches, sums added up, = the whole batch: loss and gradient."""
    learner = learner_of(model)
    texts = sequences(seed)
    whole = learner(Excerpt(pack(texts), following(texts)))
    whole.total.backward()
    learnt = [p for p in learner.parameters() if p.grad is not None]  # the noise of experts is for training alone
    gradients = [p.grad.clone() for p in learnt]
    learner.zero_grad()
    parts = [texts[:1], texts[1:5], texts[5:]]
    losses = [learner(Excerpt(pack(part), following(part))) for part in parts]
    for loss in losses:
        loss.total.backward()
    assert sum(loss.count.item() for loss in losses) == whole.count.item()
    close(torch.stack([loss.total for loss in losses]).sum(), whole.total, 1e-6 * whole.total.item())
    assert len(learnt) == len(list(learner.parameters())) or has_experts(model)
    for parameter, gradient in zip(learnt, gradients, strict=True):
        close(parameter.grad, gradient, 1e-6 * max(1.0, gradient.abs().max().item()))
    learner.zero_grad()


@torch.no_grad()
def shown(model: Backbone, seed: int) -> None:
    """Asking for layers and maps changes no output, and they are what they should be."""
    texts = sequences(seed)
    batch = pack(texts)
    plain, looked = model(batch), model(batch, layers=True, maps=True)
    close(plain.hidden, looked.hidden, 1e-12)
    depth = len(model.stack.layers) if hasattr(model, "stack") else 1
    assert len(looked.layers) == depth + 1 and len(looked.maps) == depth
    for weights in looked.maps:
        assert torch.isfinite(weights).all()
        if not any(model.gates):
            close(weights.sum(-1), torch.ones_like(weights.sum(-1)), 1e-9)
            assert torch.equal(weights.triu(1), torch.zeros_like(weights)), "a weight on the future"


def digest(module: torch.nn.Module) -> str:
    hash_ = hashlib.sha256()
    for name, tensor in sorted(module.state_dict().items()):
        hash_.update(name.encode() + tensor.contiguous().numpy().tobytes())
    return hash_.hexdigest()


def train_a_little(name: str, seed: int, count: int, lr: float = 1e-2, **changes: Any) -> tuple[NextToken, float]:
    """16 sequences over and over; returns the learner and its last mean loss."""
    model = build(name, seed, torch.float32, **changes)
    model.init_weights()
    learner = learner_of(model).train()
    optimizer = build_optimizer(OptimConfig(lr=lr), learner)
    texts = sequences(seed, (16,) * 16)
    for n, text in enumerate(texts):
        text[0] = n  # told apart by their first token
    example = Excerpt(pack(texts), following(texts))
    mean = math.inf
    for i in range(count):
        torch.manual_seed(i)
        loss = learner(example)
        loss.total.backward()
        step(optimizer, loss.count, clip=1.0)
        mean = loss.total.item() / loss.count.item()
    return learner, mean


def repeatable(name: str) -> None:
    """The same seed gives the same bits, another seed others."""
    one, two = (digest(train_a_little(name, 3, 20)[0]) for _ in range(2))
    assert one == two
    assert digest(train_a_little(name, 4, 20)[0]) != one


def overfits(name: str) -> None:
    # half of an IRNN's units are silent, and it learns slowly in depth
    sizes = {"dim": 96, "num_layers": 1} if name == "irnn" else {"dim": 48}
    sizes |= {"embedding_dim": 48} if name == "awd-lstm" else {}
    sizes |= {"chunk": 16} if name == "reformer" else {}  # each step sees other tokens: fewer of them, more noise
    _, loss = train_a_little(name, 5, 300, **sizes)
    assert loss < 0.05, f"still at {loss:.3f}"

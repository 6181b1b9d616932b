"""What every encoder–decoder must do. Each check raises AssertionError where it does not hold."""

import math
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from seqloom.batch import Context, EncoderDecoder, Images, Pair, Ragged, State, pack, ragged, select
from seqloom.models import MODELS, model_class
from tests.contract.properties import (
    LENGTHS,
    VOCAB,
    close,
    digest,
    has_experts,
    prefer_experts,
    sequences,
    single,
    split,
    widened,
)

SOURCES = (33, 1, 65, 31, 2, 64, 32, 63)  # beside targets of the lengths that the other table uses
SMALL: dict[str, dict[str, Any]] = {
    "seq2seq": {"dim": 24, "num_layers": 2},
    "bahdanau": {"embedding_dim": 20, "dim": 24, "max_len": 96},
    "luong": {"dim": 24, "num_layers": 2, "dropout": 0.0, "max_len": 96},
    "gnmt": {"dim": 24, "num_layers": 4, "dropout": 0.0, "max_len": 96},
    "transformer": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 96, "dropout": 0.0},
    "bytenet-mt": {"dim": 24, "num_layers": 4, "dilations": (1, 2, 4, 8)},
    "convs2s": {
        "dim": 24,
        "encoder_layers": ((20, 3), (24, 3)),
        "decoder_layers": ((20, 3), (20, 5)),
        "max_len": 96,
        "dropout": 0.0,
    },
    "bart": {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 96, "dropout": 0.0},
    "show-tell": {"dim": 24, "embedding_dim": 20, "features": 10, "dropout": 0.0},
    "show-attend-tell": {"dim": 24, "embedding_dim": 20, "features": 10, "dropout": 0.0},
    "captioner": {
        "dim": 24,
        "encoder_layers": 2,
        "num_layers": 2,
        "num_heads": 3,
        "features": 10,
        "max_len": 96,
        "dropout": 0.0,
    },
}
CHO = {"num_layers": 1, "cell": "gru", "reverse": False, "context": "every", "embedding_dim": 20}
VARIANTS = {
    "transformer-pre": ("transformer", {"norm": "pre"}),
    "transformer-learned": ("transformer", {"positions": "learned", "share_embeddings": False}),
    "transformer-window": ("transformer", {"window": 6, "head_dim": 5}),
    "transformer-turns": ("transformer", {"window": 6, "global_every": 2}),
    "transformer-experts": ("transformer", {"experts": 4, "experts_k": 2}),
    "seq2seq-gru": ("seq2seq", {"cell": "gru", "share_embeddings": False}),
    "seq2seq-forward": ("seq2seq", {"reverse": False, "num_layers": 3}),
    "seq2seq-cho": ("seq2seq", CHO),
    "seq2seq-every": ("seq2seq", {"context": "every"}),
    "bahdanau-lstm": ("bahdanau", {"cell": "lstm", "share_embeddings": False}),
    "bahdanau-wide": ("bahdanau", {"encoder_dim": 20, "readout_dim": 16}),
    "luong-parallel": ("luong", {"input_feeding": False}),
    "luong-shallow": ("luong", {"num_layers": 1, "share_embeddings": False}),
    "gnmt-two": ("gnmt", {"num_layers": 2, "share_embeddings": False}),
    **{f"bahdanau-{score}": ("bahdanau", {"score": score}) for score in ("dot", "general", "cosine", "scaled-dot")},
    **{f"luong-{score}": ("luong", {"score": score}) for score in ("dot", "additive", "cosine", "scaled-dot")},
    "bahdanau-location": ("bahdanau", {"score": "location"}),
    "luong-location": ("luong", {"score": "location"}),
    "luong-parallel-location": ("luong", {"input_feeding": False, "score": "location"}),
    "luong-parallel-cosine": ("luong", {"input_feeding": False, "score": "cosine"}),
    "gnmt-dot": ("gnmt", {"score": "dot"}),
    "bytenet-mt-plain": ("bytenet-mt", {"stretch": 1.0, "share_embeddings": False}),
    "convs2s-words": ("convs2s", {"decoder_layers": ((24, 3), (16, 1)), "share_embeddings": False}),
}
VARIANTS |= {
    "show-tell-two": ("show-tell", {"num_layers": 2}),
    "show-attend-tell-hard": ("show-attend-tell", {"attention": "hard", "mean_share": 0.5}),
    "show-attend-tell-spread": ("show-attend-tell", {"doubly_stochastic": 1.0, "score": "general"}),
    "captioner-head": ("captioner", {"head_dim": 5}),
}
EVERY = [*SMALL, *VARIANTS]


class RegionsOfTexts(EncoderDecoder):
    """A model of pictures in the frame of texts: each token of a source is a region with features of its own, with its place
    beside them."""

    over_source = ()  # the model itself says it

    def __init__(self, model: EncoderDecoder, features: int):
        super().__init__()
        self.model, self.dim, self.max_len, self.aligned = model, model.dim, model.max_len, model.aligned
        rng = torch.Generator().manual_seed(99)
        self.register_buffer("features", torch.randn(VOCAB, features, generator=rng), persistent=False)
        self.register_buffer("places", torch.randn(128, features, generator=rng) / 2, persistent=False)

    @property
    def decoder(self):
        return self.model.decoder

    def encode(self, source: Ragged) -> Context:
        values = self.features[source.ids] + self.places[source.positions]
        return self.model.encode(Images(values, source.owner, source.offsets, source.max_len))

    def init_weights(self) -> None:
        self.model.init_weights()


def encoder_decoders() -> list[str]:
    return [name for name in MODELS if issubclass(model_class(name), EncoderDecoder)]


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> EncoderDecoder:
    base, extra = VARIANTS.get(name, (name, {}))
    cls: Any = model_class(base)
    torch.manual_seed(seed)
    model = cls(cls.Config(**({"vocab_size": VOCAB} | SMALL[base] | extra | changes)))
    prefer_experts(model)
    with torch.no_grad():  # zeros and ones would hide a missing bias or norm
        for parameter in model.parameters():
            if parameter.ndim == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
    if cls.sources == "pictures":
        model = RegionsOfTexts(model, model.encoder.features if base != "captioner" else SMALL[base]["features"])
    return model.to(dtype).eval()


def texts(seed: int, sources: tuple[int, ...] = SOURCES, targets: tuple[int, ...] = LENGTHS) -> Any:
    return list(zip(sequences(seed, sources), sequences(seed + 50, targets), strict=True))


def joined(pairs: list[tuple[list[int], list[int]]]) -> Pair:
    target = pack([target for _, target in pairs])
    return Pair(pack([source for source, _ in pairs]), target, target.ids.roll(-1))


def parts(hidden: Tensor, pairs: list[tuple[list[int], list[int]]]) -> list[Tensor]:
    return split(hidden, [target for _, target in pairs])


@torch.no_grad()
def packing(model: EncoderDecoder, seed: int) -> None:
    """A pair gives the same in a packed batch, alone, and with padded shapes."""
    pairs = texts(seed)
    together = joined(pairs)
    alone = torch.cat([model(joined([pair])).hidden for pair in pairs])
    limit = (1e-6 if single(model) else 1e-12) * max(1.0, alone.abs().max().item())
    close(model(together).hidden, alone, limit)
    padded = Pair(widened(together.source, 80, 3), widened(together.target, 72, 3), together.targets)
    close(model(padded).hidden, alone, limit)


@torch.no_grad()
def batch_order(model: EncoderDecoder, seed: int) -> None:
    """The order and the company of a pair change nothing."""
    pairs = texts(seed)
    first = dict(zip([str(pair) for pair in pairs], parts(model(joined(pairs)).hidden, pairs), strict=True))
    mixed = [pairs[i] for i in torch.randperm(len(pairs), generator=torch.Generator().manual_seed(seed)).tolist()]
    # without the longest, beside which all others end early
    mixed = [(x, y) for x, y in mixed if max(len(x), len(y)) < max(LENGTHS)] + texts(seed + 9, (40,), (23,))
    for pair, hidden in zip(mixed, parts(model(joined(mixed)).hidden, mixed), strict=True):
        if str(pair) in first:
            close(hidden, first[str(pair)], 1e-12)


@torch.no_grad()
def causality(model: EncoderDecoder, seed: int) -> None:
    """Target tokens after t are replaced: outputs up to t move by exactly 0."""
    pairs = texts(seed, (17, 9), (65, 40))
    before = model(joined(pairs)).hidden
    (source, target), other = pairs
    for t in (0, 1, 31, 32, 63):
        changed = target[: t + 1] + [(token + 1) % VOCAB for token in target[t + 1 :]]
        after = model(joined([(source, changed), other])).hidden
        same = torch.equal(before[: t + 1], after[: t + 1])
        if has_experts(model):  # which tokens an expert multiplies together decides the last bit of each
            same = bool((before[: t + 1] - after[: t + 1]).abs().max() < 1e-13)
        assert same, f"token {t} sees later ones"
        assert not torch.equal(before[t + 1 : 65], after[t + 1 : 65]), "later tokens are not read"


@torch.no_grad()
def every_source_token(model: EncoderDecoder, seed: int) -> None:
    """Each token of a source matters for each place of its own target, and for no other."""
    pairs = texts(seed, (12, 7), (5, 6))
    before = model(joined(pairs)).hidden
    for s in range(12):
        changed = list(pairs[0][0])
        changed[s] = (changed[s] + 1) % VOCAB
        moved = (model(joined([(changed, pairs[0][1]), pairs[1]])).hidden - before).abs().amax(1)
        assert (moved[:5] > 1e-12).all(), f"token {s} of the source is not seen: {moved[:5].tolist()}"
        assert (moved[5:] <= (1e-13 if has_experts(model) else 0)).all(), "a source is seen by another one's target"


@torch.no_grad()
def places(model: EncoderDecoder, seed: int) -> None:
    """What an encoder gives stands where the source's tokens do, however it reads them."""
    (source,) = sequences(seed, (9,))
    before = model.encode(pack([source])).hidden
    for s in (0, 8):
        changed = [(token + 1) % VOCAB if i == s else token for i, token in enumerate(source)]
        moved = (model.encode(pack([changed])).hidden - before).abs().amax(1)
        assert moved[s] > 0, f"place {s} does not stand for token {s}"


@torch.no_grad()
def steps(model: EncoderDecoder, seed: int) -> None:
    """Step by step = one full forward: three hypotheses of each source, which change places between the steps."""
    limit = 1e-5 if single(model) else 1e-10
    many, length = 3, 9
    sources, targets = sequences(seed, (7, 1, 12)), sequences(seed + 1, (length,) * 9)
    full = model(joined([(sources[i // many], target) for i, target in enumerate(targets)]), maps=True)
    hidden = full.hidden.view(9, length, -1)
    rng = torch.Generator().manual_seed(seed)
    for each in (1, many):
        rows = [i * many + k for i in range(3) for k in range(each)]  # which target is in which row
        state = model.decoder.start(3, length, model.encode(pack(sources)))
        state = State(select(state.own, torch.arange(3).repeat_interleave(each)), state.shared)
        ones = torch.ones(3 * each, dtype=torch.long)
        for t in range(length):
            batch = ragged(torch.tensor([targets[row][t] for row in rows]), ones, 1, t * ones)
            output = model.decoder(batch, state=state, maps=model.aligned)
            close(output.hidden, hidden[rows, t], limit)
            for seen, expected in zip(output.cross, full.cross, strict=True):
                close(seen, expected.view(9, length, *expected.shape[1:])[rows, t], limit)
            order = torch.cat([i * each + torch.randperm(each, generator=rng) for i in range(3)])
            rows, state = [rows[i] for i in order], State(select(output.state.own, order), output.state.shared)


@torch.no_grad()
def chunks(model: EncoderDecoder, seed: int) -> None:
    """Prefixes of unequal length, some of them empty, and what follows = one pass; two hypotheses of each source."""
    sources, targets = sequences(seed, (7, 12)), sequences(seed + 1, (20, 11, 15, 8))
    pairs = [(sources[i // 2], target) for i, target in enumerate(targets)]
    full = parts(model(joined(pairs)).hidden, pairs)
    state = model.decoder.start(2, 20, model.encode(pack(sources)))
    state = State(select(state.own, torch.arange(2).repeat_interleave(2)), state.shared)
    rows, read = [0, 1, 2, 3], [0, 0, 0, 0]
    for ends in ((5, 1, 9, 3), (6, 2, 9, 4), (7, 2, 9, 5), (20, 11, 15, 8)):
        pieces = [targets[k][read[k] : ends[k]] for k in rows]
        lengths = torch.tensor([len(piece) for piece in pieces])
        ids = torch.tensor([i for piece in pieces for i in piece])
        batch = ragged(ids, lengths, int(lengths.max()), torch.tensor([read[k] for k in rows]))
        output = model.decoder(batch, state=state)
        for k, piece in zip(rows, output.hidden.split(lengths.tolist()), strict=True):
            close(piece, full[k][read[k] : ends[k]], 1e-10)
        read = list(ends)
        state = State(select(output.state.own, torch.tensor([1, 0, 3, 2])), output.state.shared)
        rows = [rows[1], rows[0], rows[3], rows[2]]


def every_gradient(model: EncoderDecoder, seed: int) -> None:
    output = model.train()(joined(texts(seed, (96, 20), (30, 96)))).hidden  # some weights are read in training alone
    (output * torch.randn(output.shape, generator=torch.Generator().manual_seed(seed))).sum().backward()
    silent = [n for n, p in model.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    model.zero_grad()
    assert not silent, f"no gradient: {silent}"


@torch.no_grad()
def shown(model: EncoderDecoder, seed: int) -> None:
    """Asking for layers and maps changes no output; weights sum to 1 within the source and are 0 behind it."""
    pairs = texts(seed)
    pair = joined(pairs)
    plain, looked = model(pair), model(pair, layers=True, maps=True)
    close(plain.hidden, looked.hidden, 1e-12)
    assert len(looked.layers) >= 2 and all(len(layer) == len(pair.target.ids) for layer in looked.layers)
    assert bool(looked.cross) == model.aligned and not plain.cross and not plain.layers
    for weights in looked.cross:
        assert weights.shape[0] == len(pair.target.ids) and weights.shape[2] == pair.source.max_len
        sizes = torch.tensor([len(source) for source, target in pairs for _ in target])
        behind = torch.arange(weights.shape[2]) >= sizes[:, None, None]
        assert (weights >= 0).all() and (weights * behind == 0).all(), "it looks behind the end"
        close(weights.sum(-1), torch.ones_like(weights.sum(-1)), 1e-12)


def empty_source(model: EncoderDecoder, seed: int) -> None:
    """Nothing to look at: finite all the same, and without a word to its neighbours."""
    pairs = texts(seed, (5, 0, 3), (4, 6, 2))
    output = model(joined(pairs), maps=True)
    output.hidden.sum().backward()
    for tensor in (output.hidden, *output.cross, *(p.grad for p in model.parameters() if p.grad is not None)):
        assert torch.isfinite(tensor).all()
    model.zero_grad()
    with torch.no_grad():
        close(model(joined(pairs[::2])).hidden, torch.cat((output.hidden[:4], output.hidden[10:])), 1e-12)


def train_a_little(name: str, seed: int, count: int, **changes: Any) -> tuple[torch.nn.Module, float]:
    """16 sources to be reversed, over and over; returns the model with its output layer and the last mean loss."""
    model = build(name, seed, torch.float32, **changes).train()
    torch.manual_seed(seed)
    model.init_weights()
    learner = torch.nn.ModuleDict({"model": model, "output": torch.nn.Linear(model.dim, VOCAB)})
    optimizer = torch.optim.Adam(learner.parameters(), lr=1e-2)
    sources = [[3 + token % (VOCAB - 3) for token in text] for text in sequences(seed, (4, 5, 6, 5) * 4)]
    pair = joined([(source, [1, *source[::-1]]) for source in sources])
    following = torch.tensor([token for source in sources for token in [*source[::-1], 2]])
    mean = math.inf
    for i in range(count):
        torch.manual_seed(i)
        loss = F.cross_entropy(learner["output"](model(pair).hidden), following)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(learner.parameters(), 1.0)
        optimizer.step()
        mean = loss.item()
    return learner, mean


def repeatable(name: str, **changes: Any) -> None:
    """The same seed gives the same bits, another seed others."""
    one, two = (digest(train_a_little(name, 3, 50, **changes)[0]) for _ in range(2))
    assert one == two
    assert digest(train_a_little(name, 4, 1, **changes)[0]) != one


def overfits(name: str, count: int = 150) -> None:
    _, loss = train_a_little(name, 5, count, dim=48)
    assert loss < 0.05, f"still at {loss:.3f}"

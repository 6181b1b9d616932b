"""What every model that reads in both directions must do. Each check raises AssertionError where it does not hold."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from seqloom.batch import Ragged, pack
from seqloom.blocks.stack import BidirectionalBackbone
from seqloom.blocks.two_streams import TwoStreamBackbone
from seqloom.models import model_class
from seqloom.models.text_cnn import TextCnn
from tests.contract.properties import VOCAB, Words, close, digest, sequences, single, split, widened

BODY = {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 96, "dropout": 0.0}
SMALL: dict[str, dict[str, Any]] = {
    "bert": BODY,
    "roberta": BODY,
    "xlm": BODY | {"num_segments": 3},
    "xlm-r": BODY,
    "albert": BODY | {"embedding_dim": 12, "num_layers": 3},
    "electra": BODY | {"embedding_dim": 12},
    "ernie": BODY,
    "xlnet": {"dim": 24, "num_layers": 2, "num_heads": 3, "mem_len": 9, "eval_len": 11, "dropout": 0.0},
    "bilstm-cnn": {
        "embedding_dim": 12, "dim": 24, "num_layers": 2, "dropout": 0.0, "max_chars": 5, "char_dim": 8,
        "filters": ((2, 6), (3, 8)),
    },
    "elmo": {
        "dim": 16, "proj_dim": 12, "num_layers": 2, "dropout": 0.0, "max_chars": 5, "char_dim": 8,
        "filters": ((1, 4), (2, 6), (3, 8)),
    },
    "text-cnn": {"embedding_dim": 12, "dropout": 0.0, "filters": ((1, 4), (2, 6), (67, 30))},
}  # fmt: skip
ATTENTIVE = [name for name in SMALL if name not in ("xlnet", "bilstm-cnn", "elmo", "text-cnn")]
VARIANTS = {
    "bert-plain": ("bert", {"num_segments": 0, "pooler": False}),
    "electra-square": ("electra", {"embedding_dim": None}),
    "bilstm-cnn-once": ("bilstm-cnn", {"num_layers": 1}),
    # the clips cut: cells and outputs of this size are about as large
    "elmo-original": ("elmo", {"characters": "elmo", "cell_clip": 0.3, "proj_clip": 0.1, "num_layers": 3}),
    "elmo-plain": ("elmo", {"residual": False, "num_highways": 0}),
    "xlnet-narrow": ("xlnet", {"head_dim": 5, "clamp_len": 7, "activation": "relu"}),
    "albert-once": ("albert", {"num_layers": 1, "ffn_dim": 40}),
}
EVERY = [*SMALL, *VARIANTS]
ONE_STREAM = [name for name in EVERY if not name.startswith("xlnet")]  # of the others see tests/models/test_xlnet.py


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float64, **changes: Any) -> BidirectionalBackbone:
    base, extra = VARIANTS.get(name, (name, {}))
    cls: Any = model_class(base)
    torch.manual_seed(seed)
    model = cls(cls.Config(**({"vocab_size": VOCAB} | SMALL[base] | extra | changes)))
    model.set_vocabulary(Words())
    with torch.no_grad():  # zeros and ones would hide a missing bias or norm
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model.to(dtype).eval()


def laid(model: BidirectionalBackbone, texts: list[list[int]]) -> Ragged:
    """With segments, where the model has them: each kind in every text."""
    batch = pack(texts)
    table = getattr(model.embedding, "segments", None)
    if model.segment_kind == "relative":
        return batch._replace(segments=batch.ids % 3)
    return batch if table is None else batch._replace(segments=batch.ids % table.num_embeddings)


@torch.no_grad()
def packing(model: BidirectionalBackbone, seed: int) -> None:
    """A sequence gives the same in a packed batch, alone, and with padded shapes."""
    texts = sequences(seed)
    together = model(laid(model, texts)).hidden
    # of outputs of about 1, as norms make them; larger ones are rounded more coarsely
    limit = (1e-6 if single(model) else 1e-12) * max(1.0, float(together.abs().max()))
    alone = torch.cat([model(laid(model, [text])).hidden for text in texts])
    close(together, alone, limit)
    close(model(widened(laid(model, texts), 80, 3)).hidden, alone, limit)


@torch.no_grad()
def batch_order(model: BidirectionalBackbone, seed: int) -> None:
    """The order and the company of a sequence change nothing."""
    texts = sequences(seed)
    first = dict(zip(map(tuple, texts), split(model(laid(model, texts)).hidden, texts), strict=True))
    mixed = [texts[i] for i in torch.randperm(len(texts), generator=torch.Generator().manual_seed(seed)).tolist()]
    mixed = mixed[2:] + sequences(seed + 9, (80,))  # the longest, so that all have other company and other padding
    for text, hidden in zip(mixed, split(model(laid(model, mixed)).hidden, mixed), strict=True):
        if tuple(text) in first:
            close(hidden, first[tuple(text)], 1e-12)


@torch.no_grad()
def both_directions(model: BidirectionalBackbone, seed: int) -> None:
    """Every token sees every other one: whichever is replaced, all outputs of its text move, and none of another's."""
    text, other = sequences(seed, (33, 20))
    before = model(laid(model, [text, other])).hidden
    for t in (0, 1, 16, 31, 32):
        changed = [*text[:t], (text[t] + 1) % VOCAB, *text[t + 1 :]]
        batch = laid(model, [text, other])._replace(ids=pack([changed, other]).ids)  # the segments stay
        moved = (model(batch).hidden - before).abs().amax(1)
        assert (moved[:33] > 0).all(), f"token {int((moved[:33] == 0).nonzero()[0])} does not see token {t}"
        assert (moved[33:] == 0).all(), "another text sees it, too"


class Linear(nn.Module):
    """A plain head: every token's word, and of the pooler the sum."""

    def __init__(self, model: BidirectionalBackbone):
        super().__init__()
        self.backbone, self.out = model, nn.Linear(model.dim, VOCAB).to(next(model.parameters()).dtype)

    def forward(self, batch: Ragged) -> Tensor:
        hidden = self.backbone(batch).hidden
        loss = nn.functional.cross_entropy(self.out(hidden), batch.ids, reduction="sum")
        if self.backbone.pooler is not None:
            loss = loss + self.backbone.pooled(hidden[batch.offsets[:-1].long()]).sum()
        if isinstance(self.backbone, TwoStreamBackbone):
            loss = loss + self.backbone.in_order()(batch).hidden.square().sum()
        return loss


def every_gradient(model: BidirectionalBackbone, seed: int) -> None:
    learner = Linear(model)
    learner(laid(model, sequences(seed, (20, model.max_len or 96)))).backward()
    silent = [n for n, p in learner.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    assert not silent, f"no gradient: {silent}"
    if getattr(model.embedding, "segments", None) is not None:
        assert model.embedding.segments.weight.grad.abs().sum(1).all(), "a kind of tokens that is not read"


def accumulation(model: BidirectionalBackbone, seed: int) -> None:
    """Ragged micro-batches, sums added up, = the whole batch: loss and gradient."""
    torch.manual_seed(seed)
    learner, texts = Linear(model), sequences(seed)
    whole = learner(laid(model, texts))
    whole.backward()
    gradients = [p.grad.clone() for p in learner.parameters()]
    learner.zero_grad()
    losses = [learner(laid(model, part)) for part in (texts[:1], texts[1:5], texts[5:])]
    for loss in losses:
        loss.backward()
    close(torch.stack(losses).sum(), whole, 1e-6 * whole.item())
    for parameter, gradient in zip(learner.parameters(), gradients, strict=True):
        close(parameter.grad, gradient, 1e-6 * max(1.0, gradient.abs().max().item()))


@torch.no_grad()
def shown(model: BidirectionalBackbone, seed: int) -> None:
    """Asking for layers and maps changes no output, and they are what they should be."""
    texts = sequences(seed)
    batch = laid(model, texts)
    if isinstance(model, TextCnn):
        with pytest.raises(ValueError, match="no weights to show"):
            model(batch, maps=True)
    plain, looked = model(batch), model(batch, layers=True, maps=not isinstance(model, TextCnn))
    close(plain.hidden, looked.hidden, 1e-12)
    depth = len(model.stack.unrolled_layers)
    assert len(looked.layers) == depth + 1 and len(looked.maps) in (depth, 0)
    assert torch.equal(looked.layers[-1], looked.hidden)
    for before, after in zip(looked.layers, looked.layers[1:], strict=False):
        assert len(before) == len(after) and after.shape == plain.hidden.shape and not torch.equal(before, after)
    for weights, gates in zip(looked.maps, model.gates, strict=not isinstance(model, TextCnn)):
        assert torch.isfinite(weights).all()
        if gates:
            (cells,) = {part.hidden_size for part in model.modules() if isinstance(part, nn.LSTM)}
            assert weights.shape == (len(batch.ids), len(gates), cells)
            continue
        close(weights.sum(-1), torch.ones_like(weights.sum(-1)), 1e-9)
        for rows, text in zip(weights, texts, strict=True):
            assert (rows[:, : len(text), : len(text)] > 0).all(), "a place of the own text that is not seen"
            assert (rows[:, : len(text), len(text) :] == 0).all(), "a weight behind the end"


def trained(name: str, seed: int, count: int = 20) -> str:
    """A digest of the weights after some steps, with dropout."""
    more = {} if name.startswith(("bilstm", "elmo", "text-cnn")) else {"attention_dropout": 0.1}
    model = build(name, seed, torch.float32, dropout=0.1, **more)
    learner = Linear(model).train()
    optimizer = torch.optim.AdamW(learner.parameters(), lr=1e-3)
    batch = laid(model, sequences(seed, (16,) * 8))
    for i in range(count):
        torch.manual_seed(i)
        optimizer.zero_grad()
        learner(batch).backward()
        optimizer.step()
    return digest(learner)


def repeatable(name: str) -> None:
    """The same seed gives the same bits, another seed others."""
    one = trained(name, 3)
    assert one == trained(name, 3)
    assert one != trained(name, 4)

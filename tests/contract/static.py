"""What every model without a context must do. Each check raises AssertionError where it does not hold."""

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from seqloom.batch import Backbone, Excerpt, pack
from seqloom.batches.cells import Cells, Table
from seqloom.batches.plan import select_documents
from seqloom.models import model_class
from seqloom.objectives import fitting_objectives, objective_class
from seqloom.objectives.windows import Windows
from seqloom.training.optim import OptimConfig, build_optimizer, step
from tests.contract import properties
from tests.contract.properties import VOCAB, close, digest, sequences
from tests.corpus import MemorySplit

SMALL: dict[str, dict[str, Any]] = {
    "word2vec": {"dim": 24},
    "glove": {"dim": 24},
    "fasttext": {"dim": 24, "buckets": 97},
}
# by name: the objective and its settings
OBJECTIVES: dict[str, tuple[str, dict[str, Any]]] = {
    "skip-gram": ("skip-gram", {"samples": 8}),
    "cbow": ("cbow", {"samples": 8}),
    "skip-gram-tree": ("skip-gram", {"output": "hierarchical"}),
    "cbow-tree": ("cbow", {"output": "hierarchical"}),
    "glove": ("glove", {"x_max": 2.0}),
}
LEARNERS = [
    (name, variant)
    for name in SMALL
    for variant, (objective, _) in OBJECTIVES.items()
    if objective in fitting_objectives(model_class(name))
]


class Words(properties.Words):
    """The first word is a special token."""

    def specials(self) -> list[int]:
        return [0]


def build(name: str, seed: int = 0, dtype: torch.dtype = torch.float64) -> Backbone:
    cls: Any = model_class(name)
    torch.manual_seed(seed)
    model = cls(cls.Config(vocab_size=VOCAB, **SMALL[name]))
    model.set_vocabulary(Words())
    return model.to(dtype).eval()


def learner_of(name: str, objective: str, seed: int = 0, dtype: torch.dtype = torch.float64, **config: Any) -> Any:
    base, more = OBJECTIVES[objective]
    kind: Any = objective_class(base)
    learner = kind(build(name, seed, dtype), kind.Config(**({"window": 3} | more | config))).to(dtype)
    learner.set_vocabulary(Words())
    if isinstance(learner, Windows):
        output = learner.tree.nodes if learner.context is None else learner.context
        with torch.no_grad():
            output.weight.normal_(0, 0.1)  # zeros would hide what is read of them
    return learner


def excerpt_of(texts: list[list[int]]) -> Excerpt:
    """As the loader cuts it: what follows each token is the text."""
    return Excerpt(pack(texts), torch.tensor([i for text in texts for i in text]))


def cells_of(texts: list[list[int]], window: int) -> Cells:
    """All that is counted in some texts."""
    split = MemorySplit(texts)
    is_word = np.arange(VOCAB) != 0
    table = Table(split, select_documents(split, math.inf, 0), is_word, window)
    return table.read(np.arange(len(table)), split.num_tokens)


def example_of(learner: Any, seed: int, texts: list[list[int]] | None = None) -> Any:
    if learner.reads == "cells":
        return cells_of(texts or sequences(seed), learner.window)
    return learner.corrupt(excerpt_of(texts or sequences(seed)), torch.Generator().manual_seed(seed))


@torch.no_grad()
def reads_no_context(model: Backbone, seed: int) -> None:
    """Whichever token is replaced, the output of that place alone moves."""
    text, other = sequences(seed, (33, 20))
    before = model(pack([text, other])).hidden
    for t in (0, 16, 32):
        changed = [*text[:t], (text[t] + 1) % VOCAB, *text[t + 1 :]]
        moved = (model(pack([changed, other])).hidden - before).abs().amax(1)
        assert moved[t] > 0, "a token is not read"
        assert (moved > 0).sum() == 1, "another place has seen it"


@torch.no_grad()
def shown(model: Backbone, seed: int) -> None:
    batch = pack(sequences(seed))
    plain, looked = model(batch), model(batch, layers=True, maps=True)
    assert torch.equal(plain.hidden, looked.hidden) and len(looked.layers) == 2
    assert all(torch.equal(layer, plain.hidden) for layer in looked.layers)


def every_gradient(learner: Any, seed: int) -> None:
    learner(example_of(learner, seed)).total.backward()
    silent = [n for n, p in learner.named_parameters() if p.grad is None or not p.grad.abs().sum() > 0]
    learner.zero_grad()
    assert not silent, f"no gradient: {silent}"


def accumulation(learner: Any, seed: int) -> None:
    """Two batches, sums added up, = what both give one after the other on fresh gradients."""
    examples = [example_of(learner, seed + i) for i in range(2)]
    totals: list[Tensor] = []
    apart = []
    for example in examples:
        loss = learner(example)
        loss.total.backward()
        totals.append(loss.total.detach())
        apart.append([p.grad.clone() for p in learner.parameters()])
        learner.zero_grad()
    for example in examples:
        learner(example).total.backward()
    for parameter, *parts in zip(learner.parameters(), *apart, strict=True):
        close(parameter.grad, sum(parts), 1e-9)
    learner.zero_grad()


def nothing_to_learn(learner: Any, seed: int) -> None:
    """Documents of one word, and special tokens only: loss 0, finite, and the weights do not move."""
    for texts in ([[1], [2], [3]], [[0, 0, 0, 0]]):
        loss = learner(example_of(learner, seed, texts))
        assert loss.total.item() == 0 and loss.count.item() == 0
        loss.total.backward()
        before = digest(learner)
        step(build_optimizer(OptimConfig(weight_decay=0.1), learner), loss.count, clip=1.0)
        assert digest(learner) == before


def train_a_little(name: str, objective: str, seed: int, count: int) -> tuple[Any, float, float]:
    """Returns the learner, its first and its last mean loss, on a text in which each word has its neighbours."""
    learner = learner_of(name, objective, seed, torch.float32).train()
    learner.backbone.init_weights()
    optimizer = build_optimizer(OptimConfig(name="adagrad", lr=0.1, clip=0.0), learner)
    texts = [[1 + (start + i) % 60 for i in range(40)] for start in range(16)]
    means = []
    for i in range(count):
        loss = learner(example_of(learner, i, texts))
        loss.total.backward()
        step(optimizer, loss.count, clip=0.0)
        means.append(loss.total.item() / max(loss.count.item(), 1))
    return learner, means[0], means[-1]


def repeatable(name: str, objective: str) -> None:
    one, two = (digest(train_a_little(name, objective, 3, 10)[0]) for _ in range(2))
    assert one == two
    assert digest(train_a_little(name, objective, 4, 10)[0]) != one


def learns(name: str, objective: str) -> None:
    _, first, last = train_a_little(name, objective, 5, 150)
    assert last < 0.75 * first, f"from {first:.3f} to {last:.3f} only"

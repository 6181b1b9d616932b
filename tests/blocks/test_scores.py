"""Each attention score equals its formula, written out number by number; the softmax over them; the cells around them."""

import math

import pytest
import torch
from torch import Tensor

from seqloom.batch import Context, pack
from seqloom.blocks import recurrent
from seqloom.blocks.alignment import AlignedCell, AlignedConfig, Alignment
from seqloom.blocks.cells import GruCell, LstmCell
from seqloom.blocks.connections import recurrent_stack
from seqloom.blocks.recurrent import compiled_step, scan
from seqloom.blocks.scores import SCORES
from seqloom.errors import UsageError
from seqloom.models.luong import AttentionalCell

D, PLACES = 3, 8


def score_of(name: str) -> torch.nn.Module:
    torch.manual_seed(0)
    return SCORES[name](D, D, PLACES).double()


def times(matrix: Tensor, vector: list[float]) -> list[float]:
    return [sum(m * v for m, v in zip(row, vector, strict=True)) for row in matrix.tolist()]


def dot(a: list[float], b: list[float]) -> float:
    return sum(x * y for x, y in zip(a, b, strict=True))


FORMULAS = {
    "dot": lambda score, q, h, place: dot(q, h),
    "scaled-dot": lambda score, q, h, place: dot(q, h) / math.sqrt(D),
    "cosine": lambda score, q, h, place: (
        math.exp(score.log_sharpness.item()) * dot(q, h) / math.sqrt(dot(q, q)) / math.sqrt(dot(h, h))
    ),
    "general": lambda score, q, h, place: dot(q, times(score.key.weight, h)),
    "additive": lambda score, q, h, place: dot(
        score.weigh.tolist(),
        [math.tanh(a + b) for a, b in zip(times(score.query.weight, q), times(score.key.weight, h), strict=True)],
    ),
    "location": lambda score, q, h, place: times(score.places, q)[place],
}


def test_six_scores():
    assert set(SCORES) == set(FORMULAS) and len(SCORES) == 6


@pytest.mark.parametrize("name", SCORES)
def test_score_equals_its_formula(name):
    score = score_of(name)
    query, hidden = torch.randn(2, 4, D).double(), torch.randn(2, 5, D).double()
    found = score(query, torch.stack([score.keys(source) for source in hidden]))
    for n in range(2):
        for k in range(4):
            for s in range(5):
                expected = FORMULAS[name](score, query[n, k].tolist(), hidden[n, s].tolist(), s)
                assert found[n, k, s].item() == pytest.approx(expected, abs=1e-12)


def context_of(lengths: list[int], dim: int = D) -> Context:
    batch = pack([[0] * n for n in lengths])
    hidden = torch.randn(sum(lengths), dim, dtype=torch.float64)
    return Context(hidden, batch.owner, batch.offsets, batch.max_len)


@pytest.mark.parametrize("name", SCORES)
def test_softmax_stays_within_its_source(name):
    torch.manual_seed(1)
    look, context = Alignment(AlignedConfig(score=name, max_len=PLACES), D, D).double(), context_of([4, 1, 0, 6])
    query = torch.randn(8, D, dtype=torch.float64)  # two of each source
    seen, weights = look(query, *look.read(context))
    for row in range(8):
        begin, end = context.offsets[row // 2].item(), context.offsets[row // 2 + 1].item()
        hidden = context.hidden[begin:end].tolist()
        if not hidden:
            assert torch.equal(seen[row], torch.zeros(D).double())
            continue
        scores = [FORMULAS[name](look.score, query[row].tolist(), h, s) for s, h in enumerate(hidden)]
        shares = [math.exp(score) / sum(map(math.exp, scores)) for score in scores]
        assert weights[row].tolist() == pytest.approx(shares + [0.0] * (6 - len(shares)), abs=1e-12)
        mean = [sum(share * h[i] for share, h in zip(shares, hidden, strict=True)) for i in range(D)]
        assert seen[row].tolist() == pytest.approx(mean, abs=1e-12)


@pytest.mark.parametrize("name", SCORES)
def test_gradcheck_of_scores(name):
    torch.manual_seed(2)
    look, context = Alignment(AlignedConfig(score=name, max_len=PLACES), D, D).double(), context_of([3, 1, 2])
    query = torch.randn(6, D, dtype=torch.float64, requires_grad=True)
    hidden = context.hidden.requires_grad_()

    def run(query, hidden, *_):
        return look(query, *look.read(context._replace(hidden=hidden)))

    assert torch.autograd.gradcheck(run, (query, hidden, *look.parameters()))


def cell_of(kind: str):
    """A cell that looks at a source, and a state for it."""
    torch.manual_seed(3)
    look = Alignment(AlignedConfig(), 2, 2)
    if kind == "fed":
        cell = AttentionalCell(recurrent_stack(lambda width: LstmCell(width, 2), 2, 2, 0.0, "none"), look, 2, True)
        return cell.double(), tuple(torch.randn(3, 2).double() for _ in range(5))
    cell = AlignedCell((GruCell if kind == "gru" else LstmCell)(2, 2), look).double()
    return cell, tuple(torch.randn_like(part) for part in cell.start(3))


@pytest.mark.parametrize("kind", ["gru", "lstm", "fed"])
def test_gradcheck_of_cells(kind):
    cell, state = cell_of(kind)
    context, batch = context_of([2, 1, 3], 2), pack([[0, 0, 0], [0], [0, 0]])
    x = torch.randn(6, 2, dtype=torch.float64, requires_grad=True)

    def run(x, hidden, *state):
        memory = cell.alignment.read(context._replace(hidden=hidden))
        out, after, weights = scan(cell, x, batch, state, True, memory)
        return out, *after, weights

    given = (x, context.hidden.requires_grad_(), *(part.requires_grad_() for part in state))
    assert torch.autograd.gradcheck(run, given)


@pytest.mark.parametrize("kind", ["gru", "lstm", "fed"])
def test_a_step_is_one_graph(kind):
    """Nothing in it is decided on the host, whatever the lengths of sources and targets."""
    cell, state = cell_of(kind)
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph.forward

    compiled_step(type(cell))  # tells the compiler to accept what holds the weights
    torch._dynamo.reset()
    step = torch.compile(type(cell).step, backend=backend, fullgraph=True)
    for length in (2, 3, 5, 6):
        memory = cell.alignment.read(context_of([length, 1, 2], 2))
        x = cell.inputs(torch.randn(3, 2, dtype=torch.float64))
        new, (weights,) = step(cell, x, state, *memory)
        expected, (shares,) = cell.step(x, state, *memory)
        torch.testing.assert_close((new, weights), (expected, shares), rtol=0, atol=1e-12)
    assert len(graphs) <= 2, "a new graph for each length"


def test_vectors_of_different_widths():
    for name in ("dot", "scaled-dot", "cosine"):
        with pytest.raises(UsageError, match=r"4 numbers and the\s+encoder's 3.*general"):
            SCORES[name](4, 3, PLACES)


def test_more_places_than_the_location_score_knows():
    score = score_of("location")
    with pytest.raises(UsageError, match=f"up to 9 tokens.*{PLACES} places.*max_len"):
        score(torch.randn(1, 1, D).double(), torch.zeros(1, 9, 0).double())


def test_places_must_be_known():
    with pytest.raises(ValueError, match="give max_len"):
        AlignedConfig(score="location")


def test_planted_wrong_scale_is_noticed(monkeypatch):
    monkeypatch.setattr(SCORES["scaled-dot"], "keys", lambda self, hidden: hidden / D)
    with pytest.raises(AssertionError):
        test_score_equals_its_formula("scaled-dot")


def test_planted_memory_forgotten_is_noticed():
    """The loop hands every step the memory: a cell without it cannot look."""
    cell, state = cell_of("gru")
    with pytest.raises(TypeError):
        recurrent.scan(cell, torch.randn(3, 2).double(), pack([[0], [0], [0]]), state)

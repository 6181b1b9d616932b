"""The CRF against the sum over all sequences of labels, one by one; and bugs in it that must be noticed."""

import itertools

import pytest
import torch

from seqloom.batch import pack, ragged
from seqloom.blocks import crf as module
from seqloom.blocks.crf import Crf

L = 3
SIZES = [4, 1, 0, 3, 2, 0]  # empty ones in between and behind


def made(allowed=None, labels=L, seed=0):
    torch.manual_seed(seed)
    crf = Crf(labels, allowed).double()
    for parameter in crf.parameters():
        torch.nn.init.normal_(parameter)
    return crf


def rules():
    """0 may not follow 1, nothing begins with 2, nothing ends in 0."""
    allowed = torch.ones(L + 2, L + 2, dtype=torch.bool)
    allowed[1, 0] = allowed[L, 2] = allowed[0, L + 1] = False
    return allowed


def batch_of(sizes, extra=0):
    return ragged(torch.zeros(sum(sizes), dtype=torch.long), torch.tensor(sizes), max(sizes) + extra)


def score(crf, scores, path):
    """By the definition, for one sequence: (P, L) and its labels. None where a move is forbidden."""
    if not path:
        return scores.new_zeros(())
    steps = [L, *path, L + 1]
    if not all(crf.allowed[a, b] for a, b in itertools.pairwise(steps)):
        return None
    moved = [crf.moves[a, b] for a, b in itertools.pairwise(path)]
    said = [scores[t, label] for t, label in enumerate(path)]
    return sum(said) + sum(moved) + crf.begin[path[0]] + crf.end[path[-1]]


def paths(crf, scores):
    """All of them with their scores."""
    every = [list(path) for path in itertools.product(range(L), repeat=len(scores))]
    found = [(path, score(crf, scores, path)) for path in every]
    return [(path, value) for path, value in found if value is not None]


def check(allowed=None, extra=0):
    crf = made(allowed)
    batch = batch_of(SIZES, extra)
    scores = torch.randn(sum(SIZES), L, dtype=torch.double)
    loss, tags, best = torch.zeros((), dtype=torch.double), [], []
    shares = []
    for part in scores.split(SIZES):
        every = paths(crf, part)
        values = torch.stack([value for _, value in every])
        path, value = max(every, key=lambda each: each[1].item())
        gold = every[len(every) // 2]  # any that is allowed
        tags.append((path, gold[0]))
        best.append(value)
        loss = loss + values.logsumexp(0) - gold[1]
        share = torch.zeros(len(part), L, dtype=torch.double)
        for (labels, _), p in zip(every, values.softmax(0), strict=True):
            for t, label in enumerate(labels):
                share[t, label] += p
        shares.append(share)
    gold = torch.tensor([label for _, path in tags for label in path])
    torch.testing.assert_close(crf(scores, gold, batch).sum(), loss)
    found, value = crf.decode(scores, batch)
    assert found.tolist() == [label for path, _ in tags for label in path]
    torch.testing.assert_close(value, torch.stack(best))
    torch.testing.assert_close(crf.marginals(scores, batch), torch.cat(shares))


@pytest.mark.parametrize("extra", [0, 3])
@pytest.mark.parametrize("with_rules", [False, True])
def test_equal_to_brute_force(with_rules, extra):
    check(rules() if with_rules else None, extra)


def test_gradients():
    crf = made(rules())
    batch = batch_of([3, 1, 0, 2])
    gold = torch.tensor([0, 1, 1, 1, 0, 2])
    scores = torch.randn(6, L, dtype=torch.double, requires_grad=True)

    def loss(scores, *parameters):
        table = dict(zip(("moves", "begin", "end"), parameters, strict=True))
        return torch.func.functional_call(crf, table, (scores, gold, batch)).sum()

    assert torch.autograd.gradcheck(loss, (scores, crf.moves, crf.begin, crf.end))
    # what the score of a label does to the total is how probable it is
    loss(scores, crf.moves, crf.begin, crf.end).backward()
    hot = torch.nn.functional.one_hot(gold, L)
    torch.testing.assert_close(scores.grad, crf.marginals(scores, batch) - hot)


def packing():
    """A sequence is labelled and paid for alone as among others."""
    crf, sizes = made(rules()), [5, 2, 7, 0, 1]
    scores = torch.randn(sum(sizes), L, dtype=torch.double)
    gold, value = crf.decode(scores, batch_of(sizes))
    together = crf(scores, gold, batch_of(sizes)).sum()
    alone = [
        (crf(part, tags, batch_of([len(part)])).sum(), *crf.decode(part, batch_of([len(part)])))
        for part, tags in zip(scores.split(sizes), gold.split(sizes), strict=True)
    ]
    torch.testing.assert_close(together, sum(each[0] for each in alone))
    assert torch.equal(gold, torch.cat([each[1] for each in alone]))
    torch.testing.assert_close(value, torch.cat([each[2] for each in alone]))
    shares = [crf.marginals(part, batch_of([len(part)])) for part in scores.split(sizes)]
    torch.testing.assert_close(crf.marginals(scores, batch_of(sizes)), torch.cat(shares))


def test_packing_changes_nothing():
    packing()


def test_half_precision_is_widened():
    crf = Crf(L)
    batch = batch_of([40, 30])
    scores = torch.randn(70, L).bfloat16()
    gold = torch.randint(L, (70,))
    assert torch.equal(crf(scores, gold, batch), crf(scores.float(), gold, batch))
    crf = crf.bfloat16()
    loss = crf(scores, gold, batch).sum()
    assert loss.dtype == torch.float32 and crf.marginals(scores, batch).dtype == torch.float32


def test_no_forbidden_move_is_ever_taken():
    """Also where the network is sure of the contrary, for hundreds of places, in fp32."""
    allowed = rules()
    crf = made(allowed).float()
    batch = batch_of([300, 200])
    tags, _ = crf.decode(100 * torch.randn(500, L), batch)
    for path in tags.split([300, 200]):
        assert all(allowed[a, b] for a, b in itertools.pairwise([L, *path.tolist(), L + 1]))
    share = crf.marginals(torch.randn(500, L), batch)
    torch.testing.assert_close(share.sum(1), torch.ones(500), atol=1e-4, rtol=0)


def test_nothing_to_label():
    crf = made()
    for batch in (pack([[], []]), batch_of([0, 0], 4)):
        scores = torch.zeros(0, L, dtype=torch.double, requires_grad=True)
        loss = crf(scores, torch.zeros(0, dtype=torch.long), batch).sum()
        loss.backward()
        assert loss.item() == 0 and crf.marginals(scores, batch).shape == (0, L)
        tags, value = crf.decode(scores, batch)
        assert tags.shape == (0,) and value.tolist() == [0, 0]


def test_rules_of_another_number_of_labels_are_refused():
    with pytest.raises(ValueError, match=r"\(6, 6\), not \(5, 5\)"):
        Crf(4, rules())


def plant(monkeypatch, name, wrong):
    monkeypatch.setattr(module, name, wrong)


def test_planted_ends_that_are_forgotten(monkeypatch):
    """Every sequence is taken to be as long as the grid."""
    plant(monkeypatch, "lengths", lambda batch: torch.full((batch.num_sequences,), batch.max_len))
    for checked in (check, packing):
        with pytest.raises(AssertionError):
            checked()


def test_planted_rules_that_are_forgotten(monkeypatch):
    plant(monkeypatch, "FORBIDDEN", 0.0)
    with pytest.raises(AssertionError):
        check(rules())
    with pytest.raises(AssertionError):
        test_no_forbidden_move_is_ever_taken()


@pytest.mark.parametrize("part", ["moves", "begin", "end"])
def test_planted_moves_that_are_turned_round_or_left_out(monkeypatch, part):
    tables = Crf._tables

    def wrong(self, grid):
        found = dict(zip(("moves", "begin", "end"), tables(self, grid), strict=True))
        found[part] = found[part].T if part == "moves" else torch.zeros_like(found[part])
        return tuple(found.values())

    monkeypatch.setattr(Crf, "_tables", wrong)
    with pytest.raises(AssertionError):
        check(rules())


def test_planted_labels_of_the_place_before(monkeypatch):
    path = Crf._path
    monkeypatch.setattr(Crf, "_path", lambda self, grid, tags, size: path(self, grid, tags.roll(1, 1), size))
    with pytest.raises(AssertionError):
        check()

"""Output layers for large vocabularies: adaptive and sampled softmax."""

import math

import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import IGNORE
from seqloom.blocks import adaptive
from seqloom.blocks.adaptive import AdaptiveSoftmax
from seqloom.blocks.narrowed import NarrowedTable
from seqloom.blocks.ranks import Ranks, default_cutoffs
from seqloom.blocks.sampled import SampledSoftmax

VOCAB, DIM = 23, 16


class Words:
    """Counts that are in no order of the ids; some words never occur."""

    has_counts = True

    def counts(self):
        return torch.randint(0, 5, (VOCAB,), generator=torch.Generator().manual_seed(1)) ** 2


def filled(layer):
    torch.manual_seed(0)
    layer.init_weights(0.3)
    layer.set_vocabulary(Words())
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return layer.double()


def problem(rows=40):
    torch.manual_seed(1)
    targets = torch.randint(0, VOCAB, (rows,))
    targets[3] = targets[-1] = IGNORE
    return torch.randn(rows, DIM, dtype=torch.float64, requires_grad=True), targets


def adaptive_is_its_distribution(bias=True, cutoffs=(5, 11), table=None):
    layer = filled(AdaptiveSoftmax(DIM, VOCAB, cutoffs, bias, table))
    hidden, targets = problem()
    full = layer(hidden)
    torch.testing.assert_close(full.exp().sum(1), torch.ones_like(full[:, 0]))
    expected = F.nll_loss(full, targets, ignore_index=IGNORE, reduction="none")
    torch.testing.assert_close(layer(hidden, targets, each=True), expected)
    total = layer(hidden, targets)
    torch.testing.assert_close(total, expected.sum())
    over = (hidden, *layer.parameters())
    for ours, theirs in zip(
        torch.autograd.grad(2.5 * total, over), torch.autograd.grad(2.5 * expected.sum(), over), strict=True
    ):
        torch.testing.assert_close(ours, theirs)


@pytest.mark.parametrize("cutoffs", [(1,), (5, 11), (3, 4, 22)])
@pytest.mark.parametrize("bias", [False, True])
def test_adaptive_loss_and_gradient_are_those_of_the_distribution(bias, cutoffs):
    adaptive_is_its_distribution(bias, cutoffs)


@pytest.mark.parametrize("cutoffs", [(1,), (5, 11), (3, 4, 22)])
def test_shared_adaptive_loss_and_gradient_are_those_of_the_distribution(cutoffs):
    adaptive_is_its_distribution(cutoffs=cutoffs, table=torch.nn.Embedding(VOCAB, DIM))


def shared_adaptive_by_hand():
    """p(w) from the rows of the table themselves, word by word."""
    table = torch.nn.Embedding(VOCAB, DIM)
    layer, (hidden, _) = filled(AdaptiveSoftmax(DIM, VOCAB, (5, 11), table=table)), problem(4)
    order = sorted(range(VOCAB), key=lambda word: int(layer.ranks.rank[word]))
    with torch.no_grad():
        for h, found in zip(hidden, layer(hidden), strict=True):
            dots = [float(table.weight[word] @ h) for word in order]
            entries = [float(row @ h) for row in layer.head.own]
            top = torch.tensor(dots[:5] + entries) + layer.head.bias
            for rank, word in enumerate(order):
                expected = top.log_softmax(0)[rank] if rank < 5 else 0.0
                for i, (begin, end) in enumerate(((5, 11), (11, VOCAB))):
                    if begin <= rank < end:
                        inside = torch.tensor(dots[begin:end]) + layer.clusters[i].bias
                        expected = top.log_softmax(0)[5 + i] + inside.log_softmax(0)[rank - begin]
                assert float(found[word]) == pytest.approx(float(expected), abs=1e-6)


def test_shared_adaptive_by_hand():
    shared_adaptive_by_hand()


def narrowed_table(cutoffs=(5, 11)):
    """With vectors of 16, 4 and 1 numbers."""
    torch.manual_seed(2)
    table = NarrowedTable(VOCAB, DIM, cutoffs, 4).double()
    table.set_vocabulary(Words())
    return table


@pytest.mark.parametrize("cutoffs", [(1,), (5, 11), (3, 4, 22)])
def test_narrowed_adaptive_loss_and_gradient_are_those_of_the_distribution(cutoffs):
    adaptive_is_its_distribution(cutoffs=cutoffs, table=narrowed_table(cutoffs))


def narrowed_by_hand():
    """The vector of a word is that of its rank in its cluster, made wider; and so is what tells it from others."""
    table = narrowed_table()
    order = Words().counts().sort(descending=True, stable=True).indices.tolist()
    assert [rows.embedding_dim for rows in table.rows] == [16, 4, 1]
    layer, (hidden, _) = filled(AdaptiveSoftmax(DIM, VOCAB, (5, 11), table=table)), problem(4)
    with torch.no_grad():
        vectors, found = table(torch.arange(VOCAB)), layer(hidden)
        torch.testing.assert_close(vectors, table.weight)
        for rank, word in enumerate(order):
            cluster = (rank >= 5) + (rank >= 11)
            row = table.rows[cluster].weight[rank - (0, 5, 11)[cluster]]
            torch.testing.assert_close(vectors[word], table.widen[cluster].weight @ row)
            for h, log_probs in zip(hidden, found, strict=True):
                top = torch.cat((table.rows[0].weight, layer.head.own)) @ (h @ layer.head.widen) + layer.head.bias
                expected = top.log_softmax(0)[rank if cluster == 0 else 4 + cluster]
                if cluster:
                    narrow = h @ table.widen[cluster].weight
                    inside = table.rows[cluster].weight @ narrow + layer.clusters[cluster - 1].bias
                    expected = expected + inside.log_softmax(0)[rank - (0, 5, 11)[cluster]]
                torch.testing.assert_close(log_probs[word], expected)


def test_narrowed_by_hand():
    narrowed_by_hand()


def test_planted_words_of_another_cluster_are_noticed(monkeypatch):
    monkeypatch.setattr(Ranks, "set_vocabulary", lambda ranks, counts: None)
    with pytest.raises(AssertionError):
        narrowed_by_hand()


def test_planted_rows_of_other_words_are_noticed(monkeypatch):
    right = adaptive.TableRows.weight.fget
    monkeypatch.setattr(adaptive.TableRows, "weight", property(lambda self: right(self).roll(1, 0)))
    with pytest.raises(AssertionError):
        shared_adaptive_by_hand()


def test_planted_ids_taken_for_ranks_are_noticed(monkeypatch):
    forward = AdaptiveSoftmax.distribution

    def unordered(layer, hidden):
        back = torch.empty_like(layer.ranks.rank)
        back[layer.ranks.rank] = torch.arange(VOCAB)
        return forward(layer, hidden)[:, back]

    monkeypatch.setattr(AdaptiveSoftmax, "distribution", unordered)
    with pytest.raises(AssertionError):
        adaptive_is_its_distribution()


def test_planted_forgotten_cluster_probability_is_noticed(monkeypatch):
    monkeypatch.setattr(adaptive, "log_softmax", lambda scores: scores)
    with pytest.raises(AssertionError):
        adaptive_is_its_distribution()


def test_adaptive_gradcheck():
    layer = filled(AdaptiveSoftmax(DIM, VOCAB, (5, 11), bias=True))
    hidden, targets = problem(8)
    names = [name for name, _ in layer.named_parameters()]

    def loss(hidden, *values):
        return torch.func.functional_call(layer, dict(zip(names, values, strict=True)), (hidden, targets))

    assert torch.autograd.gradcheck(loss, (hidden, *layer.parameters()))


def test_adaptive_with_targets_of_one_cluster_or_none():
    layer = filled(AdaptiveSoftmax(DIM, VOCAB, (5, 11)))
    hidden, _ = problem(4)
    order = torch.argsort(layer.ranks.rank)
    for words in (order[:4], order[5:9], order[-4:], torch.full((4,), IGNORE)):
        expected = F.nll_loss(layer(hidden), words, ignore_index=IGNORE, reduction="sum")
        torch.testing.assert_close(layer(hidden, words), expected)
        layer(hidden, words).backward()
        assert all(p.grad is not None and torch.isfinite(p.grad).all() for p in layer.parameters())


def test_frequent_words_are_in_the_head():
    layer = filled(AdaptiveSoftmax(DIM, VOCAB, (5, 11)))
    counts = Words().counts()
    head = layer.ranks.rank < 5
    assert counts[head].min() >= counts[~head].max()
    shares = [float(counts[(layer.ranks.rank >= a) & (layer.ranks.rank < b)].sum()) for a, b in ((5, 11), (11, VOCAB))]
    assert [cluster.share for cluster in layer.clusters] == pytest.approx([s / int(counts.sum()) for s in shares])


def test_adaptive_starts_with_every_word_equally_likely():
    layer = AdaptiveSoftmax(DIM, VOCAB, (5, 11))
    layer.init_weights(0.0)
    torch.testing.assert_close(layer(torch.randn(3, DIM)), torch.full((3, VOCAB), -math.log(VOCAB)))


def test_default_cutoffs():
    assert default_cutoffs(8192) == (406, 1825)
    assert default_cutoffs(793_471)[0] < 10_000
    for size in range(3, 60):
        cutoffs = default_cutoffs(size)
        assert cutoffs and 0 < cutoffs[0] <= cutoffs[-1] < size


def test_ranks_that_are_no_order_are_refused():
    ranks = Ranks(5)
    ranks.validate_loaded()
    ranks.rank[0] = 3
    with pytest.raises(ValueError, match="no order"):
        ranks.validate_loaded()


# ---- sampled


def sampled(samples, bias=True):
    return filled(SampledSoftmax(DIM, VOCAB, samples, bias)).train()


@pytest.mark.parametrize("bias", [False, True])
def test_all_words_sampled_is_the_full_softmax(bias):
    layer = sampled(1000, bias)
    hidden, targets = problem()
    over = (hidden, *layer.parameters())
    ours = layer(hidden, targets)
    full = layer.eval()(hidden, targets)
    torch.testing.assert_close(ours, full)
    for a, b in zip(torch.autograd.grad(ours, over), torch.autograd.grad(full, over), strict=True):
        torch.testing.assert_close(a, b)


def test_measurements_are_full():
    layer = sampled(4)
    hidden, targets = problem()
    expected = F.cross_entropy(layer(hidden), targets, ignore_index=IGNORE, reduction="none")
    torch.testing.assert_close(layer(hidden, targets, each=True), expected)
    torch.testing.assert_close(layer.eval()(hidden, targets), expected.sum())


def test_first_words_follow_the_declared_distribution():
    """χ² of single draws, against the log-uniform distribution over the ranks."""
    layer, n = sampled(1), 6000
    p = layer.ranks.zipf().double()
    assert float(p.sum()) == pytest.approx(1)
    order = torch.argsort(layer.ranks.rank)
    assert (p[order].diff() < 0).all() and float(p[order][0]) == pytest.approx(math.log(2) / math.log(VOCAB + 1))
    torch.manual_seed(2)
    seen = torch.bincount(torch.cat([layer.draw()[0] for _ in range(n)]), minlength=VOCAB)
    chi = float(((seen - n * p) ** 2 / (n * p)).sum())
    assert chi < 48.3  # 22 degrees of freedom, p = 0.001
    flat = torch.full_like(p, 1 / VOCAB)
    assert float(((seen - n * flat) ** 2 / (n * flat)).sum()) > 48.3


def sum_is_unbiased(samples=6, rounds=3000):
    """The mean of the estimated Σ exp(s) is the true one, within four standard errors."""
    layer = sampled(samples)
    with torch.no_grad():
        hidden, targets = (part[:8] for part in problem())
        scores = layer(hidden)
        kept = targets != IGNORE
        own = scores.gather(1, targets.clamp(min=0)[:, None])[:, 0]
        torch.manual_seed(3)
        sums = []
        for _ in range(rounds):
            drawn = layer.draw()
            losses = torch.stack([layer.estimate(hidden[i : i + 1], targets[i : i + 1], *drawn) for i in range(8)])
            sums.append((losses + own).exp())
        sums = torch.stack(sums)[:, kept]
        error = (sums.mean(0) - scores.exp().sum(1)[kept]) / (sums.std(0) / math.sqrt(rounds))
    assert error.abs().max() < 4, error


def test_the_estimated_sum_is_unbiased():
    sum_is_unbiased()


@pytest.mark.long
@pytest.mark.parametrize("bug", ["uncorrected", "hits"])
def test_planted_missing_correction_is_noticed(bug, monkeypatch):
    draw = SampledSoftmax.draw
    if bug == "uncorrected":
        monkeypatch.setattr(SampledSoftmax, "draw", lambda layer: (draw(layer)[0], torch.zeros(layer.samples)))
    else:  # accidental hits stay in the sum
        monkeypatch.setattr(torch.Tensor, "masked_fill", lambda scores, mask, value: scores)
    with pytest.raises(AssertionError):
        sum_is_unbiased()


def test_sampled_gradcheck():
    layer = sampled(6)
    hidden, targets = problem(8)
    drawn = layer.draw()
    assert len(set(drawn[0].tolist())) == 6 and (drawn[1] <= 0).all()

    def loss(hidden, weight, bias):
        given = {"weight": weight, "bias": bias}
        return torch.func.functional_call(
            Estimate(layer, drawn), {f"layer.{k}": v for k, v in given.items()}, (hidden, targets)
        )

    assert torch.autograd.gradcheck(loss, (hidden, layer.weight, layer.bias))


class Estimate(torch.nn.Module):
    def __init__(self, layer, drawn):
        super().__init__()
        self.layer, self.drawn = layer, drawn

    def forward(self, hidden, targets):
        return self.layer.estimate(hidden, targets, *self.drawn)


def test_nothing_to_predict():
    for layer in (sampled(4), filled(AdaptiveSoftmax(DIM, VOCAB, (5, 11)))):
        hidden, targets = problem()
        total = layer(hidden, torch.full_like(targets, IGNORE))
        total.backward()
        assert total.item() == 0 and hidden.grad.abs().sum() == 0

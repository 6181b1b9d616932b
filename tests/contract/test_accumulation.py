"""Sums of parts of a batch are those of the whole: every objective of encoders, every task, with what is learnt beside."""

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE, Ragged
from seqloom.batches.labelled import batch_of
from seqloom.batches.passages import Passages, passage
from seqloom.blocks.softmax import Softmax
from seqloom.objectives.masked import Masked
from tests.corpus import marks_by
from tests.objectives.test_masked import OBJECTIVES, VOCAB, learner
from tests.objectives.test_masked import passages as text
from tests.tasks import labelled as tasks

PARTS = (slice(0, 1), slice(1, 4), slice(4, 9))


def gradients(made, examples):
    """The summed loss, its count, and what every parameter learns."""
    made.zero_grad()
    losses = [made(example) for example in examples]
    for loss in losses:
        loss.total.backward()
    found = {name: p.grad for name, p in made.named_parameters() if p.grad is not None}
    return sum(loss.total.item() for loss in losses), sum(int(loss.count) for loss in losses), found


def adds_up(made, whole, parts):
    total, count, learnt = gradients(made.double().train(), [whole])
    total_of_parts, count_of_parts, learnt_by_parts = gradients(made, parts)
    assert count == count_of_parts and total == pytest.approx(total_of_parts, rel=1e-6)
    assert learnt.keys() == learnt_by_parts.keys()
    for name, value in learnt.items():
        limit = 1e-6 * max(1.0, value.abs().max().item())
        torch.testing.assert_close(value, learnt_by_parts[name], rtol=0, atol=limit)


# ---- objectives


def joined(examples):
    """Hidden passages, one after the other."""
    sizes = [len(example.batch.ids) for example in examples]
    starts, rows = np.cumsum([0, *sizes[:-1]]).tolist(), [example.batch.num_sequences for example in examples]
    first = np.cumsum([0, *rows[:-1]]).tolist()
    batches = [example.batch for example in examples]
    edges = [batch.offsets[1:] + start for batch, start in zip(batches, starts, strict=True)]
    segments = None if batches[0].segments is None else torch.cat([batch.segments for batch in batches])
    batch = Ragged(
        torch.cat([each.ids for each in batches]),
        torch.cat([each.positions for each in batches]),
        torch.cat([each.owner + i for each, i in zip(batches, first, strict=True)]),
        torch.cat([batches[0].offsets[:1], *edges]),
        max(each.max_len for each in batches),
        segments=segments,
    )
    where = torch.cat([each.where + start for each, start in zip(examples, starts, strict=True)])
    rest = [torch.cat([getattr(each, name) for each in examples]) for name in ("targets", "labels", "real", "text")]
    return Masked(batch, where, *rest)


def hidden_parts(made):
    """Passages of several lengths, in parts with several relations of passages to hidden tokens."""
    ends = np.zeros(VOCAB, bool)
    ends[::9] = True
    split, marks = text(tokens=3000).split, marks_by(197, 198, ends)
    made_of = Passages(split, marks, made.form, 512, 64, (0, 0.9), 1.0)
    rows = made_of.cut(np.arange(split.num_documents), 64, np.random.default_rng(0))
    rows = rows.take(np.flatnonzero(rows.sizes > 15))  # of short ones nothing may be hidden
    cuts = [passage(split, rows.take(np.arange(9)[part]), marks, 64) for part in PARTS]
    return [made.corrupt(cut, torch.Generator().manual_seed(i)) for i, cut in enumerate(cuts)]


@pytest.fixture
def sure(monkeypatch):
    """ELECTRA's generator takes its likeliest word: parts would draw others than the whole."""
    monkeypatch.setattr(torch, "rand_like", lambda given: torch.full_like(given, 0.5))


def equally_hidden(examples):
    """As many targets in every passage, as many as the one with the fewest has."""
    kept = []
    for example in examples:
        owner = example.batch.owner[example.where].where(example.targets != IGNORE, -1)
        rank = torch.stack([(owner[:i] == owner[i]).sum() for i in range(len(owner))])
        kept.append((owner, rank))
    fewest = min(int((owner == i).sum()) for owner, _ in kept for i in range(int(owner.max()) + 1))
    return [
        example._replace(targets=example.targets.where((rank < fewest) & (owner >= 0), IGNORE))
        for example, (owner, rank) in zip(examples, kept, strict=True)
    ]


@pytest.mark.parametrize("name", OBJECTIVES)
def test_objectives_add_up(name, sure):
    made = learner(name, rate=0.3).double()
    parts = hidden_parts(made)
    if made.form != "single":  # their relation is a mean over the passages of a batch, as in the paper
        parts = equally_hidden(parts)
        assert all((part.targets != IGNORE).any() for part in parts)
    adds_up(made, joined(parts), parts)


def test_planted_means_over_a_batch_are_noticed(sure):
    made = learner("bert", rate=0.3).double()
    parts = hidden_parts(made)
    with pytest.raises(AssertionError):
        adds_up(made, joined(parts), parts)


# ---- tasks


def told_parts(task, **config):
    made = tasks.learner(task, "gpt", **config)
    rows, _ = made.encode(tasks.examples(task, 9, 0), tasks.WORDS, tasks.frame(made))
    return made, batch_of(rows), [batch_of(rows[part]) for part in PARTS]


@pytest.mark.parametrize("lm", [0.0, 0.5])
@pytest.mark.parametrize("task", tasks.VALUES)
def test_tasks_add_up(task, lm):
    adds_up(*told_parts(task, lm=lm, dropout=0.0))


@pytest.mark.parametrize("task", ["classify", "choose"])
def test_a_planted_mean_over_all_tokens_is_noticed(task, monkeypatch):
    made, whole, parts = told_parts(task, lm=0.5, dropout=0.0)

    def even(example, modelled):
        share = made.label_weights(example).sum() / modelled.sum()
        return share.expand(len(example.batch.ids))

    monkeypatch.setattr(made, "shares", even)
    with pytest.raises(AssertionError):
        adds_up(made, whole, parts)


def test_weights_of_targets():
    """Chunk by chunk, with their gradients: as if every loss were multiplied by its own."""
    torch.manual_seed(0)
    layer = Softmax(8, 30, bias=True).double()
    layer.init_weights(0.5)
    hidden = torch.randn(700, 8, dtype=torch.double, requires_grad=True)
    targets, weights = torch.randint(0, 30, (700,)), torch.rand(700, dtype=torch.double)
    targets[::7] = IGNORE
    plain = (layer(hidden, targets, each=True) * weights).sum()
    expected = torch.autograd.grad(plain, (hidden, *layer.parameters()))
    for rows in (64, 1000):
        found = layer.summed(hidden, targets, rows, weights=weights)
        assert found.item() == pytest.approx(plain.item(), rel=1e-9)
        for one, two in zip(torch.autograd.grad(found, (hidden, *layer.parameters())), expected, strict=True):
            torch.testing.assert_close(one, two)
    with torch.no_grad():
        assert layer(hidden, targets, weights=weights).item() == pytest.approx(plain.item(), rel=1e-9)

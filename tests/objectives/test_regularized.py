"""AR and TAR equal their definitions, add up over ragged batches, and are in no reported figure."""

from itertools import pairwise

import pytest
import torch
from torch.utils import _pytree as pytree

from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.blocks.dropout import LockedDropout
from seqloom.objectives import regularized
from seqloom.objectives.next_token import NextToken
from seqloom.objectives.regularized import Regularized
from tests.contract.properties import build, close, following, sequences
from tests.test_cost import plain_products


def learner_of(name="awd-lstm-dropped", **config) -> Regularized:
    return Regularized(build(name), Regularized.Config(**config)).double().train()


def example(lengths, whole=False) -> Excerpt:
    texts = sequences(0, lengths)
    targets = torch.tensor([(i + 1) % 61 for text in texts for i in text]) if whole else following(texts)
    return Excerpt(pack(texts), targets)


def penalty(learner, example) -> torch.Tensor:
    """What the loss has more than that of the next token."""
    plain = NextToken(learner.backbone, NextToken.Config()).double().train()
    torch.manual_seed(7)
    ours = learner(example)
    torch.manual_seed(7)
    theirs = plain(example)
    assert torch.equal(ours.count, theirs.count)
    close(ours.total - ours.logs["penalty"], theirs.total, 1e-12 * theirs.total.item())  # what is logged
    return ours.total - theirs.total


def equals_the_paper() -> None:
    """Streams of one length: α mean h² + β mean (h(t) − h(t−1))², plain means over everything."""
    learner, given = learner_of(alpha=2.0, beta=3.0), example((9, 9, 9), whole=True)
    torch.manual_seed(7)
    output = learner.backbone(given.batch, layers=True)
    raw = output.layers[-1].view(3, 9, -1)
    assert not torch.equal(output.layers[-1], output.hidden)
    expected = 2 * output.hidden.square().mean() + 3 * (raw[:, 1:] - raw[:, :-1]).square().mean()
    close(penalty(learner, given) / 27, expected, 1e-12)


def adds_up() -> None:
    """Sequences one by one give the same sum as all together: nothing is compared across a border."""
    learner = learner_of("awd-lstm")
    lengths = (5, 1, 8, 2)
    together = example(lengths)
    borders = together.batch.offsets.tolist()
    alone = sum(
        penalty(learner, Excerpt(pack([together.batch.ids[a:b].tolist()]), together.targets[a:b]))
        for a, b in pairwise(borders)
        if b - a > 1
    )
    close(penalty(learner, together), alone, 1e-12)


def test_equals_the_paper():
    equals_the_paper()


def test_adds_up():
    adds_up()


@pytest.mark.parametrize("bug", ["dropped", "a sum over features", "borders"])
def test_planted_wrong_penalties_are_noticed(bug, monkeypatch):
    right = regularized.change

    def wrong(hidden, wanted, batch):
        if bug == "dropped":
            return right(hidden * (torch.rand(hidden.shape[1]) > 0.5), wanted, batch)
        if bug == "a sum over features":
            return right(hidden, wanted, batch) * hidden.shape[1]
        one = batch._replace(owner=batch.owner * 0, offsets=batch.offsets[[0, -1]])
        return right(hidden, wanted, one)

    monkeypatch.setattr(regularized, "change", wrong)
    with pytest.raises(AssertionError):
        equals_the_paper()
    if bug == "borders":
        with pytest.raises(AssertionError):
            adds_up()


def test_nothing_to_predict_costs_nothing():
    given = example((5, 7))
    loss = learner_of()(given._replace(targets=torch.full_like(given.targets, IGNORE)))
    assert loss.total.item() == 0 and loss.count.item() == 0
    loss.total.backward()


def test_no_reported_figure_has_them():
    learner = learner_of().eval()
    plain = NextToken(learner.backbone, NextToken.Config()).double().eval()
    given = example((5, 7))
    assert torch.equal(learner(given).total, plain(given).total)
    assert torch.equal(learner.losses(given)[0], plain.losses(given)[0])


def asks_nothing(monkeypatch) -> None:
    """A step on tensors without values: whatever asks for one fails, as it would while a CUDA graph is recorded."""
    plain_products(monkeypatch)
    learner = learner_of().to("meta")
    given = pytree.tree_map_only(torch.Tensor, lambda t: t.to("meta"), example((9, 9, 9)))
    loss = learner(given, learner.start(3))
    loss.total.backward()
    assert loss.total.is_meta


def test_nothing_is_decided_on_the_host(monkeypatch):
    asks_nothing(monkeypatch)


def test_planted_decision_on_the_host_is_noticed(monkeypatch):
    drop = LockedDropout.forward
    monkeypatch.setattr(LockedDropout, "forward", lambda self, x, batch: drop(self, x, batch) if x.any() else x)
    with pytest.raises(RuntimeError, match="meta tensors"):
        asks_nothing(monkeypatch)

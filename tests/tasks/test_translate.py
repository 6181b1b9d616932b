"""The task: what is learnt from, and what is measured."""

import math

import pytest
import torch

from seqloom.batch import IGNORE, Pair, pack
from seqloom.cost import total
from seqloom.errors import UsageError
from seqloom.objectives import scheduled
from seqloom.tasks.translate import Translate
from tests.contract import pairs as p


def learner(name="transformer", **config):
    torch.manual_seed(0)
    return Translate(p.build(name, dtype=torch.float64), Translate.Config(**({"tie": False} | config))).double().train()


def example(lengths=((5, 7), (3, 2), (8, 8))):
    rng = torch.Generator().manual_seed(1)
    texts = [[torch.randint(1, p.VOCAB, (n,), generator=rng).tolist() for n in pair] for pair in lengths]
    source = pack([[*a, 0] for a, _ in texts])
    target = pack([[0, *b] for _, b in texts])
    return Pair(source, target, torch.tensor([i for _, b in texts for i in [*b, 0]]))


def test_the_loss_is_the_sum_over_targets_alone():
    ours, batch = learner(label_smoothing=0.0), example()
    loss = ours(batch)
    assert loss.count.item() == len(batch.targets)
    torch.testing.assert_close(loss.total, ours.losses(batch).sum())
    ignored = batch._replace(targets=torch.full_like(batch.targets, IGNORE))
    assert ours(ignored).total.item() == 0 and ours(ignored).count.item() == 0


def test_smoothing_is_for_learning_and_not_for_measuring():
    plain, smooth, batch = learner(label_smoothing=0.0), learner(label_smoothing=0.3), example()
    assert not torch.allclose(plain(batch).total, smooth(batch).total)
    scores = smooth.softmax(smooth.backbone(batch).hidden)
    expected = torch.nn.functional.cross_entropy(scores, batch.targets, reduction="sum", label_smoothing=0.3)
    torch.testing.assert_close(smooth(batch).total, expected)
    torch.testing.assert_close(smooth.eval()(batch).total, plain.eval()(batch).total)
    torch.testing.assert_close(smooth.losses(batch), plain.losses(batch))


@pytest.mark.parametrize("name", ["transformer", "bahdanau", "luong", "seq2seq"])
def test_own_words_at_rate_0_are_teacher_forcing_and_at_1_are_own(name):
    batch = example()
    forced, never = learner(name), learner(name, own_words={"start": 0.0, "end": 0.0})
    torch.testing.assert_close(forced(batch).total, never(batch).total)
    always = learner(name, own_words={"start": 1.0, "end": 1.0})
    assert not always.static and forced.static and always.extra_forwards == 1
    context = always.backbone.encode(batch.source)
    state = always.backbone.decoder.start(3, batch.target.max_len, context)
    torch.manual_seed(3)
    mixed = scheduled.own_words(always.backbone.decoder, always.softmax, batch.target, state, 1.0)
    first = batch.target.offsets[:-1].long()
    assert torch.equal(mixed[first], batch.target.ids[first]), "the first token of a target is the start"
    # every own word was drawn from what the model says after the own words before it
    drawn = batch.target._replace(ids=mixed)
    said = always.softmax(always.backbone.decoder(drawn, context=context).hidden).softmax(1)
    follows = torch.ones(len(mixed), dtype=torch.bool)
    follows[first] = False
    places = follows.nonzero().flatten()
    assert (said[places - 1, mixed[places]] > 0).all()
    torch.manual_seed(3)
    torch.testing.assert_close(always(batch).total, forced(batch._replace(target=drawn)).total)


def test_an_output_layer_of_another_width_cannot_be_tied():
    with pytest.raises(UsageError, match=r"task.tie"):
        Translate(p.build("bahdanau", readout_dim=10), Translate.Config(tie=True))


def test_cost_counts_sources_and_targets_apart():
    ours = learner()
    sizes = example().sizes()
    costs = total(ours)
    longer = costs.forward(sizes._replace(source_tokens=2 * sizes.source_tokens))
    assert longer > costs.forward(sizes) > costs.forward(sizes._replace(cross=0))
    assert math.isclose(costs.training(sizes), 3 * costs.forward(sizes))

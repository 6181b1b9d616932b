"""Our counts of encoder–decoders against torch's own counter."""

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

from seqloom import cost
from seqloom.cost import Flops, total
from seqloom.tasks.caption import Caption
from seqloom.tasks.translate import Translate
from tests.contract.pairs import EVERY, RegionsOfTexts, build, joined, texts
from tests.test_cost import plain_products


def ratio(name: str, monkeypatch, training: bool) -> float:
    plain_products(monkeypatch)
    model = build(name, dtype=torch.float32)
    task = Caption if isinstance(model, RegionsOfTexts) else Translate
    learner = task(model, task.Config(tie=False)).train()
    pair = joined(
        texts(0, (40, 40, 40), (56, 56, 56))
    )  # equal lengths: the counter would count the empty cells of a grid
    with FlopCounterMode(display=False) as counter:
        if training:
            learner(pair).total.backward()
        else:
            with torch.no_grad():
                learner(pair)
    part = total(learner)
    return (part.training if training else part.forward)(pair.sizes()) / counter.get_total_flops()


@pytest.mark.parametrize("name", EVERY)
def test_within_one_percent_of_torch(name, monkeypatch):
    assert ratio(name, monkeypatch, training=False) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("name", ["seq2seq", "bahdanau", "luong", "luong-parallel", "luong-location", "gnmt"])
def test_training_within_one_percent_of_torch(name, monkeypatch):
    assert ratio(name, monkeypatch, training=True) == pytest.approx(1, abs=0.01)


@pytest.mark.parametrize("bug", ["scores", "keys", "once"])
def test_planted_miscounts_are_noticed(bug, monkeypatch):
    if bug == "scores":  # the products of weights and states alone
        monkeypatch.setitem(cost.PARTS, cost.Alignment, ("cross attention", lambda m: Flops(cross=2 * m.hidden_dim)))
    elif bug == "keys":  # taken to be made anew for every target token
        monkeypatch.setattr("seqloom.blocks.scores.Additive.over_source", ())
    else:  # taken to be done for every target token
        monkeypatch.setattr("seqloom.models.bahdanau.Decoder.once", ())
    assert ratio("bahdanau", monkeypatch, training=False) != pytest.approx(1, abs=0.01)

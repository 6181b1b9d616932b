"""Scheduled sampling: at rate 0 it is teacher forcing, at rate 1 the model reads its own words."""

import pytest
import torch

from seqloom.batch import Excerpt, pack, ragged
from seqloom.errors import UsageError
from seqloom.objectives.next_token import NextToken
from seqloom.objectives.scheduled import ScheduledSampling
from seqloom.recipes.library import built_in
from seqloom.recipes.schema import build_recipe
from seqloom.runs.training import pretrain
from tests.contract import properties as p
from tests.training.material import prepared
from tests.training.test_resume import fingerprint, interrupted_run, settings

RECURRENT = ["nnlm", "rnn", "irnn", "jordan", "gru", "lstm"]


def learner(name: str, start: float, end: float = 0.0, **changes) -> ScheduledSampling:
    model = p.build(name, **changes)
    config = ScheduledSampling.Config(tie=False, start=start, end=end or start)
    torch.manual_seed(5)  # of the output layer
    return ScheduledSampling(model, config).double().train()


def example(lengths=(9, 14, 1, 12)) -> Excerpt:
    texts = p.sequences(3, lengths)
    return Excerpt(pack(texts), p.following(texts))


def gradients(module: torch.nn.Module) -> list[torch.Tensor]:
    found = [parameter.grad.clone() for parameter in module.parameters()]
    module.zero_grad()
    return found


@pytest.mark.parametrize("name", RECURRENT)
def test_rate_zero_is_teacher_forcing_bit_for_bit(name):
    ours = learner(name, 0.0, dropout=0.2)
    torch.manual_seed(5)
    plain = NextToken(ours.backbone, NextToken.Config(tie=False)).double()
    carry = ours(example()).carry
    results = []
    for each in (ours, plain):
        torch.manual_seed(1)
        loss = each(example(), carry)
        loss.total.backward()
        results.append((loss.total, gradients(each)))
    assert torch.equal(results[0][0], results[1][0])
    assert all(torch.equal(a, b) for a, b in zip(results[0][1], results[1][1], strict=True))


@pytest.mark.parametrize("name", RECURRENT)
@torch.no_grad()
def test_rate_one_reads_its_own_words(name):
    """A model that is sure of itself: what it reads is what it would say, step by step, from the first true token."""
    ours = learner(name, 1.0)
    ours.softmax.weight.mul_(1e5)
    texts, carry = example(), ours(example()).carry
    mixed = ours.mix_inputs(texts.batch, carry).split(texts.batch.offsets.diff().tolist())
    given = texts.batch.ids.split(texts.batch.offsets.diff().tolist())
    ours.eval()
    for row, (own, true) in enumerate(zip(mixed, given, strict=True)):
        state, word, said = p.select(carry, torch.tensor([row])), true[:1], []
        for t in range(len(true)):
            said.append(int(word))
            output = ours.backbone(ragged(word, torch.tensor([1]), 1, torch.tensor([t])), state=state)
            state, word = output.state, ours.softmax(output.hidden).argmax(1)
        assert own.tolist() == said


def test_the_rate_is_the_share_of_own_words():
    ours = learner("gru", 0.3)
    batch = example((200,) * 20).batch
    torch.manual_seed(0)
    changed = (ours.mix_inputs(batch, None) != batch.ids).double().mean().item()
    assert changed == pytest.approx(0.3, abs=0.03)  # a few draws hit the true token


def test_seeds():
    ours, found = learner("lstm", 0.5), []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        found.append(ours.mix_inputs(example().batch, None).tolist())
    assert found[0] == found[1] != found[2]


def test_no_gradient_flows_through_a_draw():
    """The gradient is that of teacher forcing on the mixed text."""
    ours = learner("lstm", 0.5)
    torch.manual_seed(3)
    mixed = ours.mix_inputs(example().batch, None)
    torch.manual_seed(3)
    ours(example()).total.backward()
    found = gradients(ours)
    ours.advance(0.0)
    ours.rate = 0.0
    ours(example()._replace(batch=example().batch._replace(ids=mixed))).total.backward()
    assert all(torch.equal(a, b) for a, b in zip(found, gradients(ours), strict=True))


def test_evaluation_is_teacher_forcing():
    ours = learner("lstm", 1.0).eval()
    plain = NextToken(ours.backbone, NextToken.Config(tie=False)).double()
    plain.softmax = ours.softmax
    assert torch.equal(ours.losses(example())[0], plain.losses(example())[0])
    assert torch.equal(ours(example()).total, plain(example()).total)


def test_planted_own_words_everywhere_are_noticed(monkeypatch):
    monkeypatch.setattr(torch, "where", lambda condition, a, b: a)
    with pytest.raises(AssertionError):
        test_the_rate_is_the_share_of_own_words()


def test_schedules():
    ours = learner("rnn", 0.1, 0.5)
    for spent, rate in ((0, 0.1), (0.25, 0.2), (1, 0.5), (7, 0.5)):
        ours.advance(spent)
        assert ours.rate == pytest.approx(rate)
    ours.schedule = ours.schedule.model_copy(update={"shape": "inverse_sigmoid"})
    found = []
    for i in range(11):
        ours.advance(i / 10)
        found.append(ours.rate)
    assert found == sorted(found) and (found[0], found[5], found[10]) == pytest.approx((0.1, 0.3, 0.5))
    assert found[1] - found[0] < 0.5 * (found[6] - found[5]), "slow at both ends"


def test_models_without_a_state_are_refused():
    with pytest.raises(UsageError, match="needs a model that carries a state"):
        ScheduledSampling(p.build("gpt2"), ScheduledSampling.Config())
    with pytest.raises(UsageError, match=r"scheduled-sampling.*is not for the model gpt2: use .next-token"):
        build_recipe(built_in("gpt2-tiny") | {"objective": {"name": "scheduled-sampling"}}, "my.toml")


def test_interruptions_change_no_bit(tmp_path, monkeypatch):
    data = prepared(tmp_path / "data")
    chosen = ["objective.name=scheduled-sampling", "objective.end=0.8"]
    monkeypatch.setattr("tests.training.test_resume.settings", lambda *arguments: [*settings(*arguments), *chosen])
    pretrain("lstm-tiny", data, tmp_path / "whole", settings=[*settings("lstm", 20), *chosen])
    interrupted_run("lstm", data, tmp_path / "broken", 20, 6, monkeypatch)
    assert fingerprint(tmp_path / "whole") == fingerprint(tmp_path / "broken")
    with monkeypatch.context() as patch:  # planted: a rate that remembers how often it was asked
        patch.setattr(
            ScheduledSampling, "advance", lambda self, spent: setattr(self, "rate", getattr(self, "rate", 0.1) * 0.9)
        )
        pretrain("lstm-tiny", data, tmp_path / "other", settings=[*settings("lstm", 20), *chosen])
        interrupted_run("lstm", data, tmp_path / "lost", 20, 6, monkeypatch)
        assert fingerprint(tmp_path / "other") != fingerprint(tmp_path / "lost")


def test_the_draws_are_paid_for():
    ours = learner("rnn", 0.0, 0.5)
    assert ours.extra_forwards == 0
    ours.advance(0.5)
    assert ours.extra_forwards == 1

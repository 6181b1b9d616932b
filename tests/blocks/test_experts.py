"""Experts: what each token gets, how they are kept in use, and what they cost."""

import math

import pytest
import torch
import torch.nn.functional as F
from pydantic import ValidationError
from torch import nn

from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.blocks import experts as e
from seqloom.blocks.experts import Experts
from seqloom.blocks.feedforward import FeedForward
from seqloom.cost import total
from seqloom.models.gpt2 import Gpt2
from seqloom.models.lstm import Lstm
from seqloom.tasks.translate import Translate
from tests.contract import pairs
from tests.contract import properties as p

DIM, INNER = 6, 10


def built(count, chosen, balance=0.1, seed=0):
    torch.manual_seed(seed)
    made = Experts(DIM, INNER, "gelu", count, chosen, balance).double()
    e.init_experts(made, nn.init.normal_)
    for bank in (made.up, made.down):
        nn.init.normal_(bank.bias)
    nn.init.normal_(made.gate.weight)
    nn.init.normal_(made.noise.weight)
    return made.eval()


def rows(count=40, seed=1):
    return torch.randn(count, DIM, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def batch_of(count, real=None):
    return pack([[0] * count])._replace(real=real)


def expert(made, i, x):
    return F.linear(F.gelu(F.linear(x, *made.up[i])), *made.down[i])


def by_hand(made, x):
    """Token by token."""
    out = []
    for row in x:
        scores = made.gate(row)
        best = sorted(range(made.count), key=lambda i: -scores[i].item())[: made.chosen]
        shares = scores[best].softmax(0)
        out.append(sum(share * expert(made, i, row) for share, i in zip(shares, best, strict=True)))
    return torch.stack(out)


@pytest.mark.parametrize(("count", "chosen"), [(1, 1), (4, 1), (4, 2), (5, 5), (64, 3)])
def test_equals_one_token_at_a_time(count, chosen):
    made, x = built(count, chosen), rows()
    (mine,) = made(x, batch_of(len(x)))
    torch.testing.assert_close(mine, by_hand(made, x), rtol=0, atol=1e-12)
    torch.testing.assert_close(made.mix_all(x, made.gates(x)), mine, rtol=0, atol=1e-12)


def test_one_expert_is_a_feed_forward_network():
    made, plain = built(1, 1), FeedForward(DIM, INNER, "gelu").double()
    with torch.no_grad():
        for bank, linear in ((made.up, plain.up), (made.down, plain.down)):
            linear.weight.copy_(bank.weight[0])
            linear.bias.copy_(bank.bias[0])
    x = rows()
    torch.testing.assert_close(made.train()(x, batch_of(40))[0], plain(x), rtol=0, atol=1e-13)
    assert isinstance(p.build("gpt2").stack.layers[0].ffn, FeedForward)  # and a model without experts has none


def test_all_experts_are_a_dense_mixture():
    made, x = built(4, 4), rows()
    shares = made.gate(x).softmax(1)
    dense = sum(shares[:, i : i + 1] * expert(made, i, x) for i in range(4))
    torch.testing.assert_close(made(x, batch_of(40))[0], dense, rtol=0, atol=1e-12)
    torch.testing.assert_close(made.shares(x), shares)


def test_gradients_in_double_precision():
    made = built(4, 2)
    x = rows(7).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: made(x, batch_of(7))[0], (x,))
    mine = torch.autograd.grad(made(x, batch_of(7))[0].square().sum(), [x, *made.up.parameters(), made.gate.weight])
    hand = torch.autograd.grad(by_hand(made, x).square().sum(), [x, *made.up.parameters(), made.gate.weight])
    for a, b in zip(mine, hand, strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-10)


def load_is_right(made):
    """Against drawing the noise of one expert again, that of the others kept."""
    x = rows(3)
    made.train()
    torch.manual_seed(0)
    gates = made.gates(x)
    estimate, draws = made.load(gates), 20_000
    for i in range(made.count):
        again = gates.noisy[:, i] * 0 + gates.clean[:, i] + torch.randn(draws, 3).double() * gates.spread[:, i]
        others = torch.cat((gates.noisy[:, :i], gates.noisy[:, i + 1 :]), 1)
        border = others.sort(1, descending=True).values[:, made.chosen - 1]
        share = (again > border).double().mean(0)
        assert (share - estimate[:, i]).abs().max() < 4 * 0.5 / math.sqrt(draws)


@pytest.mark.parametrize("chosen", [1, 2, 4])
def test_load_against_monte_carlo(chosen):
    load_is_right(built(5, chosen))


def test_planted_border_is_noticed(monkeypatch):
    """The k-th largest of all, the expert itself among them."""

    def wrong(self, gates):
        border = gates.noisy.topk(self.chosen, dim=1).values[:, -1:]
        return 0.5 * (1 + torch.erf((gates.clean - border) / gates.spread / math.sqrt(2)))

    monkeypatch.setattr(Experts, "load", wrong)
    with pytest.raises(AssertionError):
        load_is_right(built(5, 2))


def test_penalty_by_hand():
    made, x = built(4, 2, balance=0.3).train(), rows()
    torch.manual_seed(3)
    _, penalty = made(x, batch_of(40))
    torch.manual_seed(3)
    gates = made.gates(x)
    importance = torch.zeros(40, 4).double().scatter(1, gates.chosen, gates.shares).sum(0)
    load = made.load(gates).sum(0)
    cv = [(each.var(correction=0) / each.mean() ** 2) for each in (importance, load)]
    torch.testing.assert_close(penalty, 0.3 * 40 * sum(cv))
    assert len(made.eval()(x, batch_of(40))) == 1, "nothing is learnt beside in evaluation"


def ignores_filler(made):
    """Filler neither counts as load nor as tokens."""
    x = rows()
    real = torch.arange(40) < 30
    torch.manual_seed(3)
    _, penalty = made.train()(x, batch_of(40, real))
    torch.manual_seed(3)
    gates = made.gates(x)
    alone = e.Gates(*(part[:30] for part in gates))
    torch.testing.assert_close(penalty, made.penalty(alone, None))


def test_filler_is_not_counted():
    ignores_filler(built(4, 2))


def test_planted_filler_is_noticed(monkeypatch):
    right = Experts.penalty
    monkeypatch.setattr(Experts, "penalty", lambda self, gates, real: right(self, gates, None))
    with pytest.raises(AssertionError):
        ignores_filler(built(4, 2))


@pytest.mark.parametrize("name", ["gpt2-experts", "lstm-experts"])
def test_what_is_learnt_beside_is_in_the_loss(name):
    learner = p.learner_of(p.build(name)).train()
    texts = p.sequences(0, (9, 4))
    following = p.following(texts)
    torch.manual_seed(0)
    loss = learner(Excerpt(pack(texts), following))
    assert loss.logs["penalty"] > 0 and int(loss.count) == int((following != IGNORE).sum())
    torch.manual_seed(0)
    output = learner.backbone(pack(texts)._replace(real=following != IGNORE))
    torch.testing.assert_close(loss.total - loss.logs["penalty"], learner.softmax(output.hidden, following))
    torch.testing.assert_close(loss.logs["penalty"], output.penalty.detach())


def test_both_halves_of_a_translator_add_to_the_loss():
    learner = Translate(pairs.build("transformer-experts"), Translate.Config()).double().train()
    pair = pairs.joined(pairs.texts(0, (5, 7), (6, 4)))
    torch.manual_seed(0)
    both = learner(pair).logs["penalty"]
    for module in learner.backbone.encoder.modules():
        if isinstance(module, Experts):
            module.balance = 0.0
    torch.manual_seed(0)
    assert 0 < learner(pair).logs["penalty"] < both


def test_balance_keeps_experts_in_use():
    """One that begins far ahead is brought back by the two losses alone."""

    def spread(balance):
        made = built(4, 1, balance)
        with torch.no_grad():
            made.gate.weight.zero_()
            made.gate.weight[0] = 1.0
            made.noise.weight.zero_()
        x = rows(200) + 0.5
        optimizer = torch.optim.Adam(made.parameters(), lr=0.05)
        made.train()
        for i in range(60):
            torch.manual_seed(i)
            out, *penalty = made(x, batch_of(200))
            (out.sum() * 0 + sum(penalty)).backward()
            optimizer.step()
            optimizer.zero_grad()
        return float(e.variation(made.eval().shares(x).sum(0)))

    assert spread(0.1) < 0.5 * spread(0.0)


def test_parameters_are_of_all_and_cost_is_of_the_chosen():
    sizes = {"dim": 24, "num_layers": 2, "num_heads": 3, "max_len": 32, "vocab_size": 61}
    counts, costs = [], []
    for count in (1, 8, 32):
        model = Gpt2(Gpt2.Config(**sizes, experts=count))
        counts.append(sum(parameter.numel() for parameter in model.parameters()))
        costs.append(total(model).token)
    assert counts[2] > 3 * counts[1] > 6 * counts[0]
    # beside the gates all cost the same: two experts of half the width
    gates = [2 * 2 * 2 * 24 * count for count in (8, 32)]
    assert [cost - gate for cost, gate in zip(costs[1:], gates, strict=True)] == [costs[0]] * 2


@pytest.mark.parametrize(
    ("cls", "changes", "names"),
    [
        (Gpt2, {"experts": 4, "experts_k": 5}, "experts_k 5"),
        (Gpt2, {"experts": 0}, "experts"),
        (Gpt2, {"expert_dim": 8}, "expert_dim 8 is for layers with experts"),
        (Lstm, {"expert_dim": 8}, "expert_dim 8"),
        (Lstm, {"experts": 4, "num_layers": 1}, "one layer"),
        (Lstm, {"experts": 4, "connection": "dense"}, "dense"),
    ],
)
def test_impossible_experts_are_refused(cls, changes, names):
    with pytest.raises(ValidationError, match=names):
        cls.Config(vocab_size=61, **changes)


def test_more_experts_than_tokens():
    made = built(64, 2)
    x = rows(1)
    torch.testing.assert_close(made(x, batch_of(1))[0], by_hand(made, x))
    assert made(x[:0], pack([[]]))[0].shape == (0, DIM)


def test_penalties_weigh_the_same_in_tasks(monkeypatch):
    """A sum over tokens in pre-training, one over labels in a task: the same in the mean loss of either."""
    from seqloom.batches.labelled import batch_of as labelled_batch
    from tests.tasks import labelled as tasks

    monkeypatch.setitem(tasks.MODELS, "gpt", tasks.MODELS["gpt"] | {"experts": 4})
    made = tasks.learner("classify", "gpt", dropout=0.0).train()
    rows_of, _ = made.encode(tasks.examples("classify", 4, 0), tasks.WORDS, tasks.frame(made))
    example = labelled_batch(rows_of)
    torch.manual_seed(0)
    loss = made(example)
    torch.manual_seed(0)
    output = made.backbone(example.batch._replace(real=example.real))
    torch.testing.assert_close(
        loss.logs["penalty"] / loss.count, (output.penalty / example.real.sum()).detach(), check_dtype=False
    )

"""The NNLM against its equation written out, word by word."""

import pytest
import torch

from seqloom.batch import Excerpt, pack
from seqloom.errors import UsageError
from seqloom.models.nnlm import Nnlm
from seqloom.objectives.next_token import NextToken
from seqloom.runs.training import pretrain
from seqloom.training.loop import Fit
from tests.contract import properties as p
from tests.training.material import prepared


def by_hand(learner: NextToken, text: list[int], direct: bool) -> torch.Tensor:
    """y = b + W x + U tanh(d + H x) for every word of one text."""
    model = learner.backbone
    weight, bias = learner.softmax.weight, learner.softmax.bias
    rows = []
    for t in range(len(text)):
        words = [text[t - back] if t >= back else None for back in range(model.order - 2, -1, -1)]
        zero = torch.zeros(model.token.embedding_dim, dtype=torch.float64)
        x = torch.cat([zero if word is None else model.token.weight[word] for word in words])
        h = torch.tanh(model.units.bias + model.units.weight @ x)
        w, u = weight.split((len(x), len(h)), dim=1) if direct else (torch.zeros(len(weight), len(x)).double(), weight)
        rows.append(bias + w @ x + u @ h)
    return torch.stack(rows)


@pytest.mark.parametrize("direct", [False, True])
@pytest.mark.parametrize("order", [2, 3, 6])
def test_equals_the_equation(direct, order):
    learner = p.learner_of(p.build("nnlm", order=order, direct=direct), tie=False, bias=True)
    texts = p.sequences(0, (9, 1, 2, 14))  # windows longer than the text among them
    scores = learner.softmax(learner.backbone(pack(texts)).hidden)
    torch.testing.assert_close(scores, torch.cat([by_hand(learner, t, direct) for t in texts]), rtol=0, atol=1e-12)


def test_only_the_window_counts():
    model = p.build("nnlm", order=4)
    (text,) = p.sequences(1, (20,))
    other = [(token + 1) % p.VOCAB if i == 5 else token for i, token in enumerate(text)]
    moved = (model(pack([text])).hidden - model(pack([other])).hidden).abs().sum(1).nonzero().flatten().tolist()
    assert moved == [5, 6, 7]


def test_the_state_is_the_last_words():
    model = p.build("nnlm", order=5)
    state = model(pack([[3, 4, 5, 6], [7], []])).state
    assert state.own[0].tolist() == [[4, 5, 6], [-1, -1, 7], [-1, -1, -1]]


def test_tied_weights_of_another_width_are_refused():
    model = Nnlm(Nnlm.Config(vocab_size=10, embedding_dim=4, dim=6))
    with pytest.raises(UsageError, match=r"4 numbers, the hidden states 6.*objective\.tie = false"):
        NextToken(model, NextToken.Config())
    same = Nnlm(Nnlm.Config(vocab_size=10, embedding_dim=6, dim=6))
    example = Excerpt(pack([[1, 2, 3]]), torch.tensor([2, 3, 4]))
    assert torch.isfinite(NextToken(same, NextToken.Config())(example).total)


def test_a_broken_first_step_leaves_an_empty_window(tmp_path, monkeypatch):
    """Not the word number 0, which zeros would be."""
    data, seen = prepared(tmp_path / "data", 100), []
    forward, one_step = NextToken.forward, Fit.one_step

    def broken(self, example, carry=None):
        loss = forward(self, example, carry)
        return loss._replace(total=loss.total * float("nan"))

    def watched(fit, items):
        one_step(fit, items)
        seen.append(fit.carry[0].own[0])

    monkeypatch.setattr(NextToken, "forward", broken)
    monkeypatch.setattr(Fit, "one_step", watched)
    pretrain("nnlm-tiny", data, tmp_path / "run", settings=["model.dim=8", "batches.streams=4", "budget={steps=1}"])
    assert seen[0].tolist() == [[-1] * 3] * 4


def test_a_recipe_that_ties_is_refused_before_anything_is_written(tmp_path):
    data = prepared(tmp_path / "data", 100)
    with pytest.raises(UsageError, match=r"set objective\.tie = false"):
        pretrain("nnlm-tiny", data, tmp_path / "run", settings=["objective.tie=true", "batches.streams=4"])
    assert not (tmp_path / "run").exists()


def test_dropout_acts_in_training_only():
    model = p.build("nnlm", dropout=0.5, direct=True)
    batch = pack(p.sequences(0, (20,)))
    assert torch.equal(model(batch).hidden, model(batch).hidden)
    model.train()
    assert not torch.equal(model(batch).hidden, model(batch).hidden)

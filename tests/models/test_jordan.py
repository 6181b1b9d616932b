"""Jordan's network against its two equations in a plain loop, and with its own words fed back."""

import torch

from seqloom.batch import pack, ragged
from seqloom.models.jordan import JordanLayer
from tests.contract import properties as p


def test_equals_the_loop():
    for alpha in (0.0, 0.5, 0.97):
        torch.manual_seed(0)
        layer = JordanLayer(6, alpha, 0.0).double()
        x = torch.randn(5 + 33 + 1, 6, dtype=torch.float64)
        batch = pack([[0] * 5, [0] * 33, [], [0]])
        before = torch.randn(4, 6, dtype=torch.float64)
        hidden, (after,), shown = layer(x, batch, (before,), None, True)
        borders = batch.offsets.tolist()
        for n in range(4):
            s = before[n]
            for t in range(borders[n], borders[n + 1]):
                s = alpha * s + x[t]
                expected = torch.tanh(layer.read(x[t]) + layer.feedback(s))
                torch.testing.assert_close(hidden[t], expected, rtol=0, atol=1e-12)
                torch.testing.assert_close(shown[t], torch.stack((s, expected)), rtol=0, atol=1e-12)
            torch.testing.assert_close(after[n], s, rtol=0, atol=1e-12)


@torch.no_grad()
def test_feedback_of_its_own_words_is_exact():
    """What it says, step by step with each word fed back, is what it thinks of that text when it reads it."""
    learner = p.learner_of(p.build("jordan"), tie=False)
    model, state, word, said, seen = learner.backbone, learner.backbone.start(1, 0), 7, [], []
    for t in range(12):
        output = model(ragged(torch.tensor([word]), torch.tensor([1]), 1, torch.tensor([t])), state=state)
        said.append(word)
        seen.append(output.hidden)
        state, word = output.state, int(learner.softmax(output.hidden).argmax())
    torch.testing.assert_close(torch.cat(seen), model(pack([said])).hidden, rtol=0, atol=1e-12)


@torch.no_grad()
def test_without_decay_it_is_a_bigram_model():
    (text,) = p.sequences(0, (20,))
    other = [(token + 1) % p.VOCAB if i == 5 else token for i, token in enumerate(text)]
    for name, expected in (("jordan-bigram", [5]), ("jordan", list(range(5, 20)))):
        model = p.build(name)
        moved = (model(pack([text])).hidden - model(pack([other])).hidden).abs().sum(1).nonzero().flatten().tolist()
        assert moved == expected

"""Gradients through time: against autograd written out, against differences, and against what eigenvalues predict."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.analyse.flow import Flow, cut_windows, eigenvalues, gradient_flow
from seqloom.analyse.flow_page import GradientFlow, draw_flow
from seqloom.batch import pack, ragged
from seqloom.cli import run
from seqloom.errors import DataError, UsageError
from seqloom.models.ngram import Ngram
from seqloom.objectives.counted import Counted
from seqloom.runs.training import pretrain
from tests.contract import properties as p
from tests.training.material import prepared, write_text

K = 12


def windows(n: int = 3, size: int = K + 2) -> torch.Tensor:
    return torch.tensor(p.sequences(0, (size,) * n))


def test_equals_autograd_written_out():
    learner = p.learner_of(p.build("rnn", dim=7))
    found = gradient_flow("rnn", learner, windows()).norms
    kernels = [layer.cell.kernel for layer in learner.backbone.stack.layers]
    expected = {f"layer{i}.h": np.zeros(K + 1) for i in range(2)}
    for text in windows():
        before, steps = [torch.zeros(7).double()] * 2, []
        for token in text[:-1]:
            x, now = learner.backbone.table.weight[token], []
            for kernel, h in zip(kernels, before, strict=True):
                x = torch.tanh(
                    kernel.weight_ih_l0 @ x + kernel.bias_ih_l0 + kernel.weight_hh_l0 @ h + kernel.bias_hh_l0
                )
                now.append(x)
            before = now
            steps.append(now)
        loss = -(learner.softmax.weight @ x).log_softmax(0)[text[-1]]
        for i in range(2):
            gradients = torch.autograd.grad(loss, [now[i] for now in steps], retain_graph=True)
            expected[f"layer{i}.h"] += [g.norm().item() / 3 for g in reversed(gradients)]
    assert set(found) == set(expected)
    for name, norms in found.items():
        np.testing.assert_allclose(norms, expected[name], rtol=1e-9)
    assert all(parameter.grad is None for parameter in learner.parameters())


@pytest.mark.parametrize("name", ["rnn", "gru", "lstm", "lstm-projected", "jordan", "gru-highway"])
def test_equals_differences(name):
    """The top layer's state is moved in the middle of a window, and the loss of its end looked at."""
    learner = p.learner_of(p.build(name))
    (text,) = windows(1).tolist()
    flow = gradient_flow(name, learner, windows(1))
    model, back = learner.backbone, 4
    top = len(model.stack.layers) - 1
    begun = model(pack([text[: -1 - back]])).state
    rest = text[-1 - back : -1]

    def loss(own: tuple[torch.Tensor, ...]) -> float:
        state = begun._replace(own=(*begun.own[:top], own))
        batch = ragged(torch.tensor(rest), torch.tensor([back]), back, torch.tensor([len(text) - 1 - back]))
        hidden = model(batch, state=state).hidden[-1:]
        return learner.softmax(hidden, torch.tensor(text[-1:]), each=True).item()

    with torch.no_grad():
        for part, symbol in zip(range(len(begun.own[top])), "h" if "projected" in name else "hc", strict=False):
            slopes = []
            for i in range(begun.own[top][part].shape[1]):
                ends = []
                for step in (1e-5, -1e-5):
                    moved = [tensor.clone() for tensor in begun.own[top]]
                    moved[part][0, i] += step
                    if symbol == "c":  # h goes along: h = o tanh(c)
                        h, c = begun.own[top]
                        moved[0] = h / c.tanh() * moved[1].tanh()
                    ends.append(loss(tuple(moved)))
                slopes.append((ends[0] - ends[1]) / 2e-5)
            assert flow.norms[f"layer{top}.{symbol}"][back] == pytest.approx(math.hypot(*slopes), rel=1e-4)


def linear(radius: float) -> p.NextToken:
    """A linear network that turns its state and scales it by `radius`."""
    learner = p.learner_of(p.build("rnn", num_layers=1))
    cell = learner.backbone.stack.layers[0].cell
    cell.function = torch.nn.Identity()
    torch.nn.init.orthogonal_(cell.kernel.weight_hh_l0).data.mul_(radius)
    return learner


@pytest.mark.parametrize("radius", [0.5, 1.0, 1.2])
def test_a_linear_network_goes_as_its_eigenvalues_say(radius):
    learner = linear(radius)
    flow = gradient_flow("linear", learner, windows())
    norms = np.array(flow.norms["layer0.h"])
    np.testing.assert_allclose(norms, norms[0] * radius ** np.arange(K + 1), rtol=1e-9)
    np.testing.assert_allclose(abs(flow.eigenvalues["layer0.h"]), radius, rtol=1e-9)


def test_planted_lost_step_is_noticed(monkeypatch):
    """Half the gradient lost on the way."""
    learner = linear(1.0)
    forward = learner.backbone.forward

    def cut(batch, **options):
        output = forward(batch, **options)
        return output if batch.positions[0] != 5 else output._replace(state=halved(output.state))

    monkeypatch.setattr(learner.backbone, "forward", cut)
    norms = gradient_flow("linear", learner, windows()).norms["layer0.h"]
    with pytest.raises(AssertionError):
        np.testing.assert_allclose(norms, norms[0], rtol=1e-9)


def halved(state):
    """The same numbers, of which half the gradient is lost."""
    return p.pytree.tree_map(lambda tensor: tensor / 2 + tensor.detach() / 2, state)


def test_eigenvalues_by_gate():
    counts = {"rnn": 1, "gru": 3, "lstm": 4}
    for name, count in counts.items():
        found = eigenvalues(p.build(name))
        assert len(found) == 2 * count and all(values.shape == (24,) for values in found.values())
    found = eigenvalues(p.build("lstm-projected"))
    assert list(found)[:4] == ["layer0.input", "layer0.forget", "layer0.candidate", "layer0.output"]
    assert all(values.shape == (16,) for values in found.values())


def test_clipping_is_one_factor():
    learner = p.learner_of(p.build("gru"))
    free, tight = (gradient_flow("gru", learner, windows(), clip) for clip in (0.0, 1e-3))
    assert free.shrink == 1 and tight.norms == free.norms
    loss = learner(p.Excerpt(pack(windows()[:, :-1].tolist()), only_last(windows()))).total / 3
    loss.backward()
    norm = torch.nn.utils.get_total_norm([parameter.grad for parameter in learner.parameters()]).item()
    assert tight.norm == pytest.approx(norm) and tight.shrink == pytest.approx(1e-3 / norm)


def only_last(texts: torch.Tensor) -> torch.Tensor:
    targets = torch.full_like(texts[:, 1:], p.IGNORE)
    targets[:, -1] = texts[:, -1]
    return targets.flatten()


def test_windows_of_a_text():
    assert cut_windows(iter([[1, 2], [3], [4, 5, 6]]), 0, 3, 9).tolist() == [[0, 1, 2], [0, 3, 0], [4, 5, 6]]
    assert len(cut_windows(iter([[1]] * 1000), 0, 3, 2)) == 2
    with pytest.raises(DataError, match="has 2 tokens, a window takes 5"):
        cut_windows(iter([[1]]), 0, 5, 2)


def test_models_without_a_flow_are_refused():
    counts = Counted(Ngram(Ngram.Config(vocab_size=p.VOCAB)), Counted.Config())
    for learner, words in ((p.learner_of(p.build("nnlm")), "the words themselves"), (counts, "no gradients")):
        with pytest.raises(UsageError, match=words):
            gradient_flow("it", learner, windows())


def test_of_a_transformer_equals_autograd_written_out():
    """By what each layer hands on, at every distance; the last layer hands on to the last word alone."""
    learner = p.learner_of(p.build("gpt2"))
    found = gradient_flow("gpt2", learner, windows()).norms
    assert set(found) == {"embedding.h", "layer0.h", "layer1.h"}
    expected = np.zeros((3, K + 1))
    for text in windows():
        output = learner.backbone(pack([text[:-1].tolist()]), layers=True)
        loss = learner.softmax(output.hidden[-1:], text[-1:], each=True)[0]
        for i, gradient in enumerate(torch.autograd.grad(loss, output.layers)):
            expected[i] += gradient.norm(dim=1).numpy()[::-1] / 3
    for i, name in enumerate(("embedding.h", "layer0.h", "layer1.h")):
        np.testing.assert_allclose(found[name], expected[i], rtol=1e-9, atol=1e-15)
    assert expected[2][1:].max() == 0 and expected[0].min() > 0
    with pytest.raises(UsageError, match="95 steps back at most"):
        gradient_flow("gpt2", learner, torch.zeros(1, 98, dtype=torch.long))


def test_a_page_of_odd_numbers():
    flow = Flow("<b>", {"layer0.h": [math.nan, 0.0, 0.0]}, 0.0, 1.0, 1, {})
    text = GradientFlow([flow], "a & b").html()
    assert "&lt;b&gt;" in text and "a &amp; b" in text and "<b>" not in text
    assert "no measurements" in draw_flow([flow], "h")


def test_the_command(tmp_path: Path, capsys):
    data = prepared(tmp_path / "data", 300)
    small = ["model.dim=16", "batches.streams=4", "batches.length=16", "budget={steps=2}", "valid.limit=100"]
    for name in ("rnn", "lstm"):
        pretrain(f"{name}-tiny", data, tmp_path / name, settings=[*small, "train.optim.clip=0.01"])
    pretrain("gpt2-tiny", data, tmp_path / "gpt2", settings=["model.dim=20", "budget={steps=1}"])
    text, out = write_text(tmp_path / "a.txt", 100), tmp_path / "flow.html"
    capsys.readouterr()
    call = ["inspect", str(tmp_path / "rnn"), str(tmp_path / "lstm"), "--text", str(text), "--out", str(out)]
    assert run([*call, "--back", "9"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        "rnn layer0.h", "rnn layer1.h", "lstm layer0.h", "lstm layer0.c", "lstm layer1.h", "lstm layer1.c"
    ]  # fmt: skip
    page = out.read_text()
    assert page.count("<polyline") == 2 * (4 + 2), "h of four layers, c of two, each with and without clipping"
    assert page.count("complex plane") == 2 * 1 + 2 * 4 and "http" not in page.replace("http-equiv", "")
    assert run([*call]) == 2 and "exists already" in capsys.readouterr().err
    both = ["inspect", str(tmp_path / "gpt2"), str(tmp_path / "lstm"), "--text", str(text), "--back", "9"]
    assert run([*both, "--out", str(tmp_path / "both.html")]) == 0
    assert "gpt2 embedding.h: " in capsys.readouterr().out and "eigenvalues" in (tmp_path / "both.html").read_text()
    assert run(["inspect", str(tmp_path / "rnn"), "--text", "none.txt", "--out", str(tmp_path / "b.html")]) == 5
    assert run([*call[:-1], str(tmp_path / "b.html"), "--back", "9999"]) == 3

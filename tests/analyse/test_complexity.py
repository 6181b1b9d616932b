"""The table of what layers cost: by hand, by the reach that is measured, and as a command."""

import json

import pytest
import torch

from seqloom.analyse import complexity as c
from seqloom.analyse.complexity import Shape, layers_of, measure_complexity, reach_of
from seqloom.analyse.complexity_page import Complexity
from seqloom.cli import run

SHAPE = Shape(dim=16, num_heads=2, width=3, window=5)


def measured(lengths=(8, 64)):
    return measure_complexity(SHAPE, lengths, torch.device("cpu"))


def test_operations_and_paths_by_hand():
    found = {(each.layer.partition(" (")[0], each.length): each for each in measured()}
    n, d = 64, 16
    projections = n * 2 * 4 * d * d
    assert found["self-attention", n].operations == projections + 4 * d * n * n
    assert found["restricted attention", n].operations == projections + 4 * d * (5 * 5 + (n - 5) * 9)
    assert found["recurrent", n].operations == n * 2 * 8 * d * d
    assert found["convolutional", n].operations == n * 2 * 3 * d * d
    assert [found["self-attention", n].path, found["recurrent", n].path] == [1, 64]
    assert [found["restricted attention", n].path, found["convolutional", n].path] == [16, 32]
    assert found["convolutional, dilated", n].path == 4 and found["convolutional, dilated", 8].path == 2
    assert [each.steps for each in measured() if each.length == n] == [1, 64, 1, 1, 1]


def reaches():
    torch.manual_seed(0)
    return {layer.name.partition(" (")[0]: reach_of(layer.module, SHAPE) for layer in layers_of(SHAPE)}


def test_reach_is_what_layers_see():
    found = reaches()
    assert found.pop("convolutional, dilated") == 3
    expected = {"self-attention": 0, "recurrent": 0, "convolutional": 3, "restricted attention": 5}
    assert found == expected, "0: without an end"


def test_planted_reach_is_noticed(monkeypatch):
    """A window that is one too wide is seen in the measured reach."""
    right = c.SelfAttention.__init__
    wider = lambda self, *rest, window=None, **more: right(self, *rest, window=window and window + 1, **more)  # noqa: E731
    monkeypatch.setattr(c.SelfAttention, "__init__", wider)
    with pytest.raises(AssertionError):
        test_reach_is_what_layers_see()


def test_the_page_has_every_layer():
    found = Complexity(SHAPE, measured(), "cpu")
    page = found.html()
    assert all(layer in page for layer in found.letters) and "n² · d" in page
    assert len(found.rows()) == 1 + 2 * 5 and set(found.pictures()) == {"latency", "operations", "path"}


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(["inspect", "--complexity", "--lengths", "32, 16", "--out", "c.json", "--device", "cpu"]) == 0
    assert "self-attention: at 32 tokens" in capsys.readouterr().out
    layers = json.loads((tmp_path / "c.json").read_text())["layers"]
    assert {each["length"] for each in layers} == {16, 32} and all(each["milliseconds"] > 0 for each in layers)
    for options, words in (
        (["--complexity", "--lengths", "1"], "no number of tokens"),
        (["--complexity", "--lengths", "x"], "no number of tokens"),
        (["--complexity", "--text", "x"], "leave out --text"),
        (
            ["--complexity", "somewhere", "--show", "heads", "--layer", "2"],
            "leave out the run folders, --show, --layer",
        ),
        (["--complexity", "--plugin", "own.py", "--back", "9"], "leave out --back, --plugin"),
        (["--lengths", "16", "--text", "x"], "--complexity"),
        (["--text", "x"], "a run folder"),
        (["somewhere"], "--text"),
    ):
        assert run(["inspect", *options, "--out", "bad.html"]) == 2
        assert words in capsys.readouterr().err and not (tmp_path / "bad.html").exists()

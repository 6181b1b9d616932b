"""Cells of the user's own: the documented example through the contract and the command line, and everything that can be wrong."""

import json
import sys
from pathlib import Path

import pytest
import torch

from seqloom.batch import Excerpt, pack
from seqloom.cli import run
from seqloom.errors import ModelError, UsageError
from seqloom.models.own_cell import OwnCell
from seqloom.plugins import Plugin
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.contract import properties as p
from tests.training.material import prepared

EXAMPLE = Path(__file__).parents[1] / "examples" / "layernorm_lstm.py"
SMALL = ["model.dim=16", "batches.streams=4", "batches.length=16", "budget={steps=6}", "valid.limit=100"]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    return prepared(tmp_path_factory.mktemp("plugins") / "data", 300)


def example(seed: int = 0, dtype: torch.dtype = torch.float64, **changes) -> OwnCell:
    torch.manual_seed(seed)
    values = {"vocab_size": p.VOCAB, "cell": "LayerNormLstm", "dim": 24, "num_layers": 2} | changes
    return OwnCell(OwnCell.Config(**values), Plugin(EXAMPLE)).to(dtype).eval()


@pytest.mark.parametrize("connection", ["none", "dense"])
@pytest.mark.parametrize(
    "holds",
    [
        p.causality, p.packing, p.batch_order, p.steps, p.chunks, p.segment_gradient, p.every_gradient, p.all_ignored,
        p.accumulation, p.shown, p.initial_loss,
    ],
    ids=lambda check: check.__name__,
)  # fmt: skip
def test_the_example_keeps_the_contract(holds, connection):
    holds(example(connection=connection), 0)


def test_it_runs_compiled():
    learner = p.learner_of(example())
    texts = p.sequences(0, (12, 12))
    batch = Excerpt(pack(texts), p.following(texts))
    plain = learner(batch)
    compiled = torch.compile(learner, backend="eager")(batch)
    torch.testing.assert_close(compiled.total, plain.total)
    compiled.total.backward()
    assert all(parameter.grad is not None for parameter in learner.parameters())


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def settings(*more: str) -> list[str]:
    return [part for setting in (*SMALL, *more) for part in ("--set", setting)]


def test_the_command_line(data, tmp_path, capsys):
    out, plugin = tmp_path / "run", ("--plugin", EXAMPLE)
    code, _, err = call(
        capsys, "pretrain", "tiny", *plugin, "--data", data, "--out", out, *settings("model.options.eps=1e-3")
    )
    assert code == 0, err
    config = json.loads((out / "config.json").read_text())
    assert config["plugin"] == {"file": EXAMPLE.name, "sha256": Plugin(EXAMPLE).sha256}
    assert config["recipe"]["name"] == "layernorm-lstm-tiny" and config["recipe"]["model"]["options"] == {"eps": 1e-3}
    text = tmp_path / "a.txt"
    text.write_text("the cat sees the dog\n")
    commands = (("evaluate", out, "--data", data), ("generate", out, "--max-new", 3), ("score", out, text))
    for command in commands:
        assert call(capsys, *command, *plugin)[0] == 0
        code, _, err = call(capsys, *command)
        assert code == 4 and "give its file layernorm_lstm.py with --plugin" in err
    other = tmp_path / "layernorm_lstm.py"
    other.write_text(EXAMPLE.read_text() + "\n")
    code, _, err = call(capsys, "generate", out, "--plugin", other)
    assert code == 4 and "SHA-256 differ" in err
    assert load(out, plugin=EXAMPLE).generate("the", max_new=2)[0].text.startswith("the")
    resumed = ("pretrain", "tiny", "--data", data, "--out", out, "--resume", *settings("model.options.eps=1e-3"))
    code, _, err = call(capsys, *resumed, "--plugin", other)
    assert code == 2 and "another plugin" in err
    assert call(capsys, *resumed, *plugin)[0] == 0


def test_a_run_folder_brings_no_code(data, tmp_path):
    """Neither a path in config.json nor a file in the folder is run."""
    run = pretrain("tiny", data, tmp_path / "run", settings=SMALL, plugin=EXAMPLE)
    trap = tmp_path / "run" / EXAMPLE.name
    trap.write_text("raise SystemExit('sprung')")
    config = json.loads((run.folder / "config.json").read_text())
    config["plugin"]["file"] = str(trap)
    (run.folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError):
        load(run.folder)


def test_a_plugin_beside_a_built_in_model(data, tmp_path):
    """Its recipe is used; the run needs no code of anybody's to be loaded."""
    (tmp_path / "mine.py").write_text(
        "def wide():\n    from seqloom.recipes import built_in\n    return built_in('gru-tiny') | {'budget': {'steps': 2}}\n"
    )
    pretrain("wide", data, tmp_path / "run", settings=SMALL[:3], plugin=tmp_path / "mine.py")
    assert load(tmp_path / "run").config["plugin"]["file"] == "mine.py"


GOOD = EXAMPLE.read_text()
WRONG = {  # what is written instead, where the line of the mistake is, and what must be said
    "syntax": ("class LayerNormLstm(nn.Module):", "class LayerNormLstm(nn.Module:", "class LayerNormLstm", "SyntaxError"),
    "import": ("from seqloom.recipes import built_in", "import nothing_like_this", "import nothing", "No module named"),
    "exit": ("from torch import nn", "from torch import nn; raise SystemExit(3)", "raise SystemExit", "SystemExit: 3"),
    "class": ("class LayerNormLstm", "class Other", "", "unknown class 'LayerNormLstm' (known: Other)"),
    "option": ("dim, eps=1e-5", "dim, *, size", "def __init__", "missing 1 required keyword-only argument"),
    "state": ("return (h, c), (i", "return (h,), (i", "def step", "given was ((3, 16), (3, 16))"),
    "width": ("return (h, c), (i", "return (h[:, 1:], c), (i", "def step", "must be alike"),
    "rows": ("return (h, c), (i", "return (h[:1], c), (i", "def step", "must be alike"),
    "one": ("return (h, c), (i, f, g, o, c)", "return h", "def step", "must return two tuples"),
    "gates": ("(i, f, g, o, c)", "(i, f)", "def step", "returned the gates ((3, 16), (3, 16)) for the names"),
    "names": ('gates = ("input"', 'gates = 5  # ("input"', "", "LayerNormLstm.gates must be a tuple"),
    "start": ("return zero, zero", "return zero", "def start", "must return a tuple of tensors"),
    "first": ("return zero, zero", "return zero[:, 1:], zero", "def start", "must have h first"),
    "missing": ("def start", "def begin", "", "LayerNormLstm.start is missing"),
    "inputs": ("return self.read_norm(self.read(x))", "return x[:1]", "def inputs", "must return (6, …)"),
    "raises": ("c = f * c + i * g", "raise ValueError('no')", "raise ValueError", "ValueError: no"),
    "arguments": ("def step(self, x, state)", "def step(self, x)", "def step", "takes 2 positional arguments"),
    "module": ("LayerNormLstm(nn.Module)", "LayerNormLstm(dict)", "", ""),
    "recipe": ('return built_in("lstm-tiny") |', "return 5, ", "def tiny", "must return a dict of recipe values"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_are_one_line_with_their_place(mistake, data, tmp_path, capsys):
    old, new, where, words = WRONG[mistake]
    assert old in GOOD
    plugin = tmp_path / "mine.py"
    plugin.write_text(GOOD.replace(old, new))
    code, out, err = call(
        capsys, "pretrain", "tiny", "--plugin", plugin, "--data", data, "--out", tmp_path / "run", *settings()
    )
    (line,) = err.splitlines()
    assert (code, out) == (2, "") and line.startswith(f"seqloom: error: {plugin}") and words in line, line
    if where:
        number = 1 + [where in text for text in plugin.read_text().splitlines()].index(True)
        assert line.startswith(f"seqloom: error: {plugin}:{number}: "), line
    assert not (tmp_path / "run").exists(), "refused before anything is written"


def test_a_cell_that_raises_later(data, tmp_path, capsys):
    plugin = tmp_path / "mine.py"
    plugin.write_text(GOOD.replace("h, c = state", "h, c = state\n        assert len(h) == 3, 'not three'"))
    code, _, err = call(
        capsys, "pretrain", "tiny", "--plugin", plugin, "--data", data, "--out", tmp_path / "run", *settings()
    )
    number = 1 + ["not three" in text for text in plugin.read_text().splitlines()].index(True)
    assert code == 2 and err.splitlines()[-1] == f"seqloom: error: {plugin}:{number}: AssertionError: not three"


def test_without_a_plugin(data, tmp_path, capsys):
    (tmp_path / "a.toml").write_text('[model]\nname = "cell"\ncell = "Mine"\n[budget]\nsteps = 1\n')
    code, _, err = call(capsys, "pretrain", tmp_path / "a.toml", "--data", data, "--out", tmp_path / "run")
    assert code == 2 and "--plugin FILE.py" in err
    code, _, err = call(capsys, "pretrain", "tiny", "--plugin", tmp_path / "none.py", "--data", data, "--out", tmp_path)
    assert code == 5 and "none.py: no such file" in err
    code, _, err = call(capsys, "pretrain", "tinny", "--plugin", EXAMPLE, "--data", data, "--out", tmp_path / "run")
    assert code == 2 and "unknown recipe 'tinny'" in err
    with pytest.raises(UsageError, match=r"'model\.cell' is missing"):
        pretrain("gru-tiny", data, tmp_path / "run", settings=["model={name='cell'}"])


def test_every_plugin_is_a_module_of_its_own(tmp_path):
    for name in ("os", "torch"):
        (tmp_path / f"{name}.py").write_text("X = 1\n")
        before = sys.modules[name]
        assert Plugin(tmp_path / f"{name}.py").module.X == 1 and sys.modules[name] is before

"""score --cells: every unit at every token, the same as one forward pass, and never more than fits."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.analyse import cells
from seqloom.analyse.cells import write_cells
from seqloom.batch import pack
from seqloom.batches.prepare import prepare
from seqloom.cli import run
from seqloom.runs.language_model import Run
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.training.material import write_text

CPU = torch.device("cpu")
SMALL = ["model.dim=12", "budget={steps=2}", "valid.limit=100"]
LINES = ["the cat sees a bird", "", "zé 🙂", "my friend forgets the dog today . " * 9, "a"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> dict[str, Run]:
    folder = tmp_path_factory.mktemp("cells")
    text = write_text(folder / "a.txt", 300)
    prepare([text], folder / "data", tokenizer="char", valid=0.1, keep_leaks=True, keep_duplicates=True)
    names = {
        "lstm": ["model.proj_dim=8"],
        "gru": ["model.connection=residual"],
        "jordan": [],
        "nnlm": [],
        "gpt2": ["model.dim=20"],
    }
    for name, extra in names.items():
        pretrain(f"{name}-tiny", folder / "data", folder / name, settings=[*SMALL, *extra])
    return {name: load(folder / name) for name in names}


def dump(run: Run, lines: list[str], out: Path) -> dict[str, np.ndarray]:
    write_cells(run.learner.backbone, run.tokenizer, lambda: iter(lines), out, CPU)
    with np.load(out, allow_pickle=False) as found:
        return {name: found[name] for name in found.files}


NAMES = {
    "lstm": ["h", "input", "forget", "candidate", "output", "cell"],
    "gru": ["h", "reset", "update", "candidate"],
    "jordan": ["h", "state"],
    "nnlm": ["h"],
}


@pytest.mark.parametrize("at_once", [7, 4096])
@pytest.mark.parametrize("name", NAMES)
def test_equals_a_forward_pass_of_each_line(runs, name, at_once, tmp_path, monkeypatch):
    monkeypatch.setattr(cells, "AT_ONCE", at_once)
    run = runs[name]
    found = dump(run, LINES, tmp_path / "a.npz")
    depth = 1 if name in ("jordan", "nnlm") else 2
    assert set(found) == {f"layer{i}.{g}" for i in range(depth) for g in NAMES[name]} | {"tokens", "offsets", "borders"}
    borders = found["borders"]
    assert len(borders) == len(LINES) + 1 and borders[1] == borders[2], "an empty line has no tokens"
    for k, line in enumerate(LINES):
        own = slice(borders[k], borders[k + 1])
        ids = found["tokens"][own].tolist()
        assert ids == run.tokenizer.encode(line)
        assert found["offsets"][own].tolist() == [list(span) for span in run.tokenizer.encode_with_offsets(line)[1]]
        with torch.no_grad():
            output = run.learner.backbone(pack([[run.tokenizer.end_id, *ids]]), layers=True, maps=True)
        for i, names in enumerate(run.learner.backbone.gates):
            for g, gate in enumerate(names):
                np.testing.assert_allclose(found[f"layer{i}.{gate}"][own], output.maps[i][1:, g], atol=1e-6)
            if "h" not in names:
                np.testing.assert_allclose(found[f"layer{i}.h"][own], output.layers[i + 1][1:], atol=1e-6)
    assert not list(tmp_path.glob("*.tmp"))


def test_characters_of_each_token(runs, tmp_path):
    found = dump(runs["lstm"], ["the cat"], tmp_path / "a.npz")
    assert "".join("the cat"[a:b] for a, b in found["offsets"]) == "the cat"


def call(capsys, *arguments: object) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_the_command(runs, tmp_path, capsys, monkeypatch):
    text, out = tmp_path / "a.txt", tmp_path / "cells.npz"
    text.write_text("\n".join(LINES) + "\n", encoding="utf-8")
    code, scores, err = call(capsys, "score", runs["lstm"].folder, text, "--cells", out)
    assert code == 0 and len(scores.splitlines()) == len(LINES) and "cells.npz: gates and states at" in err
    assert len(np.load(out)["borders"]) == len(LINES) + 1
    assert call(capsys, "score", runs["lstm"].folder, text, "--cells", out)[0] == 2  # nothing is overwritten
    code, _, err = call(capsys, "score", runs["gpt2"].folder, text, "--cells", tmp_path / "b.npz")
    assert code == 2 and "recurrent models" in err
    code, _, err = call(capsys, "score", runs["lstm"].folder, "--cells", tmp_path / "b.npz")
    assert code == 2 and "give a file" in err
    code, _, err = call(capsys, "score", runs["lstm"].folder, text, "--cells", tmp_path / "none" / "b.npz")
    assert code == 5 and "no such file or folder" in err
    assert not (tmp_path / "b.npz").exists()


def test_larger_than_the_disk(runs, tmp_path, capsys, monkeypatch):
    text = tmp_path / "a.txt"
    text.write_text("the cat\n")
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    monkeypatch.setattr(cells, "rows", None)  # it must be refused before anything is computed
    code, out, err = call(capsys, "score", runs["lstm"].folder, text, "--cells", tmp_path / "b.npz")
    (line,) = err.splitlines()
    # 7 tokens: in each of 2 layers h of 8 and five gates of 12 numbers; the largest array once more
    needed = 7 * 2 * (8 + 5 * 12) * 4 + 7 * 8 + 7 * 16 + 2 * 8 + 7 * 12 * 4
    assert code == 5 and out == "" and f"take {needed:,} bytes" in line and "has 1,000 free" in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt"]


def test_a_text_that_changes_meanwhile(runs, tmp_path):
    versions = iter([["the cat"], ["the cats"]])
    with pytest.raises(cells.DataError, match="changed while it was read"):
        write_cells(
            runs["gru"].learner.backbone, runs["gru"].tokenizer, lambda: iter(next(versions)), tmp_path / "a.npz", CPU
        )
    assert not list(tmp_path.iterdir())

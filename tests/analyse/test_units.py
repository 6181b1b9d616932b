"""Units: planted ones are found and hold on the other half, those found by chance do not; missing ones are named."""

import json

import numpy as np
import pytest
import torch

from seqloom.analyse.units import (
    PREDICATES,
    Units,
    correlations,
    pieces_of,
    read_units,
    saturation,
    search,
    unit_values,
)
from seqloom.analyse.units_page import Cells
from seqloom.batches.prepare import prepare
from seqloom.cli import run
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Encoder, Reading
from seqloom.runs.load import load
from seqloom.runs.training import pretrain, train
from tests.contract import properties as p
from tests.training.material import prepared, write_pairs, write_text

TEXT = (
    'He said "go on" and left.\n  Then (so they say) 42 men came, "all of them".\nNobody knew why 7 Ravens sang. ' * 12
)
SPANS = np.stack((np.arange(len(TEXT)), np.arange(len(TEXT)) + 1), 1)


def noise(units=30, seed=0):
    return np.random.default_rng(seed).normal(size=(len(TEXT), units))


def test_predicates_are_what_they_say():
    text = 'a "b" 1\n  C(d).'
    values = {name: predicate(text) for name, predicate in PREDICATES.items()}
    assert values["inside quotes"].tolist()[:8] == [0, 0, 1, 1, 0, 0, 0, 0]
    assert values["place in the line"].tolist() == [1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7]
    assert values["indentation"].tolist() == [0] * 8 + [2] * 7
    assert (
        values["inside brackets"][11:14].tolist() == [1, 1, 0]
        and values["a digit"].sum() == values["a capital"].sum() == 1
    )
    assert all(len(each) == len(text) for each in values.values())


@pytest.mark.parametrize("name", PREDICATES)
def test_a_planted_unit_is_found_and_holds(name):
    values = noise()
    target = PREDICATES[name](TEXT)
    values[:, 7] = -target / max(target.std(), 1e-9) + 0.3 * values[:, 7]
    found, _ = search({"layer0.c": values}, TEXT, SPANS)
    (mine,) = [each for each in found if each.predicate == name]
    assert mine.unit == "layer0.c.7" and mine.first < -0.8 and mine.second < -0.8


def test_what_is_found_by_chance_falls_on_the_other_half():
    """The planted bug of choosing and checking on the same half would keep these correlations."""
    short, spans = TEXT[:120], SPANS[:120]
    found, least = search({"layer0.h": noise(3000)[:120]}, short, spans)
    assert found and np.mean([abs(each.first) for each in found]) > 0.35
    assert np.mean([abs(each.second) for each in found]) < 0.2
    assert len(least) == 5 and all(best < 0.35 for _, best in least)


def test_correlations_equal_numpy():
    values = noise(4)
    values[:, 3] = 1.0  # it never changes
    target = PREDICATES["place in the line"](TEXT)
    expected = [np.corrcoef(values[:, i], target)[0, 1] for i in range(3)]
    np.testing.assert_allclose(correlations(values, target), [*expected, 0.0], atol=1e-12)


def test_pieces_keep_blanks_and_gates_saturate():
    assert pieces_of("ab c\nd", np.array([[0, 2], [3, 4], [5, 6]])) == ["ab ", "c\n", "d"]
    closed, opened = saturation(np.array([[0.05, 0.95], [0.5, 0.95]]))
    assert closed.tolist() == [0.5, 0] and opened.tolist() == [0, 1]


def test_units_that_are_not_there():
    units = Units(["a"], {"layer0.c": np.zeros((1, 4))}, {}, [], [])
    assert unit_values(units, "layer0.c.3").shape == (1,)
    for wrong in ("layer0.c.4", "layer1.c.0", "layer0.c.x", "17"):
        with pytest.raises(UsageError):
            Cells("run", units, wrong)


def test_models_without_states_are_refused():
    reading = Reading(Encoder(p.build("gpt2"), [0], [], torch.device("cpu")), None)
    with pytest.raises(UsageError, match="for recurrent models"):
        read_units(reading, TEXT)


@pytest.mark.parametrize("name", ["bahdanau", "seq2seq", "convs2s"])
def test_units_of_a_translators_encoder(name, tmp_path):
    """Every line is a source of its own, and a unit has the value that it has when the line is translated."""
    pairs = write_pairs(tmp_path, 30)
    train(f"{name}-tiny", "translate", pairs, tmp_path / name, settings=["model.dim=12", "budget={steps=1}"])
    loaded, lines = load(tmp_path / name), ["", *pairs[0].read_text().splitlines()[:6], "", "the cat sees a bird ."]
    cells = loaded.cells("", texts=lines)
    units = cells.units
    assert "".join(units.pieces).replace("\n", "") == "".join(lines)
    if name == "bahdanau":
        expected = np.concatenate(loaded.reading.encode([line for line in lines if line], "1", "none", None))
        np.testing.assert_allclose(units.values["layer0.h"], expected, atol=1e-6)
        assert {"layer0.forward.reset", "layer0.backward.update"} <= set(units.gates) and not units.mirrored
    elif name == "convs2s":
        expected = np.concatenate(loaded.reading.encode([line for line in lines if line], "1", "none", None))
        np.testing.assert_allclose(units.values["layer0.h"], expected, atol=1e-6)
        assert not units.gates and not units.mirrored
    else:  # its LSTMs read from the end, and hand on σ(output) tanh(cell)
        expected = np.concatenate(loaded.reading.encode([line for line in lines if line], "2", "none", None))
        np.testing.assert_allclose(units.gates["layer1.output"] * units.values["layer1.cell"], expected, atol=1e-6)
        assert units.mirrored and "read from its end" in cells.html()
    alone = loaded.cells(lines[-1] + " " + lines[-1] + " " + lines[-1] + " " + lines[-1]).units
    assert len(alone.pieces) < len(units.pieces)
    with pytest.raises(DataError, match="twenty"):
        loaded.cells("\n")


def test_both_directions_have_cells_and_gates(tmp_path):
    data = prepared(tmp_path / "data", 60)
    settings = ["model.dim=16", "model.proj_dim=8", "budget={steps=1}", "valid.limit=100"]
    pretrain("elmo-tiny", data, tmp_path / "elmo", settings=settings)
    units = load(tmp_path / "elmo").cells("the old king sees a bird near the sea . " * 4).units
    assert list(units.values) == [f"layer{i}.{way}.cell" for i in range(2) for way in ("forward", "backward")]
    assert units.values["layer0.forward.cell"].shape[1] == 16 and "layer1.backward.forget" in units.gates


def test_the_command(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    text = write_text(tmp_path / "a.txt", 60)
    prepare([text], tmp_path / "data", tokenizer="char", valid=0.1, keep_leaks=True, keep_duplicates=True)
    pretrain(
        "lstm-tiny",
        tmp_path / "data",
        tmp_path / "lstm",
        settings=["model.dim=12", "budget={steps=2}", "valid.limit=100"],
    )
    capsys.readouterr()
    assert (
        run(["inspect", "lstm", "--text", "a.txt", "--show", "cells", "--unit", "layer1.cell.3", "--out", "c.json"])
        == 0
    )
    said = capsys.readouterr().out
    assert "place in the word: layer" in said and "inside quotes" not in said, "no quotes in this text"
    record = json.loads((tmp_path / "c.json").read_text())
    assert len(record["values"]) == len(record["tokens"]) and set(record["gates"]) >= {"layer0.input", "layer1.output"}
    assert "".join(record["tokens"][:40]) == text.read_text()[:40]
    for options, code, words in (
        (["lstm", "--text", "a.txt", "--unit", "layer1.cell.12"], 2, "units 0 to 11"),
        (["lstm", "--text", "short"], 3, "twenty at least"),
    ):  # fmt: skip
        assert run(["inspect", *options, "--show", "cells", "--out", "bad.html"]) == code
        told = capsys.readouterr().err
        assert words in told and "bug" not in told and not (tmp_path / "bad.html").exists()

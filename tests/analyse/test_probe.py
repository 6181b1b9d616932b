"""Probes: a planted code is found and its control is not, a useless one is not believed, every form of file is read."""

import json
import math

import numpy as np
import pytest
import torch

import seqloom
from seqloom.analyse import probe as probes
from seqloom.analyse.probe import Data, control_labels, layer_weights, number_labels, online_code, probe_layer
from seqloom.analyse.probe_items import read_items
from seqloom.analyse.probe_page import ProbedRun, Probing
from seqloom.cli import run
from seqloom.errors import DataError, UsageError
from seqloom.runs.load import load
from seqloom.runs.probing import read_states
from seqloom.runs.training import pretrain
from tests.training.material import prepared

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def few_steps(monkeypatch):
    monkeypatch.setattr(probes, "STEPS", 150)


FORMS = [f"word{i}" for i in range(400)]


def planted(n, seed, code=True):
    """Three layers of noise; the second has the label, a linear code of two dimensions, whatever the word form is."""
    random = np.random.default_rng(seed)
    labels = random.integers(0, 3, n)
    states = random.normal(size=(n, 3, 12)).astype(np.float32)
    if code:
        states[:, 1, :2] = np.array([[2, 0], [-2, 0], [0, 3]])[labels] + 0.3 * random.normal(size=(n, 2))
    forms = [FORMS[i] for i in random.integers(0, 400, n)]
    return Data(states, labels, control_labels(forms, np.full(3, 1 / 3), 0), np.arange(n) // 4)


def scores(train, test, layer, **options):
    asked = {"kind": "linear", "seeds": 1, "control": True, "code": True, "device": CPU} | options
    return probe_layer(train, test, layer, 3, **asked)


@pytest.mark.parametrize("kind", ["linear", "mlp"])
def test_a_planted_code_is_found_in_its_layer_and_its_control_is_not(kind):
    train, test = planted(1500, 0), planted(600, 1)
    found = scores(train, test, 1, kind=kind)
    assert found.right.mean() > 0.99 and abs(found.control.mean() - 1 / 3) < 0.08
    assert found.uniform_bits / found.bits > 1.8
    noise = scores(train, test, 0, kind=kind, control=False)
    assert abs(noise.right.mean() - 1 / 3) < 0.08 and noise.uniform_bits / noise.bits < 1.05


def test_a_probe_that_sees_the_test_labels_is_noticed():
    """The planted bug: examples of noise that are tested are those of training."""
    train = planted(60, 0, code=False)
    assert scores(train, train, 0, kind="mlp", code=False).right.mean() > 0.9


def test_the_mixing_probe_takes_the_planted_layer():
    weights = layer_weights(planted(1500, 0), 3, CPU)
    assert weights.argmax() == 1 and abs(weights.sum() - 1) < 1e-6
    found = ProbedRun("r", "t", [], np.zeros(0), 0.3, np.array([0, 1.0, 0]), 1, 3)
    assert found.centre == 1.0


def test_control_labels_follow_the_form_alone():
    labels = control_labels(FORMS * 2, np.array([0.7, 0.3]), 0)
    assert (labels[:400] == labels[400:]).all() and abs((labels == 0).mean() - 0.7) < 0.08
    assert (control_labels(FORMS, np.array([0.7, 0.3]), 1) != labels[:400]).any()


def test_the_code_is_never_longer_than_none():
    states, labels = torch.zeros(200, 4), torch.arange(200) % 3
    assert online_code(states, labels, 3, "linear") <= 200 * math.log2(3) + 1e-6


def test_labels_of_one_kind_are_refused():
    with pytest.raises(DataError):
        number_labels(["a", "a"], ["a"])
    names, train, test = number_labels(["b", "a"], ["a", "z"])
    assert names == ["a", "b"] and train.tolist() == [1, 0] and test.tolist() == [0, -1]


# ---- files


def write(path, *lines):
    path.write_text("\n".join(lines) + "\n")
    return path


def test_every_form_of_file_is_read(tmp_path):
    words = read_items(write(tmp_path / "a.conll", "The D", "cat N", "", "It P"), 10)
    assert [(each.label, each.form, each.text) for each in words.items] == [
        ("D", "the", 0),
        ("N", "cat", 0),
        ("P", "it", 1),
    ]
    assert [words.texts[0][a:b] for each in words.items[:2] for a, b in each.spans] == ["The", "cat"]
    whole = read_items(write(tmp_path / "b.jsonl", '{"text": "so good", "label": "yes"}'), 10)
    assert whole.items[0].spans == ((0, 7),) and whole.items[0].form == "good"
    row = '{"text": "he saw her", "spans": [[0, 2], [7, 10]], "label": "other"}'
    pair = read_items(write(tmp_path / "c.jsonl", row), 10)
    assert pair.items[0].spans == ((0, 2), (7, 10)) and pair.items[0].form == "he her"
    table = write(
        tmp_path / "d.tsv",
        "index\tcorrect\twrong\tn_attractors\tsentence",
        "3\tare\tis\t0\tthe old keys are here <eos>",
        "2\tsees\tsee\t0\tthe dog sees it <eos>",
    )
    number = read_items(table, 10)
    assert [(each.label, each.form) for each in number.items] == [("plural", "keys"), ("singular", "dog")]
    assert len(read_items(tmp_path / "a.conll", 2).items) == 2, "whole texts up to the limit"


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ('{"text": "short", "span": [0, 9], "label": "x"}', "is not in the text"),
        ('{"text": "short", "span": [3, 3], "label": "x"}', "is not in the text"),
        ('{"text": "short", "span": [3], "label": "x"}', "no row of"),
        ('{"text": 3, "span": [0, 1], "label": "x"}', "a text and one span"),
        ("{broken", "no JSON object"),
    ],
)
def test_labels_that_do_not_align_are_named(line, words, tmp_path):
    with pytest.raises(DataError, match=words):
        read_items(write(tmp_path / "a.jsonl", line), 10)


# ---- runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("probed")
    data = prepared(place / "data", 300)
    small = ["budget={steps=1}", "valid.limit=100"]
    pretrain("gpt2-tiny", data, place / "gpt2", settings=["model.dim=20", *small])
    pretrain("awd-lstm-tiny", data, place / "awd", settings=["model.dim=24", "model.embedding_dim=16", *small])
    tagged = [
        f"the D\n{noun} N\n{verb} V\na D\n{noun} N\n" for noun in ("cat", "dog", "bird") for verb in ("sees", "likes")
    ]
    (place / "pos.train.conll").write_text("\n".join(tagged * 6))
    (place / "pos.test.conll").write_text("\n".join(tagged))
    return place


def test_states_are_those_of_encode_by_layer(folder):
    """Layers of equal widths in one pass, of others one by one, the narrow ones with zeros behind."""
    items = read_items(folder / "pos.test.conll", 10)
    for name, depth in (("gpt2", 3), ("awd", 3)):
        loaded = load(folder / name)
        found = read_states(loaded, name, items, "all")
        for layer in range(depth + 1):
            expected = np.concatenate(list(loaded.encode(items.texts, layers=layer, pool="none")))
            width = expected.shape[1]
            np.testing.assert_allclose(found[:, layer, :width], expected, atol=1e-6)
            assert not found[:, layer, width:].any()
        one = read_states(loaded, name, items, "1")
        np.testing.assert_allclose(one[:, 0, :], found[:, 1, : one.shape[2]], atol=1e-6)


def test_the_command(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(probes, "STEPS", 30)
    files = ["--train", "pos.train.conll", "--test", "pos.test.conll"]
    assert run(["probe", "gpt2", "awd", *files, "--control", "--code", "--out", "found", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert len(record["layers"]) == 8 and {each["run"] for each in record["layers"]} == {"gpt2", "awd"}
    assert record["layers"][0]["accuracy"] > record["layers"][0]["most frequent label"]
    made = {path.name for path in (folder / "found").iterdir()}
    assert {"probes.html", "probes.csv", "probes.json", "pos-accuracy.svg", "pos-weights-gpt2.svg"} <= made
    found = seqloom.probe(load("gpt2"), "pos.train.conll", "pos.test.conll", layers="1", seeds=2)
    assert isinstance(found, Probing) and "pos gpt2" in repr(found) and len(found.found[0].layers) == 1
    assert found.found[0].layers[0].right.shape == (2, 30)


BAD = {
    "a layer that is not there": (["--layers", "9"], 2, "layers 1 to 3"),
    "another probe": (["--probe", "deep"], 2, "linear or mlp"),
    "a folder that is there": (["--out", "data"], 2, "exists already"),
    "a test file less": (["--train", "pos.train.conll"], 2, "one of each for every task"),
    "no such file": (["--train", "no.conll", "--test", "no.conll"], 3, "no.conll"),
    "one label": (["--train", "one.conll", "--test", "one.conll"], 3, "nothing to probe for"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, folder, monkeypatch, capsys):
    options, code, words = BAD[case]
    monkeypatch.chdir(folder)
    (folder / "one.conll").write_text("a X\nb X\n")
    call = ["probe", "gpt2", "--train", "pos.train.conll", "--test", "pos.test.conll", "--out", "bad", *options]
    if case == "one label":
        call = ["probe", "gpt2", *options, "--out", "bad"]
    assert run(call) == code
    said = capsys.readouterr().err
    assert words in said and said.count("seqloom: error:") == 1 and "bug" not in said and not (folder / "bad").exists()


def test_two_spans_and_one_do_not_mix(folder):
    one, two = (
        write(folder / name, *(json.dumps({"text": "the cat", key: value, "label": label}) for label in "ab"))
        for name, key, value in (("one.jsonl", "span", [0, 3]), ("two.jsonl", "spans", [[0, 3], [4, 7]]))
    )
    with pytest.raises(UsageError):
        seqloom.probe(folder / "gpt2", one, two)
    found = seqloom.probe(folder / "gpt2", two, two, layers="0")
    assert found.found[0].layers[0].right.shape == (1, 2)

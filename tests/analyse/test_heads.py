"""Heads: gates at 1 change no bit, their gradients equal differences, planted heads are found, removed ones are gone."""

import json

import numpy as np
import pytest
import torch

import seqloom
from seqloom.analyse.heads import (
    HeadReport,
    Parts,
    best_heads,
    closed,
    edited,
    importance,
    keep_heads,
    loss_of,
    parts_of,
    study_heads,
)  # fmt: skip
from seqloom.analyse.heads_page import Heads
from seqloom.batch import Edit, Excerpt, pack
from seqloom.blocks import attention
from seqloom.blocks.stack import Stack, count_heads
from seqloom.blocks.two_streams import Queries
from seqloom.cli import run
from seqloom.errors import UsageError
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.contract import encoders as e
from tests.contract import properties as p
from tests.tasks.labelled import examples, write
from tests.training.material import prepared, sentences, write_pairs

CPU = torch.device("cpu")


def model_of(name):
    return e.build(name) if name in e.SMALL else p.build(name)


def parts(name="gpt2", **changes):
    learner = p.learner_of(p.build(name, **changes)).eval()
    texts = p.sequences(0, (9, 12, 7))
    batches = []
    for some in (texts[:2], texts[2:]):
        batch = pack([[0, *text[:-1]] for text in some])
        batches.append(Excerpt(batch, torch.tensor([token for text in some for token in text])))
    return Parts(learner, parts_of(learner), batches, CPU, "bits")


@pytest.mark.parametrize("name", ["gpt", "gpt2-window", "transformer-xl", "bert", "albert"])
def test_gates_at_one_change_no_bit(name):
    model, batch = model_of(name), pack(p.sequences(1, (9, 5)))
    gates = {i: torch.ones(count, dtype=torch.float64) for i, count in enumerate(count_heads(model))}
    with torch.no_grad():
        plain, open_ = (
            model(batch).hidden,
            model(batch, edit=Edit(gates, torch.ones(len(gates), dtype=torch.float64))).hidden,
        )
    assert torch.equal(plain, open_)


def check_importance(name):
    """∂L/∂ξ of each text by central differences, in float64: of the gates on heads, and of those on layers."""
    found = parts(name)
    gradients = importance(found)
    heads, depth = found.heads(), found.depths()["model"]
    expected = {place: np.zeros(count) for place, count in heads.items()}
    of_layers = np.zeros(depth)
    with torch.no_grad():
        for example in found.examples:
            for n in range(example.batch.num_sequences):
                begin, end = example.batch.offsets[n : n + 2].tolist()
                alone = Excerpt(pack([example.batch.ids[begin:end].tolist()]), example.targets[begin:end])

                def slope(count, number, edit, alone=alone):
                    ends = []
                    for step in (1e-5, -1e-5):
                        gate = torch.ones(count, dtype=torch.float64)
                        gate[number] += step
                        with edited(found.modules, lambda *_, gate=gate: edit(gate)):
                            ends.append(float(found.learner(alone).total))
                    return abs(ends[0] - ends[1]) / 2e-5 / 3 / np.log(2)

                for (part, layer), count in heads.items():
                    for head in range(count):
                        expected[part, layer][head] += slope(count, head, lambda gate, i=layer: Edit({i: gate}))
                for layer in range(depth):
                    of_layers[layer] += slope(depth, layer, lambda gate: Edit(layers=gate))
    for place in heads:
        np.testing.assert_allclose(gradients.heads[place], expected[place], rtol=1e-5)
    np.testing.assert_allclose(list(gradients.layers.values()), of_layers, rtol=1e-5)


@pytest.mark.parametrize("name", ["gpt2", "transformer-xl"])
def test_importance_equals_differences(name):
    check_importance(name)


@pytest.mark.parametrize("wrong", [lambda layers: layers.flip(0), lambda layers: layers * layers])
def test_a_wrong_gate_on_layers_is_noticed(wrong, monkeypatch):
    """The planted bugs: gates of single tokens are those of another layer, or count twice."""
    forward = Stack.forward

    def planted(self, *given):
        *rest, edit = given
        if edit is not None and edit.layers is not None and edit.layers.dim() == 2:
            edit = edit._replace(layers=wrong(edit.layers))
        return forward(self, *rest, edit)

    monkeypatch.setattr(Stack, "forward", planted)
    with pytest.raises(AssertionError):
        check_importance("gpt2")


@pytest.mark.parametrize("name", ["gpt", "gpt2-window", "transformer-xl", "bert", "albert", "reformer"])
def test_gates_of_tokens_are_as_those_of_layers(name):
    model, batch = model_of(name), pack(p.sequences(1, (9, 5)))
    depth = len(count_heads(model))
    gates = torch.linspace(0.2, 0.8, depth, dtype=torch.float64)
    with torch.no_grad():
        one, each, plain = (
            model(batch, edit=None if layers is None else Edit(layers=layers)).hidden
            for layers in (gates, gates[:, None].expand(-1, len(batch.ids)), None)
        )
        torch.testing.assert_close(each, one)
        assert not torch.allclose(one, plain)
        open_ = torch.ones(depth, len(batch.ids), dtype=torch.float64)
        assert torch.equal(model(batch, edit=Edit(layers=open_)).hidden, plain)


def test_gates_of_tokens_reach_the_queries_of_xlnet():
    """With the gates of one head, or of all layers, at every token, both streams are what they are with one gate for all."""
    model, batch = e.build("xlnet"), pack(p.sequences(1, (9, 5)))
    order = torch.arange(9).repeat(2)[: len(batch.ids)]
    where = torch.tensor([3, 6, 10])
    queries = Queries(where, batch.owner[where], torch.tensor([0, 2, 3]), 2)
    gate = torch.tensor([0.3] + [1.0] * (count_heads(model)[0] - 1), dtype=torch.float64)
    found = [
        model(batch._replace(order=order), queries=queries, edit=Edit({0: gates})).query
        for gates in (gate, gate.expand(len(batch.ids), -1))
    ]
    torch.testing.assert_close(*found)
    assert not torch.allclose(found[0], model(batch._replace(order=order), queries=queries).query)
    gates = torch.tensor([0.3, 0.6], dtype=torch.float64)
    layers = [
        model(batch._replace(order=order), queries=queries, edit=Edit(layers=each)).query
        for each in (gates, gates[:, None].expand(-1, len(batch.ids)))
    ]
    torch.testing.assert_close(*layers)


def test_a_gate_on_the_wrong_head_is_noticed(monkeypatch):
    """The planted bug: gates are applied to the head beside."""
    forward = attention.SelfAttention.forward

    def shifted(self, x, batch, state=None, context=None, maps=False, heads=None):
        return forward(self, x, batch, state, context, maps, None if heads is None else heads.roll(1, -1))

    found = parts()
    order = np.argsort(importance(found).heads["model", 0])
    monkeypatch.setattr(attention.SelfAttention, "forward", shifted)
    assert order.tolist() != np.argsort(importance(found).heads["model", 0]).tolist()


def test_all_heads_off_leave_the_residual_alone():
    model, batch = p.build("gpt2"), pack(p.sequences(1, (9,)))
    with torch.no_grad():
        output = model(batch, layers=True, edit=Edit({0: torch.zeros(3, dtype=torch.float64)}))
        layer, x = model.stack.layers[0], model.embedding(batch)
        x = x + layer.mixer.out.bias
        torch.testing.assert_close(output.layers[1], x + layer.ffn(layer.ffn_norm(x)))


def test_the_study_finds_a_head_that_does_nothing():
    found = parts()
    with torch.no_grad():  # head 2 of the first layer hands nothing on
        found.learner.backbone.stack.layers[0].mixer.out.weight[:, 8:16] = 0
    report = study_heads(found)
    assert abs(report.ablation["model", 0][1]) < 1e-12 and report.importance["model", 0][1] < 1e-12
    assert report.layer_importance == importance(found).layers and -1 <= report.layer_rank_correlation <= 1
    assert report.ablation["model", 0][0] != 0 and len(report.layers) == 2
    assert report.pruned[0] == (1.0, report.loss) and report.pruned[-1][0] == 0.0 and len(report.at_random) == 3
    assert report.pruned[1][1] == pytest.approx(report.loss, abs=1e-9), "the one that does nothing goes first"
    assert -1 <= report.rank_correlation <= 1
    everything = [(place, head) for place, count in found.heads().items() for head in range(count)]
    assert report.pruned[-1][1] == loss_of(found, closed(found, everything))
    cheapest = min(report.layers, key=lambda place: report.layers[place])
    assert report.layers_pruned[0] == (1.0, report.loss) and report.layers_pruned[-1][0] == 0.0
    assert report.layers_pruned[1] == (0.5, pytest.approx(report.loss + report.layers[cheapest]))


def test_removed_heads_are_as_gated_ones_and_cost_nothing():
    for name in ("gpt2", "bert"):
        model, batch = model_of(name), pack(p.sequences(1, (9, 5)))
        gate = {i: torch.tensor([1.0, 0, 1.0], dtype=torch.float64) for i in range(2)}
        with torch.no_grad():
            expected = model(batch, edit=Edit(gate)).hidden
            before = sum(each.numel() for each in model.parameters())
            keep_heads(model, {0: [0, 2], 1: [2, 0]})
            torch.testing.assert_close(model(batch).hidden, expected)
        assert before - sum(each.numel() for each in model.parameters()) == 2 * (4 * 24 * 8 + 3 * 8)
        assert count_heads(model) == (2, 2)
    with pytest.raises(UsageError):
        keep_heads(model_of("albert"), {0: [0]})
    with pytest.raises(UsageError):
        keep_heads(p.build("gpt2"), {0: []})


def test_the_best_heads_of_each_layer():
    values = {("model", 0): np.array([0.1, 0.9, 0.5]), ("model", 1): np.array([3.0, 1.0, 2.0])}
    assert best_heads(values, 2) == {0: [1, 2], 1: [0, 2]}


def test_the_rank_correlation_is_of_all_heads():
    values = {("model", 0): np.array([0.1, 0.9, 0.5]), ("model", 1): np.array([3.0, 1.0, 2.0])}
    turned = {place: -each for place, each in values.items()}
    layers = {("model", 0): 0.1, ("model", 1): 0.2}
    report = HeadReport("", 0, values, values, layers, [], [], [], {place: -x for place, x in layers.items()})
    assert report.layer_rank_correlation == pytest.approx(-1)
    assert HeadReport("", 0, values, values, {}, [], [], [], {}).rank_correlation == pytest.approx(1)
    assert HeadReport("", 0, values, turned, {}, [], [], [], {}).rank_correlation == pytest.approx(-1)


def test_the_legend_is_negative_where_a_number_is():
    page = Heads("gpt2", "texts", HeadReport("bits", 0, {}, {}, {}, [], [], [], {}))
    values = np.array([0.1, 0.9, 0.5])
    assert ">-0.9" in page.map_of({("model", 0): -values}, "growth").replace("\N{MINUS SIGN}", "-")
    drawn = page.map_of({("model", 0): values}, "importance")
    assert ">0.900<" in drawn and ">-" not in drawn and ">+" not in drawn


# ---- runs


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("heads")
    data = prepared(place / "data", 300)
    small = ["model.dim=24", "model.num_heads=3", "valid.limit=100"]
    pretrain("gpt2-tiny", data, place / "gpt2", settings=[*small, "budget={steps=2}"])
    (place / "texts.txt").write_text("\n".join(sentences(12)) + "\n")
    return place


@pytest.fixture(scope="module")
def others(folder):
    place, data = folder, folder / "data"
    small = ["model.dim=24", "model.num_heads=3", "valid.limit=100"]
    pretrain("bert-tiny", data, place / "bert", settings=[*small, "budget={steps=2}"])
    files = [place / f"{name}.jsonl" for name in ("train", "valid")]
    for seed, file in enumerate(files):
        write(file, "classify", examples("classify", 30, seed))
    seqloom.finetune(place / "gpt2", "classify", files[0], files[1], place / "classes", settings=["budget={epochs=1}"])
    pairs = write_pairs(place, 30)
    settings = ["model.dim=16", "model.num_heads=2", "budget={steps=1}"]
    seqloom.train(
        "transformer-tiny", "translate", pairs, place / "mt", valid=pairs, tokenizer="word", settings=settings
    )
    rows = zip(*(path.read_text().splitlines() for path in pairs), strict=True)
    (place / "pairs.tsv").write_text("\n".join("\t".join(row) for row in rows) + "\n")
    return place


def measured(kind, text, folder):
    out = folder / f"{kind}.json"
    assert run(["inspect", str(folder / kind), "--text", str(folder / text), "--show", "heads", "--out", str(out)]) == 0
    return json.loads(out.read_text())


def test_the_command(folder, capsys):
    record = measured("gpt2", "texts.txt", folder)
    assert "rank correlation" in capsys.readouterr().out and len(record["heads"]) == 9
    assert [set(each) for each in record["layers"]] == [{"part", "layer", "growth", "importance"}] * 3
    assert all(each["importance"] > 0 for each in record["layers"]) and -1 <= record["layer_rank_correlation"] <= 1
    scored = load(folder / "gpt2").score((folder / "texts.txt").read_text().splitlines())
    bits = -sum(sum(each.log_probs) + each.end for each in scored) / sum(len(each.log_probs) + 1 for each in scored)
    assert record["loss"] == pytest.approx(bits / np.log(2), rel=1e-4), "the loss is that of `score`"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "text", "expected"),
    [
        ("bert", "texts.txt", {"model"}),
        ("classes", "valid.jsonl", {"model"}),
        ("mt", "pairs.tsv", {"encoder", "decoder"}),
    ],
)
def test_the_command_for_every_kind_of_run(kind, text, expected, others):
    record = measured(kind, text, others)
    assert {each["part"] for each in record["heads"]} == expected and record["loss"] > 0


def test_a_pruned_run_is_a_run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert run(["prune", "gpt2", "--keep", "2", "--text", "texts.txt", "--out", "fewer", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    smaller = load("fewer")
    assert smaller.learner.size() == found["size_after"] < found["size_before"]
    assert count_heads(smaller.learner.backbone) == (2,) * len(found["kept"])
    record = json.loads((folder / "fewer" / "config.json").read_text())["recipe"]["model"]
    assert record["num_heads"] == 2 and record["head_dim"] == 8
    assert smaller.generate("the", max_new=3)[0].text.startswith("the")
    assert run(["inspect", "fewer", "--text", "texts.txt", "--show", "heads", "--out", "fewer.json"]) == 0
    assert json.loads((folder / "fewer.json").read_text())["loss"] == pytest.approx(found["loss_after"], rel=1e-6)
    for kind, keep, words in (("gpt2", "3", "keep 1 to 2"), ("gpt2", "0", "keep 1 to 2")):
        assert run(["prune", kind, "--keep", keep, "--text", "texts.txt", "--out", "bad"]) == 2
        assert words in capsys.readouterr().err and not (folder / "bad" / "config.json").exists()


def test_a_run_with_fewer_layers_is_a_run(folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    call = ["prune", "gpt2", "--text", "texts.txt"]
    assert run([*call, "--keep-layers", "2", "--out", "flat", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    whole = load("gpt2").heads(texts=sentences(12)).record()
    dearest = sorted(whole["layers"], key=lambda each: -each["growth"])[:2]
    assert found["kept"] == sorted(each["layer"] - 1 for each in dearest)
    smaller = load("flat")
    assert len(smaller.learner.backbone.stack.layers) == 2
    assert smaller.learner.size() == found["size_after"] < found["size_before"]
    record = smaller.heads(texts=sentences(12)).record()
    assert record["loss"] == pytest.approx(found["loss_after"], rel=1e-6)
    assert found["loss_after"] == pytest.approx(whole["layers_pruned"][1][1], rel=1e-6), "as gates have it"
    for options, words in (
        (["--keep-layers", "3"], "keep 1 to 2"), (["--keep-layers", "0"], "keep 1 to 2"), ([], "name one"),
        (["--keep", "1", "--keep-layers", "1"], "name one"),
    ):  # fmt: skip
        assert run([*call, *options, "--out", "bad"]) == 2
        assert words in capsys.readouterr().err and not (folder / "bad").exists()

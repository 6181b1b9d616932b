"""Attention: asked rows equal whole maps, those equal the eager ones of transformers, statistics find planted heads."""

import json

import numpy as np
import pytest
import torch

from seqloom.analyse.attention import MEASURES, HeadMaps, choose, head_statistics, measure_heads, self_attention
from seqloom.analyse.attention_page import Attention, Shown
from seqloom.analyse.read import ReadText, number_of, visible
from seqloom.batch import MapRows, pack
from seqloom.batches.pairs import PairFrame
from seqloom.blocks import kernels
from seqloom.blocks.grid import from_grid
from seqloom.blocks.stack import count_heads
from seqloom.cli import run
from seqloom.convert.huggingface import import_folder
from seqloom.errors import DataError, UsageError
from seqloom.runs.load import load
from tests.contract import encoders as e
from tests.contract import properties as p
from tests.convert.material import save

TEXTS = [[3, 5, 7, 9, 11], [2, 4, 6], list(range(20, 33))]
ROWS = [0, 3, 6, 8, 13, 20]


def model_of(name):
    return e.build(name) if name in e.SMALL else p.build(name)


@pytest.mark.parametrize(
    "name", ["gpt", "gpt2-window", "transformer-xl", "transformer-xl-pre", "bert", "albert", "xlnet"]
)
def test_asked_rows_equal_whole_maps(name):
    model, batch = model_of(name), pack(TEXTS)
    with torch.no_grad():
        whole, asked = model(batch, maps=True), model(batch, maps=MapRows(torch.tensor(ROWS)))
    assert torch.allclose(whole.hidden, asked.hidden, atol=1e-12)
    for full, rows in zip(whole.maps, asked.maps, strict=True):
        torch.testing.assert_close(from_grid(full.transpose(1, 2), batch)[ROWS], rows, atol=1e-12, rtol=0)


def test_a_shifted_row_is_noticed(monkeypatch):
    """The planted bug: rows are taken one place too late."""
    rows_of = kernels.row_weights
    shifted = lambda q, k, batch, rows, **rest: rows_of(q, k, batch, (rows + 1).clamp(max=len(q) - 1), **rest)  # noqa: E731
    monkeypatch.setattr(kernels, "row_weights", shifted)
    with pytest.raises(AssertionError):
        test_asked_rows_equal_whole_maps("gpt")


def test_lengths_of_values_equal_the_vectors_written_out():
    model = p.build("gpt2")
    read = ReadText(pack([TEXTS[2]]), [str(i) for i in TEXTS[2]], slice(0, 13))
    found = self_attention(model, read)
    with torch.no_grad():
        x = model(read.batch, layers=True).layers[1]
        layer = model.stack.layers[1]
        mixer, normed = layer.mixer, layer.mixer_norm(x)
        value = mixer.qkv(normed).view(13, 3, 3, 8)[:, 2]
        for head in range(3):
            vectors = value[:, head] @ mixer.out.weight[:, head * 8 : head * 8 + 8].T
            np.testing.assert_allclose(found.lengths[1][:, head], vectors.norm(dim=1).numpy(), rtol=1e-9)
    weighted = found.norm_weighted(1)
    np.testing.assert_allclose(weighted.sum(-1), 1.0)
    assert np.abs(weighted - found.weights[1]).max() > 1e-3


def test_rollout_rows_sum_to_one_and_follow_a_planted_copy():
    copy = np.zeros((2, 4, 4))
    copy[:, np.arange(4), [0, 0, 1, 2]] = 1.0  # every head looks at the token before
    maps = HeadMaps("attention", list("abcd"), list("abcd"), [copy, copy], [])
    found = maps.rollout()
    np.testing.assert_allclose(found.sum(1), 1.0)
    np.testing.assert_allclose(found[3], [0, 0.25, 0.5, 0.25])


def test_statistics_find_planted_heads():
    """A head that looks at the token before, one at the first, one at separators: measured on the model's own rows."""
    model, batch = model_of("bert"), pack([[1, 30, 31, 30, 2], [1, 33, 34, 2]])
    rows = torch.tensor([1, 2, 3, 6])
    place, ends = [1, 2, 3, 1], [4, 4, 4, 3]
    weights = torch.zeros(4, 3, 5)
    for i in range(4):
        weights[i, 0, place[i] - 1] = weights[i, 1, 0] = weights[i, 2, ends[i]] = 1.0
    layers = len(count_heads(model))

    class Planted(torch.nn.Module):
        stack = model.stack

        def forward(self, batch, maps):
            assert maps.tokens is rows
            return type("Output", (), {"maps": (weights,) * layers})

    marks = torch.zeros(p.VOCAB, dtype=torch.bool)
    (found, *_) = (each / 4 for each in measure_heads(Planted(), batch, rows, (1, 1), marks))
    named = [dict(zip(MEASURES, row.tolist(), strict=True)) for row in found[:3]]
    assert named[0]["previous"] == 1 and named[0]["distance"] == 1 and named[0]["entropy"] == 0
    assert named[1]["first"] == 1 and named[1]["previous"] == 0.5 and named[1]["distance"] == 1.75
    assert named[2]["separator"] == 1 and named[2]["next"] == 0.25 and named[2]["same word"] == 0


def test_the_choice_of_a_head_is_the_one_that_looks_far():
    weights = [np.full((2, 6, 6), 1 / 6), np.full((2, 6, 6), 1 / 6)]
    weights[1][0] = 0.0
    weights[1][0, :, 3] = 1.0
    maps = HeadMaps("attention", list("abcdef"), list("abcdef"), weights, [])
    assert choose(maps, None, None, None)[:2] == (1, 0)
    assert choose(maps, 1, 2, "c") == (0, 1, 2)
    for wrong in ({"layer": 3}, {"head": 3}, {"token": "z"}, {"token": "7"}, {"layer": 0}):
        with pytest.raises(UsageError):
            choose(maps, *({"layer": None, "head": None, "token": None} | wrong).values())


TEXT = "The keys to the cabinet are on the table."


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Folders of transformers with weights drawn at random, imported, and their models."""
    folder, found = tmp_path_factory.mktemp("runs"), {}
    for kind in ("bert", "gpt2", "marian", "bart"):
        model = save(kind, folder / f"{kind}-theirs")
        import_folder(folder / f"{kind}-theirs", folder / kind)
        model.set_attn_implementation("eager")
        found[kind] = folder / kind, model
    return found


@pytest.mark.parametrize("kind", ["bert", "gpt2", "marian", "bart"])
def test_maps_equal_those_of_transformers(kind, runs):
    folder, model = runs[kind]
    mine = load(folder)
    read = mine.reading
    ids = torch.tensor([[*read.encoder.before, *mine.tokenizer.encode(TEXT), *read.encoder.after]])
    found = mine.attention(TEXT, target="The table." if kind in ("marian", "bart") else None)
    if kind in ("bert", "gpt2"):
        theirs = {"attention": model(ids, output_attentions=True).attentions}
    else:
        frame = PairFrame.of(mine.learner.backbone, mine.tokenizer, mine.learner.start_id)
        start = [frame.start, *frame.before]
        written = torch.tensor([[*start, *mine.tokenizer.encode("The table.")]])
        output = model(ids, decoder_input_ids=written, output_attentions=True)
        skip = len(start) - 1
        cross = [each[:, :, skip:] for each in output.cross_attentions]
        theirs = {"encoder": output.encoder_attentions, "decoder": output.decoder_attentions, "cross": cross}
    assert {each.maps.part for each in found.shown} == set(theirs)
    for part, maps in theirs.items():
        assert len(maps) == len(found.weights(part)) == 2
        for ours, other in zip(found.weights(part), maps, strict=True):
            np.testing.assert_allclose(ours, other[0].detach().numpy(), atol=1e-5)


def test_statistics_equal_those_of_whole_maps(runs):
    read = load(runs["bert"][0]).reading
    statistics = head_statistics(read, [TEXT, "The table.", ""])
    assert statistics.texts == 2 and statistics.cut == 0
    sums = np.zeros((2, 4))
    rows = 0
    for text in (TEXT, "The table."):
        maps = load(runs["bert"][0]).attention(text).weights()
        chosen = 1 + np.unique(np.linspace(0, maps[0].shape[1] - 3, min(8, maps[0].shape[1] - 2)).astype(int))
        rows += len(chosen)
        for i, weights in enumerate(maps):
            sums[i] += weights[:, chosen, chosen - 1].sum(1)
    np.testing.assert_allclose(np.stack(statistics.values)[:, :, MEASURES.index("previous")], sums / rows, atol=1e-6)
    assert statistics.rows == rows


def test_the_command_writes_every_form(runs, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n\nThe table is on the keys.\n")
    for out in ("a.html", "a.json", "a.csv", "a.svg"):
        assert (
            run(
                [
                    "inspect",
                    str(runs["bert"][0]),
                    "--text",
                    str(tmp_path / "texts.txt"),
                    "--line",
                    "2",
                    "--out",
                    str(tmp_path / out),
                ]
            )
            == 0
        )
    record = json.loads((tmp_path / "a.json").read_text())
    assert record["text"] == "The table is on the keys." and len(record["heads"]) == 8
    assert (tmp_path / "a.csv").read_text().startswith("layer,head,entropy,distance")
    assert "xmlns" in (tmp_path / "a.svg").read_text()[:100]
    page = (tmp_path / "a.html").read_text()
    assert "rollout" in page and "norm-weighted" in page and "What each head does on average" in page
    assert run(["inspect", str(runs["marian"][0]), "--text", TEXT, "--out", str(tmp_path / "m.html")]) == 0
    assert "Attention to the source" in (tmp_path / "m.html").read_text()


BAD = {
    "empty": (["--text", " "], 2, "it is empty"),
    "no such file": (["--text", "missing.txt"], 2, "no such file"),
    "too long": (["--text", "table " * 100], 3, "tokens"),
    "no such layer": (["--text", TEXT, "--layer", "3"], 2, "there are 2 layers"),
    "no such head": (["--text", TEXT, "--head", "5"], 2, "there are 4 heads"),
    "no such token": (["--text", TEXT, "--token", "zebra"], 2, "the text has no such token"),
    "no target": (["--text", TEXT, "--target", "x"], 2, "writes no target"),
    "a line of a text": (["--text", TEXT, "--line", "1"], 2, "is for a file"),
    "another show": (["--text", TEXT, "--show", "soul"], 2, "soul"),
    "not for this": (["--text", TEXT, "--back", "3"], 2, "--back is for --show flow"),
    "no next word": (["--text", "texts.txt", "--show", "flow"], 2, "no probability of the next word"),
    "another ending": (["--text", TEXT, "--out", "a.pdf"], 2, "ends in .html"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_one_line(case, runs, tmp_path, monkeypatch, capsys):
    options, code, words = BAD[case]
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.txt").write_text(f"{TEXT}\n" * 40)
    end = [] if "--out" in options else ["--out", "out.html"]
    assert run(["inspect", str(runs["bert"][0]), *options, *end]) == code
    said = capsys.readouterr().err.strip()
    assert words in said and said.count("seqloom: error:") == 1 and "bug" not in said
    assert not (tmp_path / "out.html").exists()


def test_hostile_text_is_text():
    evil = "<script>alert(1)</script>"
    maps = HeadMaps("attention", [evil, "b"], [evil, "b"], [np.full((1, 2, 2), 0.5)], [np.ones((2, 1))])
    found = Attention(evil, evil, [Shown(maps, choose(maps, None, None, None))])
    assert evil not in found.html().split("<body>")[1] and evil not in found._repr_html_()
    with pytest.raises(UsageError):
        found.save("x.docx")


def test_empty_texts_have_no_statistics(runs):
    with pytest.raises(DataError):
        head_statistics(load(runs["bert"][0]).reading, ["", ""])


def test_blanks_can_be_seen():
    """The byte-level name of a blank, Ġ, is nothing that a reader knows."""
    assert [visible(*each) for each in ((" the", "Ġthe"), (" ", "Ġ"), ("\n\t ", "Ċ"), ("", "▁"), ("", "[MASK]"))] == [
        "the", "␣", "↵⇥␣", "␣", "[MASK]",
    ]  # fmt: skip


def test_one_thing_and_several():
    assert number_of(1, "layers with attention") == "there is 1 layer with attention"
    assert number_of(1, "tokens") == "there is 1 token" and number_of(2, "heads") == "there are 2 heads"

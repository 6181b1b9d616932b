"""fill, embed, score and evaluate --suite at the command line, for models that read in both directions and for others."""

import io
import json
import sys
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.prepare import prepare
from seqloom.cli import encoders, run, training, using
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.training.material import write_text

assert encoders and training and using  # register the commands

RECIPES = ("bert-tiny", "electra-tiny", "gpt2-tiny", "lstm-tiny")
LINES = ["the cat sees the dog today .", "", "a small river", "my friend"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("encoders")
    text = write_text(folder / "a.txt", 500)
    prepare([text], folder / "data", tokenizer="wordpiece", vocab_size=90, keep_leaks=True, keep_duplicates=True)
    for recipe in RECIPES:
        length = [] if recipe == "lstm-tiny" else ["model.max_len=32", "batches.length=32", "batches.budget=256"]
        pretrain(recipe, folder / "data", folder / recipe, settings=["model.dim=20", "budget={steps=2}", *length])
    (folder / "lines.txt").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    return {recipe: folder / recipe for recipe in RECIPES} | {"lines": folder / "lines.txt"}


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def refused(capsys: pytest.CaptureFixture[str], code: int, words: str, *arguments: object) -> None:
    found, out, err = call(capsys, *arguments)
    lines = [line for line in err.splitlines() if line.startswith("seqloom: error: ")]
    assert (found, out, len(lines)) == (code, "", 1) and words in lines[0], err


# ---- score


@pytest.mark.parametrize("recipe", RECIPES)
def test_score_says_its_definition(runs, recipe, capsys):
    code, out, _ = call(capsys, "score", runs[recipe], runs["lines"], "--json")
    found = json.loads(out)
    loaded = load(runs[recipe])
    assert code == 0 and found["definition"] == loaded.definition()
    assert ("end" in found["lines"][0]) == (recipe in ("gpt2-tiny", "lstm-tiny"))
    assert [line["log_probs"] for line in found["lines"]] == [each.log_probs for each in loaded.score(LINES)]
    code, plain, _ = call(capsys, "score", runs[recipe], runs["lines"])
    assert [float(line) for line in plain.splitlines()] == pytest.approx(
        [line["log_prob"] for line in found["lines"]], abs=1e-3
    )


def test_score_by_the_plain_definition(runs, capsys):
    code, out, _ = call(capsys, "score", runs["bert-tiny"], runs["lines"], "--pll", "plain", "--json")
    found = json.loads(out)
    assert code == 0 and "within-word" not in found["definition"]
    direct = load(runs["bert-tiny"]).score(LINES, "plain")
    assert [line["log_probs"] for line in found["lines"]] == [each.log_probs for each in direct]
    refused(capsys, 2, "'plan'", "score", runs["bert-tiny"], runs["lines"], "--pll", "plan")
    refused(capsys, 2, "is for masked models", "score", runs["lstm-tiny"], runs["lines"], "--pll", "plain")
    refused(capsys, 2, "is for masked models", "score", runs["electra-tiny"], runs["lines"], "--pll", "plain")


@pytest.mark.parametrize("command", ["score", "embed"])
def test_a_line_that_does_not_fit_is_named(runs, command, tmp_path, capsys):
    long = tmp_path / "long.txt"
    long.write_text("the cat\n" * 300 + "the " * 31 + "\n", encoding="utf-8")
    rest = ("--out", tmp_path / "a.npz") if command == "embed" else ()
    code, _, err = call(capsys, command, runs["bert-tiny"], long, *rest)
    assert code == 3 and "long.txt:301 has 31 tokens and 2 special tokens, but the model reads at most 32" in err
    assert not (tmp_path / "a.npz").exists() and [path.name for path in tmp_path.iterdir()] == ["long.txt"]


# ---- fill


@pytest.mark.parametrize("recipe", ["bert-tiny", "electra-tiny"])
def test_fill(runs, recipe, capsys):
    text = "the [MASK] sees the <mask> ."
    code, out, _ = call(capsys, "fill", runs[recipe], text, "--top", 3)
    lines = out.splitlines()
    assert code == 0 and len(lines) == 8 and (lines[0], lines[4]) == ("--- 1", "--- 2")
    code, out, _ = call(capsys, "fill", runs[recipe], text, "--top", 3, "--json")
    found = json.loads(out)
    direct = load(runs[recipe]).fill(text, top=3)
    assert code == 0 and found["text"] == text and not found["joint"]
    for gap, wanted, shown in zip(found["gaps"], direct, (lines[1:4], lines[5:]), strict=True):
        for each, other, line in zip(gap, wanted, shown, strict=True):
            assert tuple(each[name] for name in ("tokens", "probability", "text", "sizes")) == tuple(other)
            assert line.startswith(f"{other.probability:.4f}  {each['words'][0]}") and line.endswith(other.text)
    code, out, _ = call(capsys, "fill", runs[recipe], text, "--joint", "--top", 2, "--json")
    (gap,) = json.loads(out)["gaps"]
    assert code == 0 and [len(each["tokens"]) for each in gap] == [2, 2] and "[MASK]" not in gap[0]["text"]
    code, out, _ = call(capsys, "fill", runs[recipe], text, "--joint", "--top", 2)
    assert code == 0 and len(out.splitlines()) == 2 and " … " in out


def test_fill_of_bad_input(runs, capsys):
    refused(capsys, 2, "no gap in 'the cat'", "fill", runs["bert-tiny"], "the cat")
    refused(capsys, 2, "no gap in ''", "fill", runs["bert-tiny"], "")
    refused(capsys, 2, "seqloom generate", "fill", runs["lstm-tiny"], "the [MASK]")
    refused(capsys, 2, "one token into each gap", "fill", runs["bert-tiny"], "[MASK]", "--longest", 3)
    refused(capsys, 2, "add --joint", "fill", runs["bert-tiny"], "[MASK]", "--beam", 3)
    refused(capsys, 2, "top = 0", "fill", runs["bert-tiny"], "[MASK]", "--top", 0)
    refused(capsys, 3, "the text has 41 tokens", "fill", runs["bert-tiny"], "[MASK]" + " the" * 40)
    refused(capsys, 2, "seqloom fill", "generate", runs["bert-tiny"])
    refused(capsys, 4, "not a run folder", "fill", runs["lines"].parent, "[MASK]")


# ---- embed


@pytest.mark.parametrize("recipe", RECIPES)
def test_embed(runs, recipe, tmp_path, capsys):
    code, out, err = call(capsys, "embed", runs[recipe], runs["lines"], "--out", tmp_path / "a.npz")
    loaded = load(runs[recipe])
    assert code == 0 and out == f"{tmp_path / 'a.npz'}: 4 × 20\n"
    assert "empty texts: 1, the first at" in err and "lines.txt:2: they have rows of zeros" in err
    with np.load(tmp_path / "a.npz") as found:
        assert found.files == ["embeddings"] and np.array_equal(found["embeddings"], loaded.encode(LINES))
        assert not found["embeddings"][1].any()
    code, out, err = call(
        capsys, "embed", runs[recipe], runs["lines"], "--layers", "all", "--pool", "none", "--out", tmp_path / "b.npz"
    )
    tokens = [len(loaded.tokenizer.encode(line)) for line in LINES]
    assert code == 0 and "they have no rows" in err
    with np.load(tmp_path / "b.npz") as found:
        assert found["offsets"].tolist() == np.cumsum([0, *tokens]).tolist()
        assert np.array_equal(found["embeddings"], np.concatenate(loaded.encode(LINES, "all", "none")))


def test_embed_as_jsonl_and_from_standard_input(runs, tmp_path, capsys, monkeypatch):
    loaded = load(runs["bert-tiny"])
    for pool, key in (("first", "embedding"), ("none", "embeddings")):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(LINES).encode())))
        out = tmp_path / f"{pool}.jsonl"
        assert call(capsys, "embed", runs["bert-tiny"], "--layers", "1", "--pool", pool, "--out", out)[0] == 0
        rows = [json.loads(line) for line in out.read_text(encoding="utf-8").splitlines()]
        assert [row["text"] for row in rows] == LINES
        for row, wanted in zip(rows, loaded.encode(LINES, 1, pool), strict=True):
            assert row[key] == wanted.tolist()
        if pool == "none":
            assert rows[2]["tokens"] == [loaded.tokenizer.token(i) for i in loaded.tokenizer.encode(LINES[2])]


def test_many_lines_keep_their_order(runs, tmp_path, capsys):
    lines = [LINES[i % 3 * (i % 7 > 0)] + " the" * (i % 11) for i in range(600)]
    (tmp_path / "many.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert call(capsys, "embed", runs["lstm-tiny"], tmp_path / "many.txt", "--out", tmp_path / "a.npz")[0] == 0
    wanted = load(runs["lstm-tiny"]).encode(lines)
    np.testing.assert_allclose(np.load(tmp_path / "a.npz")["embeddings"], wanted, atol=1e-5)


def test_embed_of_bad_input(runs, tmp_path, capsys):
    out, bert = tmp_path / "a.npz", runs["bert-tiny"]
    refused(capsys, 2, "unknown --layers 'top'", "embed", bert, runs["lines"], "--out", out, "--layers", "top")
    refused(capsys, 2, "needs 4 layers", "embed", bert, runs["lines"], "--out", out, "--layers", "sum4")
    refused(capsys, 2, "the layers 1 to 3", "embed", bert, runs["lines"], "--out", out, "--layers", "7")
    refused(capsys, 2, "unknown pooling 'sum'", "embed", bert, runs["lines"], "--out", out, "--pool", "sum")
    refused(capsys, 2, ".npz or .jsonl", "embed", bert, runs["lines"], "--out", tmp_path / "a.txt")
    refused(capsys, 2, "--out", "embed", bert, runs["lines"])
    refused(capsys, 5, "no such file", "embed", bert, tmp_path / "none.txt", "--out", out)
    there = tmp_path / "none"
    missing = f"{there / 'a.npz'}: no such file or folder: there is no folder {there}"
    refused(capsys, 5, missing, "embed", bert, runs["lines"], "--out", there / "a.npz")
    (tmp_path / "empty.txt").write_bytes(b"")
    refused(capsys, 3, "the file is empty", "embed", bert, tmp_path / "empty.txt", "--out", out)
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\xfe\n")
    refused(capsys, 3, "bad.txt:2: not valid UTF-8", "embed", bert, tmp_path / "bad.txt", "--out", out)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt", "empty.txt"]
    out.write_bytes(b"mine")
    refused(capsys, 2, "exists already", "embed", bert, runs["lines"], "--out", out)
    assert out.read_bytes() == b"mine"


# ---- minimal pairs


@pytest.mark.parametrize("recipe", RECIPES)
def test_blimp(runs, recipe, tmp_path, capsys):
    pairs = [("the cat sees the dog .", "the cat see the dog .", "a"), ("a bird", "bird a", "b"), ("no", "no", "b")]
    rows = [
        {"sentence_good": g, "sentence_bad": b, "UID": u, "linguistics_term": "t", "field": "f"} for g, b, u in pairs
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    code, out, _ = call(capsys, "evaluate", runs[recipe], "--suite", "blimp", "--suite-data", tmp_path, "--json")
    found, loaded = json.loads(out), load(runs[recipe])
    assert code == 0 and found["definition"] == loaded.definition() and found["ties"] == 1
    won = [
        float(sum(good.log_probs) > sum(bad.log_probs)) for good, bad in (loaded.score([g, b]) for g, b, _ in pairs[:2])
    ]
    sets = {"a": won[0], "b": (won[1] + 0.5) / 2}
    mean = (sum(won) + 0.5) / 3  # over items; phenomena and fields are means over their sets
    assert found["by_set"] == sets and found["accuracy"] == mean
    assert found["by_field"]["f"] == found["by_phenomenon"]["t"] == sum(sets.values()) / 2
    code, out, _ = call(capsys, "evaluate", runs[recipe], "--suite", "blimp", "--suite-data", tmp_path / "a.jsonl")
    assert code == 0 and f"accuracy           {mean:.4f}\n" in out and out.count("\nset ") == 2


def test_blimp_of_bad_input(runs, tmp_path, capsys):
    bert, blimp = runs["bert-tiny"], ("--suite", "blimp")
    (tmp_path / "a.jsonl").write_text('{"good": "a", "bad": "b"}\n{"good": "a"}\n')
    refused(capsys, 3, "a.jsonl:2: no object with", "evaluate", bert, *blimp, "--suite-data", tmp_path)
    refused(capsys, 2, "no such file", "evaluate", bert, *blimp, "--suite-data", tmp_path / "none")
    refused(capsys, 2, "need each other", "evaluate", bert, *blimp)
    refused(capsys, 2, "give --data DIR", "evaluate", bert, "--suite-data", tmp_path)
    refused(capsys, 2, "give --data DIR", "evaluate", bert, *blimp, "--suite-data", tmp_path, "--data", tmp_path)
    refused(capsys, 2, "--pll works with --suite", "evaluate", bert, "--data", tmp_path, "--pll", "plain")
    refused(capsys, 2, "--cache works with --data", "evaluate", bert, *blimp, "--suite-data", tmp_path, "--cache", 5)
    refused(
        capsys,
        2,
        "unknown suite 'glue' (known: agreement, analogies, blimp, copy, lambada, similarity)",
        "evaluate",
        bert,
        "--suite",
        "glue",
        "--suite-data",
        tmp_path,
    )


# ---- the other suites

LINZEN = "index\tcorrect\twrong\tn_attractors\tsentence\n2\tsees\tsee\t0\tthe cat sees the dog . <eos>\n"
LINZEN += "3\tAre\tIs\t2\tthe cats we are . <eos>\n1\tchild\tchild\t1\tno child leaves . <eos>\n"


@pytest.mark.parametrize("recipe", RECIPES)
def test_agreement(runs, recipe, tmp_path, capsys):
    (tmp_path / "a.tsv").write_text(LINZEN)
    asked = ("evaluate", runs[recipe], "--suite", "agreement", "--suite-data", tmp_path)
    code, out, _ = call(capsys, *asked, "--json", "--items", tmp_path / "items.npz")
    found = json.loads(out)
    items = np.load(tmp_path / "items.npz")["items"].tolist()
    expected = load(runs[recipe]).evaluate_suite("agreement", tmp_path, items=True)
    assert code == 0 and items == expected["items"] and items[1] == 0.5 and "items" not in found
    assert found["accuracy"] == sum(items) / 2 and (found["skipped"], found["ties"]) == (1, 1)
    assert found["definition"] == expected["definition"] and found["by_attractors"] == {"0": items[0], "1": 0.5}
    code, out, _ = call(capsys, *asked, "--items", tmp_path / "items.jsonl")
    assert code == 0 and "skipped_because    another word" in out and out.count("\nattractors ") == 2
    rows = [json.loads(line) for line in (tmp_path / "items.jsonl").read_text().splitlines()]
    assert rows == [{"item": i, "score": score} for i, score in enumerate(items)]


def test_lambada(runs, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the cat sees the dog\nno child\n")
    asked = ("--suite", "lambada", "--suite-data", tmp_path / "a.txt", "--json")
    for recipe in ("gpt2-tiny", "lstm-tiny"):
        code, out, _ = call(capsys, "evaluate", runs[recipe], *asked)
        found = json.loads(out)
        assert code == 0 and found["passages"] == 2 and found["perplexity"] > 1 and found["accuracy"] in (0.0, 0.5, 1.0)
    for recipe in ("bert-tiny", "electra-tiny"):
        refused(capsys, 2, "no probability of the next word", "evaluate", runs[recipe], *asked)
    code, out, _ = call(capsys, "evaluate", runs["bert-tiny"], "--data", runs["lines"].parent / "data", "--json")
    assert code == 0 and "no probability of the next word" in json.loads(out)["no_bits_per_byte"]


def test_suites_of_bad_input(runs, tmp_path, capsys):
    lstm = runs["lstm-tiny"]

    def asked(suite, path, *more):
        return ("evaluate", lstm, "--suite", suite, "--suite-data", path, *more)

    (tmp_path / "a.tsv").write_text(LINZEN + "x\tsees\tsee\t0\tthe cat sees . <eos>\n")
    refused(capsys, 3, "a.tsv:5: \"index\" is 'x'", *asked("agreement", tmp_path))
    (tmp_path / "a.txt").write_text("the cat\n\ncat\n")
    refused(capsys, 3, "a.txt:3: 'cat' is one word", *asked("lambada", tmp_path / "a.txt"))
    refused(capsys, 3, "is a folder", *asked("lambada", tmp_path))
    refused(capsys, 2, "no such file or folder", *asked("lambada", tmp_path / "none.txt"))
    refused(capsys, 2, "did you mean 'lambada'?", *asked("lambda", tmp_path))
    refused(capsys, 2, "ends in .npz or .jsonl", *asked("lambada", tmp_path / "a.txt", "--items", tmp_path / "a.csv"))
    (tmp_path / "items.npz").write_bytes(b"mine")
    refused(capsys, 2, "exists already", *asked("lambada", tmp_path / "a.txt", "--items", tmp_path / "items.npz"))
    refused(
        capsys, 2, "--items works with --suite", "evaluate", lstm, "--data", tmp_path, "--items", tmp_path / "b.npz"
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.tsv", "a.txt", "items.npz"]


def test_only_what_reads_from_left_to_right_is_mixed(runs, capsys):
    data = runs["lines"].parent / "data"
    for one, other in (("bert-tiny", "lstm-tiny"), ("lstm-tiny", "bert-tiny")):
        refused(capsys, 2, "reads in both directions", "evaluate", runs[one], "--data", data, "--mix", runs[other])

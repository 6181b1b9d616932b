"""generate and score at the command line: what they print, and what they do with odd input."""

import io
import json
import sys
from pathlib import Path

import pytest

from seqloom.batches.prepare import prepare
from seqloom.cli import run, using
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from tests.training.material import write_text

RECIPES = ("ngram-tiny", "lstm-tiny", "gpt2-tiny")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("using")
    text = write_text(folder / "a.txt", 1500)
    prepare([text], folder / "char", tokenizer="char", valid=0.1, keep_leaks=True, keep_duplicates=True)
    small = ["model.dim=20", "budget={steps=15}", "valid.limit=300"]
    for recipe in RECIPES:
        extra = ["model.max_len=32", "batches.length=32"] if recipe.startswith("gpt") else []
        pretrain(recipe, folder / "char", folder / recipe, settings=[] if "ngram" in recipe else [*small, *extra])
    return {recipe: folder / recipe for recipe in RECIPES}


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


@pytest.mark.parametrize("recipe", RECIPES)
def test_streamed_text_is_the_text(runs, recipe, capsys):
    code, out, _ = call(capsys, "generate", runs[recipe], "--prompt", "the cat", "--max-new", 60, "--seed", 3)
    assert code == 0 and out.startswith("the cat") and out.endswith("\n")
    code, again, _ = call(
        capsys, "generate", runs[recipe], "--prompt", "the cat", "--max-new", 60, "--seed", 3, "--json"
    )
    (sample,) = json.loads(again)["samples"]
    assert out == sample["text"] + "\n"
    assert sample["log_prob"] == pytest.approx(sum(sample["log_probs"])) and 0 < len(sample["tokens"]) <= 60


@pytest.mark.parametrize("wrong", [("--temperature", -1), ("--top-p", 1.5), ("--max-new", 0), ("--top-k", -1)])
def test_nothing_is_printed_before_everything_is_checked(runs, wrong, capsys):
    code, out, err = call(capsys, "generate", runs[RECIPES[0]], "--prompt", "the cat", *wrong)
    assert code == 2 and out == "" and err.count("\n") == 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_several_samples(runs, recipe, capsys):
    code, out, _ = call(capsys, "generate", runs[recipe], "--n", 3, "--max-new", 20)
    assert code == 0 and [line for line in out.splitlines() if line.startswith("---")] == ["--- 1", "--- 2", "--- 3"]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("prompt", ["", "🙂", "שלום עולם", "x" * 500, "\0", "a\nb"])
def test_odd_prompts_go_on(runs, recipe, prompt, capsys):
    code, out, err = call(capsys, "generate", runs[recipe], "--prompt", prompt, "--max-new", 5)
    assert code == 0 and out.startswith(prompt) and len(out) > len(prompt)
    if prompt == "🙂":
        assert "never seen '🙂'" in err
    if prompt == "x" * 500 and recipe == "gpt2-tiny":
        assert "only its last 16 are used" in err


@pytest.mark.parametrize(
    "wrong",
    [
        ("--top-p", 0),
        ("--top-p", 1.5),
        ("--temperature", -1),
        ("--temperature", "nan"),
        ("--n", 0),
        ("--top-k", 0),
        ("--max-new", 0),
        ("--repetition-penalty", 0.5),
        ("--beam", 0),
        ("--beam", 2, "--n", 3),
        ("--length-penalty", -1, "--beam", 2),
        ("--beam", 2, "--temperature", 0.5),
        ("--length-penalty", 1),
    ],
)
def test_impossible_options_are_named(runs, wrong, capsys):
    code, out, err = call(capsys, "generate", runs["lstm-tiny"], *wrong)
    assert code == 2 and out == ""
    (line,) = err.splitlines()
    assert line.startswith("seqloom: error: ") and wrong[0].strip("-").replace("-", "_") in line.replace("-", "_")


@pytest.mark.parametrize("recipe", RECIPES)
def test_a_beam(runs, recipe, capsys):
    asked = ("generate", runs[recipe], "--prompt", "the cat", "--max-new", 12, "--beam")
    code, out, _ = call(capsys, *asked, 4)
    assert code == 0 and out.startswith("the cat") and "---" not in out
    code, several, _ = call(capsys, *asked, 4, "--n", 3)
    assert code == 0 and several.startswith("--- 1\n" + out) and "--- 3\n" in several
    code, again, _ = call(capsys, *asked, 4, "--n", 3, "--json")
    found = json.loads(again)["samples"]
    assert [each["text"] for each in found] == [part[2:-1] for part in several.split("--- ")[1:]]
    assert found[0]["score"] >= found[1]["score"] >= found[2]["score"]
    for each in found:
        (scored,) = load(runs[recipe]).score([each["text"]])
        total = sum(scored.log_probs[len("the cat") :]) + each["finished"] * scored.end
        assert each["log_prob"] == pytest.approx(total, abs=1e-3)
        assert each["score"] == pytest.approx(total / (len(each["tokens"]) + each["finished"]), abs=1e-3)
    greedy = call(capsys, *asked[:-1], "--temperature", 0)[1]
    assert call(capsys, *asked, 1)[1] == greedy


def test_a_beam_ends_with_the_context(runs, capsys):
    code, out, err = call(capsys, "generate", runs["gpt2-tiny"], "--beam", 2, "--prompt", "the cat", "--max-new", 99)
    assert code == 0 and "reads 32 tokens, a beam ends there: at most 25 new ones" in err
    code, out, err = call(capsys, "generate", runs["gpt2-tiny"], "--beam", 2, "--prompt", "x" * 500, "--max-new", 5)
    assert code == 0 and "only its last 16 are used" in err and len(out) > 500


def test_temperature_zero_is_greedy(runs, capsys):
    texts = {call(capsys, "generate", runs["gpt2-tiny"], "--temperature", 0, "--seed", s)[1] for s in range(3)}
    assert len(texts) == 1


@pytest.mark.parametrize("recipe", RECIPES)
def test_score_of_a_file_and_of_standard_input(runs, recipe, tmp_path, capsys, monkeypatch):
    lines = ["the cat sees the dog today .", "", "zzzz 🙂", "the cat " * 30]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    code, out, _ = call(capsys, "score", runs[recipe], tmp_path / "a.txt")
    values = [float(line) for line in out.splitlines()]
    assert code == 0 and len(values) == 4 and values[1] == 0 and all(v < 0 for v in values[:1] + values[2:])
    stream = io.TextIOWrapper(io.BytesIO("\n".join(lines).encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    code, out, _ = call(capsys, "score", runs[recipe], "--json")
    found = json.loads(out)
    assert [row["log_prob"] for row in found["lines"]] == pytest.approx(values, abs=1e-3)
    assert found["log_prob"] == pytest.approx(sum(values), abs=1e-2)
    first = found["lines"][0]
    assert first["text"] == lines[0] and len(first["tokens"]) == len(first["log_probs"]) == len(lines[0])
    direct = load(runs[recipe]).score(lines)
    assert [sum(s.log_probs) for s in direct] == pytest.approx(values, abs=1e-3)


@pytest.mark.parametrize("in_memory", [1 << 26, 100])
def test_a_json_object_is_printed_whole_or_not_at_all(runs, in_memory, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(using, "MAX_IN_MEMORY", in_memory)
    lines = ["the cat"] * 300  # more than one batch
    (tmp_path / "a.txt").write_text("\n".join(lines))
    code, out, _ = call(capsys, "score", runs["lstm-tiny"], tmp_path / "a.txt", "--json")
    assert code == 0 and [row["text"] for row in json.loads(out)["lines"]] == lines
    (tmp_path / "a.txt").write_bytes("\n".join(lines).encode() + b"\n\xff\n")
    code, out, err = call(capsys, "score", runs["lstm-tiny"], tmp_path / "a.txt", "--json")
    assert (code, out) == (3, "") and "a.txt:301: not valid UTF-8" in err


def test_score_of_bad_input(runs, tmp_path, capsys):
    assert call(capsys, "score", runs["lstm-tiny"], tmp_path / "none.txt")[0] == 5
    (tmp_path / "bad.txt").write_bytes(b"good\n\xff\xfe\n")
    code, _, err = call(capsys, "score", runs["lstm-tiny"], tmp_path / "bad.txt")
    assert code == 3 and "bad.txt:2: not valid UTF-8" in err
    (tmp_path / "empty.txt").write_bytes(b"")
    assert call(capsys, "score", runs["lstm-tiny"], tmp_path / "empty.txt")[:2] == (0, "")

"""What cannot be looked into is refused in one line that names it, with the documented exit code, and nothing is written."""

import json

import pytest

from seqloom.cli import run
from seqloom.runs.training import pretrain
from tests.training.material import prepared, sentences

SMALL = ["model.dim=20", "batches.streams=4", "batches.length=16", "budget={steps=1}", "valid.limit=100"]
LABELS = ["--train", "tags.conll", "--test"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("refused")
    data = prepared(place / "data", 300)
    for name in ("gpt2", "lstm"):
        settings = SMALL if name == "lstm" else [SMALL[0], *SMALL[3:]]
        pretrain(f"{name}-tiny", data, place / name, settings=settings)
    (place / "nothing").mkdir()
    row = {"word": "king", "sense": "a", "tokens": ["the", "king"], "head": 5}
    for name, text in {
        "texts.txt": "\n".join(sentences(60)) + "\n",
        "empty.txt": "",
        "short.txt": "the\n",
        "tags.conll": "the D\ncat N\n\na D\ndog N\n",
        "other.conll": "the X\ncat Y\n",
        "choices.tsv": "first\tother\na\tb\n",
        "senses.jsonl": json.dumps(row) + "\n",
    }.items():
        (place / name).write_text(text)
    (place / "latin.txt").write_bytes(b"caf\xe9 noir\n")
    return place


# of each case: what follows `inspect` or `probe`, the exit code, words of the refusal
CASES = {
    "no run": (["nothing", "--text", "the cat"], 4, "nothing is not a run folder"),
    "a folder for a text": (["gpt2", "--text", "nothing"], 2, "--text nothing: it is a folder"),
    "a text for a file": (["lstm", "--text", "the cat sees"], 2, "--show flow reads a file"),
    "attention, not UTF-8": (["gpt2", "--text", "latin.txt"], 3, "latin.txt: not valid UTF-8"),
    "attention, no heads": (["lstm", "--text", "the cat", "--show", "attention"], 2, "--show cells"),
    "saliency, empty": (["gpt2", "--text", "empty.txt", "--show", "saliency"], 3, "empty.txt has no text"),
    "heads, empty": (["gpt2", "--text", "empty.txt", "--show", "heads"], 3, "empty.txt has no text"),
    "heads, none": (["lstm", "--text", "texts.txt", "--show", "heads"], 2, "no attention heads"),
    "cells, short": (["lstm", "--text", "short.txt", "--show", "cells"], 3, "twenty at least"),
    "cells, not UTF-8": (["lstm", "--text", "latin.txt", "--show", "cells"], 3, "latin.txt: not valid UTF-8"),
    "cells, no layer": (["lstm", "--text", "texts.txt", "--show", "cells", "--unit", "layer9.cell.1"], 2, "layer9.cell.1"),
    "cells, out of range": (
        ["lstm", "--text", "texts.txt", "--show", "cells", "--unit", "layer0.cell.99"], 2, "the units 0 to 19"
    ),
    "cells, no states": (["gpt2", "--text", "texts.txt", "--show", "cells"], 2, "is for recurrent models"),
    "senses, no layer": (
        ["gpt2", "--text", "texts.txt", "--show", "senses", "--word", "the", "--layer", "-1"], 2, "--layer '-1'"
    ),
    "senses, no word": (["gpt2", "--text", "texts.txt", "--show", "senses", "--word", "zebra"], 3, "'zebra' does not occur"),
    "senses, a head outside": (
        ["gpt2", "--text", "senses.jsonl", "--show", "senses", "--word", "king"], 3, "senses.jsonl:1: no row of"
    ),
    "flow, empty": (["lstm", "--text", "empty.txt", "--show", "flow"], 3, "the text has 0 tokens"),
    "flow, not UTF-8": (["lstm", "--text", "latin.txt", "--show", "flow"], 3, "latin.txt:1: not valid UTF-8"),
    "flow, too far": (["gpt2", "--text", "texts.txt", "--show", "flow", "--back", "200"], 2, "steps back at most"),
    "flow, another ending": (["lstm", "--text", "texts.txt", "--show", "flow", "--out", "a.pdf"], 2, "ends in .html"),
    "context, empty": (["lstm", "--text", "empty.txt", "--context", "8"], 3, "no document has 8 tokens"),
    "context, not UTF-8": (["lstm", "--text", "latin.txt", "--context", "8"], 3, "latin.txt:1: not valid UTF-8"),
    "preference, no column": (["lstm", "--text", "choices.tsv", "--show", "preference"], 3, 'no column "second"'),
    "garbled, empty": (["lstm", "--text", "empty.txt", "--show", "garbled"], 3, "empty.txt has no text"),
    "experts, none": (["gpt2", "--text", "texts.txt", "--show", "experts"], 2, "models with experts"),
    "roll, no song": (["gpt2", "--text", "texts.txt", "--show", "roll"], 2, "is for songs"),
    "probe, other labels": (["gpt2", *LABELS, "other.conll"], 3, "none of its labels (X, Y) is in tags.conll"),
    "probe, not UTF-8": (["gpt2", *LABELS, "latin.txt"], 3, "latin.txt:1: not valid UTF-8"),
    "probe, empty": (["gpt2", *LABELS, "empty.txt"], 3, "empty.txt"),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_one_line_says_why(case, folder, monkeypatch, capsys):
    options, code, words = CASES[case]
    monkeypatch.chdir(folder)
    end = [] if "--out" in options else ["--out", "bad" if "--train" in options else "bad.html"]
    assert run(["probe" if "--train" in options else "inspect", *options, *end]) == code
    said = capsys.readouterr().err
    assert words in said and said.count("seqloom: error:") == 1 and "this is a bug" not in said
    assert not (folder / "bad.html").exists() and not (folder / "bad").exists()


def test_a_tree_that_cannot_be_written_names_its_option(folder, monkeypatch, capsys):
    """Before anything is searched for."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr("seqloom.runs.language_model.Run.beam_tree", lambda *_, **__: pytest.fail("it was searched"))
    assert run(["generate", "gpt2", "--prompt", "the", "--beam", "2", "--max-new", "2", "--tree", "a.pdf"]) == 2
    assert "--tree a.pdf: name a file" in capsys.readouterr().err

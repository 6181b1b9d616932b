"""Names in a raw sentence, by a tagger that was trained on wikigold: the sentences lie in ../shared."""

import json
from pathlib import Path

import pytest

from seqloom.cli import run

WIKIGOLD = Path(__file__).parents[3] / "shared/data/wikigold/wikigold.conll"


@pytest.mark.long
def test_names_in_a_raw_sentence(tmp_path, capsys):
    """The settings of docs/results/2026-11-17-people.md."""
    sentences = WIKIGOLD.read_text(encoding="utf-8").strip().split("\n\n")
    parts = {"train": [], "valid": [], "test": []}
    for i, sentence in enumerate(sentences):
        parts[{0: "valid", 1: "test"}.get(i % 10, "train")].append(sentence)
    for name, part in parts.items():
        (tmp_path / f"{name}.conll").write_text("\n\n".join(part) + "\n", encoding="utf-8")
    command = ["train", "bilstm-cnn-small", "--task", "tag", "--out", str(tmp_path / "run"), "--tokenizer", "word"]
    command += [word for name in parts for word in (f"--{name}", str(tmp_path / f"{name}.conll"))]
    assert run([*command, "--epochs", "8", "--batch", "8", "--device", "cpu"]) == 0
    assert json.loads((tmp_path / "run/metrics.json").read_text())["test_scores"]["f1"] > 0.5
    text = "Obama visited Paris yesterday ."
    (tmp_path / "sentences.txt").write_text(f"{text}\n", encoding="utf-8")
    capsys.readouterr()
    assert run(["predict", str(tmp_path / "run"), str(tmp_path / "sentences.txt")]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["words"] == text.split() == [text[begin:end] for begin, end in found["offsets"]]
    for entity in found["entities"]:
        assert text[entity["begin"] : entity["end"]] == entity["text"] and entity["kind"] in (
            "PER",
            "LOC",
            "ORG",
            "MISC",
        )

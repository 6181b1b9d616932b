"""Unknown words keep their spelling, from the text to the model: every way a text takes gives it the same characters."""

import math
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from seqloom.batches.plan import Packed, Streams
from seqloom.batches.prepare import prepare
from seqloom.batches.store import Split, Store
from seqloom.errors import DataError, UsageError
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.tokens.spelling import spell, spelling_table
from tests.batches.test_prepare import KILLED, contents
from tests.corpus import WORDS

SETTINGS = ["batches.streams=4", "batches.length=16", "model.dim=24", "model.proj_dim=16", "budget={steps=30}"]


def make(path: Path, seed: int = 0) -> Path:
    """Half of the documents have words that occur once."""
    rng = random.Random(seed)
    lines = []
    for i in range(120):
        line = rng.choices(WORDS, k=rng.randint(15, 40))
        line[3] = f"Über{i}ly" if i % 2 else "the"
        lines.append(" ".join([*line, f"x{i * i + 1000}"]))
    path.write_text("\n".join(lines) + "\n")
    return path


OPTIONS = {
    "tokenizer": "word",
    "valid": 0.1,
    "shard_tokens": 700,
    "workers": 1,
    "keep_spelling": True,
    "lowercase": True,
}


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("spelt")
    prepare([make(folder / "a.txt")], folder / "data", **OPTIONS)
    return folder / "data"


@pytest.fixture(scope="module")
def run(data, tmp_path_factory):
    return pretrain("big-lstm-tiny", data, tmp_path_factory.mktemp("runs") / "run", settings=SETTINGS, device="cpu")


def letters(row) -> str:
    return bytes(int(c) - 1 for c in row if 0 < c <= 256).decode()


def words_come_back(data: Path) -> None:
    store = Store.open(data, verify=True)
    assert len(store.manifest.splits["train"].shards) > 2
    store.spell(20)
    found = []
    for name in store.splits:
        split = store.split(name)
        for a, b in zip(split.offsets, split.offsets[1:], strict=False):
            ids = split.read(a, b - 1)
            rows = split.characters_of(np.array([a]), np.array([b - 1 - a]), ids)
            found.append(" ".join(map(letters, rows)))
    assert sorted(found) == sorted((data.parent / "a.txt").read_text().lower().splitlines())


def test_every_document_comes_back_by_its_letters(data):
    words_come_back(data)


def test_planted_words_of_another_place_are_noticed(data, monkeypatch):
    right = Split.characters_of
    monkeypatch.setattr(
        Split, "characters_of", lambda split, starts, lengths, ids: right(split, starts, lengths, ids)[::-1]
    )
    with pytest.raises(AssertionError):
        words_come_back(data)


def test_workers_and_other_shards_change_no_word(data, tmp_path):
    prepare([data.parent / "a.txt"], tmp_path / "data", **(OPTIONS | {"workers": 2}))
    for path in data.glob("*.words.bin"):
        assert path.read_bytes() == (tmp_path / "data" / path.name).read_bytes()


@pytest.mark.parametrize(("at", "where"), [(8, "before"), (9, "after"), (11, "before"), (12, "after")])
def test_killed_anywhere_it_ends_the_same(at, where, data, tmp_path):
    script = re.sub(r"vocab_size=.*\)", f"**{OPTIONS!r})", KILLED)
    command = [sys.executable, "-c", script, str(data.parent / "a.txt"), str(tmp_path / "out"), str(at), where]
    assert subprocess.run(command, check=False).returncode == -9
    prepare([data.parent / "a.txt"], tmp_path / "out", **OPTIONS)
    assert contents(tmp_path / "out") == contents(data)


@pytest.mark.parametrize("kind", [Packed, Streams])
def test_batches_have_the_characters_of_their_tokens(kind, data):
    store = Store.open(data)
    split = store.split("train")
    batches = Packed(split, 300, 30) if kind is Packed else Streams(split, 4, 25)
    assert batches.plan(0, 0).batch(0).batch.chars is None
    store.spell(20)
    plan, table, unknown = batches.plan(0, 0), spelling_table(store.tokenizer, 20), 0
    for i in range(len(plan)):
        excerpt = plan.batch(i)
        batch, real = excerpt.batch, excerpt.targets >= 0
        assert batch.chars.shape == (*batch.ids.shape, 20)
        known = (batch.ids != store.tokenizer.unk_id) & real
        assert torch.equal(batch.chars[known], torch.from_numpy(table)[batch.ids[known]])
        spelt = [letters(row) for row in batch.chars[~known & real]]
        assert all(word.startswith(("über", "x")) for word in spelt)
        unknown += len(spelt)
    assert unknown > 50


def test_a_model_tells_unknown_words_apart(run):
    one, two = run.score(["the Über7ly cat sat", "the zebra cat sat"])
    assert one.log_probs[1] == pytest.approx(two.log_probs[1])  # as a target they are one token
    assert one.log_probs[2] != pytest.approx(two.log_probs[2], abs=1e-6)
    a, b = (run.generate(f"the {word}", max_new=1, temperature=0)[0].log_probs for word in ("Über7ly", "zebra"))
    assert a != pytest.approx(b, abs=1e-7)


def test_score_and_evaluate_agree(run, data, tmp_path):
    texts = ["the cat Über8ly sat on x77 house", "zebra on mat"]
    (tmp_path / "t.txt").write_text("\n".join(texts) + "\n")
    tokenizer = run.folder / "tokenizer.json"
    prepare(
        [data.parent / "a.txt"], tmp_path / "new", test=tmp_path / "t.txt", from_tokenizer=tokenizer, keep_spelling=True
    )
    result = load(run.folder, "cpu").evaluate(tmp_path / "new", "test")
    total = -sum(sum(s.log_probs) + s.end for s in run.score(texts))
    assert result["loss"] * result["tokens"] == pytest.approx(total, rel=1e-5)
    entry = Store.open(tmp_path / "new").manifest.splits["test"]
    assert entry.unknown == 3 and entry.unknown_bits > 0  # as targets they pay for their letters
    bits = (total / math.log(2) + entry.unknown_bits + entry.surface_bits) / entry.bytes
    assert result["bits_per_byte"] == pytest.approx(bits, rel=1e-5)


def test_data_without_spelling_is_refused_where_it_was_learnt_with(run, data, tmp_path):
    tokenizer = run.folder / "tokenizer.json"
    prepare([data.parent / "a.txt"], tmp_path / "plain", valid=0.1, from_tokenizer=tokenizer)
    with pytest.raises(DataError, match="--keep-spelling"):
        run.evaluate(tmp_path / "plain")
    other = pretrain("big-lstm-tiny", tmp_path / "plain", tmp_path / "run", settings=SETTINGS, device="cpu")
    one, two = other.score(["the Über7ly cat", "the zebra cat"])
    assert one == two
    assert other.evaluate(data)["loss"] == pytest.approx(other.evaluate(tmp_path / "plain")["loss"], rel=0.2)
    with pytest.raises(UsageError, match="read unknown words in different ways"):
        run.mix(other, data)
    lstm = pretrain(
        "lstm-tiny", data, tmp_path / "lstm", settings=["batches.streams=4", "budget={steps=2}"], device="cpu"
    )
    mixed = lstm.mix(run, data, "valid")
    assert mixed["parts"][1]["loss"] == pytest.approx(run.evaluate(data, "valid")["loss"], rel=1e-6)


def test_bad_words_are_refused(data, tmp_path):
    shutil.copytree(data, tmp_path / "data")
    path = tmp_path / "data/train-00001.words.bin"
    path.write_bytes(path.read_bytes().split(b"\n", 1)[1])
    with pytest.raises(DataError, match="damaged"):
        Store.open(tmp_path / "data", verify=True)
    with pytest.raises(DataError, match=r"words but the shard has \d+ unknown tokens"):
        pretrain("big-lstm-tiny", tmp_path / "data", tmp_path / "run", settings=SETTINGS, device="cpu")
    path.unlink()
    with pytest.raises(Exception, match=r"train-00001.words.bin"):
        pretrain("big-lstm-tiny", tmp_path / "data", tmp_path / "run2", settings=SETTINGS, device="cpu")


def test_only_for_words(tmp_path):
    with pytest.raises(UsageError, match="--keep-spelling works with --tokenizer word only"):
        prepare([make(tmp_path / "a.txt")], tmp_path / "out", keep_spelling=True)
    assert spell([b"x"], 4).shape == (1, 4)

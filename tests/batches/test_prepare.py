"""Preparing: what goes in comes out, killed anywhere it ends the same, and failures are one clear line."""

import contextlib
import errno
import fcntl
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from seqloom import files
from seqloom.batches import prepare as prepare_module
from seqloom.batches.prepare import prepare
from seqloom.batches.store import MANIFEST, Manifest, Store
from seqloom.errors import BusyError, DataError, FileError, UsageError
from seqloom.tokens.tokenizer import Tokenizer
from tests.corpus import WORDS
from tests.tokens.test_tokenizer import lossy


def make(path: Path, documents: int = 300, seed: int = 0) -> Path:
    rng = random.Random(seed)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(15, 40))) + f" {i}" for i in range(documents)]
    path.write_text("\n".join(lines) + "\n")
    return path


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "lock"}


OPTIONS: dict[str, Any] = {"vocab_size": 300, "valid": 0.1, "test": 0.05, "shard_tokens": 1500, "workers": 1}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char", "byte"])
def test_documents_come_back_from_their_splits(kind: str, tmp_path: Path) -> None:
    path = make(tmp_path / "a.txt")
    size = {"bpe": 300, "unigram": 270, "wordpiece": 90}.get(kind)
    prepare([path], tmp_path / "out", tokenizer=kind, valid=0.1, vocab_size=size)
    store = Store.open(tmp_path / "out", verify=True)
    found = []
    for name in store.splits:
        split = store.split(name)
        for a, b in zip(split.offsets, split.offsets[1:], strict=False):
            found.append(store.tokenizer.decode(split.read(a, b)))
    expected = [lossy(store.tokenizer, line) for line in path.read_text().splitlines()]
    assert sorted(found) == sorted(expected)
    assert store.split("train").num_documents > 200 > store.split("valid").num_documents > 5


def test_unknown_words_are_charged(tmp_path: Path) -> None:
    path = make(tmp_path / "a.txt")
    (tmp_path / "t.txt").write_text("the zebra sat\nzebra again\n")
    manifest = prepare([path], tmp_path / "out", tokenizer="word", test=tmp_path / "t.txt")
    test = manifest.splits["test"]
    assert test.unknown == 2
    assert test.surface_bits is not None and 0 < test.surface_bits < 24 * 2
    assert 2 * 6 < test.unknown_bits < 2 * 6 * 16
    assert manifest.bits_per_byte == "yes"
    manifest = prepare([path], tmp_path / "char", tokenizer="char", test=tmp_path / "t.txt")
    assert (manifest.splits["test"].surface_bits, manifest.bits_per_byte) == (0.0, "yes")
    assert manifest.splits["test"].unknown == 4  # z and b, twice


@pytest.mark.parametrize("kind", ["word", "char", "wordpiece"])
def test_a_vocabulary_without_unk(kind: str, tmp_path: Path) -> None:
    """It is enough for a text of known words; another one is refused by its first unknown word."""
    path = make(tmp_path / "a.txt")
    tokenizer = Tokenizer.train(kind, [path.read_text()], min_count=1, vocab_size=90 if kind == "wordpiece" else None)
    values = json.loads(tokenizer.to_json())
    values["model"]["unk_token"] = "nothing of the kind"
    (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    known = prepare([path], tmp_path / "known", from_tokenizer=tmp_path / "tokenizer.json")
    assert known.splits["train"].unknown == 0
    (tmp_path / "b.txt").write_text("the cat sat\n\nthe häßlich dog sat\n")
    with pytest.raises(
        DataError, match=r"has '(häßlich|ä)'.*no token for unknown words: use a tokenizer that has '<unk>'"
    ):
        prepare([tmp_path / "b.txt"], tmp_path / "out", from_tokenizer=tmp_path / "tokenizer.json")
    assert not (tmp_path / "out" / MANIFEST).exists()


def test_a_given_tokenizer_and_split_field(tmp_path: Path) -> None:
    path = make(tmp_path / "a.txt")
    first = prepare([path], tmp_path / "one", vocab_size=300)
    rows = "".join(
        f'{{"text": "{" ".join(random.Random(i).choices(WORDS, k=20))}", "split": "{s}"}}\n'
        for i, s in enumerate(["train", "dev", "test", "train"])
    )
    (tmp_path / "b.jsonl").write_text(rows)
    second = prepare(
        [tmp_path / "b.jsonl"], tmp_path / "two", from_tokenizer=tmp_path / "one/tokenizer.json", split_field="split"
    )
    assert second.tokenizer == first.tokenizer
    assert {name: split.documents for name, split in second.splits.items()} == {"train": 2, "valid": 1, "test": 1}


def test_workers_give_identical_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "BATCH", 3000)
    path = make(tmp_path / "a.txt")
    one = prepare([path], tmp_path / "one", **OPTIONS)
    two = prepare([path], tmp_path / "two", **(OPTIONS | {"workers": 2}))
    assert len(one.splits["train"].shards) > 3
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    monkeypatch.setattr(prepare_module, "BATCH", 100)
    three = prepare([path], tmp_path / "three", **OPTIONS)
    assert one == two == three


UNGUARDED = """
import sys
from pathlib import Path
from seqloom.batches import prepare, shards

if sys.argv[3] == "planted":  # workers that run this script once more
    shards.Worker = shards.SpawnContext.Process
    shards.Workers.Process = shards.Worker
prepare.BATCH = 3000
prepare.prepare([Path(sys.argv[1])], Path(sys.argv[2]), vocab_size=300, valid=0.1, test=0.05, shard_tokens=1500, workers=2)
print("done")
"""


def test_a_script_without_a_guard_can_have_workers(tmp_path: Path) -> None:
    path, script = make(tmp_path / "a.txt"), tmp_path / "script.py"
    script.write_text(UNGUARDED)

    def called(how: str) -> str:
        command = [sys.executable, str(script), str(path), str(tmp_path / how), how]
        with contextlib.suppress(subprocess.TimeoutExpired):  # large encoders hang, small ones break
            return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60).stdout
        return ""

    assert called("right").count("done") == 1
    assert contents(tmp_path / "right") == contents(prepare_one(path, tmp_path / "one"))
    assert "done" not in called("planted")


def prepare_one(path: Path, out: Path) -> Path:
    prepare([path], out, **OPTIONS)
    return out


KILLED = """
import os, signal, sys
from pathlib import Path
from seqloom import files
from seqloom.batches import prepare, shards

count, at, where = 0, int(sys.argv[3]), sys.argv[4]
replace = os.replace

def counted(a, b):
    global count
    count += 1
    if count == at and where == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    replace(a, b)
    if count == at and where == "after":
        os.kill(os.getpid(), signal.SIGKILL)

os.replace = counted
prepare.prepare([Path(sys.argv[1])], Path(sys.argv[2]), vocab_size=300, valid=0.1, test=0.05, shard_tokens=1500, workers=1)
"""


def killed_then_resumed(path: Path, out: Path, points: list[tuple[int, str]]) -> Manifest:
    for at, where in points:
        command = [sys.executable, "-c", KILLED, str(path), str(out), str(at), where]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == -9, done.stderr
        assert not (out / MANIFEST).exists()
    return prepare([path], out, **OPTIONS)


@pytest.mark.parametrize(
    "points", [[(1, "before")], [(4, "after"), (2, "before")], [(9, "before"), (3, "after"), (1, "after")]]
)
def test_killed_anywhere_it_ends_the_same(points: list[tuple[int, str]], tmp_path: Path) -> None:
    path = make(tmp_path / "a.txt")
    whole = prepare([path], tmp_path / "whole", **OPTIONS)
    resumed = killed_then_resumed(path, tmp_path / "out", points)
    assert resumed == whole
    assert contents(tmp_path / "out") == contents(tmp_path / "whole")


def test_planted_bug_forgetting_finished_documents_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from seqloom.batches import shards

    path = make(tmp_path / "a.txt")
    whole = prepare([path], tmp_path / "whole", **OPTIONS)
    right = shards.ShardWriter.__init__

    def forget(self: Any, *args: Any) -> None:
        right(self, *args)
        self.finished_documents = 0

    monkeypatch.setattr(shards.ShardWriter, "__init__", forget)
    assert killed_then_resumed(path, tmp_path / "out", [(9, "before")]) != whole


def test_resuming_says_so_and_other_arguments_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = make(tmp_path / "a.txt")
    done = subprocess.run([sys.executable, "-c", KILLED, str(path), str(tmp_path / "out"), "8", "after"], check=False)
    assert done.returncode == -9
    with pytest.raises(UsageError, match="other arguments or files"):
        prepare([path], tmp_path / "out", **(OPTIONS | {"vocab_size": 301}))
    prepare([path], tmp_path / "out", **OPTIONS)
    assert "resuming an unfinished preparation" in capsys.readouterr().err
    with pytest.raises(UsageError, match=r"prepared already.*--overwrite"):
        prepare([path], tmp_path / "out", **OPTIONS)
    prepare([path], tmp_path / "out", **(OPTIONS | {"overwrite": True}))
    (tmp_path / "strange").mkdir()
    (tmp_path / "strange/thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match=r"not empty.*thesis.txt"):
        prepare([path], tmp_path / "strange", **OPTIONS)
    with pytest.raises(UsageError, match="does not hold prepared text"):
        prepare([path], tmp_path / "strange", **(OPTIONS | {"overwrite": True}))
    assert (tmp_path / "strange/thesis.txt").read_text() == "mine"


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EROFS])
def test_a_full_disk_at_any_write_is_one_line_and_resumable(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make(tmp_path / "a.txt")
    whole = prepare([path], tmp_path / "whole", **OPTIONS)
    sync = files.sync
    for at in (1, 5, 12, 20):
        calls = 0

        def failing(target: Path, at: int = at) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise OSError(code, os.strerror(code), str(target))
            sync(target)

        monkeypatch.setattr(files, "sync", failing)
        with pytest.raises(FileError) as caught:
            prepare([path], tmp_path / "out", **OPTIONS)
        assert str(tmp_path / "out") in str(caught.value) and "\n" not in str(caught.value)
        assert not (tmp_path / "out" / MANIFEST).exists()
    monkeypatch.setattr(files, "sync", sync)
    assert prepare([path], tmp_path / "out", **OPTIONS) == whole


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with open(tmp_path / "out/lock", "w") as lock:
        lock.write("process 1 on here")
        lock.flush()
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(BusyError, match="in use by process 1"):
            prepare([make(tmp_path / "a.txt")], tmp_path / "out", **OPTIONS)


def test_the_sample_is_bounded_and_spread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare_module, "SAMPLE", 10_000)
    manifest = prepare([make(tmp_path / "a.txt", 1000)], tmp_path / "out", vocab_size=300)
    sample = manifest.report["tokenizer_sample"]
    assert 9_000 <= sample["bytes"] <= 10_000 < sample["of"]


def test_wrong_calls(tmp_path: Path) -> None:
    path = make(tmp_path / "a.txt")
    for options, kind, words in (
        ({"tokenizer": "x"}, UsageError, "unknown tokenizer 'x'"),
        ({"workers": 0}, UsageError, "--workers 0"),
        ({"from_tokenizer": path, "lowercase": True}, UsageError, "has its own vocabulary"),
        ({"vocab_size": 50_000}, UsageError, "the data supports only"),
        ({"valid": tmp_path / "missing"}, DataError, "no such file"),
    ):
        with pytest.raises(kind, match=words):
            prepare([path], tmp_path / "out", **options)
    with pytest.raises(UsageError, match="no text file"):
        prepare([], tmp_path / "out")

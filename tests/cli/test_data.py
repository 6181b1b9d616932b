"""`prepare` and `check` from the command line: results on standard output, one line and the right code for bad input."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from seqloom import files
from seqloom.cli import run
from tests.corpus import WORDS


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    rng = random.Random(0)
    lines = [" ".join(rng.choices(WORDS, k=rng.randint(15, 40))) for _ in range(200)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n")
    return tmp_path / "a.txt"


def call(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    code = run([str(argument) for argument in arguments])
    found = capsys.readouterr()
    return code, found.out, found.err


def fails(capsys: pytest.CaptureFixture[str], code: int, words: str, *arguments: object) -> None:
    found, out, err = call(capsys, *arguments)
    lines = [line for line in err.splitlines() if line.startswith("seqloom: error: ")]
    assert (found, out, len(lines)) == (code, "", 1), err
    assert words in lines[0]
    assert "Traceback" not in err


def test_prepare_prints_a_report(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, "prepare", corpus, "--out", tmp_path / "o", "--vocab-size", 280, "--valid", 0.1)
    assert code == 0
    assert "documents   200" in out and "valid" in out and "fingerprint" in out
    code, out, _ = call(
        capsys, "prepare", corpus, "--out", tmp_path / "o", "--tokenizer", "word", "--json", "--overwrite"
    )
    report = json.loads(out)
    assert report["splits"]["train"]["documents"] == 200
    assert (tmp_path / "o/manifest.json").exists()


def test_a_small_text_has_a_small_vocabulary(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.txt").write_text("the cat sat on the mat\n" * 5)
    code, out, err = call(capsys, "prepare", tmp_path / "c.txt", "--out", tmp_path / "o", "--keep-duplicates")
    assert (code, err.count("the text is too small for more")) == (0, 1)
    assert "vocabulary 270" in out


@pytest.mark.parametrize("command", ["prepare", "check"])
def test_tables_are_not_read_as_text(tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str) -> None:
    (tmp_path / "a.csv").write_text("id,text\n1,the cat\n")
    out = ("--out", tmp_path / "o") if command == "prepare" else ()
    code, _, err = call(capsys, command, tmp_path / "a.csv", *out)
    assert code == 2 and "is a table" in err and ".jsonl" in err and not (tmp_path / "o").exists()


@pytest.mark.parametrize(("other", "remedy"), [("café", "two encodings"), ("cafe", "maybe --encoding cp1252")])
def test_an_encoding_is_not_advised_where_it_would_garble_other_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], other: str, remedy: str
) -> None:
    (tmp_path / "a.txt").write_bytes(f"{other} au lait\n".encode() + "café noir\n".encode("cp1252"))
    code, _, err = call(capsys, "prepare", tmp_path / "a.txt", "--out", tmp_path / "o")
    assert code == 3 and remedy in err and ("--encoding" in err) == (other == "cafe")


def test_check_prints_a_report(corpus: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open(corpus, "ab") as file:
        file.write(b"b\xffd\n" + corpus.read_bytes().splitlines()[0] + b"\n")
    code, out, _ = call(capsys, "check", corpus)
    assert code == 0
    assert f"bad UTF-8: 1 ({corpus}:201)" in out and "left out    1 documents, 3 characters (0.0" in out
    assert f"{corpus}:202 = {corpus}:1" in out
    code, out, _ = call(capsys, "check", corpus, "--json", "--valid", "0.1")
    assert json.loads(out)["leaks"]["checked"]
    fails(capsys, 2, "--task parse: available: lm", "check", corpus, "--task", "parse")
    fails(capsys, 3, "no example: ", "check", corpus, "--task", "tag")


def test_bad_input_is_one_line_with_the_right_code(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "o"
    bad = tmp_path / "bad.txt"
    fails(capsys, 3, "no such file", "prepare", tmp_path / "none.txt", "--out", out)
    fails(capsys, 3, "is a folder", "prepare", tmp_path, "--out", out)
    bad.write_bytes(b"")
    fails(capsys, 3, "empty", "prepare", bad, "--out", out)
    bad.write_bytes(b"\n \n")
    fails(capsys, 3, "no usable documents", "prepare", bad, "--out", out)
    bad.write_bytes(b"\x7fELF" + bytes(1000))
    fails(capsys, 3, "binary file at offset 0", "prepare", bad, "--out", out)
    bad.write_bytes(b"text" + bytes(1000))
    fails(capsys, 3, "first NUL byte at offset 4", "check", bad)
    bad.write_bytes(b"one \0 line")
    fails(capsys, 3, f"NUL byte at {bad}:1", "prepare", bad, "--out", out)
    fails(capsys, 2, "the data supports only", "prepare", corpus, "--out", out, "--vocab-size", 50_000)
    fails(capsys, 2, "at least 258", "prepare", corpus, "--out", out, "--vocab-size", 10)
    fails(capsys, 2, "--valid 7", "prepare", corpus, "--out", out, "--valid", 7)
    fails(capsys, 3, "no such file", "prepare", corpus, "--out", out, "--valid", tmp_path / "v.txt")
    fails(capsys, 4, "no such tokenizer", "prepare", corpus, "--out", out, "--from-tokenizer", tmp_path / "t.json")
    (tmp_path / "file").write_text("")
    fails(capsys, 5, "file", "prepare", corpus, "--out", tmp_path / "file/o")


def test_a_line_of_100_mb_does_not_fill_the_memory(tmp_path: Path) -> None:
    """As text it is cut into pieces and named; as jsonl it is left out, and a file of nothing else is bad data."""
    with open(tmp_path / "a.txt", "wb") as file:
        for i in range(100):
            file.write((b"word%d " % i) * (10**6 // 7))
    with open(tmp_path / "a.jsonl", "wb") as file:
        file.write(b'{"text": "')
        for _ in range(100):
            file.write(b"x" * 10**6)
        file.write(b'"}\n')
    script = (
        "import sys; from seqloom.cli import run; code = run(sys.argv[1:]);"
        "lines = open('/proc/self/status').read().splitlines();"
        "print(next(int(line.split()[1]) // 1024 for line in lines if line.startswith('VmHWM'))); sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, "check", str(tmp_path / "a.txt")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"too long, cut: 1 ({tmp_path / 'a.txt'}:1)" in done.stdout
    assert int(done.stdout.split()[-1]) < 600
    done = subprocess.run(
        [sys.executable, "-c", script, "check", str(tmp_path / "a.jsonl")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 3
    assert f"too long at {tmp_path / 'a.jsonl'}:1" in done.stderr
    assert int(done.stdout.split()[-1]) < 200


def test_a_full_disk(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path) -> None:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(files, "sync", full)
    fails(capsys, 5, "the disk is full", "prepare", corpus, "--out", tmp_path / "o", "--vocab-size", 280)


def test_an_unwritable_folder(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Path, *_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr(Path, "mkdir", refuse)  # rights do not stop a test that runs as root
    fails(capsys, 5, "no permission", "prepare", corpus, "--out", tmp_path / "o", "--vocab-size", 280)


def test_sigterm_stops_with_its_code_and_the_same_command_goes_on(
    corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from seqloom.batches import shards

    right = shards.ShardWriter._write
    monkeypatch.setattr(shards.ShardWriter, "_write", lambda self: (right(self), os.kill(os.getpid(), signal.SIGTERM)))
    arguments = ("prepare", corpus, "--out", tmp_path / "o", "--vocab-size", 280, "--valid", 0.1)
    fails(capsys, 75, "rerun the same command to resume", *arguments)
    monkeypatch.setattr(shards.ShardWriter, "_write", right)
    code, _, err = call(capsys, *arguments)
    assert code == 0 and "resuming an unfinished preparation" in err


def test_a_folder_in_use(corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with files.sole_owner(tmp_path / "o"):
        fails(capsys, 8, "in use by process", "prepare", corpus, "--out", tmp_path / "o", "--vocab-size", 280)


@pytest.mark.parametrize("command", ["prepare", "check"])
def test_help_has_examples(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = call(capsys, command, "--help")
    assert code == 0
    assert "Examples" in out and f"seqloom {command}" in out


def test_the_command_module_is_light() -> None:
    script = "import sys, seqloom.cli.data; print([m for m in ('torch', 'numpy', 'tokenizers', 'pyarrow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"

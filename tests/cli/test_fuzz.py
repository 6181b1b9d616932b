"""Thousands of damaged and made-up files through the command line: read, or refused in one line with the code of its kind."""

import contextlib
import gzip
import hashlib
import io
import json
import lzma
import random
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import seqloom.cli
from seqloom.batches.prepare import prepare
from seqloom.cli import run
from seqloom.errors import DataError, Interrupted, UsageError
from seqloom.evaluate.suites import agreement
from seqloom.runs.folder import BOUND
from seqloom.runs.training import pretrain
from seqloom.text import pairs as text_pairs
from seqloom.text.midi import write_midi
from seqloom.text.music import notes_of_frames
from seqloom.training.loop import Fit
from tests.mutation import damaged, mutated_json, mutated_tensors
from tests.training.material import pairs, sentences, write_text

COUNT = 2000  # files a parser
PATIENCE = 20  # seconds for one of them
LONGEST = 1500  # characters of a line
SMALL = [
    "model.dim=8",
    "model.num_heads=2",
    "model.num_layers=1",
    "budget={steps=2}",
    "batches.budget=64",
    "batches.length=16",
    "train.save_every=1",
]
Mutate = Callable[[bytes, random.Random], bytes]


class Parser(NamedTuple):
    """Files in a folder, the one that is mutated, and a command that reads it; OUT is where it may write."""

    folder: str
    file: str
    mutate: Mutate
    command: list[str]
    codes: tuple[int, ...]  # beside 0
    bound: bool = False  # half of the time weights.json agrees with it


def packed(pack: Callable[[bytes], bytes], unpack: Callable[[bytes], bytes]) -> Mutate:
    """Damaged as it lies there, or within."""
    return lambda data, rng: damaged(data, rng) if rng.random() < 0.6 else pack(damaged(unpack(data), rng))


def zstd() -> tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]:
    import zstandard

    return zstandard.ZstdCompressor().compress, zstandard.ZstdDecompressor().decompress


def jsonl(data: bytes, rng: random.Random) -> bytes:
    lines = data.split(b"\n")
    place = rng.randrange(len(lines) - 1)
    lines[place] = mutated_json(lines[place], rng)
    return b"\n".join(lines) if rng.random() < 0.7 else damaged(data, rng)


CHECK = ["check", "FILE"]
PAIRS = ["check", "--task", "translate", "FILE"]
IMPORT = ["import", "FOLDER", "--out", "OUT"]
SCORE = ["score", "FOLDER", "lines.txt", "--device", "cpu"]
RESUME = ["pretrain", "gpt2-tiny", "--data", "data", "--out", "FOLDER", "--resume", "--device", "cpu"]
RESUME += [part for setting in SMALL for part in ("--set", setting)]
TAGGED = ["train", "ernie-tiny", "--task", "entity-lm", "--train", "FILE", "--out", "OUT", "--from-tokenizer"]
TAGGED += ["data/tokenizer.json", "--set", "batches.budget=256", "--set", "batches.length=32", "--device", "cpu"]
BLIMP, AGREEMENT, LAMBADA = (
    ["evaluate", "run", "--suite", suite, "--suite-data", "FILE", "--device", "cpu"]
    for suite in ("blimp", "agreement", "lambada")
)
SONGS = ["prepare", "FILE", "--out", "OUT", "--workers", "1", "--tokenizer"]
PARSERS = {
    "txt": Parser("text", "a.txt", damaged, CHECK, (3,)),
    "txt.gz": Parser("text", "a.txt.gz", packed(lambda data: gzip.compress(data, 1), gzip.decompress), CHECK, (3,)),
    "txt.xz": Parser("text", "a.txt.xz", packed(lambda data: lzma.compress(data, preset=0), lzma.decompress), CHECK, (3,)),
    "txt.zst": Parser("text", "a.txt.zst", packed(*zstd()), CHECK, (3,)),
    "jsonl": Parser("text", "a.jsonl", jsonl, CHECK, (3,)),
    "parquet": Parser("text", "a.parquet", damaged, CHECK, (3,)),
    "pairs, aligned": Parser("text", "a.en", damaged, [*PAIRS, "text/a.xx"], (3,)),
    "pairs, tsv": Parser("text", "pairs.tsv", damaged, PAIRS, (3,)),
    "pairs, jsonl": Parser("text", "pairs.jsonl", jsonl, PAIRS, (3,)),
    "tagged, conll": Parser("text", "a.conll", damaged, TAGGED, (2, 3, 75)),
    "tagged, jsonl": Parser("text", "tagged.jsonl", jsonl, TAGGED, (2, 3, 75)),
    "songs, midi": Parser("text", "a.mid", damaged, [*SONGS, "events"], (3,)),
    "songs, midi.gz": Parser("text", "a.mid.gz", packed(gzip.compress, gzip.decompress), [*SONGS, "events"], (3,)),
    "songs, json": Parser("text", "songs.json", mutated_json, [*SONGS, "grid"], (3,)),
    "songs, json as events": Parser("text", "songs.json", mutated_json, [*SONGS, "events", "--transpose", "2"], (3,)),
    "suite, blimp": Parser("text", "blimp.jsonl", jsonl, BLIMP, (3,)),
    "suite, colorless": Parser("text", "colorless.tsv", damaged, AGREEMENT, (3,)),
    "suite, linzen": Parser("text", "linzen.tsv", damaged, AGREEMENT, (3,)),
    "suite, lambada": Parser("text", "a.txt", damaged, LAMBADA, (3,)),
    "suite, lambada jsonl": Parser("text", "a.jsonl", jsonl, LAMBADA, (3,)),
    "import config.json": Parser("theirs", "config.json", mutated_json, IMPORT, (4,)),
    "import model.safetensors": Parser("theirs", "model.safetensors", mutated_tensors, IMPORT, (4,)),
    "import tokenizer.json": Parser("theirs", "tokenizer.json", mutated_json, IMPORT, (4,)),
    "import tokenizer_config.json": Parser("older", "tokenizer_config.json", mutated_json, IMPORT, (4,)),
    "import vocab.txt": Parser("older", "vocab.txt", damaged, IMPORT, (4,)),
    "import index": Parser("sharded", "model.safetensors.index.json", mutated_json, IMPORT, (4,)),
    "run config.json": Parser("run", "config.json", mutated_json, SCORE, (4,), bound=True),
    "run weights.json": Parser("run", "weights.json", mutated_json, SCORE, (4,)),
    "run tokenizer.json": Parser("run", "tokenizer.json", mutated_json, SCORE, (4,), bound=True),
    "run backbone.safetensors": Parser("run", "backbone.safetensors", mutated_tensors, SCORE, (4, 7), bound=True),
    "run head.safetensors": Parser("masked", "head.safetensors", mutated_tensors, SCORE, (4, 7), bound=True),
    "checkpoint manifest.json": Parser("run", "checkpoints/step-2/manifest.json", mutated_json, RESUME, (4, 75)),
    "data manifest.json": Parser("data", "manifest.json", mutated_json, ["evaluate", "run", "--data", "FOLDER"], (3, 4)),
    "data docs.bin": Parser("data", "valid-00000.docs.bin", damaged, ["evaluate", "run", "--data", "FOLDER"], (3, 4)),
    "data tokens.bin": Parser("data", "valid-00000.tokens.bin", damaged, ["evaluate", "run", "--data", "FOLDER"], (3, 4)),
}  # fmt: skip


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """One of each, as it should be."""
    import pyarrow
    import pyarrow.parquet

    from tests.convert.material import save

    place = tmp_path_factory.mktemp("good")
    text = place / "text"
    text.mkdir()
    write_text(text / "a.txt", 60)
    plain, lines = (text / "a.txt").read_bytes(), sentences(30)
    for name, pack in (("gz", gzip.compress), ("xz", lzma.compress), ("zst", zstd()[0])):
        (text / f"a.txt.{name}").write_bytes(pack(plain))
    (text / "a.jsonl").write_text("".join(json.dumps({"text": line}) + "\n" for line in lines))
    pyarrow.parquet.write_table(pyarrow.table({"text": lines, "n": list(range(30))}), text / "a.parquet")
    frames = [[72, 67, 60, 48]] * 4 + [[71, 67, -1, 43]] * 4
    (text / "songs.json").write_text(json.dumps({"train": [frames, frames[:5]], "valid": [frames[1:]], "test": []}))
    (text / "a.mid").write_bytes(write_midi(notes_of_frames(frames * 4)))
    (text / "a.mid.gz").write_bytes(gzip.compress((text / "a.mid").read_bytes()))
    both = pairs(30)
    for side, name in enumerate(("a.en", "a.xx")):
        (text / name).write_text("".join(f"{pair[side]}\n" for pair in both))
    (text / "pairs.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in both))
    (text / "pairs.jsonl").write_text("".join(json.dumps({"source": a, "target": b}) + "\n" for a, b in both))
    tagged = [(line.split(), ["B-X", "I-X"] + ["O"] * (len(line.split()) - 2)) for line in lines]
    (text / "a.conll").write_text(
        "\n".join("".join(f"{w} {t}\n" for w, t in zip(*each, strict=True)) for each in tagged)
    )
    (text / "tagged.jsonl").write_text("".join(json.dumps({"words": w, "tags": t}) + "\n" for w, t in tagged))
    (text / "blimp.jsonl").write_text("".join(json.dumps({"good": a, "bad": b}) + "\n" for a, b in both))
    colorless, linzen = [agreement.COLORLESS], [agreement.LINZEN]
    for i, line in enumerate(lines):
        for form in ("correct", "wrong"):
            colorless.append(("N V", "1", str(i), f"{form}s", form, "original", "1", "2", f'"{line} <eos>"'))
        linzen.append(("2", line.split()[2], "wrong", "1", f"{line} <eos>"))
    for name, table in (("colorless.tsv", colorless), ("linzen.tsv", linzen)):
        (text / name).write_text("".join("\t".join(row) + "\n" for row in table))
    (place / "lines.txt").write_text("".join(f"{line}\n" for line in lines[:3]))
    model = save("bert", place / "theirs")
    shutil.copytree(place / "theirs", place / "older")
    words = sorted(
        json.loads((place / "older/tokenizer.json").read_text())["model"]["vocab"].items(), key=lambda w: w[1]
    )
    (place / "older/tokenizer.json").unlink()
    (place / "older/vocab.txt").write_text("".join(f"{word}\n" for word, _ in words))
    shutil.copytree(place / "theirs", place / "sharded", ignore=shutil.ignore_patterns("*.safetensors"))
    model.save_pretrained(place / "sharded", max_shard_size="40KB")
    options = {"keep_leaks": True, "keep_duplicates": True, "workers": 1, "valid": 0.3}
    prepare([text / "a.txt"], place / "data", tokenizer="wordpiece", vocab_size=80, min_count=1, **options)
    pretrain("gpt2-tiny", place / "data", place / "run", settings=SMALL, device="cpu")
    pretrain("roberta-tiny", place / "data", place / "masked", settings=SMALL, device="cpu")
    return place


def mutated_state(good: Path, place: Path, rng: random.Random) -> None:
    """The state of a run's newest checkpoint, whose manifest agrees with it."""
    folder = place / "run/checkpoints/step-2"
    state = mutated_json((good / "run/checkpoints/step-2/state.json").read_bytes(), rng)
    (folder / "state.json").write_bytes(state)
    manifest = json.loads((good / "run/checkpoints/step-2/manifest.json").read_text())
    manifest["sha256"]["state.json"] = hashlib.sha256(state).hexdigest()
    (folder / "manifest.json").write_text(json.dumps(manifest))


def refused_well(call: list[str]) -> str:
    """What is wrong with how a call ends that may find damaged files; nothing, as a rule."""
    err = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(err), impatient():
        code = run(call)
    said = err.getvalue()
    fine = code in (0, 4, 75) and "Traceback" not in said and "should not happen" not in said
    return "" if fine and said.count("seqloom: error: ") == (code != 0) else f"exit code {code}: {said[-600:]}"


def fuzz_states(count: int, good: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    def enough(*_: object) -> None:
        raise Interrupted("nothing is trained here")

    shutil.copytree(good, place, dirs_exist_ok=True)
    monkeypatch.chdir(place)
    monkeypatch.setattr(Fit, "steps", enough)
    found = []
    for i in range(count):
        shutil.rmtree(place / "run")
        shutil.copytree(good / "run", place / "run")
        mutated_state(good, place, random.Random(f"state {i}"))
        answer = refused_well([part.replace("FOLDER", "run") for part in RESUME])
        found += [f"{i}: {answer}"] if answer else []
    return found


@pytest.mark.parametrize("count", [12, pytest.param(COUNT, marks=pytest.mark.long)])
def test_states_of_checkpoints(count, good, tmp_path, monkeypatch):
    assert not fuzz_states(count, good, tmp_path, monkeypatch)


@pytest.mark.parametrize("count", [8, pytest.param(COUNT, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", ["prepare.json", "prepare.plan.bin", "prepare.costs.json"])
def test_state_files_of_a_preparation(name, count, good, tmp_path, monkeypatch):
    """Refused, or gone on with; what it ends with is what an unbroken one ends with."""
    monkeypatch.setattr("seqloom.batches.prepare._Preparation._encode", lambda *_: 1 / 0)
    call = ["prepare", str(good / "text/a.txt"), "--tokenizer", "wordpiece", "--vocab-size", "80", "--keep-duplicates"]
    call += ["--valid", "0.3", "--keep-leaks", "--workers", "1"]
    assert run([*call, "--out", str(tmp_path / "begun")]) == 1
    monkeypatch.undo()
    assert run([*call, "--out", str(tmp_path / "whole")]) == 0
    whole = (tmp_path / "whole/manifest.json").read_bytes()
    found = []
    for i in range(count):
        rng, out = random.Random(f"{name} {i}"), tmp_path / "out"
        shutil.copytree(tmp_path / "begun", out)
        mutate = mutated_json if name.endswith(".json") else damaged
        (out / name).write_bytes(mutate((tmp_path / "begun" / name).read_bytes(), rng))
        answer = refused_well([*call, "--out", str(out)])
        if (out / "manifest.json").exists() and (out / "manifest.json").read_bytes() != whole:
            answer += " another manifest"
        found += [f"{i}: {answer}"] if answer else []
        shutil.rmtree(out)
    assert not found, found[:3]


def listing(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file() and path.name != "lock"
    }


@contextlib.contextmanager
def impatient() -> Iterator[None]:
    def late(*_: object) -> None:
        raise BaseExceptionGroup("", [TimeoutError(f"more than {PATIENCE} s")])  # nothing on the way catches it

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(PATIENCE)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def wrong(parser: Parser, good: Path, place: Path, rng: random.Random) -> str:
    """What is wrong with the answer to one mutated file; nothing, as a rule."""
    folder, path = place / parser.folder, place / parser.folder / parser.file
    path.write_bytes(parser.mutate((good / parser.folder / parser.file).read_bytes(), rng))
    if parser.bound and rng.random() < 0.5:
        agree = {name: hashlib.sha256((folder / name).read_bytes()).hexdigest() for name in BOUND}
        (folder / "weights.json").write_text(json.dumps(agree))
    before = listing(place)
    names = {"FILE": str(path), "FOLDER": str(folder), "OUT": str(place / "out")}
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), impatient():
        code = run([names.get(part, part) for part in parser.command])
    left = (place / "out").exists() and code in (2, 3, 4)
    shutil.rmtree(place / "out", ignore_errors=True)
    changed = {name for name, _ in set(listing(place).items()) ^ set(before.items())}
    if parser.command is RESUME:  # it goes on in this folder
        changed = {name for name in changed if not name.startswith(f"{parser.folder}/")}
        shutil.rmtree(folder)
        shutil.copytree(good / parser.folder, folder)
    for name in {parser.file, *(("weights.json",) if parser.bound else ())}:
        shutil.copy2(good / parser.folder / name, folder / name)
    said = err.getvalue()
    failures = [line for line in said.splitlines() if line.startswith("seqloom: error: ")]
    if code not in (0, *parser.codes):
        return f"exit code {code}: {failures}"
    if "Traceback" in said or "should not happen" in said:
        return said[-2000:]
    if len(failures) != (code != 0) or (code and said.splitlines()[-1] != failures[0]):
        return f"not one line: {said[-500:]!r}"
    if failures and len(failures[0]) > LONGEST:
        return f"a line of {len(failures[0])} characters: {failures[0][:300]}"
    if left or changed:
        return f"written: {'out' if left else sorted(changed)[:4]}"
    return ""


def fuzz(name: str, count: int, good: Path, place: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was wrong, with the number that makes the same file again."""

    def enough(*_: object) -> None:
        raise Interrupted("nothing is trained here")

    shutil.copytree(good, place, dirs_exist_ok=True)
    monkeypatch.chdir(place)
    monkeypatch.setattr(Fit, "steps", enough)
    monkeypatch.setattr(seqloom.progress, "QUIET", True)
    answers = [(i, wrong(PARSERS[name], good, place, random.Random(f"{name} {i}"))) for i in range(count)]
    return [f"{name} {i}: {answer}" for i, answer in answers if answer]


@pytest.mark.parametrize("name", PARSERS)
def test_a_few_mutated_files(name, good, tmp_path, monkeypatch):
    assert not fuzz(name, 6, good, tmp_path, monkeypatch)


@pytest.mark.long
@pytest.mark.parametrize("name", PARSERS)
def test_thousands_of_mutated_files(name, good, tmp_path, monkeypatch):
    found = fuzz(name, COUNT, good, tmp_path, monkeypatch)
    assert not found, "\n".join(found[:10])


@pytest.mark.parametrize(
    ("error", "noticed"),
    [
        (KeyError("x"), "exit code 1"),  # what becomes of a bug
        (UsageError("a wrong call"), "exit code 2"),  # the code of another kind
        ("said twice", "not one line"),
        (None, "written"),
    ],
)
def test_a_wrong_answer_is_noticed(error, noticed, good, tmp_path, monkeypatch):
    def planted(paths: Any) -> dict[str, Any]:
        if isinstance(error, Exception):
            raise error
        if error == "said twice":
            print("seqloom: error: refused", file=sys.stderr)
        else:
            Path("elsewhere").write_text("x")
        raise DataError("refused")

    monkeypatch.setattr(text_pairs, "survey_pairs", planted)
    (found,) = fuzz("pairs, tsv", 1, good, tmp_path, monkeypatch)
    assert noticed in found

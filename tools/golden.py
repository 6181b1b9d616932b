"""Golden records: what tiny runs compute and write, so that a change that should change no number can be shown to change none.

    python tools/golden.py record OUT.json [--only NAME ...]      run the tiny jobs with the seqloom that is on the path
    python tools/golden.py compare COMMIT COMMIT [--only NAME ...] run two commits on this machine and compare them bit for bit
    python tools/golden.py losses                                 write tests/golden_losses.json anew, which the tests hold

A record has, for each job: the loss of every step, a hash of every weight, the figures and keys of every `--json`, the files of
the run folder, and the names, shapes and hashes of an exported folder. Two commits on one machine must agree in all of it, apart
from versions, times and what tools/golden_renames.json lists:

    "renamed": {"old key": "new key"}    the later commit has the new key, or both with one value (old ones stay for a version)
    "added": {"key": value}              a key that the later commit alone has, with the value that means "as before"
    "grown": ["key"]                     a list that has more than before, in the same order
    "values": {"old text": "new text"}   a whole value, or the name of a file, that is worded anew

The text is made up here, from a fixed seed, and nothing is read from the project but the installed package, so that one script
can run old and new commits.
"""

import argparse
import contextlib
import hashlib
import io
import json
import os
import random
import subprocess
import sys
import tempfile
import tomllib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
LOSSES = ROOT / "tests" / "golden_losses.json"
RENAMES = ROOT / "tools" / "golden_renames.json"
STEPS = [
    "--set",
    "budget={steps=5}",
    "--set",
    "train.log_every=1",
    "--set",
    "train.eval_every=5",
    "--set",
    "valid.limit=400",
]
STARTS = ("bert", "lstm", "transformer", "bahdanau")  # runs that other jobs begin with, or ask
STREAMS = ["--set", "batches.streams=4", "--set", "batches.length=16"]
PACKED = ["--set", "batches.budget=128", "--set", "batches.length=32"]
# what differs from machine to machine, from one moment to the next, or with the version: parts of names of keys
MOVING = {
    "second", "seconds", "joules", "energy", "co2", "kwh", "memory", "mfu", "folder", "files", "format", "needs", "versions",
    "run", "config.json", "whole", "disk", "python", "torch", "git",
    "seqloom",
}  # fmt: skip

NOUNS = ["cat", "dog", "bird", "child", "king", "river", "house", "queen", "friend", "stone"]
VERBS = ["sees", "likes", "finds", "hears", "follows", "forgets"]
WORDS = ["small", "old", "quiet", "green", "today", "often", "never", "slowly"]


def sentence(rng: random.Random) -> str:
    middle = " ".join(rng.choices(WORDS, k=rng.randint(0, 3)))
    return f"The {middle} {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)}.".replace("  ", " ")


def write_text(folder: Path) -> None:
    rng = random.Random(0)
    documents = [" ".join(sentence(rng) for _ in range(rng.randint(2, 9))) for _ in range(300)]
    (folder / "text.txt").write_text("\n".join(documents) + "\n")
    for split, count in (("train", 120), ("valid", 16)):
        sources = [sentence(rng) for _ in range(count)]
        (folder / f"{split}.en").write_text("\n".join(sources) + "\n")
        (folder / f"{split}.xx").write_text("\n".join(" ".join(s.upper().split()[::-1]) for s in sources) + "\n")
        for task in ("classify", "pair", "regress", "choose"):
            rows = [json.dumps(labelled(task, rng)) for _ in range(count)]
            (folder / f"{split}.{task}.jsonl").write_text("\n".join(rows) + "\n")
        (folder / f"{split}.tag.conll").write_text("\n".join(tagged(rng) for _ in range(count)))
        (folder / f"{split}.span.json").write_text(json.dumps(questions(rng, count)))


def labelled(task: str, rng: random.Random) -> dict[str, Any]:
    text, other = sentence(rng), sentence(rng)
    if task == "classify":
        return {"text": text, "label": "animal" if any(n in text for n in ("cat", "dog", "bird")) else "other"}
    if task == "pair":
        return {
            "text": text,
            "text2": text if (same := rng.random() < 0.5) else other,
            "label": "same" if same else "else",
        }
    if task == "regress":
        return {"text": text, "label": len(text) / 10}
    return {"text": text, "choices": [text, other], "label": 0}


def tagged(rng: random.Random) -> str:
    return "".join(f"{w} {'B-THING' if w.strip('.') in NOUNS else 'O'}\n" for w in sentence(rng).split())


def questions(rng: random.Random, count: int) -> dict[str, Any]:
    paragraphs = []
    for i in range(count):
        context = sentence(rng)
        answer = context.split()[-1].strip(".")
        spot = {"text": answer, "answer_start": context.rindex(answer)}
        paragraphs.append({"context": context, "qas": [{"id": str(i), "question": "what is last?", "answers": [spot]}]})
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def jobs(place: Path) -> dict[str, list[list[str]]]:
    """Every body, objective and kind of task: the commands of each, {out} for its own folder. Those that print JSON are kept."""
    text, words = str(place / "data"), str(place / "words")
    found: dict[str, list[list[str]]] = {}
    measured = ["evaluate", "{out}", "--data", text, "--json"]
    scored = ["score", "{out}", str(place / "train.en"), "--json"]
    for model in ("nnlm", "rnn", "irnn", "jordan", "gru", "lstm"):
        found[model] = [["pretrain", f"{model}-tiny", "--data", text, *STREAMS, *STEPS], measured, scored]
    found["ngram"] = [["pretrain", "ngram-tiny", "--data", text], measured]
    found["lstm-carried"] = [
        ["pretrain", "lstm-tiny", "--data", text, *STREAMS, *STEPS, "--set", "batches.reset=false"], measured
    ]  # fmt: skip
    found["lstm-scheduled"] = [
        ["pretrain", "lstm-tiny", "--data", text, *STREAMS, *STEPS, "--set", 'objective={name="scheduled-sampling"}'], measured
    ]  # fmt: skip
    found["awd-lstm"] = [["pretrain", "awd-lstm-tiny", "--data", text, *STREAMS, *STEPS], measured]
    found["big-lstm"] = [["pretrain", "big-lstm-tiny", "--data", words, *STREAMS, *STEPS]]
    for model in ("gpt", "gpt2"):
        found[model] = [
            ["pretrain", f"{model}-tiny", "--data", text, *PACKED, *STEPS],
            measured,
            scored,
            ["export", "{out}"],
        ]
    for model in ("bert", "roberta", "albert", "electra", "ernie", "xlm-r"):
        found[model] = [["pretrain", f"{model}-tiny", "--data", text, *PACKED, *STEPS], measured]
        found[model] += [] if model == "ernie" else [["export", "{out}"]]
    sides = [str(place / f"{split}.{side}") for split in ("train", "valid") for side in ("en", "xx")]
    pairs = ["--train", *sides[:2], "--valid", *sides[2:], "--tokenizer", "word"]
    for model in ("seq2seq", "bahdanau", "luong", "gnmt", "transformer"):
        train = ["train", f"{model}-tiny", "--task", "translate", *pairs, *STEPS, "--set", "batches.budget=256"]
        found[model] = [train, ["evaluate", "{out}", "--test", *sides[2:], "--json"]]
        found[model] += [["export", "{out}"]] if model == "transformer" else []
    for task in ("classify", "pair", "regress", "choose", "tag", "span"):
        ending = {"tag": "conll", "span": "json"}.get(task, "jsonl")
        train, valid = (str(place / f"{split}.{task}.{ending}") for split in ("train", "valid"))
        given = ["--task", task, "--train", train, "--valid", valid, *STEPS]
        found[f"bert-{task}"] = [["finetune", "{bert}", *given], *told(valid), ["export", "{out}"]]
        if task in ("classify", "tag"):
            found[f"lstm-{task}"] = [["finetune", "{lstm}", "--how", "features", *given], *told(valid)]
    train, valid = (str(place / f"{split}.tag.conll") for split in ("train", "valid"))
    given = ["--train", train, "--valid", valid, "--tokenizer", "word", *STEPS]
    found["bilstm-cnn"] = [
        ["train", "bilstm-cnn-tiny", "--task", "tag", *given, "--set", "task.crf=true"],
        *told(valid),
    ]
    train, valid = (str(place / f"{split}.classify.jsonl") for split in ("train", "valid"))
    given = ["--train", train, "--valid", valid, "--tokenizer", "word", *STEPS]
    found["text-cnn"] = [["train", "text-cnn-tiny", "--task", "classify", *given], *told(valid)]
    objective = ["--set", 'objective={name="masked"}']
    found["bert-masked"] = [["pretrain", "bert-tiny", "--data", text, *PACKED, *STEPS, *objective], measured]
    found["xlm"] = [["pretrain", "xlm-tiny", "--data", text, str(place / "other"), *PACKED, *STEPS]]
    given = [*pairs[:-2], "--tokenizer", "wordpiece", *STEPS, *PACKED]
    found["xlm-translation-lm"] = [["train", "xlm-tiny", "--task", "translation-lm", *given]]
    given = [
        "--train",
        str(place / "train.tag.conll"),
        "--valid",
        str(place / "valid.tag.conll"),
        "--tokenizer",
        "wordpiece",
    ]
    found["ernie-entity-lm"] = [["train", "ernie-tiny", "--task", "entity-lm", *given, *STEPS, *PACKED]]
    found["commands"] = other_commands(place)
    return found


def told(file: str) -> list[list[str]]:
    return [["evaluate", "{out}", "--test", file, "--json"], ["predict", "{out}", file]]


def other_commands(place: Path) -> list[list[str]]:
    """Those that train nothing: the keys and figures of their JSON, or what they print."""
    rows, tags, text = (str(place / name) for name in ("valid.classify.jsonl", "valid.tag.conll", "text.txt"))
    sides, lines = [str(place / f"valid.{side}") for side in ("en", "xx")], str(place / "valid.en")
    return [
        ["check", text, "--json"],
        ["check", rows, "--task", "classify", "--json"],
        ["prepare", text, "--out", str(place / "again"), "--valid", "0.1", "--tokenizer", "bpe", "--json"],
        ["models", "--json"],
        ["models", "bert", "--json"],
        ["recipes", "lstm-tiny", "--toml"],
        ["doctor", "--json"],
        ["metric", "translate", *sides, "--json"],
        ["metric", "classify", rows, rows, "--json"],
        ["metric", "tag", tags, tags, "--json"],
        ["baseline", "--task", "classify", "--train", str(place / "train.classify.jsonl"), "--valid", rows, "--json"],
        ["generate", "{lstm}", "--prompt", "The cat", "--max-new", "12", "--seed", "1"],
        ["generate", "{lstm}", "--prompt", "The cat", "--max-new", "12", "--beam", "3"],
        ["fill", "{bert}", "The [MASK] sees the dog."],
        ["score", "{bert}", lines, "--json"],
        ["embed", "{bert}", lines, "--out", str(place / "vectors.jsonl")],
        ["translate", "{transformer}", lines, "--beam", "2"],
        ["translate", "{bahdanau}", lines, "--align"],
    ]


def call(command: list[str]) -> str:
    """One command in this process; what it prints."""
    from seqloom.cli import run

    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as said:
        code = run(command)
    if code:
        raise SystemExit(f"{' '.join(command)}: exit code {code}: {said.getvalue()[-1000:]}")
    return printed.getvalue()


def tensors(path: Path) -> dict[str, str]:
    from safetensors.numpy import load_file

    return {
        name: f"{array.dtype} {list(array.shape)} {hashlib.sha256(array.tobytes()).hexdigest()[:16]}"
        for name, array in sorted(load_file(path).items())
    }


def steady(value: Any) -> Any:
    """Without what changes from call to call; files that belong to a moment are named only."""
    if isinstance(value, dict):
        return {key: None if MOVING & {key, *key.split("_")} else steady(inner) for key, inner in sorted(value.items())}
    return [steady(part) for part in value] if isinstance(value, list) else value


def record_of(name: str, commands: list[list[str]], place: Path) -> dict[str, Any]:
    out, exported = place / "runs" / name, place / "exported" / name
    folders = {"{out}": str(out)} | {f"{{{start}}}": str(place / "runs" / start) for start in STARTS}
    found: dict[str, Any] = {}
    for command in commands:
        command = [folders.get(part, part) for part in command]
        if command[0] == "export":
            call([*command, "--out", str(exported)])
            found["exported"] = {
                path.name: tensors(path)
                if path.suffix == ".safetensors"
                else hashlib.sha256(path.read_bytes()).hexdigest()
                for path in sorted(exported.iterdir())
                if path.name != "seqloom.json"
            }
        elif command[0] in ("pretrain", "train", "finetune"):
            call([*command, "--out", str(out), "--device", "cpu"])
        else:
            printed = call(command).replace(str(place), "PLACE")
            title = " ".join(part for part in command if "/" not in part) if name == "commands" else command[0]
            if command[0] == "embed":
                found[title] = Path(command[-1]).read_text().splitlines()[:5]
            elif command[0] == "predict":
                found[title] = [steady(json.loads(line)) for line in printed.splitlines()[:20]]
            else:
                found[title] = [steady(json.loads(printed))] if "--json" in command else read_toml(printed)
    return found if name == "commands" else found | folder_record(out)


def read_toml(printed: str) -> Any:
    """A recipe by its keys, so that a new one is known by its default; other text as it is."""
    try:
        return steady(tomllib.loads(printed))
    except tomllib.TOMLDecodeError:
        return printed


def with_lists(config: dict[str, Any]) -> dict[str, Any]:
    """What a recipe learns as a list, as it is stored since 0.2."""
    recipe = config["recipe"]
    for one, several in (("objective", "objectives"), ("task", "tasks")):
        if one in recipe:
            value = recipe.pop(one)
            recipe[several] = [] if value is None else [value]
    return config


def folder_record(out: Path) -> dict[str, Any]:
    """What a training has left."""
    found: dict[str, Any] = {}
    lines = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    found["losses"] = [line["loss"] for line in lines if "loss" in line and "lr" in line]
    found["weights"] = {path.name: tensors(path) for path in sorted(out.glob("*.safetensors"))}
    found["metrics"] = steady(json.loads((out / "metrics.json").read_text()))
    found["config"] = steady(with_lists(json.loads((out / "config.json").read_text())))
    found["folder"] = sorted(
        str(path.relative_to(out)) for path in out.rglob("*") if path.is_file() and "checkpoints" not in path.parts
    )
    return found


def record(only: list[str], training: bool = False) -> dict[str, Any]:
    """training: the losses alone, without what else is asked of a run."""
    import torch

    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        write_text(place)
        text = str(place / "text.txt")
        for name, options in (
            ("data", ["--tokenizer", "wordpiece"]),
            ("words", ["--tokenizer", "word"]),
            ("other", ["--from-tokenizer", str(place / "data" / "tokenizer.json")]),
        ):
            call(["prepare", text, "--out", str(place / name), "--valid", "0.1", "--keep-duplicates", *options])
        known = jobs(place)
        wanted = [name for name in known if not only or name in only or name in needed(only)]
        found = {}
        for name in wanted:
            commands = known[name][:1] if training else known[name]
            found[name] = record_of(name, commands, place)
            losses = found[name].get("losses", [])
            print(f"{name}: {losses[:1]} … {losses[-1:]}", file=sys.stderr, flush=True)
        return found


def losses_of(found: dict[str, Any]) -> dict[str, list[float]]:
    """Five of every job; what is counted has one, of the held-out text."""
    return {name: job["losses"] or [job["metrics"]["valid_loss"]] for name, job in found.items() if name != "commands"}


def needed(only: list[str]) -> set[str]:
    """Runs that others begin with."""
    return {start for start in STARTS for name in only if name.startswith(f"{start}-") or name == "commands"}


@dataclass(frozen=True)
class Table:
    """tools/golden_renames.json: what may differ between two commits, and how."""

    renamed: dict[str, str]  # old key: new key; the old one may still be there, with the same value
    added: dict[str, Any]  # new key: its value, which means "as before"
    values: dict[str, str]  # old text: new text, of whole values and of names in lists
    grown: list[str] = field(default_factory=list)  # keys of lists that have more than before

    @classmethod
    def read(cls) -> "Table":
        return cls(**json.loads(RENAMES.read_text()))


def differences(a: Any, b: Any, table: Table, where: str = "", near: float = 0.0, more: bool = False) -> list[str]:
    """What is not the same in a later record b as in an earlier one a. near: by how much numbers may differ, in relation to
    their size, or at all below one; more: whether b may have keys beside."""
    if isinstance(a, dict) and isinstance(b, dict):
        found = []
        for key, value in a.items():
            names = [name for name in dict.fromkeys((table.renamed.get(key, key), key)) if name in b]
            found += [] if names else [f"{where}/{key}: {str(value)[:120]} | absent"]
            found += [
                line for name in names for line in differences(value, b[name], table, f"{where}/{name}", near, more)
            ]
        known = {*a, *(table.renamed.get(key) for key in a)}
        for key in () if more else b.keys() - known:
            # a field in the schema of a config is as before by its default
            value = b[key].get("default", b[key]) if isinstance(b[key], dict) else b[key]
            if key not in table.added or table.added[key] != value:
                found.append(f"{where}/{key}: absent | {str(b[key])[:120]}")
        return found
    if isinstance(a, list) and isinstance(b, list) and where.rpartition("/")[2] in table.grown:
        b = [part for part in b if part in a]
    if isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        pairs = enumerate(zip(a, b, strict=True))
        return [line for i, (x, y) in pairs for line in differences(x, y, table, f"{where}/{i}", near, more)]
    if isinstance(a, str):
        same = b in (a, table.values.get(a, a))
    elif near and type(a) in (int, float) and type(b) in (int, float):
        same = abs(a - b) <= 1.01 * near * max(abs(a), 1.0)  # a step of the sixth decimal place, in binary
    else:
        same = a == b
    return [] if same else [f"{where}: {str(a)[:120]} | {str(b)[:120]}"]


def record_commit(commit: str, only: list[str], place: Path) -> dict[str, Any]:
    place.mkdir()
    tree, out = place / "tree", place / "record.json"
    subprocess.run(["git", "worktree", "add", "--detach", "--quiet", str(tree), commit], cwd=ROOT, check=True)
    try:
        command = [sys.executable, __file__, "record", str(out), *(["--only", *only] if only else [])]
        environment = os.environ | {"PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=place, env=environment, check=True)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    return json.loads(out.read_text())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    recording, comparing = commands.add_parser("record"), commands.add_parser("compare")
    commands.add_parser("losses")
    recording.add_argument("out", type=Path)
    comparing.add_argument("commits", nargs=2)
    for each in (recording, comparing):
        each.add_argument("--only", nargs="+", default=[], metavar="NAME")
    options = parser.parse_args()
    if options.command == "losses":
        LOSSES.write_text(json.dumps(losses_of(record([], training=True)), indent=1) + "\n")
        return
    if options.command == "record":
        options.out.write_text(json.dumps(record(options.only), indent=1) + "\n")
        return
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        places = [Path(folder) / side for side in ("before", "after")]  # side by side, a process and a core each
        before, after = pool.map(record_commit, options.commits, [options.only] * 2, places)
    found = differences(before, after, Table.read())
    print("\n".join(found[:200]) or f"{len(after)} jobs: equal")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()

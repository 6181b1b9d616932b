"""Folders of a release, kept in the tests: later versions must load, evaluate, resume and export them with the same numbers.

    git worktree add /tmp/release aea203b
    PYTHONPATH=/tmp/release python tools/make_release_folders.py tests/release_0_1

makes tests/release_0_1 anew with the seqloom on the path: that of the release (0.1 is commit aea203b), never a later one.
Everything is made in a folder of a fixed name, because a comparison records where its files are. `COMMANDS` are run on the
folders, now and by the tests; what they print now is kept in expected.json.
"""

import contextlib
import io
import json
import random
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from golden import sentence, tagged

PLACE = Path("/tmp/seqloom-release")
LONG = "budget={steps=8}"
SHARED = [
    "name='tiny'",
    LONG,
    "train.log_every=1",
    "train.eval_every=4",
    "train.save_every=4",
    "train.keep=100",
    "valid.limit=300",
]
ATTENTIVE = ["model.dim=8", "model.num_layers=1", "model.num_heads=2", "model.max_len=32"]
ATTENTIVE += ["batches.budget=128", "batches.length=32"]
SIZES = {
    "gpt2": ATTENTIVE,
    "lstm": ["model.dim=8", "model.num_layers=1", "batches.streams=4", "batches.length=16"],
    "bert": ATTENTIVE,
    "transformer": ["model.dim=8", "model.num_heads=2", "model.max_len=32", "batches.budget=256", "batches.length=32"],
}  # fmt: skip
KEPT_STEP = 4  # of every run the checkpoint that it is resumed from

PLAN = """
name = "release"
seeds = 1
pairs = 4
settings = ["train.save_every=4", "train.keep=100", "train.log_every=1", "valid.limit=300"]

[text]
files = ["text.txt"]
tokenizer = "wordpiece"
vocab_size = 120
valid = 0.1
test = 0.1

[budget]
tokens = 1024

[[rows]]
recipe = "lstm-tiny"
settings = {lstm}

[[rows]]
recipe = "gpt2-tiny"
settings = {gpt2}

[[tasks]]
task = "classify"
train = ["train.jsonl"]
valid = ["valid.jsonl"]
test = ["valid.jsonl"]
settings = ["budget={{steps=2}}", "batches.budget=128"]
"""


def options(name: str) -> list[str]:
    return [part for setting in [*SIZES.get(name, []), *SHARED[1:]] for part in ("--set", setting)]


# how each run is trained, and resumed: the same command with --resume
TRAIN = {
    "gpt2": ["pretrain", "gpt2-tiny", "--data", "prepared", *options("gpt2")],
    "lstm": ["pretrain", "lstm-tiny", "--data", "prepared", *options("lstm")],
    "bert": ["pretrain", "bert-tiny", "--data", "prepared", *options("bert")],
    "classify": ["finetune", "bert", "--task", "classify", "--train", "train.jsonl", "--valid", "valid.jsonl", *options("")],
    "tag": ["finetune", "lstm", "--task", "tag", "--train", "train.conll", "--valid", "valid.conll", *options("")],
    "translate": [
        "train", "transformer-tiny", "--task", "translate", "--train", "train.en", "train.xx", "--valid", "valid.en", "valid.xx",
        "--tokenizer", "word", *options("transformer"),
    ],
}  # fmt: skip
# what every later version must print as the release did; those with --out export
COMMANDS = {
    "gpt2 evaluated": ["evaluate", "gpt2", "--data", "prepared", "--json"],
    "gpt2 scores": ["score", "gpt2", "lines.txt", "--json"],
    "gpt2 writes": ["generate", "gpt2", "--prompt", "The cat", "--max-new", "12", "--seed", "3"],
    "gpt2 exported": ["export", "gpt2"],
    "lstm evaluated": ["evaluate", "lstm", "--data", "prepared", "--json"],
    "lstm scores": ["score", "lstm", "lines.txt", "--json"],
    "lstm writes": ["generate", "lstm", "--prompt", "The cat", "--max-new", "12", "--beam", "3"],
    "bert evaluated": ["evaluate", "bert", "--data", "prepared", "--json"],
    "bert scores": ["score", "bert", "lines.txt", "--json"],
    "bert fills": ["fill", "bert", "The [MASK] sees the dog."],
    "bert exported": ["export", "bert"],
    "classify evaluated": ["evaluate", "classify", "--test", "valid.jsonl", "--json"],
    "classify predicts": ["predict", "classify", "valid.jsonl"],
    "classify exported": ["export", "classify"],
    "tag evaluated": ["evaluate", "tag", "--test", "valid.conll", "--json"],
    "tag predicts": ["predict", "tag", "valid.conll"],
    "translate evaluated": ["evaluate", "translate", "--test", "valid.en", "valid.xx", "--json"],
    "translate writes": ["translate", "translate", "valid.en", "--beam", "2"],
    "translate exported": ["export", "translate"],
}


def write_text() -> None:
    rng = random.Random(1)
    documents = [" ".join(sentence(rng) for _ in range(rng.randint(2, 6))) for _ in range(120)]
    Path("text.txt").write_text("\n".join(documents) + "\n")
    Path("lines.txt").write_text("\n".join(sentence(rng) for _ in range(3)) + "\n")
    for split, count in (("train", 40), ("valid", 8)):
        sources = [sentence(rng) for _ in range(count)]
        Path(f"{split}.en").write_text("\n".join(sources) + "\n")
        Path(f"{split}.xx").write_text("\n".join(" ".join(s.upper().split()[::-1]) for s in sources) + "\n")
        rows = [
            {"text": s, "label": "animal" if any(n in s for n in ("cat", "dog", "bird")) else "other"} for s in sources
        ]
        Path(f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        Path(f"{split}.conll").write_text("\n".join(tagged(rng) for _ in range(count)))
    Path("plan.toml").write_text(PLAN.format(lstm=json.dumps(SIZES["lstm"]), gpt2=json.dumps(SIZES["gpt2"])).lstrip())


def call(command: list[str]) -> str:
    from seqloom.cli import run

    with contextlib.redirect_stdout(io.StringIO()) as printed, contextlib.redirect_stderr(io.StringIO()) as said:
        code = run(command)
    if code:
        raise SystemExit(f"{' '.join(command)}: exit code {code}: {said.getvalue()[-1000:]}")
    return printed.getvalue()


def keep_checkpoint(run: Path, step: int) -> None:
    """As the folder of a run of which later checkpoints were lost."""
    for place in (run / "checkpoints").glob("step-*"):
        if place.name != f"step-{step}":
            shutil.rmtree(place)
    (run / "checkpoints" / "latest").write_text(f"step-{step}\n")


def cut_short(run: Path) -> None:
    """As a run that was killed after its last checkpoint."""
    for name in ("backbone.safetensors", "head.safetensors", "weights.json", "metrics.json", "card.md", "report.html"):
        (run / name).unlink(missing_ok=True)


def exported(folder: Path) -> dict[str, object]:
    from golden import tensors

    return {path.name: tensors(path) if path.suffix == ".safetensors" else None for path in sorted(folder.iterdir())}


def answer(command: list[str], out: Path) -> object:
    """What a command prints, or the files that it exports."""
    if command[0] == "export":
        call([*command, "--out", str(out)])
        return exported(out)
    printed = call(command)
    if "--json" in command:
        return json.loads(printed)
    return [json.loads(line) for line in printed.splitlines()] if command[0] == "predict" else printed


def make() -> dict[str, object]:
    write_text()
    prepare = [
        "prepare",
        "text.txt",
        "--out",
        "prepared",
        "--valid",
        "0.1",
        "--tokenizer",
        "wordpiece",
        "--vocab-size",
        "120",
    ]
    call([*prepare, "--keep-duplicates"])
    for name, command in TRAIN.items():
        call([*command, "--out", name, "--device", "cpu"])
        keep_checkpoint(Path(name), KEPT_STEP)
    found: dict[str, object] = {
        name: answer(command, Path("exported") / name.split()[0]) for name, command in COMMANDS.items()
    }
    found |= {f"{name} trained": json.loads((Path(name) / "metrics.json").read_text()) for name in TRAIN}
    call(["compare", "plan.toml", "--out", "comparison"])
    found["compared"] = json.loads(Path("comparison/comparison.json").read_text())
    unfinished = Path("comparison/runs/gpt2-tiny/seed-0")
    for run in sorted(Path("comparison").glob("*/**/seed-*/")):
        if run == unfinished:
            keep_checkpoint(run, KEPT_STEP)
            cut_short(run)
        else:
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
    shutil.rmtree("comparison/results/gpt2-tiny")
    shutil.rmtree("comparison/tasks/classify/gpt2-tiny")
    for name in ("report.html", "comparison.json", "table.csv", "logs"):
        path = Path("comparison") / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    for path in (*Path("comparison").glob("*.svg"), *Path().rglob("lock"), *Path().rglob("report.html")):
        path.unlink()
    shutil.rmtree("exported")
    return found


def main() -> None:
    target = Path(sys.argv[1]).absolute()
    shutil.rmtree(PLACE, ignore_errors=True)
    PLACE.mkdir()
    with contextlib.chdir(PLACE):
        found = make()
        Path("expected.json").write_text(json.dumps(found, indent=1) + "\n")
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(PLACE, target)
    shutil.rmtree(PLACE)


if __name__ == "__main__":
    main()

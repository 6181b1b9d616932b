"""Named entities alone and beside other tasks: chunks, parts of speech, both, and unlabelled text, with all labels and with 300.

    python benchmarks/several_tasks.py TASKS CONLL2000 WIKINEWS OUT [--seeds 3] [--jobs 2] [--minutes 60] [--rows NAME ...]

TASKS: a folder as `tasks_data.py` writes it, with wikigold and conll2000. CONLL2000: train.txt.gz as it was collected, whose
second column is the part of speech. WIKINEWS: wikinews.jsonl.xz, whose first 5,000 sentences are the unlabelled text.

The tagger of names (bilstm-cnn-tiny, two layers) has 1,248 steps of eight sentences of its own in every row, 600 with 300 labels;
each other task has as many. The other tasks read the sentences of conll2000, with two kinds of labels, so that the text is the
same. They stand on the last layer (top) or on the first one (low). `alone, words of all` has the vocabulary that rows with both
tasks learn: what is left of a gain there is not the vocabulary's. OUT/table.md has F1 on the test part, and the difference from
`alone`, paired by seed.
"""

import argparse
import gzip
import hashlib
import json
import lzma
import re
import sys
import time
from pathlib import Path
from typing import Any

from several import place, run_jobs

STEPS = {"all": 1248, "300": 600}  # of the tagger of names
LOW = ["task.layers=1"]
# name: the other tasks, each with its settings
OTHERS: dict[str, dict[str, list[str]]] = {
    "alone": {},
    "alone, words of all": {},
    "chunks, top": {"chunks": []},
    "chunks, low": {"chunks": LOW},
    "speech, top": {"speech": []},
    "speech, low": {"speech": LOW},
    "both, top": {"chunks": [], "speech": []},
    "both, low": {"chunks": LOW, "speech": LOW},
    "unlabelled text": {"text": []},
    "unlabelled text, 0.1": {"text-0.1": []},
}
ROWS = {f"{labels}: {name}": (labels, others) for labels in STEPS for name, others in OTHERS.items()}
SENTENCES = 5000


def parts_of_speech(path: Path) -> str:
    """The sentences of the training part of conll2000 with parts of speech; which those are says tasks_data.py."""
    lines = gzip.decompress(path.read_bytes()).decode().splitlines()
    return "\n".join(" ".join(line.split(" ")[:2]) for line in lines) + "\n"


def words_of(block: str) -> str:
    return " ".join(line.split(" ")[0] for line in block.splitlines())


def make_data(tasks: Path, conll: Path, news: Path, out: Path) -> None:
    from seqloom.text.tagged import read_tagged

    chunks = (tasks / "conll2000" / "train.conll").read_text()
    kept = {words_of(block) for block in chunks.split("\n\n")}
    speech = [block for block in parts_of_speech(conll).split("\n\n") if words_of(block) in kept]
    assert len(speech) == len(chunks.strip().split("\n\n")), "another conll2000 than that of TASKS"
    (out / "chunks.conll").write_text(chunks)
    (out / "speech.conll").write_text("\n\n".join(speech) + "\n")
    names = (tasks / "wikigold" / "train.conll").read_text().strip().split("\n\n")
    few = sorted(names, key=lambda block: hashlib.sha256(block.encode()).digest())[:300]
    (out / "names-300.conll").write_text("\n\n".join(few) + "\n")
    (out / "names-all.conll").write_text("\n\n".join(names) + "\n")
    for split in ("valid", "test"):
        (out / f"names-{split}.conll").write_text((tasks / "wikigold" / f"{split}.conll").read_text())
    held_out = {
        words_of(b) for split in ("valid", "test") for b in (out / f"names-{split}.conll").read_text().split("\n\n")
    }
    found: list[str] = []
    with lzma.open(news, "rt", encoding="utf-8") as file:
        for line in file:
            for sentence in re.split(r"(?<=[.!?])\s+|\n", json.loads(line)["text"]):
                words = re.findall(r"\w+|[^\w\s]", sentence)
                if 5 <= len(words) <= 60 and words[-1] in ".!?" and " ".join(words) not in held_out:
                    found.append(" ".join(words))
            if len(found) >= SENTENCES:
                break
    (out / "text.txt").write_text("\n".join(found[:SENTENCES]) + "\n")
    for path in out.glob("*.conll"):
        print(f"{path.name:20} {sum(1 for _ in read_tagged([path])):,} sentences")


def plan_of(row: str, out: Path) -> Any:
    from seqloom.runs.joint import PlannedTask, TasksPlan

    labels, others = ROWS[row]
    files = {split: (str(out / f"names-{split}.conll"),) for split in ("valid", "test")}
    names = PlannedTask(name="names", task="tag", train=(str(out / f"names-{labels}.conll"),), **files)
    rest = [
        PlannedTask(
            name="text", task="cross-view", train=(str(out / "text.txt"),), weight=float(other.partition("-")[2] or 1)
        )
        if other.startswith("text")
        else PlannedTask(name=other, task="tag", train=(str(out / f"{other}.conll"),), settings=tuple(settings))
        for other, settings in others.items()
    ]
    return TasksPlan(tasks=(names, *rest), smoothing=0.0)


def one(row: str, seed: int, out: Path) -> None:
    import torch

    from seqloom.runs.joint import train_tasks
    from seqloom.runs.training import train

    torch.set_num_threads(1)
    labels, others = ROWS[row]
    tasks, folder = 1 + len(others), place(out, row, seed)
    words: dict[str, Any] = {}
    if row.endswith("words of all"):
        words = {"from_tokenizer": place(out, f"{labels}: both, top", 0) / "tokenizer.json"}
    settings = [
        "model.num_layers=2", "batches.examples=8", f"budget={{steps={STEPS[labels] * tasks}}}",
        f"train.eval_every={STEPS[labels] * tasks // 8}", "train.save_every=1000000", "train.compile=false",
    ]  # fmt: skip
    common: dict[str, Any] = {
        "settings": settings, "seed": seed, "device": "cpu", "resume": (folder / "config.json").exists(), "tokenizer": "word",
    }  # fmt: skip
    if others:
        train_tasks("bilstm-cnn-tiny", plan_of(row, out), folder, **common)
    else:
        given: dict[str, Any] = {split: [out / f"names-{split}.conll"] for split in ("valid", "test")}
        train("bilstm-cnn-tiny", "tag", [out / f"names-{labels}.conll"], folder, **given, **common, **words)
    metrics = json.loads((folder / "metrics.json").read_text())
    result = {
        "name": row, "seed": seed, "valid": metrics["valid_scores"]["f1"], "test": metrics["test_scores"]["f1"],
        "vocabulary": len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]), "settings": settings,
        **{key: metrics[key] for key in ("parameters", "step", "tokens", "tokens_per_second", "seconds", "flops")},
    }  # fmt: skip
    (folder / "result.json").write_text(json.dumps(result))


def shown(row: dict[str, Any]) -> str:
    return f"F1 {row['valid']:.4f} valid, {row['test']:.4f} test"


def table(rows: list[dict[str, Any]]) -> str:
    from seqloom.metrics.intervals import student

    scores = {(row["name"], row["seed"]): row for row in rows}
    lines = ["| | vocabulary | valid | test | difference on test, paired | seconds |", "|---|---|---|---|---|---|"]
    for name in dict.fromkeys(row["name"] for row in rows):
        same = [row for row in rows if row["name"] == name]
        cells = []
        if len(same) < 2:
            continue
        for split in ("valid", "test"):
            found = student([row[split] for row in same])
            cells.append(f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]")
        first = f"{ROWS[name][0]}: alone"
        pairs = [(row, scores[first, row["seed"]]) for row in same if (first, row["seed"]) in scores and name != first]
        gap = student([row["test"] - alone["test"] for row, alone in pairs]) if len(pairs) > 1 else None
        cells.append("" if gap is None else f"{gap.value:+.3f} [{gap.low:+.3f}, {gap.high:+.3f}]")
        seconds = sum(row["seconds"] for row in same) / len(same)
        lines.append(f"| {name} | {same[0]['vocabulary']:,} | {' | '.join(cells)} | {seconds:.0f} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tasks", "conll2000", "wikinews", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS, metavar="NAME")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out
    if options.one:
        one(options.one, options.seed, out)
        return
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "text.txt").exists():
        make_data(options.tasks, options.conll2000, options.wikinews, out)
    # rows that take the vocabulary of others come last
    rows = sorted(options.rows, key=lambda name: name.endswith("words of all"))
    jobs = [(name, seed) for seed in range(options.seeds) for name in rows]
    until = time.monotonic() + 60 * options.minutes
    call = [
        sys.executable,
        __file__,
        *(str(getattr(options, name)) for name in ("tasks", "conll2000", "wikinews", "out")),
    ]
    results = run_jobs(jobs, out, call, options.jobs, until, shown, list(ROWS))
    (out / "table.md").write_text(table(results))
    print(table(results))


if __name__ == "__main__":
    main()

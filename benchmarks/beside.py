"""Features of other runs beside a tagger or classifier: TagLM, ELMo, contextual string embeddings and CoVe, by one command.

    python benchmarks/beside.py TASKS WIKINEWS MULTI30K OUT [--seeds 3] [--sources 3] [--jobs 1] [--minutes 60]
                                [--rows NAME ...]

TASKS: a folder as `tasks_data.py` writes it, with wikigold, wnut17, trec and sst. WIKINEWS: wikinews.jsonl.xz. MULTI30K: a folder
with train.en.txt.gz, train.de.txt.gz and the same of val.

For each seed (with --sources 1 for the first alone, so that all rows stand on the same) the other runs are learnt first, all
with features of 256 numbers: language models of words forward and backward (128 each; forward also alone with 256) and an ELMo
(2 × 128) on a million words of wikinews, models of characters forward and backward (128 each) on 600,000 words of it, and an
attentional translator from English to German (its encoder: 2 × 128) on a million target tokens. Then bilstm-cnn-tiny with two
layers learns each task with and without them, with the same seed.
OUT/table.md has F1 or accuracy on the test part, and differences that are paired by seed; OUT/items has for every example
whether it is right, for `seqloom significance`.
"""

import argparse
import gzip
import json
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from several import place, run_jobs

LSTM = ["model.num_layers=1", "train.compile=false", "train.eval_every=100000", "valid.limit=20000"]
WORDS = ["budget={words=1e6}"]
CHARACTERS = ["budget={words=6e5}", "batches.streams=32", "batches.length=128"]
# name: recipe, prepared text, settings
SOURCES: dict[str, tuple[str, str, list[str]]] = {
    "forward": ("lstm-tiny", "words", [*LSTM, *WORDS, "model.dim=128"]),
    "backward": ("lstm-tiny", "words-back", [*LSTM, *WORDS, "model.dim=128"]),
    "wide": ("lstm-tiny", "words", [*LSTM, *WORDS, "model.dim=256"]),
    "elmo": ("elmo-tiny", "words", [*LSTM[1:], *WORDS, "model.proj_dim=128"]),
    "letters": ("lstm-tiny", "letters", [*LSTM, *CHARACTERS, "model.dim=128"]),
    "letters-back": ("lstm-tiny", "letters-back", [*LSTM, *CHARACTERS, "model.dim=128"]),
    "translator": ("bahdanau-tiny", "", ["model.dim=128", "budget={tokens=1e6}", "train.compile=false"]),
}
BOTH, LETTERS = ("forward", "backward"), ("letters", "letters-back")
# name: the task, the runs beside it, where they enter; rows of one task are compared with its first one
ROWS: dict[str, tuple[str, tuple[str, ...], str]] = {
    "wikigold alone": ("wikigold", (), ""),
    "wikigold forward and backward at 0": ("wikigold", BOTH, "0"),
    "wikigold forward and backward at 1": ("wikigold", BOTH, "1"),
    "wikigold forward and backward at output": ("wikigold", BOTH, "output"),
    "wikigold forward at 1": ("wikigold", ("wide",), "1"),
    "wikigold elmo at 1": ("wikigold", ("elmo",), "1"),
    "wikigold letters at 1": ("wikigold", LETTERS, "1"),
    "wikigold translator at 1": ("wikigold", ("translator",), "1"),
    "wnut17 alone": ("wnut17", (), ""),
    "wnut17 forward and backward at 1": ("wnut17", BOTH, "1"),
    "wnut17 letters at 1": ("wnut17", LETTERS, "1"),
    "trec alone": ("trec", (), ""),
    "trec translator at 0": ("trec", ("translator",), "0"),
    "trec forward and backward at 0": ("trec", BOTH, "0"),
    "trec elmo at 0": ("trec", ("elmo",), "0"),
    "sst alone": ("sst", (), ""),
    "sst translator at 0": ("sst", ("translator",), "0"),
    "sst forward and backward at 0": ("sst", BOTH, "0"),
    "sst elmo at 0": ("sst", ("elmo",), "0"),
}
# of each task: its kind, passes, examples a step, the end of its files
TASKS = {
    "wikigold": ("tag", 8, 8, "conll"),
    "wnut17": ("tag", 6, 16, "conll"),
    "trec": ("classify", 4, 16, "jsonl"),
    "sst": ("classify", 3, 16, "jsonl"),
}
# two rows of one task, the first less the second
QUESTIONS = {
    "wikigold: after the first layer, or at the input?": (
        "wikigold forward and backward at 1",
        "wikigold forward and backward at 0",
    ),
    "wikigold: after the first layer, or at the output?": (
        "wikigold forward and backward at 1",
        "wikigold forward and backward at output",
    ),
    "wikigold: both directions, or forward alone as wide?": (
        "wikigold forward and backward at 1",
        "wikigold forward at 1",
    ),
    "wikigold: characters, or words?": ("wikigold letters at 1", "wikigold forward and backward at 1"),
    "wnut17: characters, or words?": ("wnut17 letters at 1", "wnut17 forward and backward at 1"),
    "trec: translation, or language models?": ("trec translator at 0", "trec forward and backward at 0"),
    "sst: translation, or language models?": ("sst translator at 0", "sst forward and backward at 0"),
    "wikigold: translation, or language models?": ("wikigold translator at 1", "wikigold forward and backward at 1"),
}


def source_name(source: str) -> str:
    return f"source {source}"


def make_data(news: Path, multi30k: Path, out: Path) -> None:
    from seqloom.batches.prepare import prepare

    for name, options in {
        "words": {"tokenizer": "word", "vocab_size": 8192, "keep_spelling": True},
        "words-back": {"from_tokenizer": out / "words" / "tokenizer.json", "backward": True},
        "letters": {"tokenizer": "char"},
        "letters-back": {"tokenizer": "char", "backward": True},
    }.items():
        given: Any = options
        prepare([news], out / name, split_field="split", overwrite=True, **given)
    for split in ("train", "val"):
        for language in ("en", "de"):
            (out / f"{split}.{language}").write_bytes(
                gzip.decompress((multi30k / f"{split}.{language}.txt.gz").read_bytes())
            )
    (out / "made").touch()


def learn_source(source: str, seed: int, out: Path, folder: Path) -> dict[str, Any]:
    from seqloom.runs.training import pretrain, train

    recipe, data, settings = SOURCES[source]
    common: dict[str, Any] = {
        "settings": settings, "seed": seed, "device": "cpu", "resume": (folder / "config.json").exists(),
    }  # fmt: skip
    if data:
        pretrain(recipe, out / data, folder, **common)
    else:
        pairs = {split: [out / f"{split}.{language}" for language in ("en", "de")] for split in ("train", "val")}
        train(recipe, "translate", pairs["train"], folder, valid=pairs["val"], vocab_size=8192, **common)
    return {}


def learn_row(row: str, seed: int, tasks: Path, out: Path, folder: Path, num_sources: int) -> dict[str, Any]:
    from seqloom.runs.training import train

    name, sources, at = ROWS[row]
    kind, epochs, examples, ending = TASKS[name]
    files: dict[str, Any] = {
        split: [tasks / name / f"{split}.{ending}"] for split in ("train", "valid", "test")
    }  # fmt: skip
    settings = [
        "model.num_layers=2", f"batches.examples={examples}", f"budget={{epochs={epochs}}}", "train.compile=false",
        *([f"task.beside.at={at}"] if sources else []),
    ]  # fmt: skip
    run: Any = train(
        "bilstm-cnn-tiny", kind, files.pop("train"), folder, **files, settings=settings, seed=seed, device="cpu",
        tokenizer="word", beside=[place(out, source_name(source), seed % num_sources) for source in sources],
        resume=(folder / "config.json").exists(),
    )  # fmt: skip
    examples_of = list(run.learner.read(files["test"]))
    write_items(out / "items" / row.replace(" ", "-"), seed, kind, examples_of, run.predict_examples(examples_of))
    metrics = json.loads((folder / "metrics.json").read_text())
    key = "f1" if kind == "tag" else "accuracy"
    return {"valid": metrics["valid_scores"][key], "test": metrics["test_scores"][key]}


def write_items(folder: Path, seed: int, kind: str, examples: list[Any], predictions: list[dict[str, Any]]) -> None:
    """Of every example whether all of its labels are right."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = []
    for number, (example, found) in enumerate(zip(examples, predictions, strict=True)):
        right = list(found["tags"]) == list(example.tags) if kind == "tag" else found["label"] == example.label
        lines.append(json.dumps({"id": number, "seed": seed, "score": int(right)}) + "\n")
    (folder / f"seed-{seed}.jsonl").write_text("".join(lines))


def run_one(name: str, seed: int, tasks: Path, out: Path, num_sources: int) -> None:
    import torch

    torch.set_num_threads(1)
    folder = place(out, name, seed)
    source = name.removeprefix("source ")
    if source in SOURCES:
        scores = learn_source(source, seed, out, folder)
    else:
        scores = learn_row(name, seed, tasks, out, folder, num_sources)
    metrics = json.loads((folder / "metrics.json").read_text())
    loss = {"loss": metrics["valid_loss"]} if "valid_loss" in metrics else {}
    known = ("parameters", "step", "tokens", "tokens_per_second", "seconds", "flops")
    result = {"name": name, "seed": seed, **scores, **loss, **{key: metrics[key] for key in known}}
    (folder / "result.json").write_text(json.dumps(result))


def shown(row: dict[str, Any]) -> str:
    return f"{row['valid']:.4f} valid, {row['test']:.4f} test" if "test" in row else f"loss {row.get('loss', 0):.3f}"


def interval(values: list[float], sign: str = "") -> str:
    from seqloom.metrics.intervals import student

    found = student(values)
    return f"{found.value:{sign}.3f} [{found.low:{sign}.3f}, {found.high:{sign}.3f}]"


def tables(rows: list[dict[str, Any]]) -> str:
    scores: dict[str, dict[int, dict[str, Any]]] = defaultdict(dict)
    for row in rows:
        scores[row["name"]][row["seed"]] = row
    whole = {name: found for name, found in scores.items() if len(found) > 1}

    def gap(a: str, b: str) -> str:
        return interval(
            [whole[a][seed]["test"] - whole[b][seed]["test"] for seed in whole[a].keys() & whole[b].keys()], "+"
        )

    lines = ["| | parameters | valid | test | difference from alone, test |", "|---|---|---|---|---|"]
    for name in (name for name in ROWS if name in whole):
        found, first = list(whole[name].values()), f"{ROWS[name][0]} alone"
        cells = [interval([row[split] for row in found]) for split in ("valid", "test")]
        cells.append(gap(name, first) if name != first and first in whole else "")
        lines.append(f"| {name} | {found[0]['parameters']:,} | {' | '.join(cells)} |")
    asked = [f"| {name} | {gap(a, b)} |" for name, (a, b) in QUESTIONS.items() if a in whole and b in whole]
    lines += ["", "| question | first less second, test |", "|---|---|", *asked, ""]
    lines += ["| other run | parameters | words or tokens | valid loss | seconds |", "|---|---|---|---|---|"]
    for source in SOURCES:
        found = list(scores.get(source_name(source), {}).values())
        if found:
            losses = ", ".join(f"{row['loss']:.3f}" for row in found if "loss" in row)
            seconds = ", ".join(f"{row['seconds']:.0f}" for row in found)
            lines.append(f"| {source} | {found[0]['parameters']:,} | {found[0]['tokens']:,} | {losses} | {seconds} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("tasks", "wikinews", "multi30k", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--sources", type=int, default=0, help="seeds of the runs beside; as many unless given")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS, metavar="NAME")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out
    num_sources = options.sources or options.seeds
    if options.one:
        run_one(options.one, options.seed, options.tasks, out, num_sources)
        return
    out.mkdir(parents=True, exist_ok=True)
    if not (out / "made").exists():
        make_data(options.wikinews, options.multi30k, out)
    until = time.monotonic() + 60 * options.minutes
    call = [
        sys.executable,
        __file__,
        *(str(getattr(options, name)) for name in ("tasks", "wikinews", "multi30k", "out")),
        f"--sources={num_sources}",
    ]
    needed = {source for row in options.rows for source in ROWS[row][1]}
    names = [*map(source_name, SOURCES), *ROWS]
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):  # a seed is whole before the next one begins; what is beside is learnt first
        sources = [source_name(each) for each in SOURCES if each in needed and seed < num_sources]
        for part in (sources, options.rows):
            rows = run_jobs([(name, seed) for name in part], out, call, options.jobs, until, shown, names)
    (out / "table.md").write_text(tables(rows))
    print(tables(rows))


if __name__ == "__main__":
    main()

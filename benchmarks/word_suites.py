"""Analogies and similarity at equal words: what a table says of a word, the word alone, and the mean over its contexts.

    python benchmarks/word_suites.py DATA OUT [--size small] [--device auto] [--seeds 1] [--jobs 1] [--minutes 1000]
                                     [--rows NAME ...]

DATA: a folder with wikinews, analogies and word-similarity (and english-novels, for --size full) as they were collected.
word2vec, GloVe, fastText, an LSTM, ELMo, GPT-2 and BERT (masked words alone) read the same text with the same vocabulary of
words. Then word vectors are taken in three ways, as far as a model has them: its embeddings (in), the states of its last layer
for the word alone (alone), and the mean of these over ten places of the training text (contexts). Of the analogies at most
--questions are asked, evenly spread over the file; words that are not known are left out, and `candidates` says among how many
words the fourth is looked for.

--size small: a million words of wikinews, models of 128 numbers, for two cores. full: 17 million words of novels and news, models
of 384, for a GPU. Every run is a process of its own; what is finished stays finished, and the same command goes on. Writes
OUT/results.jsonl and OUT/table.md.
"""

import argparse
import json
import lzma
import sys
import time
from collections import defaultdict
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from several import place, run_jobs

WAYS = ("in", "alone", "contexts")
STATIC = {"word2vec": "word2vec", "GloVe": "glove", "fastText": "fasttext"}
CONTEXTUAL = {"LSTM": "lstm", "ELMo": "elmo", "GPT-2": "gpt2", "BERT": "bert"}
NAMES = (*STATIC, *CONTEXTUAL)
PASSES = 5  # of static vectors over the text, as their authors have it; models with contexts read it as often
WIDTH = {"small": 128, "full": 384}
VOCABULARY = {"small": 10_000, "full": 30_000}
WORDS = {"small": 1e6, "full": float("inf")}
PRESET = {"small": "tiny", "full": "small"}
FAST = ["train.compile=false", "train.eval_every=100000", "train.save_every=1000000", "valid.limit=20000"]


def make_data(data: Path, out: Path, size: str, questions: int) -> None:
    from seqloom.batches.prepare import prepare

    made = out / "data"
    if (made / "done").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    novels = [data / "english-novels" / "novels.jsonl.xz"] if size == "full" else []
    rest = {"train": WORDS[size], "valid": 30_000.0}
    with (made / "train.jsonl").open("w") as train, (made / "valid.jsonl").open("w") as valid:
        into = {"train": train, "valid": valid}
        for path in (*novels, data / "wikinews" / "wikinews.jsonl.xz"):
            with lzma.open(path, "rt", encoding="utf-8") as file:
                for line in file:
                    row = json.loads(line)
                    if rest.get(row["split"], 0) > 0:
                        rest[row["split"]] -= len(row["text"].split())
                        into[row["split"]].write(json.dumps({"text": row["text"]}) + "\n")
    prepare(
        [made / "train.jsonl"], made / "text", tokenizer="word", vocab_size=VOCABULARY[size], lowercase=True,
        valid=made / "valid.jsonl", overwrite=True,
    )  # fmt: skip
    lines = (data / "analogies" / "questions-words.txt").read_text().splitlines()
    step = -(-sum(not line.startswith(":") for line in lines) // questions)
    (made / "questions.txt").write_text(
        "\n".join(line for i, line in enumerate(lines) if line.startswith(":") or i % step == 0) + "\n"
    )
    (made / "done").touch()


def settings_of(name: str, size: str) -> list[str]:
    width, heads = WIDTH[size], WIDTH[size] // 32
    if name in STATIC:
        return [f"model.dim={width}"]
    if name == "LSTM":
        return [f"model.dim={width}", "model.num_layers=2"]
    if name == "ELMo":
        return [f"model.proj_dim={width // 2}"]  # two directions together are as wide
    masked = ['objective={name="masked"}', "model.pooler=false"] if name == "BERT" else []
    layers = 2 if size == "small" else 6
    return [f"model.dim={width}", f"model.num_heads={heads}", f"model.num_layers={layers}", *masked]


def run_one(name: str, seed: int, data: Path, out: Path, size: str, device: str) -> None:
    import torch

    from seqloom.runs.load import load
    from seqloom.runs.training import pretrain

    torch.set_num_threads(1)
    folder, made = place(out, name, seed), out / "data"
    run, recipe = folder / "run", f"{(STATIC | CONTEXTUAL)[name]}-{PRESET[size]}"
    budget = [] if name == "GloVe" else [f"budget={{epochs={PASSES}}}"]  # its passes are over counts
    pretrain(
        recipe, made / "text", run, settings=[*settings_of(name, size), *FAST, *budget], seed=seed, device=device,
        resume=(run / "config.json").exists(),
    )  # fmt: skip
    trained: Any = load(run, device)
    found: dict[str, dict[str, float]] = {}
    for way in ("in",) if name in STATIC else WAYS:
        if way == "in" and name == "ELMo":  # it reads characters
            continue
        given: dict[str, Any] = {"vectors": way}
        if way == "contexts":
            given["contexts"] = made / "train.jsonl"
        asked = trained.evaluate_suite("analogies", made / "questions.txt", **given)
        close = trained.evaluate_suite("similarity", data / "word-similarity", **given)
        found[way] = {
            "analogies": asked["accuracy_known"], **asked["by_kind"], "candidates": asked["candidates"],
            "similarity": close["spearman_known"],
        }  # fmt: skip
        print(name, way, found[way], flush=True)
    metrics = json.loads((run / "metrics.json").read_text())
    known = {key: metrics[key] for key in ("parameters", "step", "tokens", "tokens_per_second", "seconds")}
    (folder / "result.json").write_text(json.dumps({"name": name, "seed": seed, "found": found, **known}))


def shown(row: dict[str, Any]) -> str:
    return "  ".join(
        f"{way} {scores['analogies']:.1%} {scores['similarity']:.3f}" for way, scores in row["found"].items()
    )


def table(rows: list[dict[str, Any]]) -> str:
    by_name: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    sizes = {row["name"]: row for row in rows}
    for row in rows:
        for way, scores in row["found"].items():
            by_name[row["name"], way].append(scores)
    lines = [
        "| | vectors | parameters | seeds | candidates | analogies % | semantic % | syntactic % | similarity |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for (name, way), found in by_name.items():
        cells = []
        for key, factor, digits in (
            ("analogies", 100, 1),
            ("semantic", 100, 1),
            ("syntactic", 100, 1),
            ("similarity", 1, 3),
        ):
            values = [factor * each[key] for each in found]
            more = f" ± {stdev(values):.{digits}f}" if len(values) > 1 else ""
            cells.append(f"{mean(values):.{digits}f}{more}")
        among = f"{sizes[name]['parameters']:,} | {len(found)} | {found[0]['candidates']:,}"
        lines.append(f"| {name} | {way} | {among} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--size", choices=WIDTH, default="small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1000.0)
    parser.add_argument("--questions", type=int, default=4000)
    parser.add_argument("--rows", nargs="*", default=list(NAMES), choices=NAMES, metavar="NAME")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out
    if options.one:
        run_one(options.one, options.seed, options.data, out, options.size, options.device)
        return
    until = time.monotonic() + 60 * options.minutes
    make_data(options.data, out, options.size, options.questions)
    call = [
        sys.executable, __file__, str(options.data), str(out), f"--size={options.size}", f"--device={options.device}",
    ]  # fmt: skip
    todo = [(name, seed) for seed in range(options.seeds) for name in options.rows]
    rows = run_jobs(todo, out, call, options.jobs, until, shown, NAMES)
    (out / "table.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()

"""BART's noises, alone and together, by what they teach; and what the best of them is worth for translation.

    python benchmarks/noises.py DATA TASKS OUT [--size small] [--device auto] [--seeds 1] [--jobs 1] [--minutes 1000]
                                [--rows noises translation | NAME ...]

DATA: a folder with wikinews, multi30k and blimp (and english-novels, for --size full) as they were collected. TASKS: a folder as
`tasks_data.py` writes it, with sick and squad.

noises       an encoder-decoder learns from one pass over the text by each noise: tokens masked, deleted or infilled, texts
             rotated, sentences permuted, and infilling and permutation together, as published. Each is then measured by a tenth
             of BLiMP (the probability of each word where it alone is hidden), and fine-tuned on sick, squad and the titles of
             wikinews from their first 80 words
translation  German to English with 100, 1,000 and 29,000 pairs of multi30k, from the run with infilling and permutation of the
             same seed, and from scratch

--size small: 2 million parameters and a million words of wikinews, for two cores. full: 9 million parameters, 17 million words of
novels and news, for a GPU. Rates are those of the recipe for all noises and were not searched. The vocabulary is learnt from news
and multi30k in both languages. Every run is a process of its own; what is finished stays finished, and the same command goes on.
Writes OUT/results.jsonl and OUT/table.md.
"""

import argparse
import gzip
import json
import lzma
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from several import place, run_jobs

SHARE = "0.3"  # of the words that are masked, deleted or infilled
OFF = {"permute": "0", "mask": "0", "delete": "0", "infill": "0", "rotate": "0"}
NOISES = {
    "masking": {"mask": SHARE},
    "deletion": {"delete": SHARE},
    "infilling": {"infill": SHARE},
    "rotation": {"rotate": "1"},
    "permutation": {"permute": "1"},
    "infilling and permutation": {"infill": SHARE, "permute": "1"},
}
BEST = "infilling and permutation"
PAIRS = {"100": 300, "1000": 800, "29000": 5000}  # steps of 32 pairs
TRANSLATION = {f"{size} pairs, {start}": (size, start) for size in PAIRS for start in ("BART", "scratch")}
GROUPS = {"noises": tuple(NOISES), "translation": tuple(TRANSLATION)}
NAMES = (*NOISES, *TRANSLATION)
SIZES = {
    "small": ["model.dim=128", "model.num_layers=2", "model.num_heads=4"],
    "full": ["model.dim=256", "model.num_layers=3", "model.num_heads=4"],
}
VOCABULARY = {"small": 8192, "full": 16384}
WORDS = {"small": 1e6, "full": None}  # of the text; None: all of it
FAST = ["train.compile=false", "train.save_every=1000000"]
TITLE_WORDS = 80
TITLE_CHARS = 600  # at most of them: foreign words and addresses have many tokens


# ---- data, made once


def gunzip(source: Path, target: Path) -> Path:
    target.write_bytes(gzip.decompress(source.read_bytes()))
    return target


def make_data(data: Path, tasks: Path, out: Path, size: str) -> None:
    from seqloom.batches.prepare import prepare

    made = out / "data"
    if (made / "done").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    news = data / "wikinews" / "wikinews.jsonl.xz"
    sides = [
        gunzip(data / "multi30k" / f"{name}.{side}.txt.gz", made / f"{split}.{side}")
        for split, name in {"train": "train", "valid": "val", "test": "test_2016_flickr"}.items()
        for side in ("de", "en")
    ]
    for count in map(int, PAIRS):
        for path in sides[:2]:
            lines = path.read_text().splitlines()[:count]
            path.with_name(f"train-{count}{path.suffix}").write_text("\n".join(lines) + "\n")
    with lzma.open(news, "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    write_titles(rows, made)
    texts = [row["text"] for row in rows if row["split"] == "train"]
    both = [
        {"text": text} for text in (*texts, *(line for path in sides[:2] for line in path.read_text().splitlines()))
    ]
    (made / "both.jsonl").write_text("".join(json.dumps(row) + "\n" for row in both))
    kind: dict[str, Any] = {"tokenizer": "bpe", "vocab_size": VOCABULARY[size]}
    prepare([made / "both.jsonl"], made / "vocabulary", **kind, valid=0.01, overwrite=True)
    files = [news] if size == "small" else [data / "english-novels" / "novels.jsonl.xz", news]
    vocabulary = made / "vocabulary" / "tokenizer.json"
    prepare(files, made / "text", from_tokenizer=vocabulary, split_field="split", overwrite=True)
    with lzma.open(data / "blimp" / "blimp.jsonl.xz", "rt", encoding="utf-8") as file:
        tenth = [line for line in file if int(json.loads(line)["pairID"]) % 10 == 0]
    (made / "blimp.jsonl").write_text("".join(tenth))
    for task, ending in (("sick", "jsonl"), ("squad", "json")):
        for split in ("train", "valid", "test"):
            (made / f"{task}.{split}.{ending}").write_bytes((tasks / task / f"{split}.{ending}").read_bytes())
    (made / "done").touch()


def write_titles(rows: Sequence[dict[str, Any]], made: Path) -> None:
    for split in ("train", "valid", "test"):
        chosen = [row for row in rows if row["split"] == split and len(row["text"].split()) >= TITLE_WORDS // 2]
        texts = [" ".join(row["text"].split()[:TITLE_WORDS])[:TITLE_CHARS] for row in chosen]
        for name, lines in {"text": texts, "title": [" ".join(row["title"].split()) for row in chosen]}.items():
            (made / f"titles.{split}.{name}").write_text("\n".join(lines) + "\n")


# ---- one run


def begun(folder: Path) -> bool:
    return (folder / "config.json").exists()


def metrics_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "metrics.json").read_text())


def learn_noise(name: str, seed: int, out: Path, folder: Path, size: str, device: str) -> dict[str, Any]:
    from seqloom.runs.load import load
    from seqloom.runs.training import finetune, pretrain

    made, run = out / "data", folder / "run"
    noise = [f"objective.{key}={value}" for key, value in (OFF | NOISES[name]).items()]
    budget = f"budget={{words={WORDS[size]}}}" if WORDS[size] else "budget={epochs=1}"
    settings = [*SIZES[size], "model.max_len=256", "batches.length=128", "valid.limit=30000", *noise, *FAST, budget]
    pretrain("bart-tiny", made / "text", run, settings=settings, seed=seed, device=device, resume=begun(run))
    metrics, kept = metrics_of(run), folder / "scores.json"
    if not kept.exists():
        trained: Any = load(run, device)
        held_out = trained.evaluate(made / "text", "valid", limit=30_000)["infilled_perplexity"]
        pairs = trained.evaluate_suite("blimp", made / "blimp.jsonl")["accuracy"]
        kept.write_text(json.dumps({"infilled": held_out, "blimp": pairs}))
    found = {"scores": json.loads(kept.read_text())}
    common: dict[str, Any] = {"seed": seed, "device": device}
    for task, kind, ending, epochs, key in (
        ("sick", "pair", "jsonl", 5, "accuracy"),
        ("squad", "span", "json", 2, "f1"),
    ):
        target = folder / task
        parts = {split: [made / f"{task}.{split}.{ending}"] for split in ("train", "valid", "test")}
        given = [*FAST, f"budget={{epochs={epochs}}}"]
        if not (target / "card.md").exists():
            finetune(run, kind, parts["train"], parts["valid"], target, test=parts["test"], settings=given,
                     resume=begun(target), **common)  # fmt: skip
        found["scores"][task] = metrics_of(target)["test_scores"][key]
    target = folder / "titles"
    files = {
        split: [made / f"titles.{split}.{part}" for part in ("text", "title")] for split in ("train", "valid", "test")
    }
    if not (target / "card.md").exists():
        finetune(run, "translate", files["train"], files["valid"], target, test=files["test"],
                 settings=[*FAST, "budget={epochs=2}"], resume=begun(target), **common)  # fmt: skip
    found["scores"]["titles"] = metrics_of(target)["test_scores"]["chrf"]
    return found | cost_of(metrics)


def learn_translation(name: str, seed: int, out: Path, folder: Path, size: str, device: str) -> dict[str, Any]:
    from seqloom.runs.training import finetune, train

    pairs, start = TRANSLATION[name]
    made, run = out / "data", folder / "run"
    files = {
        split: [made / f"{split}.{side}" for side in ("de", "en")] for split in (f"train-{pairs}", "valid", "test")
    }
    steps = PAIRS[pairs]
    settings = [*FAST, f"budget={{steps={steps}}}", f"train.eval_every={steps // 10}"]
    common: dict[str, Any] = {"seed": seed, "device": device, "resume": begun(run), "test": files["test"]}
    if start == "BART":
        before = place(out, BEST, seed) / "run"
        finetune(before, "translate", files[f"train-{pairs}"], files["valid"], run, settings=settings, **common)
    else:
        sizes = [*SIZES[size], "model.max_len=256"]
        train("bart-tiny", "translate", files[f"train-{pairs}"], run, valid=files["valid"], settings=[*sizes, *settings],
              from_tokenizer=made / "text" / "tokenizer.json", **common)  # fmt: skip
    metrics = metrics_of(run)
    scores = {key: metrics["test_scores"][key] for key in ("bleu", "chrf")}
    return {"scores": scores} | cost_of(metrics)


def cost_of(metrics: dict[str, Any]) -> dict[str, Any]:
    return {key: metrics[key] for key in ("parameters", "step", "tokens", "tokens_per_second", "seconds", "flops")}


def run_one(name: str, seed: int, out: Path, size: str, device: str) -> None:
    import torch

    torch.set_num_threads(1)
    folder = place(out, name, seed)
    folder.mkdir(parents=True, exist_ok=True)
    learn = learn_noise if name in NOISES else learn_translation
    result = {"name": name, "seed": seed, **learn(name, seed, out, folder, size, device)}
    (folder / "result.json").write_text(json.dumps(result))


# ---- all of them


def shown(row: dict[str, Any]) -> str:
    return "  ".join(f"{key} {value:.4g}" for key, value in row["scores"].items())


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    return form(mean(values)) + (f" ± {form(stdev(values))}" if len(values) > 1 else "")


def tables(rows: Sequence[dict[str, Any]]) -> str:
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)

    def percent(value: float) -> str:
        return f"{100 * value:.1f}"

    def plain(value: float) -> str:
        return f"{value:.1f}"

    heads = {
        "infilled": ("infilled perplexity", plain),
        "blimp": ("BLiMP %", percent),
        "sick": ("sick %", percent),
        "squad": ("squad F1 %", percent),
        "titles": ("titles chrF", plain),
    }
    names = " | ".join(head for head, _ in heads.values())
    lines = [f"| noise | seeds | {names} |", "|---" * (2 + len(heads)) + "|"]
    for name in NOISES:
        if found := by_name.get(name):
            cells = [spread([row["scores"][key] for row in found], form) for key, (_, form) in heads.items()]
            lines.append(f"| {name} | {len(found)} | {' | '.join(cells)} |")
    more = ["| German to English | seeds | BLEU | chrF |", "|---|---|---|---|"]
    for name in TRANSLATION:
        if found := by_name.get(name):
            cells = [spread([row["scores"][key] for row in found], plain) for key in ("bleu", "chrf")]
            more.append(f"| {name} | {len(found)} | {' | '.join(cells)} |")
    costs = ["| run | parameters | steps | tokens | seconds |", "|---|---|---|---|---|"]
    for name in NAMES:
        if found := by_name.get(name):
            seconds = spread([row["seconds"] for row in found], plain)
            costs.append(
                f"| {name} | {found[0]['parameters']:,} | {found[0]['step']:,} | {found[0]['tokens']:,} | {seconds} |"
            )
    return "\n\n".join("\n".join(part) for part in (lines, more, costs) if len(part) > 2) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("data", "tasks", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--size", choices=SIZES, default="small")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1000.0)
    parser.add_argument("--rows", nargs="*", default=list(GROUPS), help=f"of {', '.join(GROUPS)}, or names of runs")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out
    if options.one:
        run_one(options.one, options.seed, out, options.size, options.device)
        return
    until = time.monotonic() + 60 * options.minutes
    names = [name for row in options.rows for name in GROUPS.get(row, (row,))]
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"--rows {unknown[0]!r}: choose of {', '.join([*GROUPS, *NAMES])}")
    make_data(options.data, options.tasks, out, options.size)
    call = [
        sys.executable, __file__, *(str(getattr(options, name)) for name in ("data", "tasks", "out")),
        f"--size={options.size}", f"--device={options.device}",
    ]  # fmt: skip
    rows: list[dict[str, Any]] = []
    for group in GROUPS.values():  # what translation begins with is learnt first
        if todo := [(name, seed) for seed in range(options.seeds) for name in group if name in names]:
            rows = run_jobs(todo, out, call, options.jobs, until, shown, NAMES)
    (out / "table.md").write_text(tables(rows))
    print(tables(rows))


if __name__ == "__main__":
    main()

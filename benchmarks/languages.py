"""Names hidden as wholes (ERNIE) against plain masks on Chinese, and translation LM (XLM) against two languages side by side.

    python benchmarks/languages.py MSRA MULTI30K OUT [--rows NAME ...] [--jobs 12] [--seeds 3] [--minutes 9] [--tokens 20e6]

MSRA: msra.conll.xz, characters with the tags of their names. MULTI30K: a folder with train.en.txt.gz, val…, test_2016_flickr…
in en and de. Every row has one body (256 wide, 6 layers, about 6 to 7M parameters) and one budget; rows that are compared
differ in one setting, and have the same seeds, tokenizer, text and measurement:

    names whole, names in pieces      task.unit = entity and token. Both are measured twice on held-out sentences, with names
                                      hidden as wholes and with single tokens hidden: the loss of all hidden tokens, and of
                                      those alone that belong to a name of several tokens
    with translations, without        task.parallel = 0.5 and 0. Of 1,000 sentences, each read alone, the share whose
                                      translation is the nearest by cosine

Of MSRA, which has no split, every twentieth block of 200 sentences is held out for the test, and the block behind it for
validation. Several runs at once, each a process of its own; what is finished stays finished, so the script can be called
again. OUT/results.jsonl has a line a run, OUT/table.md the tables. With the defaults all twelve runs are meant to take five
minutes on one H200.
"""

import argparse
import json
import lzma
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from several import place, run_jobs

BODY = ["model.dim=256", "model.num_layers=6", "model.num_heads=4", "model.max_len=128", "model.dropout=0.1"]
TRAIN = ["train.optim.lr=1e-3", "train.optim.weight_decay=0.01", "train.schedule.name=linear", "train.schedule.floor=0",
         "train.schedule.warmup=200", "train.eval_every=1000000", "train.save_every=500"]  # fmt: skip
CHINESE = ["batches.budget=16384", "batches.length=128"]
PAIRS = ["batches.budget=8192", "batches.length=64"]
# name: recipe, task, settings
ROWS: dict[str, tuple[str, str, list[str]]] = {
    "names whole": ("ernie-tiny", "entity-lm", [*CHINESE, "task.unit=entity"]),
    "names in pieces": ("ernie-tiny", "entity-lm", [*CHINESE, "task.unit=token"]),
    "with translations": ("xlm-tiny", "translation-lm", [*PAIRS, "task.parallel=0.5"]),
    "without": ("xlm-tiny", "translation-lm", [*PAIRS, "task.parallel=0"]),
}
FIGURES = {
    "entity-lm": ["whole", "whole, names", "single", "single, names"],
    "translation-lm": ["en → de", "de → en", "loss"],
}
BLOCK, EVERY = 200, 20


def split_sentences(source: Path, out: Path) -> None:
    """train.conll, valid.conll and test.conll."""
    with lzma.open(source, "rt", encoding="utf-8") as file:
        sentences = file.read().strip("\n").split("\n\n")
    found: dict[str, list[str]] = {"train": [], "valid": [], "test": []}
    for i, sentence in enumerate(sentences):
        found[{0: "test", 1: "valid"}.get(i // BLOCK % EVERY, "train")].append(sentence)
    for name, part in found.items():
        (out / f"{name}.conll").write_text("\n\n".join(part) + "\n", encoding="utf-8")


def files(task: str, split: str, multi30k: Path, out: Path) -> list[Path]:
    if task == "entity-lm":
        return [out / f"{split}.conll"]
    name = {"valid": "val", "test": "test_2016_flickr"}.get(split, split)
    return [multi30k / f"{name}.{side}.txt.gz" for side in ("en", "de")]


def hidden_losses(run: Any, text: Any, unit: str) -> tuple[float, float]:
    """Nats a hidden token, and a hidden token that belongs to a name of several; the same tokens for every run."""
    import torch

    from seqloom.batch import IGNORE, to_device
    from seqloom.randomness import derive_seed

    run.learner.unit = unit
    plan = text.passages("test").plan(0, 0)
    sums, counts = [0.0, 0.0], [0, 0]
    for i in range(len(plan)):
        cut = plan.batch(i)
        example = run.learner.corrupt(cut, torch.Generator().manual_seed(derive_seed(0, i)))
        with torch.inference_mode():
            losses = run.learner.losses(to_device(example, run.device))[0].cpu().double()
        of_name = cut.joined.clone()
        of_name[:-1] |= cut.joined[1:]  # its first token, too
        real = example.targets != IGNORE
        for k, chosen in enumerate((real, real & of_name[example.where])):
            sums[k] += float(losses[chosen].sum())
            counts[k] += int(chosen.sum())
    return sums[0] / counts[0], sums[1] / max(counts[1], 1)


def one(name: str, seed: int, multi30k: Path, out: Path, settings: list[str], device: str) -> None:
    import torch

    from seqloom.recipes.schema import build_recipe
    from seqloom.runs.examples import TaggedFiles
    from seqloom.runs.training import evaluate_files, train

    torch.set_num_threads(1)
    recipe, task, own = ROWS[name]
    folder = place(out, name, seed)
    chosen = [*BODY, *TRAIN, *own, *settings]
    given, valid, test = (files(task, split, multi30k, out) for split in ("train", "valid", "test"))
    run: Any = train(
        recipe, task, given, folder, valid=valid, from_tokenizer=out / f"{task}.json", settings=chosen, seed=seed,
        device=device, resume=(folder / "config.json").exists(),
    )  # fmt: skip
    metrics = json.loads((folder / "metrics.json").read_text())
    row = {"name": name, "seed": seed, "recipe": recipe, "task": task, "settings": chosen}
    if task == "entity-lm":
        text = TaggedFiles(build_recipe(run.config["recipe"], name), {"test": test}, run.tokenizer)
        for measure, unit in (("whole", "entity"), ("single", "token")):
            row[measure], row[f"{measure}, names"] = hidden_losses(run, text, unit)
    else:
        found = evaluate_files(run, test)
        row |= {
            "en → de": found["retrieval_accuracy"],
            "de → en": found["retrieval_accuracy_back"],
            "loss": found["loss"],
        }
    row |= {key: metrics[key] for key in ("step", "tokens", "parameters", "seconds", "flops", "tokens_per_second")}
    (folder / "result.json").write_text(json.dumps(row))


def shown(row: dict[str, Any]) -> str:
    return "  ".join(f"{figure} {row[figure]:.4f}" for figure in FIGURES[row["task"]])


def tables(rows: list[dict[str, Any]]) -> str:
    lines = []
    for task, figures in FIGURES.items():
        lines += ["", f"| {task} | parameters | tokens | seeds | {' | '.join(figures)} |"]
        lines.append("|---" * (4 + len(figures)) + "|")
        for name in ROWS:
            same = [row for row in rows if row["name"] == name and row["task"] == task]
            if same:
                columns = [[row[figure] for row in same] for figure in figures]
                told = [
                    f"{statistics.mean(values):.4f}" + (f" ± {statistics.stdev(values):.4f}" if len(values) > 1 else "")
                    for values in columns
                ]
                first = same[0]
                lines.append(
                    f"| {name} | {first['parameters']:,} | {first['tokens']:,} | {len(same)} | {' | '.join(told)} |"
                )
    return "\n".join(lines[1:]) + "\n"


def prepare(rows: list[str], msra: Path, multi30k: Path, out: Path) -> None:
    """The split of the sentences, and one tokenizer a task: characters of the Chinese, 8,000 pieces of en and de."""
    from seqloom.runs.examples import PairFiles, TaggedFiles
    from seqloom.runs.vocabularies import learn_tokenizer
    from seqloom.tokens.learn import TokenizerOptions

    for task in {ROWS[name][1] for name in rows}:
        if (out / f"{task}.json").exists():
            continue
        if task == "entity-lm":
            split_sentences(msra, out)
        texts = (TaggedFiles if task == "entity-lm" else PairFiles).texts(files(task, "train", multi30k, out), task)
        kind, size = ("char", None) if task == "entity-lm" else ("bpe", 8000)
        learn_tokenizer(texts, TokenizerOptions(kind, size)).save(out / f"{task}.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("msra", type=Path)
    parser.add_argument("multi30k", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", nargs="*", default=list(ROWS), choices=ROWS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--tokens", type=float, default=20e6)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="extra", action="append", default=[])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    out, settings = given.out, [f"budget={{tokens={given.tokens}}}", *given.extra]
    out.mkdir(parents=True, exist_ok=True)
    if given.one:
        one(given.one, given.seed, given.multi30k, out, settings, given.device)
        return
    until = time.monotonic() + 60 * given.minutes
    prepare(given.rows, given.msra, given.multi30k, out)
    jobs = [(name, seed) for seed in range(given.seeds) for name in given.rows]
    kept = [sys.executable, __file__, str(given.msra), str(given.multi30k), str(out), f"--tokens={given.tokens}"]
    kept += [f"--device={given.device}", *(f"--set={each}" for each in given.extra)]
    rows = run_jobs(jobs, out, kept, given.jobs, until, shown, list(ROWS))
    (out / "table.md").write_text(tables(rows), encoding="utf-8")
    print(tables(rows))


if __name__ == "__main__":
    main()

"""How often a language model should read the text of its task first, and whether to unfreeze it layer by layer (ULMFiT).

    python benchmarks/ulmfit.py TREC WIKINEWS OUT [--seeds 3] [--jobs 1] [--minutes 1000]

TREC: a folder as `tasks_data.py` writes it. WIKINEWS: wikinews.jsonl.xz. An LSTM (two layers of 128) reads a million words of
news; then 0, 4 or 16 passes over the questions of trec, without labels. It is then fine-tuned on 100 and on 1,000 labelled
questions for 15 epochs, at once (finetune) or from the top layer down at rates that fall with depth (gradual), at 2 to 16 times
the rate of the recipe; the rate is chosen by the valid part, for every cell alike. `scratch` is the same network without
any text. Every seed draws its own labelled questions, the same for all cells. Writes OUT/results.jsonl and OUT/table.md.
"""

import argparse
import json
import shutil
import sys
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
from several import place, run_jobs

PASSES = (0, 4, 16)
SIZES = (100, 1000)
EPOCHS = 15  # over the labelled questions, in every cell
HOWS = ("finetune", "gradual")
RATES = (2.0, 4.0, 8.0, 16.0)  # times the recipe's: at up to twice of it every cell was best at the highest
FAST = ["train.compile=false", "train.save_every=1000000"]
LSTM = ["model.dim=128", "model.num_layers=2"]
NEWS = "news"  # the language model before it reads questions
CELLS = ["scratch", *(f"{passes} passes" for passes in PASSES)]
NAMES = [NEWS, *CELLS]


def make_data(trec: Path, news: Path, out: Path) -> None:
    from seqloom.batches.prepare import prepare

    made = out / "data"
    if (made / "done").exists():
        return
    made.mkdir(parents=True, exist_ok=True)
    rows = [json.loads(line) for line in (trec / "train.jsonl").read_text().splitlines()]
    (made / "questions.jsonl").write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
    prepare(
        [news], made / "news", tokenizer="word", vocab_size=16384, lowercase=True, split_field="split", overwrite=True
    )
    prepare(
        [made / "questions.jsonl"], made / "questions", from_tokenizer=made / "news" / "tokenizer.json", valid=0.05,
        keep_duplicates=True, keep_leaks=True, overwrite=True,
    )  # fmt: skip
    (made / "done").touch()


def labelled(trec: Path, size: int, seed: int, folder: Path) -> Path:
    """So many training questions, chosen by the seed: one of every class, then any; more of them begin with fewer."""
    lines = (trec / "train.jsonl").read_text().splitlines()
    path = folder / f"train-{size}.jsonl"
    order = [int(i) for i in np.random.default_rng(seed).permutation(len(lines))]
    first = {json.loads(lines[i])["label"]: i for i in reversed(order)}
    chosen = [*first.values(), *(i for i in order if i not in first.values())][:size]
    path.write_text("\n".join(lines[i] for i in chosen) + "\n")
    return path


def read_text(out: Path, seed: int, folder: Path, passes: int) -> Path:
    """The run that has read news, and questions so often."""
    from seqloom.runs.training import pretrain

    run = folder / "lm"
    before = place(out, NEWS, seed) / "lm"
    if passes == 0:
        return before
    settings = [*FAST, *LSTM, f"budget={{epochs={passes}}}", "train.eval_every=100000", "batches.streams=8",
                "batches.length=64", "train.optim.lr=0.001"]  # fmt: skip
    if not (run / "card.md").exists():
        pretrain("lstm-tiny", out / "data" / "questions", run, settings=settings, start=before, seed=seed, device="cpu",
                 resume=(run / "config.json").exists())  # fmt: skip
    return run


def run_one(name: str, seed: int, trec: Path, out: Path) -> None:
    import torch

    from seqloom.runs.training import finetune, pretrain, train

    torch.set_num_threads(1)
    folder = place(out, name, seed)
    folder.mkdir(parents=True, exist_ok=True)
    known = ("parameters", "step", "tokens", "tokens_per_second", "seconds")
    if name == NEWS:
        run = folder / "lm"
        settings = [*FAST, *LSTM, "budget={words=1e6}", "train.eval_every=100000", "valid.limit=20000"]
        pretrain("lstm-tiny", out / "data" / "news", run, settings=settings, seed=seed, device="cpu",
                 resume=(run / "config.json").exists())  # fmt: skip
        metrics = json.loads((run / "metrics.json").read_text())
        result = {"name": name, "seed": seed, "loss": metrics["valid_loss"], "cells": []}
        (folder / "result.json").write_text(json.dumps(result | {key: metrics[key] for key in known}))
        return
    start = None if name == "scratch" else read_text(out, seed, folder, int(name.split()[0]))
    held_out = {split: [trec / f"{split}.jsonl"] for split in ("valid", "test")}
    cells: list[dict[str, Any]] = []
    begun = time.monotonic()
    for size in SIZES:
        given = labelled(trec, size, seed, folder)
        for how in HOWS if start else ("scratch",):
            for rate in RATES:
                target = folder / "task"
                options: dict[str, Any] = {"seed": seed, "device": "cpu", "overwrite": True, **held_out}
                if start is None:
                    settings = [*FAST, *LSTM, f"train.optim.lr={1e-3 * rate}", f"budget={{epochs={EPOCHS}}}"]
                    tokenizer = out / "data" / "news" / "tokenizer.json"
                    train(
                        "lstm-tiny", "classify", [given], target, settings=settings, from_tokenizer=tokenizer, **options
                    )
                else:
                    usual = 0.0012 if how == "finetune" else 0.0024
                    valid = options.pop("valid")
                    settings = [*FAST, f"train.optim.lr={usual * rate}", f"budget={{epochs={EPOCHS}}}"]
                    finetune(start, "classify", [given], valid, target, how=how, settings=settings, **options)
                metrics = json.loads((target / "metrics.json").read_text())
                scores = {split: metrics[f"{split}_scores"]["accuracy"] for split in ("valid", "test")}
                cells.append({"size": size, "how": how, "rate": rate, **scores})
                shutil.rmtree(target)
    last = {key: metrics[key] for key in known} | {"seconds": time.monotonic() - begun}
    loss = None
    if start is not None and name != "0 passes":
        loss = json.loads((start / "metrics.json").read_text())["valid_loss"]
    (folder / "result.json").write_text(json.dumps({"name": name, "seed": seed, "loss": loss, "cells": cells, **last}))


def shown(row: dict[str, Any]) -> str:
    best = chosen(row["cells"])
    loss = "" if row["loss"] is None else f"loss {row['loss']:.3f}  "
    return loss + "  ".join(f"{size} {how} {cell['test']:.3f}" for (size, how), cell in best.items())


def chosen(cells: list[dict[str, Any]]) -> dict[tuple[int, str], dict[str, Any]]:
    """Of each size and way the rate that is best on the valid part."""
    best: dict[tuple[int, str], dict[str, Any]] = {}
    for cell in cells:
        key = (cell["size"], cell["how"])
        if key not in best or cell["valid"] > best[key]["valid"]:
            best[key] = cell
    return best


def table(rows: list[dict[str, Any]]) -> str:
    from seqloom.metrics.intervals import student

    test: dict[tuple[str, int, str], dict[int, float]] = defaultdict(dict)
    losses: dict[str, list[float]] = defaultdict(list)
    for row in rows:
        if row["loss"] is not None:
            losses[row["name"]].append(row["loss"])
        for (size, how), cell in chosen(row["cells"]).items():
            test[row["name"], size, how][row["seed"]] = 100 * cell["test"]
    columns = [(size, how) for size in SIZES for how in HOWS]
    heads = " | ".join(f"{size:,} labels, {how}" for size, how in columns)
    lines = [f"| accuracy %, test | valid loss of its language model | {heads} |", "|---" * (2 + len(columns)) + "|"]
    for name in CELLS:
        cells = []
        for size, how in columns:
            found = test.get((name, size, "scratch" if name == "scratch" else how), {})
            first = test.get(("0 passes", size, "finetune"), {})
            pairs = [found[seed] - first[seed] for seed in found.keys() & first.keys()]
            if len(found) < 2:
                cells.append("–")
                continue
            mean = student(list(found.values()))
            text = f"{mean.value:.1f} [{mean.low:.1f}, {mean.high:.1f}]"
            if len(pairs) > 1 and (name, how) != ("0 passes", "finetune"):
                gap = student(pairs)
                text += f", {gap.value:+.1f} [{gap.low:+.1f}, {gap.high:+.1f}]"
            cells.append(text)
        loss = losses.get(NEWS if name == "0 passes" else name)
        on_news = " (on news)" if name == "0 passes" else ""
        lines.append(f"| {name} | {f'{np.mean(loss):.2f}{on_news}' if loss else '–'} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("trec", "wikinews", "out"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=1000.0)
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    out: Path = options.out
    if options.one:
        run_one(options.one, options.seed, options.trec, out)
        return
    until = time.monotonic() + 60 * options.minutes
    make_data(options.trec, options.wikinews, out)
    call = [sys.executable, __file__, *(str(getattr(options, name)) for name in ("trec", "wikinews", "out"))]
    rows: list[dict[str, Any]] = []
    for seed in range(options.seeds):  # a seed is whole before the next one begins
        for part in ([NEWS], CELLS):
            rows = run_jobs([(name, seed) for name in part], out, call, options.jobs, until, shown, NAMES)
    (out / "table.md").write_text(table(rows))
    print(table(rows))


if __name__ == "__main__":
    main()

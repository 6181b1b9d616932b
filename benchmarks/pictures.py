"""Captions, questions and transfer on scenes whose truth is known, and captions of real digits: every figure, by one command.

    python benchmarks/pictures.py --out OUT [--device auto] [--seeds 3] [--rows captions questions transfer digits]
                                  [--jobs 1] [--minutes 1000] [--tiny]

captions   show-tell, show-attend-tell with soft and hard attention, and captioner (patches and a Transformer), trained on the
           captions of 3,000 scenes: exact match, CIDEr-D and pointing on 500 scenes of the same kind and on 300 with combinations
           of colour and shape that no training scene has. `swapped`: the scores of captions of other pictures, which a
           model reaches that knows only what captions look like
questions  the same bodies on 9,000 questions with four choices, and an LSTM that reads the questions alone; by kind of question
transfer   the shape of single things from 10 … 1,000 pictures: the encoder of the soft captioner of the same seed as it is
           (features), fine-tuned, or from scratch
digits     captions of three of scikit-learn's handwritten digits side by side ("four one seven"); those of the test are in
           no training picture. Left out where scikit-learn is not installed

Every run is a process of its own, --jobs at a time; what is finished stays finished, and the same command goes on. Writes
OUT/results.jsonl and OUT/table.md. On a GPU: --device cuda --jobs 15, for twice as many epochs.
--tiny: small sizes, to see that it runs.
"""

import argparse
import contextlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import numpy as np
from several import place, run_jobs

CAPTIONS = {
    "caption show-tell": ("show-tell-tiny", []),
    "caption soft": ("show-attend-tell-tiny", []),
    "caption hard": ("show-attend-tell-tiny", ["model.attention=hard"]),
    "caption transformer": ("captioner-tiny", ["train.compile=false"]),
}
QUESTIONS = {
    "question text-only": ("lstm-tiny", ["train.compile=false"]),
    "question once": ("show-tell-tiny", []),
    "question attention": ("show-attend-tell-tiny", []),
    # at the rate of the others its numbers stop being finite in bf16
    "question transformer": (
        "captioner-tiny",
        ["train.compile=false", "train.optim.lr=0.0005", "train.schedule.warmup=400"],
    ),
}
HOWS = ("features", "finetune", "scratch")
TRANSFER = tuple(f"transfer {how}" for how in HOWS)
DIGITS = {
    "digits show-tell": "show-tell-tiny",
    "digits soft": "show-attend-tell-tiny",
    "digits transformer": "captioner-tiny",
}
GROUPS = {"captions": tuple(CAPTIONS), "questions": tuple(QUESTIONS), "transfer": TRANSFER, "digits": tuple(DIGITS)}
NAMES = tuple(name for names in GROUPS.values() for name in names)
SIZES = (10, 30, 100, 300, 1000)  # pictures to transfer to
EPOCHS = {"caption": 6, "question": 20, "digits": 60}  # twice as many with --device cuda
STEPS = 300  # of a transfer, whatever its size
WORDS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
SPLITS = {"train": 3000, "valid": 300, "test": 500, "composed": 300}
FEW = {"train": 40, "valid": 10, "test": 10, "composed": 10}


# ---- data, made once


def make_data(out: Path, tiny: bool, digits: bool) -> None:
    from seqloom.text.scenes import write_scenes

    done = out / "data" / "done"
    if not done.exists():
        shutil.rmtree(out / "data", ignore_errors=True)
        write_scenes(out / "data" / "scenes", FEW if tiny else SPLITS)
        single = out / "data" / "single"
        write_scenes(single, FEW | {"train": 30} if tiny else SPLITS | {"train": max(SIZES)}, seed=1, most=1)
        write_shapes(single)
        done.touch()
    if digits and not (out / "data" / "digits" / "test.jsonl").exists():
        write_digits(out / "data" / "digits", tiny)


def write_shapes(folder: Path) -> None:
    """The shape of the thing of each picture; `composed` is left out."""
    for split in ("train", "valid", "test"):
        rows = [json.loads(line) for line in (folder / f"{split}.jsonl").read_text().splitlines()]
        lines = [{"image": row["image"], "label": row["things"][0]["shape"]} for row in rows]
        write_rows(folder / f"shapes-{split}.jsonl", lines)


def write_rows(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_digits(folder: Path, tiny: bool) -> None:
    """Three digits side by side, each at a place of its own, 8 × 8 pixels enlarged to 16 × 16. The digits of a split are of no
    other one."""
    from sklearn.datasets import load_digits

    from seqloom.text.scenes import png

    found = load_digits()
    order = np.random.default_rng(0).permutation(len(found.images))
    parts = {"train": order[:1297], "valid": order[1297:1497], "test": order[1497:]}
    counts = {"train": 40, "valid": 10, "test": 10} if tiny else {"train": 3000, "valid": 300, "test": 500}
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for number, (split, members) in enumerate(parts.items()):
        rng, rows = np.random.default_rng((1, number)), []
        for i in range(counts[split]):
            chosen = rng.choice(members, 3, replace=False)
            canvas = np.zeros((64, 64), np.uint8)
            for k, each in enumerate(chosen):
                y, x = int(rng.integers(0, 49)), 1 + 21 * k + int(rng.integers(0, 5))
                canvas[y : y + 16, x : x + 16] = (
                    (found.images[each] * 255 / 16).astype(np.uint8).repeat(2, 0).repeat(2, 1)
                )
            image = f"images/{split}-{i:04d}.png"
            (folder / image).write_bytes(png(canvas[..., None].repeat(3, 2)))
            rows.append({"image": image, "captions": [" ".join(WORDS[found.target[each]] for each in chosen)]})
        write_rows(folder / f"{split}.jsonl", rows)


# ---- one run


def run_one(name: str, seed: int, out: Path, device: str, tiny: bool) -> None:
    import torch

    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "2")))
    folder = place(out, name, seed)
    folder.mkdir(parents=True, exist_ok=True)
    kind = name.split()[0]
    make = {"caption": caption, "question": question, "transfer": transfer, "digits": digits}[kind]
    scores, metrics = make(name, seed, out, folder, device, tiny)
    known = ("parameters", "step", "tokens", "tokens_per_second", "seconds", "epochs")
    row = {"name": name, "seed": seed, **{key: metrics[key] for key in known}, **scores}
    (folder / "result.json").write_text(json.dumps(row))


def files(folder: Path, kind: str = "") -> dict[str, Path]:
    return {split: folder / f"{kind}{split}.jsonl" for split in ("train", "valid", "test")}


def options(seed: int, device: str, folder: Path) -> dict[str, Any]:
    begun = (folder / "run" / "config.json").exists()
    return {"seed": seed, "device": device, "out": folder / "run", "resume": begun}


def metrics_of(run: Any) -> dict[str, Any]:
    return json.loads((run.folder / "metrics.json").read_text())


def budget(kind: str, device: str, tiny: bool) -> list[str]:
    if tiny:
        return ["budget={steps=4}", "train.eval_every=2"]
    return [f"budget={{epochs={EPOCHS[kind] * (2 if device == 'cuda' else 1)}}}"]


def caption(name: str, seed: int, out: Path, folder: Path, device: str, tiny: bool) -> Any:
    from seqloom.metrics.captions import caption_scores
    from seqloom.runs.training import train
    from seqloom.text.images import read_captions

    recipe, settings = CAPTIONS[name]
    data = files(out / "data" / "scenes")
    settings = [*settings, *budget("caption", device, tiny)]
    run: Any = train(
        recipe, "caption", data["train"], valid=data["valid"], settings=settings, **options(seed, device, folder)
    )
    found: dict[str, Any] = {}
    for split, path in {"test": data["test"], "composed": out / "data" / "scenes" / "composed.jsonl"}.items():
        rows = read_captions([path])
        found[split] = dict(run.evaluate(rows))
        texts = [best[0].text for best in run.caption([row.image for row in rows], show=False)]
        found[split]["swapped"] = caption_scores(texts[1:] + texts[:1], [row.captions for row in rows])
    return found, metrics_of(run)


def question(name: str, seed: int, out: Path, folder: Path, device: str, tiny: bool) -> Any:
    from seqloom.runs.training import train

    recipe, settings = QUESTIONS[name]
    data = files(out / "data" / "scenes", "questions-")
    settings = [
        "batches.examples=64",
        "train.optim.lr=0.002",
        "train.schedule.warmup=100",
        "train.optim.clip=1.0",
        *settings,
    ]
    settings += budget("question", device, tiny)
    run: Any = train(
        recipe, "choose", data["train"], valid=data["valid"], settings=settings, **options(seed, device, folder)
    )
    found: dict[str, Any] = {}
    for split in ("test", "composed"):
        path = out / "data" / "scenes" / f"questions-{split}.jsonl"
        examples = list(run.learner.read([path]))
        kinds = [json.loads(line)["kind"] for line in path.read_text().splitlines()]
        right = defaultdict(list)
        for kind, example, answer in zip(kinds, examples, run.predict_examples(examples), strict=True):
            for each in (kind, "all"):
                right[each].append(answer["label"] == example.label)
        found[split] = {kind: sum(each) / len(each) for kind, each in right.items()}
    return found, metrics_of(run)


def transfer(name: str, seed: int, out: Path, folder: Path, device: str, tiny: bool) -> Any:
    """Runs of all sizes, one after the other."""
    from seqloom.runs.training import finetune, train

    how, data = name.split()[1], files(out / "data" / "single", "shapes-")
    found, spent = {}, []
    for size in (10, 30) if tiny else SIZES:
        part = folder / f"{size}"
        part.mkdir(exist_ok=True)
        few = out / "data" / "single" / f"shapes-{size}-{seed}-{how}.jsonl"
        lines = data["train"].read_text().splitlines()
        few.write_text("\n".join(balanced(lines, size, seed)) + "\n")
        settings = ["train.schedule.warmup=20", "train.eval_every=50", "train.watch=loss", "train.optim.clip=1.0"]
        settings += ["budget={steps=4}"] if tiny else [f"budget={{steps={STEPS}}}"]
        given: dict[str, Any] = {"settings": settings, "valid": data["valid"], "test": data["test"]}
        given |= options(seed, device, part)
        start = place(out, "caption soft", seed) / "run"
        if how == "scratch":
            tokenizer = start / "tokenizer.json"
            run: Any = train(
                "show-attend-tell-tiny", "classify", few, **given | {"settings": [*settings, "train.optim.lr=0.002"]},
                from_tokenizer=tokenizer,
            )  # fmt: skip
        else:
            rate = "train.optim.lr=0.002" if how == "finetune" else "train.optim.lr=0.01"
            run = finetune(start, "classify", few, how=how, **given | {"settings": [*settings, rate]})
        spent.append(metrics_of(run))
        found[str(size)] = spent[-1]["test_scores"]["accuracy"]
    last = spent[-1]
    return {"accuracy": found}, last | {"seconds": sum(each["seconds"] for each in spent)}


def balanced(lines: Sequence[str], size: int, seed: int) -> list[str]:
    """So many lines, all labels equally often as long as there are enough; more of them begin with fewer of one seed."""
    order = np.random.default_rng(seed).permutation(len(lines))
    labels = np.array([json.loads(lines[i])["label"] for i in order])
    nth = np.zeros(len(lines), int)  # how many of the same label stand before
    for label in np.unique(labels):
        nth[labels == label] = np.arange((labels == label).sum())
    return [lines[order[i]] for i in np.argsort(nth, kind="stable")[:size]]


def digits(name: str, seed: int, out: Path, folder: Path, device: str, tiny: bool) -> Any:
    from seqloom.runs.training import train

    data = files(out / "data" / "digits")
    settings = ["train.compile=false", "batches.budget=256", *budget("digits", device, tiny)]
    run: Any = train(
        DIGITS[name], "caption", data["train"], valid=data["valid"], test=data["test"], settings=settings,
        **options(seed, device, folder),
    )  # fmt: skip
    metrics = metrics_of(run)
    return {"test": metrics["test_scores"]}, metrics


# ---- all of them


def shown(row: dict[str, Any]) -> str:
    kind = row["name"].split()[0]
    if kind == "transfer":
        return " ".join(f"{size}: {value:.1%}" for size, value in row["accuracy"].items())
    if kind == "question":
        return " ".join(f"{split} {row[split]['all']:.1%}" for split in ("test", "composed"))
    point = f" pointing {row['test']['pointing']:.1%}" if "pointing" in row["test"] else ""
    return f"exact {row['test']['exact_match']:.1%} CIDEr {row['test']['cider']:.2f}{point}"


def spread(values: Sequence[float], form: Callable[[float], str]) -> str:
    more = f" ± {form(stdev(values))}" if len(values) > 1 else ""
    return form(mean(values)) + more


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def plain(value: float) -> str:
    return f"{value:.2f}"


def caption_table(rows: dict[str, list[dict[str, Any]]], split: str) -> list[str]:
    lines = [
        f"| captions, {split} | exact match % | CIDEr-D | swapped CIDEr-D | pointing % | attention on it % | chance % |",
        "|---|---|---|---|---|---|---|",
    ]
    for name in (*CAPTIONS, *DIGITS):
        found = [row[split] for row in rows.get(name, ()) if split in row]
        if not found:
            continue
        cells = [
            spread([each["exact_match"] for each in found], percent),
            spread([each["cider"] for each in found], plain),
        ]
        swapped = [each["swapped"]["cider"] for each in found if "swapped" in each]
        cells.append(spread(swapped, plain) if swapped else "–")
        for key in ("pointing", "attention_share", "pointing_chance"):
            cells.append(spread([each[key] for each in found], percent) if key in found[0] else "–")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines if len(lines) > 2 else []


def question_table(rows: dict[str, list[dict[str, Any]]], split: str) -> list[str]:
    kinds = ("all", "colour", "count", "where", "shape", "exists", "left")
    lines = [f"| questions, {split}: accuracy % | {' | '.join(kinds)} |", "|---" * (len(kinds) + 1) + "|"]
    for name in QUESTIONS:
        found = [row[split] for row in rows.get(name, ())]
        cells = [spread([each[kind] for each in found if kind in each] or [0.0], percent) for kind in kinds]
        lines += [f"| {name} | {' | '.join(cells)} |"] if found else []
    return lines if len(lines) > 2 else []


def transfer_table(rows: dict[str, list[dict[str, Any]]]) -> list[str]:
    sizes = list(next((found[0]["accuracy"] for name, found in rows.items() if name in TRANSFER), ()))
    lines = [
        f"| shape of a thing from so many pictures: accuracy % | {' | '.join(sizes)} |",
        "|---" * (len(sizes) + 1) + "|",
    ]
    for name in TRANSFER:
        found = [row["accuracy"] for row in rows.get(name, ())]
        cells = [spread([each[size] for each in found], percent) for size in sizes] if found else []
        lines += [f"| {name} | {' | '.join(cells)} |"] if found else []
    return lines if len(lines) > 2 else []


def write_table(rows: Sequence[dict[str, Any]], out: Path) -> str:
    by_name: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_name[row["name"]].append(row)
    tables = [caption_table(by_name, "test"), caption_table(by_name, "composed")]
    tables += [question_table(by_name, "test"), question_table(by_name, "composed"), transfer_table(by_name)]
    costs = ["| run | seeds | parameters | steps | tokens | seconds of training |", "|---|---|---|---|---|---|"]
    for name in NAMES:
        if found := by_name.get(name):
            size, steps, read = (round(mean(row[key] for row in found)) for key in ("parameters", "step", "tokens"))
            took = spread([row["seconds"] for row in found], lambda value: f"{value:.0f}")
            costs.append(f"| {name} | {len(found)} | {size:,} | {steps:,} | {read:,} | {took} |")
    text = "\n\n".join("\n".join(table) for table in [*tables, costs] if table) + "\n"
    (out / "table.md").write_text(text)
    return text


@contextlib.contextmanager
def shared_gpu(wanted: bool) -> Any:
    """Processes share the multiprocessors of a GPU, where its control program is there; without it they take turns."""
    program = shutil.which("nvidia-cuda-mps-control")
    if not wanted or program is None:
        yield
        return
    started = subprocess.run([program, "-d"], check=False).returncode == 0  # another one may be there, and in use
    try:
        yield
    finally:
        if started:
            subprocess.run([program], input=b"quit\n", check=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="+", default=list(GROUPS), help=f"of {', '.join(GROUPS)}, or names of runs")
    parser.add_argument("--jobs", type=int)
    parser.add_argument("--minutes", type=float, default=1000)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--one")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    out, device = arguments.out, arguments.device
    if arguments.one:
        run_one(arguments.one, arguments.seed, out, device, arguments.tiny)
        return
    until = time.monotonic() + 60 * arguments.minutes
    names = [name for row in arguments.rows for name in GROUPS.get(row, (row,))]
    if unknown := [name for name in names if name not in NAMES]:
        parser.error(f"--rows {unknown[0]}: choose of {', '.join([*GROUPS, *NAMES])}")
    with_digits = importlib.util.find_spec("sklearn") is not None
    if not with_digits and any(name in DIGITS for name in names):
        print("scikit-learn is not installed: digits are left out", flush=True)
        names = [name for name in names if name not in DIGITS]
    out.mkdir(parents=True, exist_ok=True)
    make_data(out, arguments.tiny, any(name in DIGITS for name in names))
    jobs = arguments.jobs or (15 if device == "cuda" else 1)
    command = [sys.executable, __file__, f"--out={out}", f"--device={device}", *(["--tiny"] if arguments.tiny else [])]
    rows: list[dict[str, Any]] = []
    with shared_gpu(device == "cuda" and jobs > 1):
        # what is transferred is learnt first; long runs before short ones
        for stage in ([name for name in names if name not in TRANSFER], [name for name in names if name in TRANSFER]):
            todo = [(name, seed) for name in sorted(stage, key=order_of) for seed in range(arguments.seeds)]
            rows = run_jobs(todo, out, command, jobs, until, shown, NAMES)
    print(write_table(rows, out), flush=True)


def order_of(name: str) -> int:
    return [*CAPTIONS, *QUESTIONS, *DIGITS, *TRANSFER].index(name)


if __name__ == "__main__":
    main()

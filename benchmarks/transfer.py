"""What pre-training is worth: tasks learnt from scratch, from frozen features and by fine-tuning, with models of four kinds.

    python benchmarks/transfer.py TASKS OUT FILE... [--groups main once ...] [--jobs 12] [--minutes 8.5] [--tokens 48e6]

TASKS: a folder as `tasks_data.py` writes it (packed files are read, too). FILE: the text to pre-train on, with the splits that it
names; documents that repeat a test text of a task are left out. First the backbones are pre-trained, all at a time, or taken
over from encoders.py (--encoders ITS_OUT); then tasks, each of --jobs processes one after the other. What is finished stays
finished (OUT/done/*.json), so the script can be called again and again in parts of --minutes; exit code 75 says that there is
more to do. OUT/tables.md: the tables.

    main      sst, trec, mrpc, conll2000 chunks, wikigold × four models × scratch, features, fine-tuned × 3 seeds
    once      eleven further sets, fine-tuned, and from scratch
    ulmfit    trec, LSTM, 5 seeds: scratch; fine-tuned; the language model tuned on the text first, then gradually; both ways
    ablation  BERT without the next sentence, left to right, and both with a BiLSTM on top, on mrpc and sick
    domains   sst → cr, mpqa, product_reviews: what was learnt there is tested here
    crf       conll2000 and wikigold: CRF against softmax
"""

import argparse
import json
import lzma
import os
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from encoders import ROWS, STEPS, folder_of

# of these models the rows of encoders.py are taken, lengths of steps and of passages included
ENCODERS = {"gpt": "left to right", "bert": "bert", "bert-no-nsp": "bert, no next sentence", "electra": "electra"}
BESIDE = [*STEPS, "train.compile=false"]  # several at a time
STREAMS = [*BESIDE, "model.dim=448", "batches.streams=64", "batches.length=128", "train.optim.lr=2e-3"]
# name: recipe, settings, which text
BACKBONES: dict[str, tuple[str, list[str], str]] = {
    "lstm": ("lstm-small", STREAMS, "data"),
    "lstm-back": ("lstm-small", STREAMS, "back"),
    **{name: (ROWS[row][0], [*BESIDE, *ROWS[row][1]], "data") for name, row in ENCODERS.items()},
}
MAIN = ("sst", "trec", "mrpc", "conll2000", "wikigold")
ONCE = ("cola", "sick", "rte", "subjectivity", "wnut17", "btc", "persuasive-essays", "brown", "squad", "codah", "sts")
KINDS = {
    "pair": ("mrpc", "sick", "rte"), "tag": ("conll2000", "wikigold", "wnut17", "btc", "persuasive-essays", "brown"),
    "span": ("squad",), "choose": ("codah",), "regress": ("sts",),
}  # fmt: skip
LARGE = ("brown", "squad")  # fewer passes
FAST = ["train.compile=false", "train.save_every=1000000"]


def task_of(data: str) -> str:
    return next((task for task, names in KINDS.items() if data in names), "classify")


def job(group: str, data: str, model: str, how: str, seed: int, *settings: str, row: str = "") -> dict[str, Any]:
    """What two groups show is one job: its name says what is done, not for whom."""
    name = "_".join(
        (data, model, how, *(each.removeprefix("task.") for each in settings if each.startswith("task.")), str(seed))
    )
    return {"name": name, "group": group, "data": data, "model": model, "how": how, "row": row or how, "seed": seed,
            "settings": [*FAST, *settings]}  # fmt: skip


def jobs_of(groups: list[str]) -> Iterator[dict[str, Any]]:
    four = ("lstm", "gpt", "bert", "electra")
    if "main" in groups:
        for seed in range(3):
            for data in MAIN:
                yield from (
                    job("main", data, model, how, seed) for model in four for how in ("scratch", "features", "finetune")
                )
    if "once" in groups:
        for data in ONCE:
            for how in ("scratch", "finetune"):
                fewer = [f"budget={{epochs={5 if how == 'scratch' else 3}}}"] if data in LARGE else []
                yield from (job("once", data, model, how, 0, *fewer) for model in four)
    if "ulmfit" in groups:
        for seed in range(5):
            yield job("ulmfit", "trec", "lstm", "scratch", seed)
            yield job("ulmfit", "trec", "lstm", "finetune", seed)
            yield job("ulmfit", "trec", "lstm-on-trec", "gradual", seed)
            yield job("ulmfit", "trec", "lstm-back-on-trec", "gradual", seed)
    if "ablation" in groups:
        for data in ("mrpc", "sick"):
            for seed in range(3):
                yield from (job("ablation", data, model, "finetune", seed) for model in ("bert", "bert-no-nsp", "gpt"))
                reader = ["task.reader=lstm", "task.pool=concat"]
                yield from (
                    job("ablation", data, model, "finetune", seed, *reader, row="with BiLSTM")
                    for model in ("bert-no-nsp", "gpt")
                )
    if "domains" in groups:
        for seed in range(3):
            yield from (job("domains", "sst", model, how, seed) for model in four for how in ("scratch", "finetune"))
    if "crf" in groups:
        for data in ("conll2000", "wikigold"):
            for seed in range(3):
                for how in ("scratch", "finetune"):
                    yield job("crf", data, "bert", how, seed, row=f"{how}, softmax")
                    yield job("crf", data, "bert", how, seed, "task.crf=true", row=f"{how}, CRF")


def once(groups: list[str]) -> list[dict[str, Any]]:
    return list({work["name"]: work for work in jobs_of(groups)}.values())


def files(tasks: Path, data: str, split: str) -> list[Path]:
    return sorted((tasks / data).glob(f"{split}.*"))[:1]


def opened(path: Path) -> str:
    return (lzma.open(path, "rt") if path.suffix == ".xz" else path.open()).read()


def prepare_texts(tasks: Path, sources: list[Path], out: Path) -> None:
    """The text without documents that repeat a test text, and the same backward."""
    from seqloom.batches.prepare import prepare

    held = out / "held.jsonl"
    with held.open("w") as stream:
        for path in sorted(tasks.glob("*/test.*")):
            text = opened(path)
            if ".json" in path.name and not path.name.startswith("test.jsonl"):
                texts = [p["context"] for a in json.loads(text)["data"] for p in a["paragraphs"]]
            elif ".conll" in path.name:
                texts = [
                    " ".join(line.split()[0] for line in part.splitlines() if line.split())
                    for part in text.split("\n\n")
                ]
            else:
                rows = [json.loads(line) for line in text.splitlines() if line.strip()]
                texts = [" ".join(v for k, v in row.items() if k in ("text", "text2")) for row in rows]
            for each in texts:
                if each.strip():
                    stream.write(json.dumps({"text": each, "split": "test"}) + "\n")
    for name, more in (("data", {}), ("back", {"backward": True})):
        if not (out / name / "manifest.json").exists():
            given = out / "data/tokenizer.json"
            words = {"from_tokenizer": given} if name == "back" else {"tokenizer": "wordpiece", "vocab_size": 16384}
            prepare([*sources, held], out / name, split_field="split", leak_share=0.1, **words, **more)


def pretrained(name: str, out: Path, tokens: float, device: str) -> None:
    from seqloom.runs.training import pretrain

    folder = out / "pre" / name
    if (folder / "card.md").exists():
        return
    if name.endswith("-on-trec"):  # the language model goes on with the task's own text
        base = name.removesuffix("-on-trec")
        recipe, settings, _ = BACKBONES[base]
        settings = [*settings, "budget={epochs=8}", "batches.streams=16", "batches.length=32", "train.optim.lr=5e-4"]
        data = out / ("trec-back" if base.endswith("back") else "trec")
        pretrain(recipe, data, folder, settings=settings, device=device, start=out / "pre" / base, overwrite=True)
        return
    recipe, settings, text = BACKBONES[name]
    pretrain(
        recipe,
        out / text,
        folder,
        settings=[*settings, f"budget={{tokens={tokens}}}"],
        device=device,
        resume=(folder / "config.json").exists(),
    )


def tuned_texts(tasks: Path, out: Path) -> None:
    """The texts of trec, as language models are tuned on them."""
    from seqloom.batches.prepare import prepare

    plain = out / "trec.jsonl"
    rows = [json.loads(line) for line in opened(files(tasks, "trec", "train")[0]).splitlines()]
    plain.write_text("".join(json.dumps({"text": row["text"]}) + "\n" for row in rows))
    for name, backward in (("trec", False), ("trec-back", True)):
        if not (out / name / "manifest.json").exists():
            given = out / "data/tokenizer.json"
            prepare([plain], out / name, from_tokenizer=given, valid=0.05, backward=backward, keep_duplicates=True)


def done(work: dict[str, Any], tasks: Path, out: Path, device: str) -> dict[str, Any]:
    import torch

    from seqloom.runs.examples import dataset_class
    from seqloom.runs.first_weights import transfer_from
    from seqloom.runs.load import load
    from seqloom.runs.options import RunOptions
    from seqloom.runs.training import files_of, train_run
    from seqloom.runs.transfer_recipe import recipe_after
    from seqloom.tasks import task_class

    folder, data, task = out / "runs" / work["name"], work["data"], task_of(work["data"])
    given = {split: files(tasks, data, split) for split in ("train", "valid", "test")}
    shutil.rmtree(folder, ignore_errors=True)
    before: Any = load(out / "pre" / work["model"], "cpu")
    started = time.monotonic()
    recipe = recipe_after(before, task, work["how"], work["settings"])
    options = RunOptions(seed=work["seed"], overwrite=True, device=device)
    # from scratch: the same model and tokenizer, other first weights
    first = transfer_from(before, weights=work["how"] != "scratch")
    dataset = dataset_class(task_class(task), task)(recipe, files_of(**given), before.tokenizer)
    run: Any = train_run(dataset, folder, options, first)
    metrics = json.loads((folder / "metrics.json").read_text())
    kept = ("step", "tokens", "seconds", "flops", "parameters", "tokens_per_second")
    result = work | {key: metrics[key] for key in kept} | {"all_seconds": time.monotonic() - started}
    for split in ("valid", "test"):
        scores = metrics[f"{split}_scores"]
        result[split] = {key: value for key, value in scores.items() if isinstance(value, int | float)}
    mix = getattr(run.learner, "mix", None)
    if mix is not None:
        result["shares"] = [round(share, 4) for share in mix.shares.tolist()]
    if data == "sst":
        result["elsewhere"] = {
            name: run.evaluate(files(tasks, name, "test"))["accuracy"] for name in ("cr", "mpqa", "product_reviews")
        }
    if work["model"] == "lstm-back-on-trec":  # with the one that reads forward
        other: Any = load(out / "runs" / partner(work), device)
        result["both"] = other.evaluate(given["test"], others=[run])["accuracy"]
    shutil.rmtree(folder / "checkpoints", ignore_errors=True)
    if not work["model"].endswith("-on-trec"):
        shutil.rmtree(folder, ignore_errors=True)
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return result


def costly(work: dict[str, Any]) -> float:
    """What is begun first: a long one at the end would leave the others idle."""
    size = {
        "brown": 40,
        "squad": 40,
        "conll2000": 8,
        "btc": 6,
        "sst": 5,
        "sick": 4,
        "subjectivity": 4,
        "mrpc": 3,
        "trec": 3,
    }
    return -size.get(work["data"], 1) * (3 if work["how"] == "scratch" else 1) * (2 if work["model"] == "lstm" else 1)


def worker(arguments: argparse.Namespace) -> None:
    """The next job that nobody has taken, as long as there is time."""
    import torch

    from seqloom.errors import SeqloomError

    torch.set_num_threads(1)
    out, left = arguments.out, sorted(once(arguments.groups), key=costly)
    while left and time.time() < arguments.until:
        # both directions are measured together by the one that comes second
        ready = (w for w in left if w["model"] != "lstm-back-on-trec" or (out / "done" / f"{partner(w)}.json").exists())
        work = next(ready, None)
        if work is None:
            time.sleep(1)
            continue
        left.remove(work)
        path = out / "done" / f"{work['name']}.json"
        try:
            (out / "taken" / work["name"]).touch(exist_ok=False)
        except FileExistsError:
            continue
        if path.exists():
            continue
        try:
            path.write_text(json.dumps(done(work, arguments.tasks, out, arguments.device)))
        except SeqloomError as error:
            print(f"{work['name']}: {error}", flush=True)


def partner(work: dict[str, Any]) -> str:
    return work["name"].replace("lstm-back-on-trec", "lstm-on-trec")


def main_metric(result: dict[str, Any], split: str = "test") -> float:
    return 100 * result[split]["score"]


def tables(results: dict[str, dict[str, Any]], groups: list[str]) -> str:
    """A table a group: rows are data and model, columns what was done; the test's first score in percent, ± deviation."""
    text = []
    for group in groups:
        some = [results[work["name"]] | work for work in jobs_of([group]) if work["name"] in results]
        columns = list(dict.fromkeys(result["row"] for result in some))
        text += [f"## {group}", "", f"| data | model | {' | '.join(columns)} |", "|---" * (len(columns) + 2) + "|"]
        for data, model in dict.fromkeys((result["data"], result["model"]) for result in some):
            cells = []
            for column in columns:
                values = [main_metric(r) for r in some if (r["data"], r["model"], r["row"]) == (data, model, column)]
                spread = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
                cells.append(f"{statistics.mean(values):.1f}{spread} ({len(values)})" if values else "–")
            text.append(f"| {data} | {model} | {' | '.join(cells)} |")
        text.append("")
        for name in ("elsewhere", "both", "shares"):
            extra = [result for result in some if name in result]
            text += [f"{name}: {r['data']} {r['model']} {r['row']} seed {r['seed']}: {r[name]}" for r in extra]
        text.append("")
    return "\n".join(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="*")
    parser.add_argument("--groups", nargs="+", default=["main", "once", "ulmfit", "ablation", "domains", "crf"])
    parser.add_argument("--jobs", type=int, default=12)
    parser.add_argument("--minutes", type=float, default=8.5)
    parser.add_argument("--tokens", type=float, default=48e6, help="of pre-training")
    parser.add_argument(
        "--earlier", type=Path, help="results.jsonl of another machine: what is in it is not done again"
    )
    parser.add_argument("--encoders", type=Path, help="where encoders.py has put models that learnt from OUT/data")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--until", type=float, default=0.0, help=argparse.SUPPRESS)
    parser.add_argument("--pretrain", help=argparse.SUPPRESS)
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    out, tasks = arguments.out, arguments.tasks
    (out / "done").mkdir(parents=True, exist_ok=True)
    if arguments.pretrain:
        pretrained(arguments.pretrain, out, arguments.tokens, arguments.device)
        return
    if arguments.worker:
        worker(arguments)
        return
    until = time.time() + 60 * arguments.minutes
    prepare_texts(tasks, arguments.sources, out)
    tuned_texts(tasks, out)
    call = [sys.executable, __file__, str(tasks), str(out), "--device", arguments.device, "--groups", *arguments.groups]
    call += ["--until", str(until), "--tokens", str(arguments.tokens)]
    (out / "pre").mkdir(exist_ok=True)
    for line in arguments.earlier.read_text().splitlines() if arguments.earlier else ():
        (out / "done" / f"{json.loads(line)['name']}.json").write_text(line)
    for name, row in ENCODERS.items():
        if arguments.encoders and not (out / "pre" / name).exists():
            (out / "pre" / name).symlink_to(folder_of(arguments.encoders, row, 0).resolve())
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    needed = list(dict.fromkeys(work["model"] for work in jobs_of(arguments.groups)))
    bases = list(dict.fromkeys(name.removesuffix("-on-trec") for name in needed))
    for names in (bases, [name for name in needed if name.endswith("-on-trec")]):
        missing = [name for name in names if not (out / "pre" / name / "card.md").exists()]
        running = [
            subprocess.Popen([*call, "--pretrain", name], stderr=(out / f"pre-{name}.log").open("w"), env=environment)
            for name in missing
        ]
        for name, process in zip(missing, running, strict=True):
            if process.wait():
                print(f"{name}: {(out / f'pre-{name}.log').read_text()[-500:]}", flush=True)
        if missing:
            print(f"pre-trained: {', '.join(missing)}", flush=True)
    started = time.time()
    shutil.rmtree(out / "taken", ignore_errors=True)
    (out / "taken").mkdir()
    workers = [
        subprocess.Popen([*call, "--worker"], stderr=(out / f"worker-{i}.log").open("w"), env=environment)
        for i in range(arguments.jobs)
    ]
    for process in workers:
        process.wait()
    results = {path.stem: json.loads(path.read_text()) for path in sorted((out / "done").glob("*.json"))}
    (out / "results.jsonl").write_text("".join(json.dumps(result) + "\n" for result in results.values()))
    (out / "tables.md").write_text(tables(results, arguments.groups))
    print(tables(results, arguments.groups))
    left = [work["name"] for work in once(arguments.groups) if work["name"] not in results]
    print(f"{len(results)} jobs done, {len(left)} left, {time.time() - started:.0f} s of tasks", flush=True)
    sys.exit(75 if left else 0)


if __name__ == "__main__":
    main()

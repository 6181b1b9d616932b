"""The first four minutes: three language models of equal size, on the text that ships with every Python.

The corpus is Python's own manual (the topics of pydoc) and the docstrings of the standard library. Nothing is downloaded.
"""

import ast
import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqloom.batches.prepare import prepare
from seqloom.charts import Curve
from seqloom.files import write_bytes
from seqloom.progress import Progress, human, say
from seqloom.report import Page, render
from seqloom.runs import Run, pretrain

TOKENS_PER_MINUTE = 230_000  # of each model, so that all three fit into four minutes on two cores

# about a million parameters each, with a vocabulary of 2,048
MODELS: dict[str, list[str]] = {
    "rnn": ["model.dim=320", "train.optim.lr=1.5e-3"],
    "lstm": ["model.dim=196", "train.optim.lr=8e-3"],
    "gpt2": ["model.dim=168", "model.num_layers=2", "model.num_heads=7", "model.max_len=64", "train.optim.lr=1e-3"],
}


def built_in_text() -> Iterator[str]:
    """Documents of English that every Python has: pydoc's topics, then every module's docstrings."""
    from pydoc_data import topics

    yield from topics.topics.values()
    library = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(library.glob("**/*.py")):
        if {"site-packages", "test", "tests", "lib2to3", "idlelib", "pydoc_data"} & set(path.parts):
            continue
        try:
            tree = ast.parse(path.read_bytes())
        except (OSError, SyntaxError, ValueError):
            continue
        kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        found = [ast.get_docstring(node) for node in ast.walk(tree) if isinstance(node, kinds)]
        text = "\n\n".join(part for part in found if part)
        if len(text) > 200:
            yield text


def run_quickstart(out: Path, minutes: float, seed: int = 0) -> Path:
    """Prepares, trains three models at an equal budget, and writes the report. Returns its path."""
    out.mkdir(parents=True, exist_ok=True)
    text = out / "python-text.jsonl"
    with Progress("collect", None, "documents") as bar:
        rows = []
        for document in built_in_text():
            rows.append(json.dumps({"text": document}, ensure_ascii=True))
            bar.advance(1)
    write_bytes(text, ("\n".join(rows) + "\n").encode())
    say(f"1. {len(rows):,} documents that ship with Python {sys.version.split()[0]} → {text}")
    manifest = prepare([text], out / "data", vocab_size=2048, valid=0.06, overwrite=True)
    sizes = {name: entry.tokens for name, entry in manifest.splits.items()}
    say(f"2. prepared: {human(sizes['train'])} training tokens, {human(sizes['valid'])} held out")
    tokens = TOKENS_PER_MINUTE * minutes
    runs = {}
    for number, (name, settings) in enumerate(MODELS.items(), 3):
        say(f"{number}. {name}")
        shape = (
            ["batches.streams=16", "batches.length=64"]
            if name != "gpt2"
            else ["batches.budget=512", "batches.length=64"]
        )
        recipe = [
            *settings,
            *shape,
            f"budget={{tokens={tokens:.0f}}}",
            f"train.eval_every={max(20, int(tokens / 1024 / 6))}",
        ]
        runs[name] = pretrain(f"{name}-tiny", out / "data", out / name, settings=recipe, seed=seed, overwrite=True)
    return write_report(out, runs, tokens, seed)


HEADER = ("model", "parameters", "tokens", "seconds", "tokens/s", "FLOPs", "kWh", "valid loss", "bits per byte")


def write_report(out: Path, runs: dict[str, Run], tokens: float, seed: int) -> Path:
    rows, curves, costs, samples = [], [], [], []
    for name, run in runs.items():
        metrics: dict[str, Any] = json.loads((run.folder / "metrics.json").read_text())
        result = run.evaluate(out / "data", "valid", stride=run.learner.backbone.max_len)
        lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        losses = [line for line in lines if "loss" in line]
        curves.append(Curve(name, [(line["tokens"], line["loss"]) for line in losses]))
        costs.append(Curve(name, [(line["flops"], line["loss"]) for line in losses]))
        samples.append((name, run.generate("The ", max_new=150, temperature=0.8, seed=seed)[0].text))
        rows.append(
            (
                name,
                f"{metrics['parameters']:,}",
                f"{metrics['tokens']:,}",
                f"{metrics['seconds']:.0f}",
                human(metrics["tokens_per_second"]),
                f"{metrics['flops']:.2e}",
                f"{metrics['energy_kwh']:.1e}",
                f"{result['loss']:.3f}",
                f"{result['bits_per_byte']:.3f}",
            )
        )
    widths = [max(len(row[i]) for row in [HEADER, *rows]) for i in range(len(HEADER))]
    for row in [HEADER, *rows]:
        print("  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True)))
    page = Page(
        title="Three language models at an equal budget",
        remarks=[
            f"An RNN, an LSTM and a GPT-2 of about a million parameters each, trained on {tokens:,.0f} tokens of the text "
            "that ships with Python. Bits per byte is the figure to compare: what each byte of held-out text costs.",
            f"One seed ({seed}): differences of a few hundredths may be noise. Energy is an estimate unless a GPU measured it.",
        ],
        charts=[
            ("Loss against tokens read", "tokens", "training loss, nats a token", curves),
            ("Loss against computation", "floating-point operations", "training loss, nats a token", costs),
        ],
        header=HEADER,
        rows=rows,
        samples=samples,
        commands=[
            "seqloom prepare YOUR.txt --out data --valid 0.05",
            "seqloom pretrain lstm-tiny --data data --out runs/lstm",
            f"seqloom generate {out / 'gpt2'} --prompt 'The '",
            f"seqloom evaluate {out / 'lstm'} --data {out / 'data'} --split valid",
            "seqloom recipes gpt2-tiny --toml > my.toml",
        ],
    )
    path = out / "report.html"
    write_bytes(path, render(page).encode())
    return path

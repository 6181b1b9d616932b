"""Brown, as the paper of the NNLM has it: n-grams, the network and both mixed.

    python benchmarks/brown.py brown.tsv.xz OUT [--epochs 20] [--seeds 3] [--rows h200-dropout ...] [--device auto]

Bengio et al., 2003: the first 800,000 words to train on, the next 200,000 to choose by, the rest to test; words seen
three times or less are one. Whole texts are kept together, so the borders lie at the next end of a text. The rows of the
search are trained with one seed and chosen by their validation loss; the best one is then trained with all seeds. Rows
that are done are not done again: a broken script goes on where it was. --rows: train these of the search and no more, for
several processes at once.
"""

import argparse
import json
import lzma
import statistics
import time
from itertools import groupby
from pathlib import Path
from typing import Any

from seqloom.batches.prepare import prepare
from seqloom.errors import SeqloomError
from seqloom.runs.language_model import Run
from seqloom.runs.load import load
from seqloom.runs.training import pretrain

SEARCH: dict[str, list[str]] = {
    "h50-direct": ["model.dim=50", "model.direct=true", "train.optim.weight_decay=0.1"],
    "h100-direct-dropout": ["model.dim=100", "model.direct=true", "model.dropout=0.3"],
    "h200-dropout": ["model.dim=200", "model.dropout=0.3"],
    "h400-dropout": ["model.dim=400", "model.embedding_dim=100", "model.dropout=0.5"],
    "h400-order8": ["model.dim=400", "model.embedding_dim=100", "model.dropout=0.5", "model.order=8"],
    "h800-order5": ["model.dim=800", "model.embedding_dim=150", "model.dropout=0.6"],
    "h800-order8": ["model.dim=800", "model.embedding_dim=150", "model.dropout=0.6", "model.order=8"],
    "h800-order8-slower": ["model.dim=800", "model.embedding_dim=150", "model.dropout=0.6", "model.order=8",
                           "train.optim.lr=1e-3"],
}  # fmt: skip


def write_splits(source: Path, folder: Path) -> list[Path]:
    paths = [folder / f"{name}.jsonl" for name in ("train", "valid", "test")]
    if all(path.exists() for path in paths):
        return paths
    rows = (line.split("\t") for line in lzma.decompress(source.read_bytes()).decode().splitlines())
    texts: list[list[str]] = [[], [], []]
    seen, borders = 0, (800_000, 1_000_000)
    for _, sentences in groupby(rows, key=lambda row: row[0]):
        words = [token.rpartition("/")[0] for row in sentences for token in row[2].split()]
        texts[sum(seen >= border for border in borders)].append(" ".join(words))
        seen += len(words)
    for path, part in zip(paths, texts, strict=True):
        path.write_text("".join(json.dumps({"text": text}) + "\n" for text in part), encoding="utf-8")
    return paths


def trained(recipe: str, data: Path, out: Path, settings: list[str], seed: int, device: str) -> Run:
    if (out / "card.md").exists():
        return load(out, device)
    return pretrain(recipe, data, out, settings=settings, seed=seed, device=device, overwrite=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rows", nargs="*", default=[], choices=SEARCH)
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    out, device = arguments.out, arguments.device
    out.mkdir(parents=True, exist_ok=True)
    train, valid, test = write_splits(arguments.source, out)
    data = out / "data"
    if not (data / "manifest.json").exists():
        prepare([train], data, tokenizer="word", words="space", min_count=4, valid=valid, test=test)
    results: dict[str, Any] = {}

    def keep(name: str, run: Run, split: str = "test", other: Run | None = None) -> float:
        started = time.monotonic()
        found = run.evaluate(data, split) if other is None else run.mix(other, data, split)
        results[name] = found
        share = f", share {found['lambda']:.3f}" if "lambda" in found else ""
        print(
            f"{name:40} {split:5} perplexity {found['perplexity']:8.2f}{share}  {time.monotonic() - started:.1f} s",
            flush=True,
        )
        (out / "results.json").write_text(json.dumps(results, indent=1))
        return found["perplexity"]

    common = [
        f"budget={{epochs={arguments.epochs}}}", "batches.streams=64", "batches.length=64", "train.optim.lr=2e-3",
        "train.schedule.warmup=100", "train.eval_every=195", "train.save_every=100000", "train.patience=4",
        "train.compile=false", "valid.limit=0",
        "model.order=5", "model.embedding_dim=60", "model.direct=false",
    ]  # fmt: skip
    for name in arguments.rows:
        trained("nnlm-bengio-brown", data, out / f"search-{name}", [*common, *SEARCH[name]], 0, device)
    if arguments.rows:
        return
    grams = {
        order: trained("ngram-small", data, out / f"kn{order}", [f"model.order={order}"], 0, device) for order in (3, 5)
    }
    for order, run in grams.items():
        keep(f"kneser-ney order {order}", run)
    scores = {}
    for name, settings in SEARCH.items():
        try:
            run = trained("nnlm-bengio-brown", data, out / f"search-{name}", [*common, *settings], 0, device)
        except SeqloomError as error:
            print(f"{name}: {error}", flush=True)
            continue
        scores[name] = keep(f"search {name}", run, "valid")
    best = min(scores, key=scores.__getitem__)
    print(f"best by validation: {best}", flush=True)
    alone, mixed = [], []
    for seed in range(arguments.seeds):
        where = out / (f"search-{best}" if seed == 0 else f"best-{seed}")
        run = trained("nnlm-bengio-brown", data, where, [*common, *SEARCH[best]], seed, device)
        alone.append(keep(f"nnlm {best} seed {seed}", run))
        mixed.append(keep(f"nnlm {best} seed {seed} + order 5", run, "test", grams[5]))
    for name, values in (("nnlm", alone), ("nnlm + order 5", mixed)):
        spread = statistics.stdev(values) if len(values) > 1 else 0.0
        print(
            f"{name:40} test  perplexity {statistics.mean(values):8.2f} ± {spread:.2f} (deviation of {len(values)} seeds)"
        )


if __name__ == "__main__":
    main()

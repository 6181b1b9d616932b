"""Translation, from the vector of a whole sentence to the Transformer: BLEU on Multi30k, and English–Japanese.

    python benchmarks/multi30k.py MULTI30K ENJA OUT [--rows NAME ... | --variations] [--jobs 8] [--seeds 3] [--minutes 9]

MULTI30K: a folder with train.en.txt.gz, val…, test_2016_flickr… in en and de. ENJA: one with train.en.txt.gz, dev.en.txt,
test.en.txt and ja, its words parted by blanks, by which BLEU counts them. One vocabulary of 8,000 pieces a language pair,
learnt from the training text. Several runs at once, each a process of its own; what is finished stays finished, so the
script can be called again. OUT/results.jsonl has a line a run, OUT/table.md the table, OUT/by-length.svg BLEU by the length
of the source.
"""

import argparse
import json
import statistics
import sys
import time
from pathlib import Path
from typing import Any

from several import place, run_jobs

RECURRENT = ["budget={epochs=16}", "train.eval_every=250", "train.save_every=100000"]
CONVOLUTIONAL = ["budget={epochs=30}", "train.eval_every=500", "train.save_every=100000", "train.compile=false"]
ATTENTIVE = ["train.eval_every=500", "train.save_every=250", "train.compile=false"]
# name: recipe, settings, direction, how many seeds
ROWS: dict[str, tuple[str, list[str], str, bool]] = {
    "seq2seq": ("seq2seq-small", RECURRENT, "en-de", True),
    "additive": ("bahdanau-small", RECURRENT, "en-de", True),
    "dot": ("luong-small", [*RECURRENT, "model.score=dot"], "en-de", True),
    "transformer": ("transformer-small", ATTENTIVE, "en-de", True),
    "general": ("luong-small", [*RECURRENT, "model.score=general"], "en-de", False),
    "location": ("luong-small", [*RECURRENT, "model.score=location", "model.max_len=128"], "en-de", False),
    "cosine": ("luong-small", [*RECURRENT, "model.score=cosine"], "en-de", False),
    "scaled-dot": ("luong-small", [*RECURRENT, "model.score=scaled-dot"], "en-de", False),
    "gnmt": ("gnmt-small", RECURRENT, "en-de", False),
    "additive de-en": ("bahdanau-small", RECURRENT, "de-en", False),
    "transformer de-en": ("transformer-small", ATTENTIVE, "de-en", False),
    "additive en-ja": ("bahdanau-small", RECURRENT, "en-ja", False),
    "transformer en-ja": ("transformer-small", ATTENTIVE, "en-ja", False),
    "convs2s": ("convs2s-small", CONVOLUTIONAL, "en-de", True),
    # of bytes: a text is four to five times as long
    "bytenet": ("bytenet-mt-small", [*CONVOLUTIONAL, "batches.budget=20000"], "en-de bytes", True),
}
# the variations of Vaswani et al., 2017, table 3, around transformer-small (dim 256, 4 heads, 3 layers, feed-forward 512,
# dropout 0.3): one setting each, and the sign that the paper has for it. Of (B) keys and values are narrower, not keys alone.
VARIATIONS = {
    "A: 1 head": ["model.num_heads=1"],
    "A: 8 heads": ["model.num_heads=8"],
    "A: 16 heads": ["model.num_heads=16"],
    "A: 32 heads": ["model.num_heads=32"],
    "B: heads of 8": ["model.head_dim=8"],
    "B: heads of 16": ["model.head_dim=16"],
    "C: 1 layer": ["model.num_layers=1"],
    "C: 6 layers": ["model.num_layers=6"],
    "C: dim 128": ["model.dim=128"],
    "C: dim 512": ["model.dim=512", "model.num_heads=8"],
    "C: feed-forward 256": ["model.ffn_dim=256"],
    "C: feed-forward 1024": ["model.ffn_dim=1024"],
    "D: no dropout": ["model.dropout=0"],
    "D: dropout 0.1": ["model.dropout=0.1"],
    "D: no smoothing": ["task.label_smoothing=0"],
    "D: smoothing 0.2": ["task.label_smoothing=0.2"],
    "E: learned positions": ["model.positions=learned"],
}
ROWS |= {name: ("transformer-small", [*ATTENTIVE, *changes], "en-de", True) for name, changes in VARIATIONS.items()}


def files(folders: dict[str, Path], direction: str, split: str) -> list[Path]:
    source, _, target = direction.split(" ")[0].partition("-")
    if target == "ja":
        name = {"valid": "dev"}.get(split, split)
        folder = folders["enja"]
    else:
        name = {"valid": "val", "test": "test_2016_flickr"}.get(split, split)
        folder = folders["multi30k"]
    found = [next(path for path in folder.glob(f"{name}.{side}.txt*")) for side in (source, target)]
    return found


def one(name: str, seed: int, folders: dict[str, Path], out: Path, extra: list[str], device: str) -> None:
    import torch

    from seqloom.runs.training import read_all, train
    from seqloom.training import checkpoint as checkpoints
    from seqloom.weights import fill

    torch.set_num_threads(1)
    recipe, settings, direction, _ = ROWS[name]
    folder = place(out, name, seed)
    pieces = out / f"{direction}.json"
    train_files, valid, test = (files(folders, direction, split) for split in ("train", "valid", "test"))
    started = time.monotonic()
    run = train(
        recipe, "translate", train_files, folder, valid=valid, from_tokenizer=pieces, settings=[*settings, *extra], seed=seed,
        device=device, resume=(folder / "config.json").exists(),
    )  # fmt: skip
    metrics = json.loads((folder / "metrics.json").read_text())
    pairs, tokenize = read_all(test), "none" if direction.endswith("ja") else "13a"
    beam = run.evaluate(pairs, tokenize, beam=5)
    row = {
        "name": name, "seed": seed, "recipe": recipe, "settings": [*settings, *extra], "direction": direction,
        "bleu": beam["bleu"], "chrf": beam["chrf"], "signature": beam["bleu_signature"], "by_length": beam["by_length"],
        "greedy": run.evaluate(pairs, tokenize, beam=1)["bleu"], "valid_loss": metrics["valid_loss"],
        "valid_bleu": metrics["valid_scores"]["bleu"], "step": metrics["step"], "tokens": metrics["tokens"],
        "parameters": metrics["parameters"], "seconds": metrics["seconds"], "flops": metrics["flops"],
        "tokens_per_second": metrics["tokens_per_second"], "peak_memory_mb": metrics["peak_memory_mb"],
    }  # fmt: skip
    if "averaged" in metrics:  # what the last weights alone would have given
        last = checkpoints.load_latest(folder / "checkpoints")
        assert last is not None
        fill(run.learner, last.tensors["model"], folder)
        row["last"] = run.evaluate(pairs, tokenize, beam=5)["bleu"]
        row["averaged_loss"] = metrics["averaged"]["loss"]
    row["all_seconds"] = time.monotonic() - started
    (folder / "result.json").write_text(json.dumps(row))


def table(rows: list[dict[str, Any]]) -> str:
    lines = [
        "| model | recipe | direction | parameters | seeds | BLEU, beam 5 | greedy | last weights alone | chrF | valid loss | "
        "tokens/s | FLOPs |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name in dict.fromkeys(row["name"] for row in rows):
        same = [row for row in rows if row["name"] == name]

        def shown(key: str, digits: int = 2, same: list[dict[str, Any]] = same) -> str:
            values = [row[key] for row in same if key in row]
            if not values:
                return "–"
            spread = f" ± {statistics.stdev(values):.{digits}f}" if len(values) > 1 else ""
            return f"{statistics.mean(values):.{digits}f}{spread}"

        first = same[0]
        speed = statistics.mean(row["tokens_per_second"] for row in same)
        lines.append(
            f"| {name} | {first['recipe']} | {first['direction']} | {first['parameters']:,} | {len(same)} | {shown('bleu')} | "
            f"{shown('greedy')} | {shown('last')} | {shown('chrf')} | {shown('valid_loss', 3)} | {speed:,.0f} | "
            f"{first['flops']:.2e} |"
        )
    return "\n".join(lines) + "\n"


def shown(row: dict[str, Any]) -> str:
    return f"BLEU {row['bleu']:.2f} (greedy {row['greedy']:.2f}, last {row.get('last', 0):.2f})  valid {row['valid_loss']:.3f}"


def by_length(rows: list[dict[str, Any]]) -> str:
    from seqloom.charts import Curve, as_file, chart

    curves = []
    for name in ("seq2seq", "additive", "dot", "transformer"):
        same = [row["by_length"] for row in rows if row["name"] == name]
        if same:
            middles = [(part["shortest"] + part["longest"]) / 2 for part in same[0]]
            means = [statistics.mean(parts[i]["bleu"] for parts in same) for i in range(len(middles))]
            curves.append(Curve(name, list(zip(middles, means, strict=True))))
    return as_file(chart("words of the source", "BLEU", curves, better="higher"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("multi30k", type=Path)
    parser.add_argument("enja", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rows", nargs="*", default=[name for name in ROWS if name not in VARIATIONS], choices=ROWS)
    parser.add_argument("--variations", action="store_true", help="the Transformer's table of variations instead")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--minutes", type=float, default=9.0)
    parser.add_argument("--vocab-size", type=int, default=8000)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--set", dest="extra", action="append", default=[])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.variations:
        arguments.rows = ["transformer", *VARIATIONS]
    folders, out = {"multi30k": arguments.multi30k, "enja": arguments.enja}, arguments.out
    out.mkdir(parents=True, exist_ok=True)
    if arguments.one:
        one(arguments.one, arguments.seed, folders, out, arguments.extra, arguments.device)
        return
    from seqloom.runs.examples import PairFiles
    from seqloom.runs.vocabularies import learn_tokenizer
    from seqloom.tokens.learn import TokenizerOptions

    for direction in {ROWS[name][2] for name in arguments.rows}:
        if not (out / f"{direction}.json").exists():
            texts = files(folders, direction, "train")
            options = TokenizerOptions("bpe", arguments.vocab_size)
            if direction.endswith("bytes"):  # whose vocabulary has one size
                options = TokenizerOptions("byte")
            found = learn_tokenizer(PairFiles.texts(texts, "translate"), options)
            found.save(out / f"{direction}.json")
    jobs = [(name, 0) for name in arguments.rows]
    jobs += [(name, seed) for seed in range(1, arguments.seeds) for name in arguments.rows if ROWS[name][3]]
    until = time.monotonic() + 60 * arguments.minutes
    kept = [sys.executable, __file__, str(arguments.multi30k), str(arguments.enja), str(out)]
    kept += [f"--device={arguments.device}", *(f"--set={each}" for each in arguments.extra)]
    rows = run_jobs(jobs, out, kept, arguments.jobs, until, shown, list(ROWS))
    (out / "table.md").write_text(table(rows))
    (out / "by-length.svg").write_text(by_length(rows))
    print(table(rows))


if __name__ == "__main__":
    main()

"""AWD-LSTM against a plain LSTM of the same size, over words: is it what the regularisation is worth?

    python benchmarks/awd.py wikinews.jsonl.xz OUT [--epochs 6] [--rows awd-0.5 ...] [--device auto]

Two layers of 650, word vectors of 650 and tied, the same tokens, streams, passes and number of searched rows for both. The
plain LSTM has dropout between its layers (Zaremba et al., 2014) and AdamW with a rate that falls along a cosine. AWD-LSTM
has the published dropout times a factor, AR, TAR, lengths that vary, SGD at a constant rate for two thirds of the passes and
then, as its authors go on, SGD whose weights are averaged from the start of the last third. Rows are chosen by their validation
perplexity, and only the two best are tested. --rows: train these and no more, for several processes at once; rows that are
done are not done again, and one that was stopped goes on.
"""

import argparse
import json
from pathlib import Path

from seqloom.batches.prepare import prepare
from seqloom.errors import SeqloomError
from seqloom.runs.language_model import Run
from seqloom.runs.load import load
from seqloom.runs.training import pretrain

PUBLISHED = {"dropout": 0.4, "layer_dropout": 0.25, "input_dropout": 0.5, "embedding_dropout": 0.1, "weight_drop": 0.5}


def plain(dropout: float, rate: float) -> list[str]:
    return [f"model.dropout={dropout}", f"train.optim.lr={rate}"]


def dropped(factor: float, rate: float) -> list[str]:
    return [*(f"model.{name}={factor * value:g}" for name, value in PUBLISHED.items()), f"train.optim.lr={rate}"]


SEARCH = {
    "lstm-0.2": plain(0.2, 1e-3),
    "lstm-0.4": plain(0.4, 1e-3),
    "lstm-0.6": plain(0.6, 1e-3),
    "lstm-0.4-faster": plain(0.4, 2e-3),
    "awd-0.25": dropped(0.25, 30.0),
    "awd-0.5": dropped(0.5, 30.0),
    "awd-0.75": dropped(0.75, 30.0),
    "awd-0.5-slower": dropped(0.5, 15.0),
}
KINDS = {
    "lstm": ("lstm-small", ["model.dim=650", "model.num_layers=2", "train.schedule.warmup=200"]),
    "awd": ("awd-lstm-small", ["model.embedding_dim=650", "model.dim=650", "model.num_layers=2"]),
}


def trained(name: str, data: Path, out: Path, arguments: argparse.Namespace) -> Run:
    """A row, in one phase or, averaged in the second, in two."""
    recipe, sizes = KINDS[name.partition("-")[0]]
    phases = {"": arguments.epochs}
    if recipe.startswith("awd"):
        phases = {"-first": arguments.epochs * 2 / 3, "": arguments.epochs / 3}
    before: Path | None = None
    for end, epochs in phases.items():
        folder = out / f"{name}{end}"
        settings = [*sizes, *SEARCH[name], f"budget={{epochs={epochs}}}", "batches.streams=80", "batches.length=70"]
        settings += [f"train.eval_every={arguments.every}", "train.save_every=1000000", "valid.limit=0"]
        settings += ["train.optim.average=start"] if before else []
        if not (folder / "card.md").exists():
            pretrain(
                recipe,
                data,
                folder,
                settings=settings,
                device=arguments.device,
                start=before,
                resume=(folder / "config.json").exists(),
            )
        before = folder
    return load(folder, arguments.device)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--epochs", type=float, default=6)
    parser.add_argument("--every", type=int, default=500, help="steps between validations: about half a pass")
    parser.add_argument("--rows", nargs="*", choices=SEARCH, help="train these and stop")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args()
    out, data = arguments.out, arguments.out / "data"
    out.mkdir(parents=True, exist_ok=True)
    if not (data / "manifest.json").exists():
        prepare([arguments.source], data, tokenizer="word", min_count=3, split_field="split")
    runs, results = {}, {}
    for name in arguments.rows or SEARCH:
        try:
            runs[name] = trained(name, data, out, arguments)
        except SeqloomError as error:
            print(f"{name}: {error}", flush=True)
            continue
        results[name] = runs[name].evaluate(data, "valid")
        print(f"{name:16} valid perplexity {results[name]['perplexity']:7.2f}", flush=True)
    if arguments.rows:
        return
    tested = []
    for kind in KINDS:
        rows = [name for name in runs if name.startswith(f"{kind}-")]
        best = min(rows, key=lambda name: results[name]["perplexity"])
        results[f"{best} test"] = found = runs[best].evaluate(data, "test")
        tested.append(found["perplexity"])
        print(f"{best:16} test  perplexity {tested[-1]:7.2f}  {found['parameters']:,} parameters", flush=True)
    print(f"AWD-LSTM has {tested[1] / tested[0]:.3f} times the plain LSTM's test perplexity")
    (out / "results.json").write_text(json.dumps(results, indent=1))


if __name__ == "__main__":
    main()

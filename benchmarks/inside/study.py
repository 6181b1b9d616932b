"""Seven models, from word vectors to XLNet, pre-trained alike and looked into: what each layer knows, which heads are needed, and
whether senses are kept apart.

    python benchmarks/inside/study.py --prepared benchmarks/lineage/data --shared ../shared --out runs/inside
    python benchmarks/inside/study.py --shared ../shared --out runs/inside --tiny        # minutes on two cores: does it all run?

One tokenizer, one pass over one text, the same number of parameters; then, for all runs together,

    probes/NAME        parts of speech and chunks (CoNLL-2000), entities (GUM), number agreement (Linzen et al., 2016), with
                       control tasks and code lengths
    senses/WORD.html   hard, interest, line and serve (Senseval-2); Word in Context by threshold
    heads/RUN.html     importance, ablation and pruning curves of runs with attention heads
    study.json         every figure

What is finished is not done again: rerun the same command to resume. On a GPU let models train side by side,
one process each, then the parts, then all of it, which finds everything done and writes study.json:

    study.py … --parts pretrain --models xlnet --rate 1.3e-3
    study.py … --parts pos

LSTM, GPT-2 and BERT have the rates that benchmarks/lineage/tuned.toml found. ELMo, ELECTRA and XLNet train with three rates;
the one with the lowest validation loss is studied (of ELECTRA that of its generator, because the loss of the discriminator is
lowest where the generator is worst).
"""

# ruff: noqa: E402 - how threads wait is set before torch is loaded

import argparse
import gzip
import json
import lzma
import math
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.training.process import prepare_process

prepare_process(os.environ)

from seqloom.batches.prepare import prepare
from seqloom.comparison.solve import solve_size
from seqloom.recipes.library import find_recipe
from seqloom.runs.corpus import Corpus
from seqloom.runs.load import load
from seqloom.runs.probing import probe
from seqloom.runs.sensing import senses
from seqloom.runs.training import pretrain

# rates, and shares of the run in which they rise, as tuned.toml found them (docs/results/2026-11-18-tuned.md)
SCHEDULE = [
    "train.schedule.name=slanted", "train.schedule.floor=0", "train.schedule.warmup=0", "train.optim.weight_decay=0.01",
    "valid.limit=50000", "train.eval_every=100000", "train.save_every=1000",
]  # fmt: skip
STREAMS = [*SCHEDULE, "batches.streams=64", "batches.length=128"]
BODY = ["model.num_layers=6", "model.dim=256", "model.num_heads=4"]
PACKED = [*SCHEDULE, *BODY, "model.max_len=128", "batches.budget=8192", "batches.length=128"]
PASSAGES = [*PACKED, "batches.short=32", "batches.short_share=0.5", "train.schedule.rise=0.3"]


class Studied(NamedTuple):
    recipe: str
    settings: list[str]
    rates: tuple[float, ...] = ()  # the recipe's own unless given


MODELS_STUDIED = {
    "word2vec": Studied("word2vec-small", []),
    "lstm": Studied("lstm-small", [*STREAMS, "train.schedule.rise=0.08"], (7.4e-3,)),
    "elmo": Studied("elmo-small", [*SCHEDULE, "train.schedule.rise=0.08"], (2e-3, 4e-3, 7.4e-3)),
    "gpt2": Studied("gpt2-tiny", [*PACKED, "train.schedule.rise=0.18"], (1.8e-3,)),
    "bert": Studied("bert-tiny", PASSAGES, (2.6e-3,)),
    "electra": Studied(
        "electra-tiny", [*PASSAGES, "model.embedding_dim=256", "objective.generator=1.0"], (6.5e-4, 1.3e-3, 2.6e-3)
    ),
    "xlnet": Studied(
        "xlnet-tiny",
        [*STREAMS, *BODY, "model.mem_len=128", "model.eval_len=256", "train.schedule.rise=0.3"],
        (6.5e-4, 1.3e-3, 2.6e-3),
    ),
}
PARTS = ("pretrain", "pos", "chunks", "entities", "agreement", "senses", "heads")
WORDS = ("hard", "interest", "line", "serve")
SMALL = {"parameters": 6e5, "tokens": 2e4, "labels": 400, "occurrences": 40, "vocabulary": 600, "heads": 8}
FULL = {"parameters": 9e6, "tokens": 0, "labels": 20_000, "occurrences": 1000, "vocabulary": 16_000, "heads": 256}


def opened(path: Path) -> Iterator[str]:
    """Lines of a plain or packed file."""
    reader: Callable[..., Any] = {".gz": gzip.open, ".xz": lzma.open}.get(path.suffix, open)
    with reader(path, "rt", encoding="utf-8") as stream:
        yield from stream


def write_columns(source: Path, out: Path, tag: int) -> Path:
    """Of a file of columns the word and one of its tags."""
    if not out.exists():
        rows = (line.split() for line in opened(source))
        out.write_text("".join(f"{row[0]} {row[tag]}\n" if row else "\n" for row in rows), encoding="utf-8")
    return out


def write_part(source: Path, out: Path, keep: Callable[[int], bool]) -> Path:
    """The header of a table and some of its rows."""
    if not out.exists():
        lines = opened(source)
        out.write_text("".join([next(lines), *(line for i, line in enumerate(lines) if keep(i))]), encoding="utf-8")
    return out


def probe_files(shared: Path, folder: Path) -> dict[str, tuple[Path, Path]]:
    """Training and test file of each task, made of the published ones."""
    folder.mkdir(parents=True, exist_ok=True)
    data = shared / "data"
    chunks = [data / "conll2000" / f"{name}.txt.gz" for name in ("train", "test")]
    linzen = data / "agreement" / "linzen_english.tsv.gz"
    found = {
        task: tuple(
            write_columns(source, folder / f"{task}.{name}.conll", tag)
            for source, name in zip(chunks, ("train", "test"), strict=True)
        )
        for task, tag in (("pos", 1), ("chunks", 2))
    }
    found["entities"] = tuple(
        write_columns(data / "gum-ner" / f"{name}.conll", folder / f"entities.{name}.conll", -1)
        for name in ("train", "test")
    )
    found["agreement"] = (
        write_part(linzen, folder / "agreement.train.tsv", lambda i: i % 5 != 0),
        write_part(linzen, folder / "agreement.test.tsv", lambda i: i % 5 == 0),
    )
    return found  # type: ignore[return-value]


def default_text(shared: Path, folder: Path) -> list[Path]:
    """WikiText-2 of the shared folder, for a try."""
    out = folder / "text.txt"
    if not out.exists():
        out.write_text("".join(opened(shared / "data" / "wikitext2" / "valid.txt.gz")), encoding="utf-8")
    return [out]


def pretrain_one(
    name: str, rate: float | None, folder: Path, data: Path, sizes: dict[str, Any], device: str, seed: int
) -> None:
    if (folder / "weights.json").exists():
        return
    recipe_name, settings, _ = MODELS_STUDIED[name]
    settings = [*settings, *([f"train.optim.lr={rate}"] if rate else [])]
    budget = f"budget={{tokens={sizes['tokens']}}}" if sizes["tokens"] else "budget={epochs=1}"
    if sizes["tokens"]:  # a try
        recipe_name = recipe_name.replace("-small", "-tiny")
        settings = ["model.num_layers=2" if each == "model.num_layers=6" else each for each in settings]
        settings = ["valid.limit=500" if each.startswith("valid.limit") else each for each in settings]
    recipe = find_recipe(recipe_name, [*settings, budget])
    text = Corpus.open(recipe, data, None, None)
    recipe, solved = solve_size(recipe, text, "dim", 0.1, parameters=sizes["parameters"])
    print(f"{name}: {solved}", flush=True)
    pretrain(recipe, data, folder, device=device, seed=seed, resume=(folder / "config.json").exists())


def valid_loss(run: Path, data: Path, device: str) -> float:
    """Of an ELECTRA that of its generator."""
    if run.name == "electra":
        found = run / "generator.json"
        if not found.exists():
            found.write_text(
                json.dumps(load(run, device).evaluate(data, split="valid")["masked_loss"]), encoding="utf-8"
            )
        return float(json.loads(found.read_text(encoding="utf-8")))
    return float(json.loads((run / "metrics.json").read_text(encoding="utf-8")).get("valid_loss") or math.inf)


def rates_given(given: list[str], name: str) -> tuple[float, ...]:
    """Of `--rate` those for a model: of all, or of its own."""
    return tuple(float(rate) for model, _, rate in (each.rpartition("=") for each in given) if model in ("", name))


def pretrain_all(options: argparse.Namespace, data: Path, sizes: dict[str, Any], names: list[str]) -> dict[str, Path]:
    """The run of each model that is studied: of several rates the one with the lowest loss."""
    found = {}
    for name in names:
        rates = rates_given(options.rate, name) or MODELS_STUDIED[name].rates or (None,)
        folders = [options.out / "trials" / (f"{rate:g}" if rate else "rate") / name for rate in rates]
        for rate, folder in zip(rates, folders, strict=True):
            pretrain_one(name, rate, folder, data, sizes, options.device, options.seed)
        losses = [valid_loss(folder, data, options.device) for folder in folders]
        print(name, *(f"{rate}: {loss:.4f}" for rate, loss in zip(rates, losses, strict=True)), flush=True)
        found[name] = folders[losses.index(min(losses))]
    return found


def study(options: argparse.Namespace, sizes: dict[str, Any]) -> dict[str, Any]:
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    data = options.prepared or out / "data"
    if not (data / "manifest.json").exists():
        texts = options.text or default_text(options.shared, out)
        prepare(texts, data, vocab_size=sizes["vocabulary"], valid=0.02, keep_leaks=True, keep_duplicates=True)
    runs = pretrain_all(options, data, sizes, options.models)
    figures: dict[str, Any] = {"probes": {}, "senses": {}, "heads": {}, "seconds": {}}
    figures["runs"] = {
        name: {
            "size": load(folder, "cpu").learner.size(),
            "rate": folder.parent.name,
            "valid_loss": valid_loss(folder, data, options.device),
        }
        for name, folder in runs.items()
    }
    folders = list(runs.values())
    for task, (train, test) in probe_files(options.shared, out / "files").items():
        if task not in options.parts:
            continue
        begun = time.monotonic()
        figures["probes"][task] = once(
            out / "probes" / task, "probes",
            lambda train=train, test=test: probe(
                folders, train, test, control=True, code=True, most_train=sizes["labels"], most_test=sizes["labels"],
                device=options.device,
            ),
        )  # fmt: skip
        figures["seconds"][task] = round(time.monotonic() - begun, 1)
    wic = [options.shared / "data" / "wic" / name for name in ("train.tsv", "dev.tsv")]
    senseval = options.shared / "data" / "senseval2" / "senseval.jsonl.xz"
    for number, word in enumerate(WORDS if "senses" in options.parts else ()):
        figures["senses"][word] = once(
            out / "senses" / word, "senses",
            lambda word=word, number=number: senses(
                folders, senseval, word, same=wic if number == 0 and not options.tiny else (), most=sizes["occurrences"],
                device=options.device,
            ),
        )  # fmt: skip
    texts = held_out(out, sizes["heads"])
    for name, folder in runs.items() if "heads" in options.parts else ():
        if load(folder, "cpu").has_attention:
            figures["heads"][name] = once(
                out / "heads" / name, "heads", lambda folder=folder: load(folder, options.device).heads(texts=texts)
            )
    return figures


def held_out(out: Path, count: int) -> list[str]:
    """Sentences that no model was trained on: those of the chunking test set."""
    words: list[str] = []
    found = []
    for line in (out / "files" / "chunks.test.conll").read_text(encoding="utf-8").splitlines():
        if line.strip():
            words.append(line.split()[0])
        elif words:
            found.append(" ".join(words))
            words = []
    return found[:count]


def once(folder: Path, name: str, find: Callable[[], Any]) -> Any:
    """The numbers of a finding, which is made and written if it is not there yet."""
    if not (folder / f"{name}.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        found = find()
        print("\n".join(found.lines()), flush=True)
        found.save_folder(folder, name)
    return json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--text", type=Path, nargs="+", help="files to pre-train on; WikiText-2 of --shared unless given"
    )
    parser.add_argument("--shared", type=Path, default=Path("../shared"), help="folder with data/")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--prepared", type=Path, help="prepared text instead")
    parser.add_argument(
        "--rate", nargs="+", default=[], metavar="[MODEL=]RATE", help="train with these rates alone, all models or one"
    )
    parser.add_argument("--parts", nargs="+", default=list(PARTS), choices=PARTS)
    parser.add_argument("--models", nargs="+", default=list(MODELS_STUDIED), choices=list(MODELS_STUDIED))
    parser.add_argument("--parameters", type=float, help="of every model; 9 million unless given")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--tiny", action="store_true", help="small models and few items, to see that everything runs")
    options = parser.parse_args()
    sizes = (SMALL if options.tiny else FULL) | ({"parameters": options.parameters} if options.parameters else {})
    figures = study(options, sizes)
    if options.parts == list(PARTS):
        (options.out / "study.json").write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    for task, record in figures["probes"].items():
        for each in record["runs"]:
            print(f"{task:10} {each['run']:10} best layer {each['best_layer']}, centre {each['centre_of_gravity']:.2f}")


if __name__ == "__main__":
    main()

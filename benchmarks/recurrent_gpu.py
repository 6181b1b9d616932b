"""What recurrent models wait for on a GPU: the number format of cuDNN's recurrences, validation of one long document, taggers.

    python benchmarks/recurrent_gpu.py precision TEXT [--tokens 8e6]      bf16 against the fp16 of autocast: speed and loss
    python benchmarks/recurrent_gpu.py validate TEXT                      one novel as one document: exact against warmed-up parts
    python benchmarks/recurrent_gpu.py tag TRAIN.conll                    a BiLSTM-CNN with a CRF: plain against recorded steps

TEXT: any text file. Both ways of a part run one after the other in one process, twice in turn; each prints a line of JSON.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

import torch

from seqloom.batches.prepare import prepare
from seqloom.blocks import recurrent
from seqloom.blocks.cells import TorchCell
from seqloom.evaluate.perplexity import perplexity
from seqloom.runs.load import load
from seqloom.runs.training import pretrain, train

ASKED = recurrent.kernel_dtype


def fp16(cell: TorchCell, x: torch.Tensor) -> torch.dtype:
    """What autocast has cuDNN compute in."""
    return torch.float32 if cell.unbounded else torch.float16


def precision(text: Path, tokens: float, folder: Path) -> None:
    data = folder / "data"
    prepare([text], data, valid=0.05, vocab_size=8192)
    for model in ("lstm", "gru"):
        for turn in range(2):
            for name, choose in (("bf16", ASKED), ("fp16", fp16)):
                recurrent.kernel_dtype = choose  # type: ignore[assignment]
                settings = ["train.compile=false", "train.eval_every=100000", f"budget={{tokens={tokens}}}"]
                out = folder / f"{model}-{name}"
                pretrain(f"{model}-small", data, out, settings=settings, seed=turn, overwrite=True, device="cuda")
                found = json.loads((out / "metrics.json").read_text())
                row = {"model": model, "format": name, "seed": turn, "tokens_per_second": found["tokens_per_second"]}
                print(json.dumps(row | {"valid_loss": found["valid_loss"], "skipped": found["skipped"]}), flush=True)
    recurrent.kernel_dtype = ASKED


def validate(text: Path, folder: Path) -> None:
    data = folder / "data"
    prepare([text], data, valid=0.3, documents="file", vocab_size=8192)
    settings = ["budget={tokens=2e6}", "train.eval_every=100000", "train.compile=false"]
    pretrain("awd-lstm-small", data, folder / "run", settings=settings, device="cuda")
    run = load(folder / "run", "cuda")
    store, name = run.open(data, "valid")  # type: ignore[union-attr]
    split = store.split(name)
    for warmup in (None, 64, 256, None, 64, 256):
        torch.cuda.synchronize()
        started = time.monotonic()
        found = perplexity(run.learner, split, torch.device("cuda"), warmup=warmup)  # type: ignore[arg-type]
        assert found is not None
        seconds = time.monotonic() - started
        row = {"warmup": warmup, "tokens": found["tokens"], "tokens_per_second": round(found["tokens"] / seconds)}
        print(json.dumps(row | {"loss": found["loss"]}), flush=True)


def tag(file: Path, folder: Path) -> None:
    for turn in range(2):
        for record in (True, False):
            settings = [
                f"train.record={str(record).lower()}",
                "task.crf=true",
                "budget={epochs=6}",
                "train.compile=false",
            ]
            out = folder / f"tag-{record}"
            options = {"tokenizer": "word", "settings": settings, "seed": turn, "overwrite": True, "device": "cuda"}
            train("bilstm-cnn-small", "tag", [file], out, **options)  # type: ignore[arg-type]
            found = json.loads((out / "metrics.json").read_text())
            row = {"recorded": record, "seed": turn, "tokens_per_second": found["tokens_per_second"]}
            print(json.dumps(row | {"train_loss": found["train_loss"]}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("precision", "validate", "tag"))
    parser.add_argument("file", type=Path)
    parser.add_argument("--tokens", type=float, default=8e6)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        if options.part == "precision":
            precision(options.file, options.tokens, Path(place))
        elif options.part == "validate":
            validate(options.file, Path(place))
        else:
            tag(options.file, Path(place))


if __name__ == "__main__":
    main()

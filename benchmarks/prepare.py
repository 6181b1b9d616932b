"""How fast and in how much memory `seqloom prepare` works, beside the plain way of doing it, in one run.

    python benchmarks/prepare.py FILE.jsonl.xz [--vocab-size 8192] [--alone]

Each runs in a process of its own; MB/s of unpacked text over the whole job, and the largest resident memory of the process
and its workers together. `seqloom prepare` reads, checks for duplicates and leaks, splits, learns the tokenizer on a
sample, encodes and writes with a manifest. The plain way is a short script over the `tokenizers` library: read all texts,
learn byte-level BPE on all of them, encode in batches, write one array; it checks nothing. --alone: without it.
"""

import argparse
import json
import lzma
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import psutil


def plain(source: Path, vocab_size: int, out: Path) -> None:
    import numpy as np
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    with (
        lzma.open(source, "rt", encoding="utf-8") if source.suffix == ".xz" else source.open(encoding="utf-8") as lines
    ):
        texts = [json.loads(line)["text"] for line in lines]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    special = ["<|endoftext|>"]
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=vocab_size, initial_alphabet=alphabet, special_tokens=special, show_progress=False
        ),
    )
    tokenizer.save(str(out / "tokenizer.json"))
    with (out / "train.bin").open("wb") as file:
        for i in range(0, len(texts), 1000):
            for row in tokenizer.encode_batch(texts[i : i + 1000]):
                np.array([*row.ids, 0], np.uint16).tofile(file)
    size = sum(len(text.encode()) for text in texts)
    print(json.dumps({"bytes": size, "tokens": (out / "train.bin").stat().st_size // 2}))


def measured(command: list[str]) -> tuple[str, float, int]:
    """What a command prints, its seconds, and its largest resident memory in bytes."""
    start = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        peak, watched = 0, psutil.Process(process.pid)
        while process.poll() is None:
            peak = max(peak, memory(watched))
            time.sleep(0.1)
        printed = process.stdout.read() if process.stdout else ""
    if process.returncode:
        sys.exit(process.returncode)
    return printed, time.monotonic() - start, peak


def memory(process: psutil.Process) -> int:
    total = 0
    for one in [process, *process.children(recursive=True)]:
        try:
            total += one.memory_info().rss
        except psutil.Error:  # it has just ended
            continue
    return total


def show(name: str, size: float, seconds: float, peak: int, tokens: int) -> None:
    print(
        f"{name:10} {size / 1e6:8.1f} MB  {seconds:6.1f} s  {size / 1e6 / seconds:6.2f} MB/s  "
        f"{peak / 1e6:6.0f} MB resident  {tokens:,} tokens",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=Path)
    parser.add_argument("--vocab-size", type=int, default=8192)
    parser.add_argument("--alone", action="store_true")
    parser.add_argument("--plain-into", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    source, vocab_size = arguments.source, arguments.vocab_size
    if arguments.plain_into:
        plain(source, vocab_size, arguments.plain_into)
        return
    out = Path(tempfile.mkdtemp(prefix="seqloom-bench-"))
    size = str(vocab_size)
    command = [
        sys.executable,
        "-m",
        "seqloom",
        "prepare",
        str(source),
        "--vocab-size",
        size,
        "--out",
        str(out / "ours"),
    ]
    printed, seconds, peak = measured([*command, "--json"])
    report = json.loads(printed)
    tokens = sum(split["tokens"] for split in report["splits"].values())
    show("seqloom", report["report"]["bytes"], seconds, peak, tokens)
    if not arguments.alone:
        command = [sys.executable, __file__, str(source), "--vocab-size", size, "--plain-into", str(out)]
        printed, seconds, peak = measured(command)
        found = json.loads(printed)
        show("plain way", found["bytes"], seconds, peak, found["tokens"])
    shutil.rmtree(out)


if __name__ == "__main__":
    main()

"""Skip-gram beside gensim, both on one thread, or ours on a GPU: words a second, analogies and similarity of the same text.

    seqloom prepare TEXT --tokenizer word --vocab-size 30000 --lowercase --out DATA
    python -m venv GENSIM && GENSIM/bin/pip install gensim
    python benchmarks/word2vec_cpu.py DATA --gensim GENSIM/bin/python --epochs 5 --out OUT \
        --analogies questions-words.txt --similarity word-similarity

On a GPU, against gensim on all cores: --device cuda --workers 16 --budget 65536.

Both read the same words (special tokens and unknown ones left out), in pieces of 1,024 tokens, with the same window, negatives,
subsampling and size. Words are those before subsampling. On a machine that others use, too, the figure that counts is that of
words for each second of the processor; seconds of the clock stand beside it. What is timed is training alone: neither reading
files nor building a vocabulary.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")

THEIRS = """
import json, random, sys, time
from gensim.models import Word2Vec
text, out, dim, window, negatives, subsample, epochs, seed, sg, shuffle, workers = json.loads(sys.argv[1])
sentences = [line.split() for line in open(text, encoding="utf-8")]
model = Word2Vec(vector_size=dim, window=window, min_count=1, sg=sg, negative=negatives, sample=subsample, workers=workers,
                 seed=seed, alpha=0.025 if sg else 0.05)
model.build_vocab(sentences)
class Passes:
    count = 0
    def __iter__(self):
        if shuffle:
            random.Random(seed * 100 + Passes.count).shuffle(sentences)
            Passes.count += 1
        return iter(sentences)
clock, busy = time.monotonic(), time.process_time()
model.train(Passes(), total_examples=model.corpus_count, epochs=epochs)
print(json.dumps({"seconds": time.monotonic() - clock, "cpu_seconds": time.process_time() - busy}))
model.wv.save_word2vec_format(out, binary=True)
"""


def write_words(data: Path, out: Path, length: int) -> int:
    """Writes the training text as lines of words; returns how many there are."""
    from seqloom.batches.store import Store

    store = Store.open(data)
    split, tokenizer = store.split("train"), store.tokenizer
    left_out = {tokenizer.unk_id, *tokenizer.special_ids.values()}
    names = [tokenizer.entry(i) for i in range(tokenizer.vocab_size)]
    count = 0
    with out.open("w", encoding="utf-8") as file:
        for begin, end in zip(split.offsets[:-1].tolist(), split.offsets[1:].tolist(), strict=True):
            for start in range(begin, end, length):
                ids = split.read(start, min(start + length, end)).tolist()
                words = [names[i] for i in ids if i not in left_out]
                count += len(words)
                file.write(" ".join(words) + "\n")
    return count


def train_ours(
    data: Path, out: Path, epochs: int, seed: int, objective: str, device: str, budget: int
) -> dict[str, float]:
    import torch

    import seqloom

    torch.set_num_threads(1)
    settings = [f"budget={{epochs={epochs}}}", f"objective.name={objective}", "train.eval_every=1000000"]
    settings += ["train.save_every=1000000", "train.log_every=100", f"batches.budget={budget}"]
    marks: list[tuple[float, float]] = []

    def note(row: dict[str, float]) -> None:
        if "loss" in row:
            marks.append((row["seconds"], time.process_time()))

    seqloom.pretrain(
        "word2vec-small", data, out, settings=settings, seed=seed, device=device, overwrite=True, on_log=note
    )
    metrics = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    rows = [row for row in metrics if "loss" in row]
    # from the first logged line on: what comes before is also loading
    share = (rows[-2]["tokens"] - rows[0]["tokens"]) / rows[-1]["tokens"]
    busy, clock = marks[-2][1] - marks[0][1], rows[-2]["seconds"] - rows[0]["seconds"]
    return {"seconds": clock / share, "cpu_seconds": busy / share}


def main() -> None:
    given = argparse.ArgumentParser(description="Skip-gram on one thread beside gensim.")
    given.add_argument("data", type=Path)
    given.add_argument("--out", type=Path, required=True)
    given.add_argument("--gensim", help="Python with gensim; none: ours alone")
    given.add_argument("--epochs", type=int, default=1)
    given.add_argument("--seed", type=int, default=0)
    given.add_argument("--objective", default="skip-gram", choices=("skip-gram", "cbow"))
    given.add_argument("--shuffle", action="store_true", help="gensim reads pieces in another order in each pass, too")
    given.add_argument("--device", default="cpu")
    given.add_argument("--budget", type=int, default=8192, help="tokens a step of ours")
    given.add_argument("--workers", type=int, default=1, help="threads of gensim")
    given.add_argument("--analogies", type=Path)
    given.add_argument("--similarity", type=Path)
    options = given.parse_args()
    from seqloom import load
    from seqloom.convert.vectors import import_vectors

    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    words = write_words(options.data, out / "words.txt", 1024) * options.epochs
    found = {
        "ours": train_ours(
            options.data, out / "ours", options.epochs, options.seed, options.objective, options.device, options.budget
        )
    }
    if options.gensim:
        sizes = [100, 5, 5, 1e-3, options.epochs, options.seed, int(options.objective == "skip-gram"), options.shuffle]
        sizes.append(options.workers)
        call = [options.gensim, "-c", THEIRS, json.dumps([str(out / "words.txt"), str(out / "gensim.bin"), *sizes])]
        environment = os.environ | {"PYTHONHASHSEED": "0"}
        done = subprocess.run(call, stdout=subprocess.PIPE, text=True, check=True, env=environment)
        found["gensim"] = json.loads(done.stdout)
        import_vectors(out / "gensim.bin", out / "gensim", overwrite=True)
    for name, figures in found.items():
        figures["words_per_second"] = words / figures["seconds"]
        figures["words_per_cpu_second"] = words / figures["cpu_seconds"]
        run = load(out / name, device="cpu")
        for suite, path in (("analogies", options.analogies), ("similarity", options.similarity)):
            if path is not None:
                scores = run.evaluate_suite(suite, path)  # type: ignore[union-attr]
                figures |= {
                    f"{suite}_{key}": scores[key] for key in scores if key.startswith(("accuracy", "spearman", "by_"))
                }
    json.dump({"words": words, **found}, sys.stdout, indent=1)
    print()


if __name__ == "__main__":
    main()

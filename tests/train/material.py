"""Text that tests make: enough structure that a model learns something from it, the same on every machine."""

import random
from pathlib import Path

from seqloom.batches.prepare import prepare

NOUNS = ("the cat", "the dog", "a bird", "my friend", "the old king", "a small river", "the queen", "no child")
VERBS = ("sees", "likes", "finds", "follows", "forgets", "wants", "hears", "answers", "leaves", "remembers")
ENDS = ("today", "again", "at night", "in the wood", "near the sea", "without a word", "for ever", "by the old mill")


# what is in the folder of every finished run
RUN_FILES = {
    "config.json",
    "tokenizer.json",
    "backbone.safetensors",
    "head.safetensors",
    "weights.json",
    "metrics.jsonl",
    "metrics.json",
    "card.md",
    "lock",
}


def sentences(count: int, seed: int = 0) -> list[str]:
    rng = random.Random(seed)
    return [f"{rng.choice(NOUNS)} {rng.choice(VERBS)} {rng.choice(NOUNS)} {rng.choice(ENDS)} ." for _ in range(count)]


def write_text(path: Path, count: int = 3000, seed: int = 0) -> Path:
    """Documents of five sentences, one a line."""
    lines = sentences(count, seed)
    path.write_text("\n".join(" ".join(lines[i : i + 5]) for i in range(0, count, 5)) + "\n", encoding="utf-8")
    return path


def prepared(folder: Path, count: int = 3000) -> Path:
    folder.parent.mkdir(parents=True, exist_ok=True)
    text = write_text(folder.parent / f"{folder.name}.txt", count)
    prepare([text], folder, tokenizer="word", min_count=1, valid=0.1, keep_leaks=True, keep_duplicates=True)
    return folder

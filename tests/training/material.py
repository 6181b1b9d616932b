"""Text that tests make: enough structure that a model learns something from it, the same on every machine."""

import random
from pathlib import Path

from seqloom.batches.prepare import prepare

# and in a language that has its verbs at the end
STRANGE = {
    "the": "da", "a": "un", "my": "mei", "no": "kai", "old": "alta", "small": "petta", "cat": "miu", "dog": "wau",
    "bird": "piep", "friend": "amik", "king": "rex", "river": "fluss", "queen": "regina", "child": "kint",
}  # fmt: skip


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


def pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Sentences and what they are in a language that has its verbs at the end."""
    rng = random.Random(seed)
    found = []
    for _ in range(count):
        who, does, whom, when = (rng.choice(words) for words in (NOUNS, VERBS, NOUNS, ENDS))
        strange = [" ".join(STRANGE[word] for word in noun.split()) for noun in (who, whom)]
        found.append((f"{who} {does} {whom} {when} .", f"{strange[0]} {strange[1]} {when.upper()} {does[::-1]} ."))
    return found


def write_pairs(folder: Path, count: int = 1000, seed: int = 0, name: str = "train") -> list[Path]:
    """Two aligned files."""
    paths = [folder / f"{name}.{side}" for side in ("en", "xx")]
    for path, lines in zip(paths, zip(*pairs(count, seed), strict=True), strict=True):
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return paths


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

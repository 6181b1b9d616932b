"""Small plans on a small text."""

import random
from pathlib import Path

from seqloom.comparison.plan import PlanConfig
from seqloom.config import build

NOUNS = {"cat": "cats", "dog": "dogs", "bird": "birds", "house": "houses", "child": "children", "river": "rivers"}
WORDS = ["small", "large", "old", "quiet", "green", "near", "often", "slowly", "always", "garden", "village", "street"]
WORDS += ["and", "with", "for", "under"]


def sentence(rng: random.Random) -> str:
    one, many = rng.choice(list(NOUNS.items()))
    start = f"The {rng.choice(WORDS)} {one} is" if rng.random() < 0.5 else f"The {rng.choice(WORDS)} {many} are"
    return " ".join([start, *rng.choices(WORDS, k=rng.randint(4, 9))]) + "."


def write_text(path: Path, documents: int = 60) -> Path:
    rng = random.Random(0)
    lines = [" ".join(sentence(rng) for _ in range(rng.randint(4, 12))) for _ in range(documents)]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


SMALL = ["batches.length=16", "train.eval_every=20", "train.schedule.warmup=5", "train.save_every=5"]
LSTM = {"name": "LSTM", "recipe": "lstm-tiny", "settings": ["model.dim=16", "batches.streams=4"]}
GPT = {
    "name": "GPT", "recipe": "gpt2-tiny",
    "settings": ["model.dim=16", "model.num_layers=1", "model.num_heads=2", "model.max_len=16", "batches.budget=64"],
}  # fmt: skip
BERT = {
    "name": "BERT", "recipe": "bert-tiny",
    "settings": [
        "model.dim=16", "model.num_layers=1", "model.num_heads=2", "model.max_len=64", "batches.length=64",
        "batches.budget=128", 'objective={name="masked"}', "model.pooler=false",
    ],
}  # fmt: skip
NGRAM = {"name": "n-gram", "recipe": "ngram-tiny"}


def values(corpus: Path, **changes) -> dict:
    given = {
        "name": "a small comparison", "seeds": 2, "settings": SMALL, "pairs": 20, "rows": [NGRAM, LSTM, GPT],
        "text": {"files": [str(corpus)], "vocab_size": 300, "valid": 0.1, "test": 0.1}, "budget": {"tokens": 3000},
    }  # fmt: skip
    return given | changes


def plan_of(corpus: Path, **changes) -> PlanConfig:
    return build(PlanConfig, values(corpus, **changes))

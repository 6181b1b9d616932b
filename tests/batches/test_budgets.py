"""A budget in words is as much text for every objective, whatever the length of the documents."""

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seqloom.batch import IGNORE, Excerpt
from seqloom.batches.loader import Cursor, Loader
from seqloom.batches.plan import select_documents
from seqloom.batches.prepare import prepare
from seqloom.objectives import masked
from seqloom.recipes.library import find_recipe
from seqloom.recipes.schema import Recipe
from seqloom.runs.corpus import Corpus
from seqloom.runs.dataset import build_learner
from seqloom.runs.training import milestones, pretrain

LENGTHS = (1, 2, 3, 8, 40, 1000)  # words of a document
TOTAL = 6000  # of a text
BATCH = 256
PACKED = ["batches.kind=packed", f"batches.budget={BATCH}", "batches.length=32", "batches.reset=false"]
STREAMS = ["batches.kind=streams", "batches.streams=8", "batches.length=32"]
PASSAGES = [f"batches.budget={BATCH}", "batches.length=32", "batches.short=0"]
# every way to read a text
READERS = {
    "next token": ("gpt2-tiny", PACKED),
    "streams": ("lstm-tiny", [*STREAMS, "batches.reset=false"]),
    "streams, reset": ("lstm-tiny", [*STREAMS, "batches.reset=true"]),
    "masked": ("roberta-tiny", PASSAGES),
    "next sentence": ("bert-tiny", PASSAGES),
    "sentence order": ("albert-tiny", PASSAGES),
    "replaced token": ("electra-tiny", PASSAGES),
    "languages": ("xlm-tiny", PASSAGES),
    "n-grams": ("ngram-tiny", []),
}


def write(path: Path, length: int, seed: int, total: int = TOTAL) -> Path:
    """Documents of `length` words, more or less; the first ones have two sentences, so that there are pairs."""
    rng = random.Random(seed)
    lines, left = [], total
    while left > 0:
        size = min(10 if len(lines) < 20 else max(1, round(rng.uniform(0.7, 1.3) * length)), left)
        words = [f"{'w' if i % 5 else 'W'}{rng.randrange(50)}" if i % 5 < 4 else "." for i in range(size)]
        lines.append(" ".join(words))
        left -= size
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def texts(tmp_path_factory) -> dict[int, list[Path]]:
    """By the length of documents: a prepared text, and a smaller one in the same words."""
    place = tmp_path_factory.mktemp("budgets")
    options: dict[str, Any] = {"keep_duplicates": True, "keep_leaks": True, "documents": "line", "workers": 1}
    found = {}
    for length in LENGTHS:
        first, other = place / f"{length}/a", place / f"{length}/b"
        first.parent.mkdir()
        text = write(place / f"{length}.txt", length, 0)
        prepare([text], first, tokenizer="word", min_count=1, words="space", **options)
        more = write(place / f"{length}-more.txt", length, 1, TOTAL // 3)
        prepare([more], other, from_tokenizer=first / "tokenizer.json", **options)
        found[length] = [first, other]
    return found


def opened(name: str, folders: list[Path], budget: str) -> tuple[Recipe, Corpus]:
    recipe, settings = READERS[name]
    found = find_recipe(recipe, [*settings, f"budget={budget}"], None)
    return found, Corpus.open(found, folders if name == "languages" else folders[:1])


def words_read(name: str, recipe: Recipe, text: Corpus) -> tuple[float, float]:
    """How many words of text a run reads until its budget is spent, by looking at every token; and how many it says it has read.
    Every word is one token."""
    budget = recipe.budget.resolve(text)
    ratio = text.words / text.num_tokens
    if name == "n-grams":
        chosen = select_documents(text.train[0], budget.tokens, 0)
        ids = text.train[0].read_many(chosen.starts, chosen.lengths)
        return float((ids != text.tokenizer.end_id).sum()), len(ids) * ratio
    learner = build_learner(text, 0)
    loader = Loader(text.batches(budget.tokens / text.num_tokens), learner, 0, workers=0)
    tokens = words = 0
    for item in loader.items(Cursor()):
        example = item.example
        if isinstance(example, Excerpt):
            words += int(((example.targets != IGNORE) & (example.targets != text.tokenizer.end_id)).sum())
        else:
            words += int(example.text.sum())
        tokens += item.sizes[0].tokens
        if tokens >= budget.tokens:
            return float(words), tokens * ratio
    raise AssertionError("it has no end")


def off_by(name: str, folders: list[Path], epochs: float) -> float:
    """How many words too many or too few are read for so many epochs' words, as a share of a batch."""
    _, text = opened(name, folders, "{epochs=1}")
    wanted = epochs * text.words
    recipe, text = opened(name, folders, f"{{words={wanted}}}")
    read, said = words_read(name, recipe, text)
    return max(abs(read - wanted), abs(said - wanted)) / BATCH


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("length", LENGTHS)
def test_a_word_budget_is_as_much_text_for_every_objective(name, length, texts):
    for epochs in (0.4, 1.0) if name == "n-grams" else (0.4, 1.0, 3.0):
        assert off_by(name, texts[length], epochs) <= 1.0, epochs


def test_whole_epochs_are_exact(texts):
    """Where an epoch reads every token once."""
    for name in ("next token", "masked", "replaced token", "next sentence"):
        for length in (1, 8):
            assert off_by(name, texts[length], 2.0) == 0


def test_planted_count_of_special_tokens_is_noticed(texts, monkeypatch):
    sizes = masked.Masked.sizes

    def with_specials(example):
        found = sizes(example)
        return found._replace(tokens=found.read)

    monkeypatch.setattr(masked.Masked, "sizes", with_specials)
    assert off_by("masked", texts[3], 1.0) > 1.0


def test_milestones_are_at_the_same_words(texts):
    for length in (1, 8):
        marks = []
        for name in ("next token", "masked"):
            recipe, text = opened(name, texts[length], "{epochs=2}")
            found = milestones(recipe.budget.resolve(text).tokens, text)
            assert found[0].tokens == pytest.approx(found[0].words / text.words * text.num_tokens)
            marks.append([mark.words for mark in found])
        assert marks[0] == marks[1]


@pytest.mark.parametrize("name", ["next token", "masked", "n-grams"])
def test_metrics_tell_the_words_and_epochs_that_were_read(name, texts, tmp_path):
    recipe, settings = READERS[name]
    small = [] if name == "n-grams" else ["model.dim=20", "model.num_layers=1", "train.workers=0"]
    pretrain(recipe, texts[3][0], tmp_path / "run", settings=[*settings, *small, f"budget={{words={TOTAL}}}"])
    metrics = json.loads((tmp_path / "run/metrics.json").read_text())
    assert metrics["words"] == TOTAL
    assert metrics["epochs"] == 1.0


def test_a_run_that_was_begun_before_keeps_its_budget(texts, tmp_path):
    """Ends of documents were counted as tokens that encoders read; a run that was begun so must end where it was to end."""
    small = [*PASSAGES, "model.dim=20", "model.num_layers=1", "train.workers=0", f"budget={{words={TOTAL / 4}}}"]
    folder = tmp_path / "run"
    pretrain("roberta-tiny", texts[3][0], folder, settings=small)
    first = json.loads((folder / "metrics.json").read_text())
    config = json.loads((folder / "config.json").read_text())
    del config["data"]["epoch_tokens"]
    for path in folder.rglob("*"):
        if path.is_file() and path.name not in ("config.json", "tokenizer.json"):
            path.unlink()
    (folder / "config.json").write_text(json.dumps(config))
    pretrain("roberta-tiny", texts[3][0], folder, settings=small, resume=True)
    second = json.loads((folder / "metrics.json").read_text())
    _, text = opened("masked", texts[3], "{epochs=1}")
    before = sum(np.diff(train.offsets).sum() for train in text.train) / text.num_tokens
    assert second["tokens"] == pytest.approx(first["tokens"] * before, abs=BATCH)
    assert second["tokens"] > first["tokens"] + BATCH

"""Pairs of sentences are told by their words, and not by length, case or punctuation."""

import itertools
import json
import lzma
import random
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches import passages as module
from seqloom.batches.passages import Marks, Passages
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.words import texts_of
from tests.corpus import WORDS, MemorySplit, sentences_by

NOVELS = Path(__file__).parents[3] / "shared" / "data" / "english-novels" / "novels.jsonl.xz"
NAMES = ["Ann", "Bob", "Smith", "Ohio", "Rome", "Acme"]
INSIDE = [
    "Mr. Smith",
    "Dr. Jones",
    "the U.S. army",
    "J. R. Miller",
    "3.5",
    "Acme Inc. shares",
    "e.g.",
    "No. 7",
    "at 5 p.m. sharp",
]


def sentence(rng: random.Random, least: int, most: int) -> str:
    words = [rng.choice(WORDS + NAMES) for _ in range(rng.randint(least, most))]
    for _ in range(rng.choice((0, 0, 1, 1, 2))):
        words.insert(rng.randrange(len(words) + 1), rng.choice(INSIDE))
    if rng.random() < 0.1:
        words[rng.randrange(len(words))] = str(rng.randint(1, 2000))
    text = " ".join(words)
    text = text[0].upper() + text[1:] + rng.choice([".", ".", ".", ".", "?", "!"])
    return f'"{text}"' if rng.random() < 0.1 else text


def document(rng: random.Random) -> str:
    """As documents are: the first sentence is a long one, some begin with a mark or a main_metric, some break off."""
    many = rng.choice((1, 2, 2, 3, 4, 6, 9, 14))
    text = " ".join(sentence(rng, *((8, 14) if i == 0 else (2, 9))) for i in range(many))
    text = rng.choice(["", "", "", "- ", "and ", "The news\n"]) + text
    return text + rng.choice(["", "", "", " And so", "\nRead more", " (source)"])


@cache
def corpus(kind: str) -> tuple[Tokenizer, list[list[int]]]:
    if kind == "novels":
        texts, kind, size = novels(), "wordpiece", {"vocab_size": 8192}
    else:
        rng = random.Random(5)
        texts = [document(rng) for _ in range(3000)]
        size = {} if kind == "word" else {"vocab_size": 400}
    tokenizer = Tokenizer.train(kind, texts[:300], **size)
    return tokenizer, [list(map(int, ids)) for ids in tokenizer.encode_batch(texts)]


def novels() -> list[str]:
    """Stretches of about 3,000 characters of real prose, which no rule was fitted to."""
    found = []
    with lzma.open(NOVELS, "rt", encoding="utf-8") as file:
        for line in itertools.islice(file, 12):
            text = json.loads(line)["text"]
            starts = range(5000, min(len(text), 400_000), 3000)
            found += [text[i : i + 3000].partition("\n\n")[2].rpartition("\n\n")[0] for i in starts]
    return [text for text in found if text]


def kind_of(text: str) -> int:
    """Of a token: a capital, a small letter, a digit, a stop, another mark, a blank."""
    text = text.strip().removeprefix("##")
    if not text:
        return 5
    return (
        0
        if text[0].isupper()
        else 1
        if text[0].isalpha()
        else 2
        if text[0].isdigit()
        else 3
        if text[-1] in ".?!"
        else 4
    )


def features(rows: module.Rows, split: MemorySplit, kinds: np.ndarray, stops: np.ndarray, max_len: int) -> np.ndarray:
    """Of each pair what its surface is, and all products of two of these."""
    (a, b), (m, n) = rows.starts.T, rows.lengths.T
    flat = split.flat
    found = [m / max_len, n / max_len, (m - n) / max_len, (m + n) / max_len, m > n, m + n > 0.9 * (max_len - 3)]
    for start, size in ((a, m), (b, n)):
        found.append(stops[flat[start + size - 1]])  # ends with a stop
        found += [kinds[flat[start]] == kind for kind in range(6)]  # begins with a capital, …
        found += [kinds[flat[start + size - 1]] == kind for kind in range(6)]
    table = np.stack(found, 1).astype(float)
    products = [table[:, i] * table[:, j] for i, j in itertools.combinations(range(table.shape[1]), 2)]
    return np.concatenate((table, np.stack(products, 1), np.ones((len(table), 1))), 1)


def told(kind: str, form: str, max_len: int, rule=None) -> tuple[float, int]:
    """How many labels a linear model of the surface tells, learnt from the pairs of other documents."""
    tokenizer, documents = corpus(kind)
    entries = texts_of(tokenizer)
    kinds, stops = (
        np.array([kind_of(entry) for entry in entries]),
        np.array([e.strip()[-1:] in tuple(".?!") for e in entries]),
    )
    marks = Marks.of(tokenizer)
    marks = marks if rule is None else marks._replace(sentences=rule(entries))
    half, sides = len(documents) // 2, []
    for some in (documents[:half], documents[half:]):
        split = MemorySplit(some)
        passages = Passages(split, marks, form, 4 * max_len, max_len, (0, 0.9), 1.0)
        x, y = [], []
        for epoch in range(4):
            rows = passages.cut(np.arange(half), max_len, np.random.default_rng(epoch))
            rows = rows.take(rows.lengths[:, 1] > 0)
            x.append(features(rows, split, kinds, stops, max_len))
            y.append(rows.labels)
        sides.append((np.concatenate(x), np.concatenate(y)))
    (x, y), (test, labels) = sides
    weights = np.linalg.solve(x.T @ x + 10 * np.eye(x.shape[1]), x.T @ (y - y.mean()))
    return float(((test @ weights > 0) == labels).mean()), len(labels)


def tells_nothing(kind, form, max_len, rule=None):
    share, count = told(kind, form, max_len, rule)
    assert count > 1000
    assert share <= 0.55, f"{share:.3f} of {count} pairs are told by their surface"


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "word"])
@pytest.mark.parametrize("max_len", [32, *(pytest.param(n, marks=pytest.mark.long) for n in (64, 128))])
@pytest.mark.parametrize("form", ["next", "order"])
def test_the_surface_of_a_pair_does_not_tell_its_label(form, max_len, kind):
    tells_nothing(kind, form, max_len)


@pytest.mark.long
@pytest.mark.parametrize("max_len", [32, 64, 128])
@pytest.mark.parametrize("form", ["next", "order"])
def test_the_same_in_novels(form, max_len):
    tells_nothing("novels", form, max_len)


def keep_all(lengths, *rest):
    return np.ones(len(lengths), bool)


def last_token(entries):
    """The rule that was: a sentence ends with any token that ends with a stop, and with the document."""
    find = sentences_by(np.array([entry.rstrip("\"'”)")[-1:] in tuple(".!?…") for entry in entries]))

    def sentences(ids):
        found = find(ids)
        last = int(found[-1, 1]) if len(found) else 0
        return found if last == len(ids) else np.concatenate((found, [[last, len(ids)]]))

    return sentences


@pytest.mark.parametrize("max_len", [32, 64, 128])
def test_planted_sentences_by_their_last_token_are_noticed(max_len, monkeypatch):
    monkeypatch.setattr(module, "select_balanced", keep_all)
    with pytest.raises(AssertionError, match="told by their surface"):
        tells_nothing("bpe", "order", max_len, last_token)


def test_planted_order_of_any_lengths_is_noticed(monkeypatch):
    """The first sentence of these documents is longer than others."""
    monkeypatch.setattr(module, "select_balanced", keep_all)
    with pytest.raises(AssertionError, match="told by their surface"):
        tells_nothing("bpe", "order", 64)


def test_planted_partners_of_any_length_are_noticed(monkeypatch):
    def any_other(documents, lengths, surfaces, room, rng):
        order = rng.permutation(len(documents) // 2 * 2)
        found = np.full(len(documents), -1)
        found[order[::2]], found[order[1::2]] = order[1::2], order[::2]
        return found

    monkeypatch.setattr(module, "find_partners", any_other)
    with pytest.raises(AssertionError, match="told by their surface"):
        tells_nothing("bpe", "next", 64)

"""Sentences by rules: what a stop is, and what is none."""

import random

import numpy as np
import pytest

from seqloom.text import sentences as module
from seqloom.text.sentences import sentences
from seqloom.tokens.tokenizer import Tokenizer
from seqloom.tokens.words import Sentences


def cut(text):
    return [text[a:b] for a, b in sentences(text)]


CASES = [
    (["It rained.", "We stayed."], " "),
    (["He lives in the U.S. now.", "She does not."], " "),
    (["The U.S. Senate met.", "It voted."], " "),
    (["He left the U.S.", "The others stayed."], " "),
    (["It costs 3.5 dollars.", "That is much."], " "),
    (["It was 2004.", "15 people came."], " "),
    (["Mr. Smith met Dr. J. R. Jones on Jan. 9 at 5 p.m. in St. Louis.", "They talked."], " "),
    (["She works for Acme Inc. in Ohio.", "Her brother does too."], " "),
    (['"Stop!" he said.', "Nobody did."], " "),
    (['He said: "We won."', '"Did we?" she asked.'], " "),
    (["(It was late.)", "[So they left.]", "“Why?”", "He knew…", "Or not..."], " "),
    (["Wait... what?", "No!", "Yes?!", "Good."], " "),
    (["See Fig. 3 and No. 7, e.g. here.", "And cf. Vol. 2."], " "),
    (["今日は晴れです。", "明日は？", "「はい！」"], ""),
    (["¿Qué?", "¡Sí!", "Él vino."], " "),
    (["It rained.", "We stayed."], "\n\n"),
    (["1. First things.", "2. Then others."], "\n"),
    (["He said no.", "Then he left."], " "),
    (["It rained .", "The U . S . Senate met at 3 . 5 .", "We stayed ."], " "),  # words with blanks between them
    (['" We won . "', '" Did we ? " she asked .', '" Yes . "', "He left ."], " "),
]


def splits(text, expected):
    assert cut(text) == expected


@pytest.mark.parametrize(("expected", "between"), CASES)
def test_sentences(expected, between):
    splits(between.join(expected), expected)


def test_planted_ignorance_of_abbreviations_is_noticed(monkeypatch):
    monkeypatch.setattr(module, "TITLES", frozenset())
    with pytest.raises(AssertionError):
        splits("Mr. Smith came. He left.", ["Mr. Smith came.", "He left."])


def test_text_in_lower_case():
    first, second, third = "it rained.", "mr. smith and I stayed in the u.s. with us.", "then he left."
    splits(f"{first} {second} {third}", [first, second, third])


def test_what_is_no_whole_sentence_is_left_out():
    splits("and so on. It rained. We stayed. And then", ["It rained.", "We stayed."])
    splits("- a list. It rained. We", ["It rained."])
    splits("A main_metric\nIt rained. We stayed.", ["A main_metric\nIt rained.", "We stayed."])
    splits("No stop at all", [])
    splits("", [])
    splits("   ", [])


def test_lines_are_sentences_where_nothing_stops():
    splits(
        "roses are red \nviolets are blue\n\nsugar is sweet", ["roses are red", "violets are blue", "sugar is sweet"]
    )


def test_any_text_is_cut_in_order_and_quickly():
    rng = random.Random(0)
    for _ in range(300):
        text = "".join(rng.choice("aB1 .!?…。\n\"')(“”U") for _ in range(rng.randrange(60)))
        found = sentences(text)
        places = [place for stretch in found for place in stretch]
        assert places == sorted(places)
        assert all(text[a:b] == text[a:b].strip() != "" for a, b in found)
    assert len(sentences("A." * 100_000)) <= 1  # nothing is looked through again and again
    assert len(sentences("." * 200_000 + " ." * 100_000)) <= 1
    assert sentences("A " * 200_000 + ".")


TEXT = "He left the U.S. army. “It cost 3.5 M€,” said Mr. Smith.\nÉva “stayed”… 今日は晴れ。明日は？ "
TEXT += '"Why not?" Nobody knew! And then'
WHOLE = [
    "He left the U.S. army.",
    "“It cost 3.5 M€,” said Mr. Smith.",
    "Éva “stayed”…",
    "今日は晴れ。",
    "明日は？",
    '"Why not?"',
]
WHOLE += ["Nobody knew!"]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char", "byte"])
def test_tokens_are_cut_as_their_text_is(kind):
    assert cut(TEXT) == WHOLE
    sizes = {"min_count": 1} if kind in ("word", "char") else {}
    tokenizer = Tokenizer.train(kind, [TEXT] * 3, **sizes)
    ids = np.array(tokenizer.encode(TEXT))
    found = [tokenizer.decode(ids[a:b].tolist()) for a, b in Sentences(tokenizer)(ids).tolist()]
    bare = ["".join(text.split()) for text in (found, WHOLE) for text in text]
    assert bare[: len(found)] == bare[len(found) :]


def test_tokens_without_sentences():
    tokenizer = Tokenizer.train("bpe", [TEXT] * 3, vocab_size=300)
    for text in ("", "no stop", "\n"):
        assert Sentences(tokenizer)(np.array(tokenizer.encode(text), np.int64)).shape == (0, 2)

"""Work is bounded whatever a text holds: no string that the tokenizers library gets grows with a word."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.tokens import learn as learning
from seqloom.tokens.chunks import LONGEST, RUN, WORD, chunks, pieces, with_words_cut
from seqloom.tokens.tokenizer import TEXT_KINDS, Tokenizer
from seqloom.tokens.unknown import LONGEST as PRICED
from seqloom.tokens.unknown import ByteNgram
from tests.training.material import sentences

LONG = 600_000


def word(kind: str, size: int) -> str:
    letters = {"one letter": "a", "letters": "abcdefghij", "punctuation": ".,;!", "han": "天地玄黃宇宙洪荒"}[kind]
    return "".join(random.Random(0).choices(letters, k=size))


class Handed:
    """The longest runs that the library was given to learn from and to encode."""

    learnt = encoded = 0

    def __init__(self, monkeypatch: pytest.MonkeyPatch):
        import tokenizers

        library, handed = tokenizers.Tokenizer, self

        def longest(text: str) -> int:
            return max(map(len, text.split()), default=0)

        class Watched:
            def __init__(self, model: Any):
                self.__dict__["under"] = library(model)

            def __getattr__(self, name: str) -> Any:
                return getattr(self.under, name)

            def __setattr__(self, name: str, value: Any) -> None:
                setattr(self.under, name, value)

            def train_from_iterator(self, texts: Iterator[str], trainer: Any) -> None:
                def watched() -> Iterator[str]:
                    for text in texts:
                        handed.learnt = max(handed.learnt, longest(text))
                        yield text

                self.under.train_from_iterator(watched(), trainer)

            from_str = staticmethod(library.from_str)

        encode = Tokenizer._encode_new

        def encode_new(tokenizer: Tokenizer, texts: list[str]) -> list[list[int]]:
            handed.encoded = max(handed.encoded, *map(longest, texts), 0)
            return encode(tokenizer, texts)

        monkeypatch.setattr(tokenizers, "Tokenizer", Watched)
        monkeypatch.setattr(Tokenizer, "_encode_new", encode_new)


@pytest.mark.parametrize(
    ("kind", "what"),
    [
        ("bpe", "letters"),
        ("unigram", "one letter"),
        ("wordpiece", "one letter"),
        ("word", "punctuation"),
        ("bpe", "han"),
    ],
)
def test_one_long_word_is_prepared_in_bounded_pieces(kind, what, tmp_path, monkeypatch):
    handed = Handed(monkeypatch)
    text = tmp_path / "text.txt"
    text.write_text("".join(f"{line}\n" for line in sentences(50)) + word(what, LONG) + "\n")
    prepare([text], tmp_path / "data", tokenizer=kind, keep_duplicates=True, keep_leaks=True, workers=1)
    assert 0 < handed.encoded <= RUN
    assert kind == "word" or 0 < handed.learnt <= WORD
    store = Store.open(tmp_path / "data")
    if kind in ("bpe", "unigram"):
        train = store.split("train")
        assert store.tokenizer.decode(train.read(0, train.num_tokens).tolist()).endswith(word(what, LONG))


def test_planted_whole_word_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(learning, "has_long_word", lambda text: False)
    handed = Handed(monkeypatch)
    learning.learn(
        "bpe", ["a b " + word("letters", 5000)], vocab_size=None, min_count=None, lowercase=False, words="space"
    )
    assert handed.learnt > WORD


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_ids_of_ordinary_text_are_those_of_the_library(kind):
    """Also without blanks, as Chinese is written, for as long as punctuation comes now and then."""
    lines = sentences(200)
    han = "".join(word("han", 40 + i % 90) + "。" for i in range(1500))
    assert len(han) > 3 * RUN
    text = " ".join(lines) + f" {han} https://example.org/{'a1/' * 300} " + "x" * WORD
    tokenizer = Tokenizer.train(kind, [*lines, han])
    plain: Any = tokenizer._rust
    assert tokenizer.encode(text) == plain.encode(text, add_special_tokens=False).ids
    ids, offsets = tokenizer.encode_with_offsets(text)
    assert ids == tokenizer.encode(text) and len(offsets) == len(ids)


@pytest.mark.parametrize("what", ["letters", "punctuation", "han"])
def test_what_is_cut_is_the_text(what):
    text = f"one {word(what, 3 * RUN + 5)} two,{word(what, RUN + 1)}"
    assert "".join(chunks(text)) == "".join(with_words_cut(text, WORD)) == "".join(pieces(text, 100)) == text
    assert max(map(len, chunks(text))) <= RUN + 5
    assert max(map(len, pieces(word(what, 3 * LONGEST), 100))) <= LONGEST + 100
    tokenizer = Tokenizer.train("bpe", sentences(50))
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.encode_with_offsets(text)[0] == tokenizer.encode(text)


def test_no_word_of_a_vocabulary_is_longer_than_the_limit():
    tokenizer = Tokenizer.train("word", ["a b a b " + f"{'c' * WORD} {'d' * (WORD + 1)} " * 3])
    assert tokenizer.id("c" * WORD) is not None and tokenizer.id("d" * (WORD + 1)) is None


def test_the_price_of_a_long_unknown_word_is_that_of_a_distribution():
    """Beyond the limit every byte costs the same; at the limit all that can follow sums to one."""
    model = ByteNgram({"abab": 3, "abc": 1, "x" * (PRICED + 1): 5})
    assert max(map(len, model.words)) == 4
    head = ("ab" * PRICED)[:PRICED]
    end, more = model.bits(head), model.bits(head + "ab")
    assert more - end == pytest.approx(2 * 8.00562, abs=1e-4)
    follow = [2.0 ** (end - model.bits(head + chr(byte))) for byte in range(128)]
    assert sum(follow) < 1  # half of the bytes, each followed by an end
    assert model.bits(word("letters", LONG)) > LONG

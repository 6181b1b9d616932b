"""Streamed pieces concatenate to the text and never split a character."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.decode.stream import INCOMPLETE, TextStream, continue_text
from seqloom.tokens.tokenizer import Tokenizer
from tests.training.material import sentences

BYTES = Tokenizer.train("byte", [])
KINDS = {
    "byte": BYTES,
    "char": Tokenizer.train("char", ["aäöß 世界 🙂 " * 3]),
    "bpe": Tokenizer.train("bpe", sentences(200), vocab_size=300),
    "word": Tokenizer.train("word", sentences(200), min_count=1),
}


def pieces_of(tokenizer, ids, stream=TextStream):
    reader = stream(tokenizer)
    return [*(reader.push(i) for i in ids), reader.close()]


def streams_well(kind, text, stream=TextStream):
    tokenizer = KINDS[kind]
    ids = tokenizer.encode(text)
    pieces = pieces_of(tokenizer, ids, stream)
    whole = tokenizer.decode(ids)
    assert "".join(pieces) == whole
    if INCOMPLETE not in whole:
        assert not any(INCOMPLETE in piece for piece in pieces)


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=60)
@given(text=st.text(alphabet="aäöß 世界🙂👩‍👩‍👧שלום the cat.", max_size=40))
def test_any_text(kind, text):
    streams_well(kind, text)


@settings(max_examples=60)
@given(st.lists(st.integers(0, 255), max_size=30))
def test_any_bytes(values):
    """Even what is no UTF-8 at all comes out as the decoder shows it."""
    ids = [BYTES.encode(chr(v))[0] if v < 128 else BYTES.encode("é")[0] + (v - 0xC3) for v in values]
    assert "".join(pieces_of(BYTES, ids)) == BYTES.decode(ids)


def test_planted_naive_stream_is_noticed():
    class Naive(TextStream):
        def push(self, token):
            return self.tokenizer.decode([token])

        def close(self):
            return ""

    with pytest.raises(AssertionError):
        streams_well("byte", "世界", Naive)


@pytest.mark.parametrize(
    ("kind", "prompt", "more", "expected"),
    [
        ("word", "the cat", "sees", "the cat sees"),
        ("word", "the cat ", "sees", "the cat sees"),
        ("word", "", "the", "the"),
        ("bpe", "the cat", " sees", "the cat sees"),
        ("byte", "the c", "at", "the cat"),
    ],
)
def test_a_prompt_decides_whether_a_blank_follows(kind, prompt, more, expected):
    tokenizer = KINDS[kind]
    assert continue_text(tokenizer, tokenizer.encode(prompt), prompt, tokenizer.encode(more)) == expected

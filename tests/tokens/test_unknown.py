"""The byte 5-gram is a distribution, and learns."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.tokens.unknown import ByteNgram

MODEL = ByteNgram({"walking": 3, "talking": 2, "naïve": 1})


def sums_to_one(model: ByteNgram, context: bytes) -> None:
    assert math.isclose(sum(model.probability(s, tuple(context[-4:])) for s in range(257)), 1.0, rel_tol=1e-9)


@given(st.one_of(st.binary(max_size=6), st.sampled_from([b"walk", b"king", b"w", b"na\xc3"])))
@settings(max_examples=100)
def test_every_context_sums_to_one(context: bytes) -> None:
    sums_to_one(MODEL, context)


def test_planted_bug_a_missing_escape_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = ByteNgram.probability
    monkeypatch.setattr(ByteNgram, "probability", lambda self, s, c: right(self, s, c) * (0.5 if s == 256 else 1))
    with pytest.raises(AssertionError):
        sums_to_one(MODEL, b"king")


def test_bits_are_the_chain_of_probabilities() -> None:
    symbols = [*b"talk", 256]
    product = math.prod(MODEL.probability(s, tuple(symbols[max(0, i - 4) : i])) for i, s in enumerate(symbols))
    assert math.isclose(MODEL.bits("talk"), -math.log2(product))
    assert MODEL.bits("walking") < MODEL.bits("zqxjvkw")
    assert math.isclose(ByteNgram().bits("ab"), 3 * math.log2(257))

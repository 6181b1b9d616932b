"""Decode tokens one by one into pieces of text that never split a character."""

from typing import NamedTuple

from seqloom.tokens.tokenizer import Tokenizer

INCOMPLETE = "\N{REPLACEMENT CHARACTER}"  # what a decoder shows for the bytes of an unfinished character


class Sample(NamedTuple):
    """One sampled text."""

    text: str  # the prompt and what follows it
    tokens: list[int]  # the new ones
    log_probs: list[float]  # of those, under the model


class Continuation(NamedTuple):
    """One text found by a search."""

    text: str  # the prompt and what follows it
    tokens: list[int]  # the new ones, without the end token
    log_prob: float  # of those, and of the end
    score: float  # what they are ranked by
    finished: bool  # False: cut off at the greatest length


class TextStream:
    def __init__(self, tokenizer: Tokenizer):
        self.tokenizer = tokenizer
        self.ids: list[int] = []
        self.given = ""

    def push(self, token: int) -> str:
        """What can be shown now; "" while a character is unfinished."""
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids)
        if text.endswith(INCOMPLETE):
            return ""
        piece = self._new(text)
        if self.tokenizer.byte_exact:  # bytes simply add up, so what is shown need not be decoded again
            self.ids, self.given = [], ""
        return piece

    def close(self) -> str:
        """The rest, complete or not."""
        return self._new(self.tokenizer.decode(self.ids))

    def _new(self, text: str) -> str:
        if not text.startswith(self.given):  # what was shown cannot be taken back
            return ""
        piece, self.given = text[len(self.given) :], text
        return piece

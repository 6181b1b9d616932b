"""Decode tokens one by one into pieces of text that never split a character."""

from collections.abc import Sequence
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


LOOK_BACK = 8  # tokens: enough to know how the last word is continued


class TextStream:
    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = (), prompt: str = "", specials: bool = False):
        """before: the tokens that are continued, and prompt: their text. They are not given out, but decide whether a blank comes
        before the first new token. specials: show special tokens, too."""
        self.tokenizer, self.specials = tokenizer, specials
        # where text is byte-exact, blanks are tokens, or parts of them
        self.ids: list[int] = [] if tokenizer.byte_exact else list(before[-LOOK_BACK:])
        self.given = tokenizer.decode(self.ids, specials)
        self.after_blank = prompt[-1:].isspace() and bool(self.ids)

    def push(self, token: int) -> str:
        """What can be shown now; "" while a character is unfinished."""
        if self.tokenizer.byte_exact and not self.ids:
            alone = self.tokenizer.decode([token], True) if self.specials else self.tokenizer.decode_one(token)
            if not alone.endswith(INCOMPLETE):
                return alone
        self.ids.append(token)
        text = self.tokenizer.decode(self.ids, self.specials)
        if text.endswith(INCOMPLETE):
            return ""
        piece = self._new(text)
        if self.tokenizer.byte_exact:  # bytes simply add up, so what is shown need not be decoded again
            self.ids, self.given = [], ""
        elif len(self.ids) > 4 * LOOK_BACK:
            self.ids = self.ids[-LOOK_BACK:]
            self.given = self.tokenizer.decode(self.ids, self.specials)
        return piece

    def close(self) -> str:
        """The rest, complete or not."""
        return self._new(self.tokenizer.decode(self.ids, self.specials))

    def _new(self, text: str) -> str:
        if not text.startswith(self.given):  # what was shown cannot be taken back
            return ""
        piece, self.given = text[len(self.given) :], text
        if piece and self.after_blank:
            piece, self.after_blank = piece.removeprefix(" "), False
        return piece


def continue_text(tokenizer: Tokenizer, before: Sequence[int], prompt: str, tokens: Sequence[int]) -> str:
    """A prompt and the text of the tokens that continue it. before: the tokens of the prompt."""
    stream = TextStream(tokenizer, before, prompt)
    return "".join([prompt, *map(stream.push, tokens), stream.close()])

"""Where words and sentences begin and end in sequences of tokens."""

import numpy as np
import numpy.typing as npt

from seqloom.text.sentences import STOPS, sentences
from seqloom.tokens.spelling import as_bytes
from seqloom.tokens.tokenizer import Tokenizer

WORD_START = "\u2581"  # of unigram entries


def texts_of(tokenizer: Tokenizer) -> list[str]:
    """The text of each entry, with the space before it; special tokens and gaps are empty."""
    special = set(tokenizer.special_ids.values())
    found = []
    for number in range(tokenizer.vocab_size):
        entry = tokenizer.entry(number)
        if entry is None or number in special:
            found.append("")
        else:
            found.append(tokenizer.decode([number]) if tokenizer.in_bytes else entry)
    return found


def continues(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """(V,) whether an entry continues the word of the token before it: "##ing" of word pieces, letters without a space before
    them in byte-level vocabularies. Whole words and single characters never do."""
    if tokenizer.kind in ("word", "char", "byte"):
        return np.zeros(tokenizer.vocab_size, bool)
    texts = texts_of(tokenizer)
    if tokenizer.kind == "wordpiece":
        return np.array([text.startswith("##") for text in texts])
    return np.array([bool(text) and (text[0].isalnum() or text[0] == "\ufffd") for text in texts])


KINDS = 7


def kinds(tokenizer: Tokenizer) -> npt.NDArray[np.int64]:
    """(V,) what an entry looks like: 0 begins with a capital, 1 with another letter, 2 with a digit; of marks 3 ends with a
    stop, 4 has one within, 5 has none; 6 is blank, or a special token."""

    def kind(text: str) -> int:
        text = text.strip().removeprefix("##").replace(WORD_START, "")
        if not text:
            return 6
        if text[0].isalnum():
            return 0 if text[0].isupper() else 1 if text[0].isalpha() else 2
        return 3 if text[-1] in STOPS else 4 if any(mark in STOPS for mark in text) else 5

    return np.array([kind(text) for text in texts_of(tokenizer)])


class Sentences:
    """Finds whole sentences in sequences of tokens, by the rules of `text.sentences` on their text."""

    def __init__(self, tokenizer: Tokenizer):
        special = set(tokenizer.special_ids.values())
        entries = ["" if i in special else tokenizer.entry(i) or "" for i in range(tokenizer.vocab_size)]
        self.pieces = [piece_of(tokenizer, entry) for entry in entries]
        self.sizes = np.array([len(piece) for piece in self.pieces])

    def __call__(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Of one document: (S, 2) the first token of each sentence and the one behind its last, without blanks around it."""
        raw = b"".join(map(self.pieces.__getitem__, ids.tolist()))
        text = raw.decode("utf-8", "surrogateescape")
        found = np.array(sentences(text), np.int64).reshape(-1, 2)
        if not len(found):
            return found
        # from characters to bytes: each byte that is not UTF-8 was decoded as one low surrogate
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        widths = 1 + (codes >= 0x80) + (codes >= 0x800) + (codes >= 0x10000)
        widths[(codes >= 0xDC80) & (codes <= 0xDCFF)] = 1
        places = np.concatenate(([0], np.cumsum(widths)))[found]
        ends = np.cumsum(self.sizes[ids])
        # a token that contains the end of one sentence and the start of the next does not separate them
        first = np.searchsorted(ends, places[:, 0], side="right")
        last = np.searchsorted(ends, places[:, 1], side="left") + 1
        clean = np.concatenate((first[1:] >= last[:-1], [True]))
        starts = first[np.concatenate(([True], clean[:-1]))]
        return np.stack((starts, last[clean]), 1)


def piece_of(tokenizer: Tokenizer, entry: str) -> bytes:
    """The text of an entry in UTF-8, with the space before it where only spaces separate words."""
    if tokenizer.in_bytes:
        return as_bytes(entry)
    if tokenizer.kind in ("char", "byte") or not entry:
        return entry.encode()
    if tokenizer.kind == "unigram":
        return entry.replace(WORD_START, " ").encode()
    return entry.removeprefix("##").encode() if entry.startswith("##") else f" {entry}".encode()

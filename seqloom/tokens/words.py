"""Where words and sentences begin and end, told by single tokens: tables over a vocabulary."""

import numpy as np
import numpy.typing as npt

from seqloom.tokens.tokenizer import Tokenizer

STOPS = ".!?…。！？।"
CLOSING = "\"'»”’)]}」』】"  # may stand behind a stop


def texts_of(tokenizer: Tokenizer) -> list[str]:
    """What each entry is as text, spaces before it included; special tokens and gaps are empty."""
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
    """(V,) whether an entry goes on with the word of the token before it: "##ing" of word pieces, letters without a space before
    them of byte-level ones. Whole words and single characters never do."""
    if tokenizer.kind in ("word", "char", "byte"):
        return np.zeros(tokenizer.vocab_size, bool)
    texts = texts_of(tokenizer)
    if tokenizer.kind == "wordpiece":
        return np.array([text.startswith("##") for text in texts])
    return np.array([bool(text) and (text[0].isalnum() or text[0] == "\ufffd") for text in texts])


def ends_sentence(tokenizer: Tokenizer) -> npt.NDArray[np.bool_]:
    """(V,) whether an entry ends a sentence: a stop, perhaps with a closing mark behind it, or the end of a line."""
    found = []
    for text in texts_of(tokenizer):
        last = text.rstrip(CLOSING)
        found.append("\n" in text or (bool(last) and last[-1] in STOPS))
    return np.array(found)

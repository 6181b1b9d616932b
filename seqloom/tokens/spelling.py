"""Words as sequences of characters, for models that read them letter by letter.

A character is a byte of the word in UTF-8, so that none is unknown. Every word is enclosed in two marks; special tokens have a
first mark of their own, so that no word in a text has the same spelling.
"""

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from seqloom.tokens.tokenizer import FIRSTS, Tokenizer, byte_alphabet

PAD = 0  # behind the end of a word
FIRST_BYTE = 1
BEGIN, END, SPECIAL = 257, 258, 259
CHARACTERS = 260
# ELMo's spelling of a special token is one mark, as if it were the only letter of a word: at the start of a text, or elsewhere
SENTENCE_BEGIN, SENTENCE_END = SPECIAL, 260
ELMO_CHARACTERS = 261

Characters = npt.NDArray[np.int16]


def spell(words: Iterable[bytes], longest: int, begin: int = BEGIN) -> Characters:
    """(words, longest) the characters of words; longer words are truncated."""
    rows = [word[: longest - 2] for word in words]
    table = np.full((len(rows), longest), PAD, np.int16)
    for row, word in zip(table, rows, strict=True):
        row[0] = begin
        row[1 : len(word) + 1] = np.frombuffer(word, np.uint8).astype(np.int16) + FIRST_BYTE
        row[len(word) + 1] = END
    return table


VALUES = {name: value for value, name in enumerate(byte_alphabet())}


def as_bytes(token: str) -> bytes:
    """The bytes of an entry written in the byte alphabet; some vocabularies also have other entries."""
    return bytes(VALUES[c] for c in token) if all(c in VALUES for c in token) else token.encode()


def spell_text(ids: npt.ArrayLike, unknown: Iterable[str], tokenizer: Tokenizer, table: Characters) -> Characters:
    """(T, C) the characters of a text: of known words from the table, of unknown ones, given in order, from their spelling."""
    row = np.asarray(ids)
    characters = table[row]
    words = [tokenizer.lowered(word).encode() for word in unknown]
    characters[row == tokenizer.unk_id] = spell(words, table.shape[1])
    return characters


def spelling_table(tokenizer: Tokenizer, longest: int) -> Characters:
    """(V, longest) the characters of every entry of the vocabulary."""
    tokens = [tokenizer.entry(number) or "" for number in range(tokenizer.vocab_size)]
    table = spell(map(as_bytes if tokenizer.in_bytes else str.encode, tokens), longest)
    for number in (tokenizer.unk_id, *tokenizer.special_ids.values()):
        if number is not None:
            table[number] = spell([tokens[number].encode()], longest, SPECIAL)[0]
    return table


def mark_sentences(table: Characters) -> Characters:
    """The same table (V, C) with special tokens as ELMo spells them."""
    table, longest = table.copy(), table.shape[1]
    special = table[:, 0] == SPECIAL
    begins = np.zeros(len(table), bool)
    for name in FIRSTS:
        begins |= (table == spell([name.encode()], longest, SPECIAL)).all(1)
    table[special] = PAD
    table[special, :3] = (BEGIN, SENTENCE_END, END)
    table[begins, 1] = SENTENCE_BEGIN
    return table

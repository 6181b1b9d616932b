"""What a word is, for everything that counts words: budgets, milestones, bits per word.

A word is what white space separates. Scripts that are written without spaces have no such words, so their characters are
counted: one word for every 1.5 characters of Han, Hiragana and Katakana (aligned texts have 1.6 Han characters for each English
word), and one for every 4 characters, marks included, of Thai, Lao, Khmer and Burmese, a round number. What else stands between
them, such as a name in Latin letters, is counted by white space. Text in other scripts has as many words as before.

The manifest of prepared text says by which rule its words were counted (`word_rule`); manifests without it have WHITESPACE.
"""

import re

WHITESPACE = "whitespace"
SCRIPTS = "whitespace; 1.5 characters of Han and kana, 4 of Thai, Lao, Khmer and Burmese"
_HAN_AND_KANA = (
    "\u2e80-\u2fd5\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303b\u3041-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff66-\uff9f\U0001b000-\U0001b16f\U00020000-\U0003ffff"
)
_SOUTH_EAST_ASIAN = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e81-\u0ece\u0edc-\u0edf\u1000-\u103f\u1050-\u109f\u1780-\u17d3\u17dc-\u17dd"
)
_UNSPACED = re.compile(f"[{_HAN_AND_KANA}{_SOUTH_EAST_ASIAN}]")
_DENSE = re.compile(f"[{_HAN_AND_KANA}]+")
_LONG = re.compile(f"[{_SOUTH_EAST_ASIAN}]+")
# punctuation of East Asia: it stands between words without spaces, and is none
_BETWEEN = re.compile(
    "[\u3000-\u3004\u3008-\u3020\u3030\u303d-\u303f\u30a0\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]+"
)


def count_words(text: str) -> int:
    """How many words a text has."""
    if text.isascii() or not _UNSPACED.search(text):
        return len(text.split())
    dense = sum(map(len, _DENSE.findall(text)))
    long = sum(map(len, _LONG.findall(text)))
    others = _BETWEEN.sub(" ", _LONG.sub(" ", _DENSE.sub(" ", text)))
    return len(others.split()) - (-(8 * dense + 3 * long) // 12)

"""Where sentences begin and end in a text, by rules.

A sentence ends with a stop, and with the quotes and brackets that close behind it, if what follows begins like one: with a
capital, a digit or a letter of a script that has no case. A stop is none behind a title ("Mr. Smith"), an initial or an
abbreviation ("J. Smith", "U.S. forces"), unless a word follows that mostly begins sentences ("in the U.S. The"), within a number
("3.5"), behind a number that begins a line ("1. First"), or where the text continues in lower case ("Stop!" he said), if it has
capitals behind stops at all. Chinese and
Japanese stops need no blank behind them. In a text without any stop that ends a sentence, lines are sentences.

Text may also be words with blanks between them, punctuation included ("U . S ."): the rules apply as far as words
alone decide them.
"""

import re
from typing import NamedTuple

STOPS = ".!?…。！？।؟"
WIDE = "。！？"  # no blank follows
OPENING = "\"'«“‘„(\\[{「『【¿¡"
CLOSING = "»”’)\\]}」』】"

# never at the end of a sentence
TITLES = frozenset((
    "mr", "mrs", "ms", "messrs", "dr", "prof", "gen", "sen", "rep", "gov", "pres", "st", "lt", "col", "capt", "cpt", "sgt",
    "maj", "cmdr", "adm", "rev", "hon", "fr", "sr", "mt", "ft", "vs", "e.g", "i.e", "cf", "fig", "figs", "vol", "vols",
    "ed", "eds", "pp", "approx", "ca", "nr", "bzw", "z.b", "d.h", "u.a", "hr",
))  # fmt: skip
# at its end now and then
ABBREVIATIONS = frozenset((
    "inc", "ltd", "co", "corp", "bros", "llc", "jr", "etc", "al", "dept", "est", "univ", "ave", "blvd", "rd", "jan", "feb",
    "mar", "apr", "jun", "jul", "aug", "sep", "sept", "oct", "nov", "dec", "tues", "thurs",
    "ph.d", "b.a", "m.a",
))  # fmt: skip
NUMBERED = frozenset(("no", "nos", "art", "sec", "ch", "p", "v", "op"))  # where a number follows
STARTERS = frozenset((
    "a", "after", "all", "also", "although", "an", "and", "another", "as", "at", "because", "both", "but", "by", "during",
    "each", "even", "every", "few", "finally", "first", "for", "from", "he", "her", "here", "his", "how", "however", "i",
    "if", "in", "instead", "it", "its", "last", "later", "many", "meanwhile", "moreover", "most", "my", "no", "nobody",
    "not", "nothing", "now", "on", "one", "only", "other", "our", "perhaps", "several", "she", "since", "so", "some",
    "such", "that", "the", "their", "then", "there", "therefore", "these", "they", "this", "those", "though", "three",
    "thus", "to", "today", "two", "under", "until", "we", "what", "when", "where", "which", "while", "who", "why", "with",
    "yet", "you", "your",
))  # fmt: skip

STOP = re.compile(rf"[{STOPS}]+(?:[\"']|\s?[{CLOSING}])*")
NEXT = re.compile(rf"(\s*)(?:[{OPENING}—–-]\s?)*(\w+|)")
BEFORE = re.compile(r"\b((?:[^\W\d_]\s?\.\s?)+[^\W\d_]|[^\W\d_]+(?:\.[^\W\d_]+)*|\d+)(\s?)$")
LINE_START = re.compile(r"(?:^|\n)\s*\d{1,3}\s?$")
# letters with which sentences may begin, and the marks before them
FIRST = re.compile(r"(?:^|(?<![^\w\s])([^\w\s]++)\s++)[^\w\s]*+\s?(\w)")
START = re.compile(rf"\s*(?:[{OPENING}]\s?)*([^\W_])")
REACH = 24  # characters that are looked at before a stop
FAR = 2000  # and for a quote that is open


class Stretch(NamedTuple):
    """Characters of a text."""

    start: int
    end: int


def sentences(text: str) -> list[Stretch]:
    """The whole sentences of a text, without the blanks between them. Other text is left out."""
    cased = any(letter.isupper() and (not marks or STOP.search(marks)) for marks, letter in FIRST.findall(text))
    found, start = [], 0
    for stop in STOP.finditer(text):
        end = closed(text, start, stop.end())
        if not is_end(text, stop, end, cased):
            continue
        begin = start + len(text[start:end]) - len(text[start:end].lstrip())
        first = START.match(text, start)
        if start or (first is not None and (not cased or not first[1].islower())):
            found.append(Stretch(begin, end))
        start = end
    if start:
        return found
    # verses, lists, one sentence a line
    lines = [Stretch(*line.span()) for line in re.finditer(r"\S[^\n]*", text)]
    return [Stretch(a, a + len(text[a:b].rstrip())) for a, b in lines] if len(lines) > 1 else []


def closed(text: str, start: int, end: int) -> int:
    """The end of a sentence, moved behind a closing quote that is separated from the stop by a space."""
    quote = end + 1
    if text[end:quote] == " " and text[quote : quote + 1] == '"' and text.count('"', max(start, end - FAR), end) % 2:
        return quote + 1
    return end


def is_end(text: str, found: re.Match[str], end: int, cased: bool) -> bool:
    """Whether a stop, with the closing marks up to `end`, ends a sentence. cased: sentences begin with capitals."""
    follows = NEXT.match(text, end)
    assert follows is not None
    if follows.end() == len(text) and not follows[2]:
        return True
    stop, blank, word = found[0], follows[1], follows[2]
    if not word or not (blank or any(mark in WIDE for mark in stop)):
        return False
    if cased and word[0].islower():
        return False
    if not stop.startswith(".") or stop.startswith(".."):
        return True
    return not belongs_to_word(text, found.start(), word, cased)


def belongs_to_word(text: str, dot: int, word: str, cased: bool) -> bool:
    """Whether a single dot belongs to the number or abbreviation before it. word: what follows."""
    before = BEFORE.search(text, max(dot - REACH, 0), dot)
    if before is None:
        return False
    last = re.sub(r"\s", "", before[1]).lower()
    if last.isdigit():
        inside = bool(before[2]) and word[0].isdigit()  # "3 . 5"
        return inside or LINE_START.search(text, max(dot - REACH, 0), dot) is not None
    if last in TITLES or (last in NUMBERED and word[0].isdigit()):
        return True
    if len(last) == 1 or "." in last or last in ABBREVIATIONS:
        return not (cased and word.lower() in STARTERS)
    return False

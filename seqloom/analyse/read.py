"""A text as a trained model reads it: one batch of one text, and what stands for each of its tokens in a picture."""

from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.batch import Ragged, to_device
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Reading
from seqloom.files import explained
from seqloom.tokens.spelling import spell_text
from seqloom.tokens.tokenizer import Tokenizer

LONGEST = 128  # tokens of a text that is drawn
BLANK = "␣"
BLANKS = {"\n": "↵", "\t": "⇥"}


class ReadText(NamedTuple):
    batch: Ragged
    tokens: list[str]  # special ones included
    own: slice  # those of the text itself


def read_text(reading: Reading, text: str, name: str = "the text", longest: int | None = LONGEST) -> ReadText:
    """longest: of its tokens; None: as many as the model reads. Raises DataError for a text that is empty or longer."""
    tokenizer, encoder = reading.tokenizer, reading.encoder
    ids, spans = tokenizer.encode_with_offsets(text)
    if not ids:
        raise DataError(f"{name} is empty: give at least one word")
    if longest is not None and len(ids) > longest:
        raise DataError(f"{name} has {len(ids):,} tokens, and {longest} can be drawn: give a shorter one")
    turn = slice(None, None, -1 if reading.backward else 1)
    unknown = [text[a:b] for token, (a, b) in zip(ids, spans, strict=True) if token == tokenizer.unk_id][turn]
    found = SpecialTokenTexts([np.array(ids[turn])], encoder.before, encoder.after)
    found.check(encoder.backbone.max_len, [name])
    if reading.table is not None:
        found.characters = spell_text(found.flat, unknown, tokenizer, reading.table)
    words = written(tokenizer, text, ids, spans)[turn]
    around = [[tokenizer.token(i) for i in some] for some in (encoder.before, encoder.after)]
    batch = to_device(found.batch(np.zeros(1, np.int64)), encoder.device)
    begin = len(encoder.before)
    return ReadText(batch, [*around[0], *words, *around[1]], slice(begin, begin + len(words)))


def written(tokenizer: Tokenizer, text: str, ids: list[int], spans: list[tuple[int, int]]) -> list[str]:
    """What stands for each token: its characters in the text; its name where it has none."""
    return [visible(text[a:b], tokenizer.token(token)) for (a, b), token in zip(spans, ids, strict=True)]


def name_token(tokenizer: Tokenizer, token: int) -> str:
    """What stands for a token that was written, or predicted."""
    return visible(tokenizer.decode([token], specials=True), tokenizer.token(token))


def visible(piece: str, name: str) -> str:
    """A token as a picture has it: its characters, a sign for each where all are blank, or its name where there are none."""
    return piece.strip() or "".join(BLANKS.get(c, BLANK) for c in piece) or name.replace("▁", BLANK)


def text_or_lines(given: str) -> tuple[list[str], Path | None]:
    """The text itself, or the lines of the file that it names, without empty ones."""
    path = Path(given)
    try:
        is_file = path.is_file()
        if given and path.is_dir():  # an empty one would be the working folder
            raise UsageError(f"--text {given}: it is a folder: name a file with one text per line")
    except OSError:  # too long for a name
        is_file = False
    if not is_file:
        looks_like_a_file = path.suffix in (".txt", ".jsonl", ".md", ".csv", ".tsv") and " " not in given
        if looks_like_a_file or not given.strip():
            problem = "no such file" if given.strip() else "it is empty"
            raise UsageError(f"--text {given}: {problem}: give a text in quotes, or a file with one text per line")
        return [given], None
    with explained(path):
        raw = path.read_bytes()
    try:
        lines = [line for line in raw.decode("utf-8").splitlines() if line.strip()]
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: not valid UTF-8 ({error.reason}): convert the file to UTF-8") from error
    if not lines:
        raise DataError(f"{path} has no text: give a file with one text per line")
    return lines, path


def whole_text(given: str) -> str:
    """The text itself, or all of the file that it names."""
    lines, path = text_or_lines(given)
    return lines[0] if path is None else path.read_bytes().decode("utf-8").replace("\r\n", "\n")


def pick_line(given: str, line: int | None) -> tuple[str, list[str]]:
    """Of a file the line that is drawn, from 1, and all lines; of a text itself and none."""
    lines, path = text_or_lines(given)
    if path is None:
        if line is not None:
            raise UsageError(f"--line {line} is for a file, and --text is a text: leave it out")
        return lines[0], []
    number = choose_number("--line", line, len(lines), f"lines with text in {path}") or 0
    return lines[number], lines


def number_of(count: int, things: str) -> str:
    """things: in the plural, what they are of behind them, as in "layers with attention"."""
    first, _, rest = things.partition(" ")
    return f"there is 1 {f'{first[:-1]} {rest}'.strip()}" if count == 1 else f"there are {count} {things}"


def choose_number(option: str, number: int | None, count: int, of_what: str) -> int | None:
    """Of a choice numbered from 1, counted from 0. Raises UsageError where it is not there."""
    if number is None:
        return None
    if not 1 <= number <= count:
        raise UsageError(
            f"{option} {number}: {number_of(count, of_what)}: choose {'1' if count == 1 else f'1 to {count}'}"
        )
    return number - 1

"""Files of word vectors, read and written.

text     a line has a word and its numbers, separated by spaces. A first line with two whole numbers, how many words and how many
         numbers each, is the header of word2vec and fastText (.vec); GloVe has none (.txt). A word may have spaces in it: the
         numbers are at the end of the line. Text files may be compressed with gz, xz or zst.
.bin     word2vec: the header as a line, then for each word the word, a space, its numbers as little-endian float32, and a
         newline, which some programs leave out.

Rows are read one at a time, so that memory grows with what is kept of them. Every error is a DataError with its place.
"""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from seqloom.errors import DataError, UsageError
from seqloom.files import explained, replace_file
from seqloom.text.pairs import lines_with_errors

MAX_WORD = 1 << 12  # bytes of a word
FASTTEXT = (793712314).to_bytes(4, "little")  # what fastText's own .bin begins with
MAX_WIDTH = 1 << 16  # numbers of a word
SUFFIXES = (".bin", ".vec", ".txt")


class WordVectors(NamedTuple):
    words: list[str]
    vectors: np.ndarray  # (words, D) float32


class Row(NamedTuple):
    """A word as it stands in a file; its numbers are parsed when they are asked for."""

    word: str
    place: str  # file:line, or file and the number of the word
    width: int
    numbers: list[str] | bytes

    def vector(self) -> np.ndarray:
        if isinstance(self.numbers, bytes):
            vector = np.frombuffer(self.numbers, "<f4").astype(np.float32)
        else:
            try:
                with np.errstate(over="ignore"):  # is said below, with its place
                    vector = np.array(self.numbers, np.float64).astype(np.float32)
            except ValueError:
                raise DataError(
                    f"{self.place}: the word {self.word[:50]!r} is not followed by {self.width} numbers"
                ) from None
        if not np.isfinite(vector).all():
            raise DataError(f"{self.place}: a number of the word {self.word[:50]!r} is not finite")
        return vector


def read_vectors(path: Path, wanted: Collection[str]) -> dict[str, np.ndarray]:
    """The vectors of the wanted words, float32; the first if a word occurs twice."""
    found: dict[str, np.ndarray] = {}
    for row in read_rows(path):
        if row.word in wanted and row.word not in found:
            found[row.word] = row.vector()
    return found


def read_all_vectors(path: Path) -> WordVectors:
    """Every word and its vector, in the order of the file; no word may occur twice."""
    places: dict[str, str] = {}
    parts: list[np.ndarray] = []
    for row in read_rows(path):
        if row.word in places:
            raise DataError(
                f"{row.place}: the word {row.word[:50]!r} has a vector already ({places[row.word]}): remove one of them"
            )
        if not row.word:
            raise DataError(
                f"{row.place}: {row.width} numbers without a word before them: remove them, or name the word"
            )
        places[row.word] = row.place
        parts.append(row.vector())
    return WordVectors(list(places), np.stack(parts))


def read_rows(path: Path) -> Iterator[Row]:
    return read_binary(path) if path.suffix == ".bin" else read_text(path)


def read_text(path: Path) -> Iterator[Row]:
    width = rows = 0
    promised: int | None = None
    for number, (line, wrong) in enumerate(lines_with_errors(path), 1):
        place = f"{path}:{number}"
        if wrong is not None:
            raise DataError(f"{place}: {wrong}")
        parts = line.rstrip().split(" ")
        if number == 1 and len(parts) == 2 and all(part.isdecimal() for part in parts):
            promised, width = int(parts[0]), int(parts[1])
            if not 1 <= width <= MAX_WIDTH:
                raise DataError(
                    f"{place}: the header says {width:,} numbers a word: between 1 and {MAX_WIDTH:,} are read"
                )
            continue
        if not width and len(parts) - 1 > MAX_WIDTH:
            raise DataError(f"{place}: {len(parts) - 1:,} numbers of one word, at most {MAX_WIDTH:,} are read")
        width = width or len(parts) - 1
        if not width:
            raise DataError(
                f"{place}: no number behind {parts[0][:50]!r}: give a word and its numbers, with spaces between"
            )
        if len(parts) <= width:
            raise DataError(
                f"{place}: {len(parts) - 1} numbers, but the first line has {width}: give a word and its numbers on each line"
            )
        if len(parts) > width + 1 and all(map(is_number, parts[1:-width])):  # and not a word with spaces in it
            before = "first line has" if promised is None else "header says"
            raise DataError(f"{place}: {len(parts) - 1} numbers, but the {before} {width}: every word has as many")
        word = " ".join(parts[:-width])
        if len(word.encode("utf-8", "surrogatepass")) > MAX_WORD:
            raise DataError(f"{place}: the word {word[:20]!r}… is longer than {MAX_WORD:,} bytes: the file is damaged")
        rows += 1
        yield Row(word, place, width, parts[-width:])
    if not rows:
        raise DataError(f"{path}: no vectors: the file is empty")
    check_promise(path, promised, rows)


def is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def check_promise(path: Path, promised: int | None, rows: int) -> None:
    if promised is not None and promised != rows:
        raise DataError(
            f"{path}: the header says {promised:,} words, and {rows:,} follow: the file is cut off, or its header wrong"
        )


def read_binary(path: Path) -> Iterator[Row]:
    with explained(path), open(path, "rb") as file:
        header = file.readline(64).split()
        if b"".join(header).startswith(FASTTEXT):
            raise DataError(f"{path}: a .bin of fastText, with the whole model: import the .vec that stands beside it")
        if len(header) != 2 or not all(part.isdigit() for part in header):
            raise DataError(f"{path}: no header with the number of words and of numbers each: this is no word2vec .bin")
        promised, width = map(int, header)
        if not 1 <= width <= MAX_WIDTH:
            raise DataError(f"{path}: the header says {width:,} numbers a word: between 1 and {MAX_WIDTH:,} are read")
        # believed only where the file is large enough
        if not promised or path.stat().st_size < promised * (4 * width + 1):
            raise DataError(
                f"{path}: the header says {promised:,} words of {width} numbers, which do not fit the file's "
                f"{path.stat().st_size:,} bytes: it is cut off, or its header wrong"
            )
        for number in range(1, promised + 1):
            place = f"{path}, word {number:,}"
            raw = bytearray()
            while (byte := file.read(1)) not in (b" ", b""):
                if byte != b"\n" or raw:  # the end of the row before
                    raw += byte
                if len(raw) > MAX_WORD:
                    raise DataError(
                        f"{place}: longer than {MAX_WORD:,} bytes: the file is damaged, or no word2vec .bin"
                    )
            numbers = file.read(4 * width)
            if len(numbers) < 4 * width:
                raise DataError(f"{place}: the file ends within it: it is cut off, or its header wrong")
            try:
                word = raw.decode("utf-8")
            except UnicodeDecodeError as error:
                raise DataError(f"{place}: not valid UTF-8 ({error.reason}): the file is damaged") from None
            yield Row(word, place, width, numbers)
        if file.read(2).strip():
            raise DataError(f"{path}: more follows after the {promised:,} words of the header: the header is wrong")


def write_vectors_file(path: Path, found: WordVectors) -> None:
    """Writes a file in the format of its suffix, whole or not at all: .bin, .vec (text with a header), .txt (text without)."""
    if path.suffix not in SUFFIXES:
        raise UsageError(f"--out {path}: vectors are written as {', '.join(SUFFIXES)}: choose one of these endings")
    for word in found.words:
        if not word or "\n" in word or "\r" in word or (" " in word and path.suffix == ".bin"):
            raise UsageError(
                f"--out {path}: the word {word[:50]!r} has a blank or line end, which {path.suffix} cannot hold: "
                f"{'export it as .vec' if word and path.suffix == '.bin' else 'remove it'}"
            )

    def write(temporary: Path) -> None:
        count, width = found.vectors.shape
        with open(temporary, "wb") as file:
            if path.suffix != ".txt":
                file.write(f"{count} {width}\n".encode())
            for word, vector in zip(found.words, found.vectors.astype("<f4"), strict=True):
                if path.suffix == ".bin":
                    file.write(word.encode() + b" " + vector.tobytes() + b"\n")
                else:  # as many digits as bring each number back
                    file.write(f"{word} {' '.join(map(str, vector))}\n".encode())

    with explained(path):
        replace_file(path, write)

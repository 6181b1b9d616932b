"""Text ⇄ ids, on the Rust library `tokenizers`: one tokenizer.json, eight kinds, nothing executed on load.

The kind of a file and its special ids follow from the file itself, so a file from another project works, too.
Text never produces a special token: the string "<|endoftext|>" in a document is encoded like any other string.
"""

import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
import numpy.typing as npt

from seqloom.errors import DataError, ModelError, UsageError, is_panic
from seqloom.files import explained, parse_json, write_bytes
from seqloom.text.music import VOCABULARIES, is_music
from seqloom.tokens.chunks import LONGEST, RUN, ChunkTable, Ids

if TYPE_CHECKING:
    import tokenizers

Kind = Literal["word", "char", "byte", "bpe", "wordpiece", "unigram", "events", "grid"]
KINDS: tuple[Kind, ...] = get_args(Kind)
TEXT_KINDS = tuple(kind for kind in KINDS if not is_music(kind))

END = "<|endoftext|>"
MASK = "<mask>"
UNKNOWN = "<unk>"
ENDS = (END, "</s>", "<eos>", "[SEP]")  # other projects' names of the end of a document, in order of preference
MASKS = (MASK, "[MASK]")
FIRSTS = ("[CLS]", "<cls>", "<s>")
SEPARATORS = ("[SEP]", "<sep>", "</s>")

SIZE_LIMIT = 256 << 20
EACH_CHARACTER = r"[\s\S]"


@contextmanager
def panics_as_errors() -> Iterator[None]:
    """Turn a panic of the Rust library, which a hostile file can cause, into a ValueError. What the library prints about it is
    discarded; anything else that is printed meanwhile is printed at the end."""
    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as caught:
        os.dup2(caught.fileno(), 2)
        panic: BaseException | None = None
        try:
            yield
        except BaseException as error:
            if not is_panic(error):
                raise
            panic = error
        finally:
            os.dup2(before, 2)
            os.close(before)
            caught.seek(0)
            printed = caught.read()
            if panic is None and printed:
                os.write(2, printed)
    if panic is not None:
        raise ValueError(str(panic)) from panic


class Tokenizer:
    """One tokenizer; immutable once built, safe to share between threads.

    byte_exact: decode(encode(x)) == x for every text. Otherwise decode gives back less: char replaces characters that are not in
    its vocabulary with `<unk>`; word and wordpiece put one space between words and the unknown token for unknown words; lowercase
    ones lose the case. bpe, unigram and byte work on bytes and lose nothing.
    """

    def __init__(self, data: dict[str, Any], where: str = "this tokenizer"):
        from tokenizers import Tokenizer as Rust

        self.where = where  # the file that it is from, for messages
        self._canonical = json.dumps(data, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        try:
            with panics_as_errors():
                self._rust: tokenizers.Tokenizer = Rust.from_str(self._canonical)
                self._rust.no_padding()
                self._rust.no_truncation()
                self._rust.encode_special_tokens = True
                with suppress(Exception):  # a vocabulary may lack it; what matters is that the library does not panic
                    self._rust.encode("a")
            self.kind: Kind = _kind(data)
            vocabulary: dict[str, int] = self._rust.get_vocab(with_added_tokens=True)
        except Exception as error:  # the library raises bare Exception for whatever it finds in the file
            raise ModelError(f"{where} is not a usable tokenizer.json: {error}") from error
        self.vocab_size: int = max(vocabulary.values(), default=-1) + 1
        self._set_special_tokens(data, vocabulary)
        model, normalizer = data["model"], data.get("normalizer") or {}
        unknown = model.get("unk_token")
        self.unk_id: int | None = vocabulary.get(unknown) if unknown else model.get("unk_id")
        self.lowercase = normalizer.get("type") == "Lowercase" or bool(normalizer.get("lowercase"))
        self.in_bytes: bool = _is_byte_level(data)  # its entries are written in `byte_alphabet`
        self.byte_exact: bool = self.unk_id is None and data.get("normalizer") is None and self.in_bytes
        # fast paths
        self._alone: dict[int, str] = {}
        cuts = _cuts_at_blanks(data)
        self._table = ChunkTable(self._encode_new, self.unk_id, _splits_punctuation(data)) if cuts else None
        by_character = self.kind == "char" and not self.lowercase and self.unk_id is not None
        self._code_points = _code_points(vocabulary) if by_character else None
        self._bytes = _byte_ids(vocabulary) if self.kind == "byte" and self.byte_exact else None

    def _set_special_tokens(self, data: dict[str, Any], vocabulary: dict[str, int]) -> None:
        self._specials = {
            entry["content"]: entry["id"] for entry in data.get("added_tokens") or () if entry.get("special")
        }
        wrong = [name for name, number in self._specials.items() if vocabulary.get(name) != number]
        if wrong:
            raise ModelError(
                f"{self.where}: the special token {wrong[0]!r} is listed with the id {self._specials[wrong[0]]}, but has the id "
                f"{vocabulary.get(wrong[0])} in the vocabulary: the file is damaged"
            )
        end = self._first_special(ENDS)
        if end is None:
            raise ModelError(
                f"{self.where} has no token for the end of a document (one of {', '.join(ENDS)}, marked special)"
            )
        self.end_id: int = end
        self.mask_id: int | None = self._first_special(MASKS)
        # around the passages of bidirectional models; a vocabulary without them uses the end of a document
        first, separator = self._first_special(FIRSTS), self._first_special(SEPARATORS)
        self.first_id: int = end if first is None else first
        self.separator_id: int = end if separator is None else separator

    @cached_property
    def _hidden(self) -> frozenset[int | None]:
        """What a text does not show."""
        return frozenset(self._specials.values()) - {self.unk_id}

    def _first_special(self, names: Sequence[str]) -> int | None:
        return next((self._specials[name] for name in names if name in self._specials), None)

    # ---- files

    @classmethod
    def load(cls, path: Path | str) -> "Tokenizer":
        path = Path(path)
        if not path.is_file():
            raise ModelError(
                f"{path}: no such tokenizer file: restore it, or give one that 'seqloom prepare' or a run has written"
            )
        with explained(path):
            if path.stat().st_size > SIZE_LIMIT:
                raise ModelError(f"{path} is larger than {SIZE_LIMIT >> 20} MB, too large for a tokenizer.json")
            raw = path.read_bytes()
        try:
            data = parse_json(raw)
        except (ValueError, RecursionError) as error:
            raise ModelError(f"{path} is not valid JSON: {error}") from error
        if not isinstance(data, dict) or not isinstance(data.get("model"), dict):
            raise ModelError(f"{path} is not a tokenizer.json: it has no 'model'")
        return cls(data, str(path))

    def save(self, path: Path | str) -> None:
        write_bytes(Path(path), self.to_json().encode())

    def to_json(self) -> str:
        return self._canonical

    @cached_property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON: weights bind to it."""
        return hashlib.sha256(self._canonical.encode()).hexdigest()

    @classmethod
    def train(
        cls,
        kind: str,
        texts: Iterable[str],
        *,
        vocab_size: int | None = None,
        min_count: int | None = None,
        lowercase: bool = False,
        words: str = "punctuation",
    ) -> "Tokenizer":
        """Learns a tokenizer from texts; see `seqloom.tokens.learn` for what each kind does with the options."""
        from seqloom.tokens.learn import learn

        return learn(kind, texts, vocab_size=vocab_size, min_count=min_count, lowercase=lowercase, words=words)

    # ---- text to ids

    @property
    def is_busy(self) -> bool:
        """Whether another thread encodes texts, on which `encode` would wait."""
        return self._table is not None and self._table.is_busy

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.encode_batch([text])[0].tolist()
        return ids

    def encode_batch(self, texts: Sequence[str]) -> list[Ids]:
        return self.encode_batch_with_unknown(texts)[0]

    def encode_batch_with_unknown(self, texts: Sequence[str]) -> tuple[list[Ids], list[list[str]]]:
        """Ids of each text, and the strings in it that became the unknown token."""
        try:
            return self._encode_batch(texts)
        except (TypeError, UnicodeEncodeError):
            for text in texts:
                if any("\ud800" <= c <= "\udfff" for c in text):
                    raise DataError(f"{text[:60]!a} contains a lone surrogate, which is not valid text") from None
            raise

    def _encode_batch(self, texts: Sequence[str]) -> tuple[list[Ids], list[list[str]]]:
        if self._bytes is not None:
            return [self._bytes[np.frombuffer(text.encode(), np.uint8)] for text in texts], [[] for _ in texts]
        if self._code_points is not None:
            return self._encode_characters(texts)
        if self._table is None:
            rows = self._encode_new(texts)
            ids = [np.array(row, np.uint32) for row in rows]
            unknown_parts = [[text] if self.unk_id in row else [] for text, row in zip(texts, rows, strict=True)]
        else:
            ids, unknown_parts = self._table.encode(texts)
        return ids, [[word for part in parts for word in self._unknown_in(part)] for parts in unknown_parts]

    def encode_with_offsets(self, text: str) -> tuple[list[int], list[tuple[int, int]]]:
        """Ids, and the span of characters of each; tokens inside one character share its span."""
        ids: list[int] = []
        offsets: list[tuple[int, int]] = []
        start = 0
        if self.kind in ("char", "byte"):
            parts = [text[i : i + LONGEST] for i in range(0, len(text), LONGEST)]
        else:
            parts = self.cut(text) if len(text) > RUN else [text]  # longer texts are split as in `encode`
        for part in parts:
            with self._every_word_known([part]):
                encoding = self._rust.encode(part, add_special_tokens=False)
            ids.extend(encoding.ids)
            offsets.extend((a + start, b + start) for a, b in encoding.offsets)
            start += len(part)
        return ids, offsets

    def words_with_offsets(self, texts: Sequence[str]) -> Iterator[list[tuple[int, int, str | None]]]:
        """For word and wordpiece: the span of each word in its text, and the word as in the vocabulary (None: unknown)."""
        with self._every_word_known(texts):
            encodings = self._rust.encode_batch(list(texts), add_special_tokens=False)
        for encoding in encodings:
            words: list[tuple[int, int, str | None]] = []
            last = None
            for number, token, owner, (start, stop) in zip(
                encoding.ids, encoding.tokens, encoding.word_ids, encoding.offsets, strict=True
            ):
                if owner == last:  # a further piece of the same word
                    words[-1] = (words[-1][0], stop, (words[-1][2] or "") + token.removeprefix("##"))
                else:
                    words.append((start, stop, None if number == self.unk_id else token))
                last = owner
            yield words

    @property
    def cuts_at_blanks(self) -> bool:
        """Whether the text can be encoded in pieces that end before a space."""
        return self._table is not None

    def cut(self, text: str) -> list[str]:
        """The text in pieces that can be encoded separately."""
        return [text] if self._table is None else self._table.cut(text)

    def _encode_new(self, texts: Sequence[str]) -> list[list[int]]:
        with self._every_word_known(texts):
            return [encoding.ids for encoding in self._rust.encode_batch_fast(list(texts), add_special_tokens=False)]

    @contextmanager
    def _every_word_known(self, texts: Sequence[str]) -> Iterator[None]:
        """Raise DataError if a vocabulary without a token for unknown words meets one."""
        try:
            yield
        except Exception as error:  # the library raises nothing more precise
            if self.unk_id is not None:
                raise
            parts = (self._rust.pre_tokenizer.pre_tokenize_str(self.lowered(text)) for text in texts)
            word = next((word for part in parts for word, _ in part if self._is_unknown(word)), str(error))
            if is_music(self.kind):
                first, last = self.token(0), self.token(len(VOCABULARIES[self.kind]) - 1)
                raise DataError(
                    f"{word[:50]!r} is not a word of music: the words of {self.kind} are {first} … {last}"
                ) from error
            raise DataError(
                f"the text has {word[:50]!r}, which is not in the vocabulary, and this tokenizer has no token for unknown "
                f"words: use a tokenizer that has '{UNKNOWN}', or learn one from this text"
            ) from error

    def _is_unknown(self, word: str) -> bool:
        try:
            return not self._rust.model.tokenize(word)
        except Exception:
            return True

    def _encode_characters(self, texts: Sequence[str]) -> tuple[list[Ids], list[list[str]]]:
        assert self._code_points is not None and self.unk_id is not None
        ids, unknown = [], []
        for text in texts:
            codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
            row = np.full(codes.size, self.unk_id, np.uint32)
            inside = codes < self._code_points.size
            row[inside] = self._code_points[codes[inside]]
            row[row == _NONE] = self.unk_id
            ids.append(row)
            unknown.append([chr(code) for code in codes[row == self.unk_id].tolist()])
        return ids, unknown

    def _unknown_in(self, text: str) -> list[str]:
        ids, offsets = self.encode_with_offsets(text)
        return [text[a:b] for token, (a, b) in zip(ids, offsets, strict=True) if token == self.unk_id]

    # ---- ids to text

    def decode(self, ids: Iterable[int], specials: bool = False) -> str:
        """The text of the ids; end, mask and other special tokens are left out unless `specials`."""
        hidden = NO_TOKENS if specials else self._hidden
        text: str = self._rust.decode([int(i) for i in ids if int(i) not in hidden], skip_special_tokens=False)
        return text

    def decode_one(self, token: int) -> str:
        """The text of a token alone, as `decode` gives it. It is remembered: texts are written token by token."""
        found = self._alone.get(token)
        if found is None:
            found = self._alone[token] = self.decode([token])
        return found

    def lowered(self, text: str) -> str:
        """The text after the normaliser (lower case, BERT's cleaning), before it is split into tokens."""
        return self._rust.normalizer.normalize_str(text) if self._rust.normalizer is not None else text

    def entry(self, number: int) -> str | None:
        """The token with this id; None if the vocabulary has a gap there."""
        token: str | None = self._rust.id_to_token(int(number))
        return token

    def token(self, number: int) -> str:
        token = self.entry(number)
        if token is None:
            raise UsageError(f"token id {number} is outside this vocabulary of {self.vocab_size}")
        return str(token)

    def id(self, token: str) -> int | None:
        number: int | None = self._rust.token_to_id(token)
        return number

    @property
    def special_ids(self) -> dict[str, int]:
        return dict(self._specials)

    def with_sentinels(self, count: int) -> "Tokenizer":
        """This one, and behind its vocabulary the special tokens <extra_id_0>, <extra_id_1> and so on."""
        data = json.loads(self._canonical)
        names = [f"<extra_id_{i}>" for i in range(count)]
        taken = [name for name in names if self.id(name) is not None]
        if taken:
            raise UsageError(
                f"--sentinels {count}: {self.where} has the token {taken[0]} already: leave --sentinels out"
            )
        data["added_tokens"] += [special_token(name, self.vocab_size + i) for i, name in enumerate(names)]
        return Tokenizer(data, self.where)

    def __reduce__(self) -> tuple[Callable[[str], "Tokenizer"], tuple[str]]:
        return _from_json, (self._canonical,)


_NONE = np.uint32(0xFFFFFFFF)
NO_TOKENS: frozenset[int | None] = frozenset()


def special_token(content: str, number: int) -> dict[str, Any]:
    """An entry of "added_tokens"."""
    fixed = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": content, **fixed}


def _from_json(text: str) -> Tokenizer:
    return Tokenizer(json.loads(text))


def _kind(data: dict[str, Any]) -> Kind:
    model = data["model"]
    match model.get("type"):
        case "WordLevel":
            before = data.get("pre_tokenizer") or {}
            for music, words in VOCABULARIES.items():
                if model.get("vocab") == {word: number for number, word in enumerate(words)}:
                    return "events" if music == "events" else "grid"
            each = before.get("type") == "Split" and before.get("pattern") == {"Regex": EACH_CHARACTER}
            return "char" if each else "word"
        case "WordPiece":
            return "wordpiece"
        case "Unigram":
            return "unigram"
        case "BPE":
            return "bpe" if model.get("merges") else "byte"
    raise ValueError(f"unknown model type {model.get('type')!r}")


def _is_byte_level(data: dict[str, Any]) -> bool:
    before, after = data.get("pre_tokenizer") or {}, data.get("decoder") or {}
    return before.get("type") == "ByteLevel" and not before.get("add_prefix_space") and after.get("type") == "ByteLevel"


def _cuts_at_blanks(data: dict[str, Any]) -> bool:
    """Whether no token spans a position where a space follows another character, and no rule looks across it."""
    before, normaliser = data.get("pre_tokenizer") or {}, data.get("normalizer") or {}
    if normaliser.get("type") not in (None, "Lowercase", "BertNormalizer"):
        return False
    if any(not entry.get("special") for entry in data.get("added_tokens") or ()):
        return False
    if before.get("type") == "ByteLevel":
        return bool(before.get("use_regex", True)) and not before.get("add_prefix_space")
    return before.get("type") in ("Whitespace", "WhitespaceSplit", "BertPreTokenizer")


def _splits_punctuation(data: dict[str, Any]) -> bool:
    return (data.get("pre_tokenizer") or {}).get("type") != "WhitespaceSplit"


def _code_points(vocabulary: dict[str, int]) -> npt.NDArray[np.uint32]:
    single = {ord(token): number for token, number in vocabulary.items() if len(token) == 1}
    table = np.full(max(single, default=0) + 1, _NONE, np.uint32)
    for code, number in single.items():
        table[code] = number
    return table


def byte_alphabet() -> list[str]:
    """The printable character for each byte in a byte-level vocabulary (GPT-2's table), by byte value."""
    shown = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [value for value in range(256) if value not in shown]
    names = {value: chr(value) for value in shown} | {value: chr(256 + i) for i, value in enumerate(hidden)}
    return [names[value] for value in range(256)]


def _byte_ids(vocabulary: dict[str, int]) -> npt.NDArray[np.uint32] | None:
    numbers = [vocabulary.get(name) for name in byte_alphabet()]
    if any(number is None for number in numbers):
        return None
    return np.array(numbers, np.uint32)

"""Learning a tokenizer from text.

| kind      | vocabulary                                                        | unknown | decode              |
|-----------|-------------------------------------------------------------------|---------|---------------------|
| word      | words seen ≥ min_count times (2), the most frequent vocab_size    | `<unk>` | words, one blank    |
| char      | characters seen ≥ min_count times (1)                             | `<unk>` | exact but unknowns  |
| byte      | the 256 bytes                                                     | none    | exact               |
| bpe       | byte-level byte-pair encoding (Sennrich 2016, Radford 2019)       | none    | exact               |
| unigram   | unigram language model (Kudo 2018) over the same byte alphabet    | none    | exact               |
| events    | 388 musical events, always the same (`text.music`)                | none    | events, one blank   |
| grid      | 128 pitches and a rest, always the same                           | none    | pitches, one blank  |
| wordpiece | BERT's word pieces, `[PAD] [UNK] [CLS] [SEP] [MASK]` at 0–4       | `[UNK]` | words, one blank    |

Every kind ends with `<|endoftext|>`, the border of documents, and, but for wordpiece, with `<mask>`, so that masked and
left-to-right models can share one prepared corpus. vocab_size counts them all. Learning twice from the same text gives the same
tokenizer, except for unigram, whose trainer sums in random order: keep its file.

Words of more than WORD characters are split into pieces of that length, and at most LONG_WORDS characters of them are used; no
entry of a vocabulary of words is longer.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from seqloom.config import unknown_name
from seqloom.errors import DataError, UsageError
from seqloom.progress import say
from seqloom.text.music import VOCABULARIES, is_music
from seqloom.tokens.chunks import WORD, chunks, has_long_word, pieces, with_words_cut
from seqloom.tokens.tokenizer import EACH_CHARACTER, END, KINDS, MASK, UNKNOWN, Tokenizer, byte_alphabet, special_token

WORDPIECE_SPECIALS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LEARNT = ("bpe", "wordpiece", "unigram")  # kinds whose vocabulary size is chosen
DEFAULT_SIZE = 8192
LARGEST = 1 << 22
ALPHABET = 1000  # different characters in word pieces; rarer ones make a word unknown
_NO_TEXT = "there is no text to learn a tokenizer from"
_PIECE = 1 << 14  # characters that the Rust trainer gets at once: small enough to share between threads
_COUNTED_AT_ONCE = 1 << 20
LONG_WORDS = 1 << 17  # characters of pieces with words longer than WORD that are learnt from


@dataclass(frozen=True)
class TokenizerOptions:
    """Which tokenizer a task's text is read with: a given file, or one that is learnt."""

    tokenizer: str = "bpe"
    vocab_size: int | None = None
    lowercase: bool = False
    from_tokenizer: str | Path | None = None
    source_tokenizer: str | None = None  # these three: a vocabulary of their own for the sources of pairs
    source_vocab_size: int | None = None
    from_source_tokenizer: str | Path | None = None

    def of_source(self) -> "TokenizerOptions | None":
        """Those of the sources; None where one tokenizer serves both sides."""
        if all(each is None for each in (self.source_tokenizer, self.source_vocab_size, self.from_source_tokenizer)):
            return None
        if self.source_tokenizer is not None and self.from_source_tokenizer is not None:
            raise UsageError("--from-source-tokenizer is of its own kind: leave out --source-tokenizer")
        lowercase = self.lowercase and self.from_source_tokenizer is None
        kind = self.source_tokenizer or self.tokenizer
        return TokenizerOptions(kind, self.source_vocab_size, lowercase, self.from_source_tokenizer)


def learn(
    kind: str, texts: Iterable[str], *, vocab_size: int | None, min_count: int | None, lowercase: bool, words: str
) -> Tokenizer:
    check_options(kind, vocab_size, min_count, words)
    if is_music(kind):
        if lowercase:
            raise UsageError(f"--lowercase is for text: leave it out with --tokenizer {kind}")
        return _music(kind)
    if kind == "byte":
        vocabulary = {name: value for value, name in enumerate(byte_alphabet())}
        return _byte_level({"type": "BPE", "vocab": vocabulary, "merges": []}, lowercase, split=False)
    if kind == "char":
        return _learn_char(texts, vocab_size, min_count or 1, lowercase)
    if kind == "word":
        return _learn_word(texts, vocab_size, 2 if min_count is None else min_count, lowercase, words)
    return _learn_pieces(kind, texts, vocab_size, min_count or 0, lowercase)


def check_options(kind: str, vocab_size: int | None, min_count: int | None, words: str = "punctuation") -> None:
    """Raise UsageError for options that are wrong whatever the text is. Messages say vocab_size, because it may be an option or a
    key of a plan."""
    if kind not in KINDS:
        raise UsageError(unknown_name("tokenizer", kind, kind, list(KINDS)))
    if words not in ("punctuation", "space"):
        raise UsageError(f"words={words!r}: choose 'punctuation' or 'space'")
    if min_count is not None and not 1 <= min_count <= 10**9:
        raise UsageError(f"--min-count {min_count}: choose 1 or more")
    if is_music(kind) and (vocab_size is not None or min_count is not None):
        raise UsageError(f"the vocabulary of {kind} is always the same: leave out vocab_size and --min-count")
    if vocab_size is None:
        return
    least = {"bpe": 258, "unigram": 258, "wordpiece": 7, "byte": 258, "word": 4, "char": 4}[kind]
    if vocab_size < least:
        what = "256 bytes and 2 special tokens" if least == 258 else "the special tokens and one more"
        raise UsageError(f"vocab_size {vocab_size}: {kind} needs at least {least} ({what})")
    if vocab_size > LARGEST:
        raise UsageError(f"vocab_size {vocab_size}: the largest is {LARGEST}")
    if kind == "byte" and vocab_size != 258:
        raise UsageError(f"vocab_size {vocab_size}: the byte tokenizer always has 258 entries; leave it out")


def _assemble(
    model: dict[str, Any],
    before: dict[str, Any],
    decoder: dict[str, Any] | None,
    normaliser: dict[str, Any] | None,
    specials: Iterable[tuple[str, int]],
) -> Tokenizer:
    return Tokenizer(
        {
            "version": "1.0",
            "truncation": None,
            "padding": None,
            "added_tokens": [special_token(name, number) for name, number in specials],
            "normalizer": normaliser,
            "pre_tokenizer": before,
            "post_processor": None,
            "decoder": decoder,
            "model": model,
        }
    )


def _at_end(size: int, *names: str) -> list[tuple[str, int]]:
    return [(name, size + i) for i, name in enumerate(names)]


def _byte_level(model: dict[str, Any], lowercase: bool, split: bool = True) -> Tokenizer:
    part = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": split}
    size = len(model["vocab"])
    normaliser = {"type": "Lowercase"} if lowercase else None
    return _assemble(model, part, part, normaliser, _at_end(size, END, MASK))


def _learn_char(texts: Iterable[str], vocab_size: int | None, min_count: int, lowercase: bool) -> Tokenizer:
    counts: Counter[str] = Counter()
    lower = _lower() if lowercase else None
    for text in texts:
        counts.update(lower(text) if lower else text)
    if not counts:
        raise DataError(_NO_TEXT)
    room = None if vocab_size is None else vocab_size - 3
    vocabulary = {UNKNOWN: 0} | {c: i + 1 for i, c in enumerate(_most_frequent(counts, min_count, room))}
    return _assemble(
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
        {"type": "Split", "pattern": {"Regex": EACH_CHARACTER}, "behavior": "Isolated", "invert": False},
        {"type": "Fuse"},
        {"type": "Lowercase"} if lowercase else None,
        _at_end(len(vocabulary), END, MASK),
    )


def _learn_word(texts: Iterable[str], vocab_size: int | None, min_count: int, lowercase: bool, words: str) -> Tokenizer:
    from tokenizers import pre_tokenizers

    before = pre_tokenizers.Whitespace() if words == "punctuation" else pre_tokenizers.WhitespaceSplit()
    lower = _lower() if lowercase else None
    counts: Counter[str] = Counter()
    for chunk, count in _chunk_counts(texts):
        for word, _ in before.pre_tokenize_str(lower(chunk) if lower else chunk):
            if len(word) <= WORD:
                counts[word] += count
    if not counts:
        raise DataError(_NO_TEXT)
    for name in (UNKNOWN, END, MASK):
        counts.pop(name, None)  # a word that looks like a special token is an unknown word
    room = None if vocab_size is None else vocab_size - 3
    vocabulary = {UNKNOWN: 0} | {word: i + 1 for i, word in enumerate(_most_frequent(counts, min_count, room))}
    return _assemble(
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
        {"type": "Whitespace" if words == "punctuation" else "WhitespaceSplit"},
        None,
        {"type": "Lowercase"} if lowercase else None,
        _at_end(len(vocabulary), END, MASK),
    )


def _learn_pieces(
    kind: str, texts: Iterable[str], vocab_size: int | None, min_count: int, lowercase: bool
) -> Tokenizer:
    size = vocab_size or DEFAULT_SIZE
    own = 1 if kind == "wordpiece" else 2  # special tokens that are added after the learnt ones
    rust, trainer = _piece_trainer(kind, size - own, min_count, lowercase)
    if kind == "wordpiece":
        texts = list(texts)
        first, inside = _alphabet(rust, texts)
        if not first:
            raise DataError(_NO_TEXT)
        trainer.initial_alphabet, trainer.limit_alphabet = first, len(first)
        # the trainer numbers "##a" in the order of a random hash; named here they come in ours, and learning is repeatable
        trainer.special_tokens = [*WORDPIECE_SPECIALS, *(f"##{c}" for c in inside)]
    seen, room = 0, LONG_WORDS

    def training_pieces() -> Iterator[str]:
        nonlocal seen, room
        for text in texts:
            seen += len(text)
            for piece in pieces(text, _PIECE):
                if not has_long_word(piece):
                    yield piece
                elif room > 0:
                    room -= len(piece)
                    yield from with_words_cut(piece[:LONG_WORDS], WORD)

    rust.train_from_iterator(training_pieces(), trainer)
    if not seen:
        raise DataError(_NO_TEXT)
    data = json.loads(rust.to_str())
    model = data["model"]
    count = len(model["vocab"]) + own
    _check_size(kind, count, size, vocab_size is not None)
    if kind != "wordpiece":
        return _byte_level(model, lowercase)
    specials = [(name, i) for i, name in enumerate(WORDPIECE_SPECIALS)] + _at_end(count - own, END)
    decoder = {"type": "WordPiece", "prefix": "##", "cleanup": False}
    return _assemble(model, data["pre_tokenizer"], decoder, data["normalizer"], specials)


def _piece_trainer(kind: str, size: int, min_count: int, lowercase: bool) -> tuple[Any, Any]:
    """An empty tokenizer of the Rust library, and its trainer."""
    from tokenizers import Tokenizer as Rust
    from tokenizers import models, normalizers, pre_tokenizers, trainers

    quiet: Any = {"show_progress": False}
    if kind == "wordpiece":
        rust = Rust(models.WordPiece(unk_token="[UNK]"))
        rust.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
        rust.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        specials = list(WORDPIECE_SPECIALS)
        return rust, trainers.WordPieceTrainer(
            vocab_size=size, min_frequency=min_count, special_tokens=specials, **quiet
        )
    rust = Rust(models.BPE() if kind == "bpe" else models.Unigram())
    if lowercase:
        rust.normalizer = normalizers.Lowercase()
    rust.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    options: Any = {"vocab_size": size, "initial_alphabet": sorted(byte_alphabet()), "special_tokens": [], **quiet}
    if kind == "bpe":
        return rust, trainers.BpeTrainer(min_frequency=min_count, **options)
    return rust, trainers.UnigramTrainer(**options)


def _check_size(kind: str, count: int, size: int, chosen: bool) -> None:
    """count: entries that were learnt; size: entries that were wanted, by the user if chosen."""
    if count > size:
        raise UsageError(f"vocab_size {size}: this text needs at least {count}: give {count} or more")
    if count < size and chosen:
        raise UsageError(f"vocab_size {size}: the data supports only {count}: give {count} or less, or leave it out")
    if count < size:
        say(f"the {kind} vocabulary has {count:,} entries, not {size:,}: the text is too small for more")


def _alphabet(rust: Any, texts: Iterable[str]) -> tuple[list[str], list[str]]:
    """The characters that word pieces are built from, the most frequent ones, and those of them seen inside words."""
    counts: Counter[str] = Counter()
    inside: set[str] = set()
    for chunk, count in _chunk_counts(texts):
        for word, _ in rust.pre_tokenizer.pre_tokenize_str(rust.normalizer.normalize_str(chunk)):
            inside.update(word[1:])
            for character, times in Counter(word).items():
                counts[character] += count * times
    kept = sorted(_most_frequent(counts, 1, ALPHABET))
    return kept, [character for character in kept if character in inside]


def _chunk_counts(texts: Iterable[str]) -> Iterator[tuple[str, int]]:
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(chunks(text))
        if len(counts) > _COUNTED_AT_ONCE:  # memory stays bounded on text that never repeats itself
            yield from counts.items()
            counts.clear()
    yield from counts.items()


def _music(kind: str) -> Tokenizer:
    vocabulary = {word: number for number, word in enumerate(VOCABULARIES[kind])}
    return _assemble(
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
        {"type": "WhitespaceSplit"},
        None,
        None,
        _at_end(len(vocabulary), END, MASK),
    )


def tokenizer_of_words(words: Iterable[str]) -> Tokenizer:
    """A vocabulary of words in their order, special tokens behind them. A word that is called as one of these is that one."""
    vocabulary = {word: number for number, word in enumerate(words)}
    for name in (UNKNOWN, END, MASK):
        vocabulary.setdefault(name, len(vocabulary))
    return _assemble(
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
        {"type": "Whitespace"},
        None,
        None,
        [(name, vocabulary[name]) for name in (END, MASK)],
    )


def _most_frequent(counts: Counter[str], min_count: int, room: int | None) -> list[str]:
    kept = [(word, count) for word, count in counts.items() if count >= min_count]
    kept.sort(key=lambda item: (-item[1], item[0]))
    return [word for word, _ in (kept if room is None else kept[: max(room, 0)])]


def _lower() -> Any:
    from tokenizers import normalizers

    return normalizers.Lowercase().normalize_str  # the same function that the tokenizer will apply


def storage_type(vocab_size: int) -> np.dtype[Any]:
    """The smallest type that holds every id."""
    return np.dtype("<u2") if vocab_size <= 1 << 16 else np.dtype("<u4")


def spelt_words() -> Tokenizer:
    """A tokenizer that knows no word, for models that read all of them by their letters: between blanks, as unknown words."""
    vocabulary = {UNKNOWN: 0}
    return _assemble(
        {"type": "WordLevel", "vocab": vocabulary, "unk_token": UNKNOWN},
        {"type": "WhitespaceSplit"},
        None,
        None,
        _at_end(len(vocabulary), "<s>", "</s>"),
    )

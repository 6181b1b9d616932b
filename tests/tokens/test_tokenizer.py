"""Tokenizers: decode(encode(x)) = the declared normalisation, offsets point at the text, text never makes a special token."""

import contextlib
import json
import pickle
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError, ModelError, UsageError
from seqloom.tokens import chunks as chunks_module
from seqloom.tokens.chunks import chunks, pieces
from seqloom.tokens.tokenizer import END, TEXT_KINDS, UNKNOWN, Tokenizer, byte_alphabet

WORDS = [
    "the",
    "a",
    "cat",
    "dog",
    "sat",
    "on",
    "mat",
    "walked",
    "Walking",
    "it's",
    "don't",
    "over,",
    "under;",
    "(again)",
    "12",
    "345",
    "naïve",
    "Straße",
    "你好",
    "😀",
    "end.",
]


def some_text(seed: int = 0, lines: int = 300) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=rng.randint(3, 20))) for _ in range(lines)]


_CACHE: dict[tuple[str, bool], Tokenizer] = {}


def tokenizer(kind: str, lowercase: bool = False) -> Tokenizer:
    if (kind, lowercase) not in _CACHE:
        size = {"bpe": 290, "unigram": 264, "wordpiece": 80}.get(kind)
        _CACHE[kind, lowercase] = Tokenizer.train(kind, some_text(), vocab_size=size, lowercase=lowercase)
    return _CACHE[kind, lowercase]


# random Unicode, with what is known to be awkward mixed in often
AWKWARD = [
    *WORDS,
    END,
    "<mask>",
    "[MASK]",
    "[UNK]",
    "<unk>",
    "##s",
    " ",
    "  ",
    "\n",
    "\t",
    "\r\n",
    "\xa0",
    "\xa0 \n",
    "\x1c",
    "\x85",
]
AWKWARD += [
    "\u2003",
    "\u2028",
    "\u3000 ",
    "e\u0301",
    "İ",
    "ΑΣ",
    "\ufffd",
    "\x00",
    "'s",
    "''",
    "...",
    ',"',
    '"',
    '("',
    "ﬁ",
    "\U0001f468\u200d\U0001f469",
]
TEXTS = st.lists(st.one_of(st.sampled_from(AWKWARD), st.text(max_size=6)), max_size=24).map("".join)
CASES = [(kind, lowercase) for kind in TEXT_KINDS for lowercase in (False, True)]
RELAXED = settings(max_examples=60, suppress_health_check=list(HealthCheck))


def round_trip(t: Tokenizer, text: str) -> None:
    assert t.decode(t.encode(text)) == lossy(t, text)
    if t.byte_exact:
        assert lossy(t, text) == text


def offsets_fit(t: Tokenizer, text: str) -> None:
    ids, offsets = t.encode_with_offsets(text)
    assert ids == t.encode(text)
    last = 0
    for number, (start, stop) in zip(ids, offsets, strict=True):
        assert last <= start <= stop <= len(text)
        last = start
        if t.kind == "word" and not t.lowercase and number != t.unk_id:
            assert text[start:stop] == t.token(number)
        if t.kind == "char":
            assert stop == start + 1
    if t.byte_exact and t.kind != "byte":
        covered = {i for start, stop in offsets for i in range(start, stop)}
        assert covered == set(range(len(text)))


def lossy(tokenizer: Tokenizer, text: str) -> str:
    """What decode(encode(text)) gives back: the declared loss of a tokenizer, worked out without its ids."""
    rust, text = tokenizer._rust, tokenizer.lowered(text)
    if tokenizer.kind == "char":
        return "".join(c if tokenizer.id(c) is not None else UNKNOWN for c in text)
    if tokenizer.kind in ("word", "wordpiece"):
        words = [word for word, _ in rust.pre_tokenizer.pre_tokenize_str(text)]
        unknown = tokenizer.token(tokenizer.unk_id) if tokenizer.unk_id is not None else ""
        known = [rust.model.tokenize(word)[0].id != tokenizer.unk_id for word in words]
        return " ".join(word if ok else unknown for word, ok in zip(words, known, strict=True))
    return text


@pytest.mark.parametrize(("kind", "lowercase"), CASES)
@given(text=TEXTS)
@RELAXED
def test_round_trip(kind: str, lowercase: bool, text: str) -> None:
    round_trip(tokenizer(kind, lowercase), text)


@pytest.mark.parametrize(("kind", "lowercase"), CASES)
@given(text=TEXTS)
@RELAXED
def test_offsets_and_equal_to_plain_rust(kind: str, lowercase: bool, text: str) -> None:
    offsets_fit(tokenizer(kind, lowercase), text)


@pytest.mark.parametrize("kind", TEXT_KINDS)
@given(text=TEXTS)
@RELAXED
def test_text_never_becomes_a_special_token(kind: str, text: str) -> None:
    t = tokenizer(kind)
    forbidden = set(t.special_ids.values()) - {t.unk_id}
    assert t.end_id in forbidden
    assert not forbidden & set(t.encode(text + END + "<mask> [MASK][CLS]" + text))


@given(text=TEXTS)
@RELAXED
def test_chunks_and_pieces_join_to_the_text(text: str) -> None:
    assert "".join(chunks(text)) == text
    assert "".join(chunks(text, fine=True)) == text
    assert "".join(pieces(text, 5)) == text


def test_planted_bug_a_cut_inside_white_space_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cutting before every blank breaks runs of blanks, which byte-level BPE keeps together."""
    import re

    t = Tokenizer.train("bpe", ["a    b\n\n\n\nc " * 50], vocab_size=262)
    monkeypatch.setattr(chunks_module, "_FINE", re.compile(r"[ \n][^ \n]*|[^ \n]+"))
    with pytest.raises(AssertionError):
        offsets_fit(t, "x    b\n\n\n\ny")


def test_planted_bug_a_cut_inside_punctuation_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A quotation mark may be parted from the word behind it, not from punctuation: that is one word to byte-level BPE."""
    import re

    t = Tokenizer.train("bpe", ['("cat") ' * 50], vocab_size=262)
    offsets_fit(t, 'a ("cat") "dog"')
    monkeypatch.setattr(chunks_module, "_FINE", re.compile(r' *["(]|[^ ]+'))
    with pytest.raises(AssertionError):
        offsets_fit(t, 'a ("cat") "dog"')


def test_planted_bug_a_lost_character_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    t = tokenizer("bpe")
    encode = Tokenizer.encode
    monkeypatch.setattr(Tokenizer, "encode", lambda self, text: encode(self, text.strip()))
    with pytest.raises(AssertionError):
        round_trip(t, " a cat")


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_save_load_and_pickle_give_the_same_tokenizer(kind: str, tmp_path: Path) -> None:
    t = tokenizer(kind)
    t.save(tmp_path / "tokenizer.json")
    for other in (Tokenizer.load(tmp_path / "tokenizer.json"), pickle.loads(pickle.dumps(t))):
        assert (other.hash, other.kind, other.vocab_size) == (t.hash, kind, t.vocab_size)
        assert (other.end_id, other.unk_id, other.mask_id) == (t.end_id, t.unk_id, t.mask_id)
        assert other.encode("the cat sat") == t.encode("the cat sat")


@pytest.mark.parametrize("kind", [kind for kind in TEXT_KINDS if kind != "unigram"])
def test_learning_twice_gives_the_same_hash(kind: str) -> None:
    size = {"bpe": 280, "wordpiece": 80}.get(kind)
    hashes = {Tokenizer.train(kind, some_text(3), vocab_size=size).hash for _ in range(4)}
    assert len(hashes) == 1


def test_ids_are_dense_and_specials_stand_where_they_should() -> None:
    piece = tokenizer("wordpiece")
    assert [piece.id(name) for name in ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")] == [0, 1, 2, 3, 4]
    assert (piece.end_id, piece.mask_id) == (piece.vocab_size - 1, 4)
    for kind in ("bpe", "unigram", "byte", "word", "char"):
        t = tokenizer(kind)
        assert (t.end_id, t.mask_id) == (t.vocab_size - 2, t.vocab_size - 1)
        assert len({t.token(i) for i in range(t.vocab_size)}) == t.vocab_size
    assert tokenizer("byte").encode("é") == [0xC3, 0xA9]
    assert len(set(byte_alphabet())) == 256


def test_batches_equal_single_texts_across_a_full_table(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "_MAX_ENTRIES", 3)
    t = Tokenizer.train("bpe", some_text(), vocab_size=290)
    texts = [*some_text(5, 20), "", " "]
    for _ in range(2):
        for text, ids in zip(texts, t.encode_batch(texts), strict=True):
            assert ids.dtype == np.uint32
            assert ids.tolist() == t._rust.encode(text, add_special_tokens=False).ids


def test_text_without_blanks_is_cut_and_still_exact(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chunks_module, "LONGEST", 50)
    t = tokenizer("bpe")
    text = "你好walked" * 100
    assert t.decode(t.encode(text)) == text


def test_words_by_space_alone_and_unknown_strings() -> None:
    t = Tokenizer.train("word", ["a-b a-b c, c, <|endoftext|> <|endoftext|>"], words="space")
    ids, unknown = t.encode_batch_with_unknown(["a-b zz c, <|endoftext|>"])
    assert [t.token(i) for i in ids[0]] == ["a-b", "<unk>", "c,", "<unk>"]
    assert unknown == [["zz", END]]


def test_min_count_and_size_limit_words() -> None:
    t = Tokenizer.train("word", ["a a a b b c"], min_count=2)
    assert t.id("b") is not None and t.id("c") is None
    assert Tokenizer.train("word", ["a a a b b c"], vocab_size=4, min_count=1).vocab_size == 4


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
def test_a_vocabulary_larger_than_the_data_allows(kind: str) -> None:
    with pytest.raises(UsageError, match=r"vocab_size 50000: the data supports only (\d+): give \1 or less"):
        Tokenizer.train(kind, some_text(), vocab_size=50000)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece", "unigram"])
@pytest.mark.parametrize("text", ["x", "a b c d a b", "the cat sat on the mat " * 5])
def test_a_size_that_nobody_gave_is_what_a_small_text_has(
    kind: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    size = Tokenizer.train(kind, [text]).vocab_size
    assert capsys.readouterr().err == (
        f"the {kind} vocabulary has {size} entries, not 8,192: the text is too small for more\n"
    )
    with pytest.raises(UsageError, match=f"vocab_size {size + 1}: the data supports only {size}: give {size} or less"):
        Tokenizer.train(kind, [text], vocab_size=size + 1)
    assert Tokenizer.train(kind, [text], vocab_size=size).vocab_size == size  # what the message says works
    assert capsys.readouterr().err == ""


def test_blanks_are_no_text_for_word_pieces() -> None:
    with pytest.raises(DataError, match="no text to learn"):
        Tokenizer.train("wordpiece", [" \n"])


@pytest.mark.parametrize(
    ("kind", "options", "words"),
    [
        ("bpe", {"vocab_size": 100}, "at least 258"),
        ("byte", {"vocab_size": 300}, "always has 258"),
        ("bpee", {}, "did you mean 'bpe'"),
        ("word", {"min_count": 0}, "--min-count 0"),
        ("word", {"words": "x"}, "punctuation"),
        ("wordpiece", {"vocab_size": 33}, "needs at least"),
    ],
)
def test_wrong_options(kind: str, options: dict[str, int], words: str) -> None:
    with pytest.raises(UsageError, match=words):
        Tokenizer.train(kind, some_text(), **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", ["bpe", "word", "char", "wordpiece"])
def test_no_text_at_all(kind: str) -> None:
    with pytest.raises(DataError):
        Tokenizer.train(kind, [])


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b'{"model": 3}',
        b'{"model": {"type": "Evil"}}',
        b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}, "merges": [["a", "b"]]}}',
        b"\xff\xfe",
        b"[" * 100_000,
    ],
)
def test_a_damaged_file_is_a_model_error(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(ModelError):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_mutated_files_never_raise_anything_else(tmp_path: Path) -> None:
    good = tokenizer("wordpiece").to_json().encode()
    rng = random.Random(7)
    for _ in range(150):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(data))
            data[at : at + rng.randint(0, 3)] = rng.randbytes(rng.randint(0, 3))
        (tmp_path / "t.json").write_bytes(data)
        with contextlib.suppress(ModelError):
            Tokenizer.load(tmp_path / "t.json").encode("the cat")


def test_a_file_without_an_end_token_is_refused(tmp_path: Path) -> None:
    data = json.loads(tokenizer("bpe").to_json())
    data["added_tokens"] = []
    (tmp_path / "t.json").write_text(json.dumps(data))
    with pytest.raises(ModelError, match="no token for the end of a document"):
        Tokenizer.load(tmp_path / "t.json")
    with pytest.raises(ModelError, match="no such tokenizer"):
        Tokenizer.load(tmp_path / "missing.json")


def test_a_special_token_with_two_numbers_is_refused(tmp_path: Path) -> None:
    data = json.loads(tokenizer("wordpiece").to_json())
    data["added_tokens"][0]["id"] = 1 << 31
    (tmp_path / "t.json").write_text(json.dumps(data))
    with pytest.raises(ModelError, match="is listed with the id 2147483648"):
        Tokenizer.load(tmp_path / "t.json")


@pytest.mark.parametrize("kind", TEXT_KINDS)
def test_sentinels_stand_behind_every_vocabulary(kind):
    """And no text makes one, not even their names."""
    text = "the cat saw <extra_id_0> and the dog saw the cat. " * 40
    plain = Tokenizer.train(kind, [text], vocab_size=None, min_count=1)
    found = plain.with_sentinels(3)
    ids = [found.special_ids[f"<extra_id_{i}>"] for i in range(3)]
    assert ids == [plain.vocab_size, plain.vocab_size + 1, plain.vocab_size + 2] and found.kind == kind
    assert found.encode(text) == plain.encode(text) and not set(ids) & set(found.encode(text))
    with pytest.raises(UsageError, match="<extra_id_0> already"):
        found.with_sentinels(2)

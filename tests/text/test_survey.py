"""The survey: splits, duplicates, leaks; and the leaks known to be in the data sets."""

import random
from pathlib import Path

import numpy as np
import pytest

from seqloom.batches.prepare import prepare
from seqloom.errors import DataError, UsageError
from seqloom.text import leak as leak_module
from seqloom.text import survey as module
from seqloom.text.leak import LeakIndex, ngrams, ngrams_of
from seqloom.text.read import Reader
from seqloom.text.survey import DROPPED, Corpus, Request, Survey, survey
from tests.corpus import WORDS
from tests.text.test_read import read

DATA = Path(__file__).parents[3] / "shared" / "data"


def story(seed: int, words: int = 60) -> str:
    rng = random.Random(seed)
    return " ".join("".join(rng.choices("abcdefghij", k=rng.randint(2, 7))) for _ in range(words))


def write(path: Path, lines: list[str]) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def look(*args: object, **options: object) -> Survey:
    return survey(Corpus(Request(*args, **options)))  # type: ignore[arg-type]


def test_a_fraction_is_stable_under_reordering(tmp_path: Path) -> None:
    lines = [story(i) for i in range(400)]
    a = look((write(tmp_path / "a.txt", lines),), 0.1, 0.1)
    b = look((write(tmp_path / "b.txt", lines[::-1]),), 0.1, 0.1)
    assert a.plan.flags.tolist() == b.plan.flags.tolist()[::-1]
    assert 20 < a.report["splits"]["valid"] < 60 and 20 < a.report["splits"]["test"] < 60


def test_one_document_is_cut_at_its_end(tmp_path: Path) -> None:
    text = story(1, 500)
    (tmp_path / "a.txt").write_text(text)
    found = look((tmp_path / "a.txt",), 0.1, 0.05, "file")
    parts = found.plan.route(0, text, 0)
    assert [split for split, _ in parts] == [0, 1, 2]
    assert "".join(part for _, part in parts) == text
    assert len(parts[0][1]) == int(len(text) * 0.85 + 1e-6)


def test_characters_are_cut_across_documents(tmp_path: Path) -> None:
    lines = [story(i) for i in range(50)]
    found = look((write(tmp_path / "a.txt", lines),), 0.2, split_by="characters")
    place, parts = 0, ["", "", ""]
    for i, line in enumerate(lines):
        for split, part in found.plan.route(i, line, place):
            parts[split] += part
        place += len(line)
    total = sum(map(len, lines))
    assert "".join(parts) == "".join(lines)
    assert len(parts[0]) == int(total * 0.8 + 1e-6)


def test_duplicates_are_named_and_the_first_stays(tmp_path: Path) -> None:
    lines = [story(1), story(2), "yes", story(1).replace(" ", "  "), "yes", story(3), story(1)]
    path = write(tmp_path / "a.txt", lines)
    found = look((path,))
    assert found.report["duplicates"] == {
        "count": 3,
        "dropped": 2,
        "places": [f"{path}:4 = {path}:1", f"{path}:5 = {path}:3", f"{path}:7 = {path}:1"],
    }
    assert np.flatnonzero(found.plan.flags == DROPPED).tolist() == [3, 6]
    assert not (look((path,), keep_duplicates=True).plan.flags == DROPPED).any()


def test_leaks_are_found_dropped_and_named(tmp_path: Path) -> None:
    held = [story(i, 120) for i in range(5)]
    novel = story(50, 5000)
    quote = " ".join(held[1].split()[:20])
    train = [
        story(10),
        held[0].upper().replace(" ", " , "),  # a tokenised, shouted copy
        novel + " " + quote,  # a long document that quotes a little
        novel[:9000] + " " + held[2],  # a long document that contains a whole held-out one
        " ".join(held[3].split()[30:60]),  # a piece of one
        story(11),
    ]
    path, test = write(tmp_path / "a.txt", train), write(tmp_path / "t.txt", held)
    found = look((path,), None, test)
    leaks = found.report["leaks"]
    assert np.flatnonzero(found.plan.flags == DROPPED).tolist() == [1, 3, 4]
    assert leaks["count"] == leaks["dropped"] == 3
    assert leaks["places"][0] == f"{path}:2: the same words as {test}:1"
    assert (leaks["held_out_repeated"], leaks["held_out_sharing"], leaks["held_out_documents"]) == (2, 4, 5)
    kept = look((path,), None, test, keep_leaks=True)
    assert not (kept.plan.flags == DROPPED).any() and kept.report["leaks"]["count"] == 3


def test_boilerplate_is_no_leak(tmp_path: Path) -> None:
    footer = story(99, 30)
    held = [story(i, 60) + " " + footer for i in range(20)]
    found = look(
        (write(tmp_path / "a.txt", [story(100 + i, 40) + " " + footer for i in range(20)]),),
        None,
        write(tmp_path / "t.txt", held),
    )
    assert found.report["leaks"]["count"] == 0


def test_an_index_that_is_too_large_is_sampled_and_still_finds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leak_module, "MAX_INDEX", 2000)
    index = LeakIndex()
    held = [story(i, 300) for i in range(40)]
    for text in held:
        index.add(text)
    index.close()
    assert index.every > 1
    assert all(index.check(text) is not None for text in held)
    assert all(index.check(story(1000 + i, 300)) is None for i in range(40))


def test_ngrams_do_not_depend_on_case_and_punctuation() -> None:
    text = story(1, 40)
    assert ngrams(text).tolist() == ngrams(text.upper().replace(" ", " -- ")).tolist()
    assert ngrams(text).size == 40 - 13 + 1
    assert len(set(ngrams(text).tolist())) == 28


def test_many_at_once_is_the_same_as_one_by_one() -> None:
    texts = [story(i, words) for i, words in enumerate([0, 5, 12, 13, 14, 100, 3, 60])]
    hashes, owner = ngrams_of(texts)
    for i, text in enumerate(texts):
        assert hashes[owner == i].tolist() == ngrams(text).tolist()


def test_planted_bug_case_sensitive_ngrams_miss_the_copy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Keep(str):
        def lower(self) -> str:
            return str(self)

    right = leak_module.ngrams_of
    monkeypatch.setattr(leak_module, "ngrams_of", lambda texts: right([Keep(text) for text in texts]))
    with pytest.raises(AssertionError):
        test_leaks_are_found_dropped_and_named(tmp_path)


def test_wrong_requests(tmp_path: Path) -> None:
    path = write(tmp_path / "a.txt", [story(i) for i in range(5)])
    for options, words in (
        ({"valid": 0.5, "test": 0.5}, "leave no training text"),
        ({"valid": 0.1, "split_field": "split"}, "cannot be combined with a fraction"),
        ({"split_by": "x"}, "--split-by x"),
        ({"leak_share": 0.0}, "--leak-share"),
        ({"valid": 1.5}, "--valid 1.5"),
    ):
        with pytest.raises(UsageError, match=words):
            look((path,), **options)
    with pytest.raises(DataError, match="none of the 5 documents"):
        look((path,), 0.0001, split_by="document")
    copy = write(tmp_path / "c.txt", [story(i) for i in range(5)])
    with pytest.raises(DataError, match="--keep-leaks"):
        look((path,), copy)
    (tmp_path / "e.txt").write_bytes(b"\n \n\xff\n")
    with pytest.raises(
        DataError,
        match=r"e.txt:3: not UTF-8: 1 of 1 documents with 100.0% of all characters would be lost: .*--encoding cp1252",
    ):
        look((tmp_path / "e.txt",))
    rows = write(tmp_path / "r.jsonl", ['{"text": "a", "split": "odd"}'])
    with pytest.raises(DataError, match="'odd'"):
        look((rows,), split_field="split")


@pytest.mark.long
@pytest.mark.parametrize(
    ("held_out", "genre", "copies", "sharing"),
    [("wikinews/wikinews.jsonl.xz", "news", 14, 21), ("english-novels/novels.jsonl.xz", "fiction", 2, 2)],
)
def test_the_leaks_known_to_be_in_the_data_sets(
    held_out: str, genre: str, copies: int, sharing: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """amalgum repeats, tokenised, passages of the novels' held-out books and 21 of the 550 held-out wikinews documents."""
    assert DATA.is_dir(), f"this test reads the data sets in {DATA}"
    index = LeakIndex()
    for document in read([DATA / held_out], split_field="split"):
        if document.split != "train":
            index.add(document.text)
    index.close()
    leaks: dict[str, list[float]] = {}
    for path in sorted((DATA / "amalgum").glob("*.txt.xz")):
        for document in read([path]):
            found = index.check(document.text)
            if found:
                leaks.setdefault(path.name.split(".")[0], []).append(found.own_share)
    shared, repeated = int((index.shared() > 0).sum()), int((index.coverage() >= index.share).sum())
    with capsys.disabled():
        counts = {name: len(shares) for name, shares in leaks.items()}
        print(
            f"\n{held_out}: leaking amalgum documents {counts}; of {index.documents} held-out documents "
            f"{shared} share a 13-gram, {repeated} recur to {index.share:.0%} or more"
        )
    assert len([share for share in leaks[genre] if share > 0.6]) == copies
    assert shared >= sharing


# ---- copies of short documents


def short_lines(count: int, seed: int = 0) -> list[str]:
    """Different lines of eight words each: shorter than any 13-gram."""
    rng = random.Random(seed)
    return [" ".join([f"{rng.choice(WORDS)}{i}", *rng.choices(WORDS, k=7)]) for i in range(count)]


def short_copies_are_seen(folder: Path) -> None:
    lines = short_lines(900)
    held, rest = lines[:300], lines[300:]
    changed = [f"{line.capitalize()}." for line in held]  # as another edition would print them
    train = write(folder / "train.txt", rest + changed)
    test = write(folder / "test.txt", held)
    found = look((train,), None, test)
    assert found.report["leaks"]["count"] == found.report["leaks"]["copies"] == found.report["leaks"]["dropped"] == 300
    assert (found.plan.flags == 0).sum() == 600
    kept = look((train,), None, test, keep_leaks=True)
    assert (kept.plan.flags == 0).sum() == 900 and kept.report["leaks"]["count"] == 300


def test_copies_of_short_documents_are_seen(tmp_path: Path) -> None:
    short_copies_are_seen(tmp_path)


def test_planted_blindness_to_short_documents_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = iter(range(10**6))
    monkeypatch.setattr(module, "same_words", lambda text: next(numbers))  # no two documents are alike: 13-grams alone
    with pytest.raises(AssertionError):
        short_copies_are_seen(tmp_path)


def test_valid_is_held_against_test(tmp_path: Path) -> None:
    lines = short_lines(60)
    long = story(1)
    train = write(tmp_path / "train.txt", lines[40:])
    valid = write(tmp_path / "valid.txt", [*lines[:20], long])
    test = write(tmp_path / "test.txt", [*lines[15:35], long.upper()])
    found = look((train,), valid, test)
    both = found.report["valid_in_test"]
    assert (both["count"], both["copies"], both["dropped"]) == (6, 6, 6)
    assert found.report["splits"] == {"train": 20, "valid": 21, "test": 21}, "as they were given"
    assert [(found.plan.flags == i).sum() for i in range(3)] == [20, 15, 21], "test stays whole"
    assert both["places"][0] == f"{valid}:16: the same words as {test}:1"
    with pytest.raises(DataError, match="no document is left in the valid split"):
        look((train,), test, test)


# ---- other encodings


def test_text_that_is_no_utf8_is_refused_with_its_loss(tmp_path: Path) -> None:
    path = tmp_path / "old.txt"
    lines = [f"Die Häuser Nummer {i} sind schön" if i % 2 else f"Das Haus Nummer {i} ist alt" for i in range(400)]
    path.write_bytes("\n".join(lines).encode("latin-1"))
    report = look((path,)).report["unreadable"]
    assert report["documents"] == 200 and 0.5 < report["share"] < 0.6
    assert f"{path}:2: not UTF-8: 200 of 400 documents with 5" in report["refused"]
    assert "--encoding cp1252" in report["refused"]
    with pytest.raises(DataError, match="200 of 400 documents"):
        prepare([path], tmp_path / "out")
    assert not (tmp_path / "out").exists()
    made = prepare([path], tmp_path / "out", encoding="latin-1", tokenizer="byte", keep_duplicates=True)
    assert made.report["documents"] == 400 and made.report["unreadable"]["refused"] is None
    assert made.splits["train"].bytes == sum(len(line.encode()) for line in lines)


def test_next_to_nothing_may_be_lost(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"\n".join([story(i).encode() for i in range(200)] + [b"\xff"]))
    report = look((path,)).report["unreadable"]
    assert (report["documents"], report["characters"], report["refused"]) == (1, 1, None)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "shift_jis", "cp1251", "utf-8"])
def test_any_encoding_is_read(encoding: str, tmp_path: Path) -> None:
    text = {"shift_jis": "日本語の文章です", "cp1251": "это русский текст"}.get(encoding, "naïve café 日本 😀")
    lines = [f"{text} {i}" for i in range(3000)]  # more than one block
    path = tmp_path / "a.txt"
    path.write_bytes("\n".join(lines).encode(encoding))
    assert [document.text for document in Reader(path, "line", encoding=encoding)] == lines


def test_a_wrong_encoding_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes("häuser\n".encode("latin-1") * 9)
    with pytest.raises(DataError, match=r"a.txt: byte 1 is not valid utf-8"):
        look((path,), encoding="utf-8")
    for name in ("klingon", "rot13", "base64"):
        with pytest.raises(UsageError, match=f"--encoding {name}: unknown"):
            look((path,), encoding=name)

"""Which contexts of a word are read: always the same ones, so many, evenly over the text; and bugs that must be noticed."""

from collections import Counter

from seqloom.evaluate import contexts
from seqloom.evaluate.contexts import REACH, Contexts, cut_out, sample
from tests.contract.test_planted import noticed

TEXT = [f"line {i} has a Cat, and a dog-house {i}; the cat's tail" for i in range(200)]


def test_words_are_found_in_any_case_and_whole():
    found = sample(TEXT[:3], ["cat", "Cat", "dog", "dog-house", "tail", "zebra"], 10)
    assert [len(found[word]) for word in ("cat", "Cat", "dog", "dog-house", "tail", "zebra")] == [3, 3, 0, 3, 3, 0]
    for word, some in found.items():
        assert all(one.text[one.start : one.stop].lower() == word.lower() for one in some)


def same_evenly_and_bounded() -> None:
    found = sample(TEXT * 5, ["cat", "tail"], 100)
    assert found == sample(iter(TEXT * 5), ["tail", "cat"], 100), "other contexts for another call"
    assert [len(some) for some in found.values()] == [100, 100]
    assert sample(TEXT * 5, ["cat"], 10)["cat"] != found["cat"][:10], "the first ones are taken"
    assert set(sample(TEXT * 5, ["cat"], 10)["cat"]) <= set(found["cat"])
    early = Counter(int(one.text.split()[1]) < 100 for one in found["cat"])
    assert 30 < early[True] < 70, "the contexts are not spread over the text"


def test_contexts_are_the_same_evenly_and_bounded():
    same_evenly_and_bounded()


def test_planted_first_contexts(monkeypatch):
    monkeypatch.setattr(contexts, "derive_seed", lambda place: place)
    noticed(same_evenly_and_bounded)


def test_a_context_ends_at_blanks():
    text = "x" * 300 + " some words before it KING and after it " + "y" * 300
    start = text.index("KING")
    one = cut_out(text, start, start + 4)
    assert one.text.strip() == "some words before it KING and after it"
    assert one.text[one.start : one.stop] == "KING"
    word = cut_out("w" * 1000, 0, 1000)
    assert (word.start, word.stop, len(word.text)) == (0, 1000, 1000)
    assert len(cut_out("a " * 1000, 500, 501).text) <= 2 * REACH + 1


def test_files_of_documents(tmp_path):
    (tmp_path / "t.jsonl").write_text('{"text": "the king"}\n{"text": "a king sleeps"}\n')
    assert [one.text for one in Contexts(tmp_path / "t.jsonl", 5).find(["king"])["king"]] == [
        "the king",
        "a king sleeps",
    ]

"""Analogies and similarity: by hand on vectors that are known, and bugs that must be noticed."""

import itertools

import numpy as np
import pytest

from seqloom.errors import DataError, UsageError
from seqloom.evaluate.suites import analogies, similarity
from seqloom.evaluate.suites.analogies import Analogy, AskedWords, read_analogies, score_analogies
from seqloom.evaluate.suites.similarity import RatedPair, read_similarity, score_similarity
from seqloom.evaluate.words import WordTable, parse_expression
from seqloom.metrics.labels import correlation, ranks
from tests.contract.test_planted import noticed

NAMES = [f"w{i}" for i in range(40)]


def vectors(seed: int = 0) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    return dict(zip(NAMES, rng.standard_normal((len(NAMES), 6)).astype(np.float32), strict=True))


def asker(known: dict[str, np.ndarray]):
    def ask(words, with_vocabulary):
        table = WordTable(list(known), np.stack(list(known.values()))) if with_vocabulary else None
        return AskedWords({word: known.get(word) for word in words}, {word: word for word in words}, table)

    return ask


def answer_by_hand(known: dict[str, np.ndarray], a: str, b: str, c: str, multiply: bool) -> str:
    def cos(x, y):
        return float(x @ y / np.linalg.norm(x) / np.linalg.norm(y))

    def unit(word):
        return known[word] / np.linalg.norm(known[word])

    best, found = -np.inf, ""
    for word, vector in known.items():
        if word in (a, b, c):
            continue
        if multiply:
            near = [(1 + cos(vector, known[each])) / 2 for each in (a, b, c)]
            score = near[1] * near[2] / (near[0] + 0.001)
        else:
            score = cos(vector, unit(b) - unit(a) + unit(c))
        if score > best:
            best, found = score, word
    return found


def analogies_by_hand(multiply: bool) -> None:
    known = vectors()
    questions = [
        Analogy((a, b, c, d), "s") for a, b, c, d in itertools.islice(itertools.permutations(NAMES, 4), 0, 4000, 7)
    ]
    questions += [
        Analogy((a, b, c, answer_by_hand(known, a, b, c, multiply)), "gram1")
        for a, b, c in itertools.islice(itertools.permutations(NAMES, 3), 0, 3000, 11)
    ]
    rights = [float(answer_by_hand(known, *q.words[:3], multiply) == q.words[3]) for q in questions]
    found = score_analogies(questions, asker(known))
    assert found["accuracy_mul" if multiply else "accuracy"] == pytest.approx(np.mean(rights))
    if not multiply:
        assert found["items"] == rights and found["by_kind"]["syntactic"] == 1.0


@pytest.mark.parametrize("multiply", [False, True], ids=["3CosAdd", "3CosMul"])
def test_analogies_by_hand(multiply):
    analogies_by_hand(multiply)


def test_planted_question_words_among_the_answers(monkeypatch):
    monkeypatch.setattr(analogies, "NEVER", 9.0)
    noticed(analogies_by_hand, False)


def test_planted_vectors_of_their_own_length(monkeypatch):
    true = WordTable.__init__

    def longer(self, words, given):
        true(self, words, given)
        self.unit = given

    monkeypatch.setattr(WordTable, "__init__", longer)
    noticed(analogies_by_hand, False)


def test_unknown_words_are_counted_and_wrong():
    known = vectors()
    right = answer_by_hand(known, "w0", "w1", "w2", False)
    questions = [Analogy(("w0", "w1", "w2", right), "s"), Analogy(("w0", "w1", "w2", "nowhere"), "s")]
    found = score_analogies(questions, asker(known))
    assert (found["accuracy"], found["accuracy_known"], found["unknown"], found["questions"]) == (0.5, 1.0, 1, 2)
    nothing = score_analogies(questions[1:], asker(known))
    assert nothing["accuracy"] == 0 and "accuracy_known" not in nothing and nothing["by_section"] == {}


def similarity_by_hand() -> None:
    known, rng = vectors(), np.random.default_rng(1)
    pairs = [RatedPair(a, b, float(rng.integers(0, 10)), "s") for a, b in itertools.combinations(NAMES[:12], 2)]
    cosines = np.array(
        [
            known[p.first] @ known[p.second] / np.linalg.norm(known[p.first]) / np.linalg.norm(known[p.second])
            for p in pairs
        ]
    )
    rho = correlation(ranks(cosines), ranks(np.array([p.rating for p in pairs])))
    found = score_similarity([*pairs, RatedPair("w0", "nowhere", 3.0, "s")], asker(known))
    assert found["by_set"]["s"] == pytest.approx(rho) and found["spearman_known"] == pytest.approx(rho)
    assert found["spearman"] == pytest.approx(np.mean(found["items"])) and found["unknown"] == 1
    assert found["spearman"] == pytest.approx(rho * len(pairs) / (len(pairs) + 1))


def test_similarity_by_hand():
    similarity_by_hand()


def test_planted_correlation_of_values(monkeypatch):
    monkeypatch.setattr(similarity, "ranks", lambda values: values)
    noticed(similarity_by_hand)


def test_files(tmp_path):
    (tmp_path / "q.txt").write_text(": capital\nAthens Greece Oslo Norway\n\n: gram1-x\na b c d\n")
    assert [each.section for each in read_analogies(tmp_path / "q.txt")] == ["capital", "gram1-x"]
    (tmp_path / "sets").mkdir()
    (tmp_path / "sets" / "one.tsv").write_text("word1\tword2\tscore\nsun\tmoon\t4.5\n")
    (tmp_path / "sets" / "two.csv").write_text("a,b,1\nc,d,2\n")
    assert [each.group for each in read_similarity(tmp_path / "sets")] == ["one", "two", "two"]


@pytest.mark.parametrize("text", ["a b c\n", "", ": only\n"])
def test_bad_analogies(tmp_path, text):
    (tmp_path / "q.txt").write_text(text)
    with pytest.raises(DataError):
        read_analogies(tmp_path / "q.txt")


@pytest.mark.parametrize("text", ["a b 1\nc d\n", "", "a b 1\na b nan\n", "a b 1\na b x\n"])
def test_bad_similarity(tmp_path, text):
    (tmp_path / "s.txt").write_text(text)
    with pytest.raises(DataError):
        read_similarity(tmp_path / "s.txt")


def test_expressions():
    assert parse_expression(["king", "-", "man", "+", "woman"]) == [(1, "king"), (-1, "man"), (1, "woman")]
    for wrong in (["-", "a"], ["a", "b"], ["a", "+"], ["a", "+", "-", "b"], []):
        with pytest.raises(UsageError):
            parse_expression(wrong)

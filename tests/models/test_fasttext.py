"""fastText: n-grams, hashes and rows as the program has them, words outside the vocabulary, bugs that must be noticed."""

import pytest
import torch

from seqloom.batch import pack
from seqloom.models import fasttext
from seqloom.models.fasttext import FastText, hash_of, ngrams_of
from tests.contract import static
from tests.contract.properties import VOCAB
from tests.contract.test_planted import noticed

# n-grams of 3 to 6 characters and their hashes as gensim 4.4.0 has them, which reads the program's files
PUBLISHED = {
    "where": {
        "<wh": 1048167652, "<whe": 3668989715, "<wher": 2761526707, "<where": 4089071586, "whe": 888420941,
        "wher": 2608312621, "where": 90969176, "where>": 4012121234, "her": 4105473420, "here": 557540811,
        "here>": 1166114991, "ere": 2073529033, "ere>": 2257568469, "re>": 2062867498,
    },
    "naïve": {
        "<na": 1267806890, "<naï": 785907692, "<naïv": 1476878190, "<naïve": 2660933201, "naï": 3249590546,
        "naïv": 1297719404, "naïve": 3440832043, "naïve>": 4028156687, "aïv": 3608356832, "aïve": 405223007,
        "aïve>": 1723505331, "ïve": 1813711570, "ïve>": 445788548, "ve>": 3325088654,
    },
    "日本語": {
        "<日本": 3018758587, "<日本語": 3574004581, "<日本語>": 3036524609, "日本語": 308035559, "日本語>": 3224928923,
        "本語>": 2567674355,
    },
    "a": {"<a>": 2359087600},
}  # fmt: skip


def equals_published() -> None:
    for word, wanted in PUBLISHED.items():
        assert ngrams_of(word, 3, 6) == list(wanted)
        assert [hash_of(each) for each in wanted] == list(wanted.values())


def test_ngrams_and_hashes():
    equals_published()
    assert hash_of("") == 0x811C9DC5 and hash_of("foobar") == 0xBF9CF968  # of FNV-1a itself
    assert ngrams_of("ab", 1, 2) == ["<a", "a", "ab", "b", "b>"] and ngrams_of("ab", 3, 0) == []


def test_planted_bytes_without_a_sign(monkeypatch):
    def unsigned(text):
        found = 2166136261
        for byte in text.encode():
            found = (found ^ byte) * 16777619 & 0xFFFFFFFF
        return found

    monkeypatch.setattr("tests.models.test_fasttext.hash_of", unsigned)
    noticed(equals_published)


class Words(static.Words):
    def words(self):
        return ["", "where", "here", "naïve", "x" * 300, *["w" * i for i in range(1, VOCAB - 4)]]


def model_of(**config) -> FastText:
    torch.manual_seed(0)
    sizes = {"vocab_size": VOCAB, "dim": 6, "buckets": 50, "max_ngrams": 20}
    model = FastText(FastText.Config(**(sizes | config))).double()
    model.set_vocabulary(Words())
    return model


def composed_by_hand() -> None:
    """Each word is the mean of its row and of those of its n-grams, which stand behind all words."""
    model, weight = model_of(), None
    weight = model.token.weight.detach()
    words = Words().words()
    for number in (1, 2, 3, 4, 9):
        rows = [number, *(VOCAB + hash_of(each) % 50 for each in ngrams_of(words[number], 3, 6)[:20])]
        wanted = torch.stack([weight[row] for row in rows]).mean(0)
        assert (model.word_vectors()[number] - wanted).abs().max() < 1e-12
        assert (model(pack([[2, number, 1]])).hidden[1] - wanted).abs().max() < 1e-12
    assert not model.word_vectors()[0].any(), "a special token has a vector"
    rows = [VOCAB + hash_of(each) % 50 for each in ngrams_of("wherever", 3, 6)[:20]]
    assert (model.vector_of("wherever") - torch.stack([weight[row] for row in rows]).mean(0)).abs().max() < 1e-12


def test_words_are_composed_by_hand():
    composed_by_hand()
    assert model_of(longest=0).vector_of("wherever") is None


def test_planted_bugs_of_composing(monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(FastText, "vocab_size", property(lambda self: self.config.vocab_size - 1))
        noticed(composed_by_hand)  # n-grams share the row of the last word
    with monkeypatch.context() as patch:
        patch.setattr(fasttext, "BEGIN", "")
        patch.setattr(FastText, "buckets_of", lambda self, word: [hash_of(word) % 50])
        noticed(composed_by_hand)


@pytest.mark.parametrize("sparse", [False, True])
def test_gradients_reach_every_row(sparse):
    model = model_of()
    model.token.sparse = sparse
    model(pack([[1, 2, 1], [5]])).hidden.sum().backward()
    gradient = model.token.weight.grad.to_dense() if sparse else model.token.weight.grad
    rows = set(gradient.abs().sum(1).nonzero().flatten().tolist())
    words = Words().words()
    wanted = {1, 2, 5} | {
        VOCAB + hash_of(each) % 50 for number in (1, 2, 5) for each in ngrams_of(words[number], 3, 6)[:20]
    }
    assert rows == wanted


def test_damaged_buckets_are_noticed():
    model = model_of()
    model.ngrams[3, 0] = 50
    with pytest.raises(ValueError, match="bucket"):
        model.validate_loaded()

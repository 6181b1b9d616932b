"""The n-gram model against arithmetic by hand, against a plain implementation, and against the axioms of probability."""

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE, Excerpt, pack
from seqloom.batches.plan import select_documents
from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import sample
from seqloom.decode.step import Stepper
from seqloom.errors import UsageError
from seqloom.evaluate.score import score
from seqloom.models.ngram import Ngram
from seqloom.objectives.counted import FALLBACK, Counted
from seqloom.training.count import check_order, count_ngrams, discounts, put
from tests.contract import properties as p
from tests.corpus import END, MemorySplit

CPU = torch.device("cpu")


def counted(documents: list[list[int]], order: int, vocab_size: int) -> Counted:
    """A model that has read these documents. They come without their end."""
    learner = Counted(Ngram(Ngram.Config(vocab_size=vocab_size, order=order)), Counted.Config())
    row = np.array([token for document in documents for token in [END, *document, END]])
    sizes = np.array([len(document) + 2 for document in documents])
    put(learner, count_ngrams(row, np.cumsum(sizes) - sizes, order, vocab_size))
    return learner


def probabilities(learner: Counted, history: list[int]) -> list[float]:
    """p of every word after a history, each by the way that losses take."""
    v = learner.backbone.trie.vocab_size
    hidden = learner.backbone(pack([history])).hidden[-1:].expand(v, -1)
    return (-learner.softmax(hidden, torch.arange(v), each=True)).exp().tolist()


# ---- by hand


def test_by_hand():
    """Bigrams over end, a, b, c and a word d that never occurs, from [a] [a] [a b] [a b] [b c] [b c a].

    Pairs: end a 4, a end 3, end b 2, b c 2, a b 2, b end 2, c end 1, c a 1. So n1 … n4 = 2, 4, 1, 1, Y = 2/(2+8) = 1/5,
    D1 = 1 − 2·1/5·4/2 = 1/5, D2 = 2 − 3·1/5·1/4 = 37/20, D3+ = 3 − 4·1/5·1/1 = 11/5.
    Different words before each: a 2 (end, c), b 2 (end, a), c 1 (b), end 3 (a, b, c): 8. n4 = 0: discounts 1/2, 1, 3/2.
    """
    end, a, b, c, d = range(5)
    learner = counted([[a], [a], [a, b], [a, b], [b, c], [b, c, a]], 2, 5)
    assert learner.softmax.discounts.flatten().tolist() == pytest.approx([0.5, 1, 1.5, 1 / 5, 37 / 20, 11 / 5])
    left = (Fraction(1, 2) + 1 + 1 + Fraction(3, 2)) / 8  # c; a and b; end
    single = {
        a: Fraction(2 - 1, 8) + left / 5,
        b: Fraction(2 - 1, 8) + left / 5,
        c: (1 - Fraction(1, 2)) / 8 + left / 5,
        end: (3 - Fraction(3, 2)) / 8 + left / 5,
        d: left / 5,
    }
    assert left == Fraction(1, 2) and sum(single.values()) == 1 and single[end] == Fraction(23, 80)
    one, two, three = Fraction(1, 5), Fraction(37, 20), Fraction(11, 5)
    after = {
        end: ({a: 4 - three, b: 2 - two}, 6, three + two),
        a: ({end: 3 - three, b: 2 - two}, 5, three + two),
        b: ({c: 2 - two, end: 2 - two}, 4, two + two),
        c: ({end: 1 - one, a: 1 - one}, 2, one + one),
        d: ({}, 1, Fraction(1)),
    }
    for before, (kept, total, taken) in after.items():
        expected = [Fraction(kept.get(w, 0)) / total + taken / total * single[w] for w in range(5)]
        assert sum(expected) == 1
        assert probabilities(learner, [before]) == pytest.approx([float(x) for x in expected], rel=1e-12)
    assert probabilities(learner, [end])[a] == pytest.approx(723 / 1600, rel=1e-12)
    assert probabilities(learner, [end])[d] == pytest.approx(27 / 400, rel=1e-12)
    assert probabilities(learner, [c])[end] == pytest.approx(183 / 400, rel=1e-12)


# ---- against plain Python


def plain(documents: list[list[int]], order: int, vocab_size: int):
    """Modified Kneser–Ney from the formulas, with dictionaries: p(word, history)."""
    raw = [Counter() for _ in range(order + 1)]
    for document in documents:
        text = (END, *document, END)
        for k in range(1, order + 1):
            for i in range(len(text) - k + 1):
                if k > 1 or i > 0:
                    raw[k][text[i : i + k]] += 1
    adjusted = [Counter() for _ in range(order + 1)]
    adjusted[order] = raw[order]
    for k in range(1, order):
        for gram in raw[k + 1]:
            adjusted[k][gram[1:]] += 1
        for gram, times in raw[k].items():
            if k > 1 and gram[0] == END:
                adjusted[k][gram] = times
    taken = [None]
    for k in range(1, order + 1):
        n = Counter(adjusted[k].values())
        d = FALLBACK
        if n[1] and n[2] and n[3] and n[4]:
            y = n[1] / (n[1] + 2 * n[2])
            found = tuple(i - (i + 1) * y * n[i + 1] / n[i] for i in (1, 2, 3))
            d = found if all(0 < x <= i for i, x in enumerate(found, 1)) else d
        taken.append(d)

    def p(word: int, history: tuple[int, ...]) -> float:
        k = len(history) + 1
        lower = 1 / vocab_size if k == 1 else p(word, history[1:])
        followers = {gram[-1]: times for gram, times in adjusted[k].items() if gram[:-1] == history}
        if not followers:
            return lower
        total = sum(followers.values())
        times = followers.get(word, 0)
        kept = times - taken[k][min(times, 3) - 1] if times else 0
        return kept / total + sum(taken[k][min(t, 3) - 1] for t in followers.values()) / total * lower

    return lambda word, history: p(word, tuple(history[max(0, len(history) - order + 1) :]))


def corpus(seed: int, vocab_size: int = 9, documents: int = 40) -> list[list[int]]:
    """Few words, some much more frequent, so that all kinds of counts occur. The last word never does."""
    rng = np.random.default_rng(seed)
    share = 1 / np.arange(1, vocab_size - 1)
    draw = rng.choice(np.arange(1, vocab_size - 1), (documents, 12), p=share / share.sum())
    sizes = np.maximum(rng.integers(0, 13, documents), 4 * (np.arange(documents) == 0))
    return [row[:n].tolist() for row, n in zip(draw, sizes, strict=True)]


def histories(seed: int, vocab_size: int = 9) -> list[list[int]]:
    """Seen, partly seen, unseen; with a document's border in them, and with a word that never occurred."""
    some = [[END, *text[:n]] for text in corpus(seed)[:12] for n in (0, 1, 2, 5)]
    rng = np.random.default_rng(seed + 1000)
    some += [rng.integers(0, vocab_size, n).tolist() for n in (1, 2, 3, 4, 5, 6) for _ in range(4)]
    return [*some, [3, END], [END, END, 1], [END, 1, vocab_size - 1, 1]]


def agrees(order: int, seed: int) -> None:
    learner, expected = counted(corpus(seed), order, 9), plain(corpus(seed), order, 9)
    for history in histories(seed):
        inside = history[max(i for i, token in enumerate(history) if token == END or i == 0) :]
        wanted = [expected(w, history if len(inside) == len(history) else inside) for w in range(9)]
        assert probabilities(learner, history) == pytest.approx(wanted, rel=1e-10)


def sums_to_one(order: int, seed: int) -> None:
    learner = counted(corpus(seed), order, 9)
    for history in histories(seed):
        assert sum(probabilities(learner, history)) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("order", range(1, 6))
def test_equals_the_plain_implementation(order, seed):
    agrees(order, seed)


@pytest.mark.parametrize("order", range(1, 6))
def test_every_history_sums_to_one(order):
    for seed in range(3):
        sums_to_one(order, seed)


def test_the_formula_of_the_discounts_is_used():
    """The comparison above would be weak if every order fell back."""
    found = [counted(corpus(seed), order, 9).softmax.discounts for seed in range(3) for order in (3, 5)]
    own = [tuple(row) != FALLBACK for discounts_ in found for row in discounts_.tolist()]
    assert 5 < sum(own) < len(own)


@pytest.mark.parametrize("order", range(1, 6))
def test_the_whole_distribution_equals_single_losses(order):
    learner = counted(corpus(0), order, 9)
    for history in histories(0):
        scores = learner.softmax(learner.backbone(pack([history])).hidden[-1:])
        assert scores.exp().flatten().tolist() == pytest.approx(probabilities(learner, history), rel=1e-12)
    together = learner.backbone(pack(histories(0))).hidden
    assert learner.softmax(together).exp().sum(1).tolist() == pytest.approx([1.0] * len(together))


# ---- planted bugs


def noticed(check, *arguments):
    with pytest.raises(AssertionError):
        check(*arguments)


def test_planted_raw_counts_at_lower_orders(monkeypatch):
    """Shorter runs get their raw counts: still a distribution, but not Kneser–Ney's."""
    original = count_ngrams

    def raw(row, starts, order, vocab_size):
        tables = [original(row, starts, k, vocab_size) for k in range(1, order + 1)]
        return tables[-1]._replace(counts=[table.counts[-1] for table in tables])

    monkeypatch.setitem(globals(), "count_ngrams", raw)
    noticed(agrees, 3, 0)
    sums_to_one(3, 0)


def test_planted_continuation_counts_at_the_start_of_documents(monkeypatch):
    original = count_ngrams

    def without(row, starts, order, vocab_size):
        table = original(row, starts, order, vocab_size)
        for keys, counts in zip(table.keys[:-1], table.counts[1:-1], strict=True):
            counts[keys // vocab_size == END] = 1
        return table

    monkeypatch.setitem(globals(), "count_ngrams", without)
    noticed(agrees, 3, 0)


def test_planted_missing_back_off_mass(monkeypatch):
    original = put

    def without(learner, table):
        original(learner, table)
        learner.softmax.left2 *= 0.9

    monkeypatch.setitem(globals(), "put", without)
    noticed(sums_to_one, 3, 0)
    noticed(agrees, 3, 0)


def test_planted_grams_over_the_border(monkeypatch):
    original = count_ngrams
    monkeypatch.setitem(globals(), "count_ngrams", lambda row, starts, *rest: original(row, starts[:1], *rest))
    noticed(agrees, 3, 0)


# ---- the contract, where a loss is asked for


def test_loss_and_ignored_places():
    learner = counted(corpus(0), 3, 9)
    texts = corpus(5)[:6]
    batch, following = pack([[END, *t] for t in texts]), torch.tensor([i for t in texts for i in [*t, END]])
    each, _ = learner.losses(Excerpt(batch, following))
    whole = learner(Excerpt(batch, following))
    assert whole.total.item() == pytest.approx(each.sum().item()) and whole.count.item() == len(following)
    following[::2] = IGNORE
    half = learner(Excerpt(batch, following))
    assert half.total.item() == pytest.approx(each[1::2].sum().item()) and half.count.item() == len(following) // 2
    assert learner(Excerpt(batch, torch.full_like(following, IGNORE))).total.item() == 0


def test_without_counts_every_word_is_as_likely():
    learner = Counted(Ngram(Ngram.Config(vocab_size=p.VOCAB, order=4)), Counted.Config())
    texts = p.sequences(0)
    loss = learner(Excerpt(pack(texts), p.following(texts)))
    assert loss.total.item() / loss.count.item() == pytest.approx(learner.initial_loss()) == pytest.approx(math.log(61))
    assert learner.size() == 0
    assert learner.softmax(learner.backbone(pack(texts)).hidden).exp().sum(1).tolist() == pytest.approx([1.0] * 291)


@pytest.mark.parametrize("order", [1, 2, 3, 5])
def test_samples_and_their_log_probs(order):
    learner = counted(corpus(0), order, 9)
    prompts = [[END, 1, 2], [END, 8], [END]]
    stepper = Stepper(learner.backbone, learner.softmax)
    made = [([], []) for _ in prompts]
    for one in sample(stepper, prompts, SampleConfig(max_new=15), 0, END, []):
        made[one.sample][0].append(one.token)
        made[one.sample][1].append(one.log_prob)
    for prompt, (tokens, log_probs) in zip(prompts, made, strict=True):
        (scored,) = score(learner, [prompt[1:] + tokens], END, CPU)
        assert scored.log_probs[len(prompt) - 1 :] == pytest.approx(log_probs, rel=1e-5)


def test_samples_follow_the_distribution():
    learner = counted(corpus(0), 3, 9)
    stepper = Stepper(learner.backbone, learner.softmax)
    drawn = Counter(d.token for d in sample(stepper, [[END, 1]] * 4000, SampleConfig(max_new=1), 0, END, []))
    for word, share in enumerate(probabilities(learner, [END, 1])):
        assert drawn[word] / 4000 == pytest.approx(share, abs=4 * (share * (1 - share) / 4000) ** 0.5 + 1e-9)


# ---- counting


def test_discounts_by_hand():
    assert discounts(np.array([1, 1, 2, 2, 2, 2, 3, 4, 9], np.int32)) == pytest.approx((1 / 5, 37 / 20, 11 / 5))
    assert discounts(np.array([1, 1, 2, 3], np.int32)) is None  # n4 = 0
    assert discounts(np.array([1, 2, 3, 3, 3, 3, 3, 3, 4], np.int32)) is None  # D2 = 2 − 3 · 1/3 · 6 < 0
    assert discounts(np.zeros(5, np.int32)) is None


def test_a_fallback_is_told(capsys):
    counted([[1, 2]], 2, 4)
    err = capsys.readouterr().err
    assert err.count("\n") == 2 and "order 1:" in err and "order 2:" in err and "0.5, 1.0, 1.5" in err


@pytest.mark.parametrize("documents", [[[]], [[], []], [[1]], [[1] * 50], [[1, 2], [1, 2], [1, 2]]])
def test_degenerate_texts_give_distributions(documents):
    for order in range(1, 3):
        learner = counted(documents, order, 4)
        for history in ([END], [1], [2, 3], [END, 1, 1]):
            found = probabilities(learner, history)
            assert min(found) > 0 and sum(found) == pytest.approx(1, abs=1e-12)


def test_the_largest_order_is_named():
    split = MemorySplit([[1, 2], [3]])
    chosen = select_documents(split, math.inf, 0)
    check_order(4, chosen)  # end 1 2 end
    with pytest.raises(UsageError, match=r"model\.order = 5: .* largest order is 4: --set model\.order=4"):
        check_order(5, chosen)


def test_a_budget_takes_the_first_documents_of_a_random_order():
    split = MemorySplit([list(range(1, n + 1)) for n in (3, 0, 8, 1, 5, 5, 2)])
    for tokens in (1, 2, 10.5, split.num_tokens - 1):
        taken = [select_documents(split, tokens, seed) for seed in range(8)]
        for chosen in taken:
            assert chosen.lengths.sum() == int(tokens) and chosen.lengths.min() > 0
            whole = dict(zip(split.offsets[:-1].tolist(), np.diff(split.offsets).tolist(), strict=True))
            sizes = [whole[start] for start in chosen.starts.tolist()]
            assert sizes[:-1] == chosen.lengths.tolist()[:-1] and sizes[-1] >= chosen.lengths[-1]
        assert len({tuple(chosen.starts.tolist()) for chosen in taken}) > 1
    for tokens in (split.num_tokens, math.inf):
        assert select_documents(split, tokens, 3).lengths.sum() == split.num_tokens


def test_the_number_of_stored_ngrams():
    texts = [(END, *d, END) for d in corpus(0)]
    expected = sum(len({t[i : i + k] for t in texts for i in range(k == 1, len(t) - k + 1)}) for k in range(1, 4))
    assert counted(corpus(0), 3, 9).size() == expected

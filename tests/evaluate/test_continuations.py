"""log p(continuation | context) is a difference of scores, whatever the batch, the window and the border of tokens."""

import numpy as np
import pytest
import torch

from seqloom.batch import pack
from seqloom.errors import UsageError
from seqloom.evaluate import continuations
from seqloom.evaluate.continuations import count_after_context, windows
from tests.encoders import run_of, tokenizer_of

BPE, WORD, CHAR, BYTE = (tokenizer_of(kind) for kind in ("bpe", "word", "char", "byte"))
RUNS = [
    ("lstm", "next-token", BPE),
    ("gpt2", "next-token", WORD),
    ("ngram", "counts", BPE),
    ("rnn", "next-token", CHAR),
]
PAIRS = [
    ("the cat sees", " the dog today ."),
    ("the cat", " sees"),
    ("", "the cat"),
    ("no child remembers a small river", " near"),
    ("the cat", ""),
    ("the cat sees the dog", " today ."),
]


@torch.no_grad()
def by_hand(run, context, more):
    """One token after the other, each from a text that ends with it."""
    tokenizer = run.tokenizer
    whole, before = tokenizer.encode(context + more), tokenizer.encode(context)
    assert whole[: len(before)] == before
    total, greedy = 0.0, len(whole) > len(before)
    for i in range(len(before), len(whole)):
        stepper, _, _ = run.begin("", 1)
        log_probs = stepper.start([[tokenizer.end_id, *whole[:i]]], 100).scores.double().log_softmax(1)[0]
        total += float(log_probs[whole[i]])
        greedy &= int(log_probs.argmax()) == whole[i]
    return total, greedy


def check(run, **options):
    found = run.continuations(*zip(*PAIRS, strict=True), **options)
    for pair, each in zip(PAIRS, found, strict=True):
        log_prob, greedy = by_hand(run, *pair)
        assert (each.log_prob, each.greedy) == (pytest.approx(log_prob, abs=1e-4), greedy), pair


@pytest.mark.parametrize("batch_tokens", [1, 10, 10_000])
@pytest.mark.parametrize(("model", "objective", "tokenizer"), RUNS)
def test_token_by_token(model, objective, tokenizer, batch_tokens):
    check(run_of(model, objective, tokenizer), batch_tokens=batch_tokens)


@pytest.mark.parametrize(("model", "objective", "tokenizer"), RUNS)
def test_with_the_whole_text_it_is_its_score(model, objective, tokenizer):
    run = run_of(model, objective, tokenizer)
    texts = [a + b for a, b in PAIRS]
    found = run.continuations([""] * len(texts), texts)
    scores = [sum(each.log_probs) for each in run.score(texts)]
    assert [each.log_prob for each in found] == pytest.approx(scores, abs=1e-9)


def test_what_greedy_writing_gives_is_greedy():
    run = run_of("lstm", "next-token", BYTE)
    (sample,) = run.generate("the ", max_new=6, temperature=0.0)
    ids = [np.array([*BYTE.encode("the "), *sample.tokens])]
    _, greedy = continuations.score_continuations(run.learner, ids, np.array([6]), BYTE.end_id, run.device)
    other = [np.array([*ids[0][:-1], (ids[0][-1] + 1) % 200])]
    _, wrong = continuations.score_continuations(run.learner, other, np.array([6]), BYTE.end_id, run.device)
    assert (greedy[0], wrong[0]) == (1, pytest.approx(5 / 6))


def test_a_long_context_is_cut_from_its_beginning():
    run = run_of("gpt2", "next-token", WORD, max_len=10)
    words = ("the cat sees a small dog today . " * 3).split()
    for count in (1, 4, 10, 13, 25):  # of 24 words; more than the model reads, too
        more = words[-count:] if count < len(words) else words
        context = words[: len(words) - len(more)]
        (found,) = run.continuations([" ".join(context)], [" " * bool(context) + " ".join(more)])
        ids = [WORD.end_id, *WORD.encode(" ".join(words))]
        expected = 0.0
        first = len(ids) - len(more)
        for done in range(first, len(ids), 10):
            end = min(done + 10, len(ids))
            begin = max(0, end - 11)
            with torch.no_grad():
                hidden = run.learner.backbone(pack([ids[begin : end - 1]])).hidden
                log_probs = run.learner.softmax(hidden).log_softmax(1)
            expected += sum(float(log_probs[i - begin - 1, ids[i]]) for i in range(done, end))
        assert found.log_prob == pytest.approx(expected, abs=1e-9), count


def test_every_token_of_a_continuation_is_in_one_window():
    offsets = np.array([0, 8, 9, 40])
    counts = np.array([3, 0, 27])
    pieces, counted, text = windows(offsets, counts, 10)
    spots = [
        (int(owner), place)
        for begin, length, some, owner in zip(pieces.starts, pieces.lengths, counted, text, strict=True)
        for place in range(begin + length - some, begin + length)
    ]
    assert sorted(spots) == [(0, i) for i in range(4, 7)] + [(2, i) for i in range(12, 39)]
    assert (pieces.lengths <= 10).all() and (pieces.starts >= offsets[:-1][text]).all()
    assert windows(offsets, counts, None)[0].lengths.tolist() == [7, 30]


def test_a_token_that_spans_the_border_is_the_continuations():
    assert count_after_context([np.array([1, 2])], [np.array([1, 2, 3])]).tolist() == [1]
    assert count_after_context([np.array([1, 2])], [np.array([1, 9, 3])]).tolist() == [2]
    assert count_after_context([np.array([1, 2, 3])], [np.array([1, 9])]).tolist() == [1]
    assert count_after_context([np.array([], int)], [np.array([4, 5])]).tolist() == [2]
    run = run_of("lstm", "next-token", BPE)
    whole, cut = BPE.encode(" the cat"), BPE.encode(" the c")
    assert whole[0] == cut[0] and whole[1] != cut[1] and len(whole) == 2  # " cat" is one token
    (found,) = run.continuations([" the c"], ["at"])
    assert found.log_prob == pytest.approx(run.continuations([" the"], [" cat"])[0].log_prob, abs=1e-12)


def test_unknown_words_are_told():
    run = run_of("gpt2", "next-token", WORD)
    known, strange, before = run.continuations(["the cat", "the cat", "xyzzy cat"], [" sees", " xyzzy", " sees"])
    assert (known.unknown, strange.unknown, before.unknown) == (False, True, False)


def test_unknown_words_are_read_by_their_letters():
    run = run_of("big-lstm", "next-token", WORD, proj_dim=0, num_layers=2)
    run.characters = run.learner.backbone.characters
    texts = [("the xyzzy", " sees"), ("the abracadabra", " sees"), ("the abracadabra xyzzy", " sees the")]
    found = run.continuations(*zip(*texts, strict=True))
    for (context, more), each in zip(texts, found, strict=True):
        whole, before = run.score([context + more, context])
        assert each.log_prob == pytest.approx(sum(whole.log_probs) - sum(before.log_probs), abs=1e-9)
    assert found[0].log_prob != pytest.approx(found[1].log_prob, abs=1e-6)


def test_nothing_to_ask():
    run = run_of("lstm", "next-token", WORD)
    assert run.continuations([], []) == []
    (empty,) = run.continuations(["the cat"], [""])
    assert empty == (0.0, False, False, 0.0, False)


def test_who_cannot_tell():
    for model, objective in (("bert", "masked"), ("electra", "replaced-token")):
        with pytest.raises(UsageError, match="no probability of the next word"):
            run_of(model, objective, WORD).continuations(["the"], [" cat"])
    run = run_of("lstm", "next-token", WORD)
    run.backward = True
    with pytest.raises(UsageError, match="from their end"):
        run.continuations(["the"], [" cat"])


# ---- bugs that must be noticed


def test_one_token_too_many(monkeypatch):
    monkeypatch.setattr(
        "seqloom.runs.scoring.count_after_context",
        lambda a, b: np.minimum(count_after_context(a, b) + 1, [len(x) for x in b]),
    )
    with pytest.raises(AssertionError):
        check(run_of("lstm", "next-token", BPE))


def test_windows_that_begin_too_late(monkeypatch):
    right = continuations.windows

    def late(offsets, counts, max_len):
        pieces, counted, text = right(offsets, counts, max_len)
        shift = np.minimum(1, pieces.lengths - counted)
        return pieces._replace(starts=pieces.starts + shift, lengths=pieces.lengths - shift), counted, text

    monkeypatch.setattr(continuations, "windows", late)
    with pytest.raises(AssertionError):
        check(run_of("gpt2", "next-token", WORD))


def test_answers_that_go_to_another_text(monkeypatch):
    right = continuations.windows
    monkeypatch.setattr(continuations, "windows", lambda *given: (*right(*given)[:2], np.roll(right(*given)[2], 1)))
    with pytest.raises(AssertionError):
        check(run_of("gpt2", "next-token", WORD))

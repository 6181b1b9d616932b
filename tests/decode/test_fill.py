"""Words for gaps: probabilities are the softmax at the gap, combinations are the best of all that there are."""

import itertools
import math

import pytest
import torch

from seqloom.decode import fill as filling
from seqloom.decode.fill import read_gaps
from seqloom.errors import DataError, UsageError
from seqloom.runs.language_model import Run
from seqloom.tokens.tokenizer import Tokenizer
from tests.encoders import guesses, run_of, tokenizer_of

WORDPIECE = tokenizer_of("wordpiece")
TINY = Tokenizer.train("word", ["a b c d"], min_count=1)  # with <unk>, the end and the mask: 7 entries


def row_of(run: Run, words: list[int]) -> list[int]:
    return [run.tokenizer.first_id, *words, run.tokenizer.separator_id]


def check_each(run: Run) -> None:
    mask, word = run.tokenizer.mask_id, run.tokenizer.id("the")
    found = run.fill("the [MASK] <mask> the", top=7)
    assert len(found) == 2
    rows = guesses(run, row_of(run, [word, mask, mask, word])).exp()
    for place, gap in zip((2, 3), found, strict=True):
        best = sorted(range(run.tokenizer.vocab_size), key=lambda token: -rows[place, token])[:7]
        assert [each.tokens for each in gap] == [[token] for token in best]
        assert [each.probability for each in gap] == pytest.approx(rows[place, best].tolist(), abs=1e-12)
        for each in gap:
            row = [word, *(each.tokens[0] if i == place else mask for i in (2, 3)), word]
            assert each.text == run.tokenizer.decode(row, specials=True)


@pytest.mark.parametrize(
    ("model", "objective"), [("bert", "masked"), ("albert", "masked"), ("electra", "replaced-token")]
)
def test_probabilities_are_those_of_the_gap(model, objective):
    check_each(run_of(model, objective, WORDPIECE))


def test_all_words_together_are_certain():
    run = run_of("bert", "masked", TINY)
    ((*gap,),) = run.fill("a [MASK]", top=100)
    assert len(gap) == TINY.vocab_size and math.fsum(each.probability for each in gap) == pytest.approx(1, abs=1e-12)


def combinations(run: Run, text: list[int | None]) -> dict[tuple[int, ...], float]:
    """Every combination for the gaps (None) of a text, by the chain from left to right."""
    mask, gaps = run.tokenizer.mask_id, [i for i, word in enumerate(text) if word is None]
    found = {}
    for words in itertools.product(range(run.tokenizer.vocab_size), repeat=len(gaps)):
        row, total = [mask if word is None else word for word in text], 0.0
        for place, word in zip(gaps, words, strict=True):
            total += float(guesses(run, row_of(run, row))[place + 1, word])
            row[place] = word
        found[words] = math.exp(total)
    return found


def check_joint(run: Run) -> None:
    a, b = run.tokenizer.id("a"), run.tokenizer.id("b")
    size = run.tokenizer.vocab_size
    for text, row in (("a [MASK] b [MASK]", [a, None, b, None]), ("[MASK] [MASK] a <mask>", [None, None, a, None])):
        wanted = combinations(run, row)
        gaps = row.count(None)
        (found,) = run.fill(text, joint=True, top=12, beam=size ** (gaps - 1))
        best = sorted(wanted, key=lambda words: -wanted[words])[:12]
        assert [tuple(each.tokens) for each in found] == best
        assert [each.probability for each in found] == pytest.approx([wanted[words] for words in best], abs=1e-12)
        assert math.fsum(wanted.values()) == pytest.approx(1, abs=1e-9)


@pytest.mark.parametrize(
    ("model", "objective"), [("bert", "masked"), pytest.param("electra", "replaced-token", marks=pytest.mark.long)]
)
def test_combinations_are_the_best_of_all(model, objective):
    check_joint(run_of(model, objective, TINY))


def test_together_is_not_each_for_itself():
    run = run_of("bert", "masked", TINY)
    (together,) = run.fill("a [MASK] b [MASK]", joint=True, top=49)
    first, second = run.fill("a [MASK] b [MASK]", top=49)
    chances = [{each.tokens[0]: each.probability for each in gap} for gap in (first, second)]
    apart = [chances[0][each.tokens[0]] * chances[1][each.tokens[1]] for each in together]
    assert [each.probability for each in together] != pytest.approx(apart, rel=1e-2)
    # one gap: there is nothing to join
    assert run.fill("a [MASK]", joint=True) == run.fill("a [MASK]")


@pytest.mark.parametrize(("name", "limit"), [("TOKENS", 13), ("SCORES", 15)])
def test_parts_change_nothing(name, limit, monkeypatch):
    run = run_of("bert", "masked", TINY)
    text = "a [MASK] b [MASK] <mask>"
    whole = [*run.fill(text, joint=True, top=9), *run.fill(text)]
    monkeypatch.setattr(filling, name, limit)
    for one, other in zip([*run.fill(text, joint=True, top=9), *run.fill(text)], whole, strict=True):
        assert [each.tokens for each in one] == [each.tokens for each in other]
        assert [each.probability for each in one] == pytest.approx([each.probability for each in other], abs=1e-12)


# ---- bugs that must be noticed


def test_gaps_that_stay_open(monkeypatch):
    right = filling.log_probs
    first: list[torch.Tensor] = []

    def forgetful(learner, rows, *others):
        first.append(rows[:1])
        return right(learner, first[0].expand(len(rows), -1), *others)

    monkeypatch.setattr(filling, "log_probs", forgetful)
    with pytest.raises(AssertionError):
        check_joint(run_of("bert", "masked", TINY))


def test_a_place_off_by_one(monkeypatch):
    right = filling.log_probs
    monkeypatch.setattr(
        filling,
        "log_probs",
        lambda learner, rows, places, *others: right(learner, rows, [p - 1 for p in places], *others),
    )
    with pytest.raises(AssertionError):
        check_each(run_of("bert", "masked", WORDPIECE))


def test_a_narrow_beam_may_miss():
    """What makes the beam matter: with one beginning only, the best combination is not always found."""
    missed = 0
    run = run_of("bert", "masked", TINY)
    for text in ("[MASK] a [MASK]", "a [MASK] [MASK]", "[MASK] [MASK] b", "c [MASK] d [MASK]", "[MASK] [MASK] [MASK]"):
        wide, narrow = (run.fill(text, joint=True, top=1, beam=beam)[0][0] for beam in (343, 1))
        assert wide.probability >= narrow.probability - 1e-15
        missed += wide.tokens != narrow.tokens
    assert missed


# ---- the text around gaps


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("wordpiece", ["the", "[MASK]", "d", "##o", "##g"]),
        ("word", ["the", "<mask>", "dog"]),
        ("bpe", ["the", "<mask>", "Ġdog"]),
    ],
)
def test_where_gaps_are(kind, expected):
    tokenizer = tokenizer_of(kind)
    for spelling in ("[MASK]", "<mask>"):
        ids, gaps = read_gaps(f"the {spelling} dog", tokenizer)
        assert [tokenizer.token(i) for i in ids] == expected and gaps == [1]
    # letters are told apart, blanks too
    char = tokenizer_of("char")
    ids, gaps = read_gaps("the [MASK]og", char)
    assert [char.token(i) for i in ids] == [*"the ", "<mask>", *"og"] and gaps == [4]
    assert read_gaps("<mask>[MASK]", char) == ([char.mask_id] * 2, [0, 1])


def test_what_is_refused():
    with pytest.raises(UsageError, match="seqloom generate"):
        run_of("gpt2", "next-token", WORDPIECE).fill("the [MASK]")
    run = run_of("bert", "masked", TINY)
    with pytest.raises(UsageError, match="no gap in 'a b': write"):
        run.fill("a b")
    for wrong in ({"top": 0}, {"beam": 0}, {"top": 10**6}):
        with pytest.raises(UsageError, match="between 1 and 10,000"):
            run.fill("[MASK]", **wrong)
    with pytest.raises(DataError, match="the text has 40 tokens and 2 special tokens, but the model reads at most 40"):
        run.fill("[MASK]" + " a" * 39)
    with pytest.raises(UsageError, match="seqloom fill memory TEXT"):
        run.generate("a")

"""Scores of texts by models that read in both directions equal their definition, worked out one hidden token at a time."""

import numpy as np
import pytest
import torch

from seqloom.batch import pack
from seqloom.batches.special_tokens import SpecialTokenTexts
from seqloom.errors import DataError, UsageError
from seqloom.evaluate import pseudo
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.replaced import ReplacedToken
from seqloom.runs.language_model import Run
from tests.encoders import TEXTS, guesses, run_of, tokenizer_of

WORDPIECE, BPE, WORD = tokenizer_of("wordpiece"), tokenizer_of("bpe"), tokenizer_of("word")
MODELS = [("bert", "next-sentence", WORDPIECE), ("albert", "sentence-order", WORDPIECE), ("roberta", "masked", BPE)]


def by_hand(run: Run, text: str, within_word: bool) -> list[float]:
    tokenizer = run.tokenizer
    ids = tokenizer.encode(text)
    words = [tokenizer.token(i) for i in ids]
    if tokenizer.kind == "wordpiece":
        goes_on = [word.startswith("##") for word in words]
    else:
        goes_on = [word[0].isalpha() and word[0] != "Ġ" for word in words]
    found = []
    for i, token in enumerate(ids):
        hidden = [tokenizer.first_id, *ids, tokenizer.separator_id]
        hidden[i + 1] = tokenizer.mask_id
        for j in range(i + 1, len(ids)):
            if not within_word or not goes_on[j]:
                break
            hidden[j + 1] = tokenizer.mask_id
        found.append(float(guesses(run, hidden)[i + 1, token]))
    return found


def check(run: Run, pll: str | None, **options: object) -> None:
    for text, scored in zip(TEXTS, run.score(TEXTS, pll, **options), strict=True):
        assert scored.end is None
        assert scored.log_probs == pytest.approx(by_hand(run, text, pll != "plain"), abs=1e-9), text


@pytest.mark.parametrize("pll", [None, "within-word", "plain"])
@pytest.mark.parametrize(("model", "objective", "tokenizer"), MODELS)
def test_it_is_the_definition(model, objective, tokenizer, pll):
    check(run_of(model, objective, tokenizer), pll)


@pytest.mark.parametrize(("model", "objective", "tokenizer"), MODELS)
def test_the_variants_differ_where_words_have_pieces(model, objective, tokenizer):
    run = run_of(model, objective, tokenizer)
    plain, within = (run.score(["remembers the"], pll)[0].log_probs for pll in ("plain", "within-word"))
    assert len(plain) > 3 and plain[-1] == pytest.approx(within[-1]) and plain[0] != pytest.approx(within[0], abs=1e-3)


def test_whole_words_have_no_rest():
    run = run_of("bert", "masked", WORD)
    plain, within = (run.score(TEXTS, pll) for pll in ("plain", "within-word"))
    assert plain == within


@pytest.mark.parametrize("batch_tokens", [1, 30, 100, 10**6])
def test_batches_change_nothing(batch_tokens):
    run = run_of("bert", "masked", WORDPIECE)
    check(run, None, batch_tokens=batch_tokens)
    electra = run_of("electra", "replaced-token", WORDPIECE)
    whole = electra.score(TEXTS)
    for one, other in zip(whole, electra.score(TEXTS, batch_tokens=batch_tokens), strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-12)


@pytest.mark.parametrize("objective", ["masked", "replaced-token"])
def test_order_changes_nothing(objective):
    run = run_of("electra", objective, WORDPIECE)
    forward, backward = run.score(TEXTS), run.score(TEXTS[::-1])[::-1]
    for one, other in zip(forward, backward, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-12)


def test_single_precision_is_close():
    exact, single = (
        run_of("bert", "masked", WORDPIECE, dtype).score(TEXTS) for dtype in (torch.float64, torch.float32)
    )
    for one, other in zip(exact, single, strict=True):
        assert one.log_probs == pytest.approx(other.log_probs, abs=1e-3)


def check_unreplaced(run: Run) -> None:
    learner = run.learner
    assert isinstance(learner, ReplacedToken)
    for text, scored in zip(TEXTS, run.score(TEXTS), strict=True):
        ids = [run.tokenizer.first_id, *run.tokenizer.encode(text), run.tokenizer.separator_id]
        with torch.no_grad():
            hidden = learner.backbone(pack([ids])).hidden
            replaced = torch.sigmoid(learner.discriminator_head(learner.activation(learner.dense(hidden)))).squeeze(1)
        assert scored.log_probs == pytest.approx(torch.log(1 - replaced)[1:-1].tolist(), abs=1e-9)


def test_electra_says_what_was_not_replaced():
    check_unreplaced(run_of("electra", "replaced-token", WORDPIECE))


def test_no_text():
    assert run_of("bert", "masked", WORDPIECE).score([]) == []
    assert run_of("electra", "replaced-token", WORDPIECE).score([]) == []


def test_only_hidden_places_meet_the_vocabulary(monkeypatch):
    run = run_of("bert", "masked", WORDPIECE)
    seen = []
    guess = run.learner.guess.forward
    monkeypatch.setattr(run.learner.guess, "forward", lambda hidden: (seen.append(len(hidden)), guess(hidden))[1])
    run.score(TEXTS)
    assert sum(seen) == sum(len(WORDPIECE.encode(text)) for text in TEXTS)


# ---- bugs that must be noticed


def test_a_rest_that_is_left_open(monkeypatch):
    monkeypatch.setattr(pseudo, "word_rests", lambda inside, place: np.ones(len(place), np.int64))
    with pytest.raises(AssertionError):
        check(run_of("bert", "masked", WORDPIECE), None)


def test_a_rest_that_goes_on_into_the_next_text(monkeypatch):
    right = pseudo.word_rests
    monkeypatch.setattr(pseudo, "word_rests", lambda inside, place: right(inside, np.arange(len(place))))
    rests = pseudo.word_rests(np.array([False, True, True, True]), np.array([0, 1, 0, 1]))
    assert rests.tolist() != right(np.array([False, True, True, True]), np.array([0, 1, 0, 1])).tolist() == [2, 1, 2, 1]


def test_nothing_hidden(monkeypatch):
    run = run_of("bert", "masked", WORDPIECE)
    monkeypatch.setattr(torch.Tensor, "masked_fill", lambda ids, where, value: ids)
    with pytest.raises(AssertionError):
        check(run, "plain")


def test_special_tokens_forgotten(monkeypatch):
    monkeypatch.setattr(Run, "add_special_tokens", lambda run, encoded, names=None: SpecialTokenTexts(encoded, [], []))
    with pytest.raises(AssertionError):
        check(run_of("bert", "masked", WORDPIECE), None)
    with pytest.raises(AssertionError):
        check_unreplaced(run_of("electra", "replaced-token", WORDPIECE))


def test_the_generator_asked_for_the_discriminator(monkeypatch):
    run = run_of("electra", "replaced-token", WORDPIECE)
    monkeypatch.setattr(
        ReplacedToken, "discriminate", lambda learner, hidden: -learner.discriminator_head(hidden).squeeze(1)
    )
    with pytest.raises(AssertionError):
        check_unreplaced(run)


# ---- what is said, and what is refused


def test_definitions_are_told_apart():
    runs = [
        run_of("bert", "masked", WORDPIECE),
        run_of("electra", "replaced-token", WORDPIECE),
        run_of("lstm", "next-token", WORDPIECE),
    ]
    assert [run.definition().partition(":")[0] for run in runs] == [
        "pseudo-log-likelihood, within-word",
        "Σ log(1 − p(replaced))",
        "Σ log p(token | the text before it)",
    ]
    assert isinstance(runs[0].learner, MaskedLM) and "within-word" not in runs[0].definition("plain")
    for run in runs[1:]:
        with pytest.raises(UsageError, match="is for masked models"):
            run.score(["the"], "plain")
    with pytest.raises(UsageError, match="did you mean 'plain'"):
        runs[0].score(["the"], "plan")


def test_a_text_that_does_not_fit():
    run = run_of("bert", "masked", WORD)
    assert len(run.score(["the " * 38])[0].log_probs) == 38
    with pytest.raises(DataError, match=r"b.txt:8 has 39 tokens and 2 special tokens, but the model reads at most 40"):
        run.score(["the", "the " * 39], names=["b.txt:7", "b.txt:8"])
    with pytest.raises(DataError, match="text 2 has 39 tokens"):
        run.score(["the", "the " * 39])

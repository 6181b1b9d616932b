"""Masked perplexity: the same words are asked for in the same places, whatever else a model has learnt."""

import math

import pytest
import torch

from seqloom.batch import IGNORE
from seqloom.evaluate.masked import masked_loss
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.next_sentence import NextSentence
from seqloom.objectives.sentence_order import SentenceOrder
from seqloom.randomness import derive_seed
from tests.objectives.test_masked import MASK, learner, passages

CPU = torch.device("cpu")


def measured(objective, held_out, **options):
    """With the weights of one and the same model."""
    ours = learner("bert", objective)
    ours.load_state_dict(learner("bert", MaskedLM).state_dict(), strict=False)
    found = masked_loss(ours, held_out, CPU, **options)
    assert found is not None
    return found


def in_forms(*forms):
    return {form: passages(form) for form in (*forms, "single")}


def one_measure_for_all(held_out_of):
    plain = measured(MaskedLM, {"single": passages("single")})
    for objective in (NextSentence, SentenceOrder):
        found = measured(objective, held_out_of(objective.form))
        for name in ("masked_loss", "masked_perplexity", "masked", "accuracy", "tokens"):
            assert found[name] == plain[name], name
        assert 0 < found["relation_accuracy"] < 1
        assert found["loss"] > found["masked_loss"] + 0.5 * math.log(2), "what is learnt by has the relation in it"


def test_models_of_pairs_guess_the_words_that_others_guess():
    one_measure_for_all(in_forms)


def test_every_form_is_the_same_for_all():
    """Whatever a model has learnt from: the same words are hidden in passages of each form."""
    forms = in_forms("next", "order")
    found = [
        measured(objective, forms, by_form=True)["masked_perplexity_by_form"]
        for objective in (MaskedLM, NextSentence, SentenceOrder)
    ]
    assert found[0] == found[1] == found[2] and set(found[0]) == {"single", "next", "order"}
    assert len(set(found[0].values())) == 3, "and each form is another reading"


def test_a_model_without_segments_reads_pairs_by_their_separator():
    ours = learner("roberta").eval()
    forms = in_forms("next")
    found = masked_loss(ours, forms, CPU, by_form=True)["masked_perplexity_by_form"]
    assert forms["next"].plan(0, 0).batch(0).batch.segments is not None
    assert found["next"] > 0 and found["next"] != found["single"]


def test_planted_measure_on_passages_of_their_own_is_noticed():
    with pytest.raises(AssertionError):
        one_measure_for_all(lambda form: {form: passages(form), "single": passages(form)})


@pytest.mark.parametrize(
    ("keep", "random", "targets"),
    [
        (0.1, 0.1, "mask tokens"),
        (0.0, 0.0, "mask tokens"),
        (0.5, 0.5, "all chosen tokens: none becomes the mask token"),
    ],
)
def test_equals_the_sum_by_hand(keep, random, targets):
    """The loss is of all chosen tokens; masked perplexity and accuracy are of those that are hidden, which is said."""
    ours, text = learner("roberta", keep=keep, random=random).eval(), passages("single", tokens=3000)
    found = masked_loss(ours, {"single": text}, CPU)
    total = count = 0.0
    hidden_total = hidden_count = right = 0.0
    plan = text.plan(0, 0)
    for i in range(len(plan)):
        example = ours.corrupt(plan.batch(i), torch.Generator().manual_seed(derive_seed(0, i)))
        kept = example.targets != IGNORE
        with torch.no_grad():
            odds = ours.scores(ours.backbone(example.batch).hidden[example.where[kept]]).log_softmax(1)
        costs = -odds.gather(1, example.targets[kept][:, None]).flatten()
        total += costs.sum().item()
        count += int(kept.sum())
        hidden = example.batch.ids[example.where[kept]] == MASK
        hidden = torch.ones_like(hidden) if keep + random == 1 else hidden
        hidden_total += costs[hidden].sum().item()
        hidden_count += int(hidden.sum())
        right += int((odds.argmax(1) == example.targets[kept])[hidden].sum())
    assert found is not None and found["masked"] == hidden_count and found["masked_targets"] == targets
    assert (hidden_count < count) == (0 < keep + random < 1)
    assert found["loss"] == pytest.approx(total / count, rel=1e-5)
    assert found["masked_loss"] == pytest.approx(hidden_total / hidden_count, rel=1e-5)
    assert found["accuracy"] == pytest.approx(right / hidden_count)

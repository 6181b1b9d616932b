"""How rows are asked about held-out text: no row is ahead by the way it is asked."""

import numpy as np
import pytest

from seqloom.comparison.caveats import Findings, different_contexts
from seqloom.comparison.measurement import asked, common_context, common_options, forms_of, own_context, own_options
from seqloom.comparison.records import MeasuredBy
from seqloom.comparison.table import common_metric, masked_metrics
from tests.comparison.results import measured_row

GPT = measured_row("GPT", "gpt2-tiny")
SHORT = measured_row("short", "gpt2-tiny", ("batches.length=64",))
LSTM = measured_row("LSTM", "lstm-tiny")
CARRIED = measured_row("carried", "lstm-tiny", ("batches.reset=false",))
BERT = measured_row("BERT", "bert-tiny")
SINGLE = measured_row("single", "bert-tiny", ('objective={name="masked"}', "model.pooler=false"))
ORDER = measured_row("order", "bert-tiny", ('objective={name="sentence-order"}',))


def rows(*measured):
    return [each.row for each in measured]


def test_a_row_is_measured_at_the_context_that_it_was_trained_with():
    assert own_context(GPT.row) == 128 and own_context(LSTM.row) is None
    assert own_context(SHORT.row) == 64, "later positions have never been trained"
    assert own_options(SHORT.row, rows(SHORT)) == {"max_len": 64}
    assert own_options(LSTM.row, rows(LSTM)) == {"max_len": None}


def test_a_carried_state_is_carried_over_documents():
    assert own_options(CARRIED.row, rows(CARRIED))["carry"] is True
    both = rows(CARRIED, GPT)
    assert common_options(CARRIED.row, both) == {"max_len": 128, "carry": True}
    lines = different_contexts(Findings([CARRIED, GPT], None, {}, {}, [], []))
    assert any("the state of carried was carried" in line for line in lines)


@pytest.mark.parametrize(
    ("measured", "context"),
    [((GPT, LSTM), 128), ((GPT, SHORT, LSTM), 64), ((GPT,), None), ((LSTM, CARRIED), None), ((GPT, BERT), None)],
)
def test_the_common_context_is_the_shortest(measured, context):
    assert common_context(rows(*measured)) == context


def test_masked_rows_are_measured_in_every_form():
    assert forms_of(rows(SINGLE, GPT)) == ()
    assert set(forms_of(rows(SINGLE, BERT, ORDER))) == {"single", "next", "order"}
    assert own_options(SINGLE.row, rows(SINGLE, BERT)) == {"forms": ("single", "next")}
    assert common_options(SINGLE.row, rows(SINGLE, GPT, LSTM)) is None


def scored(name, recipe, settings=(), **scores):
    return measured_row(name, recipe, settings, ({"held_out": {"split": "test", **scores}},))


def test_masked_perplexities_of_each_form_are_a_metric_of_their_own():
    settings = ('objective={name="masked"}', "model.pooler=false")
    every = {"single": 40.0, "next": 44.0}
    single = scored("single", "bert-tiny", settings, masked_perplexity=40.0, masked_perplexity_by_form=every)
    pairs = scored("BERT", "bert-tiny", (), masked_perplexity=42.0, masked_perplexity_by_form={"next": 41.0})
    earlier = scored("earlier", "bert-tiny", (), masked_perplexity=43.0)
    found = {each.name: each for each in masked_metrics([single, pairs, earlier], ("single", "next"))}
    assert {row: float(value[0]) for row, value in found["masked perplexity"].values.items()} == {
        "single": 40.0, "BERT": 42.0, "earlier": 43.0,
    }  # fmt: skip
    other = found["masked perplexity, pairs for the next sentence"]
    assert {row: float(value[0]) for row, value in other.values.items()} == {"single": 44.0, "BERT": 41.0}
    assert other.missing["earlier"] == "it was measured by an earlier version"


def test_results_at_another_context_are_not_compared():
    def at(name, recipe, tokens):
        common = {"split": "test", "bits_per_byte": 2.0, "tokens_of_context": tokens}
        return measured_row(name, recipe, (), ({"common": common},), ({"common_documents.bits": np.zeros(0)},))

    (metric,) = common_metric([at("GPT", "gpt2-tiny", 128), at("LSTM", "lstm-tiny", 64), BERT])
    assert list(metric.values) == ["GPT"] and "another context" in metric.missing["LSTM"]
    assert metric.missing["BERT"] == "it has no probability of the next token"


def test_a_row_with_a_shorter_context_has_the_others_measured_again():
    before, now = (
        MeasuredBy(text=asked(GPT.row, rows(GPT, LSTM))),
        MeasuredBy(text=asked(GPT.row, rows(GPT, LSTM, SHORT))),
    )
    assert before.text == ("128 tokens",) and now.text == ("64 tokens",)
    assert before.lacks(now) and not before.lacks(before)
    assert not MeasuredBy(text=asked(BERT.row, rows(BERT))).lacks(MeasuredBy(text=asked(BERT.row, rows(BERT, GPT))))
    assert MeasuredBy(text=asked(SINGLE.row, rows(SINGLE))).lacks(
        MeasuredBy(text=asked(SINGLE.row, rows(SINGLE, BERT)))
    )
    assert not MeasuredBy().lacks(now), "of an earlier version: its weights may be gone"

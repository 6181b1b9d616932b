"""Metrics put together: what means the same is compared, and what lies inside the noise has no winner."""

import json
from dataclasses import replace

import numpy as np
import pytest

from seqloom.comparison import metric as metrics_module
from seqloom.comparison.caveats import Findings, find_caveats, intervals_without_items
from seqloom.comparison.measured import MeasuredRow
from seqloom.comparison.metric import Metric
from seqloom.comparison.records import QuestionRecord, ResolvedPlan, SuiteRecord, flatten
from seqloom.comparison.report import metric_cell, table_lines
from seqloom.comparison.table import (
    answer_questions,
    loss_meaning,
    masked_metrics,
    pareto_front,
    suite_metric,
    text_metric,
)
from seqloom.evaluate.suites.minimal import MinimalPair, score_minimal_pairs
from seqloom.metrics.differences import difference_of_seeds, holm
from tests.comparison.results import METRICS, measured_row


def rows(gap: float, seeds: int = 3, items: int = 400) -> Metric:
    random = np.random.default_rng(0)
    hard = random.normal(size=items)
    values = {
        name: (hard + 0.1 * random.normal(size=(seeds, 1)) + random.normal(size=(seeds, items)) + 1 + more > 0) * 1.0
        for name, more in (("a", 0.0), ("b", gap), ("c", 0.0))
    }
    return Metric("accuracy", False, values, {})


def test_a_winner_is_named_when_there_is_one():
    metric = rows(2.0)
    assert metric.leaders() == ["b"]
    assert "★" in metric_cell(metric, "b", metric.leaders()) and "★" not in metric_cell(metric, "a", metric.leaders())
    told = [(a, b) for a, b, _, p in metric.differences if p < 0.05]
    assert ("a", "b") in told and ("b", "c") in told and ("a", "c") not in told


def test_no_winner_inside_the_noise():
    metric = rows(0.02)
    assert len(metric.leaders()) > 1
    assert all("★" not in metric_cell(metric, row, metric.leaders()) for row in metric.values)


def test_a_question_is_corrected_for_other_questions_alone():
    """Of a few rows many pairs are made; who asks about one of them beforehand need not pay for all."""
    values = {f"row {i}": np.array([-0.01, 0.0, 0.01]) + 0.02 * (i == 1) for i in range(12)}
    metrics = [Metric("bits", True, values, {}), Metric("other", True, {"row 0": values["row 0"]}, {"row 1": "why"})]
    questions = [QuestionRecord(name=f"{i}?", rows=("row 0", f"row {i}"), late=False) for i in (1, 2)]
    found = answer_questions(questions, metrics)
    assert [(each.question, each.metric, each.rows[1]) for each in found] == [
        ("1?", "bits", "row 1"),
        ("2?", "bits", "row 2"),
    ]
    samples = metrics[0].samples
    alone = [difference_of_seeds(samples["row 0"], samples[f"row {i}"]) for i in (1, 2)]
    assert [each.difference for each in found] == alone and [each.p_adjusted for each in found] == holm(
        [each.p for each in alone]
    )
    among_all = {(a, b): p for a, b, _, p in metrics[0].differences}
    assert found[0].p_adjusted < 0.05 < among_all["row 0", "row 1"]
    assert [each.better for each in found] == ["row 0", None], "less is better"
    assert answer_questions(questions[:1], [replace(metrics[0], lower=False)])[0].better == "row 1"


def caveats_of(questions=(), split="test"):
    row = measured_row("a", results=({"held_out": {"split": split}},) * 2)
    plan = ResolvedPlan.model_construct(rows=(), tasks=(), seeds=(0, 1), questions=tuple(questions))
    return find_caveats(Findings([row], plan, {"a": row.first.metrics.costs()}, {}, [], []))


def test_a_text_without_a_test_split_is_said():
    assert not any("no test split" in line for line in caveats_of())
    assert any("no test split" in line for line in caveats_of(split="valid"))


def test_what_was_asked_late_is_said():
    questions = [QuestionRecord(name=f"{late}?", rows=("a", "b"), late=late) for late in (False, True)]
    (told,) = [line for line in caveats_of(questions) if line.startswith("asked after there were results")]
    assert told.endswith(": True?")


def test_planted_noise_without_seeds_names_a_winner(monkeypatch):
    """If the spread between seeds were left out, luck would look like skill."""
    random = np.random.default_rng(1)
    lucky = {
        name: np.full((3, 2000), level) + random.normal(size=(3, 2000)) for name, level in (("a", 0.0), ("b", 0.0))
    }
    lucky["a"] += np.array([[0.9], [0.0], [0.0]])
    metric = Metric("score", False, lucky, {})
    assert metric.leaders() == ["a", "b"]
    monkeypatch.setattr(
        metrics_module, "leaders", lambda values, lower: [int(np.argmax([each.value for each in values]))]
    )
    assert metric.leaders() == ["a"]


def test_lower_is_better_where_it_is():
    metric = Metric("bits", True, {"a": np.array([2.0, 2.01, 1.99]), "b": np.array([1.5, 1.51, 1.49])}, {})
    assert metric.leaders() == ["b"]


def test_one_seed_has_no_interval_and_no_mark():
    metric = Metric("bits", True, {"a": np.array([2.0]), "b": np.array([1.0])}, {})
    assert metric.leaders() == ["a", "b"] and metric_cell(metric, "b", metric.leaders()) == "1.0000"


def test_losses_are_drawn_together_only_where_they_mean_the_same():
    def meaning(recipe: str, *settings: str, tokenizer: str = "x") -> str:
        return loss_meaning(measured_row("a", recipe, settings, tokenizer=tokenizer))

    causal = meaning("lstm-tiny", "objective.tie=true")
    assert causal == meaning("gpt2-tiny", "objective.tie=false", "objective.bias=true")
    assert causal != meaning("lstm-tiny", "objective.tie=true", tokenizer="y"), "another tokenizer"
    masked = [
        meaning("bert-tiny", f'objective={{name="masked",rate={rate}}}', "model.pooler=false") for rate in (0.15, 0.4)
    ]
    assert causal != masked[0] != masked[1]


def masked_titles(**second: object) -> list[str]:
    """Of two rows that mask tokens alike, but for what is given."""

    def row(name: str, objective: str, **changes: object) -> MeasuredRow:
        given = {"length": 128, "budget": 8192} | changes
        settings = [f"batches.{key}={given.pop(key)}" for key in ("length", "budget")]
        settings += [f"objective.{key}={json.dumps(value)}" for key, value in given.items()]
        names = (f'objective={{name="{objective}"}}', f"model.pooler={json.dumps(objective == 'next-sentence')}")
        scores = {"split": "test", "masked_perplexity": 40.0}
        return measured_row(name, "bert-tiny", (*names, "model.max_len=128", *settings), ({"held_out": scores},))

    rows = [row("a", "masked"), row("b", "next-sentence", **second)]
    return [metric.name for metric in masked_metrics(rows, ())]


def test_masked_perplexities_are_compared_only_of_the_same_guesses():
    assert masked_titles() == ["masked perplexity"], "pairs of sentences or not: words are guessed in single passages"
    for other in ({"rate": 0.4}, {"unit": "word"}, {"keep": 0.0}, {"static": True}, {"length": 64}, {"budget": 4096}):
        assert len(masked_titles(**other)) == 2, other


def test_the_pareto_line():
    points = {"a": (1.0, 5.0), "b": (2.0, 6.0), "c": (3.0, 4.0), "d": (3.0, 4.5), "e": (9.0, 1.0)}
    assert pareto_front(points) == ["a", "c", "e"]


def test_nested_values_are_named_by_their_path():
    assert flatten({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_a_row_without_a_figure_is_a_dash():
    assert metric_cell(Metric("bits", True, {"a": np.array([1.0, 1.1])}, {"b": "why"}), "b", []) == "–"


@pytest.mark.parametrize("values", [np.array([0.5, 0.6, 0.7]), np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])])
def test_means_are_what_is_shown(values):
    assert Metric("x", False, {"a": values}, {}).interval("a").value == pytest.approx(values.mean())


def test_a_suite_has_one_accuracy():
    """Its kinds have different numbers of pairs: what the run itself tells, and curves show, is what the table has."""
    pairs = [MinimalPair(f"{i} good", f"{i} bad", f"f:{i}", "many" if i else "one", None, None) for i in range(5)]
    found = score_minimal_pairs(pairs, lambda texts, places: [float(text != "0 bad") for text in texts])
    result = {"suites": {"pairs": {key: value for key, value in found.items() if key != "items"}}}
    row = measured_row("a", results=(result,), items=({"pairs": np.asarray(found["items"], np.float32)},))
    metric = suite_metric(SuiteRecord(name="pairs", suite="blimp", data="", content=""), [row])
    assert metric.interval("a").value == pytest.approx(found["accuracy"]) == 0.6
    assert found["by_set"] == {"many": 0.5, "one": 1.0}, "whose mean is another"


# ---- what is random, and what is not


def check_copies():
    """An n-gram with several seeds, and rows that happened to score alike: an interval over items, no p of 0, no winner."""
    one = (np.random.default_rng(0).random((1, 80)) < 0.8).astype(float)
    values = {"n-gram": np.repeat(one, 2, 0), "LSTM": np.repeat(one, 2, 0)}
    metric = Metric("pairs", False, values, {}, frozenset(["n-gram"]), outcomes=True)
    assert metric.leaders() == ["n-gram", "LSTM"]
    (found,) = metric.differences
    assert found[3] == 1 and found[2].interval.low < found[2].interval.high
    alone = metric.interval("n-gram")
    assert 0.05 < alone.high - alone.low < 0.3, "that of 80 items"
    scores = Metric("score", False, {"a": np.array([0.5, 0.5]), "b": np.array([0.7, 0.7])}, {})
    assert scores.leaders() == ["a", "b"] and not scores.interval("a").is_bounded and scores.differences[0][3] == 1


def test_copies_are_no_certainty():
    check_copies()


def test_planted_copies_that_count_as_seeds_name_a_winner(monkeypatch):
    """Divided by a variance of zero, any difference is certain."""

    def certain(values, lower):
        return [int(np.argmax([each.value for each in values]))]

    monkeypatch.setattr(metrics_module, "leaders", certain)
    with pytest.raises(AssertionError):
        check_copies()


def test_a_deterministic_row_needs_no_second_seed():
    random = np.random.default_rng(0)
    values = {"n-gram": random.normal(size=(1, 50)), "LSTM": 3 + random.normal(size=(3, 50))}
    metric = Metric("score", False, values, {}, frozenset(["n-gram"]))
    assert metric.interval("n-gram").is_bounded and metric.leaders() == ["LSTM"]
    assert not replace(metric, deterministic=frozenset()).interval("n-gram").is_bounded
    assert "n-gram is deterministic" in metric.method()


def metric_with_sets(fixed: bool = False) -> Metric:
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 30)
    hard = random.normal(size=20)[group]
    values = {name: (hard + random.normal(size=(3, 600)) > 0).astype(float) for name in "ab"}
    return Metric("blimp", False, values, {}, outcomes=True, sets=group, fixed_sets=fixed)


def test_both_intervals_of_sets_are_shown():
    metric = metric_with_sets()
    by_set, by_item = metric.interval("a"), metric.interval("a", by_item=True)
    assert by_set.value == pytest.approx(by_item.value) and by_set.high - by_set.low > 2 * (by_item.high - by_item.low)
    cell = metric_cell(metric, "a", [])
    assert cell.endswith(f"± {(by_set.high - by_set.low) / 2:.4f} / {(by_item.high - by_item.low) / 2:.4f}")
    assert "20 sets" in metric.method()
    made = metric_with_sets(fixed=True)
    assert made.interval("a") == by_item and " / " not in metric_cell(made, "a", []), (
        "of pairs that are made here all kinds are there"
    )


def test_pooled_seeds_are_said():
    random = np.random.default_rng(1)
    values = {name: random.normal(size=3) for name in "abcd"}
    assert "pooled over a, b, c, d" in Metric("x", False, values, {}).method()
    assert "not pooled over a, b, c, d" in Metric("x", False, values | {"d": 100 * values["d"]}, {}).method()


def bits(with_documents: bool, epochs: float = 1.0) -> tuple[Metric, list[str]]:
    random = np.random.default_rng(0)
    sizes = random.integers(50, 500, 30)
    totals = {row: [random.normal(2, 0.2, 30) * sizes for _ in range(2)] for row in ("n-gram", "GPT")}
    totals["n-gram"][1] = totals["n-gram"][0]
    rows = []
    for name, recipe in (("n-gram", "ngram-tiny"), ("GPT", "gpt2-tiny")):
        ratios = [float(each.sum() / sizes.sum()) for each in totals[name]]
        results = [
            {"held_out": {"split": "test", "bits_per_byte": ratio}, "metrics": METRICS | {"epochs": epochs}}
            for ratio in ratios
        ]
        documents = [
            {"documents.bits": each, "documents.bytes": sizes} if with_documents else {} for each in totals[name]
        ]
        rows.append(measured_row(name, recipe, results=tuple(results), items=tuple(documents)))
    metric = text_metric(rows)
    for row in rows:
        means = [each.held_out.bits_per_byte for each in row.results.values()]
        assert metric.interval(row.name).value == pytest.approx(np.mean(means))
    return metric, intervals_without_items(Findings(rows, ResolvedPlan.model_construct(), {}, {}, [metric], []))


def test_documents_are_the_items_of_bits_per_byte():
    metric, told = bits(with_documents=True)
    assert metric.values["GPT"].shape == (2, 30) and not told
    assert metric.interval("n-gram").is_bounded and metric.interval("n-gram").low < metric.interval("n-gram").high
    assert metric.deterministic == {"n-gram"}
    assert not bits(with_documents=True, epochs=0.5)[0].deterministic, (
        "which half of the text it counts depends on the seed"
    )


def test_results_without_documents_are_still_collected():
    metric, told = bits(with_documents=False)
    assert metric.values["GPT"].shape == (2,) and metric.interval("GPT").is_bounded
    assert not metric.interval("n-gram").is_bounded and metric.leaders() == ["n-gram", "GPT"]
    assert len(told) == 1 and "earlier version" in told[0]


def test_a_table_wider_than_the_terminal_is_continued_below():
    rows = [["", "parameters", "bits per byte", "pairs"], ["LSTM", "598,080", "2.4773", "0.8239"]]
    assert table_lines(rows, None) == table_lines(rows, 80) and len(table_lines(rows, 80)) == 2
    narrow = table_lines(rows, 30)
    assert max(map(len, narrow)) <= 30 and len(narrow) == 5 and narrow[2] == ""
    assert narrow[1].split() == ["LSTM", "598,080"] and narrow[4].split() == ["LSTM", "2.4773", "0.8239"]
    assert len(table_lines(rows, 1)) == 8, "a column that is wider than the terminal stands alone"

"""Figures put together: what means the same is compared, and what lies inside the noise has no winner."""

import numpy as np
import pytest

from seqloom.comparison import table as tables
from seqloom.comparison.report import shown
from seqloom.comparison.table import (
    Figure,
    answers,
    bits_figure,
    caveats,
    flat,
    masked_figures,
    meaning,
    pareto,
    suite_figure,
    without_items,
)
from seqloom.evaluate.suites.minimal import MinimalPair, score_minimal_pairs
from seqloom.metrics.differences import difference_of_seeds, holm
from seqloom.recipes.library import find_recipe


def rows(gap: float, seeds: int = 3, items: int = 400) -> Figure:
    random = np.random.default_rng(0)
    hard = random.normal(size=items)
    values = {
        name: (hard + 0.1 * random.normal(size=(seeds, 1)) + random.normal(size=(seeds, items)) + 1 + more > 0) * 1.0
        for name, more in (("a", 0.0), ("b", gap), ("c", 0.0))
    }
    return Figure("accuracy", False, values, {})


def test_a_winner_is_named_when_there_is_one():
    figure = rows(2.0)
    assert figure.leaders() == ["b"]
    assert "★" in shown(figure, "b", figure.leaders()) and "★" not in shown(figure, "a", figure.leaders())
    told = [(a, b) for a, b, _, p in figure.differences() if p < 0.05]
    assert ("a", "b") in told and ("b", "c") in told and ("a", "c") not in told


def test_no_winner_inside_the_noise():
    figure = rows(0.02)
    assert len(figure.leaders()) > 1
    assert all("★" not in shown(figure, row, figure.leaders()) for row in figure.values)


def test_a_question_is_corrected_for_other_questions_alone():
    """Of a few rows many pairs are made; who asks about one of them beforehand need not pay for all."""
    values = {f"row {i}": np.array([-0.01, 0.0, 0.01]) + 0.02 * (i == 1) for i in range(12)}
    figures = [Figure("bits", True, values, {}), Figure("other", True, {"row 0": values["row 0"]}, {"row 1": "why"})]
    questions = [{"name": f"{i}?", "rows": ["row 0", f"row {i}"]} for i in (1, 2)]
    found = answers(questions, figures)
    assert [(each.question, each.figure, each.rows[1]) for each in found] == [
        ("1?", "bits", "row 1"),
        ("2?", "bits", "row 2"),
    ]
    samples = figures[0].samples()
    alone = [difference_of_seeds(samples["row 0"], samples[f"row {i}"]) for i in (1, 2)]
    assert [each.found for each in found] == alone and [each.p for each in found] == holm([each.p for each in alone])
    among_all = {(a, b): p for a, b, _, p in figures[0].differences()}
    assert found[0].p < 0.05 < among_all["row 0", "row 1"]
    assert [each.better for each in found] == ["row 0", None], "less is better"
    assert answers(questions[:1], [figures[0]._replace(lower=False)])[0].better == "row 1"


def caveats_of(rows, questions=(), split="test"):
    configs = {row["name"]: {"tokenizer": "x"} for row in rows}
    results = {
        row["name"]: {seed: {"definition": "x", "held_out": {"split": split}} for seed in (0, 1)} for row in rows
    }
    costs = {row["name"]: {"parameters": 1.0, "tokens": 1.0, "words": 1.0} for row in rows}
    return caveats(rows, configs, results, costs, {"seeds": [0, 1], "questions": list(questions)}, {})


def test_a_text_without_a_test_part_is_said():
    rows = [{"name": "a", "recipe": find_recipe("lstm-tiny").model_dump()}]
    assert not any("no test part" in line for line in caveats_of(rows))
    assert any("no test part" in line for line in caveats_of(rows, split="valid"))


def test_what_was_asked_late_is_said():
    rows = [{"name": "a", "recipe": find_recipe("lstm-tiny").model_dump()}]
    questions = [{"name": "early?", "late": False}, {"name": "late?", "late": True}]
    (told,) = [line for line in caveats_of(rows, questions) if line.startswith("asked when there were results")]
    assert told.endswith(": late?")


def test_planted_noise_without_seeds_names_a_winner(monkeypatch):
    """If the spread between seeds were left out, luck would look like skill."""
    random = np.random.default_rng(1)
    lucky = {
        name: np.full((3, 2000), level) + random.normal(size=(3, 2000)) for name, level in (("a", 0.0), ("b", 0.0))
    }
    lucky["a"] += np.array([[0.9], [0.0], [0.0]])
    figure = Figure("score", False, lucky, {})
    assert figure.leaders() == ["a", "b"]
    monkeypatch.setattr(tables, "leaders", lambda values, lower: [int(np.argmax([each.value for each in values]))])
    assert figure.leaders() == ["a"]


def test_lower_is_better_where_it_is():
    figure = Figure("bits", True, {"a": np.array([2.0, 2.01, 1.99]), "b": np.array([1.5, 1.51, 1.49])}, {})
    assert figure.leaders() == ["b"]


def test_one_seed_has_no_interval_and_no_mark():
    figure = Figure("bits", True, {"a": np.array([2.0]), "b": np.array([1.0])}, {})
    assert figure.leaders() == ["a", "b"] and shown(figure, "b", figure.leaders()) == "1.0000"


def test_losses_are_drawn_together_only_where_they_mean_the_same():
    configs = {"a": {"tokenizer": "x"}, "b": {"tokenizer": "x"}, "c": {"tokenizer": "y"}, "d": {"tokenizer": "x"}}

    def told(row: str, name: str, **settings: object) -> str:
        return meaning({"name": row, "recipe": {"objective": {"name": name, **settings}}}, configs)

    causal = told("a", "next-token", tie=True)
    assert causal == told("b", "next-token", tie=False, bias=True)
    assert causal != told("c", "next-token", tie=True), "another tokenizer"
    assert causal != told("d", "masked", rate=0.15) != told("d", "masked", rate=0.4)


def masked_titles(**second: object) -> list[str]:
    """Of two rows that hide tokens alike, but for what is given."""
    batches = {"length": 128, "budget": 8192}
    objective = {"name": "next-sentence"} | {key: second[key] for key in second if key not in batches}
    rows = [
        {"name": "a", "recipe": {"objective": {"name": "masked", "rate": 0.15}, "batches": batches}},
        {
            "name": "b",
            "recipe": {"objective": objective, "batches": {key: second.get(key, batches[key]) for key in batches}},
        },
    ]
    results = {name: {0: {"held_out": {"masked_perplexity": 40.0}}} for name in "ab"}
    return [figure.name for figure in masked_figures(rows, results, {name: {"tokenizer": "x"} for name in "ab"})]


def test_masked_perplexities_are_compared_only_of_the_same_guesses():
    assert masked_titles() == ["masked perplexity"], "pairs of sentences or not: words are guessed in single passages"
    for other in ({"rate": 0.4}, {"unit": "word"}, {"keep": 0.0}, {"static": True}, {"length": 64}, {"budget": 4096}):
        assert len(masked_titles(**other)) == 2, other


def test_the_pareto_line():
    points = {"a": (1.0, 5.0), "b": (2.0, 6.0), "c": (3.0, 4.0), "d": (3.0, 4.5), "e": (9.0, 1.0)}
    assert pareto(points) == ["a", "c", "e"]


def test_nested_values_are_named_by_their_path():
    assert flat({"a": {"b": 1, "c": {"d": 2}}, "e": 3}) == {"a.b": 1, "a.c.d": 2, "e": 3}


def test_a_row_without_a_figure_is_a_dash():
    assert shown(Figure("bits", True, {"a": np.array([1.0, 1.1])}, {"b": "why"}), "b", []) == "–"


@pytest.mark.parametrize("values", [np.array([0.5, 0.6, 0.7]), np.array([[0.0, 1.0], [1.0, 1.0], [1.0, 0.0]])])
def test_means_are_what_is_shown(values):
    assert Figure("x", False, {"a": values}, {}).interval("a").value == pytest.approx(values.mean())


def test_a_suite_has_one_accuracy():
    """Its kinds have different numbers of pairs: what the run itself tells, and curves show, is what the table has."""
    pairs = [MinimalPair(f"{i} good", f"{i} bad", f"f:{i}", "many" if i else "one", None, None) for i in range(5)]
    found = score_minimal_pairs(pairs, lambda texts, places: [float(text != "0 bad") for text in texts])
    result = {"suites": {"pairs": {key: value for key, value in found.items() if key != "items"}}}
    row = {"name": "a", "recipe": {"objective": {"name": "next-token"}}}
    items = {"a": {0: {"pairs": np.asarray(found["items"], np.float32)}}}
    figure = suite_figure({"name": "pairs"}, [row], {"a": {0: result}}, items)
    assert figure.interval("a").value == pytest.approx(found["accuracy"]) == 0.6
    assert found["by_set"] == {"many": 0.5, "one": 1.0}, "whose mean is another"


# ---- what is random, and what is not


def check_copies():
    """An n-gram with several seeds, and rows that happened to score alike: an interval over items, no p of 0, no winner."""
    one = (np.random.default_rng(0).random((1, 80)) < 0.8).astype(float)
    values = {"n-gram": np.repeat(one, 2, 0), "LSTM": np.repeat(one, 2, 0)}
    figure = Figure("pairs", False, values, {}, frozenset(["n-gram"]), outcomes=True)
    assert figure.leaders() == ["n-gram", "LSTM"]
    (found,) = figure.differences()
    assert found[3] == 1 and found[2].interval.low < found[2].interval.high
    alone = figure.interval("n-gram")
    assert 0.05 < alone.high - alone.low < 0.3, "that of 80 items"
    scores = Figure("score", False, {"a": np.array([0.5, 0.5]), "b": np.array([0.7, 0.7])}, {})
    assert scores.leaders() == ["a", "b"] and not scores.interval("a").is_bounded and scores.differences()[0][3] == 1


def test_copies_are_no_certainty():
    check_copies()


def test_planted_copies_that_count_as_seeds_name_a_winner(monkeypatch):
    """Divided by a variance of zero, any difference is certain."""

    def certain(values, lower):
        return [int(np.argmax([each.value for each in values]))]

    monkeypatch.setattr(tables, "leaders", certain)
    with pytest.raises(AssertionError):
        check_copies()


def test_a_deterministic_row_needs_no_second_seed():
    random = np.random.default_rng(0)
    values = {"n-gram": random.normal(size=(1, 50)), "LSTM": 3 + random.normal(size=(3, 50))}
    figure = Figure("score", False, values, {}, frozenset(["n-gram"]))
    assert figure.interval("n-gram").is_bounded and figure.leaders() == ["LSTM"]
    assert not figure._replace(deterministic=frozenset()).interval("n-gram").is_bounded
    assert "n-gram is deterministic" in figure.method()


def figure_with_sets(fixed: bool = False) -> Figure:
    random = np.random.default_rng(0)
    group = np.repeat(np.arange(20), 30)
    hard = random.normal(size=20)[group]
    values = {name: (hard + random.normal(size=(3, 600)) > 0).astype(float) for name in "ab"}
    return Figure("blimp", False, values, {}, outcomes=True, sets=group, fixed_sets=fixed)


def test_both_intervals_of_sets_are_shown():
    figure = figure_with_sets()
    by_set, by_item = figure.interval("a"), figure.interval("a", by_item=True)
    assert by_set.value == pytest.approx(by_item.value) and by_set.high - by_set.low > 2 * (by_item.high - by_item.low)
    cell = shown(figure, "a", [])
    assert cell.endswith(f"± {(by_set.high - by_set.low) / 2:.4f} / {(by_item.high - by_item.low) / 2:.4f}")
    assert "20 sets" in figure.method()
    made = figure_with_sets(fixed=True)
    assert made.interval("a") == by_item and " / " not in shown(made, "a", []), (
        "of pairs that are made here all kinds are there"
    )


def test_pooled_seeds_are_said():
    random = np.random.default_rng(1)
    values = {name: random.normal(size=3) for name in "abcd"}
    assert "pooled over a, b, c, d" in Figure("x", False, values, {}).method()
    assert "not pooled over a, b, c, d" in Figure("x", False, values | {"d": 100 * values["d"]}, {}).method()


def bits(with_documents: bool, epochs: float = 1.0) -> tuple[Figure, list[str]]:
    rows = [
        {"name": "n-gram", "recipe": {"objective": {"name": "counts"}}},
        {"name": "GPT", "recipe": {"objective": {"name": "next-token"}}},
    ]
    random = np.random.default_rng(0)
    sizes = random.integers(50, 500, 30)
    found = {row: {seed: random.normal(2, 0.2, 30) * sizes for seed in (0, 1)} for row in ("n-gram", "GPT")}
    found["n-gram"][1] = found["n-gram"][0]
    results = {
        row: {
            seed: {"held_out": {"bits_per_byte": each.sum() / sizes.sum()}, "metrics": {"epochs": epochs}}
            for seed, each in seeds.items()
        }
        for row, seeds in found.items()
    }
    items = {
        row: {
            seed: {"documents.bits": x, "documents.bytes": sizes} if with_documents else {} for seed, x in seeds.items()
        }
        for row, seeds in found.items()
    }
    figure = bits_figure(rows, results, items)
    for row in found:
        means = [each["held_out"]["bits_per_byte"] for each in results[row].values()]
        assert figure.interval(row).value == pytest.approx(np.mean(means))
    return figure, without_items([figure], items)


def test_documents_are_the_items_of_bits_per_byte():
    figure, told = bits(with_documents=True)
    assert figure.values["GPT"].shape == (2, 30) and not told
    assert figure.interval("n-gram").is_bounded and figure.interval("n-gram").low < figure.interval("n-gram").high
    assert figure.deterministic == {"n-gram"}
    assert not bits(with_documents=True, epochs=0.5)[0].deterministic, (
        "which half of the text it counts depends on the seed"
    )


def test_results_without_documents_are_still_collected():
    figure, told = bits(with_documents=False)
    assert figure.values["GPT"].shape == (2,) and figure.interval("GPT").is_bounded
    assert not figure.interval("n-gram").is_bounded and figure.leaders() == ["n-gram", "GPT"]
    assert len(told) == 1 and "earlier version" in told[0]

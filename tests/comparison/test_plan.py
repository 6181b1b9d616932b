"""Plans: everything that is wrong is said at once, sizes are solved for, what cannot be equal is refused."""

import pytest

from seqloom.batches.prepare import prepare
from seqloom.comparison import solve
from seqloom.comparison.plan import PlanConfig, check, read_plan, tokens_of
from seqloom.comparison.plans import CLASSROOM, find_plan, quick_plan
from seqloom.comparison.resolve import resolve_rows
from seqloom.comparison.solve import nearest, sample_sizes
from seqloom.config import build, to_toml
from seqloom.errors import UsageError
from seqloom.runs.corpus import Corpus
from tests.comparison.plans import BERT, GPT, LSTM, NGRAM, plan_of, values, write_text


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("plan") / "text.txt")


@pytest.fixture(scope="module")
def data(text):
    prepare([text], text.parent / "data", vocab_size=300, valid=0.1, test=0.1)
    return text.parent / "data"


def rows_of(plan, data):
    return {row.name: row for row in resolve_rows(plan, {tokens_of(plan, row): data for row in plan.rows})}


def size(row, data):
    recipe = row.recipe
    return recipe.learner(Corpus.open(recipe, data).vocab_size).size()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rows": []}, ["rows"]),
        ({"rows": [{"recipe": "lstm-tinny"}]}, ["lstm-tinny", "did you mean 'lstm-tiny'"]),
        ({"rows": [LSTM, LSTM]}, ["two rows are called 'LSTM'"]),
        ({"rows": [LSTM, LSTM | {"name": "lstm?"}, LSTM | {"name": "lstm!"}]}, ["differ only in punctuation"]),
        ({"rows": [{"recipe": "transformer-tiny"}]}, ["labelled examples"]),
        ({"rows": [LSTM | {"settings": ["model.dmi=3"]}]}, ["row 'LSTM'", "model.dmi", "did you mean 'dim'"]),
        ({"suites": {"glue": "x"}}, ["unknown suite 'glue'", "blimp"]),
        ({"tasks": [{"task": "sing", "train": ["a"], "test": ["b"]}]}, ["unknown task 'sing'", "classify"]),
        ({"seeds": 0}, ["seeds"]),
        ({"seeds": [1, 1]}, ["seeds"]),
        ({"seeds": 10**15}, ["seeds: 1,000,000,000,000,000 are more than 1,000"]),
        ({"seeds": list(range(1001))}, ["seeds: 1,001 are more than 1,000"]),
        ({"parameters": 1e15}, ["'parameters' = 1000000000000000.0", "less than or equal to 1000000000000"]),
        ({"budget": {"tokens": 1e300}}, ["budget.tokens = 1e+300 is more than 1e+15"]),
        ({"budget": {"tokens": 3e3, "flops": 1e40}}, ["budget.flops = 1e+40 is more than 1e+30"]),
        ({"budget": {"steps": 3}}, ["budget.steps is not an equal budget"]),
        ({"budget": {"tokens": 3e3, "minutes": 1}}, ["give one budget"]),
        ({"budget": {"tokens": 3e3, "flops": 1e9}, "parameters": 1e4}, ["leave one out"]),
        ({"text": {"files": ["a"], "built_in": True}}, ["one of files, built_in and prepared"]),
        ({"text": {"built_in": True, "tokenizer": "sylables"}}, ["sylables"]),
        ({"milestones": ["pairs", "blimp"], "pairs": 5}, ["this plan has no suite 'blimp' (it has: pairs)"]),
        (
            {"rows": [LSTM | {"bar": 1}]},
            ["'rows.0.bar' (known: grow, joint, name, recipe, search, settings, tokenizer, vocab_size)"],
        ),
        ({"rows": [LSTM | {"name": "L" * 101}]}, ["rows.0.name", "at most 100 characters"]),
        ({"questions": [{"name": "Why?", "rows": ["LSTM", "GTP"]}]}, ["question 'Why?': unknown row 'GTP'", "'GPT'"]),
        ({"questions": [{"name": "Why?", "rows": ["LSTM", "LSTM"]}]}, ["question 'Why?' asks about one row twice"]),
        ({"questions": [{"name": "Why?", "rows": ["LSTM"]}]}, ["questions.0.rows"]),
        (
            {
                "questions": [
                    {"name": name, "rows": rows} for name, rows in (("1", ["LSTM", "GPT"]), ("2", ["GPT", "LSTM"]))
                ]
            },
            ["two questions are about the same rows"],
        ),
        (
            {"questions": [{"name": "Why?", "rows": ["LSTM", row]} for row in ("GPT", "n-gram")]},
            ["two questions have the same name"],
        ),
        ({"rwos": [LSTM]}, ["rwos", "did you mean 'rows'"]),
    ],
)
def test_what_is_wrong_is_named(changes, words, text):
    with pytest.raises(UsageError) as refused:
        check(build(PlanConfig, values(text, **changes), source="plan"), "plan")
    assert all(word in str(refused.value) for word in words), str(refused.value)


def test_all_mistakes_at_once(text):
    wrong = values(text, rows=[LSTM | {"settings": ["model.dmi=3"]}, {"recipe": "gptt"}], suites={"glue": "x"})
    with pytest.raises(UsageError) as refused:
        check(build(PlanConfig, wrong), "plan")
    assert all(word in str(refused.value) for word in ("dmi", "gptt", "glue"))


def test_files_are_named_from_where_the_plan_is(tmp_path):
    (tmp_path / "plans").mkdir()
    task = {"task": "classify", "train": ["train.jsonl"], "test": ["test.jsonl"]}
    given = values(tmp_path, text={"files": ["../corpus.txt"]}, tasks=[task], suites={"blimp": "blimp.jsonl"})
    (tmp_path / "plans" / "plan.toml").write_text(to_toml(given))
    plan = read_plan(tmp_path / "plans" / "plan.toml")
    assert plan.text.files == (str(tmp_path / "plans" / "../corpus.txt"),)
    assert plan.tasks[0].train == (str(tmp_path / "plans/train.jsonl"),)
    assert plan.suites["blimp"] == str(tmp_path / "plans/blimp.jsonl")


def test_an_unknown_plan_is_named():
    for name, words in (("clasroom", "did you mean 'classroom'"), ("none.toml", "no such plan")):
        with pytest.raises(UsageError, match=words):
            find_plan(name)


def test_the_built_in_plans_are_plans():
    assert [row.name for row in find_plan("classroom").rows] == list(CLASSROOM)
    check(find_plan("classroom"), "classroom")
    assert quick_plan(2.0, 7).chosen_seeds() == [7]
    assert quick_plan(2.0).budget.words == 2 * quick_plan(1.0).budget.words


@pytest.mark.parametrize("parameters", [5e5, 1e6])
def test_equal_parameters(parameters, text, data):
    plan = plan_of(text, parameters=parameters, rows=[LSTM, GPT, {"recipe": "big-lstm-tiny"}, NGRAM])
    rows = rows_of(plan, data)
    for name in ("LSTM", "GPT", "big-lstm-tiny"):
        assert size(rows[name], data) == pytest.approx(parameters, rel=0.05)
        assert f"model.dim = {rows[name].recipe.model['dim']}" in rows[name].solved
    assert "count-based" in rows["n-gram"].solved


def test_round_widths_where_they_are_near_enough(text, data):
    rows = rows_of(plan_of(text, parameters=1e6, rows=[LSTM, GPT]), data)
    assert rows["LSTM"].recipe.model["dim"] % 8 == 0
    assert size(rows["LSTM"], data) == pytest.approx(1e6, rel=0.025)
    small = rows_of(plan_of(text, parameters=2.5e4, rows=[GPT]), data)
    assert small["GPT"].recipe.model["dim"] % 16, "no multiple of sixteen is near"
    assert size(small["GPT"], data) == pytest.approx(2.5e4, rel=0.05)


def test_depth_can_grow_instead(text, data):
    deep = GPT | {"grow": "num_layers"}
    rows = rows_of(plan_of(text, parameters=2e4, rows=[deep], tolerance=0.1), data)
    assert rows["GPT"].recipe.model["dim"] == 16 and rows["GPT"].recipe.model["num_layers"] > 1


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parameters": 100}, "no size has 100 parameters"),
        ({"parameters": 2e4, "rows": [LSTM | {"grow": "colour"}]}, "'colour' is not a size of lstm"),
        ({"parameters": 1e12, "rows": [GPT | {"grow": "num_layers"}]}, "no size up to 1,024 reaches 1e.12"),
        ({"budget": {"tokens": 20}}, "smaller than one batch"),
        ({"budget": {"tokens": 3000, "flops": 1e3}}, "no size has 1000 FLOPs"),
    ],
)
def test_what_cannot_be_equal_is_refused(changes, words, text, data):
    with pytest.raises(UsageError, match=words):
        rows_of(plan_of(text, **changes), data)


def test_the_nearest_size():
    assert nearest(lambda n: n * n, 90, 1) == 9
    assert nearest(lambda n: n * n, 91, 1) == 10
    assert nearest(lambda n: n * n, 90, 4) == 8
    assert nearest(lambda n: n * n, 0.5, 3) == 3


def test_operations_are_those_of_the_text(text, data, monkeypatch):
    """Twice as many for twice the text, and solved sizes cost what they should: the run's own count says so."""
    plan = plan_of(text, budget={"tokens": 3000, "flops": 1e9}, rows=[LSTM, GPT])
    rows = rows_of(plan, data)
    for row in rows.values():
        assert row.recipe.budget.tokens == 3000 and row.recipe.budget.flops is None
        recipe = row.recipe
        sizes = sample_sizes(Corpus.open(recipe, data))
        learner = recipe.learner(Corpus.open(recipe, data).vocab_size)
        flops = solve.cost.of_training(learner)(sizes) * 3000 / sizes.tokens
        assert flops == pytest.approx(1e9, rel=0.05)


def test_operations_are_those_of_the_whole_run(text, data):
    """The first half of its passages has 16 tokens at most, the second 64; the first batches alone would not tell."""
    short = BERT | {"settings": [*BERT["settings"], "batches.short=16", "batches.short_share=0.5"]}
    plan = plan_of(text, budget={"epochs": 1}, rows=[short])
    recipe = rows_of(plan, data)["BERT"].recipe
    sizes = sample_sizes(Corpus.open(recipe, data))
    assert sizes.pairs / sizes.read > 16, "the mean length that a token sees"

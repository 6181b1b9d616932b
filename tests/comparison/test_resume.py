"""What is there of a comparison: results that lack something are measured again, those of something else are refused."""

import pytest

from seqloom.comparison import resume
from seqloom.comparison.folder import plan_path, result_path, run_path
from seqloom.comparison.records import NO_EARLIER_PLAN, ResolvedPlan, Row, SuiteRecord, TaskRecord
from seqloom.comparison.resume import check_same, hash_content, read_earlier_plan
from seqloom.errors import UsageError
from seqloom.evaluate.suites import write_arrays
from seqloom.files import write_json
from seqloom.recipes.library import find_recipe
from tests.comparison.results import RESULT

RECIPE = find_recipe("lstm-tiny", ["model.dim=16"])
ROW = Row(name="LSTM", recipe=RECIPE, data="data/bpe", fingerprint="abc", place="LSTM")
PAIRS = {"name": "pairs", "suite": "blimp", "data": "pairs-5.jsonl", "content": "5 of each kind"}
TASK = {
    "name": "tone",
    "place": "tone",
    "task": "classify",
    "train": ["a"],
    "valid": [],
    "test": ["b"],
    "how": "finetune",
    "settings": [],
    "content": {"train": ["1"]},
}
PLAN = ResolvedPlan.model_construct(
    rows=(ROW,),
    seeds=(0, 1),
    suites=(SuiteRecord(**PAIRS),),
    tasks=(TaskRecord(**TASK),),
    milestones=("pairs",),
)
BY = {"suites": [PAIRS], "tasks": [TASK], "milestones": ["pairs"]}


def recipe_with(**model):
    values = RECIPE.model_dump()
    return values | {"model": values["model"] | model}


def there(folder, by, recipe=RECIPE.model_dump(), text="abc"):
    """A finished row with one seed."""
    for path in (run_path(folder, "LSTM", 0), result_path(folder, "LSTM", 0).parent):
        path.mkdir(parents=True)
    write_json(
        run_path(folder, "LSTM", 0) / "config.json", {"format": 1, "recipe": recipe, "data": {"fingerprint": text}}
    )
    write_json(result_path(folder, "LSTM", 0), RESULT | ({"by": by} if by is not None else {}))
    write_arrays(result_path(folder, "LSTM", 0).with_suffix(".npz"), {})


@pytest.mark.parametrize(
    ("by", "stays"),
    [
        (BY, True),
        (
            BY | {"suites": [PAIRS | {"data": "there/pairs"}], "tasks": [TASK | {"train": ["there/a"]}]},
            True,
        ),  # taken elsewhere
        (BY | {"suites": [PAIRS, {"name": "blimp", "suite": "blimp", "data": "b.jsonl"}]}, True),  # left out since
        (BY | {"suites": []}, False),
        (BY | {"tasks": []}, False),
        (BY | {"milestones": []}, False),
        (None, False),  # as results once were
    ],
)
def test_what_a_result_lacks_is_measured_again(by, stays, tmp_path):
    there(tmp_path, by)
    check_same(tmp_path, PLAN, NO_EARLIER_PLAN)
    assert result_path(tmp_path, "LSTM", 0).exists() == stays and run_path(tmp_path, "LSTM", 0).exists()


CHANGES = [
    ({"recipe": recipe_with(dim=20)}, "row 'LSTM' was different (recipe.model.dim = 20, now 16)"),
    ({"recipe": recipe_with(bias=True)}, "(recipe.model.bias = True, now None)"),
    ({"text": "x" * 64}, f"row 'LSTM' was different (text = {'x' * 39}…, now abc)"),
    ({"by": BY | {"suites": [PAIRS | {"content": "6"}]}}, "suite 'pairs' was different (content = 6, now 5 of"),
    ({"by": BY | {"tasks": [TASK | {"content": {"train": ["2"]}}]}}, "(content.train = ['2'], now ['1'])"),
    (
        {"by": BY | {"tasks": [TASK | {"task": "regress"}]}},
        "task 'tone' was different (task = regress, now classify",
    ),
]


@pytest.mark.parametrize(("changes", "words"), CHANGES)
def test_what_is_of_something_else_is_refused(changes, words, tmp_path):
    there(tmp_path, **{"by": BY} | changes)
    with pytest.raises(UsageError) as refused:
        check_same(tmp_path, PLAN, NO_EARLIER_PLAN)
    assert words in str(refused.value) and "--overwrite" in str(refused.value)
    assert result_path(tmp_path, "LSTM", 0).exists(), "nothing is lost"


@pytest.mark.parametrize(("changes", "words"), CHANGES)
def test_planted_names_alone_tell_nothing(changes, words, tmp_path, monkeypatch):
    monkeypatch.setattr(resume, "describe_changes", lambda kind, before, now: [])
    with pytest.raises(pytest.fail.Exception):
        test_what_is_of_something_else_is_refused(changes, words, tmp_path)


def test_files_are_known_by_what_they_hold(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "a.tsv").write_text("1")
        (folder / "b.tsv").write_text("2")
    assert hash_content(one / "a.tsv") == hash_content(other / "a.tsv") and hash_content(one) == hash_content(other)
    (other / "b.tsv").write_text("3")
    assert hash_content(one / "b.tsv") != hash_content(other / "b.tsv") and hash_content(one) != hash_content(other)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_task_may_be_corrected_until_it_is_begun(is_begun, tmp_path):
    write_json(plan_path(tmp_path), {"rows": [], "tasks": [TASK | {"settings": ["task.lm=1"]}]})
    earlier = read_earlier_plan(tmp_path)
    if is_begun:
        (tmp_path / "tasks" / "tone").mkdir(parents=True)
        with pytest.raises(UsageError, match="task 'tone' was different"):
            check_same(tmp_path, PLAN, earlier)
    else:
        check_same(tmp_path, PLAN, earlier)

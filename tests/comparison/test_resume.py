"""What is there of a comparison: results that lack something are measured again, those of something else are refused."""

import pytest

from seqloom.comparison import resume as begun
from seqloom.comparison.job import result_of, run_of
from seqloom.comparison.resume import RESULT, check_same, content
from seqloom.errors import UsageError
from seqloom.evaluate.suites import write_arrays
from seqloom.files import write_json

ROW = {"name": "LSTM", "place": "LSTM", "recipe": {"model": {"dim": 16}}, "fingerprint": "abc"}
PAIRS = {"name": "pairs", "suite": "blimp", "data": "pairs-5.jsonl", "content": "5 of each kind"}
TASK = {
    "name": "tone",
    "place": "tone",
    "task": "classify",
    "settings": [],
    "train": ["a"],
    "content": {"train": ["1"]},
}
PLAN = {"rows": [ROW], "seeds": [0, 1], "suites": [PAIRS], "tasks": [TASK], "milestones": ["pairs"]}
BY = {kind: PLAN[kind] for kind in ("suites", "tasks", "milestones")}


def there(folder, by, recipe=ROW["recipe"], text="abc"):
    """A finished row with one seed."""
    for path in (run_of(folder, "LSTM", 0), result_of(folder, "LSTM", 0).parent):
        path.mkdir(parents=True)
    write_json(
        run_of(folder, "LSTM", 0) / "config.json", {"format": 1, "recipe": recipe, "data": {"fingerprint": text}}
    )
    found = dict.fromkeys(RESULT)
    write_json(result_of(folder, "LSTM", 0), found | ({"by": by} if by is not None else {}))
    write_arrays(result_of(folder, "LSTM", 0).with_suffix(".npz"), {})


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
    check_same(tmp_path, PLAN)
    assert result_of(tmp_path, "LSTM", 0).exists() == stays and run_of(tmp_path, "LSTM", 0).exists()


CHANGES = [
    ({"recipe": {"model": {"dim": 20}}}, "row 'LSTM' was something else (recipe.model.dim = 20, now 16)"),
    ({"recipe": {"model": {"dim": 16, "bias": True}}}, "(recipe.model.bias = True, now None)"),
    ({"text": "x" * 64}, f"row 'LSTM' was something else (text = {'x' * 39}…, now abc)"),
    ({"by": BY | {"suites": [PAIRS | {"content": "6"}]}}, "suite 'pairs' was something else (content = 6, now 5 of"),
    ({"by": BY | {"tasks": [TASK | {"content": {"train": ["2"]}}]}}, "(content.train = ['2'], now ['1'])"),
    (
        {"by": BY | {"tasks": [TASK | {"task": "regress"}]}},
        "task 'tone' was something else (task = regress, now classify",
    ),
]


@pytest.mark.parametrize(("changes", "words"), CHANGES)
def test_what_is_of_something_else_is_refused(changes, words, tmp_path):
    there(tmp_path, **{"by": BY} | changes)
    with pytest.raises(UsageError) as refused:
        check_same(tmp_path, PLAN)
    assert words in str(refused.value) and "--overwrite" in str(refused.value)
    assert result_of(tmp_path, "LSTM", 0).exists(), "nothing is lost"


@pytest.mark.parametrize(("changes", "words"), CHANGES)
def test_planted_names_alone_tell_nothing(changes, words, tmp_path, monkeypatch):
    monkeypatch.setattr(begun, "differing", lambda kind, before, now: [])
    with pytest.raises(pytest.fail.Exception):
        test_what_is_of_something_else_is_refused(changes, words, tmp_path)


def test_files_are_known_by_what_they_hold(tmp_path):
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / "a.tsv").write_text("1")
        (folder / "b.tsv").write_text("2")
    assert content(one / "a.tsv") == content(other / "a.tsv") and content(one) == content(other)
    (other / "b.tsv").write_text("3")
    assert content(one / "b.tsv") != content(other / "b.tsv") and content(one) != content(other)


@pytest.mark.parametrize("is_begun", [False, True])
def test_a_task_may_be_corrected_until_it_is_begun(is_begun, tmp_path):
    write_json(tmp_path / "plan.json", PLAN | {"tasks": [TASK | {"settings": ["task.lm=1"]}]})
    if is_begun:
        (tmp_path / "tasks" / "tone").mkdir(parents=True)
        with pytest.raises(UsageError, match="task 'tone' was something else"):
            check_same(tmp_path, PLAN)
    else:
        check_same(tmp_path, PLAN)

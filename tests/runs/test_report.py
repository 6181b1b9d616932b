"""Pages about runs: what is damaged is said in one line."""

import pytest

from seqloom.errors import ModelError
from seqloom.runs import report
from seqloom.runs.report import score_parts

DAMAGED = ["{", "[]", '{"valid_scores": 3}', '{"valid_scores": {"bleu": "x"}}', '{"test_scores": {"bleu": 1}}']


def check_damaged(folder, text):
    (folder / "metrics.json").write_text(text)
    with pytest.raises(ModelError, match=r"metrics\.json is damaged \(.*\): remove it") as refused:
        score_parts(folder)
    assert refused.value.exit_code == 4 and "\n" not in str(refused.value)


@pytest.mark.parametrize("text", DAMAGED)
def test_damaged_metrics_are_one_line(text, tmp_path):
    check_damaged(tmp_path, text)


@pytest.mark.parametrize("text", DAMAGED[2:])
def test_planted_unguarded_scores_are_noticed(text, tmp_path, monkeypatch):
    monkeypatch.setattr(report, "ModelError", RuntimeError)
    with pytest.raises(RuntimeError):
        check_damaged(tmp_path, text)


def test_a_run_without_scores_has_none(tmp_path):
    (tmp_path / "metrics.json").write_text('{"valid_scores": null}')
    assert score_parts(tmp_path) == []

"""The page about a run that tells something about texts, and its card. Strangers' texts stay texts."""

import json

import numpy as np
import pytest

from seqloom.charts import draw, pages
from seqloom.evaluate.items import Item, ItemScores, Score
from seqloom.metrics.intervals import bootstrap
from seqloom.runs import task_report
from seqloom.runs.card import SCORES
from seqloom.runs.load import load_predictor
from seqloom.runs.task_report import confusion, mistakes, score_row, split_section, training_curves, write_task_report
from seqloom.runs.training import train
from tests.pages import Page, check_page
from tests.tasks.labelled import examples, write

SMALL = ["model.dim=16", "budget={epochs=2}", "train.log_every=1"]
EVIL = "<script>alert(1)</script>"


def trained(folder, task="classify", rows=None, settings=(), name="run"):
    files = {}
    ending = "json" if task == "span" else "jsonl"
    for seed, (split, count) in enumerate({"train": 40, "valid": 20, "test": 20}.items()):
        files[split] = [folder / f"{split}.{ending}"]
        write(files[split][0], task, rows or examples(task, count, seed))
    run = train(
        "bert-tiny", task, files["train"], folder / name, valid=files["valid"], test=files["test"], tokenizer="word",
        device="cpu", settings=[*SMALL, "model.num_layers=2", "model.num_heads=2", *settings],
    )  # fmt: skip
    return run, files


@pytest.mark.parametrize("task", ["classify", "regress", "choose", "span"])
def test_it_is_written_at_the_end(tmp_path, task):
    run, _files = trained(tmp_path, task)
    source = (run.folder / "report.html").read_text()
    page = check_page(source)
    assert (
        "valid: 20 examples" in page.text
        and "test: 20 examples" in page.text
        and "the most frequent answer" in page.text
    )
    assert "Loss" in page.text and "Score" in page.text and "Mistakes" in page.text
    scores = json.loads((run.folder / "metrics.json").read_text())["test_scores"]
    assert f"{scores[run.learner.main_metric]:.4f}" in page.text
    assert ("Confusion matrix (rows: gold, columns: predicted)" in page.text) == (task in ("classify", "choose"))


def evil():
    return [
        each._replace(texts=(f"{EVIL} & {each.texts[0]}",), label=f"<b>{each.label}")
        for each in examples("classify", 40)
    ]


def check_escaped(folder):
    run, files = trained(folder, rows=evil(), settings=["train.optim.lr=1e-9"])  # it learns nothing: half is wrong
    page = check_page(write_task_report(run, files).read_text())
    assert "b" not in page.tags
    assert EVIL in page.text and "<b>good" in page.text


def test_strangers_texts_and_labels_are_escaped(tmp_path):
    check_escaped(tmp_path)


@pytest.mark.parametrize("module", [task_report, draw, pages])
def test_planted_raw_texts_are_noticed(tmp_path, monkeypatch, module):
    monkeypatch.setattr(module, "escaped", lambda text: text)
    with pytest.raises(AssertionError):
        check_escaped(tmp_path)


def test_escaped_in_questions_and_choices(tmp_path):
    rows = [each._replace(question=EVIL, context=f"{EVIL} {each.context}", answers=[(EVIL, 0)], impossible=False)
            for each in examples("span", 30)]  # fmt: skip
    run, _files = trained(tmp_path, "span", rows, ["train.optim.lr=1e-9"])
    page = check_page((run.folder / "report.html").read_text())
    assert f"gold: {EVIL}" in page.text


def test_layers_of_the_mix(tmp_path):
    run, _files = trained(tmp_path, settings=["task.layers=mix", "task.pool=mean"])
    page = Page((run.folder / "report.html").read_text())
    assert "Weight of each layer" in page.text and "layer 2" in page.text and "layer 3" not in page.text
    for share in run.learner.mix.shares.tolist():
        assert f"{share:.3f}" in page.text


def test_a_finished_run_keeps_its_page_and_can_be_reported_anew(tmp_path):
    run, files = trained(tmp_path)
    again = load_predictor(run.folder, "cpu")
    first = (run.folder / "report.html").read_text()
    assert write_task_report(again, files).read_text() == first
    assert split_section(again, "valid", files["valid"]).body.count("<table") == 2


# ---- its parts


@pytest.mark.parametrize(
    ("right", "baseline", "told"), [(0.9, 0.5, ""), (0.52, 0.5, "at chance"), (0.1, 0.5, "below chance")]
)
def test_chance_is_marked(right, baseline, told):
    rows = (np.arange(200) < right * 200).astype(float)
    row = score_row("accuracy", Score(rows, None, baseline))
    interval = bootstrap(rows)
    assert row[1:4] == [f"{right:.4f}", f"{interval.low:.4f} – {interval.high:.4f}", "0.5000"]
    assert row[4].startswith(told) and bool(row[4]) == bool(told)


def test_the_most_confident_mistakes_come_first():
    items = [Item(f"text {i}", "a", "b", i / 100, i % 2 == 0) for i in range(100)]
    heading, *shown, _end = mistakes(ItemScores({}, items))
    assert "25 of 50" in heading and len(shown) == 25
    assert [text.split("\n")[0] for text in shown] == [f"<pre>text {i}" for i in range(98, 48, -2)]


def test_the_largest_classes_are_shown():
    labels = [f"class-{i:03}" for i in range(40)]
    counts = [[i + 1 if i == j else 0 for j in range(40)] for i in range(40)]
    shown = confusion(labels, counts)
    assert "class-039" in shown and "class-010" in shown and "class-009" not in shown and "30 largest of 40" in shown


def test_a_log_without_measurements(tmp_path):
    (tmp_path / "metrics.jsonl").write_text("")
    assert training_curves(tmp_path) == []


def test_the_card_has_the_scores(tmp_path):
    run, _files = trained(tmp_path)
    card = (run.folder / "card.md").read_text()
    scores = json.loads((run.folder / "metrics.json").read_text())["test_scores"]
    line = next(line for line in card.splitlines() if line.startswith("| test | accuracy"))
    assert all(f"{SCORES[key]} {scores[key]:.4f}" in line for key in ("accuracy", "f1", "mcc"))
    assert "2 classes; always the most frequent" in line and f"{scores['majority']:.4f}" in line
    assert "nats a token" not in card

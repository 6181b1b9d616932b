"""Class weights, thresholds, temperature and windows of long texts: from settings to predictions."""

import json

import numpy as np
import pytest
import torch

import seqloom
from seqloom import cli
from seqloom.batches.labelled import Examples, batch_of
from seqloom.errors import ModelError, UsageError
from seqloom.files import read_json, write_json
from seqloom.metrics.calibration import scale
from seqloom.runs import calibration
from seqloom.runs import examples as files
from seqloom.tasks.classify import Classify
from seqloom.text.labelled import Example
from tests.runs.test_training import QUICK
from tests.tasks.labelled import WORDS, examples, frame, learner, write

TINY = [*QUICK, "model.dim=24", "model.num_layers=1", "model.num_heads=3", "model.max_len=32", "batches.length=32"]


def noisy(rows):
    """Every eighth label is wrong, so that probabilities have something to say."""
    other = {"good": "bad", "bad": "good"}
    return [row._replace(label=other[row.label]) if i % 8 == 0 else row for i, row in enumerate(rows)]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("calibration")
    for seed, split in enumerate(("train", "valid", "test")):
        write(folder / f"{split}.jsonl", "classify", noisy(examples("classify", 40 if seed else 160, seed)))
    return folder


LEARNT = ["budget={epochs=30}", "train.optim.lr=0.01", "batches.examples=16"]


def trained(place, out, *settings, task="classify", **options):
    held_out = {split: place / f"{split}.jsonl" for split in ("valid", "test")}
    return seqloom.train(
        "bert-tiny", task, place / "train.jsonl", out, tokenizer="word", settings=[*TINY, *settings], device="cpu",
        **(held_out | options),
    )  # fmt: skip


@pytest.fixture(scope="module")
def plain(place):
    return trained(place, place / "plain", *LEARNT)


@pytest.fixture(scope="module")
def fitted(place):
    return trained(place, place / "fitted", *LEARNT, "task.calibrate=true", "task.threshold_class=good")


# ---- temperature and threshold


def test_nothing_is_fitted_unless_asked_for(plain):
    assert not (plain.folder / calibration.FILE).exists()
    assert plain.learner.temperature == 1 and plain.learner.threshold is None and plain.learner.weights is None
    assert set(plain.predict("the film")[0]) == {"label", "probabilities"}
    page = (plain.folder / "report.html").read_text()
    assert "Expected calibration error" in page and "are not calibrated" in page


def test_what_was_fitted_is_stored_and_used(place, plain, fitted):
    record = read_json(fitted.folder / calibration.FILE)
    assert record["examples"] == 40 and record["temperature"] != 1
    assert record["calibration_error"].keys() == {"before", "after"}
    texts = [each.texts[0] for each in examples("classify", 30, 9)]
    raw, found = plain.predict(texts), seqloom.load(fitted.folder, "cpu").predict(texts)
    # the same training: only what predictions say differs
    logits = np.log([list(each["probabilities"].values()) for each in raw])
    wanted = scale(logits, record["temperature"])
    assert [list(each["probabilities"].values()) for each in found] == pytest.approx(wanted, abs=2e-5)
    threshold = record["threshold"]["probability"]
    assert [each["label"] == "good" for each in found] == [each["probabilities"]["good"] >= threshold for each in found]
    scores = read_json(fitted.folder / "metrics.json")["valid_scores"]
    assert scores["per_class"]["good"]["f1"] == pytest.approx(record["threshold"]["f1"])
    assert fitted.evaluate(place / "valid.jsonl")["accuracy"] == scores["accuracy"]
    assert "fitted to valid" in (fitted.folder / "report.html").read_text()


def test_the_best_threshold_cannot_lower_f1(place, plain, fitted):
    before = plain.evaluate(place / "valid.jsonl")["per_class"]["good"]["f1"]
    assert fitted.evaluate(place / "valid.jsonl")["per_class"]["good"]["f1"] >= before


def test_a_planted_wrong_temperature_is_noticed(place, fitted, tmp_path, monkeypatch):
    """One of the probabilities, not of their logarithms."""
    class_logits = files.class_logits
    monkeypatch.setattr(files, "class_logits", lambda *given: scale(class_logits(*given), 1.0))
    wrong = trained(place, tmp_path / "wrong", *LEARNT, "task.calibrate=true")
    right = read_json(fitted.folder / calibration.FILE)["temperature"]
    assert read_json(wrong.folder / calibration.FILE)["temperature"] != pytest.approx(right, rel=0.01)


def test_a_temperature_that_cannot_be_fitted_stays_one(fitted, capsys):
    made = fitted.learner
    record = calibration.fit_calibration(made, np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([0, 1]))
    assert record["temperature"] == 1 and "it stays 1" in capsys.readouterr().err
    with pytest.raises(UsageError, match="no validation example is of this class"):
        calibration.fit_calibration(made, np.array([[5.0, 0.0], [0.0, 5.0]]), np.array([0, 0]))


def test_a_threshold_on_the_command_line(plain, tmp_path, capsys):
    (tmp_path / "a.txt").write_text("the film\na story\n")

    def labels(*options):
        assert cli.run(["predict", str(plain.folder), str(tmp_path / "a.txt"), *options]) == 0
        return [json.loads(line)["label"] for line in capsys.readouterr().out.splitlines()]

    assert labels("--threshold", "good=0") == ["good", "good"]
    assert labels("--threshold", "good=1") == ["bad", "bad"]
    for wrong, message in (
        ("0.5", "write it as CLASS=P"),
        ("goood=0.5", "did you mean 'good'"),
        ("good=2", "from 0 to 1"),
    ):
        assert cli.run(["predict", str(plain.folder), str(tmp_path / "a.txt"), "--threshold", wrong]) == 2
        assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "change",
    [{"temperature": 0}, {"temperature": "x"}, {"threshold": {"class": "none", "probability": 0.5}}, {"threshold": 3}],
)
def test_a_damaged_calibration_is_said(fitted, change):
    path = fitted.folder / calibration.FILE
    before = path.read_bytes()
    try:
        write_json(path, read_json(path) | change)
        with pytest.raises(ModelError, match=r"calibration\.json is damaged"):
            seqloom.load(fitted.folder, "cpu")
        path.write_text("{")
        with pytest.raises(ModelError, match=r"calibration\.json is damaged"):
            seqloom.load(fitted.folder, "cpu")
    finally:
        path.write_bytes(before)


def test_a_run_with_a_calibration_can_be_replaced(place, tmp_path):
    trained(place, tmp_path / "run", "task.calibrate=true")
    run = trained(place, tmp_path / "run", overwrite=True)
    assert not (run.folder / calibration.FILE).exists() and run.learner.temperature == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (["task.threshold_class=gut"], "unknown class in 'task.threshold_class'"),
        (["task.class_weights={gut=2.0}"], "unknown class in 'task.class_weights'"),
        (["task.class_weights=heavy"], "task.class_weights"),
        (["task.class_weights={good=0.0}"], "task.class_weights"),
    ],
)
def test_wrong_settings_are_said_before_training(place, tmp_path, settings, message):
    with pytest.raises(UsageError, match=message):
        trained(place, tmp_path / "run", *settings)
    assert not (tmp_path / "run").exists()


def test_what_needs_validation_files_or_classes_is_refused(place, tmp_path):
    with pytest.raises(UsageError, match="need --valid"):
        trained(place, tmp_path / "run", "task.calibrate=true", valid=())
    for task, setting in (
        ("regress", "task.calibrate=true"),
        ("choose", "task.class_weights=balanced"),
        ("pair", "task.long_texts=windows"),
    ):
        folder = tmp_path / task
        folder.mkdir()
        for split in ("train", "valid", "test"):
            write(folder / f"{split}.jsonl", task, examples(task, 8))
        with pytest.raises(UsageError, match=f"'{setting.split('=')[0]}' is for .*, not for {task}"):
            trained(folder, folder / "run", setting, task=task)


# ---- class weights


def test_weights_of_classes():
    some = [Example(("a",), label, None, "") for label in "aaab"]
    weights = Classify.configure({"name": "classify", "class_weights": "balanced"}, some)["class_weights"]
    assert weights == {"a": pytest.approx(2 / 3, abs=1e-5), "b": 2.0}, "every class counts the same, and the mean is 1"
    given = Classify.configure({"class_weights": {"b": 5.0}}, some)["class_weights"]
    assert given["b"] / given["a"] == pytest.approx(5, rel=1e-4) and 3 * given["a"] + given["b"] == pytest.approx(
        4, abs=1e-4
    )
    assert "class_weights" not in Classify.configure({}, some)


def test_weights_are_those_of_torch_and_of_training_only():
    made, rows = learner("classify", "bert", class_weights={"bad": 0.5, "good": 3.0}), examples("classify", 12)
    batch = batch_of(made.encode(rows, WORDS, frame(made))[0])
    with torch.no_grad():
        logits = made.logits(made.features(batch.batch)[0], batch)
    each = torch.nn.functional.cross_entropy(logits, batch.labels, reduction="none")
    weights = torch.tensor([0.5, 3.0])[batch.labels]
    assert made.train().loss(logits, batch).total == pytest.approx(float((each * weights).sum()), rel=1e-5)
    assert made.eval().loss(logits, batch).total == pytest.approx(float(each.sum()), rel=1e-5)
    assert not any("weights" in name for name in made.state_dict())


def test_a_run_with_weights_trains_and_loads(place, tmp_path):
    run = trained(place, tmp_path / "run", "task.class_weights=balanced")
    again = seqloom.load(run.folder, "cpu")
    assert again.learner.weights.mean() == pytest.approx(1, abs=0.1) and again.predict("the film") == run.predict(
        "the film"
    )


# ---- long texts


def long_text(count, word="film"):
    return " ".join(["good"] * 5 + [word] * (count - 5))


def test_windows_cover_a_text_evenly():
    made = learner("classify", "bert", long_texts="windows")
    held_out = frame(made)._replace(windows=True)
    room = held_out.room(1)
    for size in (1, room - 1, room, room + 1, 3 * room - 1, 3 * room, 1000):
        (rows,), cut = made.encode(
            [Example((long_text(size, "the") if size > 5 else "the " * size,), "good", None, "x")], WORDS, held_out
        )
        assert len(rows) == -(-size // room) and not cut
        assert all(len(row.ids) <= held_out.limit for row in rows)
        assert sum(int(row.own.sum()) for row in rows) >= size


def test_a_long_text_is_the_mean_of_its_windows(plain, tmp_path, capsys):
    words = long_text(70).split()
    room = plain.frame.room(1)
    count = -(-len(words) // room)
    starts = [round(i * (len(words) - room) / (count - 1)) for i in range(count)]
    parts = plain.predict([" ".join(words[start : start + room]) for start in starts])
    wanted = np.mean([list(each["probabilities"].values()) for each in parts], axis=0)
    (tmp_path / "a.txt").write_text(f"{' '.join(words)}\na story\n")
    assert cli.run(["predict", str(plain.folder), str(tmp_path / "a.txt"), "--long-texts", "windows"]) == 0
    told = capsys.readouterr()
    first, second = (json.loads(line) for line in told.out.splitlines())
    assert list(first["probabilities"].values()) == pytest.approx(wanted, abs=2e-5)
    assert (first["windows"], second["windows"]) == (count, 1)
    assert f"1 text is longer than 32 tokens and read in {count} windows, whose predictions are averaged" in told.err
    assert cli.run(["predict", str(plain.folder), str(tmp_path / "a.txt")]) == 0
    told = capsys.readouterr()
    assert "1 text is longer than 32 tokens and truncated" in told.err
    cut = json.loads(told.out.splitlines()[0])
    assert cut == plain.predict(" ".join(words[:room]))[0], "as before"
    assert cli.run(["predict", str(plain.folder), str(tmp_path / "a.txt"), "--long-texts", "all"]) == 2


@pytest.mark.parametrize("task", ["classify", "regress"])
def test_windows_in_training_evaluation_and_reports(tmp_path, task, capsys):
    for split in ("train", "valid", "test"):
        rows = examples(task, 12)
        rows[0] = rows[0]._replace(texts=(long_text(100),))
        write(tmp_path / f"{split}.jsonl", task, rows)
    run = trained(tmp_path, tmp_path / "run", "task.long_texts=windows", task=task)
    told = capsys.readouterr().err
    assert "train: 1 text is longer than 32 tokens and truncated" in told
    assert "valid: 1 text is longer than 32 tokens and read in 4 windows" in told
    again = seqloom.load(run.folder, "cpu")
    score = read_json(run.folder / "metrics.json")["test_scores"]["score"]
    assert again.evaluate(tmp_path / "test.jsonl")["score"] == pytest.approx(score)
    assert again.predict(long_text(100))[0]["windows"] == 4


def test_the_order_of_examples_changes_nothing(plain):
    """Examples of one window and of several share batches."""
    plain = seqloom.load(plain.folder, "cpu")
    plain.read_long_texts("windows")
    texts = [long_text(size) for size in (6, 200, 31, 64, 7, 90)]
    alone = [plain.predict(text)[0] for text in texts]
    for order in ([0, 1, 2, 3, 4, 5], [5, 3, 1, 0, 2, 4]):
        together = plain.predict([texts[i] for i in order])
        for i, found in zip(order, together, strict=True):
            assert list(found["probabilities"].values()) == pytest.approx(
                list(alone[i]["probabilities"].values()), abs=1e-5
            )
            assert found["windows"] == alone[i]["windows"]
    assert isinstance(plain.encoded([plain.learner.of_row({"text": texts[1]}, "x")], "predict"), Examples)

"""Results in Python: how they show themselves, how runs are called, and tables of pandas and datasets in and out."""

import json
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pandas
import pytest

import seqloom
from seqloom.batches.store import Store
from seqloom.charts import pages
from seqloom.comparison.environment import Environment
from seqloom.comparison.metric import Metric
from seqloom.comparison.significance import Significance
from seqloom.comparison.verify import Score, Verification
from seqloom.errors import ModelError, UsageError
from seqloom.recipes.library import find_recipe
from seqloom.runs.corpus import Corpus
from seqloom.runs.results import Report, Results, import_optional, read_given
from tests.comparison.results import comparison_of
from tests.runs.test_training import QUICK, SIZES
from tests.tasks.labelled import examples, write
from tests.training.material import prepared

EVIL = "<script>alert('&')</script>"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("results")


@pytest.fixture(scope="module")
def model(place):
    data = prepared(place / "data", 120)
    settings = [*SIZES["gpt"], "budget={steps=2}", "valid.limit=200"]
    return seqloom.pretrain("gpt-tiny", data, place / "gpt", settings=settings, device="cpu")


@pytest.fixture(scope="module")
def classifier(place, model):
    for seed, split in enumerate(("train", "valid")):
        write(place / f"{split}.jsonl", "classify", examples("classify", 24, seed))
    files = place / "train.jsonl", place / "valid.jsonl"
    return seqloom.finetune(model, "classify", *files, place / "told", settings=QUICK, device="cpu")


@pytest.fixture(scope="module")
def translator(place):
    (place / "pairs.tsv").write_text("a cat\teine katze\na dog\tein hund\n" * 20)
    return seqloom.train(
        "seq2seq-tiny", "translate", place / "pairs.tsv", place / "translator", valid=place / "pairs.tsv",
        settings=["budget={steps=2}"], device="cpu", tokenizer="char",
    )  # fmt: skip


# ---- how they show themselves


def one_line(text):
    return "\n" not in text and len(text) < 400


def test_a_run_says_what_it_is(model, classifier, translator):
    assert repr(model).startswith(f"<Run gpt-tiny in {model.folder}: {model.learner.size():,} parameters, next-token")
    assert "valid loss" in repr(model) and "on cpu" in repr(model)
    assert repr(classifier).startswith("<Predictor gpt-tiny-classify") and "valid accuracy" in repr(classifier)
    assert repr(translator).startswith("<Translator seq2seq-tiny") and all(
        map(one_line, map(repr, (model, classifier, translator)))
    )


def test_a_run_in_a_notebook(model):
    page = model._repr_html_()
    assert page.count("<table") == 1 and f"{model.learner.size():,}" in page and "gpt-tiny" in page


@pytest.mark.parametrize("text", [None, "5", "{", '["a"]', '{"valid_scores": 3}'])
def test_a_run_without_its_figures_shows_itself(model, monkeypatch, tmp_path, text):
    if text is not None:
        (tmp_path / "metrics.json").write_text(text)
    monkeypatch.setattr(model, "folder", tmp_path)
    assert "parameters" in repr(model) and "parameters" in model._repr_html_()


def unescaped(model, monkeypatch):
    """What would be run in a notebook as code of the page, though it is the name of something."""
    metric = Metric(EVIL, True, {EVIL: np.array([1.0, 1.1, 1.2]), "b": np.array([2.0, 2.1, 2.2])}, {})
    found = comparison_of(metric, name=EVIL, caveats=[EVIL])
    monkeypatch.setattr(model, "folder", Path(EVIL))
    shown = [
        found, model, Results([{EVIL: EVIL, "label": {EVIL: 0.5}}], [{"text": EVIL}]), Report({EVIL: EVIL}),
        Significance(metric, 3, 0, False),
    ]  # fmt: skip
    made = [each._repr_html_() for each in shown]
    return [type(each) for each, page in zip(shown, made, strict=True) if "<script" in page or "script" not in page]


def test_everything_in_a_notebook_is_escaped(model, monkeypatch):
    assert unescaped(model, monkeypatch) == []


def test_a_page_that_does_not_escape_is_noticed(model, monkeypatch):
    monkeypatch.setattr(pages, "escaped", str)
    assert len(unescaped(model, monkeypatch)) == 5


def test_a_comparison_says_who_is_best():
    metric = Metric("bits", True, {"LSTM": np.array([1.0, 1.01, 1.02]), "GPT": np.array([2.0, 2.01, 2.02])}, {})
    found = comparison_of(metric, name="two")
    assert repr(found) == "<comparison two: 2 rows (LSTM, GPT), 3 seeds; bits: best LSTM>"
    page = found._repr_html_()
    assert page.count("<tr") == 3 and "★" in page and "GPT" in page
    assert found.to_pandas().columns.tolist()[:2] == ["row", "seed"] and found == tuple(found)


def test_significance_shows_itself():
    scores = {name: np.random.default_rng(i).random((3, 30)) + i for i, name in enumerate("ab")}
    found = Significance(Metric("score", False, scores, {}), 30, 0, False)
    assert repr(found) == "<significance of score: a, b on 30 items; 1 of 1 differences significant>"
    assert found._repr_html_().count("<table") == 2 and list(found.to_pandas()["first"]) == ["a"]


def test_a_verification_shows_itself():
    now = Environment.model_construct()
    score = Score("bits per byte", 1.25, 1.5, 0.1, "rounding")
    found = Verification("LSTM", 3, None, now, [], [score], {EVIL: "no files"})
    assert repr(found) == "<verification of LSTM, seed 3: 1 scores, NOT as archived>"
    assert "1.25" in found._repr_html_() and "<script" not in found._repr_html_()


def test_data_sets_say_what_they_hold(model, place):
    store = Store.open(place / "data")
    assert repr(store).startswith(f"<Store {place / 'data'}: train ") and "tokens; valid" in repr(store)
    corpus = Corpus.open(find_recipe("gpt-tiny"), place / "data")
    assert repr(corpus) == f"<Corpus {place / 'data'} for gpt-tiny: {corpus.summary}>"


def test_a_report_is_a_dict_that_shows_itself(model, classifier, place):
    found = classifier.evaluate(place / "valid.jsonl")
    assert repr(found).startswith("<report: examples 24") and "accuracy" in found._repr_html_()
    assert isinstance(found, dict) and json.loads(json.dumps(found)) == found == dict(found)
    assert isinstance(model.evaluate(place / "data"), Report)


def test_predictions_show_themselves(classifier):
    found = classifier.predict(["the film is good", 5, "a dull story"])
    assert repr(found).startswith("<3 results, 1 with an error: label ") and one_line(repr(found))
    page = found._repr_html_()
    assert page.count("<tr") == 4 and "the film is good" in page and "row 2: no row" in page
    many = Results([{"label": "a"}] * 30)
    assert many._repr_html_().count("<tr") == 21 and "and 10 more" in many._repr_html_()
    assert repr(Results()) == "<0 results>" and Results()._repr_html_()


# ---- calling a run


def test_a_language_model_is_called_for_scores(model):
    texts = ["the cat sees a dog", ""]
    found = model(texts)
    assert [row["log_prob"] for row in found] == [sum(each.log_probs) for each in model.score(texts)]
    assert found[0]["tokens"] == len(model.tokenizer.encode(texts[0])) and found[1] == {"log_prob": 0, "tokens": 0}
    assert model(texts[0]) == found[:1] and model([]) == []
    assert model([None, texts[0]])[0]["error"].startswith("row 1: no text")


def test_a_predictor_is_called_for_predictions(classifier):
    assert classifier("the film is good") == classifier.predict(["the film is good"])


def test_a_translator_is_called_for_translations(translator):
    found = translator(["a cat", "a dog", ""], beam=2, show=False)
    assert [row["translation"] for row in found] == [
        best[0].text for best in translator.translate(["a cat", "a dog", ""], beam=2)
    ]
    assert translator("a cat", beam=2) == found[:1] and len(translator.translate("a cat")) == 1
    assert set(found.to_pandas().columns) == {"text", "translation", "log_prob", "finished"}


# ---- tables in and out


@pytest.fixture
def frame():
    values = {"review": ["the film is good", None, "a dull story"], "label": ["good", "bad", "bad"], "stars": [5, 1, 2]}
    return pandas.DataFrame(values, index=[7, 7, 3])


def test_a_frame_is_answered_by_a_frame(classifier, frame):
    before = frame.copy()
    found = classifier.predict(frame, text="review")
    assert list(found.columns[:3]) == ["review", "label", "stars"] and list(found.index) == [7, 7, 3]
    plain = classifier.predict(["the film is good", "a dull story"])
    assert found["predicted_label"].tolist()[::2] == [row["label"] for row in plain], "their label stays"
    assert found["probabilities.good"].tolist()[0] == plain[0]["probabilities"]["good"]
    assert "row 2" in found["error"].tolist()[1] and frame.equals(before)


def test_a_frame_is_scored_and_a_series_too(model, frame):
    texts = frame["review"].iloc[[0, 2]]
    alone = [row["log_prob"] for row in model(list(texts))]
    assert model(frame, text="review")["log_prob"].tolist()[::2] == alone
    found = model(texts)
    assert found["log_prob"].tolist() == alone and list(found.index) == [7, 3]


def test_a_dataset_is_answered_by_a_dataset(classifier, frame):
    given = datasets.Dataset.from_pandas(frame.reset_index(drop=True))
    found = classifier.predict(given, text="review")
    assert isinstance(found, datasets.Dataset) and found.column_names[:3] == ["review", "label", "stars"]
    whole = classifier.predict(frame, text="review")
    assert found["predicted_label"][0] == whole["predicted_label"].tolist()[0]
    with pytest.raises(UsageError, match="give one of its splits"):
        classifier.predict(datasets.DatasetDict({"test": given}), text="review")


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "has no column 'text', only review, label, stars"),
        ({"text": "body"}, "text='body': the table has no such column; it has review, label, stars"),
        ({"words": "review"}, "words=: there is no such field: give a column for text, id"),
    ],
)
def test_wrong_columns_are_named(classifier, frame, columns, message):
    with pytest.raises(UsageError, match=message):
        classifier.predict(frame, **columns)


def test_two_columns_of_one_name_are_refused(classifier, frame):
    frame.columns = ["review", "review", "stars"]
    with pytest.raises(UsageError, match="2 columns 'review'"):
        classifier.predict(frame, text="review")


def test_lists_of_dicts_have_columns_too(classifier):
    found = classifier.predict([{"review": "the film is good", "key": 4}], text="review", id="key")
    assert found[0]["id"] == 4 and found[0]["label"] == classifier.predict("the film is good")[0]["label"]


def test_predictions_become_a_frame(classifier):
    frame = classifier.predict([{"id": "x", "text": "the film is good"}, "dull"]).to_pandas()
    assert frame["text"].tolist() == ["the film is good", "dull"] and len(frame) == 2
    assert list(frame.columns) == ["text", "id", "label", "probabilities.bad", "probabilities.good"]
    assert Results([{"a": 1}]).to_pandas()["a"].tolist() == [1]


def test_what_a_tagger_repeats_is_there_once():
    words = [["a", "b"], ["c"]]
    found = Results([{"words": each, "tags": ["O"] * len(each)} for each in words], [{"words": each} for each in words])
    assert list(found.to_pandas().columns) == ["words", "tags"]
    other = Results([{"context": "b"}, {"context": "d"}], [{"context": "a b"}, {"context": "c d"}])
    assert other.to_pandas()["predicted_context"].tolist() == ["b", "d"]


def test_neither_is_imported_unless_given():
    program = (
        "import sys\nfrom seqloom.runs.results import Results, read_given\n"
        "read_given(['a'], ('text',), {}); repr(Results([{'a': 1}])); Results([{'a': 1}])._repr_html_()\n"
        "assert not {'pandas', 'datasets', 'IPython'} & set(sys.modules), sorted(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModelError, match="to_pandas needs pandas, which is not installed: pip install pandas"):
        Results([{"a": 1}]).to_pandas()
    with pytest.raises(ModelError):
        import_optional("no_such_package", "this")
    assert read_given(["a"], ("text",), {}).rows == ["a"]

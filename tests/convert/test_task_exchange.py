"""Fine-tuned runs become folders whose heads tell the same, and back: classes, numbers, choices, tags and answers, family by
family."""

import json

import pytest
import torch
import transformers as hf

from seqloom.batches.labelled import batch_of
from seqloom.cli import run as command
from seqloom.convert.huggingface import export_folder, import_folder, load
from seqloom.runs.training import finetune, pretrain
from tests.tasks.labelled import examples, write
from tests.training.material import prepared

SMALL = [
    "model.dim=24",
    "model.num_layers=2",
    "model.num_heads=2",
    "model.dropout=0",
    "budget={steps=2}",
    "valid.limit=200",
]
FAMILIES = ["bert", "roberta", "albert", "electra", "ernie", "xlm-r", "xlnet"]
AUTO = {
    "classify": hf.AutoModelForSequenceClassification,
    "pair": hf.AutoModelForSequenceClassification,
    "regress": hf.AutoModelForSequenceClassification,
    "choose": hf.AutoModelForMultipleChoice,
    "tag": hf.AutoModelForTokenClassification,
    "span": hf.AutoModelForQuestionAnswering,
}
SENTENCES = [("Ada", "B-PER", "met", "O", "Bo", "B-PER"), ("in", "O", "Oslo", "B-LOC", "today", "O")]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tasks")
    data = prepared(folder / "data", 120)
    for family in FAMILIES:
        more = {"electra": ["model.embedding_dim=24"], "xlnet": ["batches.streams=2"]}.get(family, [])
        pretrain(f"{family}-tiny", data, folder / family, settings=[*SMALL, *more], device="cpu")
    for task in AUTO:
        if task == "tag":
            rows = (
                "\n".join(f"{word} {tag}" for word, tag in zip(s[::2], s[1::2], strict=True)) for s in SENTENCES * 4
            )
            (folder / "tag.conll").write_text("\n\n".join(rows) + "\n")
        else:
            write(folder / f"{task}.{'json' if task == 'span' else 'jsonl'}", task, examples(task, 12, 0))
    return folder


def exported(place, out, family, task, *settings):
    file = next(place.glob(f"{task}.*"))
    chosen = ["budget={steps=2}", "train.optim.lr=0.1", *settings]
    run = finetune(place / family, task, file, file, out / "run", settings=chosen, device="cpu")
    export_folder(out / "run", out / "theirs")
    model, info = AUTO[task].from_pretrained(out / "theirs", output_loading_info=True, attn_implementation="eager")
    assert not any(info.values()), info
    hf.AutoTokenizer.from_pretrained(out / "theirs")
    return run, model.eval(), list(run.learner.read([file]))


def logits_of(model, row, task):
    given = {"input_ids": torch.tensor(row.ids)[None]}
    if row.segments is not None:
        given["token_type_ids"] = torch.tensor(row.segments)[None]
    if task == "choose":
        given = {name: part[None] for name, part in given.items()}
    found = model(**given)
    return torch.stack((found.start_logits[0], found.end_logits[0]), 1) if task == "span" else found.logits[0]


@pytest.mark.parametrize(
    ("family", "task"),
    [
        pytest.param(family, task, marks=[] if family == "bert" or task in ("classify", "span") else pytest.mark.long)
        for family in FAMILIES
        for task in AUTO
    ],
)
def test_heads_tell_the_same(place, tmp_path, family, task):
    run, model, asked = exported(place, tmp_path, family, task)
    with torch.no_grad():
        compare(run, model, asked, task)
    config = json.loads((tmp_path / "theirs/config.json").read_text())
    if task in ("classify", "pair", "tag"):
        assert [config["id2label"][str(i)] for i in range(len(run.learner.labels))] == run.learner.labels
    import_folder(tmp_path / "theirs", tmp_path / "back", task=task)
    back = load(tmp_path / "back", "cpu")
    with torch.no_grad():
        compare(back, model, asked, task)
    assert getattr(back.learner, "labels", None) == getattr(run.learner, "labels", None)
    assert answers(back, place, task) == answers(run, place, task)


def answers(run, place, task):
    """But for the last digits: a number is told in other units."""
    file = next(place.glob(f"{task}.*"))
    told = json.loads(json.dumps(list(run.predict_files([file]))), parse_float=lambda digits: round(float(digits), 3))
    assert told and not any("error" in each for each in told)
    return told


def test_tags_in_another_order_are_the_same_tags(place, tmp_path):
    run, model, _ = exported(place, tmp_path, "bert", "tag")
    order = [3, 0, 4, 2, 1]
    model.classifier.weight.data, model.classifier.bias.data = (
        model.classifier.weight[order],
        model.classifier.bias[order],
    )
    model.config.id2label = {i: run.learner.labels[j] for i, j in enumerate(order)}
    model.save_pretrained(tmp_path / "theirs")
    import_folder(tmp_path / "theirs", tmp_path / "back")
    back = load(tmp_path / "back", "cpu")
    assert back.learner.labels == run.learner.labels == ["O", "B-LOC", "I-LOC", "B-PER", "I-PER"]
    assert answers(back, place, "tag") == answers(run, place, "tag")


def test_planted_bug_tags_left_in_their_order_are_noticed(place, tmp_path, monkeypatch):
    monkeypatch.setattr("seqloom.convert.huggingface.in_our_order", lambda tensors, section: tensors)
    with pytest.raises(AssertionError):
        test_tags_in_another_order_are_the_same_tags(place, tmp_path)


def test_tags_of_no_scheme_are_plain_labels(place, tmp_path):
    exported(place, tmp_path, "bert", "tag")
    changed(tmp_path / "theirs", id2label={str(i): name for i, name in enumerate(["NOUN", "VERB", "X", "B-A", "O"])})
    import_folder(tmp_path / "theirs", tmp_path / "back")
    back = load(tmp_path / "back", "cpu")
    assert back.learner.labels == ["NOUN", "VERB", "X", "B-A", "O"] and back.learner.scheme is None


def test_without_a_word_about_pairs_classes_are_of_single_texts(place, tmp_path):
    exported(place, tmp_path, "roberta", "pair")
    import_folder(tmp_path / "theirs", tmp_path / "back")
    assert load(tmp_path / "back", "cpu").task == "classify"


def changed(folder, **values):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


@pytest.mark.parametrize(
    ("values", "options", "code", "words"),
    [
        ({}, ["--task", "tag"], 2, "has a head for classify or pair"),
        ({"architectures": ["BertForMaskedLM"]}, ["--task", "pair"], 2, "was not fine-tuned"),
        ({"architectures": ["BertModel"]}, [], 4, "a model without an output layer cannot be imported"),
        ({"architectures": 5}, [], 4, "a model without an output layer cannot be imported"),
        ({"architectures": ["BertForQuestionAnswering"]}, [], 4, "no tensor 'qa_outputs.weight'"),
        ({"id2label": {"0": "a", "2": "b"}}, [], 4, "by their numbers from 0"),
        ({"id2label": {"0": "a", "1": "a"}}, [], 4, "the same label twice"),
        ({"id2label": ["a", "b"]}, [], 4, "by their numbers from 0"),
        ({"id2label": {"0": "a", "1": "b", "2": "c"}}, [], 4, "'classifier.weight' has the shape"),
        ({"problem_type": "multi_label_classification"}, [], 4, "a multi-label classifier cannot be imported"),
    ],
)
def test_a_head_that_is_not_what_it_says_is_refused(place, tmp_path, capsys, values, options, code, words):
    exported(place, tmp_path, "bert", "classify")
    changed(tmp_path / "theirs", **values)
    capsys.readouterr()
    assert command(["import", str(tmp_path / "theirs"), "--out", str(tmp_path / "back"), *options]) == code
    told = capsys.readouterr().err
    assert words in told and len(told.splitlines()) == 1 and not (tmp_path / "back").exists()


def compare(run, model, asked, task):
    rows, _ = run.learner.encode(asked, run.tokenizer, run.frame)
    learner = run.learner.eval()
    for each in rows:
        batch = batch_of([each])
        ours = learner.logits(learner.features(batch.batch)[0], batch)
        theirs = [logits_of(model, row, task) for row in each]
        if task == "choose":
            expected = torch.cat(theirs).log_softmax(0)
        elif task == "span":
            may = torch.isfinite(ours).all(1).split([len(row.ids) for row in each])  # answers lie in the paragraph
            expected = torch.cat([scores[here].log_softmax(0) for scores, here in zip(theirs, may, strict=True)])
            ours = ours[torch.cat(may)]
        elif task == "tag":
            expected = torch.cat([scores[row.places[:, 0]] for row, scores in zip(each, theirs, strict=True)])
        else:
            expected = torch.stack(theirs)
        if task == "regress":
            ours = ours * learner.spread + learner.mean
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("task", "setting"),
    [
        ("tag", "task.crf=true"),
        ("classify", "task.reader=lstm"),
        ("classify", "task.pool=mean"),
        ("classify", "task.layers=mix"),
    ],
)
def test_what_heads_elsewhere_do_not_compute_is_refused(place, tmp_path, capsys, task, setting):
    file = next(place.glob(f"{task}.*"))
    finetune(place / "bert", task, file, file, tmp_path / "run", settings=["budget={steps=1}", setting], device="cpu")
    assert command(["export", str(tmp_path / "run"), "--out", str(tmp_path / "theirs")]) == 4
    assert setting.partition("=")[0] in capsys.readouterr().err and not (tmp_path / "theirs").exists()

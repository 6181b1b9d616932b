"""Cross-view training: what each view has read, what is learnt from it, and by whom."""

import json
import math

import pytest
import torch

from seqloom.batches.labelled import Frame, batch_of
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.errors import DataError, UsageError
from seqloom.files import read_json
from seqloom.models import model_class
from seqloom.runs.joint import TasksPlan, train_tasks
from seqloom.runs.load import load
from seqloom.tasks import cross_view
from seqloom.tasks.cross_view import VIEWS, CrossView
from seqloom.tasks.several import OfTask, Several
from seqloom.tasks.tag import TagWords
from seqloom.text.tagged import Sentence
from seqloom.tokens.tokenizer import Tokenizer
from tests.contract.test_planted_pairs import noticed
from tests.training.material import sentences

LINES = sentences(60)
TOKENIZERS = {
    kind: Tokenizer.train(kind, LINES, min_count=1, vocab_size=280 if kind == "bpe" else None)
    for kind in ("word", "bpe")
}
TAGS = {"labels": ["B-x", "O"], "scheme": "iob2"}


def made_of(kind, dropout=0.0):
    torch.manual_seed(0)
    cls = model_class("bilstm-cnn")
    config = cls.Config(
        vocab_size=TOKENIZERS[kind].vocab_size, embedding_dim=8, dim=12, num_layers=2, dropout=dropout, max_chars=6
    )
    body = cls(config)
    body.set_vocabulary(PreparedVocabulary(TOKENIZERS[kind]))
    tagger = TagWords(body, TagWords.Config(**TAGS, dropout=dropout))
    views = CrossView(body, CrossView.Config(**TAGS, dropout=dropout, of="ner"))
    made = Several(body, {"ner": tagger, "views": views}, [1.0, 1.0])
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made.double().eval()


def batch_for(made, kind, count=4):
    asked = [Sentence(line.split(), [], "here") for line in LINES[:count]]
    rows, _ = made.tasks[1].encode(asked, TOKENIZERS[kind], Frame.of(made.backbone, TOKENIZERS[kind], 200))
    return batch_of(rows)


def views_see_what_they_may(kind):
    """Another token at one place moves a view of a word exactly where the view has read that place."""
    made = made_of(kind)
    views, batch = made.tasks[1], batch_for(made, kind)
    places, owner = batch.places.tolist(), batch.batch.owner.tolist()
    with torch.no_grad():
        before = views.view_logits(batch)
        for token in range(len(owner)):
            ids = batch.batch.ids.clone()
            ids[token] = (ids[token] + 3) % TOKENIZERS[kind].vocab_size
            chars = None if batch.batch.chars is None else batch.batch.chars.clone()
            after = views.view_logits(batch._replace(batch=batch.batch._replace(ids=ids, chars=chars)))
            for name in VIEWS:
                moved = (before[name] - after[name]).abs().amax(1) > 1e-12
                for word, (first, behind) in enumerate(places):
                    reads = {
                        "forward": token <= first,
                        "backward": token >= first,
                        "future": token < first,
                        "past": token >= behind,
                    }[name]
                    assert moved[word].item() == (reads and owner[token] == owner[first]), (name, token, word)


@pytest.mark.parametrize("kind", ["word", "bpe"])
def test_views_see_what_they_may(kind):
    views_see_what_they_may(kind)


@pytest.mark.parametrize("bug", ["word itself", "next sentence"])
def test_planted_views_are_noticed(bug, monkeypatch):
    right = cross_view.beside_word

    def wrong(states, place, word, owner):
        return (
            right(states, word, word, owner)
            if bug == "word itself"
            else states[place.clamp(0, len(states) - 1) * 0 + 1]
        )

    monkeypatch.setattr(cross_view, "beside_word", wrong)
    noticed(views_see_what_they_may, "word")


def test_the_end_of_a_sequence_has_nothing_beside_it():
    states, owner = torch.arange(1.0, 7.0)[:, None], torch.tensor([0, 0, 0, 1, 1, 1])
    word = torch.tensor([0, 2, 3, 5])
    assert cross_view.beside_word(states, word - 1, word, owner)[:, 0].tolist() == [0, 2, 0, 5]
    assert cross_view.beside_word(states, word + 1, word, owner)[:, 0].tolist() == [2, 0, 5, 0]


def learns_from_the_tagger(made, batch):
    """By hand: the sum of KL(tagger ‖ view) over words and views; the tagger itself has no gradient of it."""
    made.zero_grad()
    loss = made(OfTask(1, batch))
    tagger, views = made.tasks
    with torch.no_grad():
        p = tagger.logits(tagger.features(batch.batch)[0], batch).softmax(1)
    wanted = 0.0
    for logits in views.view_logits(batch).values():
        q = logits.softmax(1)
        for word in range(len(p)):
            wanted += sum(a * math.log(a / b) for a, b in zip(p[word].tolist(), q[word].tolist(), strict=True))
    assert loss.total.item() == pytest.approx(wanted, rel=1e-9) and loss.count.item() == len(p)
    loss.total.backward()
    assert all(p.grad is None for name, p in tagger.named_parameters() if name.startswith("head"))
    assert all(parameter.grad.any() for parameter in views.views.parameters())
    upper = [p.grad for name, p in made.backbone.named_parameters() if ".layers.1." in name]
    assert all(grad is None or not grad.any() for grad in upper), "views stand on the first layer"
    assert made.backbone.embedding.token.weight.grad.any()


def test_it_learns_from_the_tagger():
    made = made_of("word")
    learns_from_the_tagger(made, batch_for(made, "word"))


@pytest.mark.parametrize("bug", ["gradient", "turned"])
def test_planted_lessons_are_noticed(bug, monkeypatch):
    made = made_of("word")
    if bug == "gradient":

        def learning(self, example):
            (tagger,) = self.tagger
            return tagger.logits(tagger.features(example.batch)[0], example).log_softmax(1)

        monkeypatch.setattr(CrossView, "predicted", learning)
    else:
        right = CrossView.predicted
        monkeypatch.setattr(CrossView, "predicted", lambda self, example: right(self, example).flip(1))
    noticed(learns_from_the_tagger, made, batch_for(made, "word"))


def test_the_tagger_predicts_without_dropout():
    made = made_of("word", dropout=0.5).train()
    batch = batch_for(made, "word")
    views = made.tasks[1]
    assert torch.equal(views.predicted(batch), views.predicted(batch))
    assert made.tasks[0].training and made.backbone.training
    first, second = (views.view_logits(batch)["forward"] for _ in range(2))
    assert not torch.equal(first, second)


# ---- runs


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    folder = tmp_path_factory.mktemp("views")
    for name, lines in {"train": LINES[:16], "dev": LINES[16:24]}.items():
        columns = ("".join(f"{word} {'B-x' if word[0] in 'cdk' else 'O'}\n" for word in line.split()) for line in lines)
        (folder / f"{name}.conll").write_text("\n".join(columns))
    (folder / "text.txt").write_text("\n".join(LINES[24:]))
    return folder


def plan_of(place, first=None, **views):
    ner = {"task": "tag", "name": "ner", "train": [str(place / "train.conll")], "valid": [str(place / "dev.conll")]}
    unlabelled = {"task": "cross-view", "train": [str(place / "text.txt")]}
    return TasksPlan.model_validate({"tasks": [ner | (first or {}), unlabelled | views], "smoothing": 0.0})


SETTINGS = ["model.dim=12", "model.embedding_dim=8", "model.max_chars=6", "model.num_layers=2", "budget={epochs=2}"]


def test_a_tagger_with_unlabelled_text(place, tmp_path):
    settings = [*SETTINGS, "train.watch=score"]
    run = train_tasks("bilstm-cnn-tiny", plan_of(place), tmp_path / "run", settings=settings, tokenizer="word")
    assert run.predict("the cat sees the dog")[0]["tags"]
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert all(line["tasks"] == {} for line in lines if "valid" in line)
    assert read_json(tmp_path / "run" / "config.json")["recipe"]["tasks"][1]["of"] == "ner"
    with pytest.raises(UsageError, match="it predicts nothing itself: choose one of ner"):
        load(tmp_path / "run", task="cross-view")


def test_what_is_refused(place, tmp_path):
    call = {"settings": SETTINGS, "tokenizer": "word"}
    wrong = [
        (plan_of(place, settings=["task.of=nobody"]), "'task.of' = 'nobody'"),
        (plan_of(place, {"settings": ["task.crf=true"]}), "ner has a CRF"),
        (plan_of(place, valid=["a.txt"]), "is not scored"),
    ]
    for plan, words in wrong:
        with pytest.raises(UsageError, match=words):
            train_tasks("bilstm-cnn-tiny", plan, tmp_path / "run", **call)
    with pytest.raises(UsageError, match="first layer reads in both directions"):
        train_tasks("lstm-tiny", plan_of(place), tmp_path / "run", settings=["budget={steps=1}"], tokenizer="word")
    (place / "bad.jsonl").write_text('{"words": 3}\n')
    with pytest.raises(DataError, match=r"bad\.jsonl:1"):
        train_tasks("bilstm-cnn-tiny", plan_of(place, train=[str(place / "bad.jsonl")]), tmp_path / "run", **call)
    assert not (tmp_path / "run").exists()

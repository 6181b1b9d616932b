"""Translators whose sources have a vocabulary of their own."""

import json

import pytest
import torch
from starlette.testclient import TestClient

from seqloom.convert.huggingface import export_folder
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.runs.folder import SOURCE_TOKENIZER, WEIGHTS, bound
from seqloom.runs.load import load
from seqloom.runs.training import finetune, read_all
from seqloom.runs.translator import Translator
from seqloom.serve.app import Limits, Server
from seqloom.training.loop import Fit
from tests.contract.test_planted_pairs import noticed
from tests.runs.test_translator import made
from tests.training.material import pairs, write_pairs

LITTLE = ["budget={steps=8}", "train.eval_every=4", "train.save_every=4"]
SMALL = ["budget={steps=120}", "model.num_layers=1", "batches.budget=512"]
SEQ2SEQ = {"recipe": "seq2seq-tiny", "settings": [*LITTLE, "model.dim=16"]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("two")
    for name, count, seed in (("train", 1000, 0), ("valid", 30, 1), ("test", 30, 2)):
        write_pairs(path, count, seed, name)
    return path


@pytest.fixture(scope="module")
def run(folder):
    return made(folder, settings=SMALL, source_tokenizer="bpe", source_vocab_size=300)


@pytest.fixture(scope="module")
def little(folder):
    return made(folder, **SEQ2SEQ, out="little", source_tokenizer="word")


def learns(run, folder):
    metrics = json.loads((run.folder / "metrics.json").read_text())
    again = load(run.folder)
    assert isinstance(again, Translator)
    assert again.source_tokenizer.kind == "bpe" and again.tokenizer.kind == "word"
    both = read_all([folder / f"valid.{side}" for side in ("en", "xx")])
    assert again.loss(both)["loss"] == pytest.approx(metrics["valid"]["loss"], abs=1e-5)
    assert again.evaluate(both)["bleu"] == metrics["valid_scores"]["bleu"] > 30


def test_a_translator_with_two_vocabularies_learns_and_loads(run, folder):
    learns(run, folder)
    backbone = run.learner.backbone
    assert backbone.encoder.embedding.token.num_embeddings == run.source_tokenizer.vocab_size
    assert backbone.decoder.embedding.token.num_embeddings == run.tokenizer.vocab_size == backbone.vocab_size
    assert "Tokenizer of the sources: bpe, 300 entries" in (run.folder / "card.md").read_text()
    text = pairs(1, 5)[0][0]
    (best,) = run.translate(text, align=True)[0][:1]
    assert best.alignment.shape[1] == len(run.source_tokenizer.encode(text)) + 1
    assert len(run.encode([text], pool="none")[0]) == len(run.source_tokenizer.encode(text))


@pytest.mark.parametrize("planted", ["contexts", "encode_pairs"])
def test_planted_sources_in_the_other_vocabulary_are_noticed(run, folder, planted, monkeypatch):
    monkeypatch.setattr(Translator, "source_tokenizer", property(lambda self: self.tokenizer))
    if planted == "encode_pairs":
        monkeypatch.undo()
        own = Translator.encode_pairs

        def in_the_vocabulary_of_targets(self, rows, name):
            kept, self.own_source_tokenizer = self.own_source_tokenizer, None
            try:
                return own(self, rows, name)
            finally:
                self.own_source_tokenizer = kept

        monkeypatch.setattr(Translator, "encode_pairs", in_the_vocabulary_of_targets)
    noticed(learns, run, folder)


def equals_one_vocabulary(folder, little, out):
    """Given twice, one tokenizer is two vocabularies that are the same: nothing else may differ."""
    apart = ["model.share_embeddings=false", "task.tie=false"]
    words = little.folder / "tokenizer.json"
    one = {"settings": [*SEQ2SEQ["settings"], *apart], "from_tokenizer": words, "tokenizer": "bpe"}
    first = made(folder, "seq2seq-tiny", out=f"{out}-one", **one)
    second = made(folder, "seq2seq-tiny", out=f"{out}-two", from_source_tokenizer=words, **one)
    for (name, ours), theirs in zip(
        second.learner.state_dict().items(), first.learner.state_dict().values(), strict=True
    ):
        assert torch.equal(ours, theirs), name
    texts = [source for source, _ in pairs(5, 8)]
    assert [each[0].log_prob for each in second.translate(texts)] == [
        each[0].log_prob for each in first.translate(texts)
    ]


def test_the_same_vocabulary_twice_is_one(folder, little):
    equals_one_vocabulary(folder, little, "same")


def test_a_planted_end_of_the_other_vocabulary_is_noticed(folder, little, monkeypatch):
    from seqloom.batches.pairs import PairFrame

    of = PairFrame.of

    def shifted(model, tokenizer, start_id=None, source_tokenizer=None):
        found = of(model, tokenizer, start_id, source_tokenizer)
        return found if source_tokenizer is None else found._replace(source_end=found.end + 1)

    monkeypatch.setattr(PairFrame, "of", shifted)
    noticed(equals_one_vocabulary, folder, little, "planted")


def test_an_interrupted_run_resumes_with_both(folder, little, monkeypatch):
    given = {"source_tokenizer": "word", "out": "broken"}
    one_step = Fit.one_step

    def fragile(fit, items):
        if fit.state.step == 6:
            raise ConnectionAbortedError("power cut")
        one_step(fit, items)

    with monkeypatch.context() as patch:
        patch.setattr(Fit, "one_step", fragile)
        with pytest.raises(ConnectionAbortedError):
            made(folder, **SEQ2SEQ, **given)
    broken = folder / "broken"
    (broken / SOURCE_TOKENIZER).unlink()  # it broke off before that was written
    with pytest.raises(DataError, match="other data"):
        made(folder, **SEQ2SEQ, **given | {"source_tokenizer": "bpe"}, resume=True)
    with pytest.raises(DataError, match="other data"):
        made(folder, **SEQ2SEQ, **given | {"source_tokenizer": None}, resume=True)
    made(folder, **SEQ2SEQ, **given, resume=True)
    assert SOURCE_TOKENIZER in bound(broken)
    for name in (*WEIGHTS, "tokenizer.json", SOURCE_TOKENIZER):
        assert (broken / name).read_bytes() == (little.folder / name).read_bytes(), name


def test_tasks_read_the_vocabulary_of_its_encoder(little, folder, tmp_path):
    (tmp_path / "train.tsv").write_text(
        "text\tlabel\n" + "".join(f"{s}\t{'ab'['cat' in s]}\n" for s, _ in pairs(40, 3))
    )
    given = {"train": tmp_path / "train.tsv", "valid": tmp_path / "train.tsv", "out": tmp_path / "run"}
    settings = ["budget={epochs=1}"]
    tuned = finetune(little.folder, "classify", **given, settings=settings)
    assert tuned.tokenizer.hash == little.source_tokenizer.hash
    assert load(tuned.folder).tokenizer.hash == little.source_tokenizer.hash
    with pytest.raises(UsageError, match="a vocabulary of its own"):
        finetune(little.folder, "classify", **given | {"out": tmp_path / "w"}, settings=[*settings, "task.view=whole"])
    files = {name: [folder / f"{name}.{side}" for side in ("en", "xx")] for name in ("train", "valid")}
    more = finetune(little.folder, "translate", **files, out=tmp_path / "more", settings=LITTLE)
    assert isinstance(more, Translator) and more.source_tokenizer.hash == little.source_tokenizer.hash


def test_it_is_served(run):
    text = pairs(1, 5)[0][0]
    server = Server({"two": load(run.folder, "cpu")}, Limits())
    with TestClient(server.app, base_url="http://127.0.0.1:8000") as client:
        ((best, *_),) = client.post("/api/translate", json={"texts": [text], "align": True}).json()["translations"]
        ids = client.post("/tokenize", json={"prompt": text}).json()["tokens"]
    for engine in server.engines.values():
        engine.close()
    assert best["text"] == run.translate(text)[0][0].text
    assert len(best["source_tokens"]) == len(best["alignment"][0]) == len(ids) + 1
    assert ids == list(run.source_tokenizer.encode(text))


def test_what_cannot_work_is_said(little, folder, tmp_path):
    with pytest.raises(UsageError, match="two vocabularies"):
        export_folder(little.folder, tmp_path / "exported")
    other = made(folder, **SEQ2SEQ, out="other", source_tokenizer="char")
    with pytest.raises(UsageError, match="--from-source-tokenizer"):
        little.translate("the cat", others=[other])
    with pytest.raises(UsageError, match="leave out --source-tokenizer"):
        made(folder, out="no", source_tokenizer="word", from_source_tokenizer=little.folder / SOURCE_TOKENIZER)
    with pytest.raises(UsageError, match="source-vocab-size"):
        made(folder, out="no", source_vocab_size=9, from_source_tokenizer=little.folder / SOURCE_TOKENIZER)
    with pytest.raises(UsageError, match="decides it"):
        made(folder, out="no", settings=["model.source_vocab_size=9"])
    kept = (other.folder / SOURCE_TOKENIZER).read_bytes()
    (other.folder / SOURCE_TOKENIZER).write_bytes((little.folder / SOURCE_TOKENIZER).read_bytes())
    with pytest.raises(ModelError, match="source-tokenizer"):
        load(other.folder)
    (other.folder / SOURCE_TOKENIZER).unlink()
    with pytest.raises(ModelError, match="source-tokenizer"):
        load(other.folder)
    (other.folder / SOURCE_TOKENIZER).write_bytes(kept)
    load(other.folder)

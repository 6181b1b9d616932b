"""BiLSTM-CNN: equal to its parts by hand, words that nobody has seen read by their letters, and vectors from files."""

import random

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from seqloom.batch import pack
from seqloom.batches.labelled import Frame, batch_of
from seqloom.errors import DataError, UsageError
from seqloom.models.bilstm_cnn import BilstmCnn
from seqloom.recipes.library import task_sections
from seqloom.runs.first_weights import known_words
from seqloom.runs.training import train
from seqloom.tasks import tag, transfer
from seqloom.tasks.classify import Classify
from seqloom.tasks.tag import TagWords
from seqloom.text.labelled import Example
from seqloom.text.tagged import Sentence
from seqloom.text.vectors import read_vectors
from seqloom.tokens.spelling import PAD, spell
from seqloom.tokens.tokenizer import Tokenizer
from tests.contract import encoders as e
from tests.tasks.test_tag import write_columns

WORDS = Tokenizer.train("word", ["the cat sees Anna ."], min_count=1, words="space")


def test_equal_to_its_parts_by_hand():
    model, texts = e.build("bilstm-cnn-once"), [[3, 1, 4, 1, 5], [9, 2]]
    cnn, layer = model.embedding.spelt.cnn, model.stack.layers[0]
    cnn.character.weight.data[PAD] = 0
    lstm = torch.nn.LSTM(12 + 14, 12, bidirectional=True, batch_first=True).double()
    for cell, ending in ((layer.ahead.cell, ""), (layer.back.cell, "_reverse")):
        for name, weight in cell.kernel.named_parameters():
            getattr(lstm, name + ending).data.copy_(weight)
    for text, found in zip(texts, model(pack(texts)).hidden.split([5, 2]), strict=True):
        rows = []
        for word in text:
            letters = cnn.character.weight[torch.from_numpy(spell([bytes([word])], 3)[0]).long()].T  # begin, one, end
            windows = [F.conv1d(F.pad(letters, (0, c.kernel_size[0] - 1)), c.weight, c.bias) for c in cnn.convolutions]
            largest = torch.cat([window.amax(1) for window in windows]).relu()
            rows.append(torch.cat((model.table.weight[word], cnn.norm(cnn.projection(largest)))))
        torch.testing.assert_close(found, lstm(torch.stack(rows)[None])[0][0], rtol=0, atol=1e-10)


def test_the_size_of_the_paper():
    with torch.device("meta"):
        model = BilstmCnn(BilstmCnn.Config(vocab_size=1000, **BilstmCnn.presets["ma-hovy-2016"]))
    lstm = 2 * 4 * (200 * (100 + 30 + 200) + 2 * 200)
    letters = 260 * 30 + (3 * 30 * 30 + 30) + (30 * 30 + 30) + 2 * 30
    assert sum(p.numel() for p in model.parameters()) == 1000 * 100 + lstm + letters


# ---- unknown words


def surnames(count, seed):
    """Persons are told by their last letters alone; hardly a word comes twice."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        words = ["".join(rng.choices("abdeghikmnrstu", k=5)) for _ in range(6)]
        people = [rng.random() < 0.3 for _ in words]
        found.append(
            (
                [
                    word + ("ov" if person else rng.choice(["", "e", "an"]))
                    for word, person in zip(words, people, strict=True)
                ],
                ["B-PER" if person else "O" for person in people],
            )
        )
    return found


def learnt(folder):
    files = [write_columns(folder / f"{name}.conll", surnames(n, n)) for name, n in (("train", 200), ("valid", 50))]
    settings = ["train.optim.lr=0.01", "batches.examples=8", "budget.epochs=4", "model.dim=32", "task.crf=true"]
    run = train(
        "bilstm-cnn-tiny", "tag", files[:1], folder / "run", valid=files[1:], tokenizer="word", settings=settings
    )
    return run.evaluate(files[1:])["f1"]


def test_words_that_nobody_has_seen_are_read_by_their_letters(tmp_path, monkeypatch):
    assert learnt(tmp_path) > 0.9
    (tmp_path / "without").mkdir()
    for module in (tag, transfer):
        monkeypatch.setattr(module, "spelling_of", lambda *given: None)
    assert learnt(tmp_path / "without") < 0.5, "without letters there is nothing to tell them by"


@pytest.mark.parametrize("limit", [20, 5])
def test_letters_stand_at_their_words(limit):
    body = BilstmCnn(BilstmCnn.Config(vocab_size=WORDS.vocab_size, max_chars=12))
    frame = Frame.of(body, WORDS, limit)
    words = ["the", "Zora", "sees", "Anna", "Quux", "."]
    tags = TagWords(body, TagWords.Config(labels=("A", "B")))
    (rows,), _ = tags.encode([Sentence(words, [], "here")], WORDS, frame)
    batch = batch_of([rows], 16)
    wanted = spell([word.encode() for word in words], 12)
    assert np.array_equal(batch.batch.chars[batch.places[: len(words), 0]].numpy(), wanted)
    assert not batch.batch.chars[~batch.real].any()
    told = Classify(body, Classify.Config(labels=("A", "B")))
    ((row,),), _ = told.encode([Example((" ".join(words),), "A", None, "here")], WORDS, frame)
    assert np.array_equal(row.chars[row.own], wanted[: limit - 2])


# ---- vectors


def test_vectors_of_words(tmp_path):
    (tmp_path / "glove.txt").write_text("the 1 2 3\ncat 4 5e-1 6\n. . . 7 8 9\nthe 0 0 0\nother 1 2 3\n")
    (tmp_path / "w2v.vec").write_text("2 3\nthe 1 2 3 \ncat 4 0.5 6 \n")
    for name in ("glove.txt", "w2v.vec"):
        found = read_vectors(tmp_path / name, {"the", "cat", ". . .", "dog"})
        assert found["the"].tolist() == [1, 2, 3] and found["cat"].tolist() == [4, 0.5, 6]
        assert set(found) == {"the", "cat"} | ({". . ."} if name == "glove.txt" else set())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("the 1 2\ncat 1\n", "v.txt:2: 1 numbers, but the first line has 2"),
        ("the 1 x\n", "v.txt:1: the word 'the' is not followed by 2 numbers"),
        ("the 1 nan\n", "v.txt:1: a number of the word 'the' is not finite"),
        ("", "v.txt: no vector"),
        ("the\n", "v.txt:1: no number behind 'the'"),
        ("hund 1 2\n", "v.txt: no word of the training text is in it"),
    ],
)
def test_bad_vectors(tmp_path, text, message):
    (tmp_path / "v.txt").write_text(text)
    learner = TagWords(BilstmCnn(BilstmCnn.Config(vocab_size=WORDS.vocab_size)), TagWords.Config(labels=("A", "B")))
    with pytest.raises(DataError, match=message):
        known_words(tmp_path / "v.txt", WORDS, learner)


def test_vectors_that_do_not_fit(tmp_path):
    (tmp_path / "v.txt").write_text("the 1 2\n")
    learner = TagWords(BilstmCnn(BilstmCnn.Config(vocab_size=WORDS.vocab_size)), TagWords.Config(labels=("A", "B")))
    with pytest.raises(UsageError, match=r"2 numbers a word, the model has 100: set model\.embedding_dim=2"):
        known_words(tmp_path / "v.txt", WORDS, learner)
    with pytest.raises(UsageError, match="this vocabulary is of byte: --tokenizer word"):
        known_words(tmp_path / "v.txt", Tokenizer.train("byte", ["a"]), learner)


def test_a_run_begins_with_them(tmp_path):
    file = write_columns(tmp_path / "train.conll", [(["The", "cat", "sees"], ["O", "B-x", "O"])] * 4)
    (tmp_path / "v.txt").write_text("the 1 2\nsees 3 4\nThe 5 6\n")
    (tmp_path / "other.txt").write_text("the 1 2\n")
    small = ["model.embedding_dim=2", "model.dim=8", "train.optim.lr=1e-9", "budget={steps=2}", "train.watch=loss"]
    given = {"tokenizer": "word", "settings": small, "device": "cpu"}
    run = train("bilstm-cnn-tiny", "tag", [file], tmp_path / "run", vectors=tmp_path / "v.txt", **given)
    table = run.learner.backbone.table.weight
    for word, vector in (("The", [5, 6]), ("sees", [3, 4])):
        assert table[run.tokenizer.id(word)].tolist() == pytest.approx(vector, abs=1e-5)
    assert run.config["data"]["vectors"] == {"file": str(tmp_path / "v.txt"), "words": 2}
    assert run.config["data"]["fingerprint"] in (tmp_path / "run" / "card.md").read_text(), (
        "the vectors are part of the data"
    )
    with pytest.raises(DataError, match="other data"):
        train("bilstm-cnn-tiny", "tag", [file], tmp_path / "run", vectors=tmp_path / "other.txt", resume=True, **given)


def test_layers_of_several_widths_are_not_mixed():
    values = {"labels": ("A", "B"), "layers": "mix"}
    body = BilstmCnn(BilstmCnn.Config(vocab_size=WORDS.vocab_size))
    learner = TagWords(body, TagWords.Config(**values))
    rows, _ = learner.encode([Sentence(["the"], ["A"], "here")], WORDS, Frame.of(body, WORDS, 9))
    with pytest.raises(UsageError, match=r"the layers are \[130, 400\] wide"):
        learner(batch_of(rows))
    found = {
        name: task_sections("tag", {"name": name}, "features")["task"]["layers"]
        for name in ("bilstm-cnn", "awd-lstm", "lstm", "albert")
    }
    assert found == {"bilstm-cnn": "last", "awd-lstm": "last", "lstm": "mix", "albert": "mix"}

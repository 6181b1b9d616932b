"""Tags of words: which tokens a word has, what its answers point at, long sentences, and learning a toy grammar."""

import csv
import io
import json
import random
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils import _pytree as pytree

from seqloom.batch import IGNORE
from seqloom.batches import labelled
from seqloom.batches.labelled import STEP_WORDS, Examples, Frame, LabelledBatches, batch_of
from seqloom.blocks.pooling import pool_words
from seqloom.cli import run as command
from seqloom.errors import DataError
from seqloom.evaluate.labelled import predict_examples
from seqloom.metrics.entities import entity_scores, scheme_of
from seqloom.models import model_class
from seqloom.runs.load import load
from seqloom.runs.predictor import Predictor
from seqloom.runs.training import train
from seqloom.tasks import tag as module
from seqloom.tasks.tag import TagWords, as_written, pieces
from seqloom.text import tagged
from seqloom.text.labelled import BadRow
from seqloom.text.tagged import Sentence, read_tagged, sentence_of, word_spans
from seqloom.tokens.tokenizer import TEXT_KINDS, Tokenizer
from tests.cli.test_bad_input import fails
from tests.training.material import sentences

TOKENIZERS = {
    kind: Tokenizer.train(kind, sentences(200), min_count=1, vocab_size={"wordpiece": 60, "bpe": 280, "unigram": 280}.get(kind))
    for kind in TEXT_KINDS
}  # fmt: skip
ANY = st.characters(exclude_categories=["Cs"], exclude_characters="\0")
TEXTS = st.text(ANY, min_size=1, max_size=12)
LABELS = ("B-x", "I-x", "O")


def learner_of(kind="word", model="lstm", dtype=torch.float64, **config):
    """Untrained, with weights large enough that every tag is told somewhere."""
    torch.manual_seed(0)
    cls = model_class(model)
    sizes = {"dim": 12, "num_layers": 1} | ({"num_heads": 2, "max_len": 40} if model == "bert" else {})
    body = cls(cls.Config(vocab_size=TOKENIZERS[kind].vocab_size, **sizes))
    learner = TagWords(body, TagWords.Config(**({"labels": LABELS, "scheme": "iob2"} | config)))
    with torch.no_grad():
        for parameter in learner.parameters():
            parameter.add_(0.7 * torch.randn_like(parameter))
    return learner.to(dtype).eval()


def told(learner, asked, kind="word", limit=None):
    tokenizer = TOKENIZERS[kind]
    frame = Frame.of(learner.backbone, tokenizer, 10**6)._replace(limit=limit)
    rows, _ = learner.encode(asked, tokenizer, frame)
    found = predict_examples(learner, Examples(rows, 0, 0), asked, torch.device("cpu"))
    return found[0]


# ---- words and tokens


def every_word_has_its_tokens(kind, words, limit):
    tokenizer, sentence = TOKENIZERS[kind], Sentence(words, [], "here")
    learner = SMALL[kind]
    frame = Frame.of(learner.backbone, tokenizer, limit)
    (rows,), cut = learner.encode([sentence], tokenizer, frame)
    assert sum(len(row.places) for row in rows) == len(words)
    texts = iter(as_written(sentence))
    for row in rows:
        assert len(row.ids) <= limit and len(row.label) == len(row.places) and set(row.label) == {IGNORE}
        ends = [len(frame.before), *row.places[:, 1]]
        assert ends[-1] == len(row.ids) - len(frame.after) and row.own.sum() == ends[-1] - ends[0]
        for (start, stop), before in zip(row.places.tolist(), ends, strict=False):
            assert before <= start < stop
            text = next(texts)
            wanted = tokenizer.encode(text)
            if not wanted:
                wanted = [tokenizer.separator_id if tokenizer.unk_id is None else tokenizer.unk_id]
            assert row.ids[before:stop].tolist() == wanted[: limit - 2]
            if tokenizer.byte_exact and len(wanted) <= limit - 2:
                assert tokenizer.decode(row.ids[start:stop]) in (text, text.removeprefix(" "))
    assert bool(cut) == any(len(tokenizer.encode(text)) > limit - 2 for text in as_written(sentence))


SMALL = {kind: learner_of(kind) for kind in TEXT_KINDS}


@pytest.mark.parametrize("kind", TEXT_KINDS)
@settings(max_examples=40)
@given(words=st.lists(TEXTS, min_size=1, max_size=8), limit=st.sampled_from([5, 9, 40]))
def test_every_word_has_its_tokens(kind, words, limit):
    every_word_has_its_tokens(kind, words, limit)


@pytest.mark.parametrize("bug", ["frame", "blank", "piece", "nothing"])
def test_planted_misalignment_is_noticed(bug, monkeypatch):
    kind, words, limit = "bpe", ["the", "cat", "xyz", "sees"], 7
    right = {name: getattr(module, name) for name in ("add_special_tokens", "as_written", "pieces")}
    if bug == "frame":  # words are counted from the first special token on
        monkeypatch.setattr(
            module, "add_special_tokens", lambda *given: (*right["add_special_tokens"](*given)[:3], [0])
        )
    elif bug == "blank":  # a word follows the one before without a blank
        monkeypatch.setattr(module, "as_written", lambda sentence: sentence.words)
        monkeypatch.setitem(globals(), "as_written", right["as_written"])
    elif bug == "piece":  # the words behind the first piece are forgotten
        monkeypatch.setattr(module, "pieces", lambda *given: right["pieces"](*given)[:1])
    else:  # a word of which nothing is left has no token
        kind, words = "wordpiece", ["the", "\x01", "cat"]
        monkeypatch.setattr(
            module, "len", lambda value: 1 if isinstance(value, np.ndarray) else len(value), raising=False
        )
    with pytest.raises((AssertionError, ValueError, IndexError)):
        every_word_has_its_tokens(kind, words, limit)


def test_a_word_is_not_read_at_the_blank_before_it():
    for kind in ("char", "byte", "bpe"):
        tokenizer = TOKENIZERS[kind]
        frame = Frame.of(SMALL[kind].backbone, tokenizer, 40)
        ((row,),), _ = SMALL[kind].encode([Sentence(["a", "ß", "b"], [], "here")], tokenizer, frame)
        blank = tokenizer.encode(" ")[0]
        assert blank in row.ids and blank not in row.ids[row.places[:, 0]]


@given(st.lists(st.integers(1, 9), min_size=1, max_size=30), st.integers(9, 20))
def test_pieces_are_whole_and_fit(sizes, room):
    found = pieces(sizes, room)
    assert [i for a, b in found for i in range(a, b)] == list(range(len(sizes)))
    assert all(0 < sum(sizes[a:b]) <= room for a, b in found)
    assert pieces(sizes, None) == [(0, len(sizes))]


def test_pieces_are_about_equally_long():
    assert pieces([1] * 11, 10) == [(0, 6), (6, 11)]


# ---- places in the text


def spots_point_at_words(sentence):
    assert [sentence.text[a:b] for a, b in sentence.word_offsets] == sentence.words
    ends = [0, *(end for _, end in sentence.word_offsets)]
    assert all(begin >= end for (begin, _), end in zip(sentence.word_offsets, ends, strict=False))


@given(st.lists(TEXTS, min_size=1, max_size=8))
def test_words_stand_where_they_are_said_to(words):
    spots_point_at_words(Sentence(words, [], "here"))


def words_are_cut(text):
    spots = word_spans(text)
    spots_point_at_words(Sentence([text[a:b] for a, b in spots], [], "here", source=text))
    covered = [i for a, b in spots for i in range(a, b)]
    assert covered == [i for i, character in enumerate(text) if not character.isspace()], "each character in one word"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_cutting_loses_no_character(text):
    words_are_cut(text)


def test_planted_offsets_are_noticed(monkeypatch):
    monkeypatch.setattr(tagged, "word_spans", lambda text: [(a + 1, b + 1) for a, b in word_spans(text)])
    with pytest.raises(AssertionError):
        words_are_cut("é b")
    monkeypatch.setattr(Sentence, "spaces", property(lambda self: [" "] * len(self.words)))
    monkeypatch.setattr(Sentence, "text", property(lambda self: "".join(self.words)))
    with pytest.raises(AssertionError):
        spots_point_at_words(Sentence(["a", "b"], [], "here"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don't go, Anna!", ["Don", "'", "t", "go", ",", "Anna", "!"]),
        ("北京 is 1st", ["北", "京", "is", "1st"]),
        ("re\u0301sume\u0301 हिन्दी می\u200cخواهم", ["re\u0301sume\u0301", "हिन्दी", "می\u200cخواهم"]),
        ("  ", []),
    ],
)
def test_words_of_plain_text(text, words):
    assert [text[a:b] for a, b in word_spans(text)] == words


# ---- answers


def answers_point_at_what_they_claim(asked, answers):
    seen = 0
    for sentence, answer in zip(asked, answers, strict=True):
        assert answer["words"] == sentence.words
        assert len(answer["tags"]) == len(answer["probabilities"]) == len(sentence.words)
        for entity in answer["entities"]:
            seen += 1
            a, b = entity["start"], entity["stop"]
            assert 0 <= a < b <= len(sentence.words)
            assert entity["text"] == sentence.text[entity["begin"] : entity["end"]]
            assert entity["text"].startswith(sentence.words[a]) and entity["text"].endswith(sentence.words[b - 1])
            assert entity["score"] == pytest.approx(np.mean(answer["probabilities"][a:b]), abs=2e-6)
            assert {tag[2:] for tag in answer["tags"][a:b]} == {entity["kind"]}
        assert entity_scores([answer["tags"]], [answer["tags"]])["count"] == len(answer["entities"])
    return seen


@pytest.mark.parametrize("crf", [False, True], ids=["softmax", "crf"])
@settings(max_examples=20)
@given(texts=st.lists(st.text(ANY, min_size=1, max_size=30).filter(str.strip), min_size=1, max_size=4))
def test_answers_point_at_what_they_claim(crf, texts):
    asked = [sentence_of({"text": text}, "here") for text in texts]
    answers_point_at_what_they_claim(asked, told(CLAIMS[crf], asked, "byte", 12))


CLAIMS = {crf: learner_of("byte", "bert", crf=crf) for crf in (False, True)}


def some_sentences(count=6, seed=0):
    rng = random.Random(seed)
    words = sorted({word for line in sentences(100) for word in line.split()})
    return [Sentence(rng.choices(words, k=rng.randint(1, 30)), [], f"here:{i}") for i in range(count)]


def test_some_entities_are_told():
    asked = some_sentences()
    assert answers_point_at_what_they_claim(asked, told(learner_of(), asked)) > 5


def cut_sentences_are_told_as_whole_ones(crf):
    """Features that have no context: where a sentence is cut changes nothing, and its tags are still one sequence."""
    learner, asked = learner_of(layers="embedding", crf=crf), some_sentences()
    whole, cut = told(learner, asked), told(learner, asked, limit=7)
    for a, b in zip(whole, cut, strict=True):
        assert a["tags"] == b["tags"]
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=2e-6)
    if crf:
        assert scheme_of([answer["tags"] for answer in cut]) == "iob2"


@pytest.mark.parametrize("crf", [False, True], ids=["softmax", "crf"])
def test_cut_sentences_are_told_as_whole_ones(crf):
    cut_sentences_are_told_as_whole_ones(crf)


def test_planted_pieces_that_are_sentences_of_their_own_are_noticed(monkeypatch):
    right = labelled.with_words
    monkeypatch.setattr(
        labelled, "with_words", lambda found, examples, *rest: right(found, [[row] for each in examples for row in each], *rest)
    )  # fmt: skip
    with pytest.raises(AssertionError):
        cut_sentences_are_told_as_whole_ones(crf=True)


def with_tags(asked):
    return [each._replace(tags=["B-x", *["I-x"] * (len(each.words) - 1)]) for each in asked]


@pytest.mark.parametrize("config", [{"crf": True}, {}, {"align": "mean"}, {"crf": True, "learns": "iobes"}])
def test_company_and_filler_change_nothing(config):
    learner, asked = learner_of("bpe", "bert", **config), with_tags(some_sentences(5))
    tokenizer = TOKENIZERS["bpe"]
    rows, _ = learner.encode(asked, tokenizer, Frame.of(learner.backbone, tokenizer, 20))
    assert max(map(len, rows)) > 1
    alone = [learner(batch_of([each])) for each in rows]
    together = learner(batch_of(rows))
    assert int(together.count) == sum(len(each.words) for each in asked) == sum(int(loss.count) for loss in alone)
    assert sum(loss.total.item() for loss in alone) == pytest.approx(together.total.item(), rel=1e-9)
    for longest in (None, 16 * -(-max(len(each.words) for each in asked) // 16)):
        batch = batch_of(rows, max_len=24, max_words=longest)
        filled = learner(batch)
        assert filled.count == together.count
        torch.testing.assert_close(filled.total, together.total, rtol=1e-9, atol=0)
        many = (rows * 3)[:8]
        words = batch_of(many, max_len=24, max_words=longest).words
        assert len(words.owner) % STEP_WORDS == 0 and int(words.offsets.diff().max()) <= words.max_len


def shapes_come_again():
    """What a recorded step is found by: shapes, and numbers that the host knows."""
    learner, tokenizer = learner_of("bpe", "bert"), TOKENIZERS["bpe"]
    rows, _ = learner.encode(some_sentences(160), tokenizer, Frame.of(learner.backbone, tokenizer, 20))
    plan = LabelledBatches(Examples(rows, 0, 0), 8, fixed=True).plan(0, 0)
    leaves = [pytree.tree_leaves(plan.batch(i)) for i in range(len(plan))]
    keys = [tuple(leaf.shape if isinstance(leaf, torch.Tensor) else leaf for leaf in each) for each in leaves]
    assert len(set(keys)) <= len(keys) / 2


def test_shapes_come_again():
    shapes_come_again()


def test_planted_words_without_filler_are_noticed(monkeypatch):
    monkeypatch.setattr(labelled, "STEP_WORDS", 1)
    with pytest.raises(AssertionError):
        shapes_come_again()


def test_unlabelled_sentences_cost_nothing():
    learner, asked = learner_of(crf=True), some_sentences()
    rows, _ = learner.encode(asked, TOKENIZERS["word"], Frame.of(learner.backbone, TOKENIZERS["word"], 50))
    loss = learner(batch_of(rows))
    assert loss.total == 0 and loss.count == 0


def mean_of_each_word():
    torch.manual_seed(0)
    states = torch.randn(12, 3, requires_grad=True)
    places = torch.tensor([[1, 3], [3, 4], [5, 8], [9, 10], [11, 12], [11, 12]])
    wanted = torch.stack([states[a:b].mean(0) for a, b in places[:4].tolist()])
    found = pool_words(states, places, "mean")[:4]
    torch.testing.assert_close(found, wanted)
    assert torch.equal(pool_words(states, places, "first"), states[places[:, 0]])
    found.sum().backward()
    assert not states.grad[[0, 4, 8, 10]].any(), "a token of no word is read"


def test_a_word_is_the_mean_of_its_tokens():
    mean_of_each_word()


def test_planted_neighbours_in_the_mean_are_noticed(monkeypatch):
    search = torch.searchsorted
    monkeypatch.setattr(torch, "searchsorted", lambda sorted_, values, right: search(sorted_, values))
    with pytest.raises(AssertionError):
        mean_of_each_word()


# ---- learning


def grammar(count, seed, names=("anna", "bert", "cleo", "dora")):
    """Behind "mr" stand one or two names that are a person; the same words elsewhere are none."""
    rng, found = random.Random(seed), []
    for _ in range(count):
        words, tags = [], []
        for _ in range(rng.randint(1, 4)):
            if rng.random() < 0.5:
                people = rng.choices(names, k=rng.randint(1, 2))
                words += ["mr", *people, "sees"]
                tags += ["O", "B-PER", *["I-PER"] * (len(people) - 1), "O"]
            else:
                words += ["the", rng.choice(names)]
                tags += ["O", "O"]
        found.append((words, tags))
    return found


def write_columns(path: Path, rows) -> Path:
    path.write_text("\n".join("".join(f"{w} {t}\n" for w, t in zip(*row, strict=True)) for row in rows), "utf-8")
    return path


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tagged")
    made = {"train": grammar(300, 0), "valid": grammar(60, 1)}
    return [write_columns(folder / f"{name}.conll", rows) for name, rows in made.items()]


FAST = ["model.dim=24", "train.optim.lr=0.01", "batches.examples=8", "budget.epochs=4"]


@pytest.fixture(scope="module")
def crf_run(files, tmp_path_factory):
    more = ["task.crf=true", "model.num_layers=1", "task.learns=iobes", "task.reader=lstm", "task.reader_dim=24"]
    out = tmp_path_factory.mktemp("runs") / "crf"
    return train("lstm-tiny", "tag", files[:1], out, valid=files[1:], tokenizer="word", settings=FAST + more)


def test_softmax_learns_a_grammar(files, tmp_path):
    settings = [*FAST, "task.align=mean", "model.num_layers=1"]
    run = train(
        "lstm-tiny", "tag", files[:1], tmp_path / "run", valid=files[1:], tokenizer="wordpiece", vocab_size=32, settings=settings
    )  # fmt: skip
    assert run.evaluate(files[1:])["f1"] > 0.95


def test_crf_learns_a_grammar(crf_run, files):
    assert isinstance(crf_run, Predictor)
    found = crf_run.evaluate(files[1:])
    assert found["f1"] > 0.95 and found["score"] == found["f1"] and set(found["per_kind"]) == {"PER"}
    gold = list(read_tagged(files[1:]))
    answers = crf_run.predict([{"words": each.words} for each in gold])
    wanted = entity_scores([each.tags for each in gold], [answer["tags"] for answer in answers])
    assert {name: found[name] for name in wanted} == wanted
    assert (
        list(crf_run.predict_files(files[1:]))
        == answers
        == load(crf_run.folder, "cpu").predict({"words": each.words} for each in gold)
    )


def test_predict_never_dies_on_a_row(crf_run, tmp_path, capsys):
    rows = [
        {"text": "Mr anna sees"},
        {"words": ["mr", ""]},
        {"words": "mr"},
        {},
        {"text": " "},
        {"id": 1, "words": ["mr"]},
    ]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"text": "\\ud800"}\n{\n')
    assert command(["predict", str(crf_run.folder), str(tmp_path / "a.jsonl")]) == 3
    out, err = capsys.readouterr()
    answers = [json.loads(line) for line in out.splitlines()]
    assert ["error" in answer for answer in answers] == [False, True, True, True, True, False, True, True]
    assert answers[5]["id"] == 1 and answers[0]["words"] == ["Mr", "anna", "sees"]
    assert "a.jsonl:3:" in answers[2]["error"] and "6 of 8 rows could not be read" in err


def test_a_raw_sentence_on_standard_input(crf_run, monkeypatch, capsys):
    """Words, tags and entities, with where they are in the sentence."""
    sentence = "Mr anna  sees Paris,yesterday ."
    monkeypatch.setattr(sys, "stdin", io.StringIO(sentence + "\n"))
    assert command(["predict", str(crf_run.folder)]) == 0
    (found,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert found["words"] == ["Mr", "anna", "sees", "Paris", ",", "yesterday", "."]
    assert [sentence[begin:end] for begin, end in found["offsets"]] == found["words"]
    assert len(found["tags"]) == len(found["words"])
    assert all(sentence[each["begin"] : each["end"]] == each["text"] for each in found["entities"])
    assert "offsets" not in crf_run.predict([{"words": ["mr", "anna"]}])[0], "those of given words are not of a text"


def test_sentences_in_a_csv(crf_run, tmp_path):
    (tmp_path / "a.csv").write_text("number,body\n1,mr anna sees\n2,\n3,the cleo\n")
    assert crf_run.predict_file(tmp_path / "a.csv", tmp_path / "b.csv", text="body", id="number") == (3, 1)
    with open(tmp_path / "b.csv", newline="") as file:
        found = list(csv.DictReader(file))
    assert [row["number"] for row in found] == ["1", "2", "3"] and found[1]["error"]
    assert json.loads(found[0]["words"]) == ["mr", "anna", "sees"]
    assert json.loads(found[0]["offsets"]) == [[0, 2], [3, 7], [8, 12]] and "entities" in found[0]


def test_columns_without_tags(crf_run, tmp_path):
    (tmp_path / "a.conll").write_bytes(b"mr\nanna\n\nthe X\ncleo\n\nmr O\n\xff O\n\nmr\n")
    found = list(read_tagged([tmp_path / "a.conll"], need_tags=False))
    assert [each.words for each in found if isinstance(each, Sentence)] == [["mr", "anna"], ["the", "cleo"], ["mr"]]
    assert isinstance(found[2], BadRow) and found[2].place.endswith("a.conll:8")
    answers = list(crf_run.predict_files([tmp_path / "a.conll"]))
    assert ["error" in answer for answer in answers] == [False, False, True, False]


def test_plain_labels_are_scored_as_classes(files, tmp_path):
    rows = [
        (words, ["name" if len(word) == 4 and word != "sees" else "else" for word in words])
        for words, _ in grammar(200, 0)
    ]
    path = write_columns(tmp_path / "pos.conll", rows)
    run = train(
        "lstm-tiny",
        "tag",
        [path],
        tmp_path / "run",
        valid=[path],
        tokenizer="word",
        settings=[*FAST, "budget.epochs=2"],
    )
    found = run.evaluate([path])
    assert found["score"] == found["accuracy"] > 0.99 and found["confusion"]["labels"] == ["else", "name"]
    assert set(run.predict(["the anna"])[0]) == {"words", "tags", "probabilities", "offsets"}


# ---- bad input

GOOD = "mr O\nanna B-PER\n\nsees O\n"


@pytest.mark.parametrize(
    ("train_text", "valid_text", "message"),
    [
        (GOOD, "mr O\nanna B-LOC\n", "valid.conll:2: the tag 'B-LOC' is not in the training files (O, B-PER, I-PER)"),
        ("mr O\nanna O\n", GOOD, "train.conll:1: every word has the tag 'O': there is nothing to predict"),
        ("mr X O\nanna O\n", GOOD, "train.conll:2: 2 columns, but the first word of the sentence has 3"),
        ("mr O\nanna\n", GOOD, "train.conll:2: one column"),
        ("", GOOD, "train.conll: no sentences: the files are empty"),
        (GOOD, "", "valid.conll: no sentences: the files are empty"),
        ("mr O\nanna NN\nx B-PER\n", GOOD, "train.conll:2: the tag 'NN' is neither O nor of the form B-kind"),
    ],
)
def test_bad_files_are_refused_before_training(tmp_path, capsys, train_text, valid_text, message):
    for name, text in (("train", train_text), ("valid", valid_text)):
        (tmp_path / f"{name}.conll").write_text(text)
    files = ["--train", tmp_path / "train.conll", "--valid", tmp_path / "valid.conll"]
    fails(
        capsys,
        3,
        message,
        "train",
        "lstm-tiny",
        "--task",
        "tag",
        *files,
        "--out",
        tmp_path / "run",
        "--tokenizer",
        "word",
    )
    assert not (tmp_path / "run").exists()


# as in the training file of CoNLL-2003: IOB1, where B- stands only between two entities of a kind, and yet after O twice
CONLL2003 = """-DOCSTART- -X- -X- O

EU NNP I-NP I-ORG
rejects VBZ I-VP O
German JJ I-NP B-MISC
call NN I-NP O

Peter NNP I-NP I-PER
Blackburn NNP I-NP I-PER
met VBD I-VP O
Anna NNP I-NP I-PER
Berg NNP I-NP B-PER
"""


def test_published_iob1_is_read_as_conlleval_reads_it(tmp_path, capsys):
    train = tmp_path / "eng.train"
    train.write_text(CONLL2003)
    sentences = list(read_tagged([train]))
    about = TagWords.survey(sentences)
    assert about["scheme"] == "iob1"
    TagWords.check_against(sentences, about)
    remark = capsys.readouterr().err
    assert remark == (
        f"1 tag does not follow iob1 (first: {train}:5: 'B-MISC' cannot follow 'O'): read as conlleval reads them\n"
    )
    # gold as the file has it, predicted as a tagger that learnt from it writes it: conlleval finds the same entities
    learner = learner_of(labels=about["labels"], scheme="iob1", learns="as-given")
    tokenizer = Tokenizer.train("word", [sentence.text for sentence in sentences])
    rows, _ = learner.encode(sentences, tokenizer, Frame.of(learner.backbone, tokenizer, 64))
    learnt = [[learner.labels[number] for number in row[0].label.tolist()] for row in rows]
    assert learnt == [["I-ORG", "O", "I-MISC", "O"], ["I-PER", "I-PER", "O", "I-PER", "B-PER"]]
    assert entity_scores([each.tags for each in sentences], learnt)["f1"] == 1
    call = ["train", "lstm-tiny", "--task", "tag", "--train", train, "--valid", train, "--out", tmp_path / "run"]
    small = ["--tokenizer", "word", "--set", "model.dim=8", "--set", "budget={steps=2}"]
    assert command([str(each) for each in (*call, *small)]) == 0


def test_a_plain_sentence_is_tagged_word_by_word(tmp_path, capsys):
    path = tmp_path / "news.txt"
    path.write_text("Obama visited Paris yesterday .\n\nHe left.\n")
    sentences = list(read_tagged([path], need_tags=False))
    assert [each.words for each in sentences] == [["Obama", "visited", "Paris", "yesterday", "."], ["He", "left", "."]]
    assert [each.place for each in sentences] == [f"{path}:1", f"{path}:3"]
    assert "read as plain sentences" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("Obama\nvisited\n\nHe\nleft\n", ["Obama", "visited"]),  # one word a line
        ("Obama B-PER\nvisited O\n", ["Obama", "visited"]),
        ("Obama\tNNP\nvisited\tVBD\n", ["Obama", "visited"]),
        ("a DT\ncat NN\nsat VB\n\na DT\ndog NN\nran VB\n", ["a", "cat", "sat"]),
        (CONLL2003, ["EU", "rejects", "German", "call"]),
    ],
)
def test_columns_stay_columns(text, first, tmp_path):
    (tmp_path / "a.txt").write_text(text)
    assert next(read_tagged([tmp_path / "a.txt"], need_tags=False)).words == first


def test_a_tag_that_the_scheme_has_may_come_later():
    """Training text without an entity of two words says nothing against one."""
    learner = learner_of(labels=("B-x", "O"))
    assert learner.labels == ["O", "B-x", "I-x"]
    learner.check([Sentence(["a", "b"], ["B-x", "I-x"], "here")])


def test_ids_are_given_once(tmp_path):
    row = '{"id": 7, "words": ["a"], "tags": ["O"]}\n'
    (tmp_path / "a.jsonl").write_text(row + "\n" + row)
    with pytest.raises(DataError, match=r"a.jsonl:3: the id 7 is also used at .*a.jsonl:1"):
        list(read_tagged([tmp_path / "a.jsonl"]))

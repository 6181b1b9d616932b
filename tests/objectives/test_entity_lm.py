"""Entities are hidden as wholes: read from tags, carried through tokens, and chosen together."""

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE
from seqloom.batches.tagged import TaggedPassages, encode_tagged, with_entities
from seqloom.errors import DataError
from seqloom.models import model_class
from seqloom.objectives.entity_lm import EntityLM
from seqloom.runs.load import load
from seqloom.runs.training import train
from seqloom.text.tagged import Sentence, continues_entity, read_tagged
from seqloom.tokens.tokenizer import Tokenizer
from tests.corpus import marks_by

CONLL = """-DOCSTART- -X- O

U.N. NNP I-ORG
official NN O
Ekeus NNP I-PER
heads VBZ O

北 B-LOC
京 I-LOC
人 O
"""


def test_columns_and_rows(tmp_path):
    (tmp_path / "a.conll").write_text(CONLL)
    (tmp_path / "b.jsonl").write_text('{"words": ["New", "York"], "tags": ["B-LOC", "E-LOC"]}\n\n')
    found = list(read_tagged([tmp_path / "a.conll", tmp_path / "b.jsonl"]))
    assert [sentence.text for sentence in found] == ["U.N. official Ekeus heads", "北京人", "New York"]
    assert found[0].tags == ["I-ORG", "O", "I-PER", "O"] and found[0].place.endswith("a.conll:3")
    assert found[1].place.endswith("a.conll:8")


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.conll", "word O\nalone\n", "a.conll:2: one column"),
        ("a.jsonl", '{"words": ["a"], "tags": []}\n', "a.jsonl:1: 1 words but 0 tags"),
        ("a.jsonl", '{"words": "a", "tags": []}\n', 'a.jsonl:1: "words" is not a list'),
        ("a.jsonl", "{", "a.jsonl:1: not valid JSON"),
    ],
)
def test_what_is_no_tagged_text_is_named_by_its_line(tmp_path, name, text, message):
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=message):
        list(read_tagged([tmp_path / name]))


@pytest.mark.parametrize(
    ("tags", "goes_on"),
    [
        ("B-LOC I-LOC O B-PER", [0, 1, 0, 0]),
        ("B-LOC B-LOC I-LOC I-PER", [0, 0, 1, 0]),
        ("I-LOC I-LOC O I-PER", [0, 1, 0, 0]),  # IOB1
        ("S-PER B-LOC I-LOC E-LOC E-LOC", [0, 0, 1, 1, 0]),  # IOBES
        ("O O", [0, 0]),
    ],
)
def test_which_words_go_on_with_an_entity(tags, goes_on):
    assert continues_entity(tags.split()) == [bool(each) for each in goes_on]


def test_tokens_of_an_entity_belong_together_whatever_cuts_them():
    sentence = Sentence(
        ["he", "saw", "New", "York", "City", "today"], ["O", "O", "B-LOC", "I-LOC", "I-LOC", "O"], "f:1"
    )
    characters = Tokenizer.train("byte", ["x"])
    tokens, same = with_entities(sentence, characters)
    text = sentence.text
    begin, end = text.index("New"), text.index(" today")
    joined = [i for i, each in enumerate(same) if each]
    # every byte of the name, for it begins with the blank before it
    assert joined == list(range(begin, end))
    words = Tokenizer.train("word", [text])
    assert with_entities(sentence, words)[1] == [False, False, False, True, True, False]
    pieces = Tokenizer.train("bpe", [text], vocab_size=262)
    whole = "".join(
        pieces.decode([token]) for token, each in zip(*with_entities(sentence, pieces), strict=True) if each
    )
    assert whole.strip() and whole in " New York City"
    assert len(tokens) == len(text)


def learner(**config):
    cls = model_class("ernie")
    sizes = {"dim": 16, "num_layers": 1, "num_heads": 2, "max_len": 64, "vocab_size": 300, "dropout": 0.0}
    made = EntityLM(cls(cls.Config(**sizes)), EntityLM.Config(**({"keep": 0.0, "random": 0.0, "rate": 0.3} | config)))
    made.mask_id.fill_(299)
    made.validate_loaded()
    return made


def entities_are_whole(**config):
    rng = np.random.default_rng(0)
    sentences = []
    for i in range(50):
        sizes = rng.integers(1, 5, 8)
        tags = [tag for size in sizes for tag in (["B-X"] + ["I-X"] * (size - 1) if size > 1 else ["O"])]
        sentences.append(Sentence([chr(0x4E00 + int(k)) for k in rng.integers(0, 100, len(tags))], tags, f"f:{i}"))
    tokenizer = Tokenizer.train("char", [sentence.text for sentence in sentences])
    text = encode_tagged(sentences, tokenizer, "train")
    plan = TaggedPassages(text, marks_by(1, 2, np.zeros(300, bool)), "single", 512, 64, (0, 0.9), 1.0).plan(0, 0)
    ours, partly = learner(**config), 0
    for i in range(len(plan)):
        cut = plan.batch(i)
        example = ours.corrupt(cut, torch.Generator().manual_seed(i))
        hidden = torch.zeros(len(cut.places), dtype=torch.bool)
        hidden[example.where[example.targets != IGNORE]] = True
        group = np.cumsum(~cut.joined.numpy())
        for entity in np.unique(group[cut.joined.numpy()]):
            partly += len(set(hidden.numpy()[group == entity])) > 1
    assert partly == 0


def test_entities_are_hidden_as_wholes():
    entities_are_whole()


def test_planted_plain_masks_are_noticed():
    with pytest.raises(AssertionError):
        entities_are_whole(unit="token")


def test_a_run_is_trained_on_tagged_text(tmp_path, capsys):
    (tmp_path / "train.conll").write_text(CONLL * 40)
    files = [tmp_path / "train.conll"]
    settings = ["budget={steps=6}", "batches.budget=256", "batches.length=32", "train.eval_every=3"]
    run = train("ernie-tiny", "entity-lm", files, tmp_path / "run", valid=files, tokenizer="char", settings=settings)
    assert load(run.folder).learner.unit == "entity"
    (tmp_path / "plain.conll").write_text("a O\nb O\n" * 40)
    train("bert-tiny", "entity-lm", [tmp_path / "plain.conll"], tmp_path / "plain", tokenizer="char", settings=settings)
    assert "no entity of more than one token" in capsys.readouterr().err

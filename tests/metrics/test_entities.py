"""Entities, their scores, and the schemes of tags: against conlleval, and against rules tried on all short sequences."""

import itertools
import random
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
import seqeval.metrics
import seqeval.scheme
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError, UsageError
from seqloom.metrics import entities as module
from seqloom.metrics.entities import (
    SCHEMES,
    Entity,
    convert,
    entities,
    entity_scores,
    legal_moves,
    scheme_of,
    strict_entities,
)
from seqloom.text.tagged import read_tagged

FIXTURES = Path(__file__).parents[3] / "shared" / "fixtures" / "conlleval"


def tags_of(scheme):
    return ["O", *(f"{mark}-{kind}" for mark in SCHEMES[scheme] if mark != "O" for kind in "xy")]


def sequences(scheme, longest):
    return [list(tags) for n in range(longest + 1) for tags in itertools.product(tags_of(scheme), repeat=n)]


def is_legal(tags, scheme):
    """By the words of the definitions, as patterns over the whole sentence."""
    text = " ".join(tags) + " "
    whole = {
        "iob2": r"(O |B-(\w) (I-\2 )*)*",
        "iobes": r"(O |S-\w |B-(\w) (I-\2 )*E-\2 )*",
        # entities of two kinds need nothing between them; of one kind a B, and B is used for nothing else
        "iob1": r"(O |(?<!B-x )(?<!I-x )I-x (I-x |B-x )*|(?<!B-y )(?<!I-y )I-y (I-y |B-y )*)*",
    }[scheme]
    return re.fullmatch(whole, text if tags else "") is not None


@pytest.mark.parametrize(
    ("tags", "wanted"),
    [
        ("O B-PER I-PER O B-LOC", [("PER", 1, 3), ("LOC", 4, 5)]),
        ("I-PER I-PER B-PER I-LOC", [("PER", 0, 2), ("PER", 2, 3), ("LOC", 3, 4)]),
        ("S-PER B-LOC I-LOC E-LOC S-LOC S-LOC", [("PER", 0, 1), ("LOC", 1, 4), ("LOC", 4, 5), ("LOC", 5, 6)]),
        ("B-creative-work I-creative-work", [("creative-work", 0, 2)]),
        ("O I-PER E-PER E-PER", [("PER", 1, 3), ("PER", 3, 4)]),
        ("", []),
    ],
)
def test_entities_of_tags(tags, wanted):
    assert entities(tags.split()) == [Entity(*each) for each in wanted]


@pytest.mark.parametrize("scheme", SCHEMES)
def test_legal_sequences_are_read_alike_and_convert_back(scheme):
    tried = 0
    for tags in sequences(scheme, 4):
        if not is_legal(tags, scheme):
            continue
        tried += 1
        assert strict_entities(tags, scheme) == entities(tags)
        for other in SCHEMES:
            there = convert(tags, other)
            assert is_legal(there, other) and entities(there) == entities(tags)
            assert convert(there, scheme) == tags
    assert tried > 100


@given(st.lists(st.sampled_from(tags_of("iobes"))), st.sampled_from(list(SCHEMES)))
def test_ill_formed_tags_become_well_formed(tags, scheme):
    there = convert(tags, scheme)
    assert entities(there) == entities(tags) and len(there) == len(tags)
    assert is_legal(there, scheme) and convert(there, scheme) == there


def moves_are_legal(scheme):
    labels = tags_of(scheme)
    allowed = legal_moves(labels, scheme)
    n = len(labels)
    assert allowed.shape == (n + 2, n + 2) and allowed.dtype == bool
    assert not allowed[:, n].any() and not allowed[n + 1].any(), "nothing leads to the start or from the end"
    index = {label: i for i, label in enumerate(labels)}
    for tags in sequences(scheme, 3):
        steps = [n, *(index[tag] for tag in tags), n + 1]
        assert all(allowed[a, b] for a, b in itertools.pairwise(steps)) == is_legal(tags, scheme), tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_legal_moves_are_those_of_the_definition(scheme):
    moves_are_legal(scheme)


def test_plain_labels_move_freely():
    wanted = np.ones((4, 4), bool)
    wanted[:, 2] = wanted[3] = False
    assert np.array_equal(legal_moves(["NN", "VB"], None), wanted)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_planted_rules_are_noticed(monkeypatch, scheme):
    right = module.may_follow
    monkeypatch.setattr(
        module, "may_follow", lambda a, b, scheme: right(a[:1], b[:1], scheme)
    )  # kinds are not looked at
    with pytest.raises(AssertionError):
        moves_are_legal(scheme)
    monkeypatch.setattr(module, "may_follow", lambda a, b, scheme: right(b, a, scheme))  # the wrong way round
    with pytest.raises(AssertionError):
        moves_are_legal(scheme)


# what seqeval's strict mode takes for an entity of the kind K, as patterns over the tags of a sentence
STRICT = {
    "iob2": r"B-K (I-K )*",
    "iobes": r"S-K |B-K (I-K )*E-K ",
    # I where none of its kind stands before; B where one does, unless nothing goes on and a B of another kind follows
    "iob1": r"(?<!I-K )I-K (I-K )*|(?<=[IB]-K )B-K ((I-K )+|(?!B-[^K]))",
}


def by_pattern(tags, scheme):
    text = "".join(tag + " " for tag in tags)
    found = [
        Entity(kind, text[: each.start()].count(" "), text[: each.end()].count(" "))
        for kind in "xy"
        for each in re.finditer(STRICT[scheme].replace("K", kind), text)
    ]
    return sorted(found, key=lambda entity: entity.start)


def strict_is_seqeval(scheme):
    for tags in sequences(scheme, 4):
        assert strict_entities(tags, scheme) == by_pattern(tags, scheme), tags


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_entities_are_seqeval_s(scheme):
    strict_is_seqeval(scheme)


def test_planted_good_will_is_noticed(monkeypatch):
    monkeypatch.setitem(globals(), "strict_entities", lambda tags, scheme: entities(tags))
    for scheme in SCHEMES:
        with pytest.raises(AssertionError):
            strict_is_seqeval(scheme)


GOLD = [["B-PER", "I-PER", "O", "B-LOC"], ["O", "B-PER"], ["O"]]
GUESSED = [["I-PER", "I-PER", "O", "B-ORG"], ["B-LOC", "B-PER"], ["O"]]


def test_scores():
    found = entity_scores(GOLD, GUESSED)
    assert (found["correct"], found["found"], found["count"], found["tokens"]) == (2, 4, 3, 7)
    assert (found["precision"], found["recall"]) == (0.5, pytest.approx(2 / 3))
    assert found["f1"] == pytest.approx(4 / 7) and found["accuracy"] == pytest.approx(4 / 7)
    assert found["per_kind"]["PER"] == {"precision": 1, "recall": 1, "f1": 1, "count": 2, "found": 2}
    assert found["per_kind"]["ORG"] == {"precision": 0, "recall": 0, "f1": 0, "count": 0, "found": 1}
    assert list(found["per_kind"]) == ["LOC", "ORG", "PER"]
    strict = entity_scores(GOLD, GUESSED, strict=True, scheme="iob2")
    assert (strict["correct"], strict["found"], strict["count"]) == (1, 3, 3)
    assert entity_scores([["O"]], [["O"]])["f1"] == 0


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: entity_scores([["O"]], []), DataError, "0 tagged sentences for 1"),
        (lambda: entity_scores([["O"], ["O"]], [["O"], ["O", "O"]]), DataError, "sentence 2: 2 tags for 1 words"),
        (lambda: entity_scores([], []), DataError, "no word to score"),
        (lambda: entity_scores(GOLD, GOLD, strict=True), UsageError, "need the scheme"),
        (lambda: strict_entities(["O", "S-PER"], "iob2"), DataError, "'S-PER' of word 2 is not part of iob2"),
        (lambda: convert([], "bilou"), UsageError, "choose iob1"),
        (lambda: legal_moves([], "bilou"), UsageError, "choose iob1"),
    ],
)
def test_what_cannot_be_scored(call, error, message):
    with pytest.raises(error, match=message):
        call()


def test_the_scheme_is_told_by_the_tags():
    for scheme in SCHEMES:
        legal = [tags for tags in sequences(scheme, 3) if is_legal(tags, scheme)]
        assert scheme_of(legal) == scheme
    assert scheme_of([["O", "O"]]) == scheme_of([["B", "I"]]) == "iob2"
    assert scheme_of([["NN", "E", "O"]]) is None


@pytest.mark.parametrize(
    ("tags", "message"),
    [
        ([["B-x", "I-x"], ["O", "I-x"], ["B-y"]], "sentence 2, word 2: 'I-x' cannot follow 'O' in iob2"),
        ([["B-x", "I-x"], ["B-x", "I-y"]], "sentence 2, word 2: 'I-y' cannot follow 'B-x' in iob2"),
        ([["I-x"], ["I-x", "I-x"], ["O", "B-y"]], "sentence 3, word 2: 'B-y' cannot follow 'O' in iob1"),
        ([["S-x", "B-x", "E-x"], ["B-x"]], "sentence 2, word 1: a sentence cannot end with 'B-x' in iobes"),
        ([["S-x", "B-x", "O"]], "sentence 1, word 3: 'O' cannot follow 'B-x' in iobes"),
        ([["O", "B-x"], ["NN"]], "sentence 2, word 1: the tag 'NN' is neither O .* 'B-x' at sentence 1, word 2"),
    ],
)
def test_an_illegal_move_is_named(tags, message):
    with pytest.raises(DataError, match=message):
        scheme_of(tags)


def test_an_illegal_move_is_named_by_file_and_line(tmp_path):
    rows = '{"words": ["a", "b"], "tags": ["O", "I-x"]}\n'
    for name, text, place in [
        ("a.conll", "a O\n\na B-x\nb I-x\n\n\na O\nb I-x\n", "a.conll:8: 'I-x'"),
        ("a.jsonl", '{"words": ["a"], "tags": ["B-x"]}\n\n' + rows, "a.jsonl:3, word 2: 'I-x'"),
    ]:
        (tmp_path / name).write_text(text)
        sentences = list(read_tagged([tmp_path / name]))
        with pytest.raises(DataError, match=place):
            scheme_of([each.tags for each in sentences], lambda i, j: sentences[i].place_of(j))  # noqa: B023


@pytest.mark.long
@pytest.mark.parametrize("name", ["conll2000", "conll2002-esp", "wikigold-iob1", "wnut17"])
def test_equal_to_conlleval(name):
    """Every figure that the shared tasks' own script prints."""
    gold, guessed = [[]], [[]]
    for line in (FIXTURES / f"{name}.txt").read_text("utf-8").splitlines():
        parts = line.split()
        if parts:
            gold[-1].append(parts[-2])
            guessed[-1].append(parts[-1])
        elif gold[-1]:
            gold.append([])
            guessed.append([])
    found = entity_scores(gold, guessed)
    shown = [
        "processed {tokens} tokens with {count} phrases; found: {found} phrases; correct: {correct}.".format(**found),
        f"accuracy: {100 * found['accuracy']:6.2f}%; {rates(found)}",
    ]
    shown += [f"{kind:>17}: {rates(each)}  {each['found']}" for kind, each in found["per_kind"].items()]
    assert shown == (FIXTURES / f"{name}.expected.txt").read_text("utf-8").splitlines()


def rates(found):
    part = {name: 100 * found[name] for name in ("precision", "recall", "f1")}
    return "precision: {precision:6.2f}%; recall: {recall:6.2f}%; FB1: {f1:6.2f}".format(**part)


def strict_scores_are_seqeval_s(scheme):
    """All pairs of short sentences in groups, so that kinds and sentences are mixed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of kinds that nobody has found
        every = [tags for tags in sequences(scheme, 3) if tags]
        rng = random.Random(0)
        for _ in range(150):
            gold = rng.choices(every, k=6)
            guessed = [rng.choice([each, rng.choices(tags_of(scheme), k=len(each))]) for each in gold]
            found = entity_scores(gold, guessed, strict=True, scheme=scheme)
            wanted = seqeval.metrics.classification_report(
                gold, guessed, mode="strict", scheme=THEIRS[scheme], output_dict=True, zero_division=0
            )
            for name, part in {"micro avg": found, **found["per_kind"]}.items():
                theirs = wanted.get(name, {"precision": 0, "recall": 0, "f1-score": 0, "support": 0})
                assert part["count"] == theirs["support"]
                assert part["f1"] == pytest.approx(theirs["f1-score"])
                assert (part["precision"], part["recall"]) == pytest.approx((theirs["precision"], theirs["recall"]))


THEIRS = {"iob1": seqeval.scheme.IOB1, "iob2": seqeval.scheme.IOB2, "iobes": seqeval.scheme.IOBES}


@pytest.mark.parametrize("scheme", SCHEMES)
def test_strict_scores_are_seqeval_s(scheme):
    strict_scores_are_seqeval_s(scheme)


def test_planted_good_will_in_scores_is_noticed(monkeypatch):
    monkeypatch.setattr(module, "strict_entities", lambda tags, scheme: entities(tags))
    for scheme in SCHEMES:
        with pytest.raises(AssertionError):
            strict_scores_are_seqeval_s(scheme)

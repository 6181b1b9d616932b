"""Suites of imported models equal what `transformers` gives when each definition is worked out with it directly, pair by pair."""

import itertools
import json
import random

import numpy as np
import pytest
import torch

from seqloom.convert.huggingface import import_folder
from seqloom.evaluate import pseudo
from seqloom.evaluate.suites import minimal
from seqloom.runs.load import load
from tests.convert.material import KINDS, build, fast
from tests.training.material import sentences

TIE = ("the cat sees a bird .", "the  cat sees a bird .")  # one for a vocabulary that does not know blanks


def made_pairs(count):
    """A sentence and the same with two of its words exchanged; cafés and such have several pieces."""
    rng = random.Random(5)
    found = []
    for sentence in sentences(count, 3):
        words = [*sentence.split(), rng.choice(["cabinet", "Naïve", "facade", "tables", "remembering"])]
        other = list(words)
        i, j = sorted(rng.sample(range(len(words)), 2))
        other[i], other[j] = other[j], other[i]
        found.append((" ".join(words), " ".join(other)))
    return found


PAIRS = made_pairs(200)


@pytest.fixture(scope="module")
def imported(tmp_path_factory):
    """Their model and tokenizer, and our run of the same folder, each once; with weights in bf16 if asked for."""
    made = {}

    def get(name, dtype=torch.float32):
        if (name, dtype) not in made:
            place = tmp_path_factory.mktemp(name)
            model, words = build(name)
            model, words = model.to(dtype), fast(words, KINDS[name][3])
            for part in (model, words):
                part.save_pretrained(place / "theirs")
            import_folder(place / "theirs", place / "run")
            made[name, dtype] = model.float(), words, load(place / "run", "cpu")
        return made[name, dtype]

    return get


@torch.no_grad()
def direct(name, model, words, text):
    """Σ log p, by the definition that the kind of model has."""
    if name == "gpt2":
        ids = torch.tensor([words.eos_token_id, *words(text, add_special_tokens=False)["input_ids"]])
        log_probs = model(input_ids=ids[None]).logits[0, :-1].log_softmax(1)
        return float(log_probs.gather(1, ids[1:, None]).double().sum())
    read = words(text)
    ids, owners = torch.tensor(read["input_ids"]), read.word_ids()
    places = [i for i, owner in enumerate(owners) if owner is not None]
    hidden = ids.repeat(len(places), 1)
    for row, i in enumerate(places):  # this piece and those after it of the same word are hidden
        hidden[row, [j for j in range(i, len(ids)) if owners[j] == owners[i]]] = words.mask_token_id
    log_probs = model(input_ids=hidden).logits[range(len(places)), places].log_softmax(1)
    return float(log_probs.gather(1, ids[places, None]).double().sum())


NAMES = ("gpt2", "bert-masked")
KNOWN = {}


def theirs(name, imported, dtype=torch.float32):
    if (name, dtype) not in KNOWN:
        model, words, _ = imported(name, dtype)
        KNOWN[name, dtype] = [[direct(name, model, words, text) for text in pair] for pair in PAIRS]
    return KNOWN[name, dtype]


def outcomes(run, folder, count=len(PAIRS), **options):
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps({"good": a, "bad": b}) + "\n" for a, b in PAIRS[:count]))
    return run.evaluate_suite("blimp", path, items=True, **options)["items"]


def clear(expected):
    """The pairs that rounding cannot turn around: with random weights some are as good as ties."""
    return [i for i, (a, b) in enumerate(expected) if a == b or abs(a - b) > 1e-3]


def check(name, imported, tmp_path, dtype=torch.float32):
    run = imported(name, dtype)[2]
    expected = theirs(name, imported, dtype)
    flat = [sum(each.log_probs) for each in run.score([text for pair in PAIRS for text in pair])]
    assert flat == pytest.approx(list(itertools.chain(*expected)), abs=1e-4)
    items, sure = outcomes(run, tmp_path), clear(expected)
    assert len(sure) > 0.9 * len(PAIRS)
    assert [items[i] for i in sure] == [0.5 if a == b else float(a > b) for a, b in (expected[i] for i in sure)]
    assert 20 < sum(items) < 180


@pytest.mark.parametrize("name", NAMES)
def test_blimp_pair_by_pair(name, imported, tmp_path):
    check(name, imported, tmp_path)


@pytest.mark.parametrize("name", NAMES)
def test_how_many_are_computed_together_changes_nothing(name, imported, tmp_path):
    run, sure = imported(name)[2], clear(theirs(name, imported))
    usual = outcomes(run, tmp_path)
    for at_once, count in ((1, 20), (7, 60), (64, len(PAIRS))):
        found = outcomes(run, tmp_path, count, batch_tokens=20 * at_once)
        assert [found[i] for i in sure if i < count] == [usual[i] for i in sure if i < count]


@pytest.mark.parametrize("name", NAMES)
def test_weights_in_half_precision_are_computed_with_in_single(name, imported, tmp_path):
    run = imported(name, torch.bfloat16)[2]
    assert {p.dtype for p in run.learner.parameters()} == {torch.float32}
    check(name, imported, tmp_path, torch.bfloat16)
    half, full = theirs(name, imported, torch.bfloat16), theirs(name, imported)
    assert not np.allclose(half, full, atol=1e-4)  # other weights indeed


def test_a_tie_counts_half(imported, tmp_path):
    run = imported("bert-masked")[2]
    (tmp_path / "a.jsonl").write_text(json.dumps(dict(zip(("good", "bad"), TIE, strict=True))) + "\n")
    found = run.evaluate_suite("blimp", tmp_path, items=True)
    assert (found["items"], found["ties"], found["accuracy"]) == ([0.5], 1, 0.5)


# ---- bugs that must be noticed


def test_the_rest_of_a_word_left_open(imported, tmp_path, monkeypatch):
    monkeypatch.setattr(pseudo, "word_rests", lambda inside, place: np.ones(len(place), np.int64))
    with pytest.raises(AssertionError):
        check("bert-masked", imported, tmp_path)


def test_items_in_another_order(imported, tmp_path, monkeypatch):
    right = minimal.won
    monkeypatch.setattr(minimal, "won", lambda good, bad: right(bad, good))
    with pytest.raises(AssertionError):
        check("gpt2", imported, tmp_path)


# ---- continuations


@torch.no_grad()
def directly_continued(model, words, context, more):
    whole = [words.eos_token_id, *words(context + more, add_special_tokens=False)["input_ids"]]
    before = len(words(context, add_special_tokens=False)["input_ids"]) + 1
    log_probs = model(input_ids=torch.tensor([whole])).logits[0].log_softmax(1)
    each = [
        (float(log_probs[i - 1, whole[i]]), int(log_probs[i - 1].argmax()) == whole[i])
        for i in range(before, len(whole))
    ]
    return sum(p for p, _ in each), all(best for _, best in each)


def test_continuations(imported):
    model, words, run = imported("gpt2")
    pairs = []
    for sentence in sentences(60, 8):
        at = sentence.index(" ", len(sentence) // 2)
        pairs.append((sentence[:at], sentence[at:]))
    for context, _ in pairs[:10]:  # some that greedy writing gives
        pairs.append((context, run.generate(context, max_new=2, temperature=0.0)[0].text[len(context) :]))
    found = run.continuations(*zip(*pairs, strict=True))
    expected = [directly_continued(model, words, *pair) for pair in pairs]
    for each, (log_prob, greedy) in zip(found, expected, strict=True):
        assert (each.log_prob, each.greedy) == (pytest.approx(log_prob, abs=1e-4), greedy)
    assert any(each.greedy for each in found)

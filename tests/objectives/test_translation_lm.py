"""Sentences beside their translations: what stands where, what is hidden, and which are found again."""

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE
from seqloom.batches.pairs import PairBatches, pair_batch
from seqloom.evaluate.pairs import retrieval
from seqloom.models import model_class
from seqloom.objectives import translation_lm as module
from seqloom.objectives.translation_lm import TranslationLM, apart, beside
from seqloom.runs.load import load
from seqloom.runs.training import evaluate_files, train
from tests.batches.test_pairs import END, some_pairs
from tests.training.material import write_pairs


def rows(passage):
    batch = passage.batch
    for a, b in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist(), strict=True):
        parts = (batch.ids, batch.segments, batch.positions, passage.places >= 0)
        yield tuple(part[a:b].tolist() for part in parts)


def sides_stay_together():
    pairs = some_pairs(20)
    batch = pair_batch(pairs, np.array([3, 7, 1]))
    for number, (ids, language, places, text) in zip((3, 7, 1), rows(beside(batch)), strict=True):
        s, t = int(pairs.source.lengths[number]), int(pairs.target.lengths[number])
        assert ids == [END, *[number + 1] * s, END, *[number + 1001] * t, END]
        assert language == [0] * (s + 2) + [1] * (t + 1)
        assert places == [*range(s + 2), *range(t + 1)], "a translation counts its places anew"
        assert text == [False, *[True] * s, False, *[True] * t, False]
    alone = list(rows(apart(batch)))
    for number, (ids, language, places, text) in zip((3, 7, 1), alone[:3], strict=True):
        s = int(pairs.source.lengths[number])
        assert ids == [END, *[number + 1] * s, END] and set(language) == {0} and places == list(range(s + 2))
        assert text == [False, *[True] * s, False]
    for number, (ids, language, *_) in zip((3, 7, 1), alone[3:], strict=True):
        assert ids == [END, *[number + 1001] * int(pairs.target.lengths[number]), END] and set(language) == {1}


def test_sides_stay_together():
    sides_stay_together()


def test_planted_mix_up_of_sides_is_noticed(monkeypatch):
    true = module.sides

    def rolled(pair):
        first, (source, target) = true(pair)
        return first, [source, (target[0].roll(1), *target[1:])]

    monkeypatch.setattr(module, "sides", rolled)
    with pytest.raises(AssertionError):
        sides_stay_together()


@pytest.mark.parametrize("shapes", ["free", "row"])
def test_filler_has_no_text(shapes):
    pairs = some_pairs(40)
    plan = PairBatches(pairs, 256, 40, shapes).plan(0, 0)
    for make in (beside, apart):
        total = 0
        for i in range(len(plan)):
            passage = make(plan.batch(i))
            text = passage.places >= 0
            assert not (passage.batch.ids[text] == END).any()
            total += int(text.sum())
        assert total == len(pairs.source.ids) + len(pairs.target.ids)


def learner(**config):
    cls = model_class("xlm")
    sizes = {"dim": 16, "num_layers": 1, "num_heads": 2, "max_len": 64, "vocab_size": 2000, "dropout": 0.0}
    made = TranslationLM(cls(cls.Config(**sizes)), TranslationLM.Config(**config))
    made.mask_id.fill_(1999)
    made.is_special[[END, 1999]] = True
    made.validate_loaded()
    return made


def test_the_share_of_parallel_batches():
    batch = pair_batch(some_pairs(20), np.arange(10))
    for share in (0.0, 0.3, 1.0):
        ours = learner(parallel=share)
        many = [ours.corrupt(batch, torch.Generator().manual_seed(i)).batch.num_sequences == 10 for i in range(400)]
        assert np.mean(many) == pytest.approx(share, abs=4 * 0.5 / 20)
        example = ours.corrupt(batch, torch.Generator().manual_seed(0))
        kept = example.targets != IGNORE
        assert not (example.targets[kept] == END).any() and ours(example).total.isfinite()


def test_static_masks_are_refused():
    with pytest.raises(ValueError, match="static masks are for plain text"):
        learner(static=True)


def test_retrieval_counts_nearest_neighbours():
    torch.manual_seed(0)
    vectors = torch.randn(30, 8)
    assert retrieval(vectors, 3 * vectors) == {"retrieval_accuracy": 1.0, "retrieval_accuracy_back": 1.0}
    assert retrieval(vectors, vectors.roll(1, 0))["retrieval_accuracy"] == 0.0
    same = torch.ones(4, 3)
    assert retrieval(same, same)["retrieval_accuracy"] == 0.5, "ties count half"


def test_a_run_is_trained_measured_and_loaded(tmp_path):
    files = {
        name: write_pairs(tmp_path, count, seed, name) for name, count, seed in (("train", 400, 0), ("valid", 20, 1))
    }
    settings = ["budget={steps=20}", "batches.budget=1024", "train.eval_every=10"]
    run = train(
        "xlm-tiny",
        "translation-lm",
        files["train"],
        tmp_path / "run",
        valid=files["valid"],
        tokenizer="word",
        settings=settings,
    )
    assert run.learner.parallel == 0.5 and run.learner.mask == run.tokenizer.mask_id
    assert run.languages == ["source", "target"]
    found = evaluate_files(load(tmp_path / "run"), files["valid"])
    assert 0 <= found["retrieval_accuracy"] <= 1 and found["loss"] > 0
    assert "translations of valid found" in (tmp_path / "run" / "card.md").read_text()

"""The effective context: against windows read one by one, against the definition in loops, and where the answer is known."""

import math

import numpy as np
import pytest
import torch

from seqloom.analyse import context
from seqloom.analyse.context import ContextLosses, choose_words, context_losses, contexts_up_to, reaches
from seqloom.analyse.context_page import EffectiveContext
from seqloom.batch import pack
from seqloom.cli import run
from seqloom.errors import DataError
from seqloom.evaluate.score import Texts
from seqloom.runs.training import pretrain
from tests.contract import properties as p
from tests.training.material import prepared, write_text

CPU = torch.device("cpu")
DOCUMENTS = p.sequences(3, (40, 9, 25))


def test_contexts_rise_by_equal_steps():
    assert contexts_up_to(32) == tuple(range(2, 33, 2))
    assert contexts_up_to(10, 4) == (2, 6, 10)
    assert contexts_up_to(3) == (1, 2, 3)


def test_words_have_their_context_in_their_document():
    texts = Texts(DOCUMENTS, 0)
    words = choose_words(texts, 20, 10**6)
    document = np.searchsorted(texts.offsets, words, side="right") - 1
    assert set(document) == {0, 2} and (words - texts.offsets[document] + 1 >= 20).all()
    assert len(words) == (41 - 19) + (26 - 19)
    few = choose_words(texts, 20, 5)
    assert len(few) == 5 and set(few) <= set(words) and {words[0], words[-1]} <= set(few)
    with pytest.raises(DataError, match="no document has 42 tokens before a word, the longest has 41"):
        choose_words(Texts(DOCUMENTS, 0), 42, 5)


@torch.no_grad()
def equals_windows_alone(name):
    learner, texts = p.learner_of(p.build(name)), Texts(DOCUMENTS, 0)
    words = choose_words(texts, 12, 9)
    found = context_losses(name, learner, texts, words, (3, 12), CPU, batch_tokens=40)
    for row, c in zip(found.losses, (3, 12), strict=True):
        for loss, word in zip(row, words, strict=True):
            # flat begins with the end token before the first document, so that word w of the corpus is flat[w + 1]
            window, target = texts.flat[word + 1 - c : word + 1].tolist(), texts.flat[word + 1]
            scores = learner.softmax(learner.backbone(pack([window])).hidden[-1:])[0]
            assert loss == pytest.approx(-float(scores.log_softmax(0)[target]), abs=1e-9)


@pytest.mark.parametrize("name", ["lstm", "gpt2", "transformer-xl", "nnlm"])
def test_equals_windows_alone(name):
    equals_windows_alone(name)


def test_a_planted_context_one_too_short_is_noticed(monkeypatch):
    right = context.last_losses
    monkeypatch.setattr(
        context, "last_losses", lambda learner, texts, words, c, d: right(learner, texts, words, c - 1, d)
    )
    with pytest.raises(AssertionError):
        equals_windows_alone("lstm")


def test_a_model_reads_no_more_than_it_can():
    learner, texts = p.learner_of(p.build("gpt2", max_len=8)), Texts(DOCUMENTS, 0)
    found = context_losses("gpt2", learner, texts, choose_words(texts, 20, 7), (8, 14, 20), CPU).losses
    assert (found[0] == found[1]).all() and (found[0] == found[2]).all()


def test_an_ngram_model_uses_its_order_and_no_more():
    learner, texts = p.learner_of(p.build("nnlm", order=4)), Texts(DOCUMENTS, 0)
    found = context_losses("nnlm", learner, texts, choose_words(texts, 6, 30), (1, 2, 3, 4, 5), CPU).losses
    assert (np.abs(found[0] - found[2]) > 1e-6).any() and np.abs(found[2:] - found[2]).max() < 1e-12


def known(name, scale, until):
    """Losses that fall with the context until it is `until` tokens long."""
    rng, contexts = np.random.default_rng(0), tuple(range(10, 101, 10))
    base = rng.uniform(2, 6, 400)
    rows = [scale * base - 0.05 * min(c, until) / 10 for c in contexts]
    return ContextLosses(name, contexts, np.stack(rows))


def test_lengths_that_are_known():
    group = [known("short", 1.0, 30), known("long", 1.0, 80)]
    short, long = reaches(group)
    # from 30 on only the other model is the best, and the short one gains nothing by it
    assert (short.length, long.length, short.at_end, long.at_end) == (30, 80, False, False)
    assert reaches([known("all", 1.0, 1000)])[0] == ("all", 100, pytest.approx((1 - math.exp(-0.05),) * 9), True)
    # a worse model that gains does not reach what the best does already
    assert reaches([known("best", 1.0, 30), known("worse", 1.5, 80)])[1].length == 10


def test_equals_the_definition():
    rng = np.random.default_rng(1)
    group = [ContextLosses(f"m{i}", (1, 2, 3), rng.uniform(0, 5, (3, 37))) for i in range(3)]
    for i, reach in enumerate(reaches(group, hardest=0.2)):
        for k, gain in enumerate(reach.gains):
            best = [min(each.losses[k][t] for each in group) for t in range(37)]
            chosen = sorted(range(37), key=lambda t: -best[t])[:7]
            f = [sum(min(best[t], group[i].losses[j][t]) for t in chosen) / 7 for j in (k, k + 1)]
            assert gain == pytest.approx((math.exp(f[0]) - math.exp(f[1])) / math.exp(f[0]), rel=1e-9)


def test_page():
    group = [known("short", 1.0, 30), known("long <b>", 1.0, 80)]
    made = EffectiveContext(group, "books.txt").html()
    assert "long &lt;b&gt;" in made and "<b>" not in made and made.count("<svg") == 2


def test_command(tmp_path, capsys):
    data = prepared(tmp_path / "data", 300)
    small = ["model.dim=20", "batches.streams=4", "batches.length=16", "budget={steps=2}", "valid.limit=100"]
    names = ("lstm", "transformer-xl")
    for name in names:
        pretrain(f"{name}-tiny", data, tmp_path / name, settings=small)
    runs, text = [str(tmp_path / name) for name in names], write_text(tmp_path / "more.txt", 100)
    capsys.readouterr()
    out = tmp_path / "context.html"
    options = ["--text", str(text), "--out", str(out), "--windows", "20"]
    assert run(["inspect", *runs, *options, "--context", "8", "--step", "2", "--documents", "file"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("effective context") == 2 and "<svg" in out.read_text(encoding="utf-8")
    out.unlink()
    for wrong in (["--step", "2"], ["--context", "8", "--step", "8"], ["--documents", "file"]):
        assert run(["inspect", *runs, *options, *wrong]) == 2
    assert run(["inspect", *runs, *options, "--context", "100000", "--documents", "file"]) == 3
    assert not out.exists()

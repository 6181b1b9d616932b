"""Perplexity against its definition, computed one token at a time; no figure depends on the batch."""

import math

import numpy as np
import pytest
import torch

from seqloom.batch import pack
from seqloom.errors import DataError, Interrupted, UsageError
from seqloom.evaluate import perplexity as module
from seqloom.evaluate.perplexity import perplexity, stretches, windows
from seqloom.training.interrupt import Interruption
from seqloom.training.share import Share
from tests.contract.properties import build, learner_of
from tests.corpus import END, MemorySplit, random_corpus

CPU = torch.device("cpu")
RECURRENT, LIMITED = ["rnn", "gru", "lstm"], ["gpt", "gpt2"]


def by_hand(learner, split, max_len=None, stride=None):
    """Σ −log p, each token from its own call."""
    nats = 0.0
    for document in split.documents:
        for t, token in enumerate(document):
            text = [END, *document][: t + 1]
            if max_len is not None:  # the window in which token t is counted
                end = max_len if t < max_len else max_len + -(-(t + 1 - max_len) // stride) * stride
                begin = max(0, min(end, len(document)) - max_len)
                text = text[begin:]
            with torch.no_grad():
                scores = learner.softmax(learner.backbone(pack([text])).hidden[-1:])
            nats -= scores.log_softmax(-1)[0, token].item()
    return nats


@pytest.mark.parametrize("name", RECURRENT)
def test_carried(name, monkeypatch):
    monkeypatch.setattr(module, "CHUNK", 7)
    learner, split = learner_of(build(name)), random_corpus(2, 6, 30)
    expected = by_hand(learner, split) / split.num_tokens
    for batch_tokens in (1, 7, 14, 28, 1000):
        result = perplexity(learner, split, CPU, batch_tokens=batch_tokens)
        assert result["loss"] == pytest.approx(expected, abs=1e-10)
    assert result["perplexity"] == pytest.approx(math.exp(expected))
    assert result["bits_per_byte"] == pytest.approx(expected * split.num_tokens / math.log(2) / split.bytes)


def parts_are_warmed_up(warmup=8):
    """A model whose memory ends within the warm-up is measured exactly; every token is counted once."""
    learner, split = learner_of(build("nnlm")), random_corpus(5, 4, 300)
    exact = perplexity(learner, split, CPU)
    for batch_tokens in (64, 100_000):
        found = perplexity(learner, split, CPU, warmup=warmup, batch_tokens=batch_tokens)
        assert found["tokens"] == exact["tokens"] == split.num_tokens
        assert found["loss"] == pytest.approx(exact["loss"], abs=1e-10)
    assert "in parts after 8 tokens" in found["context"]
    _, sizes, skipped = stretches(split.offsets, warmup)
    assert sizes.max() <= 9 * warmup and (sizes - skipped).sum() == split.num_tokens


def test_parts_of_long_documents_are_warmed_up():
    parts_are_warmed_up()


def test_planted_parts_without_a_warm_up_are_noticed(monkeypatch):
    def cold(borders, warmup):
        starts, sizes, skipped = stretches(borders, warmup)
        return starts + skipped, sizes - skipped, np.zeros_like(skipped)

    monkeypatch.setattr(module, "stretches", cold)
    with pytest.raises(AssertionError):
        parts_are_warmed_up()


@pytest.mark.parametrize("name", ["lstm", "gru"])
def test_a_longer_warm_up_is_nearer_to_the_whole(name):
    learner, split = learner_of(build(name)), MemorySplit(random_corpus(6, 1, 3000).documents)
    exact = perplexity(learner, split, CPU)["loss"]
    off = [abs(perplexity(learner, split, CPU, warmup=warmup)["loss"] - exact) for warmup in (1, 16)]
    assert off[1] < 0.05 * off[0]


@pytest.mark.parametrize("stride", [None, 1, 3, 8])
@pytest.mark.parametrize("name", [*LIMITED, *RECURRENT])
def test_sliding(name, stride):
    learner, split = learner_of(build(name)), random_corpus(3, 5, 30)
    expected = by_hand(learner, split, 8, stride or 8) / split.num_tokens
    for batch_tokens in (1, 16, 1000):
        result = perplexity(learner, split, CPU, max_len=8, stride=stride, batch_tokens=batch_tokens)
        assert result["loss"] == pytest.approx(expected, abs=1e-10)


def test_carried_windows_cross_the_borders_of_documents():
    """As one document whose words are those of all."""
    learner, split = learner_of(build("lstm")), random_corpus(3, 5, 30)
    together = MemorySplit([split.flat[:-1].tolist()])  # its end token is the last
    expected = by_hand(learner, together, 8, 4) / split.num_tokens
    assert perplexity(learner, split, CPU, max_len=8, stride=4, carry=True)["loss"] == pytest.approx(
        expected, abs=1e-10
    )
    assert perplexity(learner, split, CPU, max_len=8, stride=4)["loss"] != pytest.approx(expected, abs=1e-4)


def test_planted_double_count_is_noticed(monkeypatch):
    def greedy(borders, max_len, stride):
        pieces, counted = windows(borders, max_len, stride)
        return pieces, np.minimum(counted + 1, pieces.lengths)

    monkeypatch.setattr(module, "windows", greedy)
    with pytest.raises(AssertionError):
        perplexity(learner_of(build("gpt2")), random_corpus(3, 5, 30), CPU, max_len=8, stride=4)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_limit_reads_the_first_tokens_only(name):
    learner, split = learner_of(build(name)), random_corpus(4, 5, 30)
    result = perplexity(learner, split, CPU, limit=25)
    assert result["tokens"] == 25 and "bits_per_byte" not in result
    assert perplexity(learner, split, CPU, limit=10**6)["tokens"] == split.num_tokens


def test_unknown_words_are_paid_for():
    learner, split = learner_of(build("lstm")), random_corpus(4, 5, 30)
    plain = perplexity(learner, split, CPU)["bits_per_byte"]
    split.entry.unknown_bits = 100.0
    assert perplexity(learner, split, CPU)["bits_per_byte"] == pytest.approx(plain + 100 / split.bytes)
    split.entry.surface_bits = None
    assert "bits_per_byte" not in perplexity(learner, split, CPU)


def test_bits_of_words_characters_and_bytes_are_of_one_text():
    """A vocabulary with many unknown words must not look good by what it leaves out."""
    learner, split = learner_of(build("lstm")), random_corpus(4, 5, 30)
    split.entry.unknown_bits, split.entry.surface_bits = 321.0, 123.0
    split.entry.words, split.entry.characters, split.entry.bytes = 40, 210, 222
    result = perplexity(learner, split, CPU)
    for name, count in (("word", 40), ("char", 210)):
        assert result[f"bits_per_{name}"] == pytest.approx(result["bits_per_byte"] * 222 / count)
    assert result["bits_per_word"] * 40 == pytest.approx(result["loss"] * result["tokens"] / math.log(2) + 321 + 123)
    split.entry.surface_bits = None
    assert not {"bits_per_word", "bits_per_char"} & perplexity(learner, split, CPU).keys()


def test_it_can_be_stopped_and_leaves_the_mode_alone():
    learner = learner_of(build("lstm")).train()
    asked = Interruption()
    asked.asked = True
    with pytest.raises(Interrupted):
        perplexity(learner, random_corpus(4, 5, 30), CPU, share=Share(asked.check))
    assert learner.training


def test_wrong_calls():
    learner = learner_of(build("gpt2"))
    with pytest.raises(UsageError, match="take in"):
        perplexity(learner, random_corpus(4, 5, 30), CPU, max_len=1000)
    with pytest.raises(UsageError, match="stride"):
        perplexity(learner, random_corpus(4, 5, 30), CPU, max_len=8, stride=9)
    with pytest.raises(DataError, match="no document"):
        perplexity(learner, MemorySplit([]), CPU)

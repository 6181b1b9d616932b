"""Texts as vectors equal the hidden states of each text alone, chosen and pooled by hand."""

import numpy as np
import pytest
import torch

from seqloom.batch import pack
from seqloom.blocks.pooling import choose
from seqloom.errors import DataError, UsageError
from seqloom.evaluate import encode as encoding
from seqloom.runs.language_model import Run
from seqloom.runs.translator import Translator
from tests.encoders import TEXTS, run_of, states, tokenizer_of

WORDPIECE, WORD = tokenizer_of("wordpiece"), tokenizer_of("word")
KINDS = {"bert": "masked", "albert": "masked", "electra": "replaced-token", "gpt2": "next-token", "lstm": "next-token"}

LAYERS = {
    "embedding": lambda found: found[0],
    "last": lambda found: found[4],
    "second-to-last": lambda found: found[3],
    "sum": lambda found: found[1] + found[2] + found[3] + found[4],
    "sum4": lambda found: found[1] + found[2] + found[3] + found[4],
    "concat4": lambda found: torch.cat([found[1], found[2], found[3], found[4]], 1),
    "mix": lambda found: (found[0] + found[1] + found[2] + found[3] + found[4]) / 5,
    "all": lambda found: torch.stack(found, 1),
    "0": lambda found: found[0],
    "3": lambda found: found[3],
}


def around(run: Run) -> tuple[list[int], list[int]]:
    tokenizer = run.tokenizer
    if run.learner.backbone.causal:
        return [tokenizer.end_id], []
    return [tokenizer.first_id], [tokenizer.separator_id]


def by_hand(run: Run, text: str, layers: str, pool: str) -> np.ndarray:
    before, after = around(run)
    ids = run.tokenizer.encode(text)
    chosen = LAYERS[layers](states(run.learner.backbone, [*before, *ids, *after]))
    own = chosen[1 : 1 + len(ids)]
    if pool == "none":
        return own.numpy()
    if not ids:
        return np.zeros(own.shape[1:])
    special = chosen[0] if not run.learner.backbone.causal else own[0]
    return {"mean": own.mean(0), "first": special, "last": own[-1], "max": own.max(0).values}[pool].numpy()


def check(run: Run, layers: str, pool: str) -> None:
    found = run.encode(TEXTS, layers, pool)
    assert len(found) == len(TEXTS)
    for text, vector in zip(TEXTS, found, strict=True):
        wanted = by_hand(run, text, layers, pool)
        assert vector.dtype == np.float32 and vector.shape == wanted.shape
        np.testing.assert_allclose(vector, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("layers", LAYERS)
@pytest.mark.parametrize("model", KINDS)
def test_layers(model, layers):
    run = run_of(model, KINDS[model], WORDPIECE)
    check(run, layers, "mean")
    check(run, layers, "none")


@pytest.mark.parametrize("pool", ["mean", "first", "last", "max", "none"])
@pytest.mark.parametrize("model", KINDS)
def test_pooling(model, pool):
    check(run_of(model, KINDS[model], WORDPIECE), "last", pool)


def test_batches_change_nothing():
    run = run_of("bert", "masked", WORDPIECE)
    ids = [run.tokenizer.encode(text) for text in TEXTS]
    whole = run.reading.encoder.encode(ids)[0]
    for budget in (1, 20, 50):
        np.testing.assert_allclose(run.reading.encoder.encode(ids, batch_tokens=budget)[0], whole, atol=1e-6)
    np.testing.assert_allclose(run.encode(TEXTS[::-1])[::-1], whole, atol=1e-6)


def test_no_text():
    run = run_of("bert", "masked", WORDPIECE)
    assert run.encode([]).shape == (0, 12) and run.encode([""]).tolist() == [[0.0] * 12]
    assert [part.shape for part in run.encode(["", "the", ""], pool="none")] == [(0, 12), (1, 12), (0, 12)]


def test_unknown_words_are_read_by_their_letters():
    sizes = {"max_chars": 8, "char_dim": 4, "filters": ((1, 4), (2, 4)), "num_layers": 2, "proj_dim": 0}
    run = run_of("big-lstm", "next-token", WORD, **sizes)
    run.characters = run.learner.backbone.characters
    texts = ["the zebra sees", "zzz", "the Über7ly sees"]
    one, two, three = run.encode(texts)
    assert np.abs(one - three).max() > 1e-3
    np.testing.assert_allclose(run.encode(texts[::-1]), [three, two, one], atol=1e-6)
    run.characters = 0
    np.testing.assert_allclose(*run.encode(texts)[[0, 2]], atol=1e-6)


def test_the_encoder_of_a_translator():
    from pathlib import Path

    from seqloom.models.bahdanau import Bahdanau
    from seqloom.models.transformer import Transformer
    from seqloom.tasks.translate import Translate

    def translator(model):
        return Translator(Path("memory"), {}, Translate(model, Translate.Config()).eval(), WORD, torch.device("cpu"))

    torch.manual_seed(0)
    model = Transformer(Transformer.Config(vocab_size=WORD.vocab_size, dim=12, num_layers=2, num_heads=2, max_len=16))
    found = translator(model).encode(TEXTS, "second-to-last", "none")
    for text, rows in zip(TEXTS, found, strict=True):
        ids = WORD.encode(text)
        np.testing.assert_allclose(rows, states(model.encoder.eval(), [*ids, WORD.end_id])[1][:-1], atol=1e-5)
    with pytest.raises(DataError, match="text 1 has 16 tokens and 1 special tokens, but the model reads at most 16"):
        translator(model).encode(["the " * 16])
    recurrent = Bahdanau(Bahdanau.Config(vocab_size=WORD.vocab_size, dim=12)).eval()
    found = translator(recurrent).encode(TEXTS, "last", "none")
    for text, rows in zip(TEXTS, found, strict=True):
        context = recurrent.encode(pack([[*WORD.encode(text), WORD.end_id]]))
        np.testing.assert_allclose(rows, context.hidden.detach().numpy()[:-1], atol=1e-5)


# ---- bugs that must be noticed


def test_special_tokens_in_the_mean(monkeypatch):
    monkeypatch.setattr(
        encoding.Encoder, "own", lambda self, batch, sizes: torch.ones_like(batch.ids, dtype=torch.bool)
    )
    for model in ("bert", "lstm"):
        with pytest.raises(AssertionError):
            check(run_of(model, KINDS[model], WORDPIECE), "last", "mean")


def test_the_norm_at_the_top_forgotten(monkeypatch):
    """The last layer in place of what the output layer reads."""

    def states_of(self, batch, layers):
        return choose(self.backbone(batch, layers=True).layers, layers)

    monkeypatch.setattr(encoding.Encoder, "states", states_of)
    with pytest.raises(AssertionError):
        check(run_of("gpt2", "next-token", WORDPIECE), "last", "mean")


def test_vectors_in_the_order_of_lengths(monkeypatch):
    right = encoding.Encoder.encode

    def sorted_by_length(self, texts, *rest, **options):
        return right(self, sorted(texts, key=len), *rest, **options)

    monkeypatch.setattr(encoding.Encoder, "encode", sorted_by_length)
    with pytest.raises(AssertionError):
        check(run_of("bert", "masked", WORDPIECE), "last", "mean")


# ---- what is refused


def test_what_is_refused():
    run = run_of("bert", "masked", WORD, num_layers=3)
    with pytest.raises(UsageError, match="concat4 needs 4 layers, this model has 3"):
        run.encode(["the"], "concat4")
    with pytest.raises(UsageError, match="--layers 4: this model has the layers 1 to 3"):
        run.encode(["the"], 4)
    with pytest.raises(UsageError, match=r"'lst' .did you mean 'last'"):
        run.encode(["the"], "lst")
    with pytest.raises(UsageError, match=r"unknown pooling 'mea' .did you mean 'mean'"):
        run.encode(["the"], pool="mea")
    with pytest.raises(DataError, match=r"a.txt:1 has 39 tokens and 2 special tokens, but the model reads at most 40"):
        run.encode(["the " * 39], names=["a.txt:1"])
    assert run_of("lstm", "next-token", WORD).encode(["the " * 500]).shape == (1, 12)  # no limit
    wide = run_of("awd-lstm", "next-token", WORD, embedding_dim=8, num_layers=2)
    with pytest.raises(UsageError, match=r"--layers sum: the layers are \[12, 8\] wide"):
        wide.encode(["the"], "sum")
    with pytest.raises(UsageError, match="counts words and has no vectors"):
        run_of("ngram", "counts", WORD, order=2).encode(["the"])

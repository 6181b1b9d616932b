"""Features of words from a model with any tokenizer: which states they are of, that nothing else is in them, and which token of
another model gets which of them."""

import numpy as np
import pytest
import torch

from seqloom.batch import pack
from seqloom.batches import labelled
from seqloom.batches.labelled import Examples, Frame, batch_of
from seqloom.blocks.pooling import choose
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Encoder, Reading
from seqloom.evaluate.features import FeatureReader, without_blanks
from seqloom.models import model_class
from seqloom.runs import beside
from seqloom.runs.beside import BesideRuns
from seqloom.text.labelled import Example
from seqloom.text.tagged import Sentence, word_spans
from seqloom.tokens.tokenizer import TEXT_KINDS, Tokenizer
from tests.contract.test_planted_pairs import noticed
from tests.tasks.labelled import learner
from tests.training.material import sentences

TEXTS = [
    "the cat sees the old king today .",
    "a bird",
    "no",
    "my friend's river, without a word — für immer!",
    "the queen hears  no child near the sea .",
]
CLOSE = 1e-5  # of numbers around 4 in fp32: batches of other sizes take other kernels, and CPUs have different ones
SIZES = {"wordpiece": 90, "bpe": 280, "unigram": 290}
TOKENIZERS = {
    kind: Tokenizer.train(kind, [*sentences(200), *TEXTS], min_count=1, vocab_size=SIZES.get(kind))
    for kind in TEXT_KINDS
}
WORDS = [np.array(word_spans(text)) for text in TEXTS]


def reading_of(kind="char", model="lstm", backward=False, max_len=None):
    """Of an untrained model, with weights large enough that every state is another."""
    torch.manual_seed(0)
    cls, tokenizer = model_class(model), TOKENIZERS[kind]
    sizes = {"dim": 12, "num_layers": 2} | ({} if model == "lstm" else {"num_heads": 2, "max_len": max_len or 128})
    body = cls(cls.Config(vocab_size=tokenizer.vocab_size, **sizes)).eval()
    around = ([tokenizer.end_id], []) if body.causal else ([tokenizer.first_id], [tokenizer.separator_id])
    with torch.no_grad():
        for parameter in body.parameters():
            parameter.add_(0.4 * torch.randn_like(parameter))
    return Reading(Encoder(body, *around, torch.device("cpu")), tokenizer, None, backward)


def features_of(reader, texts=TEXTS, words=WORDS):
    found = np.zeros((sum(map(len, words)), reader.width), np.float32)
    missing = reader.features(texts, words, found)
    assert missing == 0
    return np.split(found, np.cumsum([len(each) for each in words])[:-1])


def states_of(reading, ids, layers="last"):
    encoder = reading.encoder
    with torch.no_grad():
        output = encoder.backbone(pack([[*encoder.before, *ids, *encoder.after]]), layers=True)
    return choose((*output.layers[:-1], output.hidden), layers).numpy()


# ---- contextual string embeddings


def borders_are_those_of_flair(kind, backward):
    """By hand: the characters of a text, with its bytes where the tokens are bytes, and what ends documents on both sides."""
    reading = reading_of(kind, backward=backward)
    reader = FeatureReader(reading, "last", "auto", "lm")
    assert reader.read == "border"
    end = reading.tokenizer.end_id
    for text, words, found in zip(TEXTS, WORDS, features_of(reader), strict=True):
        row, at = [], {-1: 0}  # which state has read each character, and all after (or before) it
        for i in range(len(text)) if not backward else reversed(range(len(text))):
            row += reading.tokenizer.encode(text[i])[:: -1 if backward else 1]
            at[i] = len(row)
        at[len(text) if not backward else -1] = len(row) + 1
        states = states_of(reading, [*row, end])
        for (first, behind), feature in zip(words.tolist(), found, strict=True):
            np.testing.assert_allclose(feature, states[at[first - 1 if backward else behind]], atol=CLOSE)


@pytest.mark.parametrize("kind", ["char", "byte"])
@pytest.mark.parametrize("backward", [False, True])
def test_borders_are_those_of_flair(kind, backward):
    borders_are_those_of_flair(kind, backward)


@pytest.mark.parametrize("bug", ["one before", "inside", "other side", "no end"])
@pytest.mark.parametrize("backward", [False, True])
def test_planted_places_beside_the_border_are_noticed(bug, backward, monkeypatch):
    right = FeatureReader.pieces_of

    def wrong(self, text, stretches):
        if bug == "inside":  # the last character of the word, which does not know that the word ends
            self.read = "first" if backward else "last"
        if bug == "other side":  # the border that is read before the word
            self.reading = self.reading._replace(backward=not backward)
        found = right(self, text, stretches)
        if bug == "one before":
            found = [piece._replace(places=np.maximum(piece.places - 1, 0)) for piece in found]
        if bug == "no end":  # at the ends of a text the word itself is read
            found = [piece._replace(places=np.minimum(piece.places, len(piece.ids) - 2)) for piece in found]
        return found

    monkeypatch.setattr(FeatureReader, "pieces_of", wrong)
    noticed(borders_are_those_of_flair, "char", backward)


def test_borders_need_characters_and_a_direction():
    for kind, model, words in (("bpe", "lstm", "has tokens of bpe"), ("char", "bert", "reads in both directions")):
        with pytest.raises(DataError, match=f"lm {words} and cannot be aligned"):
            FeatureReader(reading_of(kind, model), "last", "border", "lm")


# ---- tokens of words


def words_have_their_tokens(kind, read, backward, layers):
    """A word's tokens are those that have a character of it, found by looking at every character."""
    reading = reading_of(kind, "lstm" if read != "mean" else "bert", backward)
    reader = FeatureReader(reading, layers, read, "lm")
    for text, words, found in zip(TEXTS, WORDS, features_of(reader), strict=True):
        ids, spots = reading.tokenizer.encode_with_offsets(text)
        turn = slice(None, None, -1 if backward else 1)
        whole = states_of(reading, ids[turn], layers)
        states = whole[len(reading.encoder.before) :][: len(ids)][turn]
        for (first, behind), feature in zip(words.tolist(), found, strict=True):
            own = [t for t, (a, b) in enumerate(spots) if any(first <= i < behind for i in range(a, b))]
            wanted = {"first": states[own[0]], "last": states[own[-1]], "mean": states[own].mean(0)}[read]
            np.testing.assert_allclose(feature, wanted, atol=CLOSE)


@pytest.mark.parametrize("kind", TEXT_KINDS)
@pytest.mark.parametrize(
    ("read", "backward", "layers"), [("first", False, "last"), ("last", True, "1"), ("mean", False, "sum")]
)
def test_words_have_their_tokens(kind, read, backward, layers):
    words_have_their_tokens(kind, read, backward, layers)


def test_planted_tokens_of_the_next_word_are_noticed(monkeypatch):
    right = FeatureReader.pieces_of
    more = np.array([0, 2])
    monkeypatch.setattr(
        FeatureReader, "pieces_of", lambda self, text, words: right(self, text, np.minimum(words + more, len(text)))
    )
    noticed(words_have_their_tokens, "bpe", "mean", False, "last")


@pytest.mark.parametrize(
    ("kind", "model", "backward", "read"),
    [("word", "lstm", False, "last"), ("bpe", "lstm", True, "first"), ("char", "bert", False, "mean")],
)
def test_what_is_read_unless_somebody_says_otherwise(kind, model, backward, read):
    assert FeatureReader(reading_of(kind, model, backward), "last", "auto", "lm").read == read


def test_layers_that_are_not_there():
    with pytest.raises(UsageError, match=r"'task.beside.layers' = 3: this model has the layers 1 to 2"):
        FeatureReader(reading_of(), "3", "auto", "lm")
    with pytest.raises(UsageError, match="'all'"):
        FeatureReader(reading_of(), "all", "auto", "lm")


# ---- nothing but the text itself


def nothing_but_the_text(kind, model, monkeypatch):
    """A text has the same features alone, among others, in any order, and however many are read at once."""
    reader = FeatureReader(reading_of(kind, model), "last", "auto", "lm")
    among = features_of(reader)
    alone = [features_of(reader, [text], [words])[0] for text, words in zip(TEXTS, WORDS, strict=True)]
    turned = features_of(reader, TEXTS[::-1], WORDS[::-1])[::-1]
    monkeypatch.setattr("seqloom.evaluate.features.AT_ONCE", 1)
    few = features_of(reader)
    for a, *others in zip(among, alone, turned, few, strict=True):
        for b in others:
            np.testing.assert_allclose(a, b, atol=CLOSE)


@pytest.mark.parametrize(("kind", "model"), [("char", "lstm"), ("bpe", "bert"), ("word", "gpt")])
def test_nothing_but_the_text(kind, model, monkeypatch):
    nothing_but_the_text(kind, model, monkeypatch)


@pytest.mark.parametrize("bug", ["neighbours", "order"])
def test_planted_features_of_the_batch_are_noticed(bug, monkeypatch):
    if bug == "neighbours":  # something of the longest text of a batch is in all
        states = Encoder.states
        monkeypatch.setattr(
            Encoder, "states", lambda self, batch, *more: states(self, batch, *more) + batch.max_len / 1e3
        )
    else:  # later ones are put over those before them
        fill = FeatureReader.fill
        monkeypatch.setattr(FeatureReader, "fill", lambda self, found, out: fill(self, [(p, 0) for p, _ in found], out))
    noticed(nothing_but_the_text, "char", "lstm", monkeypatch)


@pytest.mark.parametrize(
    ("kind", "model", "backward"),
    [
        ("char", "gpt", False),
        ("char", "gpt", True),
        ("bpe", "bert", False),
        ("word", "gpt", False),
        ("bpe", "gpt", True),
    ],
)
def test_long_texts_are_read_in_parts_that_fit(kind, model, backward):
    """Every word has features, and those of a part are the ones that it has as a text of its own."""
    reader = FeatureReader(reading_of(kind, model, backward, max_len=16), "last", "auto", "lm")
    found = features_of(reader)
    around = len(reader.reading.encoder.before) + len(reader.reading.encoder.after)
    for text, words, features in zip(TEXTS, WORDS, found, strict=True):
        parts = reader.pieces_of(text, words)
        assert all(len(part.ids) + around <= 16 for part in parts)
        assert np.concatenate([part.stretches for part in parts]).tolist() == list(range(len(words)))
        for part in parts:
            states = states_of(reader.reading, part.ids)[len(reader.reading.encoder.before) :]
            for stretch, (a, b) in zip(part.stretches, part.places.tolist(), strict=True):
                np.testing.assert_allclose(features[stretch], states[a : b + 1].mean(0), atol=CLOSE)
        joined = [
            t for part in parts for t in part.ids[:: -1 if backward else 1] if t != reader.reading.tokenizer.end_id
        ]
        assert sorted(joined) == sorted(reader.reading.tokenizer.encode(text))


def test_blanks_beside_a_word_are_not_of_it():
    """Other models' tokens may begin with the blank before a word, or be a blank."""
    text = "  a bird\tsings "
    found = without_blanks(text, np.array([[0, 3], [2, 3], [3, 8], [3, 4], [0, 1], [8, 15], [14, 15]]))
    assert found[[0, 1, 2, 5]].tolist() == [[2, 3], [2, 3], [4, 8], [9, 14]]
    assert (found[[3, 4, 6], 0] == found[[3, 4, 6], 1]).all()
    assert without_blanks(" ", np.array([[0, 1]])).tolist() in ([[0, 0]], [[1, 1]])
    reader = FeatureReader(reading_of("char", backward=True), "last", "auto", "lm")
    out = np.zeros((3, reader.width), np.float32)
    assert reader.features(["the cat"], [np.array([[3, 7], [4, 7], [3, 4]])], out) == 0
    assert (out[0] == out[1]).all() and out[0].any() and not out[2].any()


def test_a_word_without_a_token_has_no_features():
    reading = reading_of("wordpiece", "bert")
    reader = FeatureReader(reading, "last", "auto", "lm")
    out = np.zeros((3, reader.width), np.float32)
    assert reader.features(["the \x01 cat"], [np.array([[0, 3], [4, 5], [6, 9]])], out) == 1
    assert out.any(1).tolist() == [True, False, True]


# ---- which token gets which


class Echo:
    """Tells of every stretch which it is."""

    width, flops, name = 3, 0, "echo"

    def features(self, texts, stretches, out):
        out[:] = np.concatenate(
            [np.column_stack((np.full(len(s), len(t)), s)) for t, s in zip(texts, stretches, strict=True)]
        )
        return 0


def tokens_have_their_own(task, asked, backward=False, limit=48, windows=False):
    made = learner(task, "lstm")
    tokenizer = TOKENIZERS["word"]
    frame = Frame.of(made.backbone, tokenizer, limit, backward)._replace(spots=True, windows=windows)
    rows, _ = made.encode(asked, tokenizer, frame)
    rows = BesideRuns([Echo()], []).attach(rows, [made.texts_of(each) for each in asked])
    batch = batch_of(rows)
    assert batch.batch.beside.shape == (len(batch.batch.ids), 3)
    told = iter(batch.batch.beside.int().tolist())
    seen = 0
    for example, own in zip(asked, rows, strict=True):
        texts = made.texts_of(example)
        for row in own:
            for token, is_own in zip(row.ids.tolist(), row.own.tolist(), strict=True):
                size, first, behind = next(told)
                if not is_own:
                    assert (size, first, behind) == (0, 0, 0)
                    continue
                seen += 1
                assert any(len(text) == size and text[first:behind] == tokenizer.token(token) for text in texts)
    return seen


def asked_for(task):
    long = " ".join(sentences(4))
    if task == "tag":
        return [Sentence(text.split(), [], "here") for text in (*sentences(3), long)]
    if task == "choose":
        return [Example((TEXTS[0], TEXTS[1], TEXTS[4]), 1, None, "here")]
    if task == "pair":
        return [Example((TEXTS[0], TEXTS[4]), "same", None, "here"), Example(("a bird", long), "other", None, "here")]
    return [Example((text,), "good", None, "here") for text in (*TEXTS, long)]


@pytest.mark.parametrize(
    ("task", "options"),
    [
        ("tag", {}),
        ("tag", {"limit": 9}),
        ("classify", {}),
        ("classify", {"backward": True}),
        ("classify", {"limit": 9, "windows": True}),
        ("pair", {"limit": 20}),
        ("choose", {}),
    ],
)
def test_tokens_have_their_own(task, options):
    assert tokens_have_their_own(task, asked_for(task), **options) > 10


@pytest.mark.parametrize("bug", ["next", "turned"])
def test_planted_features_of_another_token_are_noticed(bug, monkeypatch):
    right = beside.tokens_of
    move = (lambda found: np.roll(found, 1, 0)) if bug == "next" else (lambda found: found[::-1])
    monkeypatch.setattr(beside, "tokens_of", lambda row: move(right(row)))
    noticed(tokens_have_their_own, "classify", asked_for("classify"))


def test_padding_has_no_features():
    made, asked = learner("tag", "lstm"), asked_for("tag")
    tokenizer = TOKENIZERS["word"]
    rows, _ = made.encode(asked, tokenizer, Frame.of(made.backbone, tokenizer, 48)._replace(spots=True))
    rows = BesideRuns([Echo()], []).attach(rows, [made.texts_of(each) for each in asked])
    padded, plain = batch_of(rows, 64), batch_of(rows)
    size = len(plain.batch.ids)
    assert len(padded.batch.ids) > size and not padded.batch.beside[size:].any()
    assert torch.equal(padded.batch.beside[:size], plain.batch.beside)
    assert len(Examples(rows, 0, 0).rows) == len(asked)


def test_many_features_are_on_disk(monkeypatch):
    monkeypatch.setattr(labelled, "IN_MEMORY", 8)
    assert tokens_have_their_own("classify", asked_for("classify")) > 10
    assert isinstance(labelled.new_table(4, 4), np.memmap)


def test_texts_that_cannot_be_aligned_are_refused():
    class Deaf(Echo):
        def features(self, texts, stretches, out):
            return sum(map(len, stretches))

    made, asked = learner("classify", "lstm"), asked_for("classify")
    tokenizer = TOKENIZERS["word"]
    rows, _ = made.encode(asked, tokenizer, Frame.of(made.backbone, tokenizer, 48)._replace(spots=True))
    texts = [made.texts_of(each) for each in asked]
    with pytest.raises(DataError, match=r"echo: 72 of 72 words have no token of it"):
        BesideRuns([Deaf()], []).attach(rows, texts, check=True)
    assert not batch_of(BesideRuns([Deaf()], []).attach(rows, texts)).batch.beside.any()

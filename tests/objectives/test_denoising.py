"""Sources and targets of every kind, what they may not tell, and a decoder that restores texts."""

import itertools
import math

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE, Passage, pack
from seqloom.batches.passages import Passages
from seqloom.config import problems
from seqloom.decode.fill import fill_stretches
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.evaluate.denoised import DenoisingEvaluator
from seqloom.evaluate.evaluators import EncodedTexts
from seqloom.models import MODELS, model_class
from seqloom.objectives import denoising as module
from seqloom.objectives.denoising import Denoising
from tests.corpus import marks_by, random_corpus
from tests.objectives.test_masked import VOCAB, rng
from tests.objectives.test_masked import Words as MaskedWords

FIRST, SEPARATOR, END, MASK = 197, 198, 0, 199
SENTINELS = [196, *range(150, 160)]
SMALL = {"dim": 16, "num_layers": 2, "num_heads": 2, "max_len": 64, "dropout": 0.0, "vocab_size": VOCAB}
QUIET = {"permute": 0.0, "infill": 0.0, "random": 0.0}
T5 = QUIET | {"infill": 0.15, "spans": "cut", "targets": "sentinels"}
MASS = QUIET | {"infill": 0.5, "spans": "one", "targets": "fragment"}


class Words(MaskedWords):
    def specials(self):
        return [END, FIRST, SEPARATOR, MASK, *SENTINELS]

    def stops(self):
        return torch.arange(VOCAB) % 9 == 0

    def frame(self):
        return FIRST, SEPARATOR, END

    def sentinels(self):
        return SENTINELS


def learner(name="bart", seed=0, size=None, **noise):
    torch.manual_seed(seed)
    cls = model_class(name)
    sizes = {key: value for key, value in (SMALL | (size or {})).items() if key in cls.Config.model_fields}
    made = Denoising(cls(cls.Config(**sizes)), Denoising.Config(**noise))
    made.set_vocabulary(Words())
    return made.eval()


def cuts(tokens=6000, max_len=32, budget=512):
    split = random_corpus(3, tokens // 60, 120, vocab=140)
    ends = np.zeros(VOCAB, bool)
    return Passages(split, marks_by(FIRST, SEPARATOR, ends), "single", budget, max_len, (0, 0.9), 1.0)


def rows(batch, values=None):
    """The sequences of a batch as lists, without what fills it up."""
    values = batch.ids if values is None else values
    borders = batch.offsets.tolist()
    return [values[a:b].tolist() for a, b in itertools.pairwise(borders)]


def examples(ours, plan=None, **options):
    plan = plan or cuts().plan(0, 0)
    for i in range(len(plan)):
        cut = plan.batch(i)
        texts = [
            [token for token, place in zip(ids, spots, strict=True) if place >= 0]
            for ids, spots in zip(rows(cut.batch), rows(cut.batch, cut.places), strict=True)
        ]
        yield [text for text in texts if text], ours.corrupt(cut, rng(i), **options)


def targets_are_the_text(ours):
    """Whole targets are the text as it was, shifted by one from the separator on; special tokens stand where they belong."""
    for texts, example in examples(ours):
        following, read = rows(example.target, example.targets), rows(example.target)
        for text, source, wanted, given in zip(texts, rows(example.source), following, read, strict=False):
            whole = [FIRST, *text, SEPARATOR]
            assert wanted == whole and given == [SEPARATOR, *whole[:-1]]
            assert source[0] == FIRST and source[-1] == SEPARATOR
            assert not {FIRST, SEPARATOR, END} & set(source[1:-1])
        assert all(set(row) <= {IGNORE} for row in following[len(texts) :])
        assert int(example.text) == sum(map(len, texts)) == example.sizes().tokens
        assert example.sizes().targets == sum(map(len, texts)) + 2 * len(texts)


NOISES = {
    "nothing": QUIET,
    "masking": QUIET | {"mask": 0.3},
    "deletion": QUIET | {"delete": 0.3},
    "infilling": QUIET | {"infill": 0.3},
    "permutation": QUIET | {"permute": 1.0},
    "rotation": QUIET | {"rotate": 1.0},
    "insertion": QUIET | {"insert": 0.3},
    "published": {},
    "all": {"mask": 0.1, "delete": 0.2, "insert": 0.1, "rotate": 0.5, "unit": "token"},
}


@pytest.mark.parametrize("noise", NOISES)
def test_targets_are_always_the_text(noise):
    targets_are_the_text(learner(**NOISES[noise]))


def test_a_target_that_is_not_shifted_is_caught(monkeypatch):
    """A decoder that reads the token it is to write has nothing to learn."""
    true = module.lay_pair
    monkeypatch.setattr(module, "lay_pair", lambda *a: true(*a[:2], a[3], *a[3:]))
    with pytest.raises(AssertionError):
        targets_are_the_text(learner())


def test_without_noise_a_source_is_the_text():
    for texts, example in examples(learner(**QUIET)):
        assert [row[1:-1] for row in rows(example.source)[: len(texts)]] == texts
        assert not example.hidden.any()


def sources_show_what_is_not_hidden(ours):
    """Of a word that is hidden nothing is left, and a mask does not tell how long a span was."""
    hidden = total = 0
    for texts, example in examples(ours):
        for text, source, asked in zip(texts, rows(example.source), rows(example.target, example.hidden), strict=False):
            shown = [token for token, gone in zip(text, asked[1:-1], strict=True) if not gone]
            assert [token for token in source[1:-1] if token != MASK] == shown
            assert not asked[0] and not asked[-1]
            hidden, total = hidden + sum(asked), total + len(text)
    return hidden / total


@pytest.mark.parametrize(("noise", "share"), [("masking", 0.3), ("deletion", 0.3), ("infilling", 0.3)])
def test_shares_are_as_asked(noise, share):
    found = sources_show_what_is_not_hidden(learner(**NOISES[noise], unit="token"))
    assert abs(found - share) < 4 * math.sqrt(0.25 * 200) / 6000


def test_masks_that_reveal_the_length_of_a_span_are_caught(monkeypatch):
    """One mask a span: with as many masks as tokens the source is as long as the text."""

    def as_long(ours):
        return np.mean([len(row) for texts, ex in examples(ours) for row in rows(ex.source)[: len(texts)]])

    plain = as_long(learner(**NOISES["infilling"], unit="token"))
    masked = as_long(learner(**NOISES["masking"], unit="token"))
    true = module.hide
    monkeypatch.setattr(module, "hide", lambda *a: true(*a[:6], True))
    revealing = as_long(learner(**NOISES["infilling"], unit="token"))
    assert plain < 0.85 * masked < revealing


def test_words_are_hidden_whole():
    ours = learner(**NOISES["infilling"])
    for texts, example in examples(ours):
        for text, asked in zip(texts, rows(example.target, example.hidden), strict=False):
            for place in range(1, len(text)):
                if text[place] % 2:  # goes on with the word before
                    assert asked[place] == asked[place + 1]


def test_a_share_of_the_masks_becomes_random_tokens():
    ours = learner(**NOISES["masking"] | {"random": 0.4, "unit": "token"})
    masks = others = 0
    for texts, example in examples(ours):
        for text, source, asked in zip(texts, rows(example.source), rows(example.target, example.hidden), strict=False):
            stood = [token for token, gone in zip(source[1:-1], asked[1:-1], strict=True) if gone]
            masks, others = masks + stood.count(MASK), others + len(stood) - stood.count(MASK)
            assert len(source) == len(text) + 2 and not set(stood) & {FIRST, SEPARATOR, END, *SENTINELS}
    share = others / (masks + others)
    assert abs(share - 0.4) < 4 * math.sqrt(0.24 / (masks + others))


def test_sentinels_name_the_spans():
    """Put back in the places of their sentinels, the spans make the text whole."""
    ours = learner(**T5)
    for texts, example in examples(ours):
        following = rows(example.target, example.targets)
        for text, source, wanted in zip(texts, rows(example.source), following, strict=False):
            assert wanted[0] == FIRST and wanted[-1] == SEPARATOR and MASK not in source
            spans, name = {}, None
            for token in wanted[1:-1]:
                name = token if token in SENTINELS else name
                spans.setdefault(name, [])
                spans[name] += [] if token in SENTINELS else [token]
            assert list(spans) == SENTINELS[: len(spans)], "not one after the other"
            assert spans[SENTINELS[len(spans) - 1]] == [], "the last one ends the target"
            restored = [each for token in source[1:-1] for each in (spans[token] if token in SENTINELS else [token])]
            assert restored == text
            assert len(wanted) < len(text) + 6


@pytest.mark.parametrize("size", [1, 2, 20, 30])
def test_a_target_with_sentinels_is_no_longer_than_a_passage(size):
    """A word as long as a passage stays in it; of a shorter one nothing is lost."""
    ours = learner(**T5 | {"infill": 0.5, "length": 2.0})
    text = [2, *[3] * (size - 1)]  # odd ones continue a word
    cut = pack([[FIRST, *text, SEPARATOR]])
    passage = Passage(cut._replace(max_len=32), torch.tensor([-1, *range(size), -1]), torch.zeros(1))
    hidden = 0
    for i in range(40):
        example = ours.corrupt(passage, rng(i))
        assert int(example.target.offsets.diff().max()) <= 32
        hidden += int(example.hidden.sum())
    assert hidden == 0 if size == 30 else hidden > 0


def test_a_single_span_is_hidden_only_where_it_is_asked_for():
    """Beside a noise that takes every word there is none; a fragment alone always has a word."""
    for texts, example in examples(learner(**QUIET | {"mask": 1.0, "spans": "one"})):
        for text, source in zip(texts, rows(example.source), strict=False):
            assert source == [FIRST, *[MASK] * len(text), SEPARATOR]
    for texts, example in examples(learner(**MASS | {"infill": 0.01})):
        assert all(rows(example.target)[: len(texts)])


def test_a_fragment_is_written_in_its_own_places():
    ours = learner(**MASS)
    for texts, example in examples(ours):
        read, following = rows(example.target), rows(example.target, example.targets)
        spots = rows(example.target, example.target.positions)
        for text, source, given, wanted, places in zip(
            texts, rows(example.source), read, following, spots, strict=False
        ):
            whole = [FIRST, *text, SEPARATOR]
            assert len(source) == len(whole) and places == list(range(places[0], places[0] + len(places)))
            assert [whole[i] for i in places] == wanted and [source[i] for i in places] == [MASK] * len(wanted)
            assert given == [[SEPARATOR, *whole][i] for i in places]
            assert [a for i, a in enumerate(source) if i not in places] == [
                a for i, a in enumerate(whole) if i not in places
            ]


def test_it_is_a_function_of_text_and_seed_alone():
    plan = cuts().plan(0, 0)
    for noise in NOISES.values():
        ours, other = learner(**noise), learner(seed=5, **noise)
        for i in (0, 3):
            one, two, three = (each.corrupt(plan.batch(i), rng(s)) for each, s in ((ours, 1), (other, 1), (ours, 2)))
            assert torch.equal(one.source.ids, two.source.ids) and torch.equal(one.targets, two.targets)
            assert noise is QUIET or not torch.equal(one.source.ids[:300], three.source.ids[:300])


def test_shapes_come_again():
    """Few of them, so that a compiled or recorded step is used again; filler changes no loss."""
    ours, shapes = learner(), set()
    plan = cuts(40_000).plan(0, 0)
    for i in range(len(plan)):
        example = ours.corrupt(plan.batch(i), rng(i))
        shapes.add((len(example.source.ids), len(example.target.ids), example.source.num_sequences))
    assert len(shapes) <= 6 < len(plan)
    example = ours.corrupt(plan.batch(0), rng(0))
    count = example.sizes().targets
    assert (example.targets[count:] == IGNORE).all() and len(example.targets) > count
    with torch.no_grad():
        full = ours(example)
        kept = int((example.target.offsets <= count).sum()) - 1
        plain = ours.backbone(
            example._replace(source=pack(rows(example.source)[:kept]), target=pack(rows(example.target)[:kept]))
        ).hidden
        alone = ours.softmax(plain, example.targets[:count])
    assert float(full.total) == pytest.approx(float(alone), rel=1e-5) and int(full.count) == count


@pytest.mark.parametrize("name", [name for name in MODELS if Denoising.fits(model_class(name))])
def test_every_encoder_decoder_can_be_trained_with_it(name):
    ours = learner(name, size={"num_layers": 4} if name == "gnmt" else None).train()
    (_, example), *_ = examples(ours)
    loss = ours(example)
    loss.total.backward()
    assert float(loss.total.detach() / loss.count) < 3 * ours.initial_loss()
    assert all(parameter.grad is not None for parameter in ours.backbone.encoder.parameters())


def trained_loss(steps=80):
    """What is left of the loss where all words are hidden and come at random: nothing can be learnt but how frequent they are."""
    plan = cuts(3000, 16, 128).plan(0, 0)
    ours = learner(**QUIET | {"mask": 1.0}, size={"num_layers": 1, "max_len": 16}).train()
    optimizer = torch.optim.Adam(ours.parameters(), lr=2e-2)
    for step in range(steps):
        loss = ours(ours.corrupt(plan.batch(step % len(plan)), rng(step)))
        optimizer.zero_grad()
        (loss.total / loss.count).backward()
        optimizer.step()
    with torch.no_grad():
        loss = ours(ours.corrupt(plan.batch(0), rng(7)))
    return float(loss.total / loss.count)


def test_hidden_words_cannot_be_read_off(monkeypatch):
    assert trained_loss() > 2.5
    true = module.lay_pair
    monkeypatch.setattr(
        module, "lay_pair", lambda *a: true(*a[:2], np.maximum(a[3], 0), *a[3:])
    )  # planted: not shifted
    assert trained_loss() < 1.5


def encoded(texts):
    class Special:
        sizes = np.array([len(text) for text in texts])

    return EncodedTexts(texts, Special, lambda flat: None, END)


@pytest.mark.parametrize("noise", [{}, NOISES["masking"], T5, MASS], ids=["infill", "mask", "t5", "mass"])
def test_scores_are_those_of_each_word_hidden_alone(noise):
    ours = learner(**noise)
    texts = [[2, 4, 5, 6], [8], [10, 11, 13, 12, 14, 16]]  # odd ones continue a word
    found = DenoisingEvaluator(ours, torch.device("cpu")).score(encoded(texts), "denoised", 40)
    for text, scored in zip(texts, found, strict=True):
        begins = [i for i in range(len(text)) if i == 0 or text[i] % 2 == 0]
        for a, b in itertools.pairwise([*begins, len(text)]):
            masks = [MASK] * (b - a if noise.get("mask") or noise is MASS else 1)
            source = [FIRST, *text[:a], *(SENTINELS[:1] if noise is T5 else masks), *text[b:], SEPARATOR]
            before = [SEPARATOR, FIRST, *(SENTINELS[:1] if noise is T5 else text[:a])]
            target = pack([[*before, *text[a : b - 1]]])
            if noise is MASS:
                target = pack([target.ids.tolist()[-(b - a) :]])._replace(positions=torch.arange(a + 1, b + 1))
            with torch.no_grad():
                hidden = ours.backbone.decoder(target, context=ours.backbone.encode(pack([source]))).hidden
                rows_of = ours.softmax(hidden).log_softmax(1)[-(b - a) :]
            expected = [float(row[token]) for row, token in zip(rows_of, text[a:b], strict=True)]
            assert scored.log_probs[a:b] == pytest.approx(expected, abs=1e-5)


def test_a_word_without_room_between_its_sentinels_is_refused():
    ours = learner(size={"max_len": 8}, **T5)
    evaluator = DenoisingEvaluator(ours, torch.device("cpu"))
    (scored,) = evaluator.score(encoded([[2, 3, 3, 3]]), "denoised", 40)
    assert all(scored.log_probs)
    with pytest.raises(DataError, match="text 2 has a word of 5 tokens, but this model writes words of at most 4"):
        evaluator.score(encoded([[2], [2, 3, 3, 3, 3]]), "denoised", 40)


def test_only_words_that_are_asked_for_are_scored():
    ours, texts = learner(), [[2, 4, 5, 6], [8, 10]]
    evaluator = DenoisingEvaluator(ours, torch.device("cpu"))
    every = evaluator.score(encoded(texts), "denoised", 1000)
    asked = np.array([False, True, False, False, False, True])
    some = evaluator.score(encoded(texts), "denoised", 1000, asked)
    assert some[0].log_probs == pytest.approx([0, *every[0].log_probs[1:3], 0])
    assert some[1].log_probs == pytest.approx([0, every[1].log_probs[1]])


@pytest.mark.parametrize("noise", [{}, T5], ids=["whole", "sentinels"])
def test_gaps_are_filled_as_by_trying_everything(noise):
    """A vocabulary of which five words are left: every filling of two gaps with up to two tokens each."""
    ours = learner(**noise)
    ours.ordinary = np.array([2, 4, 5, 6, 8])
    ids, gaps = [10, MASK, 12, 14, MASK], [1, 4]
    found = fill_stretches(ours, ids, gaps, 10_000, 2, torch.device("cpu"))
    fillings = [list(each) for n in range(3) for each in itertools.product([2, 4, 5, 6, 8], repeat=n)]
    source = [
        FIRST,
        *(SENTINELS[gaps.index(i)] if noise and i in gaps else token for i, token in enumerate(ids)),
        SEPARATOR,
    ]
    scores = {}
    with torch.no_grad():
        context = ours.backbone.encode(pack([source]))
        for one, two in itertools.product(fillings, fillings):
            a, b, c = ([SENTINELS[0]], [SENTINELS[1]], [SENTINELS[2]]) if noise else ([10], [12, 14], [])
            target = [FIRST, *a, *one, *b, *two, *c, SEPARATOR]
            hidden = ours.backbone.decoder(pack([[SEPARATOR, *target[:-1]]]), context=context).hidden
            taken = ours.softmax(hidden).double().log_softmax(1)[torch.arange(len(target)), torch.tensor(target)]
            scores[tuple(one), tuple(two)] = float(taken[1 + len(a) :].sum())
    total = math.log(sum(math.exp(score) for score in scores.values()))
    assert len(found) == len(fillings) ** 2 == 31**2
    for parts, probability in found:
        assert math.log(probability) == pytest.approx(scores[tuple(parts[0]), tuple(parts[1])] - total, abs=1e-4)
    assert [share for _, share in found] == sorted((share for _, share in found), reverse=True)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"mask": 0.5, "delete": 0.4}, "more than all"),
        ({"targets": "sentinels"}, 'spans = "cut"'),
        (MASS | {"rotate": 0.5}, "rotate = 0"),
        (T5 | {"infill": 0.8}, "at most 0.5"),
        ({"length": 0.1}, "length"),
    ],
)
def test_settings_that_cannot_be_are_refused(wrong, said):
    found = problems(Denoising.Config, wrong)
    assert len(found) == 1 and said in found[0]


@pytest.mark.parametrize("sentinels", [[], SENTINELS[:1]])
def test_a_vocabulary_without_sentinels_is_refused(sentinels):
    """A target has two at least: one before a span, and one behind the last."""

    class Poor(Words):
        def sentinels(self):
            return sentinels

    learner().check_vocabulary(Poor())
    with pytest.raises(ModelError, match="extra_id_0"):
        learner(**T5).check_vocabulary(Poor())


def test_weights_that_name_other_tokens_are_refused():
    ours = learner()
    ours.frame_ids[1] = VOCAB
    with pytest.raises(ValueError, match="outside the vocabulary"):
        ours.validate_loaded()


@pytest.mark.parametrize("name", ["seq2seq", "bytenet-mt", "bart"])
def test_every_gap_has_the_room_that_is_left(name):
    """Two gaps of up to two tokens each: all fillings that the model can read, which without a limit are all."""
    ours = learner(name, size={"max_len": 8})
    ours.ordinary = np.array([2, 5])
    found = fill_stretches(ours, [10, MASK, 12, 14, MASK], [1, 4], 10_000, 2, torch.device("cpu"))
    # the decoder reads five tokens beside those of the gaps, and the last one of all is only written
    room = 3 if name == "bart" else 4
    counts = [(a, b) for a in range(3) for b in range(3) if a + b <= room]
    assert {(len(one), len(two)) for (one, two), _ in found} == set(counts)
    assert len(found) == sum(2 ** (a + b) for a, b in counts)


def test_gaps_side_by_side_are_one_gap():
    """Where a sentinel stands between them, they are two."""
    ids, device = [10, MASK, MASK, 12], torch.device("cpu")
    with pytest.raises(UsageError, match="side by side"):
        fill_stretches(learner(), ids, [1, 2], 4, 2, device)
    (best, *_) = fill_stretches(learner(**T5), ids, [1, 2], 4, 2, device)
    assert len(best[0]) == 2

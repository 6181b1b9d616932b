"""What is hidden, by definition and by count; what is guessed; and what a hidden word may not tell."""

import math

import numpy as np
import pytest
import torch

from seqloom.batch import IGNORE, Passage, Ragged
from seqloom.batches.passages import Passages
from seqloom.errors import ModelError, UsageError
from seqloom.models import model_class
from seqloom.objectives import masked as module
from seqloom.objectives.masked import MaskedLM
from seqloom.objectives.next_sentence import NextSentence
from seqloom.objectives.replaced import ReplacedToken
from seqloom.objectives.sentence_order import SentenceOrder
from tests.corpus import marks_by, random_corpus

VOCAB, MASK = 200, 199
SPECIALS = [0, 196, 197, 198, 199]
SMALL = {"dim": 16, "num_layers": 2, "num_heads": 2, "max_len": 64, "dropout": 0.0, "vocab_size": VOCAB}
OBJECTIVES = {"bert": NextSentence, "albert": SentenceOrder, "electra": ReplacedToken, "roberta": MaskedLM}


class Words:
    def counts(self):
        return torch.ones(VOCAB)

    def continues(self):
        """Odd tokens go on with the word before them."""
        return torch.arange(VOCAB) % 2 == 1

    def specials(self):
        return SPECIALS

    def mask(self):
        return MASK


def learner(name="roberta", objective=None, seed=0, **config):
    torch.manual_seed(seed)
    cls = model_class(name)
    extra = {"embedding_dim": 8} if name == "albert" else {}
    kind = objective or OBJECTIVES[name]
    made = kind(cls(cls.Config(**SMALL, **extra)), kind.Config(**config))
    made.set_vocabulary(Words())
    return made


def passages(form="single", tokens=20_000, max_len=64, budget=2048):
    split = random_corpus(3, tokens // 100, 200, vocab=196)
    ends = np.zeros(VOCAB, bool)
    ends[::9] = True
    return Passages(split, marks_by(197, 198, ends), form, budget, max_len, (0, 0.9), 1.0)


def row(ids, free=None):
    """One sequence as a passage; text wherever it is not said otherwise."""
    n = len(ids)
    spots = torch.arange(n)
    places = spots.clone() if free is None else torch.where(torch.tensor(free), spots, -1)
    batch = Ragged(
        torch.tensor(ids), spots, torch.zeros(n, dtype=torch.long), torch.tensor([0, n], dtype=torch.int32), n
    )
    return Passage(batch, places, torch.full((1,), IGNORE))


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def statistics_hold(ours, limit=4.0):
    """Rates over a million tokens; never a special token; targets are what stood there."""
    plan = passages(tokens=1_000_000, budget=16384).plan(0, 0)
    total = chosen = masked = other = same = 0
    for i in range(len(plan)):
        cut = plan.batch(i)
        example = ours.corrupt(cut, rng(i))
        kept = example.targets != IGNORE
        where, targets = example.where[kept], example.targets[kept]
        assert (cut.places[where] >= 0).all() and torch.equal(cut.batch.ids[where], targets)
        assert len(torch.unique(where)) == len(where)
        now = example.batch.ids[where]
        untouched = torch.ones(len(cut.batch.ids), dtype=torch.bool)
        untouched[where] = False
        assert torch.equal(example.batch.ids[untouched], cut.batch.ids[untouched])
        total, chosen = total + int((cut.places >= 0).sum()), chosen + len(where)
        masked += int((now == MASK).sum())
        same += int((now == targets).sum())
        other += int(((now != MASK) & (now != targets)).sum())
        assert not torch.isin(now[now != MASK], torch.tensor(SPECIALS)).any()
    assert total > 900_000
    words = VOCAB - len(SPECIALS)
    expected = {
        (masked, chosen): 1 - ours.keep - ours.random,
        (same, chosen): ours.keep + ours.random / words,
        (other, chosen): ours.random * (1 - 1 / words),
        (chosen, total): ours.rate,
    }
    for (count, of), share in expected.items():
        assert abs(count / of - share) <= limit * math.sqrt(share * (1 - share) / of) + 1e-9, (count / of, share)


@pytest.mark.parametrize("config", [{}, {"unit": "word"}, {"static": True}, {"rate": 0.4, "keep": 0.0, "random": 0.3}])
def test_rates_over_a_million_tokens(config):
    # groups are taken or left whole: what a batch's last group would have had is missing
    statistics_hold(learner(**config), limit=8.0 if config.get("unit") == "word" else 4.0)


def test_planted_masking_of_special_tokens_is_noticed(monkeypatch):
    monkeypatch.setattr(MaskedLM, "groups", lambda self, cut, rng: np.arange(len(cut.batch.ids)))
    with pytest.raises(AssertionError):
        statistics_hold(learner())


def test_planted_share_is_noticed():
    ours = learner()
    ours.corrupt, right = (lambda cut, rng: right(cut, rng)), ours.corrupt
    ours.random, wrong = 0.12, ours.random
    with pytest.raises(AssertionError):
        statistics_hold(Declared(ours, wrong))


class Declared:
    """A learner that says another share than it hides by."""

    def __init__(self, ours, random):
        self.corrupt, self.rate, self.keep, self.random = ours.corrupt, ours.rate, ours.keep, random


def test_words_are_hidden_whole():
    ours = learner(unit="word", rate=0.3, keep=0.0, random=0.0)
    ids = [10, 11, 13, 20, 22, 23, 30, 31, 40, 41, 43, 45] * 5
    words = np.cumsum([i % 2 == 0 for i in ids])
    for seed in range(20):
        hidden = ours.corrupt(row(ids), rng(seed)).batch.ids.numpy() == MASK
        for word in np.unique(words):
            assert len(set(hidden[words == word])) == 1


def test_a_word_does_not_go_on_from_a_special_token():
    """A piece that would go on with a word begins one where a special token stands before it."""
    free = [False, True, True, False, True, True, False]
    groups = learner(unit="word").groups(row([197, 11, 13, 198, 15, 20, 198], free), rng())
    assert groups[1] == groups[2] != groups[4] and groups[4] != groups[5] and groups[0] == groups[3] == -1


def test_spans_have_geometric_lengths_and_one_fate():
    ours = learner(unit="span", rate=0.15)
    lengths = []
    for seed in range(60):
        cut = row(list(range(1, 190)) * 5)
        groups = ours.groups(cut, rng(seed))
        lengths += np.unique(groups, return_counts=True)[1][:-1].tolist()
        example = ours.corrupt(cut, rng(seed))
        kept = example.targets != IGNORE
        now = example.batch.ids[example.where[kept]]
        fate = np.where(now == MASK, 0, np.where(now == example.targets[kept], 1, 2))
        span = ours.groups(cut, rng(seed))[example.where[kept].numpy()]
        assert all(len(set(fate[span == s])) == 1 or 1 in fate[span == s] for s in np.unique(span))
    assert max(lengths) == module.LONGEST_SPAN
    assert np.mean(lengths) == pytest.approx(3.8, rel=0.03)


def follows_spanbert(ours):
    """Geo(0.2) over 1 … 10, renormalised (Joshi et al., 2020, section 3.1: 3.8 tokens in the mean), by χ² of 9 degrees."""
    cut = row(list(range(1, 190)) * 200)
    lengths = np.unique(ours.groups(cut, rng(1)), return_counts=True)[1][:-1]
    expected = np.array([0.2 * 0.8 ** (k - 1) for k in range(1, 11)])
    expected *= len(lengths) / expected.sum()
    counted = np.bincount(lengths, minlength=11)[1:]
    assert (expected / len(lengths)) @ np.arange(1, 11) == pytest.approx(3.797, abs=1e-3)
    assert len(counted) == 10 and ((counted - expected) ** 2 / expected).sum() < 27.9  # p = 0.001


def test_span_lengths_follow_the_renormalised_geometric():
    follows_spanbert(learner(unit="span"))


def test_planted_tail_that_is_clipped_into_the_longest_span_is_noticed(monkeypatch):
    """As it was: draws above the limit all became spans of 10."""
    true = torch.rand
    scale = 1 - 0.8**module.LONGEST_SPAN
    monkeypatch.setattr(torch, "rand", lambda n, generator=None: true(n, generator=generator) / scale)
    with pytest.raises(AssertionError):
        follows_spanbert(learner(unit="span"))


def test_the_least_and_the_greatest_draw_are_spans_too(monkeypatch):
    """One draw of sixteen million is exactly 0."""
    ours, cut = learner(unit="span"), passages().plan(0, 0).batch(0)
    for value in (0.0, 1 - 2**-24):
        monkeypatch.setattr(torch, "rand", lambda n, generator=None, value=value: torch.full((n,), value))
        groups = ours.groups(cut, rng(0))
        _, sizes = np.unique(groups[groups >= 0], return_counts=True)
        assert sizes.max() == (1 if value == 0 else module.LONGEST_SPAN)


def test_dynamic_masks_differ_by_step_and_static_ones_by_place_alone():
    cut = row(list(range(1, 190)))
    dynamic, static = learner(), learner(static=True)
    assert torch.equal(dynamic.corrupt(cut, rng(1)).batch.ids, dynamic.corrupt(cut, rng(1)).batch.ids)
    assert not torch.equal(dynamic.corrupt(cut, rng(1)).batch.ids, dynamic.corrupt(cut, rng(2)).batch.ids)
    first = static.corrupt(cut, rng(1)).batch.ids
    assert torch.equal(first, static.corrupt(cut, rng(2)).batch.ids)
    half = row(list(range(60, 190)))._replace(places=torch.arange(59, 189))  # another batch, the same places
    assert torch.equal(static.corrupt(half, rng(3)).batch.ids, first[59:])


def tells_nothing_of_hidden_tokens(ours):
    """With everything chosen hidden the guesses do not depend on what stood there."""
    cut = passages().plan(0, 0).batch(0)
    example = ours.corrupt(cut, rng(0))
    where = example.where[example.targets != IGNORE]
    other = cut._replace(
        batch=cut.batch._replace(ids=cut.batch.ids.index_copy(0, where, (example.targets[: len(where)] % 150) + 1))
    )
    again = ours.corrupt(other, rng(0))
    assert not torch.equal(other.batch.ids, cut.batch.ids) and torch.equal(example.where, again.where)
    with torch.no_grad():
        one, two = (ours.backbone(each.batch).hidden[where] for each in (example, again))
    assert torch.equal(one, two)


def test_hidden_tokens_tell_nothing():
    tells_nothing_of_hidden_tokens(learner(keep=0.0, random=0.0).eval())


def test_planted_leak_is_noticed():
    with pytest.raises(AssertionError):
        tells_nothing_of_hidden_tokens(learner(keep=0.1, random=0.0).eval())


@pytest.mark.parametrize("name", OBJECTIVES)
def test_first_loss_and_gradients(name):
    ours = learner(name).train()
    form = ours.form
    example = ours.corrupt(passages(form).plan(0, 0).batch(0), rng(0))
    loss = ours(example)
    # of the passages those that are pairs
    share = int((example.labels != IGNORE).sum()) / len(example.batch.owner[example.text].unique())
    assert (0.2 < share < 1) == (form != "single")
    relation = share * math.log(2)
    expected = {"bert": relation, "albert": relation, "electra": 50 * math.log(2)}.get(name, 0.0)
    mean = loss.total.item() / loss.count.item()
    assert mean == pytest.approx(math.log(VOCAB) + expected, rel=0.05)
    loss.total.backward()
    silent = [n for n, x in ours.named_parameters() if x.grad is None or not x.grad.abs().sum() > 0]
    assert not silent
    nothing = example._replace(
        targets=torch.full_like(example.targets, IGNORE),
        labels=torch.full_like(example.labels, IGNORE),
        real=torch.zeros_like(example.real),
    )
    assert ours(nothing).total.item() == 0 and ours(nothing).count.item() == 0


@pytest.mark.parametrize("name", OBJECTIVES)
def test_it_learns_what_it_is_shown(name):
    """One batch over and over: hidden words, relations and replaced tokens are told."""
    ours = learner(name, rate=0.2).train()
    example = ours.corrupt(passages(ours.form, tokens=2000, budget=512).plan(0, 0).batch(0), rng(0))
    optimizer = torch.optim.Adam(ours.parameters(), lr=1e-2)
    for step in range(150):
        torch.manual_seed(step)
        optimizer.zero_grad()
        loss = ours(example)
        (loss.total / loss.count).backward()
        optimizer.step()
    with torch.no_grad():
        losses, sums = ours.eval().losses(example)
    assert losses.sum() / (example.targets != IGNORE).sum() < 0.6
    if "relation_accuracy" in sums:
        assert sums["relation_accuracy"] == sums["passages"]


def test_the_discriminator_is_asked_about_the_generators_words():
    ours = learner("electra").eval()
    example = ours.corrupt(passages().plan(0, 0).batch(0), rng(0))
    assert (example.batch.ids[example.where[example.targets != IGNORE]] == MASK).all(), (
        "ELECTRA hides all that is chosen"
    )
    told = ours.generator(example.batch).hidden[example.where]
    ids, wrong = ours.fill_gaps(ours.scores(told), example)
    kept = example.targets != IGNORE
    true = example.batch.ids.index_copy(0, example.where[kept], example.targets[kept])
    assert torch.equal(wrong, ids != true)
    outside = torch.ones(len(ids), dtype=torch.bool)
    outside[example.where[kept]] = False
    assert torch.equal(ids[outside], example.batch.ids[outside]) and wrong[example.where[kept]].float().mean() > 0.5
    assert ours.generator.embedding.token is ours.backbone.embedding.token
    assert ours.generator.dim < ours.backbone.dim


def test_sizes_count_text_special_tokens_and_targets():
    ours = learner("bert")
    cut = passages("next").plan(0, 0).batch(0)
    sizes = ours.corrupt(cut, rng(0)).sizes()
    text = int((cut.places >= 0).sum())
    rows, pairs = len(cut.batch.owner[cut.places >= 0].unique()), int((cut.labels != IGNORE).sum())
    assert 0 < pairs < rows
    assert (sizes.tokens, sizes.read) == (text, text + 2 * rows + pairs)
    assert sizes.targets == pytest.approx(0.15 * text, abs=1)


def test_what_cannot_be_is_refused():
    with pytest.raises(ValueError, match="spans are drawn anew"):
        MaskedLM.Config(unit="span", static=True)
    with pytest.raises(ValueError, match="more than all"):
        MaskedLM.Config(keep=0.6, random=0.6)
    with pytest.raises(UsageError, match="pooler"):
        learner("roberta", NextSentence)
    with pytest.raises(UsageError, match="electra"):
        learner("roberta", ReplacedToken)


def test_a_tokenizer_without_a_mask_is_refused():
    from seqloom.batches.vocabulary import PreparedVocabulary

    class Tokenizer:
        mask_id = None
        where = "data/tokenizer.json"

    with pytest.raises(ModelError, match=r"data/tokenizer\.json has no mask token"):
        PreparedVocabulary(Tokenizer()).mask()

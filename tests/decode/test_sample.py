"""Sampling: reproducible, independent of company, true to the distribution, and equal to the plain way of computing it."""

import math
from itertools import pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.batch import pack
from seqloom.decode.linear import PackedLinear, fast_linear, for_steps
from seqloom.decode.rules import (
    NEVER,
    NOTHING,
    BeamConfig,
    SampleConfig,
    forbid_repeats,
    keep_top_k,
    keep_top_p,
    limit_repetition,
    penalise_repetition,
)
from seqloom.decode.sample import FEW, invert_cdf, sample
from seqloom.decode.search import beam_search
from seqloom.decode.step import Stepper
from seqloom.evaluate.score import score
from tests.contract.properties import NEURAL, build, learner_of, sequences
from tests.decode.toy import Toy

END = 0
GENERATOR = torch.Generator()


def drawn(name, prompts, seed=0, banned=(), sharp=1.0, **options):
    """The new tokens and log-probabilities of each sample."""
    learner = learner_of(build(name), tie=False)
    with (
        torch.no_grad()
    ):  # an untrained model is nearly uniform; this one has opinions, and they hang on all it has read
        for parameter in learner.backbone.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
        learner.softmax.weight.copy_(
            sharp * torch.randn(learner.softmax.weight.shape, generator=GENERATOR.manual_seed(1))
        )
    made = [([], []) for _ in prompts]
    stepper = Stepper(learner.backbone, learner.softmax)
    for one in sample(stepper, prompts, SampleConfig(**({"max_new": 15} | options)), seed, END, list(banned)):
        made[one.sample][0].append(one.token)
        made[one.sample][1].append(one.log_prob)
    return learner, made


def greedy_by_hand(learner, prompt, count):
    text = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            scores = learner.softmax(learner.backbone(pack([text])).hidden[-1])
        text.append(int(scores.argmax()))
        if text[-1] == END:
            break
    return text[len(prompt) :]


@pytest.mark.parametrize("name", NEURAL)
def test_greedy_equals_full_forwards(name):
    prompts = sequences(3, (7, 3, 12))
    learner, made = drawn(name, prompts, temperature=0)
    for prompt, (tokens, _) in zip(prompts, made, strict=True):
        assert tokens == greedy_by_hand(learner, prompt, 15)
    _, top = drawn(name, prompts, top_k=1, seed=9)
    assert [t for t, _ in top] == [t for t, _ in made]


@pytest.mark.parametrize("name", NEURAL)
def test_log_probs_equal_an_independent_scoring(name):
    prompts = [[END, 5, 6], [END, 7]]
    learner, made = drawn(name, prompts, temperature=1.3, banned=[END])
    for prompt, (tokens, log_probs) in zip(prompts, made, strict=True):
        text = prompt[1:] + tokens
        (scored,) = score(learner, [text], END, torch.device("cpu"))
        assert scored.log_probs[len(prompt) - 1 :] == pytest.approx(log_probs, rel=1e-5, abs=1e-5)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_a_sample_depends_on_its_seed_and_number_alone(name):
    prompt = [END, 4]
    _, three = drawn(name, [prompt] * 3, seed=5, sharp=0.3)
    _, again = drawn(name, [prompt] * 3, seed=5, sharp=0.3)
    assert [t for t, _ in three] == [t for t, _ in again]
    _, one = drawn(name, [prompt], seed=5, sharp=0.3)
    assert one[0][0] == three[0][0]
    _, other = drawn(name, [prompt] * 3, seed=6, sharp=0.3)
    assert [t for t, _ in other] != [t for t, _ in three]
    assert len({tuple(t) for t, _ in three}) > 1


def test_a_full_context_slides():
    """Beyond its context a Transformer goes on from the second half of it; the text before that is unchanged."""
    prompt = sequences(1, (90,))[0]
    learner, ((tokens, _),) = drawn("gpt2", [prompt], temperature=0, max_new=40, banned=[END])
    assert len(tokens) == 40
    text = list(prompt)
    held = list(prompt)
    for token in tokens:
        with torch.no_grad():
            scores = learner.softmax(learner.backbone(pack([held])).hidden[-1])
        scores[END] = NEVER
        assert token == int(scores.argmax())
        text.append(token)
        held = [*held, token] if len(held) < 96 else text[-48:]


def test_lengths_and_bans():
    _, made = drawn("gpt2", [[END]] * 20, max_new=12, min_new=5, sharp=0.1, banned=[1, 2, 3])
    for tokens, _ in made:
        assert END not in tokens[:5] and not {1, 2, 3} & set(tokens)
        assert len(tokens) <= 12 and END not in tokens[:-1]
    assert any(tokens[-1] == END for tokens, _ in drawn("gpt2", [[END]] * 60, max_new=40, sharp=0.1)[1])


def minimal(scores, p, keep):
    share = scores.softmax(1)
    for row, kept in zip(share, keep(scores, p) > NEVER, strict=True):
        assert row[kept].sum() >= p - 1e-9, "too few"
        assert row[kept].sum() - row[kept].min() < p + 1e-9, "too many"
        assert (not kept.all() and row[kept].min() >= row[~kept].max()) or kept.all(), "not the likeliest"


@settings(max_examples=100)
@given(st.integers(0, 10**6), st.floats(0.01, 1.0))
def test_top_p_keeps_the_fewest(seed, p):
    minimal(3 * torch.randn(4, 30, generator=torch.Generator().manual_seed(seed), dtype=torch.float64), p, keep_top_p)


def test_planted_top_p_off_by_one_is_noticed():
    def generous(scores, p):
        ordered, index = scores.sort(dim=1, descending=True)
        share = ordered.softmax(1)
        before = (share.cumsum(1) - share).roll(1, 1)
        before[:, 0] = 0
        return torch.full_like(scores, NEVER).scatter(1, index, ordered.masked_fill(before >= p, NEVER))

    with pytest.raises(AssertionError):
        minimal(torch.randn(4, 30, dtype=torch.float64), 0.5, generous)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 40))
def test_top_k_keeps_k(seed, k):
    scores = torch.randn(3, 30, generator=torch.Generator().manual_seed(seed))
    kept = keep_top_k(scores, k) > NEVER
    assert (kept.sum(1) == min(k, 30)).all()
    ties = keep_top_k(torch.zeros(1, 30), 4)
    assert (ties > NEVER).nonzero()[:, 1].tolist() == [0, 1, 2, 3]


def chi_square(choose) -> float:
    """Of 20,000 draws from 8 tokens, one of them ruled out; 6 degrees of freedom."""
    torch.manual_seed(0)
    scores = torch.tensor([[0.3, 1.2, -0.5, NEVER, 0.0, 2.0, -1.0, 0.7]])
    draws = choose(scores.expand(20_000, -1), torch.rand(20_000, dtype=torch.float64))
    seen = torch.bincount(draws, minlength=8).double()
    expected = scores[0].double().softmax(0) * 20_000
    assert seen[3] == 0
    kept = expected > 0
    return float(((seen - expected)[kept] ** 2 / expected[kept]).sum())


def test_draws_follow_the_distribution():
    assert chi_square(invert_cdf) < 22.5  # the 99.9% point


def test_planted_wrong_distribution_is_noticed():
    assert chi_square(lambda scores, points: invert_cdf(scores / 1.1, points)) > 22.5


def test_the_last_point_never_hits_a_ruled_out_token():
    scores = torch.tensor([[0.0, 1.0, NEVER, NEVER]])
    assert invert_cdf(scores, torch.tensor([1.0 - 1e-16], dtype=torch.float64)).item() == 1
    assert invert_cdf(scores, torch.tensor([0.0], dtype=torch.float64)).item() == 0


def rows_with_gaps(n, size, seed=0):
    """Scores of rows in which most tokens are ruled out, whole blocks of them too, and points, the two ends among them."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randn(n, size, generator=generator) * 4
    scores[torch.rand(n, size, generator=generator) < 0.7] = NEVER
    scores[:, : size // 3] = NEVER
    scores[:, -1] = 0.0
    points = torch.rand(n, generator=generator, dtype=torch.float64)
    points[0], points[-1] = 0.0, 1.0 - 1e-16
    return scores, points


@pytest.mark.parametrize("size", [5, 63, 64, 65, 128, 300, 2048, 50_257])
def test_a_draw_in_blocks_is_the_draw_by_single_tokens(size):
    scores, points = rows_with_gaps(max(200, 2 * FEW // size), size)
    drawn = invert_cdf(scores, points)
    alone = torch.cat([invert_cdf(row[None], point[None]) for row, point in zip(scores, points, strict=True)])
    assert torch.equal(drawn, alone)
    assert (scores.gather(1, drawn[:, None]) > NEVER).all()


def test_planted_draw_that_forgets_what_stands_before_its_block_is_noticed():
    scores, points = rows_with_gaps(200, 300)
    whole = scores.softmax(1).double().cumsum(1)
    blocks = whole[:, 63::64]
    block = torch.searchsorted(blocks, points[:, None], right=True).clamp(max=3)
    inside = torch.stack(
        [row[64 * at : 64 * at + 64] for row, at in zip(scores, block.flatten().tolist(), strict=True)]
    )
    assert not torch.equal(64 * block[:, 0] + invert_cdf(inside, points), invert_cdf(scores, points))


def seen(*texts):
    """Rows of tokens, filled up to one length and a place more, and the lengths."""
    longest = max(map(len, texts)) + 1
    return torch.tensor([[*text, *[NOTHING] * (longest - len(text))] for text in texts]), torch.tensor(
        [len(text) for text in texts]
    )


def test_repetition_rules():
    scores = torch.tensor([[1.0, -1.0, 2.0, 0.5], [1.0, -1.0, 2.0, 0.5]])
    tokens, lengths = seen([0, 1, 1], [2])
    assert penalise_repetition(scores, tokens, 2.0).tolist() == [[0.5, -2.0, 2.0, 0.5], [1.0, -1.0, 1.0, 0.5]]
    # 1 2 was followed by 3 before; 3 must not follow again
    tokens, lengths = seen([1, 2, 3, 1, 2], [1, 2])
    assert (forbid_repeats(scores, tokens, lengths, 3) == NEVER).tolist() == [[False, False, False, True], [False] * 4]
    assert (forbid_repeats(scores, tokens, lengths, 1) == NEVER).tolist() == [
        [False, True, True, True],
        [False, True, True, False],
    ]
    tokens, lengths = seen([1], [0])
    assert torch.equal(forbid_repeats(scores, tokens, lengths, 3), scores)


@pytest.mark.parametrize("rule", [{"repetition_penalty": 5.0}, {"no_repeat": 1}])
def test_no_rule_keeps_a_text_from_ending(rule):
    """Prompts begin with the end token; it is the border of the text and was not said."""
    ended = 0
    for seed in range(40):
        model = Toy(5, seed, 2.0)
        plain = model.scores((), [END, 1])[0]
        allowed = [score for token, score in enumerate(plain) if token != 1]
        if plain[END] < max(allowed) or plain[END] < plain[1]:
            continue
        ended += 1
        (drawn,) = sample(model, [[END, 1]], SampleConfig(max_new=1, temperature=0.0, **rule), 0, END, [])
        ((found,),) = beam_search(model, [[END, 1]], BeamConfig(beam=1, max_new=1, **rule), END, [])
        assert drawn.token == END and found.finished and not found.tokens
    assert ended > 3
    scores = torch.tensor([[1.0, -1.0, 2.0]])
    penalised = limit_repetition(
        scores, torch.tensor([[END, 2, NOTHING]]), torch.tensor([2]), SampleConfig(**rule), END
    )
    assert penalised[0, END] == 1.0 and penalised[0, 2] < 2.0


@settings(max_examples=100)
@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=12), min_size=1, max_size=4), st.integers(1, 4))
def test_forbidden_repeats_are_those_of_the_plain_definition(texts, size):
    tokens, lengths = seen(*texts)
    found = forbid_repeats(torch.zeros(len(texts), 5), tokens, lengths, size) == NEVER
    for text, row in zip(texts, found.tolist(), strict=True):
        grams = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
        enough = len(text) >= size - 1
        end = text[len(text) - size + 1 :] if size > 1 else []
        assert row == [enough and (*end, token) in grams for token in range(5)]


def test_no_repeat_holds_in_the_text():
    _, made = drawn("lstm", [[END, 3, 4]], temperature=0, max_new=60, no_repeat=2, banned=[END])
    text = [END, 3, 4, *made[0][0]]
    pairs = list(pairwise(text))
    assert len(pairs) == len(set(pairs))
    _, free = drawn("lstm", [[END, 3, 4]], temperature=0, max_new=60, banned=[END])
    loop = [END, 3, 4, *free[0][0]]
    assert len(set(pairwise(loop))) < 62, "without the rule this model repeats itself"


@pytest.mark.parametrize(
    "wrong",
    [{"top_p": 0.0}, {"temperature": -1.0}, {"top_k": 0}, {"max_new": 0}, {"temperature": math.nan}, {"no_repeat": -1}],
)
def test_impossible_options(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        SampleConfig(**wrong)


def test_planted_lost_state_is_noticed(monkeypatch):
    step = Stepper.step

    def forgetful(self, tokens, positions, state):
        return step(self, tokens, positions * 0, self.backbone.start(len(tokens), 200))

    monkeypatch.setattr(Stepper, "step", forgetful)
    with pytest.raises(AssertionError):
        test_greedy_equals_full_forwards("gpt2")
    with pytest.raises(AssertionError):
        test_greedy_equals_full_forwards("lstm")


@pytest.mark.parametrize("name", NEURAL)
def test_packed_weights_compute_the_same(name):
    """On a CPU steps go through packed copies of the weights; equal up to the order of the sums."""
    learner = learner_of(build(name, dtype=torch.float32), tie=False)
    linear = fast_linear(learner.softmax.weight)
    assert linear is PackedLinear, "this machine's torch has no oneDNN: the fast path is not tested"
    batch = pack(sequences(0))
    with torch.no_grad():
        plain = learner.softmax(learner.backbone(batch).hidden)
        fast = for_steps(learner.softmax, linear)(for_steps(learner.backbone, linear)(batch).hidden)
    torch.testing.assert_close(fast, plain, rtol=1e-5, atol=1e-5)
    assert fast_linear(learner.softmax.weight.double()) is None

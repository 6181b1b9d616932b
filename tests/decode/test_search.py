"""Beam search: equal to an exhaustive one where it is wide enough, to a plain beam where it is not, whatever the company."""

import math
import random
from itertools import chain, pairwise

import pytest
import torch

from seqloom.batch import IGNORE, Pair, State, pack, select
from seqloom.blocks.softmax import Softmax
from seqloom.decode import search as search_module
from seqloom.decode.graph import Recorded, tensors
from seqloom.decode.rules import BeamConfig, SampleConfig
from seqloom.decode.sample import sample
from seqloom.decode.search import Search, beam_search, best
from seqloom.decode.step import Ensemble, Stepper
from seqloom.errors import UsageError
from seqloom.evaluate.score import score
from seqloom.models.transformer import Transformer
from tests.contract import pairs
from tests.contract.properties import NEURAL, VOCAB, build, learner_of, sequences
from tests.decode.toy import Toy, context_of

END = 0


# ---- what is right, written down plainly: lists and dicts, one text at a time


def lp(config, length):
    base = (5 + length) / 6 if config.length_form == "gnmt" else length
    return base**config.length_penalty


def may_follow(config, prompt, new, token, banned=()):
    text = [*prompt, *new, token]
    if token in banned or (token == END and len(new) < config.min_new):
        return False
    size = config.no_repeat
    grams = [tuple(text[i : i + size]) for i in range(len(text) - size + 1)] if size else []
    return not (grams and grams[-1] in grams[:-1] and END not in grams[-1])  # the border of a text is not said


def value_of(model, config, source, prompt, new):
    """log P and the score of a whole hypothesis, its end token included."""
    total = sum(model.log_probs(source, [*prompt, *new[:i]])[token] for i, token in enumerate(new))
    value = total / lp(config, len(new))
    if config.coverage_penalty:
        looks = [model.scores(source, [*prompt, *new[:i]])[1] for i in range(len(new))]
        covered = [sum(row[place] for row in looks) for place in range(len(source))]
        value += config.coverage_penalty * sum(math.log(min(max(c, 1e-9), 1.0)) for c in covered)
    return total, value


def exhaustive(model, config, source, prompt, banned=()):
    """Every text there is, best first: (tokens with the end, log P, score)."""
    found, open_ = [], [[]]
    while open_:
        new = open_.pop()
        for token in range(model.vocab):
            if not may_follow(config, prompt, new, token, banned):
                continue
            longer = [*new, token]
            if token == END or len(longer) == config.max_new:
                found.append((longer, *value_of(model, config, source, prompt, longer)))
            else:
                open_.append(longer)
    return sorted(found, key=lambda item: -item[2])


def plain_beam(model, config, source, prompt, banned=()):
    """The beam search of one source, group by group."""
    each = config.beam // config.groups
    running = {g: [([], 0.0)] for g in range(config.groups)}
    pools = {g: [] for g in range(config.groups)}
    over = set()
    for made in range(1, config.max_new + 1):
        taken = []
        for g in range(config.groups):
            if g in over:
                continue
            candidates = []
            for new, total in running[g]:
                log_probs = model.log_probs(source, [*prompt, *new])
                for token in range(model.vocab):
                    if may_follow(config, prompt, new, token, banned):
                        reached = total + log_probs[token]
                        liked = reached - (config.diversity * taken.count(token) if g else 0)
                        candidates.append((liked, [*new, token], reached))
            candidates.sort(key=lambda item: -item[0])
            candidates = candidates[: 2 * each]
            for rank, (_, new, _) in enumerate(candidates):
                if rank < each and (new[-1] == END or made == config.max_new):
                    pools[g].append((new, *value_of(model, config, source, prompt, new)))
            pools[g] = sorted(pools[g], key=lambda item: -item[2])[:each]
            running[g] = [(new, total) for _, new, total in candidates if new[-1] != END][:each]
            taken += [new[-1] for new, _ in running[g]]
            if len(pools[g]) == each:
                bound = max((total for _, total in running[g]), default=-math.inf) / lp(config, config.max_new)
                if config.stop == "first" or bound <= pools[g][-1][2]:
                    over.add(g)
            if not running[g]:
                over.add(g)
    return sorted((item for pool in pools.values() for item in pool), key=lambda item: -item[2])


# ---- and the checks


def agree(found, expected, config):
    assert len(found) == min(config.n_best, len(expected))
    for hypothesis, (new, total, value) in zip(found, expected, strict=False):
        assert hypothesis.finished == (new[-1] == END)
        assert hypothesis.tokens == (new[:-1] if new[-1] == END else new)
        assert hypothesis.log_prob == pytest.approx(total, abs=1e-4)
        assert hypothesis.score == pytest.approx(value, abs=1e-4)


def random_config(draw, vocab, beam, **fixed):
    config = {
        "beam": beam,
        "n_best": min(beam, draw.choice([1, 2, 5])),
        "length_penalty": draw.choice([0.0, 0.6, 1.0, 2.0]),
        "length_form": draw.choice(["mean", "gnmt"]),
        "max_new": draw.choice([2, 3, 4]),
        "min_new": draw.choice([0, 0, 1, 2]),
        "no_repeat": draw.choice([0, 0, 1, 2]),
        "coverage_penalty": draw.choice([0.0, 0.3]),
    }
    return BeamConfig(**(config | fixed))


def random_task(seed):
    draw = random.Random(seed)
    vocab, n = draw.choice([2, 3, 4, 5]), draw.choice([1, 2, 3])
    model = Toy(vocab, seed, draw.choice([0.5, 2.0, 4.0]), align=True)
    sources = [[draw.randrange(9) for _ in range(draw.choice([1, 2, 4]))] for _ in range(n)]
    prompts = [[draw.randrange(vocab) for _ in range(draw.choice([1, 1, 2, 3]))] for _ in range(n)]
    return draw, model, sources, prompts


def wide_enough(seeds):
    for seed in seeds:
        draw, model, sources, prompts = random_task(seed)
        config = random_config(draw, model.vocab, 1)
        config = config.model_copy(update={"beam": model.vocab**config.max_new, "n_best": draw.choice([1, 2, 3])})
        found = beam_search(model, prompts, config, END, [], context_of(sources))
        for hypotheses, source, prompt in zip(found, sources, prompts, strict=True):
            agree(hypotheses, exhaustive(model, config, source, prompt), config)


def narrow(seeds, **fixed):
    for seed in seeds:
        draw, model, sources, prompts = random_task(seed)
        groups = fixed.get("groups", 1)
        changes = {"stop": draw.choice(["exact", "first"]), "max_new": draw.choice([3, 6, 9])} | fixed
        config = random_config(draw, model.vocab, groups * draw.choice([1, 2, 3, 5]), **changes)
        banned = [draw.randrange(1, model.vocab)] if model.vocab > 3 else []
        found = beam_search(model, prompts, config, END, banned, context_of(sources))
        for hypotheses, source, prompt in zip(found, sources, prompts, strict=True):
            agree(hypotheses, plain_beam(model, config, source, prompt, banned), config)


def test_wide_enough_it_is_exhaustive():
    wide_enough(range(200))


@pytest.mark.parametrize(("vocab", "length"), [(5, 6), (3, 6), (2, 6)])
def test_longer_texts(vocab, length):
    model = Toy(vocab, 7)
    for alpha in (0.0, 1.0) if vocab < 5 else (0.6,):
        config = BeamConfig(beam=vocab**length, n_best=5, max_new=length, length_penalty=alpha)
        (found,) = beam_search(model, [[1]], config, END, [])
        agree(found, exhaustive(model, config, (), [1]), config)


def test_a_narrow_beam_equals_a_plain_one():
    narrow(range(500))


@pytest.mark.parametrize("diversity", [0.0, 0.7, 5.0])
def test_diverse_groups_equal_plain_ones(diversity):
    narrow(range(40), groups=2, diversity=diversity)
    narrow(range(40, 60), groups=3, diversity=diversity)


def test_diversity_makes_a_difference():
    model = Toy(5, 3)
    plain = BeamConfig(beam=4, n_best=4, groups=4, diversity=0.0, max_new=5)
    (same,), (other,) = (
        beam_search(model, [[1]], c, END, []) for c in (plain, plain.model_copy(update={"diversity": 9.0}))
    )
    assert len({tuple(h.tokens) for h in same}) == 1 and len({tuple(h.tokens) for h in other}) > 1


def test_company_and_order_change_nothing():
    model = Toy(6, 1, 3.0, align=True)
    draw = random.Random(0)
    sources = [[draw.randrange(9) for _ in range(size)] for size in (1, 7, 3, 3, 12)]
    prompts = [[1], [2, 3], [1], [4, 1, 5], [1]]
    config = BeamConfig(beam=3, n_best=3, max_new=12, coverage_penalty=0.2, length_penalty=0.6)
    rooms = [12, 3, 12, 5, 9]
    together = beam_search(model, prompts, config, END, [5], context_of(sources), rooms)
    assert len({len(found[0].tokens) for found in together}) > 2, "they leave at different times"
    for order in ([4, 2, 0, 1, 3], [1], [3, 0]):
        part = [[thing[i] for i in order] for thing in (prompts, sources, rooms)]
        found = beam_search(model, part[0], config, END, [5], context_of(part[1]), part[2])
        for i, hypotheses in zip(order, found, strict=True):
            for a, b in zip(together[i], hypotheses, strict=True):
                assert a[:4] == b[:4] and torch.equal(a.alignment, b.alignment)
                assert a.alignment.shape == (len(a.tokens), len(sources[i]))


def test_alignments_are_those_of_the_tokens():
    model = Toy(5, 4, align=True)
    source = [3, 1, 4, 1]
    (found,) = beam_search(model, [[1]], BeamConfig(beam=4, n_best=4, max_new=6), END, [], context_of([source]))
    for hypothesis in found:
        rows = [model.scores(source, [1, *hypothesis.tokens[:i]])[1] for i in range(len(hypothesis.tokens))]
        torch.testing.assert_close(hypothesis.alignment, torch.tensor(rows).view(-1, 4))


def test_a_coverage_penalty_needs_an_alignment():
    with pytest.raises(UsageError, match="coverage"):
        beam_search(Toy(4, 0), [[1]], BeamConfig(coverage_penalty=0.1), END, [])


def test_equal_candidates_go_by_the_lower_id():
    class Flat(Toy):
        def scores(self, source, text):
            return [0.0] * self.vocab, []

    config = BeamConfig(beam=3, n_best=3, max_new=3, length_penalty=0.0, stop="first")
    (found,) = beam_search(Flat(1000, 0), [[1]], config, END, [END])
    assert [h.tokens for h in found] == [[1, 1, 1], [1, 1, 2], [1, 1, 3]]


@pytest.mark.parametrize("m", [5, 1000, 40_000, 70_001])
def test_the_best_places(m):
    generator = torch.Generator().manual_seed(m)
    for k, levels in ((2, 10**6), (5, 10**6), (5, 3), (4, 1)):
        scores = torch.randint(levels, (3, m), generator=generator).float()
        scores[1, m // 2 :] = -math.inf
        scores[2, 1:] = -math.inf
        expected = scores.sort(dim=1, descending=True, stable=True).indices[:, :k]
        assert torch.equal(best(scores, k), expected)


# ---- real models


def sharpened(name):
    """An untrained model is nearly uniform; this one has opinions, and likes to end."""
    learner = learner_of(build(name, dtype=torch.float32), tie=False, bias=True)
    with torch.no_grad():
        for parameter in learner.backbone.parameters():
            if parameter.ndim > 1:
                parameter.mul_(3)
        learner.softmax.weight.copy_(0.7 * torch.randn(learner.softmax.weight.shape, generator=seeded(1)))
        learner.softmax.bias.zero_()[END] = 2.0 if name in ("lstm", "nnlm") else 7.0
    return learner


def seeded(number):
    return torch.Generator().manual_seed(number)


@pytest.mark.parametrize("name", NEURAL)
def test_a_beam_of_one_is_greedy(name):
    learner, prompts = sharpened(name), sequences(3, (7, 3, 12))
    stepper = Stepper(learner.backbone, learner.softmax)
    greedy = [[] for _ in prompts]
    for one in sample(stepper, prompts, SampleConfig(temperature=0, max_new=15), 0, END, []):
        greedy[one.sample] += [one.token] if one.token != END else []
    config = BeamConfig(beam=1, max_new=15, stop="first")
    assert [found[0].tokens for found in beam_search(stepper, prompts, config, END, [])] == greedy


@pytest.mark.parametrize("name", ["lstm", "gpt2", "gru", "nnlm", "big-lstm"])
def test_log_probs_equal_an_independent_scoring(name):
    learner, prompts = sharpened(name), [[END, 5, 6], [END, 7], [END, 9, 8, 7, 6, 5]]
    stepper = Stepper(learner.backbone, learner.softmax)
    config = BeamConfig(beam=4, n_best=4, max_new=70, length_penalty=1.0)  # more than caches have room for at first
    results = beam_search(stepper, prompts, config, END, [])
    assert len({len(h.tokens) for found in results for h in found}) > 3, "they should end at different times"
    for prompt, found in zip(prompts, results, strict=True):
        assert len(found) == 4 and len({tuple(h.tokens) for h in found}) == 4
        for h in found:
            (scored,) = score(learner, [prompt[1:] + h.tokens], END, torch.device("cpu"))
            expected = sum(scored.log_probs[len(prompt) - 1 :]) + (scored.end if h.finished else 0)
            assert h.log_prob == pytest.approx(expected, rel=1e-5, abs=1e-4)
            assert h.score == pytest.approx(expected / (len(h.tokens) + h.finished), rel=1e-4)


@pytest.mark.parametrize("name", ["lstm", "gpt2"])
def test_language_models_in_company(name):
    learner, prompts = sharpened(name), sequences(3, (7, 3, 12, 1))
    stepper = Stepper(learner.backbone, learner.softmax)
    config = BeamConfig(beam=4, n_best=2, max_new=14)
    together = beam_search(stepper, prompts, config, END, [])
    for prompt, found in zip(prompts, together, strict=True):
        (alone,) = beam_search(stepper, [prompt], config, END, [])
        assert [h.tokens for h in alone] == [h.tokens for h in found]


def test_a_full_context_ends_the_search():
    learner = sharpened("gpt2")
    stepper = Stepper(learner.backbone, learner.softmax)
    prompts = sequences(0, (96, 90, 2))
    found = beam_search(stepper, prompts, BeamConfig(beam=2, max_new=10), END, [END])
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [1, 7, 10]
    with pytest.raises(UsageError, match="97 tokens"):
        beam_search(stepper, sequences(0, (97,)), BeamConfig(), END, [])


def translator(seed=0, norm="post"):
    torch.manual_seed(seed)
    model = Transformer(
        Transformer.Config(vocab_size=VOCAB, dim=24, num_layers=2, num_heads=3, max_len=40, dropout=0.0, norm=norm)
    )
    softmax = Softmax(24, VOCAB, bias=True)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1.5 if parameter.ndim > 1 else 1.0).add_(0.1 * torch.randn_like(parameter))
        softmax.weight.normal_(std=0.7)
        softmax.bias.normal_()
        softmax.bias[END] = 8.0
    return model.eval(), softmax.eval()


def translated(model, softmax, sources, config, prompts=None, align=True):
    stepper = Stepper(model.decoder, softmax, align)
    with torch.no_grad():
        context = model.encode(pack(sources))
    return beam_search(stepper, prompts or [[1]] * len(sources), config, END, [], context)


# how much an end is preferred, so that hypotheses end at different times
ENDS = {"transformer": 28.0, "seq2seq-every": 8.0, "bytenet": 12.0}


def from_the_table(name):
    """A model of the contract's table, with an output layer that has opinions."""
    model = pairs.build(name)
    softmax = Softmax(model.dim, VOCAB, bias=True).double()
    wide = (
        1.0 if name.startswith("convs2s") else 2.0
    )  # without norms between its layers what is doubled grows with each
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(wide if parameter.ndim > 1 else 1.0)
        softmax.weight.copy_(2.0 * torch.randn(softmax.weight.shape, generator=seeded(1), dtype=torch.float64))
        softmax.bias.zero_()[END] = next((value for start, value in ENDS.items() if name.startswith(start)), 5.0)
    return model, softmax


@pytest.mark.parametrize("name", [*pairs.EVERY, "post", "pre"])
def test_an_encoder_decoder(name):
    """Against whole forwards: log-probabilities, alignments, scores; and each source alone."""
    model, softmax = translator(norm=name) if name in ("post", "pre") else from_the_table(name)
    sources, prompts = sequences(1, (5, 17, 1, 9)), [[1], [1, 7, 8], [1], [1, 4]]
    beta = 0.1 if model.aligned else 0.0
    config = BeamConfig(beam=4, n_best=4, max_new=15, length_penalty=0.6, length_form="gnmt", coverage_penalty=beta)
    results = translated(model, softmax, sources, config, prompts)
    assert len({len(h.tokens) for found in results for h in found}) > 1, "they should end at different times"
    for source, prompt, found in zip(sources, prompts, results, strict=True):
        (alone,) = translated(model, softmax, [source], config, [prompt])
        assert [h.tokens for h in alone] == [h.tokens for h in found]
        for h in found:
            new = [*h.tokens, END] if h.finished else h.tokens
            target = pack([[*prompt, *new[:-1]]])
            with torch.no_grad():
                output = model(Pair(pack([source]), target, torch.full_like(target.ids, IGNORE)), maps=True)
                scores = softmax(output.hidden)[len(prompt) - 1 :].log_softmax(1)
            total = scores.gather(1, torch.tensor(new)[:, None]).sum().item()
            assert h.log_prob == pytest.approx(total, rel=1e-5, abs=1e-4)
            expected = total / ((5 + len(new)) / 6) ** 0.6
            if model.aligned:
                looks = output.cross[-1].mean(1)[len(prompt) - 1 :].float()
                torch.testing.assert_close(h.alignment, looks[: len(h.tokens)], atol=1e-5, rtol=1e-4)
                expected += 0.1 * looks.sum(0).clamp(1e-9, 1.0).log().sum().item()
            else:
                assert h.alignment is None
            assert h.score == pytest.approx(expected, abs=1e-3)


def test_greedy_translation_is_a_beam_of_one():
    model, softmax = translator()
    sources = sequences(1, (5, 17, 1, 9))
    stepper = Stepper(model.decoder, softmax)
    with torch.no_grad():
        context = model.encode(pack(sources))
    greedy = [[] for _ in sources]
    for one in sample(stepper, [[1]] * 4, SampleConfig(temperature=0, max_new=100), 0, END, [], context):
        greedy[one.sample] += [one.token] if one.token != END else []
    config = BeamConfig(beam=1, max_new=100, stop="first")
    found = translated(model, softmax, sources, config, align=False)
    assert [hypotheses[0].tokens for hypotheses in found] == greedy
    assert found[0][0].alignment is None
    assert max(map(len, greedy)) == 40, "the model's length ends a text, and not an error"


def test_an_ensemble_of_one_is_the_model():
    model, softmax = translator()
    sources, config = sequences(1, (5, 17, 9)), BeamConfig(beam=3, n_best=3, max_new=15)
    one = translated(model, softmax, sources, config)
    with torch.no_grad():
        context = model.encode(pack(sources))
    stepper = Ensemble([Stepper(model.decoder, softmax, align=True)])
    same = beam_search(stepper, [[1]] * 3, config, END, [], [context])
    for a, b in zip(chain(*one), chain(*same), strict=True):
        assert a.tokens == b.tokens and a.score == pytest.approx(b.score, abs=1e-5)
        torch.testing.assert_close(a.alignment, b.alignment)


class Mean:
    """Two toys as one, by the definition."""

    def __init__(self, members):
        self.members, self.vocab = members, members[0].vocab

    def log_probs(self, source, text):
        each = [m.log_probs(source, text) for m in self.members]
        return [math.log(sum(math.exp(one[i]) for one in each) / len(each)) for i in range(self.vocab)]


def test_an_ensemble_of_two():
    members = [Toy(4, 1), Toy(4, 2)]
    config = BeamConfig(beam=4**4, n_best=5, max_new=4, length_penalty=0.6)
    sources = [[1, 2, 3], [4]]
    contexts = [context_of(sources)] * 2
    for source, found in zip(
        sources, beam_search(Ensemble(members), [[1]] * 2, config, END, [], contexts), strict=True
    ):
        agree(found, exhaustive(Mean(members), config, source, [1]), config)


class Replayed(Recorded):
    """What a CUDA graph does, without one: buffers of fixed shape, filled before a call and after it."""

    made = 0

    def __init__(self, function, given, carried):
        self.function, self.given, self.carried = function, given, carried
        self.leaves = tensors((given, carried))
        function(given, carried)
        Replayed.made += 1

    def __call__(self, given, carried):
        for ours, new in zip(self.leaves, tensors((given, carried)), strict=True):
            ours.copy_(new)
        made, after = self.function(self.given, self.carried)
        for old, new in zip(tensors(self.carried), tensors(after), strict=True):
            assert old.shape == new.shape and old.dtype == new.dtype
            old.copy_(new)
        return made, self.carried


@pytest.mark.parametrize("kind", ["gpt2", "lstm", "translation", "ensemble"])
def test_steps_can_be_recorded(kind, monkeypatch):
    """The way of the GPU: steps from buffers to buffers, sources that are done go on for a while, calls share graphs."""
    monkeypatch.setattr(search_module, "Recorded", Replayed)
    monkeypatch.setattr(search_module, "FIRST_ROOM", {True: 16, False: 32})
    config = BeamConfig(beam=4, n_best=3, max_new=50, no_repeat=3, min_new=2, length_penalty=0.6, groups=2)
    if kind in ("gpt2", "lstm"):
        learner = sharpened(kind)
        stepper = Stepper(learner.backbone, learner.softmax)
    else:
        models = [translator(seed) for seed in ((0, 1) if kind == "ensemble" else (0,))]
        steppers = [Stepper(model.decoder, softmax, align=True) for model, softmax in models]
        stepper = Ensemble(steppers) if kind == "ensemble" else steppers[0]
    results, counts = [], []
    for graphed in (False, True):
        stepper.graphed = graphed
        search = Search(stepper, config, END, [1])
        for lengths in ((4, 2), (5, 12, 3, 3, 9, 1), (5, 12, 3, 3, 9, 1)):
            texts, context = sequences(sum(lengths), lengths), None
            if kind in ("translation", "ensemble"):
                with torch.inference_mode():
                    contexts = [model.encode(pack(texts)) for model, _ in models]
                context, texts = contexts if kind == "ensemble" else contexts[0], [[1]] * len(texts)
            results.append(search.run(texts, context))
            counts.append(Replayed.made)
    for plain, recorded in zip(results[:3], results[3:], strict=True):
        for a, b in zip(chain(*plain), chain(*recorded), strict=True):
            assert a.tokens == b.tokens and a.score == pytest.approx(b.score, abs=1e-4)
            if a.alignment is not None:
                torch.testing.assert_close(a.alignment, b.alignment, atol=1e-5, rtol=1e-4)
    assert counts[2] < counts[3] < counts[4] == counts[5], "recorded for every shape, and kept for the next call"


def test_no_repeat_holds_in_the_text():
    learner = sharpened("lstm")
    config = BeamConfig(beam=4, n_best=4, max_new=40, no_repeat=2)
    (found,) = beam_search(Stepper(learner.backbone, learner.softmax), [[END, 3, 4]], config, END, [END])
    for h in found:
        neighbours = list(pairwise([END, 3, 4, *h.tokens]))
        assert len(neighbours) == len(set(neighbours)) == 42


def test_a_repetition_penalty_works_on_log_probabilities():
    model = Toy(6, 5, 1.0)
    config = BeamConfig(beam=1, max_new=6, repetition_penalty=3.0, stop="first")
    (found,) = beam_search(model, [[1]], config, END, [END])
    text = [1]
    for token in found[0].tokens:
        row = [p * 3 if i in text else p for i, p in enumerate(model.log_probs((), text))]
        row[END] = -math.inf
        assert token == max(range(6), key=lambda i: row[i])
        text.append(token)


def test_when_nothing_may_follow():
    (found,) = beam_search(Toy(3, 0), [[1]], BeamConfig(max_new=5), END, [0, 1, 2])
    assert found == []


@pytest.mark.parametrize(
    "wrong", [{"beam": 0}, {"n_best": 5}, {"groups": 3}, {"length_penalty": -1.0}, {"stop": "never"}, {"max_new": 0}]
)
def test_impossible_options(wrong):
    with pytest.raises(ValueError, match=r"beam|n_best|groups|length_penalty|stop|max_new"):
        BeamConfig(**wrong)


# ---- tests of the tests


def noticed():
    with pytest.raises((AssertionError, RuntimeError, IndexError)):
        narrow(range(60))


def test_planted_own_that_does_not_move(monkeypatch):
    monkeypatch.setattr(Search, "moves", lambda self, rows: False)
    noticed()


def test_planted_shared_moved_with_own(monkeypatch):
    step = Search.step

    def both(self, beams, state):
        rows = beams.parents.flatten() % state.shared.shape[0]
        return step(self, beams, State(state.own, select(state.shared, rows[: state.shared.shape[0]])))

    monkeypatch.setattr(Search, "step", both)
    noticed()


def test_planted_length_off_by_one(monkeypatch):
    length = Search.length
    monkeypatch.setattr(Search, "length", lambda self, made: length(self, made + 1))
    noticed()


def test_planted_pool_that_keeps_worse_ones(monkeypatch):
    merge_finished = Search.merge_finished

    def first_come(self, before, new, over, made, sizes):
        full = before.scores[..., -1:] > -math.inf
        return merge_finished(self, before, new, over & ~full, made, sizes)

    monkeypatch.setattr(Search, "merge_finished", first_come)
    noticed()


def test_planted_end_before_its_time(monkeypatch):
    allowed = Search.allowed

    def early(self, beams, scores):
        config = self.config
        self.config = config.model_copy(update={"min_new": max(0, config.min_new - 1)})
        log_probs = allowed(self, beams, scores)
        self.config = config
        return log_probs

    monkeypatch.setattr(Search, "allowed", early)
    noticed()


def test_planted_sources_that_leave_with_the_wrong_state(monkeypatch):
    keep_sources = search_module.keep_sources

    def wrong(beams, state, index):
        after, moved = keep_sources(beams, state, index)
        return after, State(moved.own, state.shared[: len(index)])

    monkeypatch.setattr(search_module, "keep_sources", wrong)
    noticed()


def test_planted_cache_that_is_lost_when_it_grows(monkeypatch):
    right = search_module.widen
    monkeypatch.setattr(search_module, "widen", lambda own, capacity: right(select_zeros(own), capacity))
    with pytest.raises(AssertionError):
        test_log_probs_equal_an_independent_scoring("gpt2")


def select_zeros(own):
    return torch.utils._pytree.tree_map(torch.zeros_like, own)


def test_planted_stop_too_early(monkeypatch):
    """Under a length penalty a running hypothesis can still rise: its sum alone bounds nothing."""
    is_settled = Search.is_settled
    monkeypatch.setattr(
        Search, "is_settled", lambda s, sums, scores, room: is_settled(s, sums, scores, torch.ones_like(room))
    )
    noticed()

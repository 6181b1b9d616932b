"""Texts that join and leave while others are being continued get the tokens that they would get alone."""

import random

import pytest
import torch

from seqloom.decode import sample as module
from seqloom.decode.graph import tensors
from seqloom.decode.rules import SampleConfig
from seqloom.decode.sample import Row, Rows, sample
from seqloom.decode.step import Stepper
from tests.contract.properties import build, learner_of, sequences

END = 0
RULES = [
    {"temperature": 0},
    {"temperature": 1.2},
    {"temperature": 0.8, "top_k": 5},
    {"temperature": 1.0, "top_p": 0.7, "min_new": 4},
    {"temperature": 0, "repetition_penalty": 1.5, "no_repeat": 3},
]


def stepper_of(name):
    """Of a model that is sure of what comes next. Transformers have a short context, which every longer text fills."""
    learner = learner_of(build(name, **({"max_len": 16} if name == "gpt2" else {})), tie=False)
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in learner.backbone.parameters():
            if parameter.ndim > 1:
                parameter.mul_(4)
        learner.softmax.weight.copy_(torch.randn(learner.softmax.weight.shape, generator=generator))
    return Stepper(learner.backbone, learner.softmax)


def requests(count, longest):
    rng = random.Random(3)
    prompts = [[END, *one] for one in sequences(4, tuple(rng.randint(1, 9) for _ in range(count)))]
    configs = [SampleConfig(max_new=rng.randint(1, longest), **RULES[i % len(RULES)]) for i in range(count)]
    return [
        (prompt, config, rng.randint(0, 3), i) for i, (prompt, config) in enumerate(zip(prompts, configs, strict=True))
    ]


def alone(stepper, prompt, config, seed, number):
    rows = Rows(stepper, END, [1])
    rows.admit([Row(list(prompt), config, seed, number)])
    made = []
    while rows.running:
        made += [(one.token, one.log_prob) for one in rows.draw()]
        rows.advance()
    return made


@torch.inference_mode()
def check_company(name, count=14, longest=30, steady=False):
    """Each asks at a random moment; every fifth leaves before it has ended."""
    stepper, rng = stepper_of(name), random.Random(5)
    waiting = requests(count, longest)
    wanted = [alone(stepper, *one) for one in waiting]
    rows, found, sizes = Rows(stepper, END, [1], steady), {i: [] for i in range(count)}, []
    left = set()
    while waiting or rows.running:
        if waiting and (not rows.running or rng.random() < 0.4):
            fresh = [waiting.pop(0) for _ in range(min(rng.randint(1, 3), len(waiting)))]
            rows.admit([Row(list(prompt), *others) for prompt, *others in fresh])
        for one in rows.draw():
            found[one.row.number].append((one.token, one.log_prob))
            if one.row.number % 5 == 4 and one.row.made == 3 and not one.last:
                rows.remove(one.row)
                left.add(one.row.number)
        rows.advance()
        sizes.append(len(rows.running))
    assert max(sizes) > 2
    assert left
    for number, made in found.items():
        expected = wanted[number][: len(made)] if number in left else wanted[number]
        assert [token for token, _ in made] == [token for token, _ in expected], number
        assert [p for _, p in made] == pytest.approx([p for _, p in expected], abs=1e-7)


@pytest.mark.parametrize("steady", [False, True])
@pytest.mark.parametrize("name", ["gru", "lstm", "gpt2", "transformer-xl"])
def test_tokens_do_not_depend_on_company(name, steady):
    check_company(name, steady=steady)


def test_the_sizes_of_recorded_steps_are_few(monkeypatch):
    """Where steps are recorded, texts that come and go change the number of rows seldom; the tokens stay those of each alone."""
    monkeypatch.setattr(Rows, "can_step_ahead", property(lambda rows: False))
    always = property(lambda stepper: True, lambda stepper, value: None)
    monkeypatch.setattr(Stepper, "graphed", always, raising=False)
    monkeypatch.setattr(Stepper, "step", Stepper.plain)
    sizes = []
    step = Rows.step
    monkeypatch.setattr(Rows, "step", lambda rows: (sizes.append(len(rows.rows)), step(rows)))
    check_company("gpt2", steady=True)
    assert set(sizes) <= {1, 4, 16}


@torch.inference_mode()
def write_beside_an_idle_row(steps=200):
    """Seven texts that come and go, and a row that nobody takes."""
    learner = learner_of(build("gpt2", max_len=512), tie=False)
    rows = Rows(Stepper(learner.backbone, learner.softmax), END, [END], steady=True)
    rows.admit([Row([END, 2], SampleConfig(max_new=1 if i == 7 else 3 + i), i) for i in range(8)])
    for i in range(steps):
        rows.draw()
        rows.advance()
        if len(rows.running) < 7:
            rows.admit([Row([END, 2], SampleConfig(max_new=7), i) for _ in range(7 - len(rows.running))])
    assert len(rows.rows) == 8


def test_an_idle_row_needs_no_room():
    write_beside_an_idle_row()


def test_planted_places_of_idle_rows_that_grow_are_noticed(monkeypatch):
    def count(rows):
        rows.positions = (rows.positions + 1).clamp(max=rows.limit - 1)
        rows.held = [held + 1 for held in rows.held]

    monkeypatch.setattr(Rows, "count_token", count)
    with pytest.raises(IndexError):
        write_beside_an_idle_row()


def test_planted_remains_of_the_text_before_are_noticed(monkeypatch):
    """A row that is taken over must hold nothing of who had it before."""
    replace = module.replace

    def half(state, index, other):
        kept = [part.clone() for part in tensors(state)]
        made = replace(state, index, other)
        for new, old in zip(tensors(made), kept, strict=True):
            if new.shape == old.shape:
                new[..., 0] = old[..., 0]
        return made

    monkeypatch.setattr(module, "replace", half)
    with pytest.raises(AssertionError):
        check_company("lstm", steady=True)


def test_planted_contexts_that_move_together_are_noticed(monkeypatch):
    """If one text fills its context, the others must not begin anew with it."""

    full = Rows.full.fget

    def together(rows):
        return [i for i, row in enumerate(rows.rows) if row is not None] if full(rows) else []

    monkeypatch.setattr(Rows, "full", property(together))
    with pytest.raises(AssertionError):
        check_company("gpt2")


def test_planted_random_numbers_by_moment_are_noticed(monkeypatch):
    """Random numbers belong to the text, not to the moment at which it is continued."""
    count = iter(range(10**9))
    monkeypatch.setattr(module, "draw_point", lambda row: module._points(0, next(count), 0)[0])
    with pytest.raises(AssertionError):
        check_company("lstm")


def test_all_that_a_sample_needs_is_in_its_row():
    stepper = stepper_of("gpt2")
    config = SampleConfig(max_new=12)
    both = list(sample(stepper, [[END, 3], [END, 3]], config, 7, END, [1]))
    second = [(one.token, one.log_prob) for one in both if one.sample == 1]
    with torch.inference_mode():
        assert [t for t, _ in alone(stepper, [END, 3], config, 7, 1)] == [t for t, _ in second]


def test_planted_prompts_that_are_not_read_are_noticed(monkeypatch):
    """Short prompts are read in the steps of those who write: what was chosen there is not the prompt."""

    def drop(rows):
        rows.unread = {i: left[:-1] for i, left in rows.unread.items() if left[:-1]}

    monkeypatch.setattr(Rows, "read_on", drop)
    with pytest.raises(AssertionError):
        check_company("lstm", steady=True)

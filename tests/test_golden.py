"""Tiny runs of every body, objective and task lose what they always lost: tests/golden_losses.json, to a millionth part.

Sums of 32-bit numbers come out differently on other CPUs. Five steps of these runs, made with scalar, AVX2 and AVX-512 kernels,
differ by at most 2.5e-7, so a millionth part holds on any machine; logged losses have six places, so below one it is 1e-6.
"""

import json

import pytest

from tests.release import tool

golden = tool("golden")
LOSSES = json.loads(golden.LOSSES.read_text())
TABLE = golden.Table({}, {}, {})


def changed(names):
    found = golden.losses_of(golden.record(names, training=True))
    return golden.differences({name: LOSSES[name] for name in found}, found, TABLE, near=1e-6)


def test_losses_are_what_they_were():
    assert len(LOSSES) >= 38 and all(len(losses) == (1 if name == "ngram" else 5) for name, losses in LOSSES.items())
    assert not changed(list(LOSSES))


@pytest.mark.parametrize("name", ["gpt2", "bert-tag"])
def test_a_planted_bug_is_noticed(name, monkeypatch):
    """At its third step Adam corrects as if at the fourth: a counter that is off by one."""
    import torch

    step = torch.optim.AdamW.step

    def late(self, *arguments, **named):
        for state in self.state.values():
            if "step" in state and int(state["step"]) == 3:
                state["step"] += 1
        return step(self, *arguments, **named)

    monkeypatch.setattr(torch.optim.AdamW, "step", late)
    assert any(line.startswith(f"/{name}/") for line in changed([name]))


def test_renamed_keys_may_stand_beside_the_old_ones():
    table = golden.Table({"headline": "main_metric"}, {"window": None}, {"counts": "count_based"})
    before = {"headline": 1.5, "kind": "counts"}
    for after in (
        {"main_metric": 1.5, "kind": "count_based"},
        {"main_metric": 1.5, "headline": 1.5, "kind": "counts", "window": None},
        before,
    ):
        assert not golden.differences(before, after, table)
    for after in (
        {"main_metric": 1.5, "headline": 1.6, "kind": "counts"},
        {"main_metric": 1.6, "kind": "counts"},
        {"kind": "counts"},
        {"main_metric": 1.5, "kind": "ngrams"},
        {"main_metric": 1.5, "kind": "counts", "window": 3},
        {"main_metric": 1.5, "kind": "counts", "other": None},
    ):
        assert golden.differences(before, after, table)

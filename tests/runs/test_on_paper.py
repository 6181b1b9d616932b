"""What training would take, against the published figures of GPT-3 and by hand."""

import json

import pytest

from seqloom import cost
from seqloom.cli import run
from seqloom.errors import UsageError
from seqloom.models.index import PARAMETERS
from seqloom.runs.on_paper import on_paper

# Brown et al., 2020, tables 2.1 and D.1: parameters, and operations for 300 billion tokens
PUBLISHED = {
    "small": (125e6, 2.25e20), "medium": (350e6, 6.41e20), "large": (760e6, 1.37e21), "xl": (1.3e9, 2.38e21),
    "2.7b": (2.7e9, 4.77e21), "6.7b": (6.7e9, 1.2e22), "13b": (13e9, 2.31e22), "175b": (175e9, 3.14e23),
}  # fmt: skip


@pytest.mark.parametrize("preset", PUBLISHED)
def test_sizes_as_published(preset):
    assert PARAMETERS["gpt3"][preset] == pytest.approx(PUBLISHED[preset][0], rel=0.025)


def test_the_largest_as_published():
    """The paper counts six operations a parameter and token; ours has attention and the output layer beside."""
    found = on_paper("gpt3-175b")
    assert found.rule_of_thumb == pytest.approx(3.14e23, rel=0.01) and 1 < found.operations / 3.14e23 < 1.05
    assert found.weights_gb == pytest.approx(350, rel=0.01)


@pytest.mark.parametrize("name", ["gpt3", "gpt2", "bytenet", "reformer", "transformer-xl"])
def test_counts_are_those_of_the_list_of_models(name):
    """With the published vocabularies, which recipes leave to the data."""
    for preset, count in PARAMETERS[name].items():
        assert on_paper(f"{name}-{preset}").parameters == count


def test_hours_energy_and_price_by_hand():
    found = on_paper("gpt3-small", tokens=1e9, device="A100", share=0.5, price=2.0)
    hours = found.operations / (312e12 * 0.5) / 3600
    assert found.device_hours == pytest.approx(hours) and found.price == pytest.approx(2 * hours)
    assert found.kwh == pytest.approx(0.4 * hours) and found.co2_kg == pytest.approx(cost.co2_kg(found.kwh, "world"))


@pytest.mark.parametrize("recipe", ["ngram-tiny", "transformer-base"])
def test_what_is_no_language_model_is_refused(recipe):
    with pytest.raises(UsageError, match="no language model"):
        on_paper(recipe)


def test_the_command(capsys):
    assert run(["models", "gpt3", "--cost", "--json"]) == 0
    assert set(json.loads(capsys.readouterr().out)) == {f"gpt3-{preset}" for preset in ("tiny", *PUBLISHED)}
    for options, words in (
        (["--cost"], "name it"),
        (["gpt3", "--cost", "--device", "B52"], "B52"),
        (["gpt3", "--tokens", "1e9"], "--tokens is for --cost"),
    ):
        assert run(["models", *options]) == 2
        assert words in capsys.readouterr().err

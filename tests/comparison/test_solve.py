"""Sizes that are solved for: all widths of a model grow together, and what is reached is what was asked for."""

import json
from types import SimpleNamespace

import pytest

from seqloom.comparison import solve
from seqloom.comparison.run import settle_plan
from seqloom.comparison.solve import describe_unscaled, sizes_of, solve_size
from seqloom.models.index import recipe_names as names
from seqloom.recipes.library import find_recipe
from seqloom.weights import shapes_only
from tests.comparison.plans import GPT, plan_of, write_text

TEXT = SimpleNamespace(vocab_size=2000)
SOLVABLE = [name for name in names() if not find_recipe(name).task and find_recipe(name).learns != "counts"]
SMALL = [name for name in SOLVABLE if name.endswith("-tiny")]


def built(recipe):
    with shapes_only():
        return recipe.learner(TEXT.vocab_size)


def check_growth(name, times):
    """Ratios are those of the recipe, but for rounding: to whole heads, and to multiples of 8 where there is room."""
    recipe = find_recipe(name)
    wanted = times * built(recipe).size()
    found, told = solve_size(recipe, TEXT, "dim", 0.05, parameters=wanted)
    learner = built(found)
    assert learner.size() == pytest.approx(wanted, rel=0.05)
    first, then = sizes_of(recipe), sizes_of(found)
    share = then["dim"] / first["dim"]
    assert (share > 1) == (times > 1) and f"dim = {then['dim']}" in told
    for key in ("embedding_dim", "proj_dim", "ffn_dim"):
        if first.get(key):
            assert abs(then[key] - first[key] * share) <= 4, key
    if first.get("num_heads"):
        assert then["dim"] % then["num_heads"] == 0
        assert abs(then["num_heads"] - first["num_heads"] * share) <= 1 + 0.15 * then["num_heads"]
        width = then["dim"] / then["num_heads"]
        assert width == pytest.approx(first["dim"] / first["num_heads"], rel=0.5 if then["num_heads"] < 3 else 0.3)
    generator = getattr(learner, "generator", None)
    if generator is not None:
        before = built(recipe)
        one = then["dim"] / then["num_heads"]  # it has whole heads
        assert abs(generator.dim - before.generator.dim * share) <= one
    assert learner.size() > 0 and all(
        first[key] == then[key] for key in first if key in ("num_layers", "max_len", "order")
    )


@pytest.mark.parametrize("times", [0.5, 3, 12])
@pytest.mark.parametrize("name", SMALL)
def test_widths_grow_together(name, times):
    check_growth(name, times)


@pytest.mark.long
@pytest.mark.parametrize("times", [0.3, 2, 6])
@pytest.mark.parametrize("name", [name for name in SOLVABLE if name not in SMALL])
def test_widths_grow_together_in_every_recipe(name, times):
    check_growth(name, times)


@pytest.mark.parametrize("name", ["electra-tiny", "albert-tiny", "gpt2-tiny", "big-lstm-tiny", "nnlm-tiny"])
def test_planted_dim_that_grows_alone_is_noticed(name, monkeypatch):
    """As it was: ELECTRA with 320 on embeddings of 64, and a generator of one head."""
    monkeypatch.setattr(
        solve, "scale_widths", lambda recipe, field, value, unit: solve.set_field(recipe, field, 20 * value)
    )
    with pytest.raises(AssertionError):
        check_growth(name, 12)


def test_electra_at_a_million():
    found, _ = solve_size(find_recipe("electra-tiny"), TEXT, "dim", 0.05, parameters=4e6)
    sizes = sizes_of(found)
    generator = built(found).generator
    assert sizes["dim"] > 200 and sizes["embedding_dim"] > 150 and sizes["num_heads"] > 10
    assert generator.config.num_heads > 2


def test_what_does_not_grow_is_said():
    recipe = find_recipe("big-lstm-tiny")
    found, _ = solve_size(recipe, TEXT, "dim", 0.05, parameters=4e6)
    assert "filters stays" in describe_unscaled(recipe, found) and "char_dim stays 16" in describe_unscaled(
        recipe, found
    )
    recipe = find_recipe("electra-tiny")
    found, _ = solve_size(recipe, TEXT, "dim", 0.05, parameters=4e6)
    assert describe_unscaled(recipe, found) == ""
    alone, _ = solve_size(recipe, TEXT, "dim", 0.05, parameters=4e6, together=False)
    assert "embedding_dim stays 64" in describe_unscaled(recipe, alone), "as earlier versions did"


def test_a_comparison_of_an_earlier_version_keeps_its_sizes(tmp_path):
    plan = plan_of(write_text(tmp_path / "text.txt"), rows=[GPT], parameters=1e5, pairs=0)
    (tmp_path / "out").mkdir()
    new = settle_plan(plan, tmp_path / "out", "cpu", False).rows[0].recipe.model
    path = tmp_path / "out" / "plan.json"
    path.write_text(
        json.dumps({key: value for key, value in json.loads(path.read_text()).items() if "widths" not in key})
    )
    old = settle_plan(plan, tmp_path / "out", "cpu", False)
    model = old.rows[0].recipe.model
    assert model["num_heads"] == 2 < new["num_heads"] and "num_heads stays 2" in old.rows[0].ungrown
    assert settle_plan(plan, tmp_path / "out", "cpu", False).rows == old.rows

"""Solving for the size of a model: how wide it must be for a number of parameters, or for a number of training FLOPs.

All widths of a model are scaled together: embeddings, projections and feed-forward layers keep the recipe's ratio to `dim`; heads
keep their width, so that their number changes; a generator is a fraction of its discriminator and changes with it.
"""

import math
from collections.abc import Callable
from typing import Any

from seqloom import cost
from seqloom.batch import Sizes
from seqloom.batches.loader import Cursor, Loader
from seqloom.errors import UsageError
from seqloom.recipes.schema import LARGEST, Recipe, build_recipe
from seqloom.runs.corpus import Corpus
from seqloom.runs.dataset import build_learner
from seqloom.weights import shapes_only

MOST_LAYERS = 1024  # layers are objects, and counting the parameters of many more would fill the memory
BATCHES = 8  # whose sizes stand for all
WITH_DIM = ("embedding_dim", "proj_dim", "ffn_dim", "expert_dim")  # widths that keep their ratio to dim
FIXED = ("char_dim", "filters")  # widths that stay: every size of model has the same characters
HEAD_SLACK = 0.15  # the fraction by which the number of heads may differ from what keeps their width
RATIO_SLACK = 0.25  # a ratio that rounding has changed by more than this is reported
ROUND = 8  # GPUs are several times faster with multiples of this: taken where sizes stay nearly equal


def solve_size(
    recipe: Recipe,
    text: Corpus,
    field: str,
    tolerance: float,
    *,
    parameters: float = 0.0,
    flops: float = 0.0,
    tokens: float = 0.0,
    together: bool = True,
) -> tuple[Recipe, str]:
    """The recipe with `model.field` such that it has about so many parameters, or training on so many tokens takes about so many
    FLOPs; and the solution in words. A count-based model has no size to choose and stays as it is. together: other widths are
    scaled with dim; earlier versions scaled dim alone."""
    if recipe.count_based:
        return recipe, "it is count-based: its size follows from the text"
    step, grow = width_step(recipe, field), scale_widths if together and field == "dim" else set_field
    sample = sample_sizes(text) if flops else Sizes(0, 0, 0, 0)

    def measure(value: int) -> float:
        try:
            with shapes_only():
                learner = grow(recipe, field, value, unit).learner(text.vocab_size)
        except UsageError:
            return 0.0  # too narrow for another of its sizes
        if not flops:
            return float(learner.size())
        return cost.of_training(learner)(sample) * tokens / sample.tokens

    wanted, most = parameters or flops, MOST_LAYERS if field == "num_layers" else LARGEST
    step = 1 if grow is scale_widths else step
    # round widths where they are near enough, then any, then those that need a few heads more or less
    for unit, allowed in ((ROUND, tolerance / 2), (1, tolerance), (0, math.inf)):
        value = nearest(measure, wanted, step * max(unit, 1), most)
        if abs(measure(value) / wanted - 1) <= allowed:
            break
    reached, what = measure(value), "parameters" if parameters else "FLOPs"
    found = grow(recipe, field, value, unit)
    value = found.model[field]
    if abs(reached / wanted - 1) > tolerance:
        raise UsageError(
            f"no size has {wanted:.4g} {what}: model.{field} = {value} has {reached:.4g}, {reached / wanted - 1:+.1%}, and the "
            f"tolerance is {tolerance:.1%}: choose another number, another field to grow, or a larger tolerance"
        )
    first, then = sizes_of(recipe), sizes_of(found)
    others = [name for name in ("num_heads", *WITH_DIM) if name != field and first.get(name) != then.get(name)]
    sizes = ", ".join(f"{name} = {then[name]}" for name in (field, *others))
    return found, f"model.{sizes} for {wanted:.4g} {what}"


def set_field(recipe: Recipe, field: str, value: int, unit: int = 1) -> Recipe:
    """With this one field changed."""
    values = recipe.model_dump()
    return build_recipe(values | {"model": values["model"] | {field: value}}, recipe.name)


def sizes_of(recipe: Recipe) -> dict[str, Any]:
    """The settings of its model, defaults included."""
    return recipe.model_config_of(1).model_dump()


def scale_widths(recipe: Recipe, field: str, value: int, unit: int = 1) -> Recipe:
    """With a dim of about `value` and all other widths in proportion, each a multiple of the unit unless it is smaller. Heads are
    about as wide as before, and dim is a multiple of their number."""
    sizes = sizes_of(recipe)
    heads = sizes.get("num_heads")
    count = choose_heads(value, value * heads / sizes["dim"], unit) if heads else 1
    dim = count * round_width(value / count, unit)
    changed = {"dim": dim} | ({"num_heads": count} if heads else {})
    for name in WITH_DIM:
        if sizes.get(name):
            changed[name] = round_width(sizes[name] * dim / sizes["dim"], unit)
    values = recipe.model_dump()
    return build_recipe(values | {"model": values["model"] | changed}, recipe.name)


def choose_heads(value: int, wanted: float, unit: int) -> int:
    """The number of heads. unit 0: a few more or fewer than wanted, so that dim can be near the value."""
    middle = max(round(wanted), 1)
    some = 0 if unit else max(round(HEAD_SLACK * middle), int(middle > 2))
    counts = range(max(middle - some, 1), middle + some + 1)
    return min(counts, key=lambda count: (abs(count * round_width(value / count, unit) - value), abs(count - middle)))


def round_width(width: float, unit: int) -> int:
    return unit * max(round(width / unit), 1) if unit and width >= unit / 2 else max(round(width), 1)


def describe_unscaled(before: Recipe, after: Recipe) -> str:
    """The widths that were not scaled with dim, in words; empty where all were, or where dim has not changed."""
    first, then = sizes_of(before), sizes_of(after)
    if first.get("dim") == then.get("dim"):
        return ""
    share = then["dim"] / first["dim"]
    found = [f"{name} stays {first[name]}" for name in FIXED if first.get(name)]
    for name in ("num_heads", *WITH_DIM):
        if first.get(name) and abs(then[name] / first[name] / share - 1) > RATIO_SLACK:
            same = first[name] == then[name]
            found.append(f"{name} stays {first[name]}" if same else f"{name} goes from {first[name]} to {then[name]}")
    return f"dim is {share:.2f} times the recipe's, but {'; '.join(found)}" if found else ""


def width_step(recipe: Recipe, field: str) -> int:
    """A width is a multiple of the number of heads that share it."""
    config = recipe.model_config_of(1)
    if not isinstance(getattr(config, field, None), int):
        known = [name for name in type(config).model_fields if isinstance(getattr(config, name), int)]
        raise UsageError(f"grow = {field!r} is not a size of {recipe.model['name']} (sizes: {', '.join(known)})")
    return getattr(config, "num_heads", 1) if field == "dim" else 1


def nearest(measure: Callable[[int], float], wanted: float, step: int, most: int = LARGEST) -> int:
    """The multiple of step whose measure is nearest to what is wanted; the measure grows with it. most: the largest to try."""
    low, high = 1, 1
    while measure(step * high) < wanted:
        low, high = high, 2 * high
        if step * high > most:
            raise UsageError(
                f"no size up to {most:,} reaches {wanted:.4g}: ask for less, or choose another field to grow"
            )
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if measure(step * middle) < wanted else (low, middle)
    return step * min((low, high), key=lambda count: abs(measure(step * count) - wanted))


def sample_sizes(text: Corpus) -> Sizes:
    """The sum over some batches as they will be read, from everywhere in an epoch, as its first ones may be shorter."""
    learner = build_learner(text, 0)
    loader = Loader(text.batches(1.0), learner, 0, workers=0)
    plan = loader.plan(0)
    places = sorted({i * len(plan) // BATCHES for i in range(BATCHES)})
    found = [loader.read(plan, Cursor(0, i), Cursor(0, i + 1)).sizes[0] for i in places]
    return Sizes(*(sum(parts[1:], parts[0]) for parts in zip(*found, strict=True)))

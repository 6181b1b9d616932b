"""How wide a model must be to have so many parameters, or for its training to take so many operations.

All widths of a model grow together: embeddings, projections and feed-forward layers keep their ratio to `dim`, as the recipe has
it; heads keep their width, so that there are more of them; a generator is a share of its discriminator and grows with it.
"""

import math
from collections.abc import Callable
from typing import Any

from seqloom import cost
from seqloom.batch import Sizes
from seqloom.batches.loader import Cursor, Loader
from seqloom.errors import UsageError
from seqloom.recipes.schema import LARGEST, Recipe, build_recipe
from seqloom.runs.corpus import Prepared
from seqloom.runs.language_model import begin_learner
from seqloom.weights import shapes_only

DEEPEST = 1024  # layers are objects: more than anybody trains would fill the memory while they are counted
BATCHES = 8  # whose sizes speak for all
WITH_DIM = ("embedding_dim", "proj_dim", "ffn_dim")  # widths that keep their ratio to dim
FIXED = ("char_dim", "filters")  # widths that stay: of characters there are as many for every size
OTHER_HEADS = 0.15  # by this share their number may differ from what keeps their width
NEAR = 0.25  # a ratio that rounding has moved by more than this is said
ROUND = 8  # GPUs multiply widths of which this is a factor several times faster: taken where it costs little equality


def solved(
    recipe: Recipe,
    text: Prepared,
    field: str,
    tolerance: float,
    *,
    parameters: float = 0.0,
    flops: float = 0.0,
    tokens: float = 0.0,
    together: bool = True,
) -> tuple[Recipe, str]:
    """The recipe with `model.field` such that it has about so many parameters, or learning from so many tokens takes about so
    many operations; and what that is, in words. A model that counts has no size to choose: it stays as it is. together: other
    widths grow with dim; comparisons of earlier versions have grown it alone."""
    if recipe.learns == "counts":
        return recipe, "it counts: its size follows from the text"
    step, grow = step_of(recipe, field), widened if together and field == "dim" else grown
    sample = text_sizes(text) if flops else Sizes(0, 0, 0, 0)

    def measured(value: int) -> float:
        try:
            with shapes_only():
                learner = grow(recipe, field, value, unit).learner(text.vocab_size)
        except UsageError:
            return 0.0  # narrower than another of its sizes allows
        if not flops:
            return float(learner.size())
        return cost.of_training(learner)(sample) * tokens / sample.tokens

    wanted, most = parameters or flops, DEEPEST if field == "num_layers" else LARGEST
    step = 1 if grow is widened else step
    # round widths where they are near enough, then any, then those that need a few heads more or less
    for unit, allowed in ((ROUND, tolerance / 2), (1, tolerance), (0, math.inf)):
        value = nearest(measured, wanted, step * max(unit, 1), most)
        if abs(measured(value) / wanted - 1) <= allowed:
            break
    reached, what = measured(value), "parameters" if parameters else "operations"
    found = grow(recipe, field, value, unit)
    value = found.model[field]
    if abs(reached / wanted - 1) > tolerance:
        raise UsageError(
            f"no size has {wanted:.4g} {what}: with model.{field} = {value} there are {reached:.4g}, "
            f"{reached / wanted - 1:+.1%}, and the tolerance is {tolerance:.1%}: choose another number, grow another size, or "
            f"allow more"
        )
    first, then = sizes_of(recipe), sizes_of(found)
    others = [name for name in ("num_heads", *WITH_DIM) if name != field and first.get(name) != then.get(name)]
    told = ", ".join(f"{name} = {then[name]}" for name in (field, *others))
    return found, f"model.{told} for {wanted:.4g} {what}"


def grown(recipe: Recipe, field: str, value: int, unit: int = 1) -> Recipe:
    """With this one field changed."""
    values = recipe.model_dump()
    return build_recipe(values | {"model": values["model"] | {field: value}}, recipe.name)


def sizes_of(recipe: Recipe) -> dict[str, Any]:
    """What its model is built with, defaults included."""
    return recipe.model_config_of(1).model_dump()


def widened(recipe: Recipe, field: str, value: int, unit: int = 1) -> Recipe:
    """With a dim of about `value` and all other widths in proportion, each a multiple of the unit where it is not smaller. A head
    is about as wide as before, and dim a multiple of their number."""
    sizes = sizes_of(recipe)
    heads = sizes.get("num_heads")
    count = heads_of(value, value * heads / sizes["dim"], unit) if heads else 1
    dim = count * rounded(value / count, unit)
    changed = {"dim": dim} | ({"num_heads": count} if heads else {})
    for name in WITH_DIM:
        if sizes.get(name):
            changed[name] = rounded(sizes[name] * dim / sizes["dim"], unit)
    values = recipe.model_dump()
    return build_recipe(values | {"model": values["model"] | changed}, recipe.name)


def heads_of(value: int, wanted: float, unit: int) -> int:
    """How many. unit 0: a few more or less than wanted, so that dim can be near the value."""
    middle = max(round(wanted), 1)
    some = 0 if unit else max(round(OTHER_HEADS * middle), int(middle > 2))
    counts = range(max(middle - some, 1), middle + some + 1)
    return min(counts, key=lambda count: (abs(count * rounded(value / count, unit) - value), abs(count - middle)))


def rounded(width: float, unit: int) -> int:
    return unit * max(round(width / unit), 1) if unit and width >= unit / 2 else max(round(width), 1)


def ungrown(before: Recipe, after: Recipe) -> str:
    """Which widths did not grow with dim, in words; nothing where all did, or dim did not."""
    first, then = sizes_of(before), sizes_of(after)
    if first.get("dim") == then.get("dim"):
        return ""
    share = then["dim"] / first["dim"]
    found = [f"{name} stays {first[name]}" for name in FIXED if first.get(name)]
    for name in ("num_heads", *WITH_DIM):
        if first.get(name) and abs(then[name] / first[name] / share - 1) > NEAR:
            found.append(f"{name} is {then[name]}, and was {first[name]}")
    return f"dim is {share:.2f} times that of the recipe, but {'; '.join(found)}" if found else ""


def step_of(recipe: Recipe, field: str) -> int:
    """A width is a multiple of the heads that share it."""
    config = recipe.model_config_of(1)
    if not isinstance(getattr(config, field, None), int):
        known = [name for name in type(config).model_fields if isinstance(getattr(config, name), int)]
        raise UsageError(f"grow = {field!r} is no size of {recipe.model['name']} (sizes: {', '.join(known)})")
    return getattr(config, "num_heads", 1) if field == "dim" else 1


def nearest(measured: Callable[[int], float], wanted: float, step: int, most: int = LARGEST) -> int:
    """Of the multiples of step the one whose measure is the nearest; the measure grows with it. most: where it is given up."""
    low, high = 1, 1
    while measured(step * high) < wanted:
        low, high = high, 2 * high
        if step * high > most:
            raise UsageError(f"no size up to {most:,} reaches {wanted:.4g}: ask for less, or grow another size")
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if measured(step * middle) < wanted else (low, middle)
    return step * min((low, high), key=lambda count: abs(measured(step * count) - wanted))


def text_sizes(text: Prepared) -> Sizes:
    """Of some batches as they will be read, added up; from everywhere in an epoch, as its first ones may be shorter."""
    learner = begin_learner(text, None, 0)
    text.spell(learner.backbone.characters)
    loader = Loader(text.batches(1.0), learner, 0, workers=0)
    plan = loader.plan(0)
    places = sorted({i * len(plan) // BATCHES for i in range(BATCHES)})
    found = [loader.read(plan, Cursor(0, i), Cursor(0, i + 1)).sizes for i in places]
    return Sizes(*(sum(parts[1:], parts[0]) for parts in zip(*found, strict=True)))

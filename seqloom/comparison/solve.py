"""How wide a model must be to have so many parameters, or for its training to take so many operations."""

from collections.abc import Callable

from seqloom import cost
from seqloom.batch import Sizes
from seqloom.batches.loader import Cursor, Loader
from seqloom.errors import UsageError
from seqloom.prepared import Prepared
from seqloom.recipe import LARGEST, Recipe, build_recipe
from seqloom.runs import begin_learner
from seqloom.weights import shapes_only

DEEPEST = 1024  # layers are objects: more than anybody trains would fill the memory while they are counted
BATCHES = 8  # whose sizes speak for all
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
) -> tuple[Recipe, str]:
    """The recipe with `model.field` such that it has about so many parameters, or learning from so many tokens takes about so
    many operations; and what that is, in words. A model that counts has no size to choose: it stays as it is."""
    if recipe.learns == "counts":
        return recipe, "it counts: its size follows from the text"
    sample = text_sizes(text) if flops else Sizes(0, 0, 0, 0)

    def measured(value: int) -> float:
        try:
            with shapes_only():
                learner = grown(recipe, field, value).learner(text.vocab_size)
        except UsageError:
            return 0.0  # narrower than another of its sizes allows
        if not flops:
            return float(learner.size())
        return cost.of_training(learner)(sample) * tokens / sample.tokens

    wanted, step = parameters or flops, step_of(recipe, field)
    most = DEEPEST if field == "num_layers" else LARGEST
    value = nearest(measured, wanted, ROUND * step, most)
    if abs(measured(value) / wanted - 1) > tolerance / 2:
        value = nearest(measured, wanted, step, most)
    reached, what = measured(value), "parameters" if parameters else "operations"
    if abs(reached / wanted - 1) > tolerance:
        raise UsageError(
            f"no size has {wanted:.4g} {what}: with model.{field} = {value} there are {reached:.4g}, "
            f"{reached / wanted - 1:+.1%}, and the tolerance is {tolerance:.1%}: choose another number, grow another size, or "
            f"allow more"
        )
    return grown(recipe, field, value), f"model.{field} = {value} for {wanted:.4g} {what}"


def grown(recipe: Recipe, field: str, value: int) -> Recipe:
    values = recipe.model_dump()
    return build_recipe(values | {"model": values["model"] | {field: value}}, recipe.name)


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
    return Sizes(*(sum(parts) for parts in zip(*found, strict=True)))

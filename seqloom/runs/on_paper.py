"""What training a recipe would take, computed from shapes alone: no weight is built, so that any size can be asked about.

operations   of training on so many tokens, in texts as long as the recipe has them; and by the rule of thumb, 6 N D
memory       of weights, gradients and two moments of Adam in fp32, 16 bytes a parameter, without what the backward pass keeps;
             and of the weights alone in bf16
hours        of one device, at a share of its peak; energy at its power; CO2 by the world's average; price by the hour
"""

from typing import Any, NamedTuple

from seqloom import cost
from seqloom.batch import Sizes
from seqloom.config import unknown_name
from seqloom.errors import UsageError
from seqloom.models import model_class
from seqloom.models.index import split_name
from seqloom.recipes.library import find_recipe
from seqloom.weights import shapes_only

WATTS = {"H200": 700, "H100": 700, "A100": 400, "L40S": 350, "L4": 72, "RTX 4090": 450}  # the makers' limits of a card


class OnPaper(NamedTuple):
    recipe: str
    parameters: int
    tokens: float
    operations: float
    rule_of_thumb: float
    training_gb: float
    weights_gb: float
    device_hours: float
    kwh: float
    co2_kg: float
    price: float


def on_paper(
    recipe: str,
    tokens: float = 300e9,
    device: str = "H200",
    share: float = 0.4,
    price: float = 2.5,
    country: str = "world",
) -> OnPaper:
    """What it would take to train a language model of a built-in recipe.

    Args:
        recipe: its name.
        tokens: that it is trained on; GPT-3 saw 300 billion.
        device: one whose peak is known.
        share: of the peak that training reaches.
        price: of an hour of the device.
        country: whose electricity it is.
    """
    if device not in WATTS:
        raise UsageError(unknown_name("--device", device, device, list(WATTS)))
    found = find_recipe(recipe)
    if found.task is not None or found.count_based:
        raise UsageError(f"{recipe} is no language model that learns by gradients: its cost follows from its examples")
    model, preset = split_name(recipe)
    published: Any = model_class(model)
    with shapes_only():  # recipes take their vocabulary from data: here it is that of the published size
        learner: Any = found.learner(published.presets[preset].get("vocab_size", 8192))
    length = found.batches.length
    sizes = Sizes(length, length * length, length, length, lengths=(length,))
    operations = cost.of_training(learner)(sizes) / length * tokens
    parameters = learner.size()
    hours = operations / (cost.PEAK[device] * share) / 3600
    kwh = hours * WATTS[device] / 1000
    return OnPaper(
        recipe, parameters, tokens, operations, 6.0 * parameters * tokens, 16 * parameters / 1e9, 2 * parameters / 1e9,
        hours, kwh, cost.co2_kg(kwh, country), hours * price,
    )  # fmt: skip


def describe(found: OnPaper) -> str:
    return (
        f"{found.recipe}: {found.parameters:,} parameters; {found.tokens:.3g} tokens: {found.operations:.3g} operations "
        f"(6 N D: {found.rule_of_thumb:.3g}); memory {found.training_gb:,.1f} GB in training, {found.weights_gb:,.1f} GB of "
        f"weights in bf16; {found.device_hours:,.0f} device hours, {found.kwh:,.0f} kWh, {found.co2_kg:,.0f} kg CO2, "
        f"price {found.price:,.0f}"
    )

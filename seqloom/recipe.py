"""A recipe: everything that decides a run except the data and the seed. Frozen, closed, and the same in TOML and JSON."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from seqloom.batch import Objective
from seqloom.batches.plan import Batches, Packed, Streams
from seqloom.batches.store import Split
from seqloom.config import Config, build, problems, unknown_name
from seqloom.errors import UsageError
from seqloom.models import MODELS, OWN, model_class
from seqloom.objectives import OBJECTIVES, fitting_objectives, objective_class
from seqloom.plugins import Plugin
from seqloom.train.loop import Budget, TrainConfig

LARGEST = 1 << 24  # of a model's numbers: no product of two overflows


class BatchesConfig(Config):
    """packed: `budget` tokens a batch in sequences of at most `length`; streams: `streams` rows of `length` tokens.

    vary: streams are read in lengths around `length`, other ones in every epoch, and a step's rate goes with its length."""

    kind: Literal["packed", "streams"] = "packed"
    budget: int = Field(8192, ge=1)
    streams: int = Field(32, ge=1)
    length: int = Field(128, ge=1)
    vary: bool = False

    def build(self, split: Split) -> Batches:
        if self.kind == "packed":
            return Packed(split, self.budget, self.length)
        return Streams(split, self.streams, self.length, self.vary)


class BudgetConfig(Config):
    """What ends the run, whichever comes first. Words are counted by the corpus' own ratio of words to tokens."""

    tokens: float | None = Field(None, gt=0)
    words: float | None = Field(None, gt=0)
    minutes: float | None = Field(None, gt=0)
    epochs: float | None = Field(None, gt=0)
    flops: float | None = Field(None, gt=0)
    steps: int | None = Field(None, gt=0)

    @model_validator(mode="after")
    def has_an_end(self) -> Self:
        if not self.model_dump(exclude_none=True):
            raise ValueError("needs at least one of tokens, words, minutes, epochs, steps, flops")
        return self

    def resolve(self, split: Split) -> Budget:
        ends = [
            self.tokens,
            self.words and self.words * split.num_tokens / max(split.words, 1),
            self.epochs and self.epochs * split.num_tokens,
        ]
        tokens = min((end for end in ends if end), default=float("inf"))
        never = float("inf")
        return Budget(tokens, self.minutes or never, self.steps or never, self.flops or never)


class ValidConfig(Config):
    """The measurement during training: on the first `limit` tokens (0: all), windows moved on by `stride` (None: disjoint)."""

    limit: int = Field(200_000, ge=0)
    stride: int | None = Field(None, gt=0)


class Recipe(Config):
    name: str
    model: dict[str, Any]  # name, and values of that model's Config; vocab_size comes from the tokenizer
    objective: dict[str, Any] = {"name": "next-token"}  # noqa: RUF012
    batches: BatchesConfig = BatchesConfig()
    train: TrainConfig = TrainConfig()
    budget: BudgetConfig
    valid: ValidConfig = ValidConfig()

    def model_config_of(self, vocab_size: int) -> Any:
        cls: Any = model_class(self.model["name"])
        return build(cls.Config, without_name(self.model) | {"vocab_size": vocab_size}, "model", self.name)

    @property
    def own_code(self) -> bool:
        return self.model["name"] in OWN

    def learner(self, vocab_size: int, plugin: Plugin | None = None) -> Objective:
        """plugin: the user's own code, where the model is made of it."""
        model: Any = model_class(self.model["name"])
        objective: Any = objective_class(self.objective["name"])
        config = self.model_config_of(vocab_size)
        backbone = model(config, plugin) if self.own_code else model(config)
        return objective(backbone, build(objective.Config, without_name(self.objective), "objective", self.name))


def without_name(section: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in section.items() if key != "name"}


def build_recipe(values: dict[str, Any], source: str) -> Recipe:
    """A recipe from plain values, or one line with everything that is wrong with them."""
    found = problems(Recipe, values)
    for section, known, find in (("model", MODELS | OWN, model_class), ("objective", OBJECTIVES, objective_class)):
        part = values.get(section, {"name": "next-token"} if section == "objective" else None)
        if not isinstance(part, dict):
            continue
        name = part.get("name")
        if name is None:
            found.append(f"'{section}.name' is missing (known: {', '.join(known)})")
        elif not isinstance(name, str) or name not in known:
            found.append(unknown_name(section, f"{section}.name = {name}", str(name), list(known)))
        else:
            cls: Any = find(name)
            own = without_name(part)
            if "vocab_size" in cls.Config.model_fields:
                own.setdefault("vocab_size", 1)
            found += problems(cls.Config, own, section)
            found += [
                f"'{section}.{key}' is more than {LARGEST:,}, the largest size there is"
                for key, value in own.items()
                if isinstance(value, int) and value > LARGEST
            ]
    if not found:
        recipe = Recipe.model_validate(values)
        if recipe.batches.kind == "streams" and not model_class(recipe.model["name"]).recurrent:
            found.append(
                f"'batches.kind' = \"streams\" is for recurrent models, which carry a state from batch to batch; "
                f'{recipe.model["name"]} has none: use "packed"'
            )
        if recipe.batches.kind == "packed" and recipe.batches.vary:
            found.append("'batches.vary' = true is for batches.kind = \"streams\": leave it out")
        objective, fitting = recipe.objective["name"], fitting_objectives(model_class(recipe.model["name"]))
        if objective not in fitting:
            found.append(
                f"'objective.name' = \"{objective}\" is not for the model {recipe.model['name']}: "
                f'use "{fitting[0]}" ([objective] name = "{fitting[0]}")'
            )
        endless = recipe.budget.model_dump(exclude_none=True).keys() & {"minutes", "steps", "flops"}
        if objective == "counts" and endless:
            found.append(
                f"'budget.{min(endless)}': counting has no steps and takes no operations: give tokens, words or epochs"
            )
        limit = getattr(recipe.model_config_of(1), "max_len", None)
        if limit is not None and recipe.batches.length > limit:
            found.append(
                f"'batches.length' = {recipe.batches.length} is longer than the context of the model, "
                f"'model.max_len' = {limit}: lower the one or raise the other"
            )
    if found:
        raise UsageError(f"{source}: " + "; ".join(found))
    return recipe

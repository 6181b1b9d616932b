"""A model from elsewhere → our values and tensors: checked as a whole before a number is read."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.batch import Learner, Vocabulary
from seqloom.convert.family import Family, Head
from seqloom.convert.marian import MARIAN
from seqloom.convert.names import Plan, full_name, plan, take, with_heads
from seqloom.convert.values import read_values
from seqloom.errors import ModelError
from seqloom.models import model_class
from seqloom.objectives import objective_class
from seqloom.tasks import task_class
from seqloom.weights import shapes_only

Shapes = dict[str, tuple[int, ...]]


class Model(NamedTuple):
    """What a folder holds, by its names and shapes alone."""

    family: Family
    head: Head
    values: dict[str, Any]  # of our Config
    plan: Plan
    where: str

    def take(self, tensors: dict[str, Tensor]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        """Tensors of our learner, and by their names rows that ours has no use for."""
        self.family.check(self.values, {name: t for name, t in tensors.items() if name not in self.plan.names})
        ours, unused = take(self.plan, tensors, self.head.repeated, self.where)
        return ours, unused


def shape_of(family: Family, head: Head, values: dict[str, Any]) -> Learner:
    """Our learner without memory."""
    model: Any = model_class(family.model)
    ((kind, section),) = head.learns.items()
    learner: Any = (objective_class if kind == "objective" else task_class)(section["name"])
    own = {key: value for key, value in section.items() if key != "name"}
    with shapes_only():
        return learner(model(model.Config(**values)), learner.Config(**own))


def vocabulary_buffers(learner: Learner, vocabulary: Vocabulary) -> dict[str, Tensor]:
    """What a learner without memory keeps of its vocabulary beside its weights."""
    for module in learner.modules():
        for name, buffer in list(module.named_buffers(recurse=False)):
            setattr(module, name, torch.zeros(buffer.shape, dtype=buffer.dtype))
    learner.set_vocabulary(vocabulary)
    parameters = dict(learner.named_parameters(remove_duplicate=False))
    return {name: tensor for name, tensor in learner.state_dict().items() if name not in parameters}


def read_model(family: Family, config: dict[str, Any], shapes: Shapes, where: str, tuned: Head | None = None) -> Model:
    """tuned: the head that it has by its config.json, if it was fine-tuned."""
    known = {full_name(name, (), "") for name in shapes}
    names = known | {family.prefix + name for name in known}
    head = tuned or next((head for head in family.heads if not head.mark or head.mark in names), None)
    if head is None:
        wanted = " or ".join(repr(head.mark) for head in family.heads)
        raise ModelError(
            f"{where} has no output layer that can be imported (no {wanted}), and its config.json names no head for a "
            f"task: a model without an output layer cannot be imported"
        )
    values = read_values(family, config, names, f"{where}: config.json")
    if values["num_layers"] > len(shapes):
        raise ModelError(f"{where}: config.json has {values['num_layers']:,} layers, more than it has tensors")
    learner = shape_of(family, head, values)
    ours = {name.removeprefix("backbone."): parameter for name, parameter in learner.named_parameters()}
    table = with_heads({**family.table, **head.table}, values["num_heads"])
    return Model(
        family, head, values, plan(table, ours, shapes, family.prefix, head.repeated, family.unread, where), where
    )


def token_ids(config: dict[str, Any], size: int, *names: str) -> tuple[int, ...]:
    """Numbers of tokens that config.json must have."""
    for name in names:
        value = config.get(name)
        if type(value) is not int or not 0 <= value < size:
            raise ModelError(f"config.json: {name} = {str(value)[:60]} must be a number below {size}")
    return tuple(config[name] for name in names)


class Converted(NamedTuple):
    values: dict[str, Any]  # of Transformer.Config
    model: dict[str, Tensor]  # of a Transformer
    bias: Tensor  # (V,) of the output layer, whose weight is the table
    start_id: int  # what a target begins with, and never holds
    end_id: int


def from_marian(config: dict[str, Any], tensors: dict[str, Tensor]) -> Converted:
    """config.json and the weights of a Marian model, without a folder."""
    shapes = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    model = read_model(MARIAN, config, shapes, "the Marian model")
    start, end = token_ids(config, model.values["vocab_size"], "decoder_start_token_id", "eos_token_id")
    ours, _ = model.take(tensors)
    table = ours["encoder.embedding.token.weight"]
    bias = ours.pop("softmax.bias", table.new_zeros(len(table)))
    return Converted(model.values, ours | {"decoder.embedding.token.weight": table}, bias, start, end)

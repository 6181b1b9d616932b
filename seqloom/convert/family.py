"""A family of models of another project: its names and values, and ours."""

from collections.abc import Callable
from typing import Any, NamedTuple

from torch import Tensor

from seqloom.convert.names import Table

# exact and by tanh; what others call them
GELU = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "relu": "relu"}


class Head(NamedTuple):
    """An output layer that a folder may hold."""

    mark: str  # a tensor that only such folders have; none: every folder of the family is one
    architecture: str  # what `transformers` calls a model with it
    learns: dict[str, Any]  # our section, {"objective": {…}} or {"task": {…}}
    table: Table
    repeated: dict[str, str] = {}  # noqa: RUF012  # further names of tensors that are shared
    also: tuple[str, ...] = ()  # what else is learnt by the same layers
    left_out: tuple[str, ...] = ()  # how names of ours begin that only learning needs


class Family(NamedTuple):
    model: str  # ours
    prefix: str  # of the body's tensors
    values: dict[str, str]  # ours ← theirs
    defaults: dict[str, Any]  # what is meant where a config.json leaves it out
    needed: dict[str, Any]  # what ours cannot do otherwise
    table: Table  # of the body
    heads: tuple[Head, ...]
    activation: str = ""  # the key of the activation, if ours has that option
    activations: dict[str, str] = GELU
    skip: int = 0  # positions that theirs has before the first: up to the number of the padding token
    unread: tuple[str, ...] = (r"embeddings\.position_ids",)
    # of ours what follows from all of their config and the names in a file
    more: Callable[[dict[str, Any], set[str]], dict[str, Any]] = lambda config, names: {}
    # of theirs what follows from our values
    back: Callable[[dict[str, Any]], dict[str, Any]] = lambda values: {}
    # of tensors that ours need not read; ModelError where they hold something else than ours computes
    check: Callable[[dict[str, Any], dict[str, Tensor]], None] = lambda values, unread: None


def with_padding(family: Family, padding: int | None) -> Family:
    """Of a family that counts positions from behind its padding token, the one with this token."""
    if not family.skip or padding is None:
        return family
    place = family.table["embedding.positions"]._replace(skip=padding + 1)
    return family._replace(
        skip=padding + 1,
        table={**family.table, "embedding.positions": place},
        needed=family.needed | {"pad_token_id": padding},
    )

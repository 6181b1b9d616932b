"""Convert tensors between the names and layouts of two projects, by a table, in both directions.

A table says for each of our modules (`{i}`: the number of a layer) under which names another project keeps it. Shapes
come from our own model, built without memory: what a file holds is compared with them before a number is read.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from seqloom.errors import ModelError

Shape = tuple[int, ...]


class StoredTensor(NamedTuple):
    """How another project stores one of our tensors."""

    names: tuple[str, ...]  # several: laid one above the other they are ours
    transposed: bool = False  # matrices are stored (in, out)
    skip: int = 0  # rows before ours that we do not use
    row: int = 0  # so many dimensions of size 1 stand before ours
    heads: int = 0  # matrices are stored (in, heads, width of a head); BY_HEAD: how many there are, `with_heads` says

    def shapes(self, ours: Shape) -> Shape:
        """Of each of its tensors."""
        shape = (ours[0] // len(self.names) + self.skip, *ours[1:])
        if self.transposed and len(shape) == 2:
            shape = shape[::-1]
        if self.heads:
            shape = (shape[0], self.heads, shape[1] // self.heads)
        return (1,) * self.row + shape

    def ours(self, tensors: list[Tensor]) -> Tensor:
        parts = [tensor.reshape(tensor.shape[self.row :]) for tensor in tensors]
        parts = [part.flatten(1) if self.heads else part for part in parts]
        parts = [part.T if self.transposed and part.ndim == 2 else part for part in parts]
        return torch.cat([part[self.skip :] for part in parts]).contiguous()

    def theirs(self, tensor: Tensor, before: Tensor | None) -> list[Tensor]:
        """before: the rows that ours were found behind, if they are known."""
        parts = list(tensor.chunk(len(self.names)))
        if self.skip:
            first = tensor.new_zeros(self.skip, *tensor.shape[1:]) if before is None else before.to(tensor.dtype)
            parts = [torch.cat((first, part)) for part in parts]
        parts = [part.T if self.transposed and part.ndim == 2 else part for part in parts]
        if self.heads:
            parts = [part.reshape(part.shape[0], self.heads, -1) for part in parts]
        return [part.reshape((1,) * self.row + tuple(part.shape)).contiguous() for part in parts]


Table = Mapping[str, StoredTensor]
BY_HEAD = -1


def with_heads(table: Table, heads: int) -> Table:
    """The table of models that have so many heads."""
    return {name: place._replace(heads=heads) if place.heads == BY_HEAD else place for name, place in table.items()}


def stored_as(*names: str, **how: Any) -> StoredTensor:
    return StoredTensor(names, **how)


def find_place(table: Table, name: str) -> StoredTensor | None:
    """The place of one of our tensors: its module's names with `.weight` or `.bias`, or its own."""
    number = re.search(r"layers\.(\d+)\.", name)
    i = number[1] if number else ""
    pattern = re.sub(r"layers\.\d+\.", "layers.{i}.", name)
    module, _, kind = pattern.rpartition(".")
    place, suffix = (table[pattern], "") if pattern in table else (table.get(module), f".{kind}")
    if place is None:
        return None
    return place._replace(names=tuple(each.replace("{i}", i) + suffix for each in place.names))


class Plan(NamedTuple):
    """What a model of ours needs of another project's file."""

    places: dict[str, StoredTensor]  # by our names
    shapes: dict[str, Shape]  # by theirs
    names: dict[str, str]  # by the names in the file, those of the table


def plan(
    table: Table,
    ours: Mapping[str, Tensor],
    found: Mapping[str, Shape],
    prefix: str,
    repeated: Mapping[str, str],
    unread: Iterable[str],
    where: str,
) -> Plan:
    """Compares a file's names and shapes with what is needed; nothing is read and nothing allocated.

    prefix: of the body's names, left out where a body was stored alone; repeated: names under which a tensor may be stored
    once more, and its own; unread: patterns of what is stored but holds nothing learnt.
    """
    places: dict[str, StoredTensor] = {}
    shapes: dict[str, Shape] = {}
    for name, tensor in ours.items():
        place = find_place(table, name)
        if place is None:
            raise ModelError(f"{where}: models of this type have no tensor for {name!r}")
        places[name] = place
        shapes |= dict.fromkeys(place.names, place.shapes(tuple(tensor.shape)))
    names: dict[str, str] = {}
    for name in found:
        full = full_name(name, {*shapes, *repeated}, prefix)
        if any(re.fullmatch(pattern, full.removeprefix(prefix)) for pattern in unread):
            continue
        if full in names.values():
            raise ModelError(f"{where}: {full!r} is stored twice")
        names[name] = full
    known = shapes | {name: shapes[own] for name, own in repeated.items() if own in shapes}
    stored = {full: found[name] for name, full in names.items()}
    missing = [name for name in shapes if name not in stored]
    if missing:
        more = f" nor {len(missing) - 1} others that the model needs" if len(missing) > 1 else ""
        raise ModelError(f"{where}: no tensor {missing[0]!r}{more}")
    for name, shape in known.items():
        if stored.get(name, shape) != shape:
            raise ModelError(
                f"{where}: {name!r} has the shape {list(stored[name])}, but {list(shape)} according to config.json"
            )
    unknown = [name for name in stored if name not in known]
    if unknown:
        raise ModelError(f"{where}: {len(unknown)} unknown tensors, for example {min(unknown)!r}")
    return Plan(places, shapes, names)


def full_name(name: str, known: Iterable[str], prefix: str) -> str:
    """The current name, with the prefix of the body."""
    name = re.sub(r"\bgamma$", "weight", re.sub(r"\bbeta$", "bias", name))
    return prefix + name if name not in known and prefix + name in known else name


def take(
    chosen: Plan, tensors: Mapping[str, Tensor], repeated: Mapping[str, str], where: str
) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """Our tensors, and by their names the rows that ours have no use for."""
    stored = {full: tensors[name] for name, full in chosen.names.items()}
    for name, own in repeated.items():
        if name in stored and own in stored and not torch.equal(stored[name], stored[own]):
            raise ModelError(f"{where}: {name!r} differs from {own!r}, but config.json ties them")
    model, unused = {}, {}
    for name, place in chosen.places.items():
        parts = [stored[each] for each in place.names]
        if len({part.dtype for part in parts}) > 1:
            raise ModelError(
                f"{where}: {', '.join(map(repr, place.names))} have different types, but are one tensor here"
            )
        if not parts[0].is_floating_point():
            raise ModelError(
                f"{where}: {place.names[0]!r} has the type {str(parts[0].dtype).removeprefix('torch.')}: weights need floats"
            )
        model[name] = place.ours(parts)
        if place.skip:
            unused[place.names[0]] = parts[0][: place.skip].contiguous()
    return model, unused


def to_their_tensors(
    table: Table, tensors: Mapping[str, Tensor], unused: Mapping[str, Tensor], where: str
) -> dict[str, Tensor]:
    """Their tensors, made of ours."""
    made: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        place = find_place(table, name)
        if place is None:
            raise ModelError(f"{where}: models of this type in transformers have no tensor for {name!r}")
        made |= dict(zip(place.names, place.theirs(tensor, unused.get(place.names[0])), strict=True))
    return made

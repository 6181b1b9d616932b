"""Frozen, closed configs: TOML and JSON in, one line with every mistake out."""

import difflib
import importlib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from seqloom.errors import UsageError
from seqloom.files import explained

C = TypeVar("C", bound="Config")


class Config(BaseModel):
    """Unknown keys are errors, values are finite, nothing changes once built."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, protected_namespaces=())


def problems(cls: type[Config], values: Any, where: str = "") -> list[str]:
    """Everything that is wrong with `values`, each with its dotted place and, for an unknown key, the nearest known one."""
    try:
        cls.model_validate(values)
    except ValidationError as error:
        return [_explain(cls, item, where) for item in error.errors() if not _seems_short(item)]
    return []


def build(cls: type[C], values: Any, where: str = "", source: str = "config") -> C:
    found = problems(cls, values, where)
    if found:
        raise UsageError(f"{source}: " + "; ".join(found))
    return cls.model_validate(values)


def _seems_short(item: Any) -> bool:
    """Whether a list seems too short only because wrong items, which are reported, were left out."""
    return item["type"] == "too_short" and len(item["input"]) >= item["ctx"]["min_length"]


def _explain(cls: type[Config], item: Any, where: str) -> str:
    path = [str(part) for part in item["loc"]]
    place = ".".join(([where] if where else []) + path)
    if item["type"] == "extra_forbidden":
        section = _section_at(cls, path[:-1])
        if below := _places_of(section, path[-1]):
            return f"unknown key '{place}' (did you mean '{'.'.join([*place.split('.')[:-1], below[0]])}'?)"
        return unknown_name("key", place, path[-1], list(section.model_fields))
    if item["type"] == "missing":
        return f"'{place}' is missing"
    message = item["msg"].removeprefix("Value error, ")
    message = message[0].lower() + message[1:]
    if item["type"] == "value_error" and isinstance(item["input"], Mapping):  # a rule of a section, which has no value
        return f"'{place}': {message}" if place else message
    shown = json.dumps(item["input"], default=str)
    shown = shown if len(shown) < 60 else shown[:57] + "…"
    return f"'{place}' = {shown}: {message}" if place else f"{shown}: {message}"


def unknown_name(kind: str, place: str, name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean '{near[0]}'?" if near else "known: " + ", ".join(sorted(known))
    return f"unknown {kind} '{place}' ({hint})"


def named_class(kind: str, name: str, table: Mapping[str, str], package: str) -> Any:
    """What a closed table has under a name as "module:Class" (of the package, or a full name), imported at first use."""
    if name not in table:
        raise UsageError(unknown_name(kind, name, name, list(table)))
    module, _, cls = table[name].partition(":")
    return getattr(importlib.import_module(module if "." in module else f"{package}.{module}"), cls)


def named_object(path: str) -> Any:
    """The object with a full name, "module:name"; imported at first use."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


def _section_at(cls: type[Config], path: list[str]) -> type[Config]:
    """The section at a path, in which places in lists and keys of tables may stand: they have one kind of items."""
    for part in path:
        if part in cls.model_fields:
            cls = _config_in(cls.model_fields[part].annotation) or cls
    return cls


def _places_of(cls: type[Config], name: str) -> list[str]:
    """Where a name stands in the sections below one, as dotted paths."""
    found = []
    for key, field in cls.model_fields.items():
        inner = _config_in(field.annotation)
        if inner is not None:
            found += [f"{key}.{each}" for each in ([name] if name in inner.model_fields else _places_of(inner, name))]
    return found


def _config_in(kind: Any) -> type[Config] | None:
    """Of `Inner`, `Inner | None`, `tuple[Inner, ...]`, `dict[str, Inner]`: Inner."""
    if isinstance(kind, type) and issubclass(kind, Config):
        return kind
    return next((found for part in get_args(kind) if (found := _config_in(part)) is not None), None)


def read_toml(path: Path) -> dict[str, Any]:
    with explained(path):
        data = path.read_bytes()
    try:
        return tomllib.loads(data.decode("utf-8"))
    except (ValueError, RecursionError) as error:  # also of endless numbers and brackets
        raise UsageError(f"{path} is not valid TOML: {error}") from error


def override(values: dict[str, Any], assignment: str) -> None:
    """`train.steps=3` → values["train"]["steps"] = 3. The value is read as TOML, else taken as a plain string."""
    path, equals, text = assignment.partition("=")
    keys = [key.strip() for key in path.split(".")]
    if not equals or not all(keys):
        raise UsageError(f"--set {assignment!r}: write it as path=value, for example --set train.optim.lr=3e-4")
    try:
        value = tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        value = text.strip()
    for key in keys[:-1]:
        below = values.setdefault(key, {})
        if not isinstance(below, dict):
            raise UsageError(f"--set {assignment!r}: '{key}' is a value, not a section")
        values = below
    values[keys[-1]] = value


def to_toml(values: Mapping[str, Any]) -> str:
    return "\n".join(_toml_lines(values, "")).strip() + "\n"


def _toml_lines(values: Mapping[str, Any], prefix: str) -> Iterator[str]:
    for key, value in values.items():
        if value is not None and not isinstance(value, Mapping):
            yield f"{_toml_key(key)} = {_toml_value(value)}"
    for key, value in values.items():
        if isinstance(value, Mapping):
            yield ""
            yield f"[{prefix}{_toml_key(key)}]"
            yield from _toml_lines(value, f"{prefix}{_toml_key(key)}.")


def _toml_key(key: str) -> str:
    return key if re.fullmatch(r"[A-Za-z0-9_-]+", key) else _toml_value(key)


def _toml_value(value: Any) -> str:
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml_value(item) for item in value) + "]"
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(key)} = {_toml_value(item)}" for key, item in value.items() if item is not None)
        return "{" + ", ".join(pairs) + "}"
    # JSON's strings, numbers and booleans are TOML's, but for one character
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def flatten(values: Mapping[str, object], prefix: str = "") -> dict[str, object]:
    """Nested values by their dotted paths."""
    found: dict[str, object] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= flatten(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = value
    return found

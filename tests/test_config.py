"""Configs: every mistake in one line, overrides, TOML there and back, nothing infinite, nothing that changes."""

import math
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field, ValidationError, model_validator

from seqloom.config import Config, build, override, problems, read_toml, to_toml, unknown_name
from seqloom.errors import FileError, UsageError


class Inner(Config):
    rate: float = Field(0.1, gt=0)
    layers: int = 2


class Outer(Config):
    name: str
    inner: Inner = Inner()
    scale: float = 1.0


def refused(values: Any) -> str:
    with pytest.raises(UsageError) as caught:
        build(Outer, values, source="my.toml")
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_what_is_right_is_built() -> None:
    built = build(Outer, {"name": "a", "inner": {"layers": 3}})
    assert (built.name, built.inner.layers, built.inner.rate, built.scale) == ("a", 3, 0.1, 1.0)
    assert problems(Outer, {"name": "a"}) == []


def test_every_mistake_is_named_at_once() -> None:
    line = refused({"inner": {"rate": -1, "layer": 3, "layers": "many"}, "scal": 2, "scale": []})
    assert line.startswith("my.toml: ")
    for part in (
        "'name' is missing",
        "'inner.rate' = -1",
        "greater than 0",
        "unknown key 'inner.layer' (did you mean 'layers'?)",
        "'inner.layers' = \"many\"",
        "unknown key 'scal' (did you mean 'scale'?)",
        "'scale' = []",
    ):
        assert part in line
    assert line.count(";") == 5


def test_a_key_is_found_in_the_sections_below() -> None:
    class Whole(Config):
        outer: Outer

    assert "unknown key 'rate' (did you mean 'inner.rate'?)" in refused({"name": "a", "rate": 1})
    found = problems(Whole, {"outer": {"name": "a", "layers": 1}, "rate": 1})
    assert found == [
        "unknown key 'outer.layers' (did you mean 'outer.inner.layers'?)",
        "unknown key 'rate' (did you mean 'outer.inner.rate'?)",
    ]


def test_a_place_is_named_from_the_top() -> None:
    assert problems(Inner, {"rat": 1}, "train.inner") == ["unknown key 'train.inner.rat' (did you mean 'rate'?)"]
    assert "'inner' = 5" in refused({"name": "a", "inner": 5})


@pytest.mark.parametrize("values", [None, 5, "text", [], [{}]])
def test_what_is_no_table_is_refused(values: Any) -> None:
    refused(values)


class Lists(Config):
    several: tuple[Inner, ...] = Field(min_length=1)
    named: dict[str, Inner] = {}  # noqa: RUF012
    perhaps: Inner | None = None

    @model_validator(mode="after")
    def enough(self) -> "Lists":
        if len(self.several) > 2:
            raise ValueError("Two are enough")
        return self


class Whole(Config):
    lists: Lists


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ({"several": [{"foo": 1}]}, "unknown key 'several.0.foo' (known: layers, rate)"),
        ({"several": [{}], "named": {"rate": {"foo": 1}}}, "unknown key 'named.rate.foo' (known: layers, rate)"),
        ({"several": [{}], "perhaps": {"lyaers": 1}}, "unknown key 'perhaps.lyaers' (did you mean 'layers'?)"),
        ({"several": []}, "'several' = []: tuple should have at least 1 item after validation, not 0"),
    ],
)
def test_keys_in_lists_and_tables(values: Any, found: str) -> None:
    """And a list whose items are wrong is not called too short."""
    assert problems(Lists, values) == [found]


def test_a_rule_of_a_section_is_told_with_its_name() -> None:
    wrong = {"several": [{}, {}, {}]}
    assert problems(Whole, {"lists": wrong}) == ["'lists': two are enough"]
    assert problems(Lists, wrong, "model") == ["'model': two are enough"]
    assert problems(Lists, wrong) == ["two are enough"], "the source stands before it"
    assert problems(Lists, 5)[0].startswith("5: input should be")


def test_a_name_like_none_gets_the_list() -> None:
    assert unknown_name("model", "zzz", "zzz", ["lstm", "gru"]) == "unknown model 'zzz' (known: gru, lstm)"
    assert unknown_name("model", "lstn", "lstn", ["lstm", "gru"]) == "unknown model 'lstn' (did you mean 'lstm'?)"


def test_a_long_value_is_shortened() -> None:
    assert len(refused({"name": ["x" * 10_000]})) < 200


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, "nan", "inf"])
@pytest.mark.parametrize("place", [("scale",), ("inner", "rate")])
def test_values_that_are_not_finite_are_refused(value: Any, place: tuple[str, ...]) -> None:
    values: dict[str, Any] = {"name": "a"}
    below = values
    for key in place[:-1]:
        below = below.setdefault(key, {})
    below[place[-1]] = value
    assert f"'{'.'.join(place)}'" in refused(values)


def test_a_config_is_frozen_and_closed() -> None:
    built = build(Outer, {"name": "a"})
    with pytest.raises(ValidationError):
        built.scale = 2.0
    with pytest.raises(ValidationError):
        built.inner.layers = 3
    with pytest.raises(ValidationError):
        built.other = 1  # type: ignore[attr-defined]


# ---- overrides


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("3e-4", 3e-4),
        ("-1.5", -1.5),
        ("1_000", 1000),
        ("true", True),
        ("True", "True"),
        ("lstm", "lstm"),
        ("next-token", "next-token"),
        ('"3"', "3"),
        ("[1, 2]", [1, 2]),
        ("{a = 1, b = 'x'}", {"a": 1, "b": "x"}),
        ("", ""),
        (" spaced out ", "spaced out"),
        ("a=b", "a=b"),
        ("[" * 5000, "[" * 5000),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_the_value_of_an_override(text: str, value: Any) -> None:
    values: dict[str, Any] = {}
    override(values, f"key={text}")
    assert values == {"key": value}
    assert type(values["key"]) is type(value)


def test_an_override_reaches_below_and_leaves_the_rest() -> None:
    values = {"train": {"lr": 1, "steps": 5}}
    override(values, "train.lr=2")
    override(values, "train.optim.name = sgd")
    override(values, " model . dim =64")
    assert values == {"train": {"lr": 2, "steps": 5, "optim": {"name": "sgd"}}, "model": {"dim": 64}}


@pytest.mark.parametrize("assignment", ["", "lr", "=3", ".lr=3", "train..lr=3", "train.=3", " =3"])
def test_an_override_without_a_path_is_refused(assignment: str) -> None:
    values: dict[str, Any] = {}
    with pytest.raises(UsageError, match="path=value"):
        override(values, assignment)
    assert values == {}


def test_an_override_below_a_value_is_refused() -> None:
    with pytest.raises(UsageError, match="'lr' is a value, not a section"):
        override({"train": {"lr": 1}}, "train.lr.max=3")


# ---- TOML

characters = st.characters(exclude_categories=("Cs",))
texts = st.text(characters, max_size=8)
scalars = st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts
items = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=6
)
tables = st.dictionaries(texts, items, max_size=4)


@given(tables)
def test_toml_there_and_back(values: dict[str, Any]) -> None:
    assert tomllib.loads(to_toml(values)) == values


def test_toml_leaves_out_what_is_none() -> None:
    assert to_toml({"a": None, "b": {"c": None, "d": 1}, "e": [{"f": None}]}) == "e = [{}]\n\n[b]\nd = 1\n"


@pytest.mark.parametrize(
    "data",
    [b"a = ", b"a = 1\na = 2", b"\xff\xfe", b"a = " + b"[" * 100_000, b"a = " + b"1" * 10_000, b"\0", b'{"a": 1}'],
)
def test_what_is_no_toml_is_refused_by_name(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "my.toml").write_bytes(data)
    with pytest.raises(UsageError, match=r"my\.toml is not valid TOML"):
        read_toml(tmp_path / "my.toml")


def test_an_unreadable_toml_is_a_file_error(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="folder"):
        read_toml(tmp_path)

"""The values on an axis are round, inside of it, and told apart by their labels."""

import math
from decimal import Decimal
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.charts import ticks
from seqloom.charts.axes import fit_axis
from seqloom.charts.ticks import linear_ticks, log_ticks, tick_labels


def leading_digits(value: Decimal) -> int:
    digits = value.normalize().as_tuple().digits
    return int("".join(map(str, digits)))


def check_linear(low: float, high: float) -> None:
    found = ticks.linear_ticks(low, high)
    assert 2 <= len(found) <= 9
    assert all(low <= value <= high for value in found)
    exact = [Decimal(repr(value)) for value in found]
    steps = {b - a for a, b in pairwise(exact)}
    step = min(steps)
    assert leading_digits(step) in (1, 2, 5), f"steps of {step}"
    assert len(steps) == 1 and all(value % step == 0 for value in exact)
    check_labels(found, False)


def check_log(low: float, high: float) -> None:
    found = log_ticks(low, high)
    assert 2 <= len(found) <= 10 and all(low <= value <= high for value in found)
    if high / low >= 20:
        assert all(leading_digits(Decimal(repr(value))) in (1, 2, 5) for value in found)
    if high / low >= 1000:
        assert all(leading_digits(Decimal(repr(value))) == 1 for value in found)
    check_labels(found, True)


def check_labels(found: list[float], log: bool) -> None:
    texts, _factor = tick_labels(found, log)
    assert len(set(texts)) == len(found), f"{found} are written {texts}"


ranges = st.tuples(st.floats(-1e6, 1e6), st.floats(1e-3, 1e9))


@given(ranges)
@settings(max_examples=300, deadline=None)
def test_linear_axes(given):
    low, span = given
    check_linear(low, low + span)


@pytest.mark.parametrize(
    "planted",
    [
        lambda low, high: [low + (high - low) * i / 4 for i in range(5)],  # as it was: five values, none of them round
        lambda low, high: [*linear_ticks(low, high), linear_ticks(low, high)[-1] * 2 - linear_ticks(low, high)[-2]],
        lambda low, high: linear_ticks(low, high)[:1],
    ],
)
def test_planted_bad_values_are_noticed(planted, monkeypatch):
    monkeypatch.setattr(ticks, "linear_ticks", planted)
    with pytest.raises(AssertionError):
        check_linear(0.13, 1.07)


@given(st.floats(1e-12, 1e12), st.floats(1.02, 1e15))
@settings(max_examples=300, deadline=None)
def test_logarithmic_axes(low, ratio):
    check_log(low, low * ratio)


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True, width=32), max_size=5), st.booleans())
@settings(max_examples=200, deadline=None)
def test_any_values_fit_an_axis(values, log):
    axis = fit_axis("x", values, log)
    known = [value for value in values if math.isfinite(value) and (value > 0 or not log)]
    assert (axis is None) == (not known)
    if axis is not None:
        assert all(axis.low <= value <= axis.high for value in known)
        assert all(0 <= axis.at(value) <= 1 for value in axis.ticks())
        assert len(axis.ticks()) >= 2 and axis.title().startswith("x")


def test_how_values_are_written():
    assert tick_labels([20000.0, 40000.0]).texts == ["20k", "40k"]
    assert tick_labels([1e6, 1.002e6]).texts == ["1.000M", "1.002M"]
    assert tick_labels([0.0, 2e9, 4e9]) == (["0", "2", "4"], "×10⁹")
    assert tick_labels([-0.5, 0.0, 0.5]).texts == ["−0.5", "0.0", "0.5"]
    assert tick_labels([1e-5, 1e-4, 1e-3, 1e-2], log=True).texts == ["10⁻⁵", "10⁻⁴", "0.001", "0.01"]
    assert tick_labels([5e8, 1e9, 2e9], log=True).texts == ["500M", "10⁹", "2·10⁹"]
    assert log_ticks(2e5, 3e6) == [2e5, 5e5, 1e6, 2e6]
    assert log_ticks(1.0, 1e4) == [1.0, 10.0, 100.0, 1e3, 1e4]
    assert linear_ticks(0.1, 0.5) == [0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5]

"""Where the values of an axis stand and how they are written: steps of 1, 2 or 5 times a power of ten."""

import math
from collections.abc import Sequence
from decimal import Decimal
from itertools import pairwise
from typing import NamedTuple

STEPS = (1, 2, 5)
FEW, MANY = 3, 8  # values on a logarithmic axis


def round_step(span: float, count: int) -> tuple[int, int]:
    """The smallest step of at least span / count, as (m, k) for m · 10^k."""
    raw = span / count
    power = math.floor(math.log10(raw))
    for m in STEPS:
        if m * 10.0**power >= raw * (1 - 1e-9):
            return m, power
    return 1, power + 1


def linear_ticks(low: float, high: float, count: int = 8) -> list[float]:
    """At most count + 1 values, at least two."""
    m, power = round_step(high - low, count)
    step = Decimal(m).scaleb(power)  # multiples are exact: 0.3, not 0.30000000000000004
    first, last = math.ceil(Decimal(repr(low)) / step), math.floor(Decimal(repr(high)) / step)
    return [value for i in range(first, last + 1) if low <= (value := float(i * step)) <= high]


def log_ticks(low: float, high: float) -> list[float]:
    """Powers of ten; in a narrow range 1, 2 and 5 times powers of ten, or the values of a linear axis. low is above 0."""
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    decades = [value for k in range(first, last + 1) if low <= (value := power_of_ten(k)) <= high]
    if len(decades) > MANY:
        m, power = round_step(len(decades) - 1, MANY - 1)
        every = m * 10**power
        return [power_of_ten(k) for k in range(first, last + 1) if k % every == 0 and low <= power_of_ten(k) <= high]
    if len(decades) >= FEW:
        return decades
    fine = [m * power_of_ten(k) for k in range(first, last + 1) for m in STEPS]
    fine = [value for value in fine if low <= value <= high]
    return fine if len(fine) >= FEW else linear_ticks(low, high)


def power_of_ten(k: int) -> float:
    return float(Decimal(1).scaleb(k))


class Labels(NamedTuple):
    texts: list[str]
    factor: str  # by which all are to be multiplied, such as ×10⁹; mostly empty


def tick_labels(ticks: Sequence[float], log: bool = False) -> Labels:
    if log and all(is_round(value) for value in ticks):
        return Labels([round_label(value) for value in ticks], "")
    step = min((b - a for a, b in pairwise(ticks)), default=abs(ticks[0]) or 1.0)
    largest = max(map(abs, ticks))
    power, unit, factor = 0, "", ""
    if 1e4 <= largest < 1e9:
        power, unit = (6, "M") if largest >= 1e6 else (3, "k")
    elif largest >= 1e9 or 0 < largest < 1e-3:
        power = math.floor(math.log10(largest) + 1e-9)
        factor = f"×10{superscript(power)}"
    decimals = max(power - math.floor(math.log10(step) + 1e-9), 0)
    return Labels([written(value, power, decimals) + (unit if value else "") for value in ticks], factor)


def written(value: float, power: int, decimals: int) -> str:
    return f"{Decimal(value).scaleb(-power):.{decimals}f}".replace("-", "−")


def is_round(value: float) -> bool:
    """1, 2 or 5 times a power of ten."""
    digits, _power = f"{value:.6e}".split("e")
    return float(digits) in STEPS


def round_label(value: float) -> str:
    """10k, 2M, 5·10⁹"""
    digits, exponent = f"{value:.0e}".split("e")
    power = int(exponent)
    if power >= 9 or power < -3:
        return (f"{digits}·" if digits != "1" else "") + f"10{superscript(power)}"
    for unit, name in ((6, "M"), (3, "k")):
        if power >= unit:
            return f"{int(digits) * 10 ** (power - unit)}{name}"
    return f"{value:g}"


def superscript(power: int) -> str:
    return str(power).translate(str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹"))

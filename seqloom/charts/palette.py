"""Colours that can be read on light and on dark paper, and the signs beside them: no series is known by its colour alone.

A picture has the light colours as attributes, which every program understands, and a class for each; the style of a page, or of
the picture's own file, gives the classes their dark colours where the reader has asked for a dark screen.
"""

import re
from collections.abc import Iterable
from typing import NamedTuple


class Colour(NamedTuple):
    light: str
    dark: str


PAPER = Colour("#ffffff", "#15171c")
INK = Colour("#1b1d22", "#e9ebee")
MUTED = Colour("#565b66", "#b4b9c4")  # text of lesser weight
AXIS = Colour("#717784", "#868c99")
GRID = Colour("#e2e4e9", "#30343d")  # decoration: nothing is read from it
SOFT = Colour("#f3f4f6", "#20232a")  # behind text
LINK = Colour("#0b5cad", "#7cb8ff")
PALETTE = (
    Colour("#c2410c", "#fb923c"), Colour("#0369a1", "#38bdf8"), Colour("#15803d", "#4ade80"),
    Colour("#7e22ce", "#c99bff"), Colour("#a16207", "#facc15"), Colour("#be123c", "#fb7185"),
    Colour("#0f766e", "#2dd4bf"), Colour("#4338ca", "#8f97ff"), Colour("#4d7c0f", "#a3e635"),
    Colour("#a21caf", "#e879f9"), Colour("#475569", "#a9b6c8"), Colour("#854d0e", "#fdba74"),
)  # fmt: skip
WORSE, BETTER = 0, 1  # of the palette: the two ends of a scale
TINT = 0.5  # how much of a colour lies behind text at most

TEXT_CONTRAST, MARK_CONTRAST = 4.5, 3.0  # of WCAG 2.1, level AA

# shapes around (0, 0), about 5 wide to each side
MARKERS = (
    "M5 0A5 5 0 1 1-5 0A5 5 0 1 1 5 0Z",  # a circle
    "M-4.4-4.4H4.4V4.4H-4.4Z",  # a square
    "M0-5.8 5.4 4.2H-5.4Z",  # a triangle
    "M0-6.2 6.2 0 0 6.2-6.2 0Z",  # a diamond
    "M0 5.8 5.4-4.2H-5.4Z",  # a triangle on its tip
    "M-1.7-6H1.7V-1.7H6V1.7H1.7V6H-1.7V1.7H-6V-1.7H-1.7Z",  # a plus
    "M0-2.4 3.3-5.7 5.7-3.3 2.4 0 5.7 3.3 3.3 5.7 0 2.4-3.3 5.7-5.7 3.3-2.4 0-5.7-3.3-3.3-5.7Z",  # a cross
    "M0-6.4 1.5-2 6.1-2 2.4.8 3.8 5.2 0 2.5-3.8 5.2-2.4.8-6.1-2-1.5-2Z",  # a star
)
DASHES = ("", "7 3", "2 3", "9 3 2 3")


class Look(NamedTuple):
    """How a series is drawn in every picture of a page, and beside its name in tables."""

    colour: int  # of the palette
    marker: int
    dash: str  # SVG's stroke-dasharray; empty for a solid line


def look(number: int) -> Look:
    """The signs of the series with this number: the first 96 are all different."""
    colours, markers = len(PALETTE), len(MARKERS)
    return Look(number % colours, number % markers, DASHES[number // markers % len(DASHES)])


def looks(names: Iterable[str]) -> dict[str, Look]:
    return {name: look(number) for number, name in enumerate(dict.fromkeys(names))}


def fill(colour: int) -> str:
    """As attributes of an SVG element."""
    return f'class="f{colour}" fill="{PALETTE[colour].light}"'


def stroke(colour: int) -> str:
    return f'class="s{colour}" stroke="{PALETTE[colour].light}"'


DARK = "@media screen and (prefers-color-scheme:dark)"


def picture_style() -> str:
    """What pictures need beside their attributes: the dark colours."""
    rules = [f".f{i}{{fill:{each.dark}}}.s{i}{{stroke:{each.dark}}}" for i, each in enumerate(PALETTE)]
    rules += [f".chart{{fill:{INK.dark}}}", f".muted{{fill:{MUTED.dark}}}", f".paper{{fill:{PAPER.dark}}}"]
    rules += [f".axis{{stroke:{AXIS.dark}}}", f".grid{{stroke:{GRID.dark}}}"]
    return f".off{{display:none}}{DARK}{{{''.join(rules)}}}"


# ---- contrast, as WCAG 2.1 defines it


def channels(colour: str) -> tuple[float, float, float]:
    """Red, green and blue of #rrggbb, from 0 to 1."""
    if not re.fullmatch(r"#[0-9a-fA-F]{6}", colour):
        raise ValueError(f"{colour!r} is no colour of the form #rrggbb")
    red, green, blue = (int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def luminance(colour: str) -> float:
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels(colour)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """From 1 (the same) to 21 (black on white)."""
    low, high = sorted([luminance(one), luminance(other)])
    return (high + 0.05) / (low + 0.05)


def blend(colour: str, paper: str, share: float) -> str:
    """What is seen where a colour of this opacity lies on paper."""
    parts = zip(channels(colour), channels(paper), strict=True)
    return "#" + "".join(f"{round(255 * (share * a + (1 - share) * b)):02x}" for a, b in parts)

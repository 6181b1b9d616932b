"""Everything can be read: contrast by WCAG 2.1, on light and on dark paper; and nothing is known by its colour alone."""

import re

import pytest

from seqloom.charts import look, looks, palette
from seqloom.charts.pages import NAMED, STYLE
from seqloom.charts.palette import (
    AXIS,
    BETTER,
    INK,
    LINK,
    MARK_CONTRAST,
    MUTED,
    PALETTE,
    PAPER,
    SOFT,
    TEXT_CONTRAST,
    TINT,
    WORSE,
    Colour,
    blend,
    contrast,
    picture_style,
)


def check_contrast(which: str) -> None:
    paper, soft, ink = (getattr(each, which) for each in (PAPER, SOFT, INK))
    for text in (INK, MUTED, LINK):
        assert contrast(getattr(text, which), paper) >= TEXT_CONTRAST
        assert contrast(getattr(text, which), soft) >= TEXT_CONTRAST
    for mark in (AXIS, *palette.PALETTE):
        assert contrast(getattr(mark, which), paper) >= MARK_CONTRAST
    for end in (BETTER, WORSE):  # numbers in a matrix
        assert contrast(ink, blend(getattr(palette.PALETTE[end], which), paper, TINT)) >= TEXT_CONTRAST


@pytest.mark.parametrize("which", ["light", "dark"])
def test_everything_can_be_read(which):
    check_contrast(which)


@pytest.mark.parametrize(
    ("which", "bad"),
    [
        ("light", Colour("#fb923c", "#fb923c")),  # the dark one, which is too pale on white
        ("dark", Colour("#4338ca", "#4338ca")),
        ("light", Colour("#cccccc", "#cccccc")),
    ],
)
def test_a_planted_bad_colour_is_noticed(which, bad, monkeypatch):
    monkeypatch.setattr(palette, "PALETTE", (*PALETTE[:5], bad, *PALETTE[6:]))
    with pytest.raises(AssertionError):
        check_contrast(which)


def test_contrast_by_the_examples_of_wcag():
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.005)
    assert contrast("#0000ff", "#ffffff") == pytest.approx(8.59, abs=0.005)
    assert blend("#ff0000", "#ffffff", 0.5) == "#ff8080"
    with pytest.raises(ValueError, match="no colour"):
        contrast("red", "#ffffff")


def test_the_dark_colours_are_in_the_style_and_only_there():
    style = picture_style()
    light, dark = style.split("@media", 1)
    assert "#" not in light, "light colours are attributes, for programs that know no style"
    for number, colour in enumerate(PALETTE):
        assert f".f{number}{{fill:{colour.dark}}}.s{number}{{stroke:{colour.dark}}}" in dark
    for colour in NAMED.values():
        assert colour.light in STYLE and colour.dark in STYLE


def test_series_differ_in_more_than_their_colour():
    found = [look(number) for number in range(96)]
    assert len(set(found)) == 96
    signs = [(each.marker, each.dash) for each in found[:32]]
    assert len(set(signs)) == 32, "two of them differ in their colour alone"
    assert list(looks(["a", "b", "a"])) == ["a", "b"]


def test_pages_have_no_colours_but_those_of_the_palette():
    known = {value for colour in (*NAMED.values(), *PALETTE, AXIS) for value in colour}
    assert set(re.findall(r"#[0-9a-fA-F]{3,8}\b", STYLE)) <= known

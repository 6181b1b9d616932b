"""Pictures: legends, named axes, bands, intervals, squares; and texts of others that stay texts."""

import math
import re
import xml.etree.ElementTree as ET

import pytest

from seqloom.charts import (
    FIT,
    Curve,
    Estimate,
    Mark,
    Square,
    as_file,
    bars,
    chart,
    draw,
    grid,
    intervals,
    looks,
    matrix,
    plane,
)
from seqloom.charts.axes import shortened, text_width
from seqloom.charts.palette import PALETTE

HOSTILE = '<script>alert("1")</script>&\'"><g onload=x'
LINE = [(1.0, 1.0), (10.0, 0.5), (100.0, 0.3)]


def parsed(picture: str) -> ET.Element:
    """As XML, which is stricter than HTML."""
    return ET.fromstring(as_file(picture))


def texts(picture: str) -> list[str]:
    return [each.text or "" for each in parsed(picture).iter("{http://www.w3.org/2000/svg}text")]


def count(picture: str, tag: str) -> int:
    return len(list(parsed(picture).iter(f"{{http://www.w3.org/2000/svg}}{tag}")))


def every_picture(name: str) -> dict[str, str]:
    return {
        "chart": chart(name, name, [Curve(name, LINE), Curve("b", [(2.0, 0.4)])], marks=[Mark(name, x=3.0)]),
        "intervals": intervals([Estimate(name, 1.0, 0.5, 1.5, [0.9, 1.1])], name),
        "bars": bars([name], [0.5], name),
        "plane": plane([(name, [0.5 + 0.1j])]),
        "matrix": matrix([name], [name], [[0.5]], name),
        "grid": grid([name], [name], [[Square(name, 1.0, name)]], name, [Square(name)]),
    }


@pytest.mark.parametrize("kind", every_picture("a"))
def test_texts_of_others_stay_texts(kind):
    root = parsed(every_picture(HOSTILE)[kind])
    tags = {each.tag.split("}")[1] for each in root.iter()}
    assert tags <= {"svg", "style", "rect", "text", "g", "path", "line", "polyline", "circle", "title", "polygon"}
    assert not any(name.startswith("on") for each in root.iter() for name in each.attrib)
    assert any("<script>" in text for each in root.iter() for text in (each.text or "", *each.attrib.values()))


@pytest.mark.parametrize("kind", every_picture("a"))
def test_planted_raw_texts_are_noticed(kind, monkeypatch):
    monkeypatch.setattr(draw, "escaped", lambda text: text)
    with pytest.raises((AssertionError, ET.ParseError)):
        test_texts_of_others_stay_texts(kind)


def test_every_curve_is_in_the_legend_once_and_axes_say_what_they_are():
    curves = [Curve("a", LINE), Curve("b", LINE), Curve("a, fit", LINE, FIT, like="a", legend=False, markers=False)]
    made = chart("words", "loss", curves, log_x=True, better="lower")
    found = texts(made)
    assert found.count("a") == found.count("b") == 1 and "a, fit" not in found
    assert "words (log scale)" in found and "loss, lower is better" in found
    assert {"1", "10", "100"} <= set(found), "decades"
    assert f'stroke-dasharray="{FIT}"' in made and made.count('data-row="a"') == 3  # its sign, the curve, its fit


def test_a_fit_has_the_colour_of_what_it_fits():
    signs = looks(["a", "b"])
    made = chart("x", "y", [Curve("b, fit", LINE, like="b")], signs)
    assert PALETTE[1].light in made and PALETTE[0].light not in made


def test_bands_bars_and_single_points():
    spread = [(y - 0.1, y + 0.1) for _x, y in LINE]
    band = chart("x", "y", [Curve("a", LINE, spread=spread, band=True)])
    assert count(band, "polygon") == 1
    error_bars = chart("x", "y", [Curve("a", LINE, spread=spread, line=False)])
    assert count(error_bars, "polygon") == count(error_bars, "polyline") == 0
    assert re.search(r"V[\d.]+M[\d.]+ [\d.]+h8", error_bars)
    unbounded = chart("x", "y", [Curve("a", LINE, spread=[(-math.inf, math.inf)] * 3)])
    assert "inf" not in unbounded and "nan" not in unbounded
    assert texts(chart("x", "y", [Curve("a", [(1.0, 1.0)])])).count("a") == 2, "in the legend, and beside it"


def test_names_beside_points_do_not_cover_one_another():
    points = [Curve(f"model {i}", [(1.0, 1.0 + i * 1e-6)]) for i in range(9)] + [Curve("far", [(2.0, 2.0)])]
    found = texts(chart("x", "y", points))
    assert sum(found.count(f"model {i}") == 2 for i in range(9)) <= 4 and all(f"model {i}" in found for i in range(9))
    assert found.count("far") == 2


def test_what_a_logarithmic_axis_cannot_show_is_counted():
    curve = Curve("a", [(0.0, 1.0), (-1.0, 1.0), (math.nan, 1.0), (1.0, 1.0), (2.0, 2.0)])
    assert "3 points cannot be shown" in texts(chart("x", "y", [curve], log_x=True))
    assert "no measurements" in chart("x", "y", [Curve("a", [(0.0, 1.0)])], log_x=True)
    assert "no measurements" in chart("x", "y", [])


def test_marks():
    marks = [Mark("best", x=2.0), Mark("majority", y=0.4), Mark("crossing", 10.0, 0.5), Mark("never", x=-1.0)]
    found = texts(chart("x", "y", [Curve("a", LINE)], log_x=True, marks=marks))
    assert {"best", "majority", "crossing"} <= set(found) and "never" not in found


def test_intervals_have_seeds_and_a_legend():
    made = intervals([Estimate("a", 1.0, 0.9, 1.1, [0.95, 1.0, 1.05]), Estimate("b", 1.2, -math.inf, math.inf)], "bits")
    assert count(made, "circle") == 3 + 1 and {"mean", "95% confidence interval", "one seed", "bits"} <= set(
        texts(made)
    )
    alone = intervals([Estimate("b", 1.2, -math.inf, math.inf)], "bits", better="higher")
    assert "95% confidence interval" not in texts(alone) and "bits, higher is better" in texts(alone)


def test_numbers_stand_in_matrices():
    made = matrix(["r"], ["c", "d"], [[0.25, math.nan]], "m", middle=0.5)
    assert "0.25" in texts(made) and "0.5" in texts(made), "the number, and the scale"
    assert PALETTE[0].light in made, "below the middle"


def test_a_file_of_its_own_is_dark_where_it_should_be():
    made = as_file(chart("x", "y", [Curve("a", LINE)]))
    assert made.startswith("<svg xmlns=") and "prefers-color-scheme:dark" in made and made.count("<style>") == 1
    assert parsed(chart("x", "y", [Curve("a", LINE)])).get("width") == "720"


def test_long_names_are_shortened():
    assert shortened("short", 100) == "short"
    cut = shortened("x" * 300, 100)
    assert cut.endswith("…") and text_width(cut) <= 100
    long = chart("x", "y", [Curve("m" * 300, LINE)])
    assert max(map(len, texts(long))) < 100

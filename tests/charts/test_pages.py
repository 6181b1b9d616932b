"""Pages: sections and their contents, tables that can be sorted and saved, pictures in boxes of their own."""

import csv
import io
from urllib.parse import unquote

import pytest

from seqloom.charts import Cell, Curve, Section, chart, csv_text, figure, looks, page, pages, table
from tests.pages import check_page

PICTURE = chart("x", "y", [Curve("a", [(1.0, 1.0), (2.0, 2.0)])])


def test_contents_link_to_every_section():
    titles = ["One", "Two & <b>", "One", "日本"]
    made = check_page(page("t", ["<h1>t</h1>", *(Section(title, "<p>x</p>") for title in titles)]))
    links = [value[1:] for value in made.values("href") if value.startswith("#")]
    assert links == ["one", "two-b", "one-2", "section"] and made.tags.count("nav") == 1 and made.tags.count("h2") == 4
    assert made.tags.index("h1") < made.tags.index("nav") < made.tags.index("section")
    assert "nav" not in check_page(page("t", [Section("One", "")])).tags, "a short page needs none"


def test_a_page_with_a_second_script_is_noticed():
    with pytest.raises(AssertionError):
        check_page(page("t", ["<script>alert(1)</script>"]))
    with pytest.raises(AssertionError):
        check_page(page("t", ['<p onclick="x">']))
    with pytest.raises(AssertionError):
        check_page(page("t", ['<a href="elsewhere.html">x</a>']))


def test_a_planted_policy_for_another_script_is_noticed(monkeypatch):
    monkeypatch.setattr(pages, "SCRIPT", pages.SCRIPT + "\n")
    with pytest.raises(AssertionError):
        check_page(page("t", []))


def test_cells_have_the_numbers_they_are_sorted_by():
    rows = [["a", Cell("1.5M", 1.5e6), "2,000", "text"], ["b", Cell("–", None), "1e-3", "–"], ["c", "1", "2", "3"]]
    made = check_page(page("t", [table(["", "x", "y", "z"], rows, looks("abc"), choose=True)]))
    assert [float(value) for value in made.values("data-value")] == [1.5e6, 2000.0, 0.001, 1.0, 2.0, 3.0]
    assert made.values("data-row") == ["a", "b", "c"] and "sortable choose" in made.values("class")
    assert made.tags.count("svg") == 3, "the sign of each row"
    assert "sortable" not in table(["", "x"], [["a", "1"]])


def test_tables_are_saved_as_csv():
    made = check_page(page("t", [table(["name", "x"], [['=a,"b', Cell("1.5M", 1.5e6)]], file="t.csv")]))
    address = next(value for value in made.values("href") if value.startswith("data:text/csv"))
    rows = list(csv.reader(io.StringIO(unquote(address.split(",", 1)[1]))))
    assert rows == [["name", "x"], ["'=a,\"b", "1500000.0"]]
    assert "t.csv" in made.values("download")


def test_csv_cells():
    cells = ["=1", "+1", "-1", "-x", "@a", "\tx", "a", -1.5, None, Cell("–", None)]
    assert next(csv.reader(io.StringIO(csv_text([cells])))) == [
        "'=1", "+1", "-1", "'-x", "'@a", "'\tx", "a", "-1.5", "", "–",
    ]  # fmt: skip


def test_pictures_are_saved_under_their_names():
    made = check_page(page("t", [figure(PICTURE, "loss", "a <caption>", file="loss.svg")]), frozenset(["loss.svg"]))
    assert "loss.svg" in made.values("download") and "a <caption>" in made.text
    alone = check_page(page("t", [figure(PICTURE, "loss")]))
    assert "loss.svg" in alone.values("download") and "loss.svg" not in alone.values("href"), "the script adds it"
    assert figure("<p>no measurements</p>", "loss") == "<p>no measurements</p>"

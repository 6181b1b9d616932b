"""Pages in a real browser: nothing overflows a telephone, rows are sorted and hidden, all text can be read, nothing else runs."""

import re
import xml.etree.ElementTree as ET
from urllib.parse import unquote

import numpy as np
import pytest

from seqloom.charts import Curve, Estimate, Section, as_file, chart, figure, intervals, matrix, page, plane, table
from seqloom.charts.palette import INK, PAPER, TEXT_CONTRAST, blend, contrast
from seqloom.comparison.metric import Metric
from seqloom.comparison.report import write_report
from tests.chromium import Browser
from tests.comparison.results import comparison_of

pytestmark = pytest.mark.long

EVIL = "<script>window.hacked = 1</script><img src=x onerror='window.hacked = 1'>"
ROWS = [
    "n-gram",
    EVIL,
    "a name without any blank in it that is far too long for a telephone".replace(" ", "_"),
    "LSTM",
    "GPT",
    "BERT",
]
PHONE = 360


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("browser")) as found:
        yield found


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The page of a comparison in which the best rows come last, and one row lacks a value."""
    folder = tmp_path_factory.mktemp("comparison")
    bits = {row: np.array([3.0, 3.01, 3.02]) - 0.3 * i for i, row in enumerate(ROWS[:-1])}
    random = np.random.default_rng(0)
    pairs = {row: (random.random((3, 300)) < 0.6 + 0.06 * i).astype(float) for i, row in enumerate(ROWS)}
    by_category = {"pairs": {row: {"order": 0.1, "a category with a long name": 0.9} for row in ROWS}}
    found = comparison_of(
        Metric("bits per byte", True, bits, {ROWS[-1]: "it has no probability of the next token"}),
        Metric("pairs", False, pairs, {}, outcomes=True),
        by_category=by_category, milestones={"pairs": {row: [(100.0, 0.5), (1e4, 0.7)] for row in ROWS}},
        samples=dict.fromkeys(ROWS, "x" * 300), caveats=["y" * 300], name="A comparison_" + "z" * 200,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(found.plan), "record", lambda self: {})
        return write_report(found, folder)


def every_kind(folder):
    """A page with every kind of picture."""
    points = [(10.0**i, 0.9 - 0.1 * i) for i in range(5)]
    spread = [(y - 0.05, y + 0.05) for _x, y in points]
    curves = [Curve(f"row {i}", points, spread=spread, band=i % 2 == 0) for i in range(14)]
    pictures = {
        "curves": chart("words", "score", curves, log_x=True),
        "intervals": intervals([Estimate("a", 1.0, 0.9, 1.1, [0.95, 1.05]), Estimate("b", 1.2, 1.1, 1.3)], "bits"),
        "matrix": matrix(["a", "b"], ["c", "d"], [[0.0, 1.0], [0.5, 0.25]], "m", middle=0.5),
        "plane": plane([("eigenvalues", [0.5 + 0.5j, -0.9 + 0j])]),
    }  # fmt: skip
    path = folder / "page.html"
    path.write_text(page("Pictures", [Section(name, figure(drawn, name)) for name, drawn in pictures.items()]))
    return path


def widths(browser) -> int:
    return browser.ask("document.documentElement.scrollWidth")


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_overflows_a_telephone(browser, report, dark):
    browser.open(report, width=PHONE, dark=dark)
    assert widths(browser) <= PHONE and not browser.complaints()
    wide = browser.ask(
        "[...document.querySelectorAll('h1,h2,h3,p,li,pre,nav,fieldset')].filter(e => e.scrollWidth > e.clientWidth + 1 "
        "&& !e.closest('.scroll')).map(e => e.tagName)"
    )
    assert wide == [], "headings and paragraphs do not scroll"
    assert browser.ask("[...document.querySelectorAll('.scroll')].some(e => e.scrollWidth > e.clientWidth)")


def test_a_planted_overflow_is_noticed(browser, tmp_path):
    (tmp_path / "wide.html").write_text(page("t", ['<div style="width: 500px">x</div>']))
    browser.open(tmp_path / "wide.html", width=PHONE)
    assert widths(browser) > PHONE


def rows_now(browser) -> list[str]:
    return browser.ask("[...document.querySelectorAll('table.choose tbody tr')].map(row => row.dataset.row)")


def sorts(browser) -> list[str]:
    return browser.ask("[...document.querySelectorAll('table.choose thead th')].map(e => e.getAttribute('aria-sort'))")


def test_columns_are_sorted_by_click_and_by_keyboard(browser, report):
    browser.open(report)
    assert rows_now(browser) == ROWS and set(sorts(browser)) == {"none"}
    heads = browser.ask("[...document.querySelectorAll('table.choose thead th')].map(e => e.textContent)")
    bits = next(i for i, head in enumerate(heads) if head.startswith("bits per byte"))
    button = f"document.querySelectorAll('table.choose thead button')[{bits}]"
    browser.ask(f"{button}.click()")
    assert rows_now(browser) == [*reversed(ROWS[:-1]), ROWS[-1]], "the row without a value stays last"
    assert sorts(browser)[bits] == "ascending" and sorts(browser).count("none") == len(heads) - 1
    browser.ask(f"{button}.focus()")
    browser.press("Enter")
    assert rows_now(browser) == ROWS and sorts(browser)[bits] == "descending"
    browser.ask("document.querySelectorAll('table.choose thead button')[0].click()")
    assert rows_now(browser) == sorted(ROWS, key=str.lower)
    assert not browser.complaints()


def hidden(browser, row: str) -> set[str]:
    """How everything that belongs to a row is displayed."""
    own = f"[...document.querySelectorAll('[data-row]')].filter(e => e.dataset.row === '{row}')"
    return set(browser.ask(f"{own}.map(e => getComputedStyle(e).display)"))


def test_rows_are_hidden_in_tables_and_pictures(browser, report):
    browser.open(report)
    assert "none" not in hidden(browser, "LSTM")
    browser.ask(f"document.querySelectorAll('fieldset input')[{ROWS.index('LSTM')}].focus()")
    browser.press(" ")
    assert hidden(browser, "LSTM") == {"none"} and "none" not in hidden(browser, "GPT")
    saved = unquote(browser.ask("document.querySelector('a.save').href").split(",", 1)[1])
    assert 'class="off"' in saved and ".off{display:none}" in saved, "the picture is saved as it is shown"
    browser.press(" ")
    assert "none" not in hidden(browser, "LSTM") and not browser.complaints()


def test_pictures_are_saved_from_the_page_alone(browser, report):
    browser.open(report)
    links = browser.ask("[...document.querySelectorAll('a.save')].map(e => [e.download, e.href])")
    assert len(links) == len(list(report.parent.glob("*.svg")))
    for name, address in links:
        root = ET.fromstring(unquote(address.split(",", 1)[1]))
        assert root.tag == "{http://www.w3.org/2000/svg}svg" and (report.parent / name).exists()
        assert "prefers-color-scheme" in root[0].text


def test_the_page_can_be_read_without_its_script(browser, report):
    browser.open(report, script=False)
    text = browser.ask("document.body.innerText")
    assert "bits per byte" in text and "Rows that are shown" not in text
    links = browser.ask("[...document.querySelectorAll('a.save')].map(e => e.getAttribute('href'))")
    assert links and all((report.parent / link).exists() for link in links)
    assert browser.ask("document.querySelectorAll('thead button, input').length") == 0


def test_texts_of_others_do_nothing(browser, report, tmp_path):
    browser.open(report)
    assert browser.ask("typeof window.hacked") == "undefined" and EVIL in browser.ask("document.body.textContent")
    (tmp_path / "raw.html").write_text(page("t", [EVIL, '<p id="p" onclick="window.hacked = 1">x</p>']))
    browser.open(tmp_path / "raw.html")
    browser.ask("document.getElementById('p').click()")
    assert browser.ask("typeof window.hacked") == "undefined", "where escaping fails, the policy stands"


def as_hex(colour: str) -> str:
    return "#" + "".join(f"{int(part):02x}" for part in re.findall(r"\d+", colour)[:3])


def lowest_contrast(browser) -> float:
    """Of all texts, against what is behind them: the paper, a soft box, or the square of a matrix."""
    found = browser.ask(
        """[...document.querySelectorAll('body *')].filter(e => [...e.childNodes].some(n => n.nodeType === 3 && n.data.trim())
           && !e.closest('script, style, title, option')).map(e => {
             const drawn = e instanceof SVGElement, own = getComputedStyle(e);
             let behind = e, soft = null;
             while (behind && !soft) { const b = getComputedStyle(behind).backgroundColor;
               if (!b.endsWith(', 0)')) soft = b; behind = behind.parentElement; }
             const square = drawn && e.previousElementSibling?.tagName === 'rect' && e.closest('.squares')
               ? getComputedStyle(e.previousElementSibling) : null;
             return [drawn ? own.fill : own.color, soft, square && square.fill, square && square.fillOpacity];
           })"""
    )
    worst = 21.0
    for text, paper, square, share in found:
        behind = blend(as_hex(square), as_hex(paper), float(share)) if square else as_hex(paper)
        worst = min(worst, contrast(as_hex(text), behind))
    assert len(found) > 20
    return worst


@pytest.mark.parametrize("dark", [False, True])
def test_all_text_can_be_read(browser, report, tmp_path, dark):
    for path in (report, every_kind(tmp_path)):
        browser.open(path, dark=dark)
        paper, ink = (getattr(each, "dark" if dark else "light") for each in (PAPER, INK))
        assert as_hex(browser.ask("getComputedStyle(document.body).backgroundColor")) == paper
        assert as_hex(browser.ask("getComputedStyle(document.querySelector('figure svg text')).fill")) == ink
        assert lowest_contrast(browser) >= TEXT_CONTRAST and not browser.complaints()


def test_a_planted_pale_text_is_noticed(browser, tmp_path):
    parts = ['<p style="color: #999999">x</p>', table(["a"] * 30, [["b"] * 30])]
    (tmp_path / "pale.html").write_text(page("t", parts))
    browser.open(tmp_path / "pale.html")
    assert lowest_contrast(browser) < TEXT_CONTRAST


@pytest.mark.parametrize("dark", [False, True])
def test_a_picture_of_its_own_is_light_or_dark(browser, tmp_path, dark):
    (tmp_path / "a.svg").write_text(as_file(chart("x", "y", [Curve("a", [(1.0, 1.0), (2.0, 2.0)])])))
    browser.open(tmp_path / "a.svg", dark=dark)
    fill = browser.ask("getComputedStyle(document.querySelector('rect')).fill")
    assert as_hex(fill) == (PAPER.dark if dark else PAPER.light)


def test_on_paper_there_are_no_controls(browser, report):
    browser.open(report, dark=True)
    browser.call("Emulation.setEmulatedMedia", media="print")
    shown = browser.ask(
        "[...document.querySelectorAll('nav, fieldset, .tools')].filter(e => getComputedStyle(e).display !== 'none').length"
    )
    assert shown == 0
    assert browser.ask("getComputedStyle(document.querySelector('.scroll')).overflowX") == "visible"
    browser.call("Emulation.setEmulatedMedia", media="")

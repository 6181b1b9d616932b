"""The quickstart in small: text that every Python has, three models at an equal budget, one page that stands alone."""

import json
import re
from html.parser import HTMLParser

from seqloom import quickstart
from seqloom.quickstart import built_in_text, run_quickstart
from seqloom.report import Curve, Page, render


def test_the_built_in_text_is_english_and_enough():
    documents = list(built_in_text())
    assert len(documents) > 200 and sum(map(len, documents)) > 1_000_000
    words = re.findall(r"[a-z]+", " ".join(documents[:50]).lower())
    assert words.count("the") > len(words) / 50
    assert documents == list(built_in_text()), "the same every time"


def test_three_models_and_a_page(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(quickstart, "built_in_text", lambda: [d for i, d in enumerate(built_in_text()) if i % 4 == 0])
    report = run_quickstart(tmp_path / "qs", minutes=0.05)
    page = report.read_text(encoding="utf-8")
    check_page(page)
    table = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in table[:4]] == ["model", "rnn", "lstm", "gpt2"]
    metrics = [json.loads((tmp_path / "qs" / name / "metrics.json").read_text()) for name in ("rnn", "lstm", "gpt2")]
    counts, tokens = [m["parameters"] for m in metrics], [m["tokens"] for m in metrics]
    assert max(counts) < 1.1 * min(counts), "not of equal size"
    assert max(tokens) - min(tokens) <= 4096, "not of equal budget"
    for name in ("rnn", "lstm", "gpt2"):
        assert page.count(f">{name}<") >= 2 and "One seed" in page
    assert page.count("<polyline") == 6


class Checker(HTMLParser):
    def __init__(self):
        super().__init__()
        self.open, self.addresses = [], []

    def handle_starttag(self, tag, attributes):
        if tag not in ("meta", "link", "line", "polyline", "br"):
            self.open.append(tag)
        self.addresses += [value for name, value in attributes if name in ("href", "src")]
        assert tag != "script"

    def handle_endtag(self, tag):
        if tag not in ("line", "polyline"):
            assert self.open.pop() == tag


def check_page(page: str) -> None:
    """Well-formed, and nothing in it points outside."""
    checker = Checker()
    checker.feed(page)
    assert not checker.open and checker.addresses == ["data:,"]
    assert "http" not in page.replace("http-equiv", "")


def test_text_of_a_model_is_shown_and_not_run():
    hostile = '<script>alert(1)</script><img src="http://x">'
    curves = [Curve("a", [(0.0, 1.0), (1.0, 0.5)]), Curve("b", [])]
    page = render(
        Page("t", [hostile], [("h", "x", "y", curves)], ("m", "n"), [("a", "1")], [("a", hostile)], [hostile])
    )
    assert "<script>" not in page and "&lt;script&gt;" in page
    checker = Checker()
    checker.feed(page)
    assert checker.addresses == ["data:,"]

"""The quickstart in small: text that every Python has, four kinds of model at an equal budget, one page that stands alone."""

import re
from itertools import islice
from pydoc_data.topics import topics

import pytest

from seqloom.charts import Curve, chart, escaped, page, table
from seqloom.cli import run
from seqloom.text import built_in
from seqloom.text.built_in import built_in_text
from tests.forked import forked_jobs
from tests.pages import check_page


@pytest.fixture(scope="module")
def documents():
    return list(built_in_text())


def test_the_built_in_text_is_english_and_enough(documents):
    assert len(documents) > 200 and sum(map(len, documents)) > 1_000_000
    words = re.findall(r"[a-z]+", " ".join(documents[:50]).lower())
    assert words.count("the") > len(words) / 50
    count = len(topics) + 40  # the others are read in the same way, in the same order of files
    assert documents[:count] == list(islice(built_in_text(), count)), "the same every time"


def test_four_models_and_a_page(documents, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(built_in, "built_in_text", lambda: documents[::6])
    forked_jobs(monkeypatch)
    assert run(["quickstart", "--out", str(tmp_path / "qs"), "--minutes", "0.05"]) == 0
    made = (tmp_path / "qs" / "report.html").read_text(encoding="utf-8")
    check_page(made, frozenset(path.name for path in (tmp_path / "qs").iterdir()))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:5]] == ["n-gram", "LSTM", "GPT", "BERT"]
    sizes = [int(line.split()[1].replace(",", "")) for line in lines[2:5]]
    assert max(sizes) < 1.1 * min(sizes), "not of equal size"
    assert "one seed: nothing can be concluded" in made
    assert run(["quickstart", "--out", str(tmp_path / "qs"), "--minutes", "0.06"]) == 2, (
        "another budget, another comparison"
    )


@pytest.mark.parametrize("log_x", [False, True])
def test_text_of_a_model_is_shown_and_not_run(log_x):
    hostile = '<script>alert(1)</script><img src="http://x">'
    curves = [Curve(hostile, [(1.0, 1.0), (2.0, 0.5)]), Curve("b", []), Curve(hostile, [(1.0, 2.0)])]
    made = page(hostile, [table([hostile], [[hostile]]), chart(hostile, "y", curves, log_x=log_x), escaped(hostile)])
    assert hostile not in made and "&lt;script&gt;" in made
    check_page(made.replace(escaped("http://x"), ""))

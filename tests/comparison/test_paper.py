"""The results of a comparison for papers and other programs: LaTeX, long form, sentences of methods, and their command."""

import csv
import io
import re
import shutil
import subprocess
import sys
import types

import numpy as np
import pytest

from seqloom.cli import run
from seqloom.comparison import latex
from seqloom.comparison.latex import latex_escaped, latex_table
from seqloom.comparison.methods import methods_sentences
from seqloom.comparison.metric import Metric
from seqloom.comparison.records import QuestionRecord
from seqloom.comparison.report import as_csv, as_long_csv, write_report
from seqloom.errors import ModelError, UsageError
from tests.comparison.results import comparison_of
from tests.pages import check_page
from tests.release import RELEASE

HOSTILE = r'\input{/etc/passwd} & 50% $x_1$ #{~^} <b>|"`' + "'\n\t-- é"


def by_seed(**rows: list[float]) -> Metric:
    return Metric("bits per byte", True, {row: np.array(values) for row, values in rows.items()}, {})


def by_item(seed: int = 0, **means: float) -> Metric:
    random = np.random.default_rng(seed)
    values = {row: (random.random((3, 200)) < mean).astype(float) for row, mean in means.items()}
    return Metric("pairs", False, values, {}, outcomes=True)


THREE = {"best": [1.0, 1.01, 0.99], "near": [1.005, 1.0, 1.012], "far": [2.0, 2.01, 1.99]}


def line_of(table: str, row: str) -> str:
    return next(line for line in table.splitlines() if line.startswith(f"{row} &"))


def test_the_best_is_bold_and_what_differs_from_it_has_a_dagger():
    made = latex_table(comparison_of(by_seed(**THREE)))
    assert r"\textbf{1.000} {\scriptsize $\pm$ 0." in line_of(made, "best") and latex.DAGGER not in line_of(
        made, "best"
    )
    assert latex.DAGGER not in line_of(made, "near") and latex.DAGGER in line_of(made, "far")
    assert "significantly different from the best row" in made and r"bits per byte $\downarrow$" in made
    assert [line for line in made.splitlines() if "rule" in line] == [r"\toprule", r"\midrule", r"\bottomrule"]


def test_a_column_has_as_many_digits_as_its_intervals_allow():
    found = comparison_of(
        by_seed(a=[1.0, 1.1, 1.2], b=[2.0, 2.0001, 2.0002]), by_seed(a=[570.0, 575.0], b=[580.0, 590.0])
    )
    first, second = (re.findall(r"\d+\.?(\d*)", line_of(latex_table(found), "b").split("&")[i]) for i in (2, 3))
    assert {len(digits) for digits in first} == {5} and {len(digits) for digits in second} == {0}


def test_daggers_for_a_baseline():
    made = latex_table(comparison_of(by_seed(**THREE)), baseline="far")
    assert latex.DAGGER in line_of(made, "best") and latex.DAGGER in line_of(made, "near")
    assert latex.DAGGER not in line_of(made, "far") and "significantly different from far" in made
    with pytest.raises(UsageError, match=r"--baseline: unknown row 'fra'.*did you mean 'far'"):
        latex_table(comparison_of(by_seed(**THREE)), baseline="fra")


def test_of_one_seed_nothing_is_marked():
    made = latex_table(comparison_of(by_seed(a=[1.0], b=[2.0])))
    assert "dagger" not in made and r"\pm" not in made and r"& 2.000 \\" in made


def test_rows_without_a_value():
    metric = Metric("bits per byte", True, {"a": np.array([1.0, 1.1])}, {"b": "it has none"})
    assert line_of(latex_table(comparison_of(metric)), "b").endswith(r"& -- \\")


def check_latex(made: str) -> None:
    """Nothing of a name is a command, a comment, a column or a new line."""
    row = next(line for line in made.splitlines() if "etc/passwd" in line and line.endswith(r"\\"))
    plain = re.sub(r"\\[&%$#_{}]", "", row[: row.index("1{,}000")])
    assert r"\input" not in plain and "%" not in plain and "#" not in plain
    assert plain.count("&") == 1 and "$" not in plain
    commands = set(re.findall(r"\\[a-z]+", plain))
    known = {"textbackslash", "textasciitilde", "textasciicircum", "textless", "textgreater", "textbar"}
    assert commands <= {f"\\{name}" for name in (*known, "textquotedbl", "textasciigrave", "textquotesingle")}


def hostile_comparison():
    values = {HOSTILE: [1.0, 1.1, 1.2], "plain": [2.0, 2.1, 2.2]}
    return comparison_of(by_seed(**values), by_item(**{HOSTILE: 0.9, "plain": 0.5}), name=HOSTILE)


def test_names_are_escaped_in_latex():
    check_latex(latex_table(hostile_comparison()))


def test_planted_names_that_are_not_escaped_are_noticed(monkeypatch):
    monkeypatch.setattr(latex, "latex_escaped", lambda text: text.replace("\n", " "))
    with pytest.raises(AssertionError):
        check_latex(latex_table(hostile_comparison()))


def test_letters_that_pdflatex_lacks_are_named():
    assert "XeLaTeX" not in latex_table(comparison_of(by_seed(é=[1.0, 1.1])))
    assert "XeLaTeX" in latex_table(comparison_of(by_seed(日本=[1.0, 1.1])))
    assert latex_escaped("a\0b\u2028c") == "a b c"


@pytest.mark.long
@pytest.mark.parametrize("baseline", [None, "plain"])
def test_the_table_compiles(tmp_path, baseline):
    """By Debian's texlive (`make programs` installs it): with no shell and no files but its own."""
    assert shutil.which("pdflatex"), "no pdflatex: `make programs` installs Debian's"
    table = latex_table(hostile_comparison(), baseline)
    start = r"\documentclass{article}\usepackage[utf8]{inputenc}\usepackage[T1]{fontenc}\usepackage{textcomp,booktabs}"
    (tmp_path / "a.tex").write_text(start + "\\begin{document}\n" + table + "\\end{document}\n")
    done = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "a.tex"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0 and (tmp_path / "a.pdf").stat().st_size > 5000, done.stdout[-2000:]
    assert "Missing character" not in (tmp_path / "a.log").read_text(errors="replace")


# ---- long form


def read_csv(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_long_form():
    bits, pairs = by_seed(**THREE), by_item(best=0.9, near=0.8)
    found = comparison_of(bits, pairs)
    lines = read_csv(as_long_csv(found))
    assert len(lines) == 3 * 3 + 2 * 3 and list(lines[0]) == [
        "row",
        "seed",
        "metric",
        "lower_is_better",
        "item",
        "set",
        "value",
    ]
    best = [line for line in lines if line["row"] == "best" and line["metric"] == "bits per byte"]
    assert [(line["seed"], float(line["value"])) for line in best] == [("0", 1.0), ("1", 1.01), ("2", 0.99)]
    scores = [float(line["value"]) for line in lines if line["metric"] == "pairs" and line["row"] == "near"]
    assert scores == pytest.approx(pairs.values["near"].mean(1))
    items = read_csv(as_long_csv(found, items=True))
    assert len(items) == 3 * 3 + 2 * 3 * 200
    assert [line["item"] for line in items if line["metric"] == "pairs"][:3] == ["0", "1", "2"]


def test_formulas_in_csv_are_texts_and_numbers_stay_numbers():
    rows = {
        "=1+1": [-1.5, -1.25, -1.0],
        "@x": [1.0, 2.0, 3.0],
        "-5": [1e-9, 2.0, 3.0],
        "+cmd|' /C calc'!A0": [1.0, 2.0, 3.0],
    }
    found = comparison_of(by_seed(**rows))
    for text in (as_csv(found), as_long_csv(found)):
        names = {line["row"] for line in read_csv(text)}
        assert names == {"'=1+1", "'@x", "-5", "'+cmd|' /C calc'!A0"}
    assert [float(line["value"]) for line in read_csv(as_long_csv(found))][:3] == rows["=1+1"]


def test_to_pandas(monkeypatch):
    found = comparison_of(by_seed(**THREE))
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ModelError, match="pip install pandas"):
        found.to_pandas()
    frame = types.SimpleNamespace(DataFrame=lambda rows, columns: (columns, rows))
    monkeypatch.setitem(sys.modules, "pandas", frame)
    columns, rows = found.to_pandas()
    assert columns[:3] == ["row", "seed", "metric"] and rows[0][:3] == ("best", 0, "bits per byte") and len(rows) == 9


# ---- methods


def test_sentences_of_methods():
    asked = QuestionRecord(name="Which?", rows=("best", "near"), late=False)
    found = comparison_of(by_seed(**THREE), by_item(best=0.9, near=0.8), questions=(asked,))
    text = " ".join(methods_sentences(found))
    for words in (
        "Each of the 3 models was trained on the same text with a budget of 1,000,000 words and 3 seeds.",
        "about 500,000 parameters", "Pairs was measured on 200 items (higher is better).",
        "Differences in pairs were tested by t tests paired over items", "Differences in bits per byte were tested by Welch's",
        "Holm's method (1979)", "1 question was asked, before there were results", "seqloom 1.2.3, git 0123456789.",
    ):  # fmt: skip
        assert words in text
    late = comparison_of(by_seed(**THREE), questions=(asked, asked.model_copy(update={"late": True})))
    assert "1 of them after there were results" in " ".join(methods_sentences(late))


def test_of_one_seed_no_test_is_told():
    text = " ".join(methods_sentences(comparison_of(by_seed(a=[1.0], b=[2.0]))))
    assert "1 seed." in text and "tested" not in text


# ---- the page


@pytest.mark.parametrize("rows", [2, 6])
def test_a_page_of_hostile_names(rows, tmp_path, monkeypatch):
    """More than a few rows have a matrix of all pairs."""
    names = [HOSTILE, '<script>alert("1")</script>', "=1+1", "a", "b", "c"][:rows]
    metric = by_seed(**{name: [i + 1.0, i + 1.01, i + 1.02] for i, name in enumerate(names)})
    found = comparison_of(metric, name="<script>alert(1)</script>", samples={names[0]: "</pre><script>x</script>"})
    monkeypatch.setattr(type(found.plan), "record", lambda self: {})
    page = check_page(write_report(found, tmp_path).read_text("utf-8"), frozenset(p.name for p in tmp_path.iterdir()))
    assert (tmp_path / "bits-per-byte-differences.svg").exists() == (rows > 3)
    assert '<script>alert("1")</script>' in page.text and "Contents" in page.text and "For a paper" in page.text
    assert "better" in page.text and "higher over lower" not in page.text
    assert set(page.tags) >= {"nav", "figure", "table", "svg", "details"}


# ---- the command


def test_the_command(tmp_path, capsys):
    folder = shutil.copytree(RELEASE / "comparison", tmp_path / "comparison")
    assert run(["report", str(folder)]) == 0 and (folder / "table-long.csv").exists()
    text = (folder / "report.html").read_text("utf-8")
    check_page(text, frozenset(path.name for path in folder.iterdir()))
    assert "no result yet: " in text, "what is lacking is named"
    capsys.readouterr()
    for option, words, remark in (
        ("--latex", r"\toprule", "% without results: "), ("--methods", "was trained", "There are no results of "),
        ("--csv", "row,seed,metric", ""),
    ):  # fmt: skip
        assert run(["report", str(folder), option]) == 0
        told = capsys.readouterr()
        assert words in told.out and remark in told.out and "the comparison is not finished: no result of " in told.err


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (["--latex", "--csv"], 2, "give one of"),
        (["--items"], 2, "--items needs --csv"),
        (["--baseline", "x"], 2, "--baseline needs --latex"),
        (["--latex", "--baseline", "x"], 2, "unknown row 'x'"),
    ],
)
def test_wrong_calls(options, code, words, capsys):
    assert run(["report", str(RELEASE / "comparison"), *options]) == code
    assert words in capsys.readouterr().err


def test_a_folder_that_holds_no_comparison(tmp_path, capsys):
    assert run(["report", str(tmp_path)]) == 4 and "holds no comparison" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []

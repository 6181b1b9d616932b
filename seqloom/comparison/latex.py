"""The table of a comparison for a paper: LaTeX with booktabs, intervals, and daggers for significant differences."""

import math

from seqloom.comparison.methods import methods_sentences, software
from seqloom.comparison.metric import ALPHA, Metric
from seqloom.comparison.table import Comparison
from seqloom.config import unknown_name
from seqloom.errors import UsageError

SPECIAL = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "<": r"\textless{}", ">": r"\textgreater{}",
    "|": r"\textbar{}", '"': r"\textquotedbl{}", "`": r"\textasciigrave{}", "'": r"\textquotesingle{}",
    "–": r"\textendash{}", "±": r"$\pm$", "×": r"$\times$", "→": r"$\rightarrow$",
}  # fmt: skip
LAST_LATIN = 0x17F  # pdflatex has the letters up to here
DAGGER = r"$^{\dagger}$"


def latex_escaped(text: str) -> str:
    """As the same text on paper, whatever it holds."""
    found = "".join(SPECIAL.get(letter, letter if letter.isprintable() else " ") for letter in text)
    return found.replace("--", "-{}-")  # two hyphens would become a dash


def latex_table(found: Comparison, baseline: str | None = None) -> str:
    """A table environment. Daggers mark rows that are significantly different from the best one, or from the baseline."""
    if baseline is not None and baseline not in found.rows:
        raise UsageError("--baseline: " + unknown_name("row", baseline, baseline, found.rows))
    columns = [metric for metric in found.metrics if metric.values]
    daggers = {metric.name: significant_rows(metric, baseline) for metric in columns}
    heads = [
        rf"{latex_escaped(metric.name)} ${chr(92)}{'downarrow' if metric.lower else 'uparrow'}$" for metric in columns
    ]
    lines = [" & ".join(["", "parameters", *heads])]
    for row in found.rows:
        cells = [latex_cell(metric, row, daggers[metric.name]) for metric in columns]
        size = f"{found.costs[row]['parameters']:,.0f}".replace(",", "{,}")
        lines.append(" & ".join([latex_escaped(row), size, *cells]))
    head, *body = [rf"{line} \\" for line in lines]
    return "\n".join(
        [
            *remarks(found),
            r"\begin{table}",
            r"\centering\small\setlength{\tabcolsep}{4pt}",
            rf"\caption{{{caption(found, baseline)}}}",
            r"\smallskip",
            rf"\begin{{tabular}}{{lr{'r' * len(columns)}}}",
            r"\toprule", head, r"\midrule", *body, r"\bottomrule",
            r"\end{tabular}",
            r"\end{table}",
            "",
        ]
    )  # fmt: skip


def remarks(found: Comparison) -> list[str]:
    lines = [r"% needs \usepackage{booktabs} and \usepackage{textcomp}"]
    names = "".join([*found.rows, found.name, *(metric.name for metric in found.metrics)])
    if any(ord(letter) > LAST_LATIN and letter not in SPECIAL for letter in names):
        lines.append("% names have letters that pdflatex lacks: use XeLaTeX or LuaLaTeX, and a font that has them")
    if found.unfinished:
        lines.append(f"% without results: {'; '.join(found.unfinished)}".replace("\n", " "))
    return lines


def significant_rows(metric: Metric, baseline: str | None) -> set[str]:
    """Those significantly different from the best row, or from the baseline."""
    if baseline is None:
        best = metric.leaders()
        return set(metric.values) - set(best) if best else set()
    if baseline not in metric.values:
        return set()
    pairs = [(row, baseline) for row in metric.values if row != baseline]
    return {each.first for each in metric.compare_rows(pairs) if each.p_adjusted < ALPHA}


def half_width(metric: Metric, row: str) -> float:
    """Of an interval; 0 where it is unbounded."""
    interval = metric.interval(row)
    return (interval.high - interval.low) / 2 if interval.is_bounded else 0.0


def column_digits(metric: Metric) -> int:
    """Digits behind the point, the same in a whole column: two of the smallest half width, or three of the largest value."""
    halves = [half for row in metric.values if (half := half_width(metric, row)) > 0]
    largest = max(abs(metric.interval(row).value) for row in metric.values)
    wanted = [*([1 - math.floor(math.log10(min(halves)))] if halves else [3])]
    wanted += [2 - math.floor(math.log10(largest))] if largest > 0 else []
    return min(max(0, *wanted), 6)


def latex_cell(metric: Metric, row: str, daggers: set[str]) -> str:
    """The best value is bold. A dagger takes no room, so that digits stand below one another."""
    if row not in metric.values:
        return "--"
    values = {name: metric.interval(name).value for name in metric.values}
    best, digits = (min if metric.lower else max)(values.values()), column_digits(metric)
    value, half = f"{values[row]:.{digits}f}", half_width(metric, row)
    shown = rf"\textbf{{{value}}}" if values[row] == best and len(values) > 1 else value
    ends = rf" {{\scriptsize $\pm$ {half:.{digits}f}}}" if half > 0 else ""
    return shown + ends + (rf"\rlap{{{DAGGER}}}" if row in daggers else "")


def caption(found: Comparison, baseline: str | None) -> str:
    whom = "the best row of the column" if baseline is None else f"{baseline}"
    correction = (
        "closed test, corrected for all pairs of rows"
        if baseline is None
        else "corrected for all rows by Holm's method"
    )
    tested = max(map(len, found.seeds.values()), default=0) > 1
    marks = (
        f" {DAGGER}: significantly different from {latex_escaped(whom)} ($p < {ALPHA:g}$, {correction})."
        if tested
        else ""
    )
    bold = " Bold: the best value." if len(found.rows) > 1 else ""
    text = " ".join(line for line in methods_sentences(found) if line not in software(found))
    return f"{latex_escaped(found.name)}.{bold}{marks} {latex_escaped(text)}"

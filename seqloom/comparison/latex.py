"""The table of a comparison for a paper: LaTeX with booktabs, intervals, and daggers for significant differences."""

import math

from seqloom.comparison.methods import methods_sentences
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
            r"\centering",
            rf"\caption{{{caption(found, baseline)}}}",
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


def latex_cell(metric: Metric, row: str, daggers: set[str]) -> str:
    """As many digits as its interval allows: two of the half width. The best value is bold."""
    if row not in metric.values:
        return "--"
    interval = metric.interval(row)
    half = (interval.high - interval.low) / 2 if interval.is_bounded else 0.0
    digits = min(max(1 - math.floor(math.log10(half)), 0), 6) if half > 0 else 4
    values = {name: metric.interval(name).value for name in metric.values}
    best = (min if metric.lower else max)(values.values())
    value = f"{interval.value:.{digits}f}"
    shown = rf"\textbf{{{value}}}" if values[row] == best and len(values) > 1 else value
    ends = rf" {{\scriptsize $\pm$ {half:.{digits}f}}}" if half > 0 else ""
    return shown + ends + (DAGGER if row in daggers else "")


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
    text = " ".join(methods_sentences(found))
    return f"{latex_escaped(found.name)}. Bold: the best value.{marks} {latex_escaped(text)}"

"""Pages in one HTML file: sections with a table of contents, tables, pictures, and a script that sorts, hides and saves.

A page can be read without its script, asks the network for nothing, and is allowed to (by its own policy) run no other script.
"""

import base64
import csv
import hashlib
import io
import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

from seqloom.charts.axes import escaped
from seqloom.charts.draw import sign
from seqloom.charts.palette import DARK, GRID, INK, LINK, MUTED, PAPER, SOFT, Look, picture_style

NAMED = {"paper": PAPER, "ink": INK, "muted": MUTED, "line": GRID, "soft": SOFT, "link": LINK}


def properties(which: str) -> str:
    return "".join(f"--{name}:{getattr(colour, which)};" for name, colour in NAMED.items())


STYLE = (
    f"""
:root {{ color-scheme: light dark; {properties("light")} }}
{DARK} {{ :root {{ {properties("dark")} }} }}
"""
    + """
body { font: 16px/1.55 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--ink) }
h1, h2, h3, p, li, summary, a, th[scope=row] { overflow-wrap: anywhere }
h1 { font-size: 1.7rem; line-height: 1.25; margin-bottom: .2rem } h2 { font-size: 1.3rem; margin-top: 2.4rem }
h3 { font-size: 1.02rem; margin: 1.6rem 0 .4rem }
a { color: var(--link) } :focus-visible { outline: 2px solid var(--link); outline-offset: 2px }
.note, figcaption, .tools { color: var(--muted) } .tools { font-size: .85rem; margin: .2rem 0 0 }
nav ol { columns: 17rem; padding-left: 1.6rem; margin: .3rem 0 } nav li { padding-right: 1.6rem }
.scroll { overflow-x: auto } figure { margin: 1rem 0 }
table { border-collapse: collapse; width: 100% } th, td { padding: .35rem .6rem; border-bottom: 1px solid var(--line) }
th { text-align: right; font-weight: 600; vertical-align: bottom }
td { text-align: right; font-variant-numeric: tabular-nums }
th:first-child, td:first-child, .text { text-align: left }
th[scope=row] { font-weight: 400; vertical-align: middle; min-width: 6rem }
.short { white-space: nowrap }
th button { font: inherit; color: inherit; background: none; border: 0; padding: 0; cursor: pointer; text-align: inherit }
th button::after { content: "\\a0⇅"; color: var(--muted) }
[aria-sort=ascending] button::after { content: "\\a0▲" } [aria-sort=descending] button::after { content: "\\a0▼" }
fieldset { border: 1px solid var(--line); border-radius: .4rem; margin: .6rem 0; padding: .2rem .8rem }
fieldset label { display: inline-block; margin-right: 1rem; overflow-wrap: anywhere }
pre { background: var(--soft); padding: .8rem; border-radius: .4rem; white-space: pre-wrap; overflow-wrap: anywhere }
.samples { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17rem, 100%), 1fr)); gap: 1rem }
.samples pre { font-size: .82rem; max-height: 24rem; overflow: auto } .samples div { min-width: 0 }
.chart { display: block } .chart.wide { width: 100%; height: auto; min-width: 33rem; max-width: 50rem }
.sign { vertical-align: -.1em; margin-right: .45em } a.save:not([href]) { display: none }
@media print {
  body { max-width: none; margin: 0 } nav, .tools, fieldset, th button::after { display: none }
  .scroll { overflow: visible } .chart, .chart.wide { max-width: 100%; min-width: 0; height: auto }
  figure, tr { break-inside: avoid } h2, h3 { break-after: avoid } .samples pre { max-height: none }
}
"""
)

SCRIPT = """
"use strict";
const all = (what, where = document) => [...where.querySelectorAll(what)];
const make = (tag, values) => Object.assign(document.createElement(tag), values);

// sort a table by the column whose heading is pressed; cells without a value stay at the end
const value = (cell) => cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
const compare = (a, b) => typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));
for (const table of all("table.sortable")) {
  const heads = all("thead th", table), body = table.tBodies[0];
  heads.forEach((head, column) => {
    if (!head.textContent.trim()) head.textContent = "name";
    const button = make("button", {type: "button"});
    button.append(...head.childNodes);
    head.append(button);
    head.setAttribute("aria-sort", "none");
    button.addEventListener("click", () => {
      const way = head.getAttribute("aria-sort") === "ascending" ? -1 : 1;
      for (const each of heads) each.setAttribute("aria-sort", "none");
      head.setAttribute("aria-sort", way === 1 ? "ascending" : "descending");
      const lines = [...body.rows].map((row) => [value(row.cells[column]), row]);
      const empty = ([found]) => found === "" || found === "–";
      lines.sort((a, b) => empty(a) - empty(b) || way * compare(a[0], b[0]));
      body.append(...lines.map(([, row]) => row));
    });
  });
}

// hide rows, in tables and in pictures
for (const table of all("table.choose")) {
  const box = make("fieldset", {className: "tools"});
  box.append(make("legend", {textContent: "Rows that are shown"}));
  for (const name of all("tbody tr", table).map((row) => row.dataset.row)) {
    const tick = make("input", {type: "checkbox", checked: true}), label = make("label");
    tick.addEventListener("change", () => {
      for (const each of all("[data-row]")) if (each.dataset.row === name) each.classList.toggle("off", !tick.checked);
      pictures();
    });
    label.append(tick, " ", name);
    box.append(label);
  }
  table.parentElement.before(box);
}

// save each picture as it is shown
const style = document.getElementById("picture-style").textContent;
function pictures() {
  for (const link of all("a.save")) {
    const picture = link.closest("figure").querySelector("svg").cloneNode(true);
    const own = document.createElementNS(picture.namespaceURI, "style");
    own.textContent = style;
    picture.prepend(own);
    const text = new XMLSerializer().serializeToString(picture);
    link.href = "data:image/svg+xml;charset=utf-8," + encodeURIComponent(text);
  }
}
pictures();
"""
HASH = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
POLICY = f"default-src 'none'; style-src 'unsafe-inline'; img-src data:; script-src 'sha256-{HASH}'"


class Section(NamedTuple):
    """A part of a page that its table of contents names."""

    title: str
    body: str


def page(title: str, parts: Sequence[str | Section]) -> str:
    """A whole HTML document. Where it has three sections or more, a table of contents stands before the first of them."""
    sections = [part for part in parts if isinstance(part, Section)]
    places = iter(section_places(sections))
    contents = ""
    if len(sections) > 2:
        links = "".join(
            f'<li><a href="#{place}">{escaped(each.title)}</a></li>'
            for place, each in zip(section_places(sections), sections, strict=True)
        )
        contents = (
            f'<nav aria-label="Contents"><details open><summary>Contents</summary><ol>{links}</ol></details></nav>'
        )
    body = []
    for part in parts:
        if isinstance(part, str):
            body.append(part)
            continue
        body.append(f'{contents}<section id="{next(places)}"><h2>{escaped(part.title)}</h2>{part.body}</section>')
        contents = ""
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<link rel="icon" href="data:,"><title>{escaped(title)}</title>'
        f'<style id="picture-style">{picture_style()}</style><style>{STYLE}</style></head>'
        f"<body><main>{''.join(body)}</main><script>{SCRIPT}</script></body></html>\n"
    )


def section_places(sections: Sequence[Section]) -> list[str]:
    """A name for each, to link to: letters and digits of its title, with a number where it is not the first of that name."""
    found: list[str] = []
    for each in sections:
        plain = re.sub(r"[^a-z0-9]+", "-", each.title.lower()).strip("-") or "section"
        place, number = plain, 2
        while place in found:
            place, number = f"{plain}-{number}", number + 1
        found.append(place)
    return found


def note(text: str) -> str:
    return f'<p class="note">{escaped(text)}</p>' if text else ""


def figure(picture: str, name: str, caption: str = "", file: str | None = None) -> str:
    """A picture in a box that scrolls by itself, with a link to save it. name: of the saved file, without its ending. file: the
    same picture beside the page, for readers without a script."""
    if not picture.startswith("<svg"):
        return picture
    target = f' href="{quote(file)}"' if file else ""
    link = f'<a class="save" download="{escaped(name)}.svg"{target}>Save as SVG</a>'
    words = f"<figcaption>{escaped(caption)}</figcaption>" if caption else ""
    box = f'<div class="scroll" tabindex="0" role="group" aria-label="{escaped(name)}">{picture}</div>'
    return f'<figure>{box}{words}<p class="tools">{link}</p></figure>'


# ---- tables


class Cell(NamedTuple):
    """A text that stands for a number: columns are sorted by it."""

    text: str
    value: float | None


TableCell = str | Cell

INTERVAL = re.compile(r"± \S+( / \S+)?( [★☆])?|\[[^]]*\]")
NONE = "–"  # a cell without a value
SORTABLE = 3  # rows, at least
SHORT = 16  # letters of a name that is not broken


def keep_together(found: re.Match[str]) -> str:
    return found[0].replace(" ", "\u00a0")


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[TableCell]],
    signs: Mapping[str, Look] | None = None,
    *,
    file: str = "",
    as_csv: str | None = None,
    choose: bool = False,
) -> str:
    """signs: of rows, by their first cell. file: the name under which it is saved as CSV. as_csv: what is saved, if it is more
    than what is shown. choose: rows can be hidden, here and in all pictures."""
    texts = [any(is_text(row[column]) for row in rows) for column in range(len(header))]
    kinds = [' class="text"' if text else "" for text in texts]
    head = "".join(f'<th scope="col"{kind}>{escaped(cell)}</th>' for cell, kind in zip(header, kinds, strict=True))
    body = "".join(table_row(row, signs or {}, kinds) for row in rows)
    abilities = [*(["sortable"] if len(rows) >= SORTABLE else []), *(["choose"] if choose and len(rows) > 1 else [])]
    ability = f' class="{" ".join(abilities)}"' if abilities else ""
    made = f"<table{ability}><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    box = f'<div class="scroll" tabindex="0" role="group" aria-label="table">{made}</div>'
    if not file:
        return box
    content = quote(csv_text([header, *rows]) if as_csv is None else as_csv)
    link = f'<a download="{escaped(file)}" href="data:text/csv;charset=utf-8,{content}">Save as CSV</a>'
    return f'{box}<p class="tools">{link}</p>'


def is_text(cell: TableCell) -> bool:
    return not isinstance(cell, Cell) and as_number(cell) is None and cell not in ("", NONE)


def table_row(row: Sequence[TableCell], signs: Mapping[str, Look], kinds: Sequence[str]) -> str:
    first = row[0].text if isinstance(row[0], Cell) else row[0]
    drawn = swatch(signs[first]) if first in signs else ""
    cells = "".join(table_cell(cell, kind) for cell, kind in zip(row[1:], kinds[1:], strict=True))
    kind = ' class="short"' if len(first) <= SHORT else ""
    return f'<tr data-row="{escaped(first)}"><th scope="row"{kind}>{drawn}{escaped(first)}</th>{cells}</tr>'


def table_cell(cell: TableCell, kind: str) -> str:
    text, value = cell if isinstance(cell, Cell) else (cell, as_number(cell))
    known = "" if value is None else f' data-value="{float(value)!r}"'
    return f"<td{kind}{known}>{INTERVAL.sub(keep_together, escaped(text))}</td>"  # no line break inside an interval


def as_number(text: str) -> float | None:
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return None


def swatch(found: Look) -> str:
    """The sign of a row, as in the legends of pictures."""
    return f'<svg class="sign" width="28" height="14" viewBox="0 0 28 14" aria-hidden="true">{sign(found, 0, 7)}</svg>'


FORMULA = ("=", "+", "-", "@", "\t", "\r")  # a spreadsheet computes what begins with these


def safe_cell(cell: object) -> object:
    """A text that a spreadsheet would take for a formula has an apostrophe before it; numbers stay numbers."""
    if isinstance(cell, str) and cell.startswith(FORMULA) and as_number(cell) is None:
        return f"'{cell}"
    return cell


def csv_text(rows: Sequence[Sequence[object]]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream)
    for row in rows:
        values = (cell.text if isinstance(cell, Cell) and cell.value is None else cell for cell in row)
        writer.writerow([safe_cell(each.value if isinstance(each, Cell) else each) for each in values])
    return stream.getvalue()

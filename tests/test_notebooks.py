"""Notebooks are pages of the site, executed when it is built: output is on the page, and a cell that fails stops the build."""

import re
import shutil
from pathlib import Path

import pytest

from tests.documents import DOCS
from tools import docs

NOTEBOOKS = sorted((DOCS / "notebooks").glob("*.md"))
CELL = re.compile(r"^```\{code-cell\} ipython3\n(?::tags: [^\n]*\n\n)?(.*?)^```$", re.M | re.S)
HEADER = "---\nfile_format: mystnb\nkernelspec:\n  name: python3\n---\n\n"


def cells(page: Path) -> list[str]:
    return CELL.findall(page.read_text(encoding="utf-8"))


@pytest.mark.parametrize("page", NOTEBOOKS, ids=lambda page: page.stem)
def test_cells_are_code(page: Path) -> None:
    """They are read as cells, compile, and use commands that exist (tests/test_docs.py)."""
    assert page.read_text(encoding="utf-8").startswith(HEADER)
    assert len(cells(page)) == page.read_text(encoding="utf-8").count("```{code-cell}") > 4
    for cell in cells(page):
        if not cell.startswith("%%bash\n"):
            compile(cell, page.name, "exec")


def build_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *pages: tuple[str, str]) -> tuple[int, Path]:
    """Builds a site of these notebooks alone."""

    def assemble(target: Path) -> None:
        shutil.copy(DOCS / "conf.py", target)
        shutil.copytree(DOCS / "_static", target / "_static")
        listed = "\n".join(name for name, _ in pages)
        (target / "index.md").write_text(f"# Pages\n\n```{{toctree}}\n{listed}\n```\n", encoding="utf-8")
        for name, text in pages:
            (target / f"{name}.md").write_text(text, encoding="utf-8")

    monkeypatch.setattr(docs, "assemble", assemble)
    return docs.build(tmp_path / "docs"), tmp_path / "docs/html"


@pytest.mark.long
def test_notebooks_are_executed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Links to other pages are dead here and are checked elsewhere."""
    texts = [(page.stem, docs.LINK.sub(r"\1", page.read_text(encoding="utf-8"))) for page in NOTEBOOKS]
    code, html = build_with(tmp_path, monkeypatch, *texts)
    assert code == 0
    compared = (html / "compare-honestly.html").read_text(encoding="utf-8")
    assert "n-gram" in compared and compared.count("cell_output") >= 6 and "p_adjusted" in compared
    tagged = (html / "text-to-tagger.html").read_text(encoding="utf-8")
    assert "EXCEPTION" in tagged and "offsets" in tagged and "F1 0." in tagged


@pytest.mark.long
@pytest.mark.parametrize("cell", ["1 / 0", "%%bash\nexit 3", "%%bash\nseqloom predict nowhere"])
def test_a_failing_cell_fails_the_build(
    cell: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    text = f"{HEADER}# A notebook\n\n```{{code-cell}} ipython3\n{cell}\n```\n"
    code, _ = build_with(tmp_path, monkeypatch, ("broken", text))
    assert code != 0 and "broken" in capfd.readouterr().err

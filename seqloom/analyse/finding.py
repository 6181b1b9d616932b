"""What a look inside has found, in one form for all of them: a page, its numbers, its pictures."""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from seqloom.charts import Section, as_file, csv_text, escaped, page
from seqloom.errors import UsageError
from seqloom.files import explained, make_folder, new_file, write_bytes
from seqloom.metrics.intervals import Interval

ENDINGS = (".html", ".json", ".csv", ".svg")


class Finding(ABC):
    """Shown by notebooks as its page; `save` writes it in the form that the name of the file ends with."""

    title: ClassVar[str]

    @abstractmethod
    def parts(self) -> list[str | Section]:
        """The page, below its heading."""

    @abstractmethod
    def record(self) -> dict[str, Any]:
        """All numbers, as JSON can hold them."""

    @abstractmethod
    def rows(self) -> Sequence[Sequence[object]]:
        """The main table, its header first."""

    @abstractmethod
    def pictures(self) -> Mapping[str, str]:
        """SVG by name, the main picture first."""

    @abstractmethod
    def lines(self) -> list[str]:
        """What the command prints of it."""

    def html(self) -> str:
        """The whole page."""
        return page(self.title, [f"<h1>{escaped(self.title)}</h1>", *self.parts()])

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{escaped(self.html())}" title="{escaped(self.title)}" sandbox="allow-scripts allow-downloads" '
            f'style="width:100%;height:44rem;border:0"></iframe>'
        )

    def save(self, path: str | Path) -> None:
        """Writes a file. path: .html for the page, .json for all numbers, .csv for the main table, .svg for the main picture."""
        out = check_ending(Path(path))
        new_file(out, "--out")
        if out.suffix == ".html":
            text = self.html()
        elif out.suffix == ".json":
            text = json.dumps(self.record()) + "\n"
        elif out.suffix == ".csv":
            text = csv_text(self.rows())
        else:
            pictures = list(self.pictures().values())
            if not pictures:
                raise UsageError(f"--out {out}: there is no picture of this: write .html, .json or .csv")
            text = as_file(pictures[0])
        write_bytes(out, text.encode())

    def save_folder(self, folder: str | Path, name: str) -> None:
        """Writes every form of it. folder: a new one, or an empty one; name: of the files, without their endings."""
        place = Path(folder)
        check_new_folder(place)
        make_folder(place)
        for ending in ENDINGS[:-1]:
            self.save(place / f"{name}{ending}")
        for picture, drawn in self.pictures().items():
            write_bytes(place / f"{re.sub(r'[^A-Za-z0-9.-]+', '-', picture)}.svg", as_file(drawn).encode())


def as_record(found: Interval) -> dict[str, float | None]:
    """An interval as JSON can hold it: a bound that is not there is null."""
    return {name: value if math.isfinite(value) else None for name, value in found._asdict().items()}


def check_new_folder(folder: Path) -> None:
    """Raises UsageError where there is something in a folder already."""
    with explained(folder):
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise UsageError(f"--out {folder} exists already: choose another name")


def check_ending(path: Path, option: str = "--out") -> Path:
    """Raises UsageError where a finding cannot be written in the form of this file."""
    if path.suffix not in ENDINGS:
        raise UsageError(f"{option} {path}: name a file that ends in {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}")
    return path

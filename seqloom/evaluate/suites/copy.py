"""The copy task: 0 w 0 w, a line each, as `seqloom synthetic copy` writes them (Kitaev et al., 2020, arXiv 2001.04451).

accuracy   the share of tokens of the second w that are the likeliest ones in their place, mean over the texts. A text with a
           symbol that the vocabulary does not have is wrong, whatever is thought of the unknown token; how many there are is
           in `unknown`. `cut`: of how many texts the model cannot read all at a time, so that it has nothing to copy from.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from seqloom.errors import DataError
from seqloom.evaluate.suites.lambada import Continue
from seqloom.evaluate.suites.minimal import mean
from seqloom.text.pairs import lines


class Copied(NamedTuple):
    context: str  # 0 w 0
    target: str  # w, with the blank before it


def read_copy(path: Path) -> list[Copied]:
    if path.is_dir():
        raise DataError(f"{path} is a folder: name a file that `seqloom synthetic copy` has written")
    found = [_copied(line.split(), f"{path}:{i}") for i, line in enumerate(lines(path), 1) if line.strip()]
    if not found:
        raise DataError(f"{path}: no text in it")
    return found


def _copied(symbols: list[str], place: str) -> Copied:
    half = len(symbols) // 2
    if half < 2 or symbols[0] != "0" or symbols[:half] != symbols[half:]:
        raise DataError(f"{place}: {' '.join(symbols)[:40]!r} is not 0 w 0 w, symbols with blanks between them")
    return Copied(" ".join(symbols[: half + 1]), " " + " ".join(symbols[half + 1 :]))


def score_copy(texts: Sequence[Copied], go_on: Continue) -> dict[str, Any]:
    found = go_on([each.context for each in texts], [each.target for each in texts])
    items = [0.0 if each.unknown else each.right for each in found]
    whole = mean([float(each.greedy and not each.unknown) for each in found])
    counts = {"unknown": sum(each.unknown for each in found), "cut": sum(each.cut for each in found)}
    result: dict[str, Any] = {"accuracy": mean(items), "whole": whole, "texts": len(texts)}
    return result | {name: count for name, count in counts.items() if count} | {"items": items}

"""What a captioner looks at: a map over the picture for each word of its caption, on a page or as one picture.

Weights of regions are brought to the size of the picture bilinearly and smoothed by a Gaussian, as in Xu et al., 2015.
"""

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.analyse.finding import ENDINGS, Finding
from seqloom.charts import Section, escaped, note, table
from seqloom.errors import UsageError
from seqloom.files import new_file, write_bytes
from seqloom.text.images import pillow
from seqloom.text.scenes import png

SHOWN = 192  # pixels of a side, at least
DARK = 0.25  # what is left of the picture where nothing is looked at
WIDE = 6  # maps in a row of a picture of all

CAVEAT = (
    "A map shows where the model looked when it wrote a word: the brighter, the more attention. It does not prove that the "
    "word was written because of what is there. For generated scenes, 'seqloom evaluate' measures how "
    "much attention lies on what a word names."
)


class PictureMaps(NamedTuple):
    """A caption, and what was looked at for each of its tokens."""

    name: str
    pixels: np.ndarray  # (side, side, 3) uint8
    caption: str
    words: list[str]
    weights: np.ndarray  # (words, regions), of a square grid

    @property
    def grid(self) -> int:
        return round(self.weights.shape[1] ** 0.5)

    def map_of(self, word: int) -> np.ndarray:
        """(h, w, 3) the picture, dark where the word did not look."""
        large = enlarge(self.pixels)
        return np.clip(large * self.light(word, large.shape[0])[..., None], 0, 255).astype(np.uint8)

    def light(self, word: int, side: int) -> np.ndarray:
        found = upsample(self.weights[word].reshape(self.grid, self.grid), side)
        return DARK + (1 - DARK) * found / max(float(found.max()), 1e-9)


def enlarge(pixels: np.ndarray) -> np.ndarray:
    """By whole factors, so that pixels stay what they are."""
    times = max(-(-SHOWN // pixels.shape[0]), 1)
    return pixels.repeat(times, 0).repeat(times, 1)


def upsample(weights: np.ndarray, side: int) -> np.ndarray:
    """(grid, grid) → (side, side): bilinear, then a Gaussian of half a region."""
    grid = weights.shape[0]
    at = np.clip((np.arange(side) + 0.5) * grid / side - 0.5, 0, grid - 1)
    low = np.floor(at).astype(int)
    high, part = np.minimum(low + 1, grid - 1), at - low
    rows = weights[low] * (1 - part)[:, None] + weights[high] * part[:, None]
    found = rows[:, low] * (1 - part) + rows[:, high] * part
    sigma = side / grid / 2
    reach = np.arange(-int(3 * sigma), int(3 * sigma) + 1)
    kernel = np.exp(-(reach**2) / (2 * sigma**2))
    kernel /= kernel.sum()
    for axis in (0, 1):
        padded = np.pad(found, [(len(reach) // 2,) * 2 if i == axis else (0, 0) for i in (0, 1)], mode="edge")
        found = np.apply_along_axis(lambda line: np.convolve(line, kernel, "valid"), axis, padded)
    return found


class CaptionMaps(Finding):
    """The maps of a captioner over pictures."""

    title = "What a caption looks at"

    def __init__(self, run: str, shown: Sequence[PictureMaps]):
        self.run, self.shown = run, list(shown)

    def lines(self) -> list[str]:
        return [f"{each.name}: {each.caption}" for each in self.shown]

    def parts(self) -> list[str | Section]:
        head, rows = self.table()
        found: list[str | Section] = [note(f"Captions by {self.run}. {CAVEAT}")]
        for each in self.shown:
            tiles = [tile(enlarge(each.pixels), "the picture")]
            tiles += [tile(each.map_of(i), word) for i, word in enumerate(each.words)]
            found.append(
                Section(f"{Path(each.name).name}: {each.caption}", f'<div class="samples">{"".join(tiles)}</div>')
            )
        found.append(Section("Numbers", table(head, [[str(cell) for cell in row] for row in rows])))
        return found

    def table(self) -> tuple[list[str], list[list[object]]]:
        rows: list[list[object]] = []
        for each in self.shown:
            for i, word in enumerate(each.words):
                best = int(each.weights[i].argmax())
                place = f"row {best // each.grid + 1}, column {best % each.grid + 1}"
                rows.append([Path(each.name).name, word, place, f"{each.weights[i].max():.3f}"])
        return ["picture", "word", "region with most attention", "its weight"], rows

    def rows(self) -> Sequence[Sequence[object]]:
        head, rows = self.table()
        return [head, *rows]

    def record(self) -> dict[str, Any]:
        pictures = [
            {
                "image": each.name,
                "caption": each.caption,
                "words": each.words,
                "weights": [[round(float(value), 6) for value in row] for row in each.weights],
            }
            for each in self.shown
        ]
        return {"run": self.run, "pictures": pictures}

    def pictures(self) -> Mapping[str, str]:
        """None as SVG: maps are pixels."""
        return {}

    def save(self, path: str | Path) -> None:
        """Writes a file. path: .html for the page, .json for all numbers, .csv for the table, .png for the maps as a picture."""
        out = check_maps_file(Path(path))
        if out.suffix != ".png":
            super().save(out)
            return
        new_file(out, "--maps")
        write_bytes(out, png(self.drawn()))

    def drawn(self) -> np.ndarray:
        """All pictures and maps as one picture, with their captions above them and the words below."""
        image, _ = pillow()
        from PIL import ImageDraw

        sheets, label = [], 16
        for each in self.shown:
            tiles = [(enlarge(each.pixels), "")] + [(each.map_of(i), word) for i, word in enumerate(each.words)]
            side = tiles[0][0].shape[0]
            rows = -(-len(tiles) // WIDE)
            sheet = image.new("RGB", (WIDE * (side + 4), label + rows * (side + label)), "white")
            pen = ImageDraw.Draw(sheet)
            pen.text((2, 2), drawable(f"{Path(each.name).name}: {each.caption}"), fill="black")
            for k, (pixels, word) in enumerate(tiles):
                x, y = k % WIDE * (side + 4), label + k // WIDE * (side + label)
                sheet.paste(image.fromarray(pixels), (x, y))
                pen.text((x + 2, y + side + 2), drawable(word), fill="black")
            sheets.append(np.asarray(sheet))
        width = max(sheet.shape[1] for sheet in sheets)
        padded = [np.pad(each, ((0, 0), (0, width - each.shape[1]), (0, 0)), constant_values=255) for each in sheets]
        return np.concatenate(padded)


def drawable(text: str) -> str:
    """On one line, in the letters of Pillow's own font."""
    return " ".join(text.encode("latin-1", "replace").decode("latin-1").split())


def tile(pixels: np.ndarray, word: str) -> str:
    data = base64.b64encode(png(pixels)).decode()
    picture = f'<img src="data:image/png;base64,{data}" alt="{escaped(word)}" width="{SHOWN}" height="{SHOWN}">'
    return f"<figure>{picture}<figcaption>{escaped(word)}</figcaption></figure>"


def check_maps_file(path: Path) -> Path:
    """Raises UsageError where maps cannot be written in the form of this file."""
    endings = (".png", *(each for each in ENDINGS if each != ".svg"))
    if path.suffix not in endings:
        raise UsageError(f"--maps {path}: name a file that ends in {', '.join(endings[:-1])} or {endings[-1]}")
    return path

"""Pointing: attention that lies on what a word names reaches 100%, and every way of reading it wrongly is noticed."""

import json

import numpy as np
import pytest
import torch

from seqloom.batch import Output
from seqloom.batches.pairs import PairFrame
from seqloom.batches.pictures import PictureSize
from seqloom.errors import DataError
from seqloom.evaluate import pointing
from seqloom.evaluate.pointing import masks_of, point, regions_of
from seqloom.text.images import read_captions
from seqloom.text.scenes import write_scenes
from seqloom.tokens.tokenizer import Tokenizer

GRID, CELL = 8, 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scenes") / "out"
    write_scenes(out, {"train": 12})
    return out


class Knowing:
    """A captioner that looks at the thing that the next word names, by the words and things of the file alone."""

    grid_offset = 0

    def __init__(self, rows, masks, shift=0, turned=False):
        self.texts = [(i, row, k) for i, row in enumerate(rows) for k in range(len(row.captions))]
        self.masks, self.shift, self.turned, self.read = masks, shift, turned, 0

    def look(self, number, row, caption):
        """(words + 1, regions), the last for the end."""
        names = row.row["names"][caption]
        found, at = [], 0
        for word in row.captions[caption].split():
            at = row.captions[caption].index(word, at)
            thing = next((each for begin, end, each in names if begin <= at < end), None)
            weights = np.full((GRID, GRID), 1 / GRID**2)
            if thing is not None and self.masks[number, thing].any():
                y, x = (int(each) // CELL for each in np.argwhere(self.masks[number, thing])[0])
                weights = np.zeros((GRID, GRID))
                weights[(x, y) if self.turned else (y, x)] = 1
            found.append(weights.ravel())
            at += len(word)
        return np.roll([*found, np.full(GRID**2, 1 / GRID**2)], self.shift, 0)

    def __call__(self, pair, maps):
        assert maps
        some = self.texts[self.read : self.read + pair.target.num_sequences]
        self.read += len(some)
        weights = np.concatenate([self.look(number, row, caption) for number, row, caption in some])
        assert len(weights) == len(pair.target.ids)
        return Output(torch.empty(0), cross=(torch.from_numpy(weights)[:, None].expand(-1, 2, -1),))


def measured(folder, **wrong):
    rows = read_captions([folder / "train.jsonl"])
    masks = masks_of(rows)
    tokenizer = Tokenizer.train("word", [text for row in rows for text in row.captions])
    learner = type("Learner", (), {"backbone": Knowing(rows, masks, **wrong)})()
    frame = PairFrame((), tokenizer.end_id, tokenizer.end_id, (), tokenizer.end_id)
    return point(learner, tokenizer, frame, PictureSize(64, GRID**2), rows, masks, torch.device("cpu"))


def test_attention_on_what_is_named_is_found(folder):
    found = measured(folder)
    assert found["pointing"] == 1 and found["attention_share"] == pytest.approx(1)
    named = sum(
        len(text[begin:end].split())
        for row in map(json.loads, (folder / "train.jsonl").read_text().splitlines())
        for text, names in zip(row["captions"], row["names"], strict=True)
        for begin, end, _ in names
    )
    assert found["named_words"] == named and 0.02 < found["pointing_chance"] < 0.2


@pytest.mark.parametrize("bug", ["the word before", "the word behind", "rows are columns", "another picture's masks"])
def test_planted_readings_are_noticed(bug, folder, monkeypatch):
    wrong = {"the word before": {"shift": 1}, "the word behind": {"shift": -1}, "rows are columns": {"turned": True}}
    if bug == "another picture's masks":
        monkeypatch.setattr(pointing, "regions_of", lambda masks, grid: regions_of(np.roll(masks, 1, 0), grid))
    assert measured(folder, **wrong.get(bug, {})).get("pointing", 0) < 0.9


def test_regions_of_a_mask():
    mask = np.zeros((1, 64, 64), bool)
    mask[0, 8:17, 24] = True  # two rows of regions and one pixel of a third, in the fourth column
    assert np.flatnonzero(regions_of(mask, GRID)[0]).tolist() == [8 + 3, 16 + 3]
    mask[0, 17, 24] = mask[0, 7, 24] = True
    assert np.flatnonzero(regions_of(mask, GRID)[0]).tolist() == [3, 8 + 3, 16 + 3]


@pytest.mark.parametrize(
    ("grid", "rows"), [(6, [0, 1]), (12, [1, 2]), (64, [8, 9, 10]), (128, [16, 17, 18, 19, 20, 21]), (1, [0])]
)
def test_regions_whose_sides_do_not_divide_the_mask(grid, rows):
    """A region has a thing if they share any part of a pixel: 64 / 6 pixels end in the middle of the eleventh."""
    mask = np.zeros((1, 64, 64), bool)
    mask[0, 8:11, 0] = True
    found = regions_of(mask, grid)[0].reshape(grid, grid)
    assert np.flatnonzero(found[:, 0]).tolist() == rows and not found[:, max(grid // 64, 1) :].any()


def test_captions_without_masks(folder, tmp_path):
    (tmp_path / "c.jsonl").write_text((folder / "train.jsonl").read_text())
    assert masks_of(read_captions([tmp_path / "c.jsonl"])) is None and masks_of([]) is None


@pytest.mark.parametrize(
    "names", [3, [], [3] * 5, [[[0, 4]]] * 5, [[["a", "b", 0]]] * 5, [[[0, 4, 4]]] * 5, [[[0, 4, -1]]] * 5, [[[0, 4, True]]] * 5]
)  # fmt: skip
def test_names_that_are_damaged(names, folder, tmp_path):
    rows = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    rows[1]["names"] = names
    (tmp_path / "c.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (tmp_path / "masks-c.npz").write_bytes((folder / "masks-train.npz").read_bytes())
    with pytest.raises(DataError, match=r'c\.jsonl:2: "names" is not a list'):
        masks_of(read_captions([tmp_path / "c.jsonl"]))


@pytest.mark.parametrize("damage", ["half", "shape", "type", "side", "missing", "text"])
def test_masks_that_are_damaged(damage, folder, tmp_path):
    path, whole = tmp_path / "masks-c.npz", (folder / "masks-train.npz").read_bytes()
    (tmp_path / "c.jsonl").write_text((folder / "train.jsonl").read_text())
    masks = np.zeros((12, 4, 512), np.uint8)
    if damage in ("half", "text"):
        path.write_bytes(whole[: len(whole) // 2] if damage == "half" else b"no masks at all")
    else:
        arrays = {
            "shape": {"masks": masks[0]},
            "type": {"masks": masks.astype(float)},
            "side": {"side": 32},
            "missing": {},
        }
        with open(path, "wb") as file:
            np.savez(file, **({"masks": masks, "side": 64} | arrays[damage] if arrays[damage] else {"side": 64}))
    with pytest.raises(DataError, match=r"masks-c\.npz: .*: write the scenes anew"):
        masks_of(read_captions([tmp_path / "c.jsonl"]))

"""Does attention look at the thing that a word names? Measured where pictures have masks of their things (`seqloom scenes`).

share     of the attention of a word that lies on regions with a visible part of the thing
pointing  share of words whose largest weight lies there (the pointing game; Zhang et al., 2016, arXiv 1608.00507)
chance    share of the regions that have a part of the thing: what attention without a preference would reach

Captions are read as they stand in the file, each word with the attention that it is predicted by.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.batch import to_device
from seqloom.batches.pairs import PairFrame
from seqloom.batches.pictures import PictureSize, encode_captions
from seqloom.errors import DataError
from seqloom.text.images import Captioned
from seqloom.text.scenes import read_masks
from seqloom.tokens.tokenizer import Tokenizer

AT_ONCE = 64  # captions


def masks_of(rows: Sequence[Captioned]) -> np.ndarray | None:
    """(rows, things, side, side), if the file of captions has masks beside it and says what its words name."""
    if not rows or not all("names" in row.row and "mask" in row.row for row in rows):
        return None
    file = Path(rows[0].place.rpartition(":")[0])
    path = file.with_name(f"masks-{file.stem}.npz")
    if not path.is_file():
        return None
    masks = read_masks(path)
    numbers = [row.row["mask"] for row in rows]
    if not all(isinstance(number, int) and 0 <= number < len(masks) for number in numbers):
        raise DataError(f'{rows[0].place}: "mask" is not the number of a picture in {path}: write the scenes anew')
    for row in rows:
        check_names(row, masks.shape[1])
    return masks[numbers]


def check_names(row: Captioned, things: int) -> None:
    """Raises DataError unless each caption has its names: first character, the one behind the last, and a thing."""
    names = row.row["names"]
    right = isinstance(names, list) and len(names) == len(row.captions)
    right = right and all(isinstance(each, list) and all(is_name(one, things) for one in each) for each in names)
    if not right:
        raise DataError(
            f'{row.place}: "names" is not a list of [begin, end, thing] for each caption, with things below {things}: '
            f"write the scenes anew"
        )


def is_name(value: Any, things: int) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(type(each) is int and each >= 0 for each in value)
        and value[2] < things
    )


def regions_of(masks: np.ndarray, grid: int) -> np.ndarray:
    """(…, side, side) → (…, grid · grid) whether a region has a part of the thing. Borders of regions may cut through pixels."""
    side, place = masks.shape[-1], np.arange(grid)[:, None]
    pixel = np.arange(side)
    overlap = ((pixel + 1) * grid > place * side) & (pixel * grid < (place + 1) * side)  # (grid, side)
    rows = np.stack([masks[..., each, :].any(-2) for each in overlap], -2)  # (…, grid, side)
    return np.stack([rows[..., each].any(-1) for each in overlap], -1).reshape(*masks.shape[:-2], grid * grid)


@torch.inference_mode()
def point(
    learner: Any,
    tokenizer: Tokenizer,
    frame: PairFrame,
    size: PictureSize,
    rows: Sequence[Captioned],
    masks: np.ndarray,
    device: torch.device,
) -> dict[str, Any]:
    """The measures over all words that name a thing."""
    model = learner.backbone
    grid = round((size.regions - model.grid_offset) ** 0.5)
    on = regions_of(masks, grid)  # (rows, things, regions)
    captions = encode_captions(rows, tokenizer, None, "pointing", frame, size)
    texts = [
        (i, text, names)
        for i, row in enumerate(rows)
        for text, names in zip(row.captions, row.row["names"], strict=True)
    ]
    shares, hits, chances = [], [], []
    for first in range(0, len(texts), AT_ONCE):
        some = texts[first : first + AT_ONCE]
        batch = to_device(captions.batch(np.arange(first, first + len(some))), device)
        weights = model(batch, maps=True).cross[-1].float().mean(1).cpu().numpy()
        weights = weights[:, model.grid_offset : model.grid_offset + grid * grid]
        begins = batch.target.offsets.tolist()
        for (row, text, names), begin in zip(some, begins, strict=False):
            _, spots = tokenizer.encode_with_offsets(text)
            for place, (start, end) in enumerate(spots):
                thing = next((k for a, b, k in names if a <= start and end <= b), None)
                if thing is None or not on[row, thing].any():
                    continue
                there = weights[begin + len(frame.before) + place]
                shares.append(float(there[on[row, thing]].sum() / max(there.sum(), 1e-9)))
                hits.append(bool(on[row, thing][there.argmax()]))
                chances.append(float(on[row, thing].mean()))
    if not shares:
        return {}
    return {
        "attention_share": float(np.mean(shares)),
        "pointing": float(np.mean(hits)),
        "pointing_chance": float(np.mean(chances)),
        "named_words": len(shares),
    }

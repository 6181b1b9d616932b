"""Maps over pictures: light falls where the weight is, and nowhere else."""

import numpy as np
import pytest

from seqloom.analyse import caption_maps
from seqloom.analyse.caption_maps import DARK, SHOWN, PictureMaps, upsample


def brightest(row, column):
    """Where the map of one region is brightest, in regions."""
    weights = np.zeros((1, 16))
    weights[0, 4 * row + column] = 1
    maps = PictureMaps("a", np.full((64, 64, 3), 200, np.uint8), "a", ["a"], weights).map_of(0)
    assert maps.shape == (SHOWN, SHOWN, 3) and maps.max() <= 200 and maps.min() == pytest.approx(200 * DARK, abs=1)
    y, x = np.unravel_index(maps[..., 0].argmax(), maps.shape[:2])
    return int(y) * 4 // SHOWN, int(x) * 4 // SHOWN


def light_falls_where_the_weight_is():
    for row in range(4):
        for column in range(4):
            assert brightest(row, column) == (row, column)


def test_light_falls_where_the_weight_is():
    light_falls_where_the_weight_is()


def test_planted_maps_are_noticed(monkeypatch):
    monkeypatch.setattr(caption_maps, "upsample", lambda weights, side: upsample(weights.T, side))
    with pytest.raises(AssertionError):
        light_falls_where_the_weight_is()


def test_equal_weights_are_equally_bright():
    assert np.allclose(upsample(np.full((8, 8), 1 / 64), 192), 1 / 64)
    assert upsample(np.eye(8), 1024).shape == (1024, 1024)

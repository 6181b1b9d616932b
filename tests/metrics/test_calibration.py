"""Calibration: what is fitted is found again, thresholds are the best of all."""

import numpy as np
import pytest

from seqloom.metrics import calibration
from seqloom.metrics.calibration import best_threshold, calibration_error, fit_temperature, reliability, scale


def drawn(temperature, count=4000, classes=3, seed=0):
    """Logits that are too large by a factor, and classes drawn by what they should say."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(count, classes)) * 2
    probabilities = scale(logits, 1.0)
    gold = np.array([rng.choice(classes, p=row) for row in probabilities])
    return logits * temperature, gold


@pytest.mark.parametrize("temperature", [0.4, 1.0, 3.0])
def test_the_temperature_is_found_again(temperature):
    logits, gold = drawn(temperature)
    found = fit_temperature(logits, gold)
    assert found == pytest.approx(temperature, rel=0.06)

    def loss(value):
        return -np.log(scale(logits, value)[np.arange(len(gold)), gold]).mean()

    assert loss(found) <= min(loss(found * 1.02), loss(found / 1.02))
    errors = [
        calibration_error(reliability(scale(logits, each).max(1), logits.argmax(1) == gold)) for each in (1.0, found)
    ]
    assert errors[1] < 0.03 and (temperature == 1.0 or errors[0] > 0.05)
    # log-probabilities serve as well as logits
    assert fit_temperature(np.log(scale(logits, 1.0)), gold) == pytest.approx(found)


def test_a_temperature_has_bounds():
    logits = np.array([[5.0, 0.0], [0.0, 5.0]])
    assert fit_temperature(logits, np.array([0, 1])) == pytest.approx(calibration.MIN_TEMPERATURE, rel=1e-3)
    assert fit_temperature(logits, np.array([1, 0])) == pytest.approx(calibration.MAX_TEMPERATURE, rel=1e-3)


def test_the_calibration_error_by_hand():
    bins = reliability([0.95, 0.95, 0.91, 0.55, 1.0], [True, True, False, False, True])
    assert [(each.size, round(each.accuracy, 3)) for each in bins] == [(1, 0.0), (4, 0.75)]
    wanted = (0.55 + 4 * abs((0.95 + 0.95 + 0.91 + 1.0) / 4 - 0.75)) / 5
    assert calibration_error(bins) == pytest.approx(wanted)
    assert calibration_error([]) == 0


def f1_at(threshold, probabilities, positive):
    told = probabilities >= threshold
    return 2 * (told & positive).sum() / max(told.sum() + positive.sum(), 1)


@pytest.mark.parametrize("seed", range(20))
def test_no_threshold_is_better(seed):
    rng = np.random.default_rng(seed)
    probabilities = rng.integers(0, 12, 40) / 11  # many are equal
    positive = rng.random(40) < probabilities * 0.6
    positive[0] = True
    threshold, f1 = best_threshold(probabilities, positive)
    assert f1 == pytest.approx(f1_at(threshold, probabilities, positive))
    assert f1 == pytest.approx(max(f1_at(each, probabilities, positive) for each in np.linspace(0, 1, 400)))

import math

import pytest

from seqloom.training.schedule import ScheduleConfig, rate_factor


def factor(name, step, spent, drops=0, **options):
    return rate_factor(ScheduleConfig(name=name, **({"warmup": 10, "floor": 0.1} | options)), step, spent, drops)


def test_warm_up_is_linear():
    assert [factor("constant", step, 0) for step in (0, 4, 9, 10, 500)] == pytest.approx([0.1, 0.5, 1, 1, 1])
    assert factor("constant", 0, 0, warmup=0) == 1


def test_cosine():
    assert factor("cosine", 100, 0) == pytest.approx(1)
    assert factor("cosine", 100, 0.5) == pytest.approx(0.55)
    assert factor("cosine", 100, 1) == factor("cosine", 100, 1.7) == pytest.approx(0.1)


def test_linear():
    assert [factor("linear", 100, s) for s in (0, 0.5, 1)] == pytest.approx([1, 0.55, 0.1])


def test_inverse_square_root():
    """Rises to 1 at the end of the warm-up, then falls with the root of the step (Vaswani et al., 2017)."""
    assert factor("inverse_sqrt", 9, 0) == pytest.approx(1)
    assert factor("inverse_sqrt", 39, 0) == pytest.approx(math.sqrt(10 / 40))
    assert factor("inverse_sqrt", 4, 0) == pytest.approx(0.5)


def test_plateau():
    assert [factor("plateau", 100, 0.9, drops) for drops in (0, 1, 2, 10)] == pytest.approx([1, 0.5, 0.25, 0.1])


def test_trapezoid():
    assert [factor("trapezoid", 100, s, fall=0.2) for s in (0, 0.5, 0.8, 0.9, 1)] == pytest.approx([1, 1, 1, 0.55, 0.1])

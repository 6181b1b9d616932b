"""Ladders of budgets whose law is known, and how often fits are right about them.

    python -m tests.metrics.ladders        # the tables of docs/results

A ladder has budgets 3.2 times apart. Laws and noise are drawn anew for each: exponents from 0.1 to 0.8, offsets from 0.5 to 2,
and seeds that scatter by 0.5% to 5% of what the first budget is above the offset.
"""

import math
from typing import NamedTuple

import numpy as np

from seqloom.metrics.scaling import crossing, difference_at, fit_ladder, fit_ladders, who_is_ahead

FAR = 3.4  # times the largest budget
SHAPES = [(budgets, seeds) for budgets in (3, 4, 5) for seeds in (3, 4, 5)]
COLUMNS = ("exponent", "offset", "mean", "prediction")


class Law(NamedTuple):
    exponent: float
    offset: float
    first: float = 5e5

    def at(self, budget):
        return self.offset + (budget / self.first) ** -self.exponent


def draw_law(random):
    return Law(math.exp(random.uniform(math.log(0.1), math.log(0.8))), random.uniform(0.5, 2))


def draw_noise(random):
    return math.exp(random.uniform(math.log(0.005), math.log(0.05)))


def draw_losses(random, law, budgets, seeds, noise):
    return {x: law.at(x) + random.normal(0, noise, seeds) for x in (law.first * 3.2**i for i in range(budgets))}


def coverage(simulations, budgets, seeds, fit=fit_ladder):
    """How often the intervals of the exponent, the offset, the mean and the mean of 3 new seeds at 3.4 times the largest budget
    hold the truth; how often the exponent's is open to a side, how often the misfit is significant, and the median width of the
    prediction over the deviation of a seed."""
    random = np.random.default_rng([simulations, budgets, seeds])
    held, widths = np.zeros(6), []
    for _ in range(simulations):
        law, noise = draw_law(random), draw_noise(random)
        losses = draw_losses(random, law, budgets, seeds, noise)
        far, found = FAR * max(losses), fit(losses)
        new = float(random.normal(law.at(far), noise, 3).mean())
        exponent, predicted = found.exponent(), found.predict(far, 3)
        held += (
            exponent.contains(law.exponent),
            found.offset().contains(law.offset),
            found.mean_at(far).contains(law.at(far)),
            predicted.contains(new),
            exponent.low == 0 or not exponent.is_bounded,
            found.misfit < 0.05,
        )
        widths.append((predicted.high - predicted.low) / noise)
    return *(held / simulations).tolist(), float(np.median(widths))


def draw_crossing(random, budgets):
    """Two laws that cross once within the ladder, and where."""
    while True:
        a, b = Law(random.uniform(0.1, 0.3), random.uniform(0.5, 1)), Law(random.uniform(0.4, 0.8), 0)
        place = a.first * 3.2 ** random.uniform(0.3, budgets - 1.3)
        b = b._replace(offset=a.at(place) - b.at(place))
        places = np.geomspace(a.first, a.first * 3.2 ** (budgets - 1), 400)
        if np.count_nonzero(np.diff(np.sign(a.at(places) - b.at(places)))) == 1:
            return a, b, place


def two_rows(simulations, budgets, seeds):
    """Two rows whose laws cross within the ladder: how often the difference where they cross has 0 in its interval, how often a
    crossing is found, and how often its interval then holds the true one."""
    random = np.random.default_rng([simulations, budgets, seeds, 2])
    held = found = right = 0
    for _ in range(simulations):
        a, b, place = draw_crossing(random, budgets)
        noise = draw_noise(random)
        first, second = fit_ladders(
            {str(i): draw_losses(random, law, budgets, seeds, noise) for i, law in enumerate((a, b))}
        ).values()
        held += difference_at(first, second, place).contains(0)
        crossed = crossing(first, second).interval
        found += crossed is not None
        right += crossed is not None and crossed.contains(place)
    return held / simulations, found / simulations, right / max(found, 1)


def called_different(simulations, budgets, seeds):
    """How often one of two rows with the same law is said to be ahead at any budget of the ladder."""
    random = np.random.default_rng([simulations, budgets, seeds, 3])
    found = 0
    for _ in range(simulations):
        law, noise = draw_law(random), draw_noise(random)
        fits = fit_ladders({str(i): draw_losses(random, law, budgets, seeds, noise) for i in range(2)})
        found += any(each.ahead is not None for each in who_is_ahead(*fits.values()))
    return found / simulations


def main(simulations=2000):
    heads = [*COLUMNS, "exponent open", "misfit significant", "width of the prediction, deviations of a seed"]
    print(f"| budgets | seeds | {' | '.join(heads)} |\n|" + "---|" * (2 + len(heads)))
    for budgets, seeds in SHAPES:
        *rates, width = coverage(simulations, budgets, seeds)
        print(f"| {budgets} | {seeds} | {' | '.join(f'{rate:.1%}' for rate in rates)} | {width:.1f} |", flush=True)
    print(
        "\n| budgets | seeds | 0 in the interval at the crossing | crossing found | and held | equal rows called different |"
    )
    print("|---|---|---|---|---|---|")
    for budgets, seeds in ((3, 3), (4, 3), (5, 5)):
        few = simulations // 4
        rates = *two_rows(few, budgets, seeds), called_different(few, budgets, seeds)
        print(f"| {budgets} | {seeds} | {' | '.join(f'{rate:.1%}' for rate in rates)} |", flush=True)


if __name__ == "__main__":
    main()

"""Tables of scores in which the truth is known, and how often the statistics are right about it.

    python -m tests.metrics.simulations        # the tables of docs/results

A score is that of seed s on item i: what the seed adds, what the item adds (the same to all rows, and a smaller share that is
the row's own) and a rest. "numbers" are this sum. Outcomes, 0 or 1, say whether the sum is above a threshold; all of it is
normal, so the share of ones is known. How far seeds lie apart is told against how far means of so many items do.
"""

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from seqloom.metrics.differences import difference, difference_of_seeds, leaders
from seqloom.metrics.intervals import bootstrap, nested, student

SPREADS = {"small": 1 / 3, "equal": 1.0, "large": 3.0}  # the deviation of seeds over that of means of items
KINDS = {"numbers": None, "0/1 at 0.7": 0.7, "0/1 at 0.95": 0.95}
OWN = 0.5  # deviation of what an item adds to one row alone; what it adds to all rows has 1, and so has the rest


class Table(NamedTuple):
    rows: list[np.ndarray]  # each (simulations, seeds, items)
    truth: float  # of the first row


def tables(
    simulations: int, seeds: tuple[int, ...], items: int, spread: float, kind: str, gaps: tuple[float, ...] = ()
) -> Table:
    """A row for each number of seeds. gaps: by how much rows are better, in units of the sum."""
    random = np.random.default_rng([simulations, *seeds, items, round(100 * spread), len(kind)])
    common = random.normal(size=(simulations, 1, items))
    deviation = spread * math.sqrt((1 + OWN**2) / items)
    share = KINDS[kind]
    rows = []
    for i, S in enumerate(seeds):
        total = common + random.normal(scale=OWN, size=(simulations, 1, items))
        total = total + random.normal(scale=deviation, size=(simulations, S, 1))
        total += random.normal(size=(simulations, S, items)) + (gaps[i] if gaps else 0)
        if share is not None:
            total = (total > NormalDist().inv_cdf(1 - share) * math.sqrt(2 + OWN**2 + deviation**2)).astype(float)
        rows.append(total)
    return Table(rows, share or 0.0)


def over_seeds(simulations: int, seeds: int) -> float:
    """How often Student's interval holds the truth."""
    values = np.random.default_rng(seeds).normal(0.8, 0.05, (simulations, seeds))
    return float(np.mean([student(row).holds(0.8) for row in values]))


def over_items(simulations: int, items: int, kind: str, draws: int) -> float:
    """How often the bootstrap's interval holds the truth."""
    rows, truth = tables(simulations, (1,), items, 0.0, kind)
    return float(np.mean([bootstrap(row[0], draws=draws, seed=i).holds(truth) for i, row in enumerate(rows[0])]))


def over_both(simulations: int, seeds: int, items: int, spread: float, kind: str) -> tuple[float, float]:
    """How often the nested interval holds the truth, and its mean width over that of one who knows how far means scatter."""
    rows, truth = tables(simulations, (seeds,), items, spread, kind)
    found = [nested(row) for row in rows[0]]
    width = np.mean([each.high - each.low for each in found]) / (2 * 1.96 * rows[0].mean((1, 2)).std())
    return float(np.mean([each.holds(truth) for each in found])), float(width)


def told_apart(simulations: int, seeds: tuple[int, int], items: int, spread: float, kind: str, gap: float = 0) -> float:
    """How often two rows are called different; without a gap they are equal."""
    rows = tables(simulations, seeds, items, spread, kind, (gap, 0)).rows
    return float(np.mean([difference(a, b).p < 0.05 for a, b in zip(*rows, strict=True)]))


def seeds_told_apart(simulations: int, seeds: tuple[int, int], ratio: float = 1, gap: float = 0) -> float:
    """The same of one number a seed. ratio: the first row's deviation over the second's."""
    random = np.random.default_rng([simulations, *seeds, round(100 * ratio)])
    a = random.normal(gap, ratio, (simulations, seeds[0]))
    b = random.normal(0, 1, (simulations, seeds[1]))
    return float(np.mean([difference_of_seeds(x, y).p < 0.05 for x, y in zip(a, b, strict=True)]))


def among_equals(simulations: int, rows: int, seeds: int, items: int = 0, kind: str = "numbers") -> tuple[float, float]:
    """Of equal rows: how often one is named the winner, and how often any is told apart from the best. Without items rows have
    one number a seed."""
    if items:
        table = np.stack(tables(simulations, (seeds,) * rows, items, 1.0, kind).rows, 1)
    else:
        table = np.random.default_rng([simulations, rows, seeds]).normal(size=(simulations, rows, seeds))
    left = np.array([len(leaders(list(each))) for each in table])
    return float(np.mean(left == 1)), float(np.mean(left < rows))


def main(simulations: int = 2000) -> None:
    print("| over | kind | covered |\n|---|---|---|")
    for seeds in (3, 5, 10):
        print(f"| {seeds} seeds | numbers | {over_seeds(simulations, seeds):.1%} |")
    for items in (200, 1000):
        for kind in KINDS:
            print(f"| {items} items | {kind} | {over_items(simulations, items, kind, 500):.1%} |")

    print("\n| seeds | kind | spread | nested: covered | width | equal rows told apart |\n|---|---|---|---|---|---|")
    for seeds in (2, 3, 5, 10):
        for kind in KINDS:
            for name, spread in SPREADS.items():
                covered, width = over_both(simulations, seeds, 200, spread, kind)
                apart = told_apart(simulations, (seeds, seeds), 200, spread, kind)
                print(f"| {seeds} | {kind} | {name} | {covered:.1%} | {width:.2f} | {apart:.1%} |")

    print("\n| seeds | spread | deviation of seeds, points | nested: covered |\n|---|---|---|---|")
    for seeds in (3, 5, 10):
        for spread in (3.0, 5.0, 10.0):
            apart = over_both(simulations, seeds, 200, spread, "0/1 at 0.95")[0]
            points = tables(simulations, (seeds,), 200, spread, "0/1 at 0.95").rows[0].mean(2).std(1, ddof=1).mean()
            print(f"| {seeds} | {spread:.0f} | {100 * points:.1f} | {apart:.1%} |")

    print("\n| seeds | equal rows told apart | the first varies 3 times as much | a third as much |\n|---|---|---|---|")
    for pair in ((2, 2), (3, 3), (5, 5), (10, 10), (3, 5), (3, 10), (2, 10)):
        rates = [seeds_told_apart(simulations, pair, ratio) for ratio in (1, 3, 1 / 3)]
        print(f"| {pair[0]} and {pair[1]} | " + " | ".join(f"{rate:.1%}" for rate in rates) + " |")

    print("\n| seeds | found: gap 0.1 | 0.2 | 0.3 | 0.5 |\n|---|---|---|---|---|")
    for seeds in (3, 5, 10):
        rates = [told_apart(simulations, (seeds, seeds), 200, 1.0, "numbers", gap) for gap in (0.1, 0.2, 0.3, 0.5)]
        print(f"| {seeds} | " + " | ".join(f"{rate:.1%}" for rate in rates) + " |")

    print("\n| equal rows | seeds | items | a winner is named | any is told apart |\n|---|---|---|---|---|")
    for rows in (2, 3, 5, 8):
        for seeds, items in ((3, 0), (10, 0), (3, 200)):
            winner, dropped = among_equals(simulations, rows, seeds, items)
            print(f"| {rows} | {seeds} | {items or '–'} | {winner:.1%} | {dropped:.1%} |")


if __name__ == "__main__":
    main()

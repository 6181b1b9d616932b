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
from seqloom.metrics.intervals import Interval, Sample, bootstrap, by_set, nested, ratio_items, student
from seqloom.metrics.variances import pool

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
    return float(np.mean([student(row).contains(0.8) for row in values]))


def over_items(simulations: int, items: int, kind: str, draws: int) -> float:
    """How often the bootstrap's interval holds the truth."""
    rows, truth = tables(simulations, (1,), items, 0.0, kind)
    return float(np.mean([bootstrap(row[0], draws=draws, seed=i).contains(truth) for i, row in enumerate(rows[0])]))


def over_both(simulations: int, seeds: int, items: int, spread: float, kind: str) -> tuple[float, float]:
    """How often the nested interval holds the truth, and its mean width over that of one who knows how far means scatter."""
    rows, truth = tables(simulations, (seeds,), items, spread, kind)
    found = [nested(Sample(row, outcomes=KINDS[kind] is not None)) for row in rows[0]]
    width = np.mean([each.high - each.low for each in found]) / (2 * 1.96 * rows[0].mean((1, 2)).std())
    return float(np.mean([each.contains(truth) for each in found])), float(width)


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


# ---- items that come in sets, documents of unequal length, rows that are not random, pooled seeds


def clustered(random: np.random.Generator, seeds: tuple[int, ...], sets: int, each: int, kind: str) -> tuple[
    list[np.ndarray], np.ndarray, float, float
]:  # fmt: skip
    """Rows (S, sets · each), the set of every item, the truth over all sets, and that over all items of these sets (of the first
    row). A set adds as much as an item does, to all rows and half of it to each row alone; to each seed a third of it."""
    group = np.repeat(np.arange(sets), each)
    share, rows, truth = KINDS[kind], [], []
    common, items = random.normal(size=sets), random.normal(size=sets * each)
    deviation = 0.15  # of seeds
    for S in seeds:
        own = common + random.normal(scale=0.5, size=sets)
        template = own + random.normal(scale=1 / 3, size=(S, sets)) + random.normal(scale=deviation, size=(S, 1))
        total = (
            template[:, group]
            + items
            + random.normal(scale=OWN, size=sets * each)
            + random.normal(size=(S, sets * each))
        )
        if share is None:
            rows.append(total)
            truth.append(float(own.mean()))
            continue
        whole = math.sqrt(1.25 + 1 / 9 + deviation**2 + 2 + OWN**2)
        threshold = NormalDist().inv_cdf(1 - share) * whole
        rows.append((total > threshold).astype(float))
        rest = math.sqrt(whole**2 - 1.25)
        truth.append(float(np.mean([1 - NormalDist().cdf((threshold - x) / rest) for x in own])))
    return rows, group, share or 0.0, truth[0]


def interval_of_sets(row: np.ndarray, group: np.ndarray, by: str, outcomes: bool) -> Interval:
    """by: "set" or "item", or as if items had nothing in common."""
    sample = Sample(row, outcomes=outcomes)
    return nested(by_set(sample, group) if by == "set" else sample._replace(strata=group) if by == "item" else sample)


def over_sets(simulations: int, seeds: int, sets: int, each: int, kind: str, by: str) -> float:
    """How often the interval holds the truth: that of all sets, or by item that of all items of the same sets."""
    random, held = np.random.default_rng([simulations, seeds, sets, each, len(kind)]), 0
    outcomes = KINDS[kind] is not None
    for _ in range(simulations):
        (row,), group, over_all, over_these = clustered(random, (seeds,), sets, each, kind)
        held += interval_of_sets(row, group, by, outcomes).contains(over_these if by == "item" else over_all)
    return held / simulations


def sets_told_apart(simulations: int, seeds: int, sets: int, each: int, kind: str) -> float:
    """How often two equal rows are called different, for other sets."""
    random, found = np.random.default_rng([simulations, seeds, sets, each]), 0
    for _ in range(simulations):
        rows, group, *_ = clustered(random, (seeds, seeds), sets, each, kind)
        a, b = (by_set(Sample(row, outcomes=KINDS[kind] is not None), group) for row in rows)
        found += difference(a, b).p < 0.05
    return found / simulations


def over_documents(simulations: int, seeds: int, documents: int, spread: float = 1.0) -> tuple[float, float]:
    """Bits per byte of documents whose lengths are lognormal with that spread, the longer ones easier: how often the interval
    holds the ratio of all documents, and how often two equal rows are told apart."""
    random, held, apart = np.random.default_rng([simulations, seeds, documents, round(10 * spread)]), 0, 0
    truth = 2 - 0.1 * spread**2
    for _ in range(simulations):
        logs = random.normal(scale=spread, size=documents)
        sizes = np.exp(logs)
        hard = 2 - 0.1 * logs + random.normal(scale=0.2, size=documents)
        rows = []
        for _ in range(2):
            own = hard + random.normal(scale=0.05, size=documents) + random.normal(scale=0.03, size=(seeds, 1))
            scores, df = ratio_items((own + random.normal(scale=0.02, size=own.shape)) * sizes, sizes)
            rows.append(Sample(scores, df=df))
        held += nested(rows[0]).contains(truth)
        apart += difference(*rows).p < 0.05
    return held / simulations, apart / simulations


def over_deterministic(simulations: int, items: int, kind: str, copies: int = 3) -> tuple[float, float, int]:
    """A row without anything random in it, run several times: how often its interval holds the truth, how often two such rows
    that are equal are told apart, and how often an interval had no width or p was 0."""
    rows, truth = tables(simulations, (1, 1), items, 0.0, kind)
    held = apart = empty = 0
    for pair in zip(*rows, strict=True):
        a, b = (Sample(np.repeat(row, copies, 0), True, outcomes=KINDS[kind] is not None) for row in pair)
        interval, both = nested(a), difference(a, b)
        held += interval.contains(truth)
        apart += both.p < 0.05
        empty += interval.high <= interval.low or both.p == 0 or both.interval.high <= both.interval.low
    return held / simulations, apart / simulations, empty


def over_pool(simulations: int, rows: int, seeds: int, ratio: float = 1.0) -> tuple[float, float, float, float]:
    """One number a seed, pooled over rows where the test allows it; the first row's seeds lie `ratio` times as far apart. How
    often rows are pooled, how often the interval of the first row holds its truth, how often it is told apart from the second,
    which is equal, and the width of intervals over that without pooling."""
    table = np.random.default_rng([simulations, rows, seeds, round(10 * ratio)]).normal(size=(simulations, rows, seeds))
    table[:, 0] *= ratio
    pools = held = apart = 0
    width = alone = 0.0
    for each in table:
        together = pool([Sample(row) for row in each])
        assert together is not None
        samples = [Sample(row, pooled=together.component) for row in each]
        pools += together.component is not None
        held += student(samples[0]).contains(0)
        apart += difference_of_seeds(samples[0], samples[1]).p < 0.05
        width += sum(found.high - found.low for found in map(student, samples))
        alone += sum(found.high - found.low for found in map(student, each))
    return pools / simulations, held / simulations, apart / simulations, width / alone


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

    more(simulations // 2)


def more(simulations: int) -> None:
    print(
        "\n| sets | items each | seeds | kind | by set | by item | as if independent | equal rows told apart |\n|"
        + "---|" * 8
    )
    for sets, each in ((5, 4), (10, 20), (20, 10), (67, 15), (67, 75)):
        for seeds in (2, 3, 5, 10):
            for kind in KINDS:
                covered = [over_sets(simulations, seeds, sets, each, kind, by) for by in ("set", "item", "none")]
                apart = sets_told_apart(simulations, seeds, sets, each, kind)
                print(f"| {sets} | {each} | {seeds} | {kind} | {' | '.join(f'{x:.1%}' for x in (*covered, apart))} |")

    print("\n| items | seeds | kind | nested: covered | equal rows told apart |\n|---|---|---|---|---|")
    for items in (20, 100, 1000, 5000):
        for seeds in (2, 3, 5, 10):
            for kind in KINDS:
                count = simulations if items < 5000 else simulations // 4
                covered = over_both(count, seeds, items, 1.0, kind)[0]
                apart = told_apart(count, (seeds, seeds), items, 1.0, kind)
                print(f"| {items} | {seeds} | {kind} | {covered:.1%} | {apart:.1%} |")

    print("\n| documents | lengths | seeds | bits per byte: covered | equal rows told apart |\n|---|---|---|---|---|")
    for documents in (5, 20, 100, 1000):
        for spread in (0.3, 1.0):
            for seeds in (2, 3, 5, 10):
                covered, apart = over_documents(simulations, seeds, documents, spread)
                print(f"| {documents} | {spread} | {seeds} | {covered:.1%} | {apart:.1%} |")

    print(
        "\n| deterministic rows: items | kind | covered | equal rows told apart | no width, or p = 0 |\n|---|---|---|---|---|"
    )
    for items in (20, 100, 1000, 5000):
        for kind in KINDS:
            covered, apart, empty = over_deterministic(simulations, items, kind)
            print(f"| {items} | {kind} | {covered:.1%} | {apart:.1%} | {empty} |")

    print(
        "\n| rows | seeds | the first varies | pooled | its interval: covered | told apart from an equal row | width |"
    )
    print("|---|---|---|---|---|---|---|")
    for rows in (2, 4, 8):
        for seeds in (2, 3, 5, 10):
            for ratio in (1.0, 2.0, 5.0):
                pooled, covered, apart, width = over_pool(simulations, rows, seeds, ratio)
                print(
                    f"| {rows} | {seeds} | {ratio:.0f} × | {pooled:.0%} | {covered:.1%} | {apart:.1%} | {width:.2f} |"
                )


if __name__ == "__main__":
    main()

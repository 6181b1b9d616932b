"""The loader: the same batches with any number of workers, from any cursor, shared out to any number of ranks."""

from itertools import islice
from typing import NamedTuple

import pytest
import torch

from seqloom.batch import IGNORE, Excerpt
from seqloom.batches.loader import Cursor, Loader
from seqloom.batches.plan import Packed
from seqloom.errors import UsageError
from seqloom.randomness import derive_seed
from tests.corpus import numbered_corpus


class Noisy(NamedTuple):
    excerpt: Excerpt
    noise: torch.Tensor

    def sizes(self):
        return self.excerpt.sizes()


class Same:
    def corrupt(self, excerpt, rng):
        return Noisy(excerpt, torch.randint(0, 10**9, (1,), generator=rng))


def loader(workers=1, rank=0, world=1, seed=3):
    return Loader(Packed(numbered_corpus(1, 40, 30), 48, 12), Same(), seed, workers, rank, world)


def take(count, cursor=Cursor(), **options):
    items = loader(**options).items(cursor)
    try:
        return list(islice(items, count))
    finally:
        items.close()


def key(item):
    excerpt, noise = item.example
    return (
        excerpt.batch.ids.tolist(),
        excerpt.targets.tolist(),
        noise.item(),
        item.sizes.tokens,
        item.fresh,
        item.next,
    )


@pytest.mark.parametrize("workers", [0, 2, 5])
def test_any_number_of_workers(workers):
    assert [key(i) for i in take(60, workers=workers)] == [key(i) for i in take(60)]


def test_from_any_cursor():
    items = take(60)
    assert items[-1].next.epoch >= 1, "the test should go past an epoch"
    for n in (0, 1, 7, 30, 41):
        rest = take(60 - n - 1, items[n].next)
        assert [key(i) for i in rest] == [key(i) for i in items[n + 1 :]]


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_an_epoch(world):
    rounds = len(loader().plan(0)) // world
    shares = [take(rounds, rank=rank, world=world) for rank in range(world)]
    single = take(rounds * world)
    for i, item in enumerate(single):
        assert key(shares[i % world][i // world])[:3] == key(item)[:3]


def test_tokens_are_those_to_be_predicted():
    for item in take(40):
        assert item.sizes.tokens == int((item.example[0].targets != IGNORE).sum())


def test_too_many_ranks():
    with pytest.raises(UsageError, match="ranks"):
        take(1, world=1000)


def test_mix_is_fixed_and_spread():
    assert (
        derive_seed(0, 0) == derive_seed(0, 0)
        and len({derive_seed(a, b) for a in range(50) for b in range(50)}) == 2500
    )
    assert derive_seed(1, 2) != derive_seed(2, 1) and 0 <= derive_seed(10**12) < 2**63

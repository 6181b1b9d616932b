"""The loader: the same batches with any number of workers, from any cursor, shared out to any number of ranks."""

from collections import Counter
from itertools import islice
from typing import NamedTuple

import pytest
import torch

from seqloom.batch import IGNORE, Excerpt
from seqloom.batches.loader import Cursor, Loader
from seqloom.batches.plan import Packed, Streams
from seqloom.errors import UsageError
from seqloom.randomness import derive_seed
from seqloom.training.ranks import Ranks
from tests.corpus import numbered_corpus


class Noisy(NamedTuple):
    excerpt: Excerpt
    noise: torch.Tensor

    def sizes(self):
        return self.excerpt.sizes()


class Named(NamedTuple):
    rank: int
    world: int
    ordered: bool = False


class Same:
    def corrupt(self, excerpt, rng):
        return Noisy(excerpt, torch.randint(0, 10**9, (1,), generator=rng))


def loader(workers=1, seed=3, own=None, accumulate=1):
    found = Loader(Packed(numbered_corpus(1, 40, 30), 48, 12), Same(), seed, workers, accumulate)
    found.own = found.own if own is None else own
    return found


def streams(own=None, parts=4, reset=False, vary=False, workers=1):
    found = Loader(Streams(numbered_corpus(2, 40, 30), 6, 12, vary, reset), Same(), 3, workers, parts=parts)
    found.own = found.own if own is None else own
    return found


def take(count, cursor=Cursor(), make=loader, **options):
    items = make(**options).items(cursor)
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
        item.sizes[0].tokens,
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


@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_share_the_batches_of_a_step(world):
    """Each reads whole batches of its own, the cursor is that of the plan, and together they read what one would."""
    count = 4 * (len(loader().plan(0)) // 4)
    whole = take(count, accumulate=4)
    shares = [take(count, accumulate=4, own=Ranks.own(Named(rank, world), 4)) for rank in range(world)]
    for i, item in enumerate(whole):
        readers = [share[i] for share in shares if share[i].parts]
        assert (
            len(readers) == 1
            and list(readers[0].parts) == [i % 4]
            and all(share[i].next == item.next for share in shares)
        )
        assert key(readers[0])[:4] == key(item)[:4]


def read_in_an_epoch(make, world, **options):
    """How often each token is read in the first epoch, by all ranks together. Tokens have numbers of their own."""
    found = Counter()
    for rank in range(world):
        items = make(own=Ranks.own(Named(rank, world), 4), **options).items(Cursor())
        for item in items:
            if item.next.epoch > 0:
                break
            for example in item.parts.values():
                found.update(example.excerpt.batch.ids.tolist())
        items.close()
    return found


@pytest.mark.parametrize(("make", "options"), [(loader, {"accumulate": 4}), (streams, {"parts": 4})])
def test_an_epoch_has_the_same_text_on_any_number_of_ranks(make, options):
    alone = read_in_an_epoch(make, 1, **options)
    assert sum(alone.values()) > 500
    assert read_in_an_epoch(make, 2, **options) == read_in_an_epoch(make, 3, **options) == alone


def test_planted_loss_of_the_end_of_an_epoch_is_noticed(monkeypatch):
    """What was so once: batches that could not be shared equally were left out."""

    def short(found, cursor):
        for this, after in cursors(found, cursor):
            if this.batch < len(found.plan(this.epoch)) // len(found.own) * len(found.own):
                yield this, after

    cursors = Loader.cursors
    monkeypatch.setattr(Loader, "cursors", short)
    with pytest.raises(AssertionError):
        test_an_epoch_has_the_same_text_on_any_number_of_ranks(loader, {"accumulate": 4})


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("vary", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_ranks_share_the_rows_of_streams(world, vary, reset):
    """A state is carried over text without gaps: each rank reads its rows of every batch."""
    options = {"make": streams, "vary": vary, "reset": reset}
    whole = take(12, parts=1, **options)
    shares = [take(12, own=Ranks.own(Named(rank, world), 4), **options) for rank in range(world)]
    for i, item in enumerate(whole):
        parts = [(part, example) for share in shares for part, example in share[i].parts.items()]
        assert [part for part, _ in parts] == [0, 1, 2, 3]
        ids = [word for _, example in parts for word in example.excerpt.batch.ids.tolist()]
        assert ids == item.example.excerpt.batch.ids.tolist()
        assert len({example.noise.item() for _, example in parts}) == 4, "random numbers of their own"
        assert {share[i].length for share in shares} == {item.length}


def test_planted_streams_shared_by_batches_are_noticed(monkeypatch):
    def by_batch(found, plan, cursor, after, place=0):
        item = read(found, plan, cursor, after, place)
        return item if cursor.batch % 2 == found.own.start // 2 else item._replace(parts={})

    read = Loader.read
    monkeypatch.setattr(Loader, "read", by_batch)
    with pytest.raises(AssertionError):
        test_ranks_share_the_rows_of_streams(2, False, False)


def test_parts_that_cannot_be():
    with pytest.raises(UsageError, match=r"train.accumulate = 4 instead"):
        Loader(Packed(numbered_corpus(1, 40, 30), 48, 12), Same(), 0, parts=4)
    with pytest.raises(UsageError, match="more than the 6 streams"):
        streams(parts=7)


def test_tokens_are_those_to_be_predicted():
    for item in take(40):
        assert item.sizes[0].tokens == int((item.example.excerpt.targets != IGNORE).sum())


def test_mix_is_fixed_and_spread():
    assert (
        derive_seed(0, 0) == derive_seed(0, 0)
        and len({derive_seed(a, b) for a in range(50) for b in range(50)}) == 2500
    )
    assert derive_seed(1, 2) != derive_seed(2, 1) and 0 <= derive_seed(10**12) < 2**63

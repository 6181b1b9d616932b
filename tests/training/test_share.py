"""Work that ranks share by items: each item is computed once, and what is added up has the same bits for any number of them."""

import json
import threading

import pytest
import torch

from seqloom.batches.labelled import Examples
from seqloom.errors import Interrupted
from seqloom.evaluate.labelled import predict_examples
from seqloom.evaluate.masked import masked_loss
from seqloom.evaluate.perplexity import perplexity
from seqloom.training.ranks import Ranks
from seqloom.training.share import ALONE, SharedByRanks
from tests.contract.properties import build, learner_of
from tests.corpus import random_corpus
from tests.objectives.test_masked import learner as masked_learner
from tests.objectives.test_masked import passages
from tests.tasks.labelled import WORDS, examples, frame
from tests.tasks.labelled import learner as task_learner

CPU = torch.device("cpu")


class Threads(Ranks):
    """One of several ranks that are threads of this process."""

    def __init__(self, rank, world, table, barrier):
        super().__init__()
        self.rank, self.world, self.table, self.barrier = rank, world, table, barrier

    def gather_values(self, value):
        self.table[self.rank] = json.loads(json.dumps(value))
        self.barrier.wait(20)
        found = list(self.table)
        self.barrier.wait(20)
        return found


def together(world, work, stop=lambda rank: None, share=SharedByRanks):
    """What each of several threads finds, or the exception that it has raised."""
    table, barrier, found = [None] * world, threading.Barrier(world), [None] * world

    def one(rank):
        try:
            found[rank] = work(share(Threads(rank, world, table, barrier), lambda: stop(rank)))
        except Interrupted as error:
            found[rank] = error
        except BaseException as error:  # nobody waits for it
            found[rank] = error
            barrier.abort()

    threads = [threading.Thread(target=one, args=(rank,)) for rank in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("world", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("many", [0, 1, 5, 8])
def test_each_item_is_computed_once_and_found_in_order(world, many):
    computed = []
    found = together(world, lambda share: list(share.each(many, lambda i: computed.append(i) or [i, i / 3])))
    assert found == [[[i, i / 3] for i in range(many)]] * world
    assert sorted(computed) == list(range(many))


def test_all_leave_off_where_one_does():
    """A limit that all of them see: nobody waits for another one."""

    def until(share):
        total = 0
        for value in share.each(100, lambda i: i):
            total += value
            if total > 20:
                return total
        return None

    assert together(3, until) == [21, 21, 21]


@pytest.mark.parametrize("where", ["between items", "within an item"])
def test_one_that_is_asked_to_stop_stops_all(where):
    calls = []

    def stop(rank):
        if rank == 1 and len(calls) > 4:
            raise Interrupted("stopped")

    def work(share):
        def compute(i):
            calls.append(i)
            if where == "within an item":
                share.stop()
            return i

        return list(share.each(50, compute))

    assert all(isinstance(error, Interrupted) for error in together(3, work, stop))


class Twice(SharedByRanks):
    """Planted: the last round is not cut, and its first item is taken for every missing one."""

    def each(self, many, compute):
        for begin in range(0, many, self.world):
            item = begin + self.ranks.rank
            yield from self.ranks.gather_values(compute(item if item < many else begin))


def of_text(name):
    learner, corpus = learner_of(build(name, dtype=torch.float32)).eval(), random_corpus(4, 23, 30)
    return lambda share: perplexity(learner, corpus, CPU, max_len=16, batch_tokens=48, share=share)


def of_passages(limit=None):
    learner, held_out = masked_learner("electra").eval(), {"single": passages("single", 5000, 64, 512)}
    return lambda share: masked_loss(learner, held_out, CPU, limit=limit, share=share)


def of_examples():
    learner, asked = task_learner("tag", "bert").eval(), examples("tag", 23)
    rows, _ = learner.encode(asked, WORDS, frame(learner))
    return lambda share: predict_examples(learner, Examples(rows, 0, 0), asked, CPU, share, batch_tokens=64)


KINDS = {
    "sliding": lambda: of_text("gpt2"),
    "carried": lambda: of_text("lstm"),
    "masked": of_passages,
    "limited": lambda: of_passages(1500),
    "tag": of_examples,
}


def shares_agree(kind, worlds, share=SharedByRanks):
    torch.manual_seed(0)
    measure = KINDS[kind]()
    alone = measure(ALONE)
    lock = threading.Lock()

    class OneAtATime(share):
        """Threads have one random generator together."""

        def each(self, many, compute):
            def alone(i):
                with lock:
                    return compute(i)

            return super().each(many, alone)

    for world in worlds:
        for found in together(world, measure, share=OneAtATime):
            if isinstance(found, BaseException):
                raise found
            assert found == alone


@pytest.mark.parametrize("kind", KINDS)
def test_an_evaluation_has_the_same_bits_on_any_number_of_ranks(kind):
    shares_agree(kind, (2, 3, 4))


@pytest.mark.parametrize("kind", ["sliding", "carried", "masked", "tag"])
def test_planted_item_that_is_counted_twice_is_noticed(kind):
    with pytest.raises((AssertionError, ValueError, threading.BrokenBarrierError)):
        shares_agree(kind, (2, 3, 4), Twice)

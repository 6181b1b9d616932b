"""Training without gradients: counts n-grams of the training text and takes the discounts of Kneser–Ney from them.

Each document is read with the end token before it, as every model reads it, and no n-gram reaches over a document's border.
Sorting does it all: for each order the keys of all n-grams (see blocks/trie) are sorted once, in memory.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from seqloom import cost
from seqloom.batches.plan import Selection
from seqloom.batches.store import Ints, Split
from seqloom.errors import Interrupted, UsageError
from seqloom.objectives.counted import FALLBACK, Counted
from seqloom.progress import Progress, say
from seqloom.training.interrupt import Interruption
from seqloom.training.log import MetricsLog, OnLog
from seqloom.training.loop import Validate
from seqloom.training.share import Share
from seqloom.training.state import TrainState
from seqloom.weights import unique

Counts = npt.NDArray[np.int32]


def check_order(order: int, chosen: Selection) -> None:
    longest = int(chosen.lengths.max()) + 1  # with the end token before it
    if order > longest:
        raise UsageError(
            f"model.order = {order}: the longest document that is counted has {longest - 1} tokens with its end, so the "
            f"largest order is {longest}: --set model.order={longest}, or give longer documents"
        )


class Table(NamedTuple):
    """keys of the runs of 2 … order words (see Trie), and counts of the runs of 1 … order: as smoothing wants them."""

    keys: list[Ints]
    counts: list[Counts]


def count_ngrams(
    row: Ints, starts: Ints, order: int, vocab_size: int, note: Callable[[int], None] = lambda k: None
) -> Table:
    """Counts n-grams of documents end to end, each beginning (at `starts`) with the end token, which itself is not counted there.

    The longest runs get their counts, shorter ones the number of different words before them; those that begin with
    the end token, which nothing stands before, keep their counts.
    """
    first = np.zeros(len(row), bool)
    first[starts] = True
    raw: Ints = np.bincount(row[~first], minlength=vocab_size)
    keys: list[Ints] = []
    counts: list[Counts] = []
    number: Ints = row  # of the run of k − 1 words that ends at each token, −1: it would reach over a border
    low, high = int(row[0]), int(row[0]) + 1  # the runs that begin with the end token stand together
    note(1)
    for k in range(2, order + 1):
        before = np.empty_like(number)
        before[1:] = number[:-1]
        before[first] = -1
        place = np.flatnonzero(before >= 0)
        wanted = before[place] * vocab_size + row[place]
        del before
        by_key = np.argsort(wanted)
        wanted = wanted[by_key]
        new = np.ones(len(wanted), bool)
        new[1:] = wanted[1:] != wanted[:-1]
        begin = np.flatnonzero(new)
        # the run without its first word ends at the same token: each new run is one more word before that
        different = np.bincount(number[place[by_key[begin]]], minlength=len(raw))
        if k > 2:
            different[low:high] = raw[low:high]
        counts.append(different.astype(np.int32))
        keys.append(wanted[begin])
        raw = np.diff(begin, append=len(wanted))
        if k < order:
            number = np.full(len(row), -1)
            number[place[by_key]] = np.cumsum(new) - 1
        low, high = (int(x) for x in np.searchsorted(keys[-1], [low * vocab_size, high * vocab_size]))
        note(k)
    return Table(keys, [*counts, raw.astype(np.int32)])


def discounts(counts: Counts) -> tuple[float, float, float] | None:
    """D1, D2, D3+ from n1 … n4, the numbers of runs with a count of 1 … 4 (Chen & Goodman, eq. 26); None if undefined."""
    n1, n2, n3, n4 = (int(n) for n in np.bincount(np.minimum(counts, 5), minlength=6)[1:5])
    if not (n1 and n2 and n3 and n4):
        return None
    y = n1 / (n1 + 2 * n2)
    found = (1 - 2 * y * n2 / n1, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3)
    return found if all(0 < d <= i for i, d in enumerate(found, 1)) else None


def put(learner: Counted, table: Table) -> None:
    """Stores counts and discounts in a model."""
    trie, output, device = learner.backbone.trie, learner.softmax, learner.softmax.device
    for k, counts in enumerate(table.counts, 1):
        output.register_buffer(f"counts{k}", torch.from_numpy(counts).to(device))
        found = discounts(counts)
        if found is None:
            shown = ", ".join(map(str, FALLBACK))
            say(f"order {k}: the counts are too sparse to estimate Kneser–Ney discounts: using {shown}")
        output.discounts[k - 1] = torch.tensor(found or FALLBACK, dtype=torch.float64)
    for k, keys in enumerate(table.keys, 2):
        trie.register_buffer(f"keys{k}", torch.from_numpy(keys).to(device))
    output.validate_loaded()


class Count:
    """One run in a folder, in the place of the training loop: what `Fit` is for gradients."""

    def __init__(
        self,
        learner: Counted,
        split: Split,
        chosen: Selection,
        folder: Path,
        validate: Validate | None,
        keep: Callable[[dict[str, torch.Tensor]], None],
        on_log: OnLog | None = None,
    ):
        self.learner, self.split, self.chosen, self.folder = learner, split, chosen, folder
        self.validate, self.keep, self.on_log = validate, keep, on_log
        self.meter = cost.EnergyMeter(cuda=False)

    def run(self, resume: bool = False) -> TrainState:
        if resume and (self.folder / "card.md").exists():  # written last
            say(f"{self.folder} is finished already: give it more text in a new run")
            return TrainState(finished=True)
        started, tokens = time.monotonic(), int(self.chosen.lengths.sum())
        if tokens >= 1 << 31:
            raise UsageError(f"{tokens:,} tokens are more than can be counted: set a budget below {1 << 31:,}")
        say(f"counting {tokens:,} of {self.split.num_tokens:,} training tokens")
        with Interruption() as asked, self.interruptible():
            self.count(tokens, asked)
            state = TrainState(tokens=tokens, seconds=time.monotonic() - started, energy_method=self.meter.method)
            state.joules = self.meter.joules(state.seconds)
            state.device_seconds = self.meter.device_seconds(state.seconds)
            self.keep(unique(self.learner))
            if self.validate is not None:
                state.evaluation = self.validate(self.learner, Share(asked.check))
                state.best = state.best_loss = state.evaluation["loss"]
        log = MetricsLog(self.folder / "metrics.jsonl", 0, self.on_log)
        log.write({"step": 0, "tokens": tokens, "valid": state.best, "seconds": state.seconds})
        log.close()
        state.finished = True
        return state

    def count(self, tokens: int, asked: Interruption) -> None:
        order, vocab_size = self.learner.backbone.order, self.learner.backbone.trie.vocab_size
        with Progress("count", total=float(tokens * (order + 1)), unit="tokens") as bar:

            def note(k: int) -> None:
                bar.advance(tokens, note=f"{k}-grams")
                asked.check()

            lengths = self.chosen.lengths + 1
            row = self.split.read_many(self.chosen.starts - 1, lengths)  # from the end token before each
            table = count_ngrams(row, np.cumsum(lengths) - lengths, order, vocab_size, note)
            put(self.learner, table)
            bar.advance(tokens)

    @contextmanager
    def interruptible(self) -> Iterator[None]:
        try:
            yield
        except Interrupted as error:
            message = f"stopped while counting for {self.folder}: rerun the command with --resume to count again"
            raise Interrupted(message) from error

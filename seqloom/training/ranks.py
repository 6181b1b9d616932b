"""Several processes that train one model: who they are, and what they tell each other. Started by torchrun or `--ranks`.

What is computed does not depend on how many there are: a step is a fixed number of parts, each with its own text, random numbers
and carried state; ranks share the parts out and add up what they found. With `ordered` all sums are taken in one fixed tree, so
that any number of ranks gives the same bits as one process.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from seqloom.errors import OtherRankFailed, SeqloomError, UsageError
from seqloom.progress import say
from seqloom.training.interrupt import stop_with
from seqloom.training.launch import LAUNCHER

BUCKET = 1 << 24  # numbers that are summed at once
MEETING = timedelta(minutes=5)  # for all ranks to be there
LONGEST = timedelta(hours=2)  # the first rank alone evaluates, and the others wait; one that is gone is noticed at once
T = TypeVar("T")


class Ranks:
    """A process alone."""

    rank, world = 0, 1
    shares_device = False  # with another rank

    def __init__(self, ordered: bool = False):
        self.ordered = ordered

    @property
    def first(self) -> bool:
        """Whether it is the one that writes."""
        return self.rank == 0

    def own(self, parts: int) -> range:
        """The parts of a step that this process computes. With a tree of sums they are one branch of it: half of the ranks have
        half of the parts, and so on."""
        if not self.ordered:
            return range(parts * self.rank // self.world, parts * (self.rank + 1) // self.world)
        begin, low, high = 0, 0, self.world
        while high - low > 1:
            middle, parts = halfway(low, high), parts // 2
            low, high, begin = (low, middle, begin) if self.rank < middle else (middle, high, begin + parts)
        return range(begin, begin + parts)

    def sum_numbers(self, *numbers: float) -> list[float]:
        """Of all ranks."""
        return list(numbers)

    def from_first(self, value: Any) -> Any:
        """What the first one has; of the others it is ignored. Anything that JSON can say."""
        return value

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Each becomes the sum over all ranks."""

    def gather_rows(self, tensor: Tensor) -> Tensor:
        """The rows of all ranks, in their order."""
        return tensor

    def wait(self) -> None:
        """Until all are here."""

    def gather_values(self, value: Any) -> list[Any]:
        """What each one has, in their order. Anything that JSON can say."""
        return [value]

    def on_first(self, work: Callable[[], T]) -> T | None:
        """Does something on the first rank alone. If it fails there, all fail; the first says why."""
        failure: SeqloomError | None = None
        result = None
        if self.first:
            try:
                result = work()
            except SeqloomError as error:
                failure = error
        code = self.from_first(None if failure is None else failure.exit_code)
        if failure is not None:
            raise failure
        if code is not None:
            raise OtherRankFailed("the first rank has failed: see its message", code, said=True)
        return result

    def check_all(self, fine: bool, problem: str) -> None:
        """Raises UsageError on all ranks where something is not fine on one of them."""
        bad = self.sum_numbers(*(0.0 if fine or rank != self.rank else 1.0 for rank in range(self.world)))
        wrong = [str(rank) for rank, many in enumerate(bad) if many]
        if wrong:
            named = f"rank {wrong[0]}" if len(wrong) == 1 else f"ranks {', '.join(wrong)}"
            raise UsageError(f"{named}: {problem}") if self.first else OtherRankFailed(problem, 2, said=True)


class Several(Ranks):
    """One of several."""

    def __init__(self, device: torch.device, ordered: bool):
        super().__init__(ordered)
        env = os.environ
        self.rank, self.world = int(env["RANK"]), int(env["WORLD_SIZE"])
        local = int(env.get("LOCAL_WORLD_SIZE", self.world))
        self.shares_device = device.type == "cuda" and local > torch.cuda.device_count()
        self.on_host = device.type != "cuda" or self.shares_device
        if self.shares_device and self.first:
            say(
                f"{local} ranks share {torch.cuda.device_count()} GPU(s), which NCCL refuses: they talk over the host (gloo)"
            )
        if not dist.is_initialized():
            shared = env.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
            with left_alone():
                store: Any = dist.TCPStore(  # type: ignore[attr-defined]
                    env["MASTER_ADDR"], int(env["MASTER_PORT"]), self.world, self.first and not shared, MEETING
                )
                # torchrun keeps its store over restarts, with the addresses of processes that are gone
                name = f"seqloom-{env.get('TORCHELASTIC_RESTART_COUNT', 0)}"
                store = dist.PrefixStore(name, store)  # type: ignore[attr-defined]
                backend = "gloo" if self.on_host else "cpu:gloo,cuda:nccl"
                dist.init_process_group(backend, store=store, rank=self.rank, world_size=self.world, timeout=LONGEST)

    def sum_numbers(self, *numbers: float) -> list[float]:
        row = torch.tensor(numbers, dtype=torch.float64)  # on the host: nothing waits for a device
        with left_alone():
            dist.all_reduce(row)
        return row.tolist()

    def from_first(self, value: Any) -> Any:
        data = json.dumps(value).encode() if self.first else b""
        (size,) = self.sum_numbers(float(len(data)))
        row = (
            torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(int(size), dtype=torch.uint8)
        )
        with left_alone():
            dist.broadcast(row, 0)
        return json.loads(bytes(row.tolist()))

    def sum_tensors(self, tensors: Sequence[Tensor]) -> None:
        bucket: list[Tensor] = []
        for tensor in tensors:
            if bucket and sum(each.numel() for each in bucket) + tensor.numel() > BUCKET:
                self._sum_bucket(bucket)
                bucket = []
            bucket.append(tensor)
        if bucket:
            self._sum_bucket(bucket)

    def _sum_bucket(self, tensors: list[Tensor]) -> None:
        flat = torch.cat([tensor.flatten() for tensor in tensors])
        there = flat.cpu() if self.on_host else flat
        with left_alone():
            if self.ordered:
                self._sum_branch(there, 0, self.world)
                dist.broadcast(there, 0)
            else:
                dist.all_reduce(there)
        sizes = [tensor.numel() for tensor in tensors]
        for tensor, new in zip(tensors, there.split(sizes), strict=True):
            tensor.copy_(new.view_as(tensor))

    def _sum_branch(self, flat: Tensor, low: int, high: int) -> None:
        """Gives the first of these ranks, low … high − 1, the sum of them all: that of one half plus that of the other."""
        if high - low == 1:
            return
        middle = halfway(low, high)
        self._sum_branch(flat, *((low, middle) if self.rank < middle else (middle, high)))
        if self.rank == middle:
            dist.send(flat, low)
        elif self.rank == low:
            other = torch.empty_like(flat)
            dist.recv(other, middle)
            flat += other

    def gather_rows(self, tensor: Tensor) -> Tensor:
        mine = tensor.cpu().contiguous() if self.on_host else tensor.contiguous()
        sizes = self.sum_numbers(*(float(len(mine)) if rank == self.rank else 0.0 for rank in range(self.world)))
        most = int(max(sizes))  # gloo gathers tensors of one shape
        padded = torch.cat((mine, mine.new_zeros(most - len(mine), *mine.shape[1:])))
        parts = [torch.empty_like(padded) for _ in sizes]
        with left_alone():
            dist.all_gather(parts, padded)
        return torch.cat([part[: int(size)] for part, size in zip(parts, sizes, strict=True)]).to(tensor.device)

    def gather_values(self, value: Any) -> list[Any]:
        data = json.dumps(value).encode()
        sizes = self.sum_numbers(*(float(len(data)) if rank == self.rank else 0.0 for rank in range(self.world)))
        padded = torch.frombuffer(bytearray(data.ljust(int(max(sizes)))), dtype=torch.uint8)
        parts = [torch.empty_like(padded) for _ in sizes]
        with left_alone():
            dist.all_gather(parts, padded)
        return [json.loads(part.numpy().tobytes()) for part in parts]

    def wait(self) -> None:
        self.sum_numbers(0.0)


def halfway(low: int, high: int) -> int:
    """Where the second half of some ranks begins."""
    return (low + high + 1) // 2


@contextmanager
def left_alone() -> Iterator[None]:
    """A rank that is gone is said to be so."""
    try:
        yield
    except RuntimeError as error:
        raise other_rank_left(error) from error


def other_rank_left(error: Exception) -> OtherRankFailed:
    said = " ".join(str(error).split())[:100]
    rank = os.environ.get("RANK", 0)
    return OtherRankFailed(f"rank {rank}: another rank has left, or cannot be reached: see its message ({said})", 1)


def is_of_network(error: Exception) -> bool:
    """Whether torch raised it because another rank did not answer: gloo has no class of its own for that."""
    return isinstance(error, dist.DistError) or "gloo" in str(error)


def join(device: torch.device, ordered: bool = False, shard: bool = False) -> Ranks:
    """The ranks that this process is one of, by the environment that torchrun sets. shard: whether they share out the weights."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 and not (shard and "RANK" in os.environ):
        return Ranks(ordered)
    launcher = os.environ.get(LAUNCHER)
    if launcher is not None and int(launcher) == os.getppid():
        stop_with(int(launcher))
    return Several(device, ordered)


def is_first() -> bool:
    """Whether this process is the first rank, or the only one."""
    return os.environ.get("RANK", "0") == "0"


class TreeSum:
    """Sums of lists of tensors, pairwise: ((0+1)+(2+3))+…, whichever process adds which block of them."""

    def __init__(self) -> None:
        self.heap: list[tuple[int, list[Tensor]]] = []

    def add(self, tensors: list[Tensor]) -> None:
        size = 1
        while self.heap and self.heap[-1][0] == size:
            _, before = self.heap.pop()
            torch._foreach_add_(before, tensors)
            tensors, size = before, 2 * size
        self.heap.append((size, tensors))

    def total(self) -> list[Tensor]:
        while len(self.heap) > 1:
            (_, last), (size, before) = self.heap.pop(), self.heap.pop()
            torch._foreach_add_(before, last)
            self.heap.append((size, before))
        return self.heap[0][1]


class Sums:
    """The sums of a step over its parts: of their losses and targets, and of their gradients, which `ordered` adds up in a tree,
    first those of each part, then of neighbours; else they are added up where they arise."""

    def __init__(self, parameters: Sequence[Tensor], ordered: bool):
        self.parameters, self.ordered = parameters, ordered
        self.totals: list[Tensor] = []
        self.counts: list[Tensor] = []
        self.trees: dict[int, TreeSum] = {}
        self.used = [False] * len(parameters)

    def add(self, part: int, total: Tensor, count: Tensor) -> None:
        self.totals.append(total)
        self.counts.append(count)
        if self.ordered:
            gradients = []
            for i, parameter in enumerate(self.parameters):
                self.used[i] |= parameter.grad is not None
                gradients.append(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
                parameter.grad = None
            self.trees.setdefault(part, TreeSum()).add([*gradients, total.double().reshape(1)])

    def result(self) -> tuple[Tensor, Tensor]:
        """The loss and the number of targets."""
        count = torch.stack(self.counts).sum()
        if not self.ordered:
            return torch.stack(self.totals).sum(), count
        whole = TreeSum()
        for part in sorted(self.trees):
            whole.add(self.trees[part].total())
        *gradients, total = whole.total()
        for parameter, gradient, used in zip(self.parameters, gradients, self.used, strict=True):
            parameter.grad = gradient if used else None
        return total.reshape(()), count


def check_parts(ranks: Ranks, parts: int, streams: bool) -> None:
    """Every rank must have a part; a tree of sums has a power of two of them."""
    name = "train.parts" if streams else "train.accumulate"
    if ranks.world > parts:
        smaller = "" if streams else f", and batches of 1/{ranks.world} for as many tokens a step"
        raise UsageError(
            f"{ranks.world} ranks, but {parts} part{'s' * (parts > 1)} a step: --set {name}={ranks.world}{smaller}"
        )
    if ranks.world > 1 and ranks.ordered and parts & (parts - 1):
        raise UsageError(
            f"--deterministic adds up in a tree and needs 2, 4, 8, … parts a step, not {parts}: --set {name}=…"
        )

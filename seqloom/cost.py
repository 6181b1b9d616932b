"""The cost of a model: floating-point operations of its matrix products, energy, CO2.

A multiply and an add are two operations; element-wise work (norms, activations, softmax) is not counted, as everywhere.
Forward cost has these parts: so much a token, so much a pair of tokens that attention compares (the quadratic term: a
sequence of L tokens has L² pairs, causal or not, as kernels are counted; with a window those that stand nearer to each other
than it reaches, causal or not, so that a window as long as the sequence costs what none costs; with a memory those with each
token of it, too, and so much for making keys and values of it again), so much a target (the output
layer); where a source is read first, the same of its tokens and pairs, and so much for each pair of a token and one of its
source.
Backward is exactly twice the forward: each product has two gradients; products without any (hashes) have no backward, and layers
that are computed anew for their gradient (reversible ones) run forward once more. Filler that completes a batch is not counted.
An adaptive softmax is counted at what a target costs on average, by how often the training text asks each cluster.
"""

import ctypes
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from torch import nn

from seqloom.batch import Learner, Sizes
from seqloom.blocks.alignment import Alignment
from seqloom.blocks.attention import CrossAttention, SelfAttention
from seqloom.blocks.block_product import BlockProduct
from seqloom.blocks.cells import TorchCell
from seqloom.blocks.characters import CharacterCnn
from seqloom.blocks.convolution import Convolutions
from seqloom.blocks.experts import Experts
from seqloom.blocks.glimpse import HardCell
from seqloom.blocks.lsh import LshAttention
from seqloom.blocks.multi_step import MultiStepAttention
from seqloom.blocks.pictures import Cnn
from seqloom.blocks.relative import RelativeAttention
from seqloom.blocks.reversible import ReversibleStack
from seqloom.blocks.skewed import SkewedAttention
from seqloom.blocks.softmax import Softmax
from seqloom.blocks.stack import Stack
from seqloom.blocks.two_streams import TwoStreamAttention


class Flops(NamedTuple):
    """Operations of one forward pass for each token, pair of tokens and target, and for those of a source."""

    token: int = 0
    pair: int = 0
    target: int = 0
    source_token: int = 0
    source_pair: int = 0
    cross: int = 0
    # of attention over a window: how far it reaches, and so much a pair
    near: tuple[tuple[int, int], ...] = ()
    source_near: tuple[tuple[int, int], ...] = ()
    # of attention over a memory: tokens in it, and so much a pair of a token and one that it sees or might see, a token of the
    # memory, and a distance
    memories: tuple[tuple[int, int, int, int], ...] = ()
    # of attention in both directions by distance: the same, a distance of a token after the memory's, and whether targets look,
    # too
    orders: tuple[tuple[int, int, int, int, int, bool], ...] = ()
    # of attention over chunks: tokens of one, so much a pair, and whether it is computed once more for its gradient
    chunks: tuple[tuple[int, int, bool], ...] = ()
    # of each token: products without a gradient, and those that are computed once more for theirs
    once: int = 0
    again: int = 0
    sequence: int = 0  # of each sequence

    def plus(self, other: "Flops", times: int = 1) -> "Flops":
        """Added to these, so many times; what is near is listed, so many times."""
        both: Any = zip(self, other, strict=True)
        return Flops(*(a + times * b for a, b in both))

    def forward(self, sizes: Sizes) -> int:
        return (
            (self.token + self.once) * sizes.read
            + self.target * sizes.targets
            + self.pair * sizes.pairs
            + self.source_token * sizes.source_tokens
            + self.source_pair * sizes.source_pairs
            + self.cross * sizes.cross
            + over_windows(self.near, sizes.lengths)
            + over_windows(self.source_near, sizes.source_lengths)
            + over_memories(self.memories, sizes.lengths)
            + over_orders(self.orders, sizes)
            + over_chunks(self.chunks, sizes.lengths)
            + self.sequence * len(sizes.lengths)
        )

    def backward(self, sizes: Sizes) -> int:
        again = over_chunks((part for part in self.chunks if part[2]), sizes.lengths)
        return 2 * self.forward(sizes) + (self.again - 2 * self.once) * sizes.read + again

    def training(self, sizes: Sizes, extra_forwards: int = 0) -> int:
        return (1 + extra_forwards) * self.forward(sizes) + self.backward(sizes)

    def computed_anew(self) -> "Flops":
        """The same in layers that keep nothing for the backward pass."""
        return self._replace(again=self.token, chunks=tuple((size, cost, True) for size, cost, _ in self.chunks))

    def over_source(self, stretch: float = 1.0) -> "Flops":
        """The same, run over the source. stretch: so many times as many tokens are read as it has."""
        token = round(self.token * stretch)
        return Flops(source_token=token, source_pair=self.pair, cross=self.cross, source_near=self.near)


def over_windows(near: Iterable[tuple[int, int]], lengths: Iterable[int]) -> int:
    """Layers with one window share the count of their pairs: this is asked at every step."""
    each: Counter[int] = Counter()
    for window, cost in near:
        each[window] += cost
    return sum(cost * pairs_within(window, lengths) for window, cost in each.items())


def pairs_within(window: int, lengths: Iterable[int]) -> int:
    """Pairs of tokens in one sequence, either order and each with itself, that a window reaches across: 2 Σ min(i, window) − L
    of L tokens, and so L² where it is no shorter."""
    reached = ((min(length, window), length) for length in lengths)
    return sum(whole * whole + (length - whole) * (2 * window - 1) for whole, length in reached)


def over_memories(memories: Iterable[tuple[int, int, int, int]], lengths: Sequence[int]) -> int:
    """Every sequence has a memory, full or not, and all share the distances."""
    squares, tokens, longest = sum(length * length for length in lengths), sum(lengths), max(lengths, default=0)
    return sum(
        pair * (squares + kept * tokens) + key * kept * len(lengths) + distance * (kept + longest)
        for kept, pair, key, distance in memories
    )


def over_orders(orders: Iterable[tuple[int, int, int, int, int, bool]], sizes: Sizes) -> int:
    """A token is compared with all K of its memory and its sequence of L, and with the K + L − 1 distances between them; a target
    likewise, in a sequence of the usual length."""
    tokens, longest = sum(sizes.lengths), max(sizes.lengths, default=0)
    squares, found = sum(length * length for length in sizes.lengths), 0
    for kept, pair, place, key, distance, asked in orders:
        each = pair * (squares + kept * tokens) + place * (2 * squares + (kept - 1) * tokens)
        found += each + (each * sizes.targets // max(tokens, 1) if asked else 0)
        found += key * kept * len(sizes.lengths) + distance * (kept + 2 * longest - 1)
    return found


def over_chunks(chunks: Iterable[tuple[int, int, bool]], lengths: Iterable[int]) -> int:
    """A token is compared with its chunk and the one before it, whether they are full or not."""
    each: Counter[int] = Counter()
    for size, cost, _ in chunks:
        each[size] += cost
    return sum(cost * sum(2 * min(size, length) * length for length in lengths) for size, cost in each.items())


def _attention(mixer: SelfAttention) -> Flops:
    each = 4 * mixer.num_heads * mixer.head_dim  # QKᵀ and weights · V
    return Flops(pair=each) if mixer.window is None else Flops(near=((mixer.window, each),))


def _relative(mixer: RelativeAttention) -> Flops:
    width, dim = mixer.num_heads * mixer.head_dim, mixer.out.out_features
    each = 6 * width  # by content, by distance, and weights · V
    # what is made of memory and distances has a gradient for its weights alone: counted as two thirds, as training has it
    return Flops(memories=((mixer.memory, each, 4 * dim * width * 2 // 3, 2 * dim * width * 2 // 3),))


def _orders(mixer: TwoStreamAttention, memory: int = 0, asked: bool = False) -> Flops:
    """asked: it has a second stream over targets, whose queries have neither keys nor values."""
    width, dim = mixer.num_heads * mixer.head_dim, mixer.out.out_features
    key, distance = 4 * dim * width * 2 // 3, 2 * dim * width * 2 // 3  # as of memories
    order = (memory, 4 * width, 2 * width, key, distance, asked)
    return Flops(orders=(order,), target=-4 * dim * width if asked else 0)


def with_second_stream(module: nn.Module, part: Flops) -> Flops:
    """Of a module that runs over targets as it does over tokens."""
    if isinstance(module, TwoStreamAttention):
        return _orders(module, module.memory, asked=True)
    return part.plus(Flops(target=part.token))


def _hashed(mixer: LshAttention) -> Flops:
    """Each token of each round is compared with two chunks, and with every direction of its hash."""
    each = mixer.num_heads * mixer.head_dim * mixer.rounds
    return Flops(chunks=((mixer.chunk, 4 * each, False),), once=2 * each * mixer.directions)


def _recurrent(cell: TorchCell) -> Flops:
    kernel = cell.kernel
    return Flops(token=2 * sum(weight.numel() for name, weight in kernel.named_parameters() if "weight" in name))


def _characters(cnn: CharacterCnn) -> Flops:
    return Flops(token=2 * sum(cnn.starts(each.kernel_size[0]) * each.weight.numel() for each in cnn.convolutions))


# one line a block that multiplies matrices of its own; what is inside a counted block is not counted again
PARTS: dict[type[nn.Module], tuple[str, Callable[[Any], Flops]]] = {
    nn.Linear: ("linear", lambda m: Flops(token=2 * m.in_features * m.out_features)),
    SelfAttention: ("attention", _attention),
    RelativeAttention: ("attention", _relative),
    SkewedAttention: ("attention", lambda m: Flops(pair=6 * m.num_heads * m.head_dim)),  # and Q · E_rᵀ
    TwoStreamAttention: ("attention", _orders),
    LshAttention: ("attention", _hashed),
    CrossAttention: ("cross attention", lambda m: Flops(cross=4 * m.num_heads * m.head_dim)),
    MultiStepAttention: ("cross attention", lambda m: Flops(cross=4 * m.embedding_dim)),
    HardCell: ("cross attention", lambda m: Flops(cross=2 * m.alignment.hidden_dim)),  # the mean, and what was drawn
    Alignment: ("cross attention", lambda m: Flops(cross=2 * (m.score.multiplied + m.hidden_dim))),
    TorchCell: ("recurrence", _recurrent),
    Experts: ("experts", lambda m: Flops(token=2 * m.chosen * (m.up.weight[0].numel() + m.down.weight[0].numel()))),
    Convolutions: ("convolutions", lambda m: Flops(token=2 * sum(each.weight.numel() for each in m.filters))),
    Cnn: ("convolutions", lambda m: Flops(token=m.per_region)),
    CharacterCnn: ("characters", _characters),  # the convolutions; what stands above them is linear
    # backward counts twice the forward: of a product with one gradient that is too much by a third
    BlockProduct: ("windows", lambda m: Flops(token=m.per_token * (1 + m.gradients) // 3)),
    Softmax: ("softmax", lambda m: Flops(target=2 * m.multiplied)),  # and what is built on it
}


def count(learner: nn.Module) -> dict[str, Flops]:
    """The operations of a learner by kind, summed over its modules."""
    found: dict[str, Flops] = {}
    # what is done once a sequence of text is as good as nothing
    left_out = modules_named(learner, "once") | modules_named(learner, "unused")
    changes = list_changes(learner)
    repeated = {
        part: stack.repeat for stack in learner.modules() if isinstance(stack, Stack) for part in stack.modules()
    }
    for module in learner.modules():
        kind = next((kind for kind in type(module).__mro__ if kind in PARTS), None)
        if kind is None or module in left_out:
            continue
        name, measure = PARTS[kind]
        part = measure(module)
        for modules, change in changes:
            if module in modules:
                part = change(module, part)
        found[name] = found.get(name, Flops()).plus(part, repeated.get(module, 1))
    return found


def modules_named(learner: nn.Module, place: str) -> set[nn.Module]:
    """The modules of the parts that modules of a learner name in this attribute."""
    parts = [getattr(owner, name) for owner in learner.modules() for name in getattr(owner, place, ())]
    return {module for part in parts if part is not None for module in part.modules()}


def list_changes(learner: nn.Module) -> list[tuple[set[nn.Module], Callable[[nn.Module, Flops], Flops]]]:
    """The modules that do not run once over every token, and what their operations change to, one after the other."""
    each_sequence = modules_named(learner, "each_sequence")
    stretch = getattr(getattr(learner, "backbone", learner), "source_stretch", 1.0)
    stacks = (stack for stack in learner.modules() if isinstance(stack, ReversibleStack) and stack.recompute)
    return [
        ({module for stack in stacks for module in stack.layers.modules()}, lambda _, part: part.computed_anew()),
        (modules_named(learner, "over_source") - each_sequence, lambda _, part: part.over_source(stretch)),
        (each_sequence, lambda _, part: Flops(sequence=part.token)),
        (modules_named(learner, "over_targets"), lambda _, part: Flops(target=part.token)),
        (modules_named(learner, "over_tokens"), lambda _, part: Flops(token=part.target)),
        (modules_named(learner, "second_stream"), with_second_stream),
        # they read one thing more than the tokens of a sequence
        (modules_named(learner, "once_more"), lambda _, part: part._replace(sequence=part.token)),
    ]


def total(learner: nn.Module) -> Flops:
    return reduce(Flops.plus, count(learner).values(), Flops())


def of_training(learner: Learner) -> Callable[[Sizes], int]:
    """What a step costs that learns from a batch of these sizes. A frozen backbone has no backward pass, and no forward pass
    where its states were computed before."""
    heads = getattr(learner, "tasks", None)
    if heads is not None:  # of several tasks on one body a step is of one
        costs = [of_training(head) for head in heads]
        return lambda sizes: costs[sizes.task](sizes)
    whole = total(learner)
    frozen = total(learner.backbone) if getattr(learner, "frozen", False) else Flops()  # type: ignore[arg-type]
    if getattr(learner, "reads_kept", False):
        return lambda sizes: whole.training(sizes) - frozen.training(sizes)
    return lambda sizes: whole.training(sizes, learner.extra_forwards) - frozen.backward(sizes)


# dense bf16 operations a second, from the makers' data sheets
PEAK = {"H200": 989e12, "H100": 989e12, "A100": 312e12, "L40S": 362e12, "L4": 121e12, "RTX 4090": 165e12}


def peak_of(device_name: str) -> float | None:
    return next((rate for name, rate in PEAK.items() if name in device_name), None)


def cores() -> int:
    """That this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


class DeviceLog:
    """Which jobs had the device when, written by all of them into one file, a line an event. While several have it, its time and
    its joules are divided equally between them."""

    METHOD = "divided equally, moment by moment, between the jobs that ran at the same time"

    def __init__(self, path: Path):
        self.path = path

    def note(self, job: int, event: str, joules: float | None = None) -> None:
        """event: "begin" or "end". joules: what the device has used since any time; None where that is not known."""
        line = json.dumps({"job": job, "event": event, "time": time.monotonic(), "joules": joules})
        with open(self.path, "a", encoding="utf-8") as file:
            file.write(line + "\n")

    def share(self, since: float, until: float, joules: tuple[float, float] | None = None) -> tuple[float, float]:
        """The seconds and joules of one job that had the device in this time. joules: what the device had used at either end."""
        known = {} if joules is None else dict(zip((since, until), joules, strict=True))
        open_jobs: set[int] = set()
        changes = []  # when the number of jobs changed, and to which
        for event in self.events():
            (open_jobs.add if event["event"] == "begin" else open_jobs.discard)(event["job"])
            changes.append((event["time"], max(len(open_jobs), 1)))
            if event["joules"] is not None:
                known[event["time"]] = event["joules"]
        times = np.array([moment for moment, _ in changes])
        active = np.array([1, *(number for _, number in changes)])  # before the first event, and from each of them on
        borders = np.array([since, *times[(times > since) & (times < until)], until])
        weights = 1 / active[np.searchsorted(times, borders[:-1], side="right")]
        seconds = float((np.diff(borders) * weights).sum())
        if joules is None:
            return seconds, 0.0
        points = sorted(known)
        used = np.interp(borders, points, [known[point] for point in points])
        return seconds, float((np.diff(used) * weights).sum())

    def events(self) -> list[dict[str, Any]]:
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
            return sorted((json.loads(line) for line in lines), key=lambda event: event["time"])
        except (OSError, ValueError, LookupError, TypeError):
            return []  # nobody else is known of


SHARED: DeviceLog | None = None  # where this process is one of several jobs


class EnergyMeter:
    """Joules since it was made. On NVIDIA GPUs the driver's own counter; elsewhere an estimate, and called so. Of a device that
    several jobs of a comparison have at the same time, this one's share."""

    WATTS_PER_CORE = 10.0  # a server CPU under load, memory included: 200–400 W for 24–64 cores

    def __init__(self, cuda: bool):
        self.read, self.method = self._counter() if cuda else (None, "")
        self.begin = self.read() if self.read is not None else 0.0
        self.began = time.monotonic()
        self.cores = cores()
        if self.read is None:
            self.method = f"estimate: {self.WATTS_PER_CORE:.0f} W × {self.cores} cores × seconds"
        if SHARED is not None:
            self.method += f"; {SHARED.METHOD}"

    def counter(self) -> float | None:
        return None if self.read is None else self.read()

    def joules(self, seconds: float) -> float:
        if self.read is None:
            return self.WATTS_PER_CORE * self.cores * self.device_seconds(seconds)
        now = self.read()
        if SHARED is None:
            return now - self.begin
        return SHARED.share(self.began, time.monotonic(), (self.begin, now))[1]

    def device_seconds(self, seconds: float) -> float:
        """Of these seconds since it was made, those that the device was this job's alone, as it were."""
        now = time.monotonic()
        if SHARED is None or now <= self.began:
            return seconds
        return seconds * SHARED.share(self.began, now)[0] / (now - self.began)

    @staticmethod
    def _counter() -> tuple[Callable[[], float] | None, str]:
        """NVML's total energy of device 0, called through its C interface: one function needs no package."""
        try:
            library = ctypes.CDLL("libnvidia-ml.so.1")
            handle, value = ctypes.c_void_p(), ctypes.c_ulonglong()
            ready = library.nvmlInit_v2() == 0 and library.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(handle)) == 0
            if not ready or library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value)) != 0:
                return None, ""
        except (OSError, AttributeError):
            return None, ""

        def read() -> float:
            library.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(value))
            return value.value / 1000.0

        return read, "NVML energy counter of GPU 0 (the whole card; host and cooling are not in it)"


# grams of CO2 equivalents a kWh of electricity in 2023: Ember, as tabled by Our World in Data; the world average by Ember
GRAMS_PER_KWH = {
    "world": 481, "AT": 111, "AU": 549, "BE": 138, "BR": 98, "CA": 170, "CN": 582, "CZ": 450, "DE": 381, "DK": 152,
    "FI": 79, "FR": 56, "IE": 291, "IN": 713, "NO": 30,
}  # fmt: skip


def co2_kg(kwh: float, country: str) -> float:
    return kwh * GRAMS_PER_KWH.get(country, GRAMS_PER_KWH["world"]) / 1000


def peak_memory_mb(cuda: bool) -> float | None:
    if cuda:
        import torch

        return torch.cuda.max_memory_allocated() / 2**20
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), None)

"""Probes: how well a small classifier tells labels from the frozen states of a layer.

A high score alone may be the classifier's work, so there is more beside it:

control        the same words with labels that were drawn at random for each word form: only memory helps. Selectivity is the
               score on the task minus that on the control. Hewitt & Liang, 2019 (arXiv 1909.03368)
code           the bits in which labels can be sent with a probe that is trained on what was sent before, in portions that
               double: the shorter, the more easily the labels are found. Voita & Titov, 2020 (arXiv 2003.12298)
centre         the mean layer by the weights of a probe that mixes all of them. Tenney et al., 2019 (arXiv 1905.05950)
"""

import math
import zlib
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from seqloom.batch import exact
from seqloom.errors import DataError

Kind = Literal["linear", "mlp"]
HIDDEN = 128  # of a probe with a hidden layer
STEPS = 600  # of training
BATCH = 512
RATE = {"linear": 0.01, "mlp": 0.003}
DECAY = 1e-3  # of weights, so that a probe of few examples does not overfit
FIRST_PORTION = 1 / 128  # of the examples: sent without a probe


class Item(NamedTuple):
    """A stretch of a text, or two, and its label."""

    text: int  # number of its text
    spans: tuple[tuple[int, int], ...]  # characters, from and to
    label: str
    form: str  # what a control label is drawn for


class Items(NamedTuple):
    texts: list[str]
    items: list[Item]
    places: list[str]  # of the texts, for messages

    @property
    def owners(self) -> np.ndarray:
        """(n,) the text of each item."""
        return np.array([item.text for item in self.items])


class Data(NamedTuple):
    """What a probe is trained on or tested by."""

    states: np.ndarray  # (n, layers, D), or (n, layers, 2 · D) of pairs of stretches
    labels: np.ndarray  # (n,) numbers; −1: one that was never trained
    control: np.ndarray  # (n,)
    owners: np.ndarray  # (n,) the text of each, whose items are not independent


def number_labels(train: Sequence[str], test: Sequence[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    """The labels of training, sorted, and both as numbers."""
    names = sorted(set(train))
    if len(names) < 2:
        raise DataError(f"all {len(train):,} training labels are {names[0]!r}: there is nothing to probe for")
    numbers = {name: i for i, name in enumerate(names)}
    return names, np.array([numbers[each] for each in train]), np.array([numbers.get(each, -1) for each in test])


def control_labels(forms: Sequence[str], shares: np.ndarray, seed: int) -> np.ndarray:
    """(n,) a label for each form, the same wherever it stands, drawn with the shares of the real labels."""
    borders = np.cumsum(shares)
    draws = np.array([zlib.crc32(f"{seed}:{form}".encode()) for form in forms]) / 2**32
    return np.minimum(np.searchsorted(borders, draws, side="right"), len(shares) - 1)


class Scaled(NamedTuple):
    """States with mean 0 and deviation 1 over the training examples: layers of any scale are probed alike."""

    train: Tensor
    test: Tensor


def scale(train: Tensor, test: Tensor) -> Scaled:
    mean, deviation = train.mean(0), train.std(0, unbiased=False).clamp(min=1e-6)
    return Scaled((train - mean) / deviation, (test - mean) / deviation)


class Mixed(nn.Module):
    """A linear probe of a weighted mean of all layers."""

    def __init__(self, layers: int, width: int, labels: int):
        super().__init__()
        self.weights = nn.Parameter(torch.zeros(layers))
        self.out = nn.Linear(width, labels)

    def forward(self, states: Tensor) -> Tensor:
        return self.out(torch.einsum("nld,l->nd", states, self.weights.softmax(0)))


def new_probe(kind: Kind, width: int, labels: int) -> nn.Module:
    if kind == "linear":
        return nn.Linear(width, labels)
    return nn.Sequential(nn.Linear(width, HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, labels))


def train_probe(
    probe: nn.Module, states: Tensor, labels: Tensor, rate: float, seed: int, share: float = 1.0
) -> nn.Module:
    """By Adam, the rate falling to zero, in a share of the usual steps. The same seed gives the same probe on one machine."""
    steps = max(round(share * STEPS), 1)
    order = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(probe.parameters(), lr=rate, weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 0.5 * (1 + math.cos(math.pi * step / steps)))
    size = min(BATCH, len(labels))
    for _ in range(steps):
        chosen = torch.randint(len(labels), (size,), generator=order).to(states.device)
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(probe(states[chosen]), labels[chosen]).backward()
        optimizer.step()
        schedule.step()
    return probe.eval()


def seeded(kind: Kind, width: int, labels: int, seed: int, device: torch.device) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return new_probe(kind, width, labels).to(device)


@torch.no_grad()
def right(probe: nn.Module, states: Tensor, labels: Tensor) -> np.ndarray:
    """(n,) whether each label is found."""
    return exact(probe(states).argmax(1) == labels).cpu().numpy()


class LayerScores(NamedTuple):
    """Of the probe of one layer."""

    right: np.ndarray  # (seeds, n) of each test example
    control: np.ndarray | None  # (seeds, n)
    bits: float | None  # of the training labels, sent by the online code
    uniform_bits: float | None  # of the same, sent without any knowledge


def probe_layer(
    train: Data,
    test: Data,
    layer: int,
    names: int,
    *,
    kind: Kind,
    seeds: int,
    control: bool,
    code: bool,
    device: torch.device,
) -> LayerScores:
    """All that is measured of one layer."""
    states = scale(
        *(torch.from_numpy(np.ascontiguousarray(data.states[:, layer])).to(device) for data in (train, test))
    )
    width = states.train.shape[1]

    def outcomes(which: Literal["labels", "control"]) -> np.ndarray:
        known, asked = (torch.from_numpy(getattr(data, which)).to(device) for data in (train, test))
        return np.stack([
            right(
                train_probe(seeded(kind, width, names, seed, device), states.train, known, RATE[kind], seed), states.test, asked
            )
            for seed in range(seeds)
        ])  # fmt: skip

    bits = online_code(states.train, torch.from_numpy(train.labels).to(device), names, kind) if code else None
    uniform = len(train.labels) * math.log2(names) if code else None
    return LayerScores(outcomes("labels"), outcomes("control") if control else None, bits, uniform)


def online_code(states: Tensor, labels: Tensor, names: int, kind: Kind) -> float:
    """Bits: the first portion without any knowledge, each further one by a probe of all before it."""
    order = torch.randperm(len(labels), generator=torch.Generator().manual_seed(0)).to(labels.device)
    states, labels = states[order], labels[order]
    border = max(round(len(labels) * FIRST_PORTION), 1)
    total = border * math.log2(names)
    while border < len(labels):
        end = min(2 * border, len(labels))
        probe = seeded(kind, states.shape[1], names, 0, states.device)
        train_probe(probe, states[:border], labels[:border], RATE[kind], 0, 0.5)
        with torch.no_grad():
            loss = F.cross_entropy(probe(states[border:end]), labels[border:end], reduction="sum").item() / math.log(2)
        total += min(loss, (end - border) * math.log2(names))  # a sender may always do without
        border = end
    return total


def layer_weights(train: Data, names: int, device: torch.device) -> np.ndarray:
    """(layers,) how much a probe of all layers takes of each."""
    states = torch.from_numpy(train.states).to(device)
    states = (states - states.mean(0)) / states.std(0, unbiased=False).clamp(min=1e-6)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        probe = Mixed(states.shape[1], states.shape[2], names).to(device)
    train_probe(probe, states, torch.from_numpy(train.labels).to(device), RATE["linear"], 0, 2.0)
    return exact(probe.weights.softmax(0).detach()).cpu().numpy()

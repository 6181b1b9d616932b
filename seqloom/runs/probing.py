"""probe: what the layers of trained runs know, asked by small classifiers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from seqloom.analyse.probe import Data, Items, control_labels, layer_weights, number_labels, probe_layer
from seqloom.analyse.probe_items import check_pairs, read_items
from seqloom.analyse.probe_page import ProbedRun, Probing
from seqloom.blocks.pooling import check_layers
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.features import LayerReader
from seqloom.progress import Progress, say

TRAIN, TEST = 20_000, 10_000  # items that are read unless others are asked for
AT_ONCE = 256  # texts between two signs of progress
UNALIGNED = 0.01  # of the stretches: with more of them the labels are taken for misplaced


def probe(
    runs: Any,
    train: str | Path | Sequence[str | Path],
    test: str | Path | Sequence[str | Path],
    *,
    layers: str = "all",
    kind: Literal["linear", "mlp"] = "linear",
    control: bool = False,
    code: bool = False,
    seeds: int = 1,
    most_train: int = TRAIN,
    most_test: int = TEST,
    device: str = "auto",
) -> Probing:
    """How well labels can be found in the frozen states of each layer.

    Args:
        runs: a run, loaded or its folder, or several; each in its own way of reading texts.
        train: a file with labels, or one for each task; see `seqloom probe --help` for its forms.
        test: as many, in the same order.
        layers: "all", or the number of one; 0 is the embedding.
        kind: of the classifiers: "linear", or "mlp" with a hidden layer.
        control: probe for labels that were drawn at random for each word form, too.
        code: measure the length of the online code, too.
        seeds: classifiers of each layer, which differ in their first weights and in the order of examples.
        most_train: labels that are read of each training file, whole texts at a time.
        most_test: labels that are read of each test file.
        device: of runs that are folders.
    """
    several = [runs] if isinstance(runs, str | Path) or hasattr(runs, "reading") else list(runs)
    pairs = tasks_of(as_list(train), as_list(test))
    if kind not in ("linear", "mlp"):
        raise UsageError(f"--probe {kind}: choose linear or mlp")
    data = {task: (read_items(a, most_train), read_items(b, most_test)) for task, (a, b) in pairs.items()}
    for task, both in data.items():
        check_pairs(*both, tuple(map(str, pairs[task])))  # type: ignore[arg-type]
    found = []
    names = run_names(several)
    for name, run in zip(names, several, strict=True):
        loaded = open_run(run, device)
        for task, (first, second) in data.items():
            found.append(probe_run(loaded, name, task, first, second, layers, kind, control, code, seeds))
    return Probing(found, kind)


def as_list(given: str | Path | Sequence[str | Path]) -> list[Path]:
    return [Path(given)] if isinstance(given, str | Path) else [Path(each) for each in given]


def open_run(run: Any, device: str) -> Any:
    from seqloom.runs.load import load  # a cycle otherwise: what is loaded can be probed

    return load(run, device) if isinstance(run, str | Path) else run


def run_names(runs: Sequence[Any]) -> list[str]:
    folders = [Path(run) if isinstance(run, str | Path) else run.folder for run in runs]
    short = [folder.name for folder in folders]
    return short if len(set(short)) == len(short) else [str(folder) for folder in folders]


def tasks_of(train: list[Path], test: list[Path]) -> dict[str, tuple[Path, Path]]:
    """The files of each task by its name, which is that of its training file."""
    if len(train) != len(test) or not train:
        raise UsageError(f"--train has {len(train)} files and --test {len(test)}: give one of each for every task")
    names = [path.name.split(".")[0] for path in train]
    if len(set(names)) < len(names):
        names = [str(path) for path in train]
    return dict(zip(names, zip(train, test, strict=True), strict=True))


def probe_run(
    run: Any,
    name: str,
    task: str,
    train: Items,
    test: Items,
    layers: str,
    kind: Any,
    control: bool,
    code: bool,
    seeds: int,
) -> ProbedRun:
    labels, known, asked = number_labels([each.label for each in train.items], [each.label for each in test.items])
    shares = np.bincount(known, minlength=len(labels)) / len(known)
    states = [read_states(run, name, items, layers) for items in (train, test)]
    first, second = (
        Data(found, numbers, control_labels([each.form for each in items.items], shares, 0), items.owners)
        for found, numbers, items in zip(states, (known, asked), (train, test), strict=True)
    )
    scores = []
    with Progress(f"probe {name} for {task}", total=states[0].shape[1], unit="layers") as bar:
        for layer in range(states[0].shape[1]):
            asks = {"kind": kind, "seeds": seeds, "control": control, "code": code, "device": run.device}
            scores.append(probe_layer(first, second, layer, len(labels), **asks))
            bar.advance(1)
    weights = layer_weights(first, len(labels), run.device) if states[0].shape[1] > 1 else None
    majority = float((asked == shares.argmax()).mean())
    return ProbedRun(name, task, scores, test.owners, majority, weights, len(known), len(labels))


def read_states(run: Any, name: str, items: Items, layers: str) -> np.ndarray:
    """(items, layers, width): the states of each item, those of two stretches side by side."""
    reading = run.reading
    stack = getattr(reading.encoder.backbone, "stack", None)
    depth = 1 if stack is None else len(stack.unrolled_layers)
    check_layers(layers, depth, "--layers", ["all"])
    try:
        chosen = [layers] if layers != "all" or reading.encoder.shape("all") else []
    except UsageError:  # layers of different widths are read one by one, the narrow ones with zeros behind
        chosen = [str(i) for i in range(depth + 1)]
    parts = [read_layer(LayerReader(reading, each, "auto", name), items) for each in chosen]
    if len(parts) == 1:
        number = reading.encoder.shape("all")[0] if layers == "all" else 1
        n, spans, width = parts[0].shape
        found = parts[0].reshape(n, spans, number, width // number)
    else:
        widest = max(part.shape[2] for part in parts)
        found = np.stack([np.pad(part, ((0, 0), (0, 0), (0, widest - part.shape[2]))) for part in parts], 2)
    return np.ascontiguousarray(found.transpose(0, 2, 1, 3)).reshape(len(found), found.shape[2], -1)


def read_layer(reader: LayerReader, items: Items) -> np.ndarray:
    """(items, spans, width)"""
    spans = len(items.items[0].spans)
    stretches: list[list[tuple[int, int]]] = [[] for _ in items.texts]
    for item in items.items:
        stretches[item.text] += item.spans
    out = np.zeros((len(items.items) * spans, reader.width), np.float32)
    reached = missing = 0
    with Progress(f"read {reader.name}", total=len(items.texts), unit="texts") as bar:
        for i in range(0, len(items.texts), AT_ONCE):
            some = [np.array(each, np.int64).reshape(-1, 2) for each in stretches[i : i + AT_ONCE]]
            size = sum(map(len, some))
            missing += reader.features(items.texts[i : i + AT_ONCE], some, out[reached : reached + size])
            reached += size
            bar.advance(len(some))
    if missing > 1 + UNALIGNED * len(out):
        raise DataError(
            f"{reader.name}: {missing:,} of {len(out):,} labelled stretches have no token of it: the labels do not align "
            f"with its tokens (first text: {items.places[0]})"
        )
    if missing:
        say(f"{reader.name}: {missing:,} of {len(out):,} labelled stretches have no token and are read as zeros")
    return out.reshape(len(items.items), spans, reader.width)

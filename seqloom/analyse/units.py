"""What single units of a recurrent model follow. Karpathy et al., 2015 (arXiv 1506.02078).

The text is read once, as one; every unit's value after every token is compared with what is true of the text there: inside
quotes, the place in the line, indentation, digits, capitals … Units are chosen by their correlation on the first half of the
text and checked on the second: of thousands of units some follow anything by chance. Most follow nothing that has a name; the
ones that do so least are shown, too.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np

from seqloom.analyse.cells import activations, rows
from seqloom.blocks.views import SourceView
from seqloom.config import unknown_name
from seqloom.errors import DataError, UsageError
from seqloom.evaluate.encode import Reading

LONGEST = 40_000  # characters that are read
WAYS = ("", "forward.", "backward.")  # of layers with one direction, and with two
LEFT, RIGHT = 0.1, 0.9  # a gate below or above is saturated
SIGMOID = ("input", "forget", "output", "reset", "update")  # gates between 0 and 1


def running(text: str, after: Callable[[float, str], float]) -> np.ndarray:
    """(characters,) a number that each character changes."""
    found, value = np.zeros(len(text)), 0.0
    for i, character in enumerate(text):
        value = after(value, character)
        found[i] = value
    return found


def indentation(text: str) -> np.ndarray:
    """The blanks that the line of each character begins with."""
    lines = text.split("\n")
    return np.concatenate([np.full(len(line) + 1, len(line) - len(line.lstrip(" \t"))) for line in lines])[: len(text)]


def in_brackets(value: float, character: str) -> float:
    return max(value + (character in "([{") - (character in ")]}"), 0.0)


# what may be true of a text after each of its characters
PREDICATES: dict[str, Callable[[str], np.ndarray]] = {
    "inside quotes": lambda text: running(text, lambda value, c: 1 - value if c in '"“”„' else value),
    "inside brackets": lambda text: np.minimum(running(text, in_brackets), 3),
    "place in the line": lambda text: np.minimum(running(text, lambda value, c: 0 if c == "\n" else value + 1), 100),
    "place in the word": lambda text: np.minimum(running(text, lambda value, c: value + 1 if c.isalnum() else 0), 12),
    "place in the sentence": lambda text: np.minimum(
        running(text, lambda value, c: 0 if c in ".!?" else value + 1), 200
    ),
    "indentation": indentation,
    "a digit": lambda text: np.array([float(c.isdigit()) for c in text]),
    "a capital": lambda text: np.array([float(c.isupper()) for c in text]),
    "a blank": lambda text: np.array([float(c.isspace()) for c in text]),
    "a vowel": lambda text: np.array([float(c.lower() in "aeiou") for c in text]),
    "punctuation": lambda text: np.array([float(not c.isalnum() and not c.isspace()) for c in text]),
    "place in the text": lambda text: np.arange(len(text)) / max(len(text), 1),
}


class Follows(NamedTuple):
    """The unit that follows something best on the first half of a text."""

    predicate: str
    unit: str
    first: float  # correlation on the first half
    second: float  # and on the second


class Units(NamedTuple):
    """Units over a text."""

    pieces: list[str]  # what each token stands for, with the blanks behind it
    values: dict[str, np.ndarray]  # by layer and state (tokens, units): tanh(cell), or h where there is no cell
    gates: dict[str, np.ndarray]  # by layer and gate (tokens, units), from 0 to 1
    found: list[Follows]  # best on the second half first
    least: list[tuple[str, float]]  # units that follow nothing, and their best correlation
    mirrored: bool = False  # lines are read from their end


def read_units(reading: Reading, text: str) -> Units:
    backbone, tokenizer, device = reading.encoder.backbone, reading.tokenizer, reading.encoder.device
    if not any(getattr(backbone, "gates", ())):
        raise UsageError("--show cells is for recurrent models, whose units have states, and this model has none")
    if reading.backward:
        raise UsageError("--show cells is for models that read from the beginning of a text")
    text = text[:LONGEST]
    is_source = isinstance(backbone, SourceView)
    parts = list(source_rows(reading, text) if is_source else rows(backbone, tokenizer, iter([text]), device))
    if not parts:
        raise DataError("the text is empty: give a longer one, twenty tokens at least")
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    spans = arrays.pop("offsets")
    del arrays["tokens"]
    if len(spans) < 20:
        raise DataError(f"the text has {len(spans)} tokens: give a longer one, twenty at least")
    values: dict[str, np.ndarray] = {}
    for i in range(len(backbone.gates)):
        cells = {name: np.tanh(arrays[name]) for name in (f"layer{i}.{way}cell" for way in WAYS) if name in arrays}
        values |= cells or {f"layer{i}.h": arrays[f"layer{i}.h"]}
    gates = {name: array for name, array in arrays.items() if name.rpartition(".")[2] in SIGMOID}
    found, least = search(values, text, spans)
    mirrored = is_source and bool(getattr(getattr(backbone, "encoder", None), "reverse", False))
    return Units(pieces_of(text, spans), values, gates, found, least, mirrored)


def source_rows(reading: Reading, text: str) -> Iterator[dict[str, np.ndarray]]:
    """What `rows` gives, of an encoder that reads sources: every line is one, as when it is translated."""
    encoder, begin = reading.encoder, 0
    for number, line in enumerate(text.split("\n"), 1):
        ids, spans = reading.tokenizer.encode_with_offsets(line)
        if ids:
            row = [*encoder.before, *ids, *encoder.after]
            limit = encoder.backbone.max_len
            if limit is not None and len(row) > limit:
                raise DataError(f"line {number} has {len(row):,} tokens, and the model reads {limit:,}: split it")
            own = slice(len(encoder.before), len(encoder.before) + len(ids))
            found = activations(encoder.backbone, [row], encoder.device)
            offsets = np.array(spans, np.int64).reshape(-1, 2) + begin
            yield {name: values[own] for name, values in found.items()} | {"tokens": np.array(ids), "offsets": offsets}
        begin += len(line) + 1


def pieces_of(text: str, spans: np.ndarray) -> list[str]:
    ends = [*spans[1:, 0].tolist(), len(text)]
    return [text[a : max(b, end)] for (a, b), end in zip(spans.tolist(), ends, strict=True)]


def correlations(values: np.ndarray, target: np.ndarray) -> np.ndarray:
    """(units,) Pearson's; 0 for a unit, or a target, that never changes."""
    x, y = values - values.mean(0), target - target.mean()
    scale = np.sqrt(np.square(x).sum(0) * np.square(y).sum())
    return np.where(scale > 1e-12, (x * y[:, None]).sum(0) / np.maximum(scale, 1e-12), 0.0)


def search(
    values: dict[str, np.ndarray], text: str, spans: np.ndarray
) -> tuple[list[Follows], list[tuple[str, float]]]:
    """Of each predicate the unit that follows it best on the first half, and the units that follow none."""
    names = [f"{name}.{i}" for name, array in values.items() for i in range(array.shape[1])]
    every = np.concatenate([array.astype(np.float64) for array in values.values()], 1)
    half, last = len(every) // 2, np.maximum(spans[:, 1] - 1, 0)
    best = np.zeros(len(names))
    found = []
    for name, predicate in PREDICATES.items():
        target = predicate(text)[np.minimum(last, len(text) - 1)].astype(float)
        if not np.ptp(target[:half]) or not np.ptp(target[half:]):
            continue  # it never changes in this text
        first, second = correlations(every[:half], target[:half]), correlations(every[half:], target[half:])
        best = np.maximum(best, np.abs(first))
        unit = int(np.abs(first).argmax())
        found.append(Follows(name, names[unit], float(first[unit]), float(second[unit])))
    lively = every.std(0) > 1e-3
    order = [int(i) for i in np.argsort(best, kind="stable") if lively[i]]
    return sorted(found, key=lambda each: -abs(each.second)), [(names[i], float(best[i])) for i in order[:5]]


def unit_values(units: Units, name: str) -> np.ndarray:
    """(tokens,) of one unit by its name, such as layer0.cell.17."""
    place, _, number = name.rpartition(".")
    if place not in units.values:
        raise UsageError(unknown_name("--unit", name, place, [f"{each}.NUMBER" for each in units.values]))
    width = units.values[place].shape[1]
    if not number.isdecimal() or int(number) >= width:
        raise UsageError(f"--unit {name}: {place} has the units 0 to {width - 1}: choose one of them")
    return units.values[place][:, int(number)]


def saturation(gate: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """(units,) the share of the time that a gate is closed, and open."""
    return (gate < LEFT).mean(0), (gate > RIGHT).mean(0)

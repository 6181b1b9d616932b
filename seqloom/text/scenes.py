"""Scenes of coloured shapes with captions and questions, made by a rule: what attention should look at is known.

A scene has one to four things on a grid of cells: circles, squares and triangles in six colours and two sizes, no two of one
colour and shape. It is drawn with noise; a thing may stick out of its cell and hide a part of another one. Five captions name the
first two things in reading order, by a grammar whose every word is known to name one of them or none. Questions are of six
kinds, with four choices each. Some combinations of a colour and a shape are held out: they occur in the split `composed` alone.

Everything is a function of the seed and the number of the scene.
"""

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from seqloom.errors import DataError
from seqloom.files import explained, make_folder, write_bytes, write_json
from seqloom.progress import Progress
from seqloom.text.images import DAMAGED, brief

SIDE = 64  # pixels
SHAPES = ("circle", "square", "triangle")
COLOURS = {
    "red": (220, 50, 40), "green": (50, 170, 70), "blue": (50, 90, 220),
    "yellow": (235, 205, 50), "purple": (150, 60, 180), "white": (235, 235, 235),
}  # fmt: skip
SIZES = {"small": 0.27, "large": 0.45}  # radius, in cells
HELD_OUT = (("red", "triangle"), ("blue", "circle"), ("yellow", "square"))
MOST_THINGS = 4
NUMBERS = ("no", "one", "two", "three", "four")
PLACES = ("top left", "top right", "bottom left", "bottom right")
SPLITS = {"train": 3000, "valid": 300, "test": 500, "composed": 300}  # scenes
KINDS = ("colour", "count", "where", "shape", "exists", "left")


class Thing(NamedTuple):
    shape: str
    colour: str
    size: str
    row: int
    column: int

    @property
    def name(self) -> str:
        return f"{self.colour} {self.shape}"

    @property
    def full_name(self) -> str:
        return f"{self.size} {self.name}"


class Caption(NamedTuple):
    text: str
    names: tuple[tuple[int, int, int], ...]  # first character, the one behind the last, and the thing that they name


class Question(NamedTuple):
    kind: str
    text: str
    choices: tuple[str, ...]
    label: int


class Scene(NamedTuple):
    things: tuple[Thing, ...]  # in reading order
    pixels: np.ndarray  # (SIDE, SIDE, 3) uint8
    masks: np.ndarray  # (things, SIDE, SIDE) bool: what can be seen of each


def make_scene(seed: int, number: int, grid: int = 4, composed: bool = False, most: int = MOST_THINGS) -> Scene:
    """The scene of this number. composed: with at least one held-out combination; otherwise without any; most: things in it."""
    rng = np.random.default_rng((seed, number, int(composed)))
    things = choose_things(rng, grid, composed, most)
    return Scene(things, *draw(things, grid, rng))


def choose_things(rng: np.random.Generator, grid: int, composed: bool, most: int) -> tuple[Thing, ...]:
    count = int(rng.integers(1, most + 1))
    known = [(c, s) for c in COLOURS for s in SHAPES if (c, s) not in HELD_OUT]
    kinds = [known[i] for i in rng.choice(len(known), count, replace=False)]
    if composed:
        kinds[int(rng.integers(count))] = HELD_OUT[int(rng.integers(len(HELD_OUT)))]
    cells = rng.choice(grid * grid, count, replace=False)
    sizes = rng.choice(list(SIZES), count)
    return tuple(
        Thing(shape, colour, str(size), int(cell) // grid, int(cell) % grid)
        for cell, (colour, shape), size in sorted(zip(cells, kinds, sizes, strict=True), key=lambda each: int(each[0]))
    )


def draw(things: Sequence[Thing], grid: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    cell = SIDE / grid
    y, x = np.mgrid[:SIDE, :SIDE] + 0.5
    canvas = np.full((SIDE, SIDE, 3), rng.uniform(20, 70), np.float64)
    masks = np.zeros((len(things), SIDE, SIDE), bool)
    for i, thing in enumerate(things):
        radius = SIZES[thing.size] * cell * rng.uniform(0.95, 1.1)
        across, down = rng.uniform(-0.12, 0.12, 2) * cell
        dx, dy = x - (thing.column + 0.5) * cell - across, y - (thing.row + 0.5) * cell - down
        if thing.shape == "circle":
            inside = dx * dx + dy * dy <= radius * radius
        elif thing.shape == "square":
            inside = np.maximum(abs(dx), abs(dy)) <= 0.88 * radius
        else:
            inside = (dy <= 0.85 * radius) & (abs(dx) * 1.75 <= dy + 1.05 * radius)
        masks[:i] &= ~inside
        masks[i] = inside
        canvas[inside] = np.array(COLOURS[thing.colour]) * rng.uniform(0.85, 1.05)
    noise = rng.normal(0, 5, (SIDE, SIDE, 1)).round()
    return (canvas + noise).clip(0, 255).astype(np.uint8), masks


# ---- captions


def captions_of(things: Sequence[Thing]) -> list[Caption]:
    """Five captions of a scene."""
    if len(things) == 1:
        forms: tuple[tuple[str | int, ...], ...] = (
            ("a", 0), ("there is a", 0), ("one", 0, "and nothing else"), ("a picture of a", 0), ("a", 0, "alone"),
        )  # fmt: skip
        return [compose(form, things, (True,)) for form in forms]
    first, second = things[:2]
    before, after = ("above", "below") if first.row < second.row else ("left of", "right of")
    count = NUMBERS[len(things)]
    forms = (
        ("a", 0, f"{before} a", 1),
        ("there is a", 0, f"{before} a", 1),
        ("a", 1, f"{after} a", 0),
        (f"{count} shapes , first a", 0, "and then a", 1),
        ("a picture of a", 0, f"{before} a", 1),
    )
    return [compose(form, things, (True, False)) for form in forms]


def compose(form: Sequence[str | int], things: Sequence[Thing], sized: Sequence[bool]) -> Caption:
    """A caption of words and things, which stand for their names. sized: of each, whether its size is said."""
    text, names = "", []
    for part in form:
        text += " " if text else ""
        if isinstance(part, int):
            named = things[part].full_name if sized[part] else things[part].name
            names.append((len(text), len(text) + len(named), part))
            text += named
        else:
            text += part
    return Caption(text, tuple(names))


# ---- questions


def questions_of(things: Sequence[Thing], rng: np.random.Generator, many: int, grid: int = 4) -> list[Question]:
    """At most so many questions about a scene, each of another kind; not every kind can be asked about every scene."""
    found: list[Question] = []
    for i in rng.permutation(len(KINDS)):
        asked = ASK[KINDS[i]](list(things), rng, grid)
        if asked is not None and len(found) < many:
            text, right, wrong = asked
            choices = [right, *(wrong[j] for j in rng.permutation(len(wrong))[:3])]
            order = rng.permutation(4)
            found.append(Question(KINDS[i], text, tuple(choices[j] for j in order), int(np.flatnonzero(order == 0)[0])))
    return found


Asked = tuple[str, str, list[str]] | None  # a question, its answer, and at least three wrong ones


def pick(values: Sequence[Any], rng: np.random.Generator) -> Any:
    return values[int(rng.integers(len(values)))] if values else None


def ask_colour(things: list[Thing], rng: np.random.Generator, grid: int) -> Asked:
    single = [each for each in things if sum(other.shape == each.shape for other in things) == 1]
    thing = pick(single, rng)
    if thing is None:
        return None
    return f"what colour is the {thing.shape} ?", thing.colour, [c for c in COLOURS if c != thing.colour]


def ask_count(things: list[Thing], rng: np.random.Generator, grid: int) -> Asked:
    shape = pick(SHAPES, rng)
    count = sum(each.shape == shape for each in things)
    low = 0 if count < 4 else 1
    return f"how many {shape}s are there ?", NUMBERS[count], [n for n in NUMBERS[low : low + 4] if n != NUMBERS[count]]


def ask_where(things: list[Thing], rng: np.random.Generator, grid: int) -> Asked:
    thing = pick(things, rng)
    place = PLACES[2 * (thing.row >= grid // 2) + (thing.column >= grid // 2)]
    return f"where is the {thing.name} ?", place, [each for each in PLACES if each != place]


def ask_shape(things: list[Thing], rng: np.random.Generator, grid: int) -> Asked:
    single = [each for each in things if sum(other.colour == each.colour for other in things) == 1]
    thing = pick(single, rng)
    if thing is None:
        return None
    return f"which shape is {thing.colour} ?", thing.shape, [s for s in (*SHAPES, "none") if s != thing.shape]


def ask_exists(things: list[Thing], rng: np.random.Generator, grid: int) -> Asked:
    """Asks for a thing that is there, or for one of which only the shape, only the colour or nothing is: a quarter each."""
    answers = ("yes", "only the shape", "only the colour", "neither")
    wanted = int(rng.integers(4))
    fitting = []
    for colour in COLOURS:
        for shape in SHAPES:
            whole = any((each.colour, each.shape) == (colour, shape) for each in things)
            parts = any(each.shape == shape for each in things), any(each.colour == colour for each in things)
            if (wanted == 0 and whole) or (
                wanted and not whole and parts == ((True, False), (False, True), (False, False))[wanted - 1]
            ):
                fitting.append((colour, shape))
    chosen = pick(fitting, rng)
    if chosen is None:
        return None
    right = answers[wanted]
    return f"is there a {chosen[0]} {chosen[1]} ?", right, [each for each in answers if each != right]


def ask_left(things: list[Thing], rng: np.random.Generator, grid: int) -> Asked:
    options = []
    for thing in things:
        left = [each for each in things if each.column < thing.column]
        if len(left) == 1:
            options.append((thing, left[0]))
    chosen = pick(options, rng)
    if chosen is None:
        return None
    thing, answer = chosen
    there = [each.name for each in things if each not in chosen]
    others = [f"{c} {s}" for c in COLOURS for s in SHAPES if f"{c} {s}" not in (*there, answer.name, thing.name)]
    wrong = [*there, *(others[i] for i in rng.permutation(len(others))[: 3 - len(there)])]
    return f"what is left of the {thing.name} ?", f"a {answer.name}", [f"a {each}" for each in wrong]


ASK: dict[str, Callable[[list[Thing], np.random.Generator, int], Asked]] = {
    "colour": ask_colour, "count": ask_count, "where": ask_where, "shape": ask_shape, "exists": ask_exists, "left": ask_left,
}  # fmt: skip


# ---- files


def png(pixels: np.ndarray) -> bytes:
    """(H, W, 3) uint8 as a PNG file."""
    height, width, _ = pixels.shape
    rows = np.concatenate((np.zeros((height, 1), np.uint8), pixels.reshape(height, -1)), 1)  # each without a filter

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    packed = zlib.compress(rows.tobytes(), 6)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", packed) + chunk(b"IEND", b"")


def scenes(split: str, count: int, seed: int, grid: int, most: int = MOST_THINGS) -> Iterator[Scene]:
    """The scenes of a split."""
    first = sum(10_000_000 for name in list(SPLITS)[: list(SPLITS).index(split)])
    for number in range(count):
        yield make_scene(seed, first + number, grid, split == "composed", most)


def write_scenes(
    out: Path, counts: dict[str, int], seed: int = 0, grid: int = 4, questions: int = 3, most: int = MOST_THINGS
) -> dict[str, dict[str, int]]:
    """Writes pictures, and for each split NAME.jsonl with captions, questions-NAME.jsonl, labels-NAME.jsonl with the
    first thing of each scene, and masks-NAME.npz; returns how many of each. most: things of a scene."""
    make_folder(out / "images")
    with explained(out):
        return write_splits(out, counts, seed, grid, questions, most)


def write_splits(
    out: Path, counts: dict[str, int], seed: int, grid: int, questions: int, most: int
) -> dict[str, dict[str, int]]:
    found = {}
    for split, count in counts.items():
        rows: dict[str, list[dict[str, Any]]] = {"": [], "questions-": [], "labels-": []}
        masks = np.zeros((count, MOST_THINGS, SIDE * SIDE // 8), np.uint8)
        with Progress(f"draw {split}", total=count, unit="scenes") as bar:
            for number, scene in enumerate(scenes(split, count, seed, grid, most)):
                image = f"images/{split}-{number:05d}.png"
                (out / image).write_bytes(png(scene.pixels))  # too many to wait for the disk each time
                masks[number, : len(scene.things)] = np.packbits(scene.masks.reshape(len(scene.things), -1), 1)
                captions = captions_of(scene.things)
                rows[""].append(
                    {
                        "image": image,
                        "captions": [caption.text for caption in captions],
                        "names": [caption.names for caption in captions],
                        "things": [thing._asdict() for thing in scene.things],
                        "mask": number,
                    }
                )
                rng = np.random.default_rng((seed, number, len(split), 7))
                rows["questions-"] += [
                    {"image": image, "text": each.text, "choices": each.choices, "label": each.label, "kind": each.kind}
                    for each in questions_of(scene.things, rng, questions, grid)
                ]
                rows["labels-"].append({"image": image, "label": scene.things[0].name})
                bar.advance(1)
        for kind, lines in rows.items():
            write_bytes(out / f"{kind}{split}.jsonl", "".join(json.dumps(line) + "\n" for line in lines).encode())
        with open(out / f"masks-{split}.npz", "wb") as file:
            np.savez_compressed(file, masks=masks, side=SIDE)
        found[split] = {"scenes": count, "captions": 5 * count, "questions": len(rows["questions-"])}
    write_json(out / "scenes.json", {"seed": seed, "grid": grid, "most": most, "splits": found, "held_out": HELD_OUT})
    return found


def read_masks(path: Path) -> np.ndarray:
    """(scenes, things, SIDE, SIDE) of a masks-NAME.npz: what can be seen of each thing; nothing where a scene has fewer."""
    try:
        with np.load(path, allow_pickle=False) as found:
            masks, side = found["masks"], int(found["side"])
    except DAMAGED as error:
        raise DataError(f"{path}: damaged ({brief(error)}): write the scenes anew") from None
    if masks.dtype != np.uint8 or masks.ndim != 3 or 8 * masks.shape[2] != side * side:
        raise DataError(
            f"{path}: {masks.shape} of {masks.dtype} are no masks of {side} × {side}: write the scenes anew"
        )
    return np.unpackbits(masks, axis=2).reshape(*masks.shape[:2], side, side).astype(bool)

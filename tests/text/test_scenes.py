"""Scenes: the same from the same seed, and every caption, question and mask true of the picture."""

import numpy as np
import pytest

from seqloom.text.scenes import (
    COLOURS,
    HELD_OUT,
    KINDS,
    NUMBERS,
    captions_of,
    make_scene,
    questions_of,
    read_masks,
    write_scenes,
)

SCENES = [make_scene(0, number) for number in range(60)]


def test_the_same_seed_draws_the_same():
    one, two, other = make_scene(3, 5), make_scene(3, 5), make_scene(4, 5)
    assert np.array_equal(one.pixels, two.pixels) and one.things == two.things
    assert not np.array_equal(one.pixels, other.pixels)


def test_held_out_combinations_are_in_their_split_alone():
    assert not any((t.colour, t.shape) in HELD_OUT for scene in SCENES for t in scene.things)
    for number in range(20):
        things = make_scene(0, number, composed=True).things
        assert any((t.colour, t.shape) in HELD_OUT for t in things)
    assert {len(make_scene(0, n, most=1).things) for n in range(20)} == {1}


def test_masks_lie_on_what_they_name():
    for scene in SCENES:
        for thing, mask in zip(scene.things, scene.masks, strict=True):
            assert mask.sum() > 8
            seen = scene.pixels[mask].astype(float).mean(0)
            nearest = min(COLOURS, key=lambda name: np.abs(seen - np.array(COLOURS[name]) * 0.95).sum())
            assert nearest == thing.colour
            rows, columns = np.nonzero(mask)
            assert abs(rows.mean() / 16 - 0.5 - thing.row) < 0.5 and abs(columns.mean() / 16 - 0.5 - thing.column) < 0.5


def test_captions_name_the_first_two_things():
    for scene in SCENES:
        captions = captions_of(scene.things)
        assert len({caption.text for caption in captions}) == 5
        for caption in captions:
            for begin, end, thing in caption.names:
                assert caption.text[begin:end].endswith(scene.things[thing].name)
        if len(scene.things) > 1:
            first, second = scene.things[:2]
            assert (" above a " in captions[0].text) == (first.row < second.row)
            assert captions[3].text.startswith(NUMBERS[len(scene.things)])


def true_answer(question, things):
    """Answers a question by other means than it was made by."""
    words = question.text.split()
    names = {thing.name: thing for thing in things}
    if question.kind == "colour":
        return next(thing.colour for thing in things if thing.shape == words[4])
    if question.kind == "count":
        return NUMBERS[sum(thing.shape + "s" == words[2] for thing in things)]
    if question.kind == "where":
        thing = names[f"{words[3]} {words[4]}"]
        return f"{'top' if thing.row < 2 else 'bottom'} {'left' if thing.column < 2 else 'right'}"
    if question.kind == "shape":
        return next(thing.shape for thing in things if thing.colour == words[3])
    if question.kind == "exists":
        colour, shape = words[3:5]
        if f"{colour} {shape}" in names:
            return "yes"
        parts = any(t.shape == shape for t in things), any(t.colour == colour for t in things)
        return {(True, False): "only the shape", (False, True): "only the colour", (False, False): "neither"}[parts]
    asked = names[f"{words[5]} {words[6]}"]
    return "a " + next(thing.name for thing in things if thing.column < asked.column)


def test_every_question_has_one_right_answer():
    kinds = set()
    for number, scene in enumerate(SCENES):
        for question in questions_of(scene.things, np.random.default_rng(number), 6):
            assert len(set(question.choices)) == 4
            assert question.choices[question.label] == true_answer(question, scene.things)
            kinds.add(question.kind)
    assert kinds == set(KINDS)


def test_what_is_written(tmp_path):
    found = write_scenes(tmp_path / "out", {"train": 3, "test": 2}, questions=2)
    assert found["train"] == {"scenes": 3, "captions": 15, "questions": found["train"]["questions"]}
    masks = read_masks(tmp_path / "out" / "masks-train.npz")
    first = next(iter([make_scene(0, 0)]))
    assert np.array_equal(masks[0, : len(first.things)], first.masks) and masks.shape == (3, 4, 64, 64)


@pytest.mark.parametrize("grid", [4, 8])
def test_grids(grid):
    assert max(max(t.row, t.column) for n in range(30) for t in make_scene(0, n, grid).things) == grid - 1

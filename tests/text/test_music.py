"""Music as a text: exact in steps of 10 ms, and what augmentation does."""

import random

import pytest

from seqloom.errors import DataError
from seqloom.text import music
from seqloom.text.midi import Note, read_midi, write_midi
from seqloom.text.music import (
    EVENTS,
    FRAME,
    GRID,
    events_of,
    frames_of_grid,
    frames_of_notes,
    grid_of,
    notes_of_events,
    notes_of_frames,
    transposed,
    variants,
)


def performance(seed: int, count: int = 60) -> list[Note]:
    """Notes at any time, of which several may sound at one pitch."""
    rng = random.Random(seed)
    starts = [rng.random() * 30 for _ in range(count)]
    return [Note(start, start + rng.random() * 3, rng.randrange(40, 60), rng.randrange(1, 128)) for start in starts]


def separate(seed: int) -> list[Note]:
    """Notes of different pitches."""
    return [note._replace(pitch=pitch) for pitch, note in enumerate(performance(seed))]


def exact_round_trip() -> None:
    """MIDI → events → MIDI: every note within a step, and what has been through it once does not change again."""
    for seed in range(20):
        notes = separate(seed)
        again = read_midi(write_midi(notes_of_events(events_of(notes))))
        assert len(again) == len(notes)
        for before, after in zip(*(sorted(each, key=lambda note: note.pitch) for each in (notes, again)), strict=True):
            assert before.pitch == after.pitch and before.velocity * 32 // 128 == after.velocity * 32 // 128
            assert abs(before.start - after.start) < 0.00501
            assert abs(before.end - after.end) < 0.00501 or after.end - after.start < 0.01001
        text = events_of(performance(seed))
        assert events_of(read_midi(write_midi(notes_of_events(text)))) == text


def test_round_trip():
    exact_round_trip()


def test_lost_time_is_noticed(monkeypatch):
    """A planted bug: what is left of a long rest is forgotten."""
    words = music._words
    monkeypatch.setattr(music, "_words", lambda changes: (w for w in words(changes) if w != "shift100"))
    with pytest.raises(AssertionError):
        exact_round_trip()


def test_the_vocabulary():
    assert len(EVENTS) == len(set(EVENTS)) == 388 and len(GRID) == len(set(GRID)) == 129
    text = events_of([Note(0.0, 2.5, 60, 100), Note(0.0, 0.004, 64, 100), Note(1.0, 1.01, 127, 1)])
    assert text == "vel25 on60 on64 shift1 off64 shift99 vel0 on127 shift1 off127 shift100 shift49 off60"
    assert set(text.split()) <= set(EVENTS)


def test_one_pitch_sounds_once():
    twice = [Note(0.0, 1.0, 60, 64), Note(0.5, 0.8, 60, 64), Note(0.5, 2.0, 60, 100)]
    assert events_of(twice) == "vel16 on60 shift50 off60 vel25 on60 shift100 shift50 off60"


def test_what_a_model_may_write():
    """Keys that were never struck, and some that are never released."""
    assert notes_of_events("off60 on61 shift10 on61 shift5 vel31 on62 on62") == [
        Note(0.0, 0.1, 61, 80),
        Note(0.1, 0.15, 61, 80),
        Note(0.15, 0.16, 62, 126),
    ]
    assert notes_of_events("") == []
    with pytest.raises(DataError, match="not a word of music"):
        notes_of_events("on60 on128")


def test_grids():
    frames = [[72, 67, 60, 48], [72, 67, -1, 48], [74, 67, 60, 48]]
    text = grid_of(frames)
    assert text == "p72 p67 p60 p48 p72 p67 rest p48 p74 p67 p60 p48"
    assert frames_of_grid(text) == frames and frames_of_grid(f"{text} p72 p1") == frames
    notes = notes_of_frames(frames)
    assert Note(0.0, 2 * FRAME, 72, 80) in notes and Note(0.0, 3 * FRAME, 48, 80) in notes and len(notes) == 6
    found = frames_of_notes(read_midi(write_midi(notes)))
    assert found == [[72, 67, 60, 48], [72, 67, 48, -1], [74, 67, 60, 48]]  # which voice is silent MIDI does not say
    with pytest.raises(DataError, match="frame 1 has 3 pitches"):
        grid_of([[60, 61, 62]])
    with pytest.raises(DataError, match="5 pitches, more than 4"):
        frames_of_notes([Note(0.0, 1.0, pitch, 64) for pitch in range(5)])


def test_voices_that_meet_on_a_pitch():
    """The alto passes through what the soprano holds, and both go on."""
    frames = [[60, 58, 55, 40], [60, 60, 55, 40], [60, 58, 55, 40], [60, 60, 60, 40]]
    assert frames_of_notes(read_midi(write_midi(notes_of_frames(frames)))) == frames


def test_keys_that_stay_down_are_struck_once():
    """Frames of unequal sizes have no voices: what holds on is one note, wherever in its frame it stands."""
    down = [[60], [55, 60], [55, 60, 64], [60, 64], [], [60]]
    assert notes_of_frames(down) == sorted(
        Note(begin * FRAME, end * FRAME, pitch, 80)
        for begin, end, pitch in ((0, 4, 60), (1, 3, 55), (2, 4, 64), (5, 6, 60))
    )
    assert len(notes_of_frames([[60, 55], [62, 60]])) == 4, "two voices of which one begins where the other was"
    assert notes_of_frames([]) == notes_of_frames([[], []]) == []


def test_too_many_voices_are_noticed_at_once():
    """A file of a few bytes can hold a thousand keys for hours."""
    with pytest.raises(DataError, match="an hour: 16th note 1 has 5 pitches"):
        frames_of_notes([Note(0.0, 3600.0, pitch % 128, 64) for pitch in range(2000)], "an hour")


def test_augmentation():
    text = events_of(performance(3))
    copies = list(variants("events", text, 3, 0.05))
    assert copies[0] == text and len(copies) == 35 and len(set(copies)) == 35
    assert transposed("events", copies[1], 3) == text
    first, last = notes_of_events(text)[-1], notes_of_events(copies[7])[-1]
    assert last.start == pytest.approx(0.95 * first.start, abs=0.02)
    assert list(variants("grid", "p1 rest p60 p126", 2, 0.0)) == [
        "p1 rest p60 p126",
        "p0 rest p59 p125",
        "p2 rest p61 p127",
    ]
    assert list(variants("grid", "p1", 0, 0.0)) == ["p1"]

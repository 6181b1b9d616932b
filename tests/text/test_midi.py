"""Standard MIDI Files: what is read, what is written, and what is rejected."""

import random

import pytest

from seqloom.errors import DataError
from seqloom.text.midi import MAX_BYTES, Note, load_midi, read_midi, write_midi
from tests.mutation import damaged

END = b"\x00\xff\x2f\x00"


def song(*tracks: bytes, form: int = 1, division: int = 100, count: int | None = None) -> bytes:
    head = b"".join(each.to_bytes(2) for each in (form, len(tracks) if count is None else count, division))
    chunks = b"".join(b"MTrk" + len(track).to_bytes(4) + track for track in tracks)
    return b"MThd" + (6).to_bytes(4) + head + chunks


def tempo(micros: int, delta: bytes = b"\x00") -> bytes:
    return delta + b"\xff\x51\x03" + micros.to_bytes(3)


def test_running_status_and_note_on_of_velocity_zero():
    track = b"\x00\x90\x3c\x40" + b"\x32\x3e\x41" + b"\x32\x3c\x00" + b"\x00\x3e\x00" + END
    assert read_midi(song(track, form=0)) == [Note(0.0, 0.5, 60, 64), Note(0.25, 0.5, 62, 65)]


def test_tempos_of_one_track_hold_in_all():
    conductor = tempo(1_000_000) + tempo(500_000, b"\x64") + END
    track = b"\x00\x90\x3c\x40" + b"\x81\x48\x80\x3c\x40" + END  # 200 ticks: one quarter at each tempo
    assert read_midi(song(conductor, track)) == [Note(0.0, 1.5, 60, 64)]


def test_smpte_time_has_no_tempo():
    track = tempo(1) + b"\x00\x90\x3c\x40" + b"\x81\x48\x80\x3c\x40" + END
    assert read_midi(song(track, division=(256 - 25) << 8 | 40)) == [Note(0.0, 0.2, 60, 64)]


def test_the_pedal_holds_notes():
    pedal = b"\x00\xb0\x40\x7f" + b"\x00\x90\x3c\x40" + b"\x32\x3c\x00" + b"\x32\xb0\x40\x00" + END
    assert read_midi(song(pedal)) == [Note(0.0, 0.5, 60, 64)]
    again = b"\x00\xb0\x40\x7f" + b"\x00\x90\x3c\x40" + b"\x32\x3c\x00" + b"\x00\x3c\x41" + b"\x32\x3c\x00" + END
    assert read_midi(song(again)) == [Note(0.0, 0.25, 60, 64), Note(0.25, 0.5, 60, 65)]  # struck again; held to the end
    lifted_before = b"\x00\xb0\x40\x7f" + b"\x00\x40\x00" + b"\x00\x90\x3c\x40" + b"\x32\x3c\x00" + END
    assert read_midi(song(lifted_before)) == [Note(0.0, 0.25, 60, 64)]


def test_drums_and_what_is_not_a_note_are_left_out():
    track = (
        b"\x00\x99\x24\x40" + b"\x00\xf0\x02\x01\xf7" + b"\x00\xff\x03\x04name" + b"\x00\xc0\x05" + b"\x00\xe0\x00\x40"
    )
    track += b"\x00\x91\x3c\x40" + b"\x64\x81\x3c\x00" + END + b"after the end"
    data = song(track)
    other = data[:14] + b"XTRA" + (3).to_bytes(4) + b"abc" + data[14:]
    assert read_midi(other) == read_midi(data) == [Note(0.0, 0.5, 60, 64)]


def test_written_and_read_again():
    rng = random.Random(0)
    for _ in range(50):
        notes = [
            Note(start / 100, (start + rng.randrange(1, 500)) / 100, pitch, rng.randrange(1, 128))
            for pitch in rng.sample(range(128), 20)
            for start in [rng.randrange(100_000)]
        ]
        assert read_midi(write_midi(notes)) == sorted(notes)
    assert read_midi(write_midi([])) == []


def test_voices_that_meet_on_a_pitch():
    """Each note ends by itself, however many of its pitch sound: one channel would give the first end to all."""
    notes = [Note(0.0, 1.0, 60, 64), Note(0.0, 3.0, 60, 64), Note(0.5, 0.75, 60, 70), Note(1.0, 2.0, 60, 64)]
    assert read_midi(write_midi(notes)) == sorted(notes)
    many = [Note(0.0, 1.0 + i, 60, 64) for i in range(15)]
    assert read_midi(write_midi(many)) == many
    assert len(read_midi(write_midi([*many, Note(0.5, 20.0, 60, 64)]))) == 16  # one more than there are channels


def test_what_sounds_at_the_end_ends_there():
    """Where the last track ends, not at its last note."""
    track, other = NOTE + b"\x64" + END[1:], b"\x81\x48" + END[1:]
    assert read_midi(song(track)) == [Note(0.0, 0.5, 60, 64)]
    assert read_midi(song(track, other)) == [Note(0.0, 1.0, 60, 64)]


NOTE = b"\x00\x90\x3c\x40"
BAD = {
    "not a song": (b"RIFF1234", "not a MIDI file"),
    "nothing": (b"", "not a MIDI file"),
    "a header of four bytes": (b"MThd" + (4).to_bytes(4) + b"\0\0\0\1", "header has 4 bytes"),
    "a header beyond the file": (b"MThd\xff\xff\xff\xff\0\1", "4,294,967,295 bytes are announced"),
    "format 2": (song(END, form=2), "format 2"),
    "no ticks": (song(END, division=0), "0 ticks"),
    "strange frames": (song(END, division=0x8000), "SMPTE"),
    "fewer tracks than announced": (song(END, count=2), "0 are left"),
    "a track beyond the file": (song(END)[:-4] + b"\0", "bytes are announced"),
    "running status without status": (song(b"\x00\x3c\x40" + END), "running status"),
    "running status after a text": (song(NOTE + b"\x00\xff\x01\x00" + b"\x00\x3c\x00"), "running status"),
    "an event beyond the track": (song(b"\x00\xff\x01\x7fabc"), "127 bytes are announced"),
    "a data byte of 200": (song(b"\x00\x90\x3c\xc8" + END), "data byte"),
    "half a message": (song(b"\x00\x90\x3c"), "1 bytes are announced and 0 are left"),
    "a number of five bytes": (song(b"\xff\xff\xff\xff\x01" + END), "more than four bytes"),
    "a message of no file": (song(b"\x00\xf8" + END), "0xf8"),
    "a tempo of zero": (song(tempo(0) + END), "tempo"),
    "a tempo of two bytes": (song(b"\x00\xff\x51\x02\x01\x01" + END), "tempo"),
    "a billion ticks": (song(b"".join([b"\xff\xff\xff\x7f\x90\x3c\x40"] * 4) + END, division=1), "hours"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(name):
    data, said = BAD[name]
    with pytest.raises(DataError, match=said) as error:
        read_midi(data, "bad.mid")
    assert str(error.value).startswith("bad.mid: ") and "\n" not in str(error.value)


def test_too_large(tmp_path):
    with open(tmp_path / "large.mid", "wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(DataError, match="too large"):
        load_midi(tmp_path / "large.mid")


def fuzz(count: int) -> None:
    rng = random.Random(1)
    notes = [Note(i / 10, i / 10 + 0.3, 40 + i % 40, 64) for i in range(60)]
    conductor = tempo(400_000) + tempo(600_000, b"\x83\x00") + END
    good = [
        write_midi(notes),
        song(conductor, b"\x00\xb0\x40\x7f" + NOTE + b"\x32\x3c\x00" + b"\x00\xff\x01\x02ab" + END),
    ]
    for number in range(count):
        data = damaged(good[number % 2], rng)
        try:
            found = read_midi(data, "bad.mid")
        except DataError as refused:
            found, said = [], str(refused)
        else:
            said = ""
        assert "\n" not in said and len(said) < 300
        assert all(0 <= note.start <= note.end and note.pitch < 128 and 0 < note.velocity < 128 for note in found)


def test_some_damaged_files():
    fuzz(300)


@pytest.mark.long
def test_thousands_of_damaged_files():
    fuzz(20_000)

"""Standard MIDI Files in and out: formats 0 and 1, as notes with times in seconds.

Read: running status, the tempo map (of all tracks together), SMPTE time, and the sustain pedal, which holds notes until it is
released or their key is struck again. Channel 10 is left out: its numbers name drums, not pitches. All other events are skipped.
Written: one track, in which a tick is 10 ms.

No byte of a file is trusted: every length is checked against what is there before anything is read, and a file that contradicts
itself is rejected with its place.
"""

from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from seqloom.errors import DataError
from seqloom.files import explained

MAX_BYTES = 64 << 20
MAX_HOURS = 24
PITCHES = 128
MAGIC = b"MThd"
_DRUMS = 9  # the channel, counted from 0
_CHANNELS = [channel for channel in range(16) if channel != _DRUMS]
_SUSTAIN = 64
_TEMPO, _END = 0x51, 0x2F
_STANDARD_TEMPO = 500_000  # microseconds a quarter, until a file says otherwise
TICK = 0.01  # seconds, in files that are written here
# how many data bytes follow each kind of channel message
_DATA_BYTES = {0x8: 2, 0x9: 2, 0xA: 2, 0xB: 2, 0xC: 1, 0xD: 1, 0xE: 2}


class Note(NamedTuple):
    start: float  # seconds
    end: float
    pitch: int  # 0 to 127; 60 is middle C
    velocity: int  # 1 to 127


class _Message(NamedTuple):
    """A channel message, the tempo (kind 0, first: microseconds a quarter), or the end of a track (kind _END)."""

    tick: int
    kind: int
    channel: int
    first: int
    second: int


class _Bytes:
    """Part of a file, read from its beginning; every read checks that there is so much."""

    def __init__(self, data: bytes, begin: int, end: int, where: str):
        self.data, self.place, self.end, self.where = data, begin, end, where

    def wrong(self, what: str, place: int | None = None) -> DataError:
        at = self.place if place is None else place
        return DataError(f"{self.where}: byte {at:,}: {what}: the file is damaged or is not MIDI; leave it out")

    def take(self, count: int) -> bytes:
        if count > self.end - self.place:
            raise self.wrong(f"{count:,} bytes are announced and {self.end - self.place:,} are left")
        found = self.data[self.place : self.place + count]
        self.place += count
        return found

    def byte(self) -> int:
        return self.take(1)[0]

    def data_byte(self) -> int:
        value = self.byte()
        if value > 127:
            raise self.wrong(f"{value:#04x} stands where a data byte (at most 0x7f) should", self.place - 1)
        return value

    def length(self) -> int:
        """A number of variable length: at most four bytes, seven bits each."""
        value, begin = 0, self.place
        for _ in range(4):
            byte = self.byte()
            value = value << 7 | byte & 127
            if byte < 128:
                return value
        raise self.wrong("a number has more than four bytes", begin)


def load_midi(path: Path | str) -> list[Note]:
    """The notes of a file, by their start."""
    with explained(Path(path)), open(path, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    return read_midi(data, str(path))


def read_midi(data: bytes, where: str = "this song") -> list[Note]:
    """The notes of a Standard MIDI File, by their start. where: what messages call it."""
    if len(data) > MAX_BYTES:
        raise DataError(f"{where}: larger than {MAX_BYTES >> 20} MB, too large for a song: leave it out")
    if not data.startswith(MAGIC):
        raise DataError(f"{where}: not a MIDI file: it begins with {data[:4]!r}, not {MAGIC!r}: check the name")
    whole = _Bytes(data, 4, len(data), where)
    head = whole.take(int.from_bytes(whole.take(4)))
    if len(head) < 6:
        raise whole.wrong(f"the header has {len(head)} bytes instead of 6")
    form, tracks, division = (int.from_bytes(head[i : i + 2]) for i in (0, 2, 4))
    if form > 1:
        raise DataError(f"{where}: MIDI format {form}: only formats 0 and 1 are read: save it as format 1")
    ticks = _TicksPerUnit.of(division, whole)
    messages: list[_Message] = []
    for _ in range(tracks):
        messages += _read_track(whole)
    messages.sort(key=lambda message: message.tick)  # stable: the order within a track stays
    return _to_notes(_timed(messages, ticks, where))


class _TicksPerUnit(NamedTuple):
    """How many ticks a quarter has (musical time) or a second (SMPTE time, where tempos have no meaning)."""

    number: int
    seconds: bool

    @classmethod
    def of(cls, division: int, where: _Bytes) -> "_TicksPerUnit":
        if division & 0x8000:
            frames, each = 256 - (division >> 8), division & 0xFF
            if frames not in (24, 25, 29, 30) or not each:
                raise where.wrong(f"a time division of {frames} frames of {each} ticks is none of SMPTE's", 12)
            return cls(frames * each, True)
        if not division:
            raise where.wrong("a quarter has 0 ticks", 12)
        return cls(division, False)


def _read_track(whole: _Bytes) -> Iterator[_Message]:
    """Reads the next track; chunks of other kinds are skipped, as the standard asks."""
    while whole.take(4) != b"MTrk":
        whole.take(int.from_bytes(whole.take(4)))
    size = int.from_bytes(whole.take(4))
    begin = whole.place
    whole.take(size)
    track = _Bytes(whole.data, begin, whole.place, whole.where)
    tick, running = 0, None
    while track.place < track.end:
        tick += track.length()
        status = track.byte()
        if status == 0xFF:
            kind_of, body = track.byte(), track.take(track.length())
            running = None
            if kind_of == _END:
                yield _Message(tick, _END, 0, 0, 0)
                return
            if kind_of == _TEMPO:
                if len(body) != 3 or not any(body):
                    raise track.wrong("a tempo must be a positive number of three bytes")
                yield _Message(tick, 0, 0, int.from_bytes(body), 0)
        elif status in (0xF0, 0xF7):
            track.take(track.length())
            running = None
        elif status >= 0xF0:
            raise track.wrong(f"the message {status:#04x} does not belong into a file", track.place - 1)
        else:
            if status < 0x80:
                if running is None:
                    raise track.wrong(f"{status:#04x} continues a message (running status), but there is none")
                status, track.place = running, track.place - 1
            running = status
            first = track.data_byte()
            second = track.data_byte() if _DATA_BYTES[status >> 4] == 2 else 0
            if status >> 4 in (0x8, 0x9, 0xB):
                yield _Message(tick, status >> 4, status & 15, first, second)


def _timed(messages: list[_Message], ticks: _TicksPerUnit, where: str) -> Iterator[tuple[float, _Message]]:
    """Every message with its time in seconds, by the tempo map."""
    micros, tick, tempo = (
        0,
        0,
        1_000_000 if ticks.seconds else _STANDARD_TEMPO,
    )  # micros: times `number`, so that all is exact
    for message in messages:
        micros += (message.tick - tick) * tempo
        tick = message.tick
        time = micros / ticks.number / 1e6
        if time > MAX_HOURS * 3600:
            raise DataError(
                f"{where}: tick {tick:,} is {time / 3600:,.0f} hours after the beginning; songs have at most {MAX_HOURS}: "
                f"leave it out"
            )
        if message.kind == 0:
            tempo = tempo if ticks.seconds else message.first
        else:
            yield time, message


def _to_notes(messages: Iterable[tuple[float, _Message]]) -> list[Note]:
    """Notes of all channels but the drums. A key that is struck while it sounds ends what sounded before; what sounds at the end
    of the file ends there."""
    notes: list[Note] = []
    sounding: dict[tuple[int, int], tuple[float, int]] = {}  # (channel, pitch) → when it was struck, and how hard
    held: dict[int, set[int]] = {}  # channel → pitches that only its pedal holds; there while the pedal is down
    time = 0.0

    def stop(channel: int, pitch: int) -> None:
        start, velocity = sounding.pop((channel, pitch))
        notes.append(Note(start, time, pitch, velocity))

    for time, message in messages:
        _, kind, channel, pitch, value = message
        if channel == _DRUMS or kind == _END:
            continue
        if kind == 0xB:
            if pitch == _SUSTAIN and value >= 64:
                held.setdefault(channel, set())
            elif pitch == _SUSTAIN:
                for each in sorted(held.pop(channel, ())):
                    stop(channel, each)
            continue
        struck = kind == 0x9 and value > 0
        if (channel, pitch) in sounding:
            if struck or channel not in held:
                stop(channel, pitch)
                held.get(channel, set()).discard(pitch)
            else:
                held[channel].add(pitch)
        if struck:
            sounding[channel, pitch] = time, value
    for channel, pitch in sorted(sounding):
        stop(channel, pitch)
    return sorted(notes)


def write_midi(notes: Iterable[Note]) -> bytes:
    """A file of format 0 in which a tick is 10 ms: 100 ticks a quarter at 60 quarters a minute. Voices that meet on a pitch are
    on channels of their own: on one, the first to leave it would end the others."""
    events: list[tuple[int, int, int, int, int]] = []  # tick, 0 off or 1 on, pitch, velocity, channel
    busy: dict[tuple[int, int], int] = {}  # (pitch, channel) → the tick until which it sounds
    for note in sorted(notes):
        start = round(note.start / TICK)
        end = max(round(note.end / TICK), start + 1)
        # the first that is free, or the one that will be
        channel = min(_CHANNELS, key=lambda each: max(busy.get((note.pitch, each), 0) - start, 0))
        busy[note.pitch, channel] = end
        events += [(start, 1, note.pitch, note.velocity, channel), (end, 0, note.pitch, 0, channel)]
    events.sort()
    track = bytearray(b"\x00\xff\x51\x03" + (1_000_000).to_bytes(3))
    # a note-off is a note-on of velocity 0: all messages of a channel have one status, and running status saves a byte each
    running = None
    for (before, *_), (tick, _, pitch, velocity, channel) in pairwise([(0, 0, 0, 0, 0), *events]):
        track += _variable_length(tick - before) + (b"" if channel == running else bytes([0x90 | channel]))
        track += bytes([pitch, velocity])
        running = channel
    track += b"\x00\xff\x2f\x00"
    head = b"".join(each.to_bytes(2) for each in (0, 1, 100))
    return MAGIC + len(head).to_bytes(4) + head + b"MTrk" + len(track).to_bytes(4) + bytes(track)


def _variable_length(value: int) -> bytes:
    found = [value & 127]
    while value := value >> 7:
        found.append(value & 127 | 128)
    return bytes(reversed(found))

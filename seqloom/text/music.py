"""Music as a text: a word for every event, or for every voice of every 16th note.

events   388 words (Oore et al., 2018, arXiv 1808.03715): on0 … on127 and off0 … off127 strike and release a key, shift1 …
         shift100 let 10 ms to 1 s pass, vel0 … vel31 set how hard the next keys are struck
grid     129 words: p0 … p127 and rest, four a frame: soprano, alto, tenor and bass of one 16th note, then those of the next

A song that has been written as words is read, tokenized, counted and generated like any other text.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from seqloom.errors import DataError
from seqloom.text.midi import PITCHES, Note

STEPS_A_SECOND = 100
LONGEST_SHIFT = 100
VELOCITIES = 32
VOICES = 4
FRAME = 0.15  # seconds of a 16th note: 100 quarters a minute
VELOCITY = 80  # of notes whose source has none
REST = "rest"
EVENTS = (
    *(f"on{i}" for i in range(PITCHES)),
    *(f"off{i}" for i in range(PITCHES)),
    *(f"shift{i}" for i in range(1, LONGEST_SHIFT + 1)),
    *(f"vel{i}" for i in range(VELOCITIES)),
)
GRID = (*(f"p{i}" for i in range(PITCHES)), REST)
VOCABULARIES: dict[str, tuple[str, ...]] = {"events": EVENTS, "grid": GRID}
_MEANINGS = {  # of each word its kind and number, −1 of a rest
    kind: {word: (word.rstrip("0123456789"), int(word.lstrip("abcdefghijklmnopqrstuvwxyz") or -1)) for word in words}
    for kind, words in VOCABULARIES.items()
}

Frame = Sequence[int]  # pitches that sound in a 16th note; −1: a voice is silent


def is_music(kind: str) -> bool:
    """Whether a tokenizer of this kind reads music."""
    return kind in VOCABULARIES


# ---- notes ⇄ events


def events_of(notes: Iterable[Note]) -> str:
    """Notes as a text of events, in steps of 10 ms. A pitch sounds once at a time: struck again, it ends before."""
    changes: list[tuple[int, int, int, int]] = []  # step, 0 off or 1 on, pitch, velocity
    for pitch, mine in groupby(sorted(_steps(notes)), key=lambda note: note[0]):
        kept: list[tuple[int, int, int, int]] = []
        for note in mine:
            if kept and kept[-1][1] == note[1]:  # struck twice in one step: the longer one
                kept[-1] = max(kept[-1], note, key=lambda each: each[2])
            else:
                kept.append(note)
        ends = [start for _, start, _, _ in kept[1:]] + [kept[-1][2]]
        for (_, start, end, velocity), limit in zip(kept, ends, strict=True):
            changes += [(start, 1, pitch, velocity), (min(end, limit), 0, pitch, 0)]
    return " ".join(_words(sorted(changes)))


def _steps(notes: Iterable[Note]) -> Iterator[tuple[int, int, int, int]]:
    """Pitch, first and last step, and velocity class; every note has a step."""
    for note in notes:
        start = round(note.start * STEPS_A_SECOND)
        end = max(round(note.end * STEPS_A_SECOND), start + 1)
        yield note.pitch, start, end, note.velocity * VELOCITIES // 128


def _words(changes: Iterable[tuple[int, int, int, int]]) -> Iterator[str]:
    now, loud = 0, -1
    for step, on, pitch, velocity in changes:
        while now < step:
            shift = min(step - now, LONGEST_SHIFT)
            now += shift
            yield f"shift{shift}"
        if on and velocity != loud:
            loud = velocity
            yield f"vel{velocity}"
        yield f"{'on' if on else 'off'}{pitch}"


def notes_of_events(text: str) -> list[Note]:
    """What the words say. They may come from a model: a key that is released without having been struck is passed over, one that
    is struck again ends before, and what still sounds at the end ends there, after one step at least."""
    notes: list[Note] = []
    sounding: dict[int, tuple[int, int]] = {}
    now, velocity = 0, VELOCITY

    def stop(pitch: int, end: int) -> None:
        start, loud = sounding.pop(pitch)
        if end > start:
            notes.append(Note(start / STEPS_A_SECOND, end / STEPS_A_SECOND, pitch, loud))

    for word in text.split():
        kind, value = meaning("events", word)
        if kind == "shift":
            now += value
        elif kind == "vel":
            velocity = value * 128 // VELOCITIES + 64 // VELOCITIES
        else:
            if value in sounding:
                stop(value, now)
            if kind == "on":
                sounding[value] = now, velocity
    for pitch in sorted(sounding):
        stop(pitch, max(now, sounding[pitch][0] + 1))
    return sorted(notes)


def meaning(kind: str, word: str) -> tuple[str, int]:
    """What a word is called without its number, and the number; −1 of a rest."""
    found = _MEANINGS[kind].get(word)
    if found is None:
        words = VOCABULARIES[kind]
        raise DataError(
            f"{word[:50]!r} is not a word of music in {kind}: these are {words[0]}, {words[1]} … {words[-1]}"
        )
    return found


# ---- frames ⇄ grid


def grid_of(frames: Iterable[Frame], where: str = "this song") -> str:
    """Frames of four voices as a text. where: what messages call the song."""
    words = []
    for number, frame in enumerate(frames, 1):
        if len(frame) != VOICES:
            raise DataError(
                f"{where}: frame {number} has {len(frame)} pitches instead of {VOICES} (soprano, alto, tenor, bass; -1 where one "
                f"is silent): use --tokenizer events for music without fixed voices"
            )
        words += [REST if pitch < 0 else f"p{pitch}" for pitch in frame]
    return " ".join(words)


def frames_of_grid(text: str) -> list[list[int]]:
    """What the words say; a frame that is not complete, at the end of what a model wrote, is left out."""
    pitches = [meaning("grid", word)[1] for word in text.split()]  # −1 of a rest
    return [pitches[i : i + VOICES] for i in range(0, len(pitches) - VOICES + 1, VOICES)]


def notes_of_frames(frames: Sequence[Frame]) -> list[Note]:
    """Pitches that a voice (a place in the frame) holds from frame to frame are one note. Where frames have unequal sizes there
    are no voices, but keys that are down: each that stays down is one note, whatever else begins or ends."""
    if len(set(map(len, frames))) == 1:
        columns = [list(column) for column in zip(*frames, strict=True)]
    else:
        keys = sorted({pitch for frame in frames for pitch in frame if pitch >= 0})
        columns = [[pitch if pitch in frame else -1 for frame in frames] for pitch in keys]
    notes: list[Note] = []
    for column in columns:
        place = 0
        for pitch, same in groupby(column):
            count = len(list(same))
            if pitch >= 0:
                notes.append(Note(place * FRAME, (place + count) * FRAME, pitch, VELOCITY))
            place += count
    return sorted(notes)


def frames_of_notes(notes: Sequence[Note], where: str = "this song") -> list[list[int]]:
    """The highest pitch of every 16th note as the soprano, and so on downwards; voices that cross are exchanged."""
    frames: list[list[int]] = [[] for _ in range(max((round(note.end / FRAME) for note in notes), default=0))]
    for note in notes:
        for number in range(round(note.start / FRAME), round(note.end / FRAME)):
            frames[number].append(note.pitch)
            if len(frames[number]) > VOICES:  # at once: a small file can have a thousand notes of many hours
                raise DataError(
                    f"{where}: 16th note {number + 1} has {VOICES + 1} pitches, more than {VOICES} voices can sing: give a song "
                    f"of {VOICES} voices, or use a run on events"
                )
    return [sorted(frame, reverse=True) + [-1] * (VOICES - len(frame)) for frame in frames]


def notes_of(kind: str, text: str) -> list[Note]:
    """The notes of a text of this kind, events or grid."""
    return notes_of_events(text) if kind == "events" else notes_of_frames(frames_of_grid(text))


def text_of(kind: str, notes: Sequence[Note], where: str = "this song") -> str:
    """Notes as a text of this kind, events or grid."""
    return events_of(notes) if kind == "events" else grid_of(frames_of_notes(notes, where), where)


# ---- augmentation


def variants(kind: str, text: str, transpose: int, stretch: float) -> Iterator[str]:
    """The text, and copies of it: moved by every number of semitones up to `transpose` in either direction, each also slower and
    faster by `stretch` and by half of it. A copy with a pitch outside of MIDI's range is left out."""
    yield text
    for factor in (1.0, 1 - stretch, 1 - stretch / 2, 1 + stretch / 2, 1 + stretch) if stretch else (1.0,):
        stretched = text if factor == 1 else _stretched(text, factor)
        for semitones in range(-transpose, transpose + 1):
            moved = transposed(kind, stretched, semitones)
            if moved is not None and (factor, semitones) != (1.0, 0):
                yield moved


def _stretched(text: str, factor: float) -> str:
    return events_of(
        Note(note.start * factor, note.end * factor, note.pitch, note.velocity) for note in notes_of_events(text)
    )


def transposed(kind: str, text: str, semitones: int) -> str | None:
    """The text with every pitch moved; None where one leaves MIDI's range."""
    words = []
    for word in text.split():
        name, value = meaning(kind, word)
        if name in ("on", "off", "p"):
            if not 0 <= value + semitones < PITCHES:
                return None
            word = f"{name}{value + semitones}"
        words.append(word)
    return " ".join(words)

"""Songs from files, one document each: MIDI files, and JSON files of pieces that are lists of frames.

JSON: an object with the splits train, valid and test, each a list of songs; a song is a list of frames, one a 16th note, and a
frame a list of MIDI pitches, -1 for a silent voice (the form of jsb-chorales). Each file may be compressed with gz, xz or zst.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from seqloom.errors import DataError
from seqloom.files import parse_json
from seqloom.text.midi import MAGIC, MAX_BYTES, PITCHES, read_midi
from seqloom.text.music import Frame, events_of, grid_of, notes_of_frames
from seqloom.text.read import Document, Problems, file_extension
from seqloom.text.stream import InputFile

SPLITS = ("train", "valid", "test")


class SongReader:
    """The songs of one file, as texts of a kind (see `text.music`); read like `text.read.Reader`."""

    def __init__(self, path: Path, kind: str, problems: Problems | None = None):
        self.path, self.kind = path, kind
        self.problems = problems if problems is not None else Problems()
        self.count = 0
        with InputFile(path) as opened:
            self.size = opened.size
            head = opened.bytes.read(4) if opened.size else b""
        self.mode = "midi" if head.startswith(MAGIC) or file_extension(path) in ("mid", "midi") else "songs"
        if self.mode == "midi" and kind == "grid":
            raise DataError(
                f"{path}: a MIDI file does not say where 16th notes begin, so it is no grid of voices: use --tokenizer events"
            )
        self.has_splits = self.mode == "songs"

    def position(self) -> int:
        return self.size  # a file is read at once

    def __iter__(self) -> Iterator[Document]:
        self.count = 0
        if not self.size:
            return
        with InputFile(self.path) as opened:
            data = opened.bytes.read(MAX_BYTES + 1)
        if len(data) > MAX_BYTES:
            raise DataError(f"{self.path}: more than {MAX_BYTES >> 20} MB of music in one file: divide it")
        songs = self._midi(data) if self.mode == "midi" else self._frames(data)
        for number, (text, split) in enumerate(songs, 1):
            place = f"{self.path}:{number}"
            if text:
                self.count += 1
                yield Document(text, place, split)
            else:
                self.problems.add("empty", place)

    def _midi(self, data: bytes) -> Iterator[tuple[str, None]]:
        yield events_of(read_midi(data, str(self.path))), None

    def _frames(self, data: bytes) -> Iterator[tuple[str, str]]:
        try:
            splits = parse_json(data)
        except (ValueError, RecursionError) as error:
            raise DataError(f"{self.path}: neither a MIDI file nor JSON ({error}): check the name") from None
        if not isinstance(splits, dict) or not splits or not set(splits) <= set(SPLITS):
            raise DataError(
                f'{self.path}: not a JSON object with the splits "train", "valid" and "test": check the file'
            )
        for name in SPLITS:
            songs = splits.get(name, [])
            if not isinstance(songs, list):
                raise DataError(f'{self.path}: "{name}" is not a list of songs: check the file')
            for number, song in enumerate(songs, 1):
                place = f"{self.path}: song {number} of {name}"
                frames = check_frames(song, place)
                yield (grid_of(frames, place) if self.kind == "grid" else events_of(notes_of_frames(frames))), name


def check_frames(song: Any, where: str) -> list[Frame]:
    """A song as it stands in the JSON; DataError where it is not a list of lists of pitches."""
    if not isinstance(song, list):
        raise DataError(f"{where}: not a list of frames: check the file")
    for number, frame in enumerate(song, 1):
        if not isinstance(frame, list) or any(type(pitch) is not int or not -1 <= pitch < PITCHES for pitch in frame):
            raise DataError(
                f"{where}: frame {number} is not a list of MIDI pitches (-1 to {PITCHES - 1}): {str(frame)[:60]}: check the file"
            )
    return song

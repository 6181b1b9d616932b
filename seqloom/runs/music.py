"""Songs as prompts of a run and as what it generates, and what is measured on them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from seqloom.errors import DataError, UsageError
from seqloom.files import write_bytes
from seqloom.text.midi import Note, load_midi, write_midi
from seqloom.text.music import FRAME, VOICES, is_music, notes_of, text_of

if TYPE_CHECKING:
    from seqloom.analyse.roll import Roll
    from seqloom.runs.look_inside import LookInside

ENDINGS = (".mid", ".midi")


def check_reads_music(run: "LookInside", option: str) -> str:
    """The kind of music that a run reads; UsageError where it reads text."""
    kind: str = run.tokenizer.kind
    if not is_music(kind):
        raise UsageError(f"{option} is for songs, and {run.folder} was trained on text ({kind}): leave it out")
    return kind


def is_song(prompt: str) -> bool:
    return prompt.lower().endswith(ENDINGS)


def read_song(run: "LookInside", path: str | Path, option: str = "--prompt") -> str:
    """A MIDI file as a text that a run reads. option: which named the file."""
    kind = check_reads_music(run, f"{option} {path}")
    text = text_of(kind, load_midi(path), str(path))
    if not text:
        shortest = f" of at least half a 16th note ({FRAME / 2} s)" if kind == "grid" else ""
        raise DataError(f"{option} {path}: the song has no notes{shortest}: give another one")
    return text


def write_song(run: "LookInside", text: str, path: Path) -> list[Note]:
    """Writes what a run has generated as a MIDI file; its notes."""
    notes = notes_of(check_reads_music(run, f"--out {path}"), text)
    write_bytes(path, write_midi(notes))
    return notes


def measured_on_songs(kind: str, result: dict[str, Any]) -> dict[str, Any]:
    """An evaluation on songs of a kind, with figures of music in place of those of text. The end of a song counts as an event of
    the song, so the nats of a frame are those of its four voices and a share of the end."""
    if not is_music(kind) or "perplexity" not in result:
        return result
    found = {name: value for name, value in result.items() if name not in ("words", "characters", "bytes")}
    found["nats_per_event"] = result["loss"]
    if kind == "grid" and "words" in result:
        found["frames"] = result["words"] // VOICES
        found["nats_per_frame"] = result["loss"] * result["tokens"] / max(found["frames"], 1)
    return found


def show_roll(run: "LookInside", song: str | Path, layer: int | None, head: int | None, token: str | None) -> "Roll":
    """A song as a piano roll with the attention of a run (see `LookInside.roll`)."""
    from seqloom.analyse.roll import Roll, look_from

    kind = check_reads_music(run, "--show roll")
    text = read_song(run, song, "--text") if is_song(str(song)) else " ".join(str(song).split())
    if not text:
        raise DataError("--text: it is empty: give a MIDI file, or a song in words")
    drawn, arcs = look_from(run.reading, kind, text, layer, head, token)
    name, words, whole = Path(song).name if is_song(str(song)) else "the song", len(drawn.split()), len(text.split())
    if words < whole:
        name = f"the first {words:,} of {whole:,} tokens of {name}"
    return Roll(run.folder.name, name, kind, drawn, arcs)

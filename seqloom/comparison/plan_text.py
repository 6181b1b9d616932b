"""The files that the rows of a plan learn from, and how they are split and prepared."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from seqloom.comparison.plan import TextConfig
from seqloom.text.music import is_music
from seqloom.text.songs import SongReader
from seqloom.text.survey import Request


def request_of(text: TextConfig, files: Sequence[Path]) -> Request:
    """Files of a plan's text, and how they are split. Songs may have splits of their own."""
    kind = text.tokenizer
    if text.split_field is not None:
        return Request(tuple(files), split_field=text.split_field)
    if is_music(kind) and all(SongReader(file, kind).has_splits for file in files):
        return Request(tuple(files), music=kind)
    return Request(tuple(files), text.valid, text.test, music=kind if is_music(kind) else None)


def prepare_options(text: TextConfig, files: Sequence[Path]) -> dict[str, Any]:
    """Of `prepare`, for such files."""
    request = request_of(text, files)
    held_out = {"valid": request.valid, "test": request.test} if text.split_field is None else {}
    return {"lowercase": text.lowercase, "split_field": text.split_field, **held_out}

"""What each run can be asked, and how runs and what they give look as JSON."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from seqloom.batch import STATIC
from seqloom.runs.language_model import Run
from seqloom.runs.predictor import Predictor
from seqloom.runs.translator import Translator


def writes(run: Any) -> bool:
    return isinstance(run, Run) and run.no_next_word is None


def fills(run: Any) -> bool:
    return isinstance(run, Run) and run.learner.fills_gaps


def scores(run: Any) -> bool:
    return isinstance(run, Run) and run.learner.backbone.learns_from not in STATIC


def embeds(run: Any) -> bool:
    return not getattr(run.learner, "count_based", False)


def has_neighbours(run: Any) -> bool:
    return isinstance(run, Run) and embeds(run)


def predicts(run: Any) -> bool:
    return isinstance(run, Predictor)


def translates(run: Any) -> bool:
    return isinstance(run, Translator)


def searches(run: Any) -> bool:
    """Whether a beam search finds texts."""
    return writes(run) or translates(run)


def has_attention(run: Any) -> bool:
    return bool(run.has_attention)


def has_cells(run: Any) -> bool:
    """Whether units of it have states that are carried from token to token."""
    if not embeds(run):
        return False
    reading = run.reading
    return any(getattr(reading.encoder.backbone, "gates", ())) and not reading.backward


ABILITIES: dict[str, Callable[[Any], bool]] = {
    "write": writes, "fill": fills, "score": scores, "embed": embeds, "neighbours": has_neighbours, "predict": predicts,
    "translate": translates, "beam": searches, "attention": has_attention, "cells": has_cells,
}  # fmt: skip


WORDS = {  # in a sentence
    "write": "generation", "fill": "gap filling", "score": "scoring", "embed": "embeddings", "predict": "predictions",
    "translate": "translation", "beam": "beam search",
}  # fmt: skip


def kind_of(run: Any) -> str:
    able = [WORDS.get(name, name) for name, can in ABILITIES.items() if can(run)]
    return f"it supports {', '.join(able)}" if able else "it supports nothing that a server offers"


def max_len_of(run: Any) -> int | None:
    return getattr(getattr(run.learner, "backbone", None), "max_len", None)


def model_record(name: str, run: Any) -> dict[str, Any]:
    """Asked once, when the run is loaded: its folder may be gone later."""
    record = {
        "id": name, "object": "model", "created": int(Path(run.folder, "config.json").stat().st_mtime),
        "owned_by": "seqloom", "max_model_len": max_len_of(run), "can": [each for each, can in ABILITIES.items() if can(run)],
    }  # fmt: skip
    return record | {"task": run.task, "fields": run.learner.fields} if predicts(run) else record


def filled_record(run: Any, filled: Any) -> dict[str, Any]:
    words = [run.tokenizer.decode(part) for part in filled.parts]
    return {"text": filled.text, "words": words, "probability": filled.probability}


def translation_record(run: Any, text: str, found: Any) -> dict[str, Any]:
    """Where there is an alignment, with the tokens of its rows and columns."""
    record = {"text": found.text, "log_prob": found.log_prob, "score": found.score, "finished": found.finished}
    if found.alignment is None:
        return record
    entry = run.tokenizer.entry
    reads = run.source_tokenizer
    source = [reads.entry(token) for token in [*reads.encode(text), reads.end_id]]
    target = [entry(token) for token in found.tokens]
    return record | {"source_tokens": source, "tokens": target, "alignment": found.alignment.tolist()}

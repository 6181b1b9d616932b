"""How the rows of a plan are measured on held-out text, so that no row is ahead by the way it is asked.

own context      each left-to-right row as it was trained: Transformers in windows of their training length, recurrent models
                 over whole documents, from the state that they were trained to begin one with
common context   where own contexts differ: all of them in windows of the shortest
forms            each masked row in every form of passages that some row of the plan has learnt from
"""

from collections.abc import Sequence
from typing import Any

from seqloom.comparison.records import Row
from seqloom.objectives.masked import MaskedLM

CARRIED_WARMUP = 512  # tokens that are read, and not counted, before each part of a text that is read as one document


def own_context(row: Row) -> int | None:
    """The tokens that a left-to-right row was trained to predict from; None: no limit."""
    limit: int | None = getattr(row.recipe.model_config_of(1), "max_len", None)
    return None if limit is None else min(limit, row.recipe.batches.length)


def carries_over(row: Row) -> bool:
    """Whether its state was never reset in training, so that it has not learnt to begin a document."""
    batches = row.recipe.batches
    return batches.kind == "streams" and not batches.reset


def common_context(rows: Sequence[Row]) -> int | None:
    """The tokens from which every left-to-right row can predict; None where all have the same context anyway."""
    found = {own_context(row) for row in rows if row.objective_class.has_next_word}
    limits = [each for each in found if each is not None]
    return min(limits) if limits and len(found) > 1 else None


def forms_of(rows: Sequence[Row]) -> tuple[str, ...]:
    """The forms of passages that masked rows learn from; none where all learn from single passages."""
    found = dict.fromkeys(row.objective_class.form for row in rows if issubclass(row.objective_class, MaskedLM))
    return tuple(found) if set(found) - {"single"} else ()


def asked(row: Row, rows: Sequence[Row]) -> tuple[str, ...]:
    """How a row is asked about held-out text beyond its own way: results that were asked otherwise are measured again."""
    if issubclass(row.objective_class, MaskedLM):
        return forms_of(rows)
    context = common_context(rows) if row.objective_class.has_next_word else None
    return () if context is None else (f"{context} tokens",)


def own_options(row: Row, rows: Sequence[Row]) -> dict[str, Any]:
    """Of `Run.evaluate`, for a row's own context or the forms of a masked row."""
    if issubclass(row.objective_class, MaskedLM):
        return {"forms": forms_of(rows)}
    if carries_over(row):
        return {"carry": True, "warmup": CARRIED_WARMUP}
    return {"max_len": own_context(row)}


def common_options(row: Row, rows: Sequence[Row]) -> dict[str, Any] | None:
    """Of `Run.evaluate`, for the common context; None where there is none, or the row has no next word."""
    context = common_context(rows)
    if context is None or not row.objective_class.has_next_word:
        return None
    return {"max_len": context, "carry": carries_over(row)}

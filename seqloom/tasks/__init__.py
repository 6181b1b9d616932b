"""What is learnt from labelled examples. Adding a task is one file here and one line in TASKS."""

import importlib
from typing import TYPE_CHECKING

from seqloom.config import unknown_name
from seqloom.errors import UsageError

if TYPE_CHECKING:
    from seqloom.batch import Backbone, EncoderDecoder, Task

TASKS = {
    "translate": "translate:Translate",
    "translation-lm": "translation_lm:TranslationLM",
    "entity-lm": "entity_lm:EntityLM",
}


def task_class(name: str) -> "type[Task]":
    if name not in TASKS:
        raise UsageError(unknown_name("task", name, name, list(TASKS)))
    module, _, cls = TASKS[name].partition(":")
    return getattr(importlib.import_module(f"seqloom.tasks.{module}"), cls)


def fitting_tasks(model: "type[Backbone] | type[EncoderDecoder]") -> list[str]:
    """What a model can be trained to do."""
    return [name for name in TASKS if task_class(name).fits(model)]

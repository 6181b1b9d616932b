"""The tasks, which learn from labelled examples. Adding a task is one file here and one line in TASKS."""

from typing import TYPE_CHECKING

from seqloom.config import named_class

if TYPE_CHECKING:
    from seqloom.batch import Backbone, EncoderDecoder, Task

TASKS = {
    "classify": "classify:Classify",
    "regress": "regress:Regress",
    "pair": "pair:Pair",
    "choose": "choose:Choose",
    "tag": "tag:TagWords",
    "span": "span:PickSpan",
    "translate": "translate:Translate",
    "caption": "caption:Caption",
    "translation-lm": "seqloom.objectives.translation_lm:TranslationLM",
    "entity-lm": "seqloom.objectives.entity_lm:EntityLM",
}

BESIDE_OTHERS = {"cross-view": "cross_view:CrossView"}  # learnt together with other tasks only


def task_class(name: str) -> "type[Task]":
    return named_class("task", name, TASKS if name in TASKS else BESIDE_OTHERS | TASKS, __name__)


def fitting_tasks(model: "type[Backbone] | type[EncoderDecoder]") -> list[str]:
    """The names of the tasks that a model can be trained for."""
    return [name for name in TASKS if task_class(name).fits(model)]

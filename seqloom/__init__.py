"""seqloom: the instrument that makes two sequence models comparable."""

import importlib
import os
import sys
from typing import TYPE_CHECKING, Any

from seqloom.training.process import prepare_process

__version__ = "0.2.0"

if TYPE_CHECKING:
    from seqloom.comparison.ladder import compare_ladder
    from seqloom.comparison.run import compare
    from seqloom.convert.huggingface import load
    from seqloom.runs.joint import finetune_tasks, train_tasks
    from seqloom.runs.language_model import Run
    from seqloom.runs.lm_eval_harness import harness_model
    from seqloom.runs.looking_back import effective_context, gradient_flow
    from seqloom.runs.predictor import Predictor
    from seqloom.runs.probing import probe
    from seqloom.runs.sensing import senses
    from seqloom.runs.training import finetune, pretrain, train
    from seqloom.runs.translator import Translator

PLACES = {
    "Predictor": "seqloom.runs.predictor",
    "Run": "seqloom.runs.language_model",
    "Translator": "seqloom.runs.translator",
    "compare": "seqloom.comparison.run",
    "compare_ladder": "seqloom.comparison.ladder",
    "effective_context": "seqloom.runs.looking_back",
    "finetune": "seqloom.runs.training",
    "finetune_tasks": "seqloom.runs.joint",
    "gradient_flow": "seqloom.runs.looking_back",
    "harness_model": "seqloom.runs.lm_eval_harness",
    "load": "seqloom.convert.huggingface",
    "pretrain": "seqloom.runs.training",
    "probe": "seqloom.runs.probing",
    "senses": "seqloom.runs.sensing",
    "train": "seqloom.runs.training",
    "train_tasks": "seqloom.runs.joint",
}
__all__ = [
    "Predictor",
    "Run",
    "Translator",
    "__version__",
    "compare",
    "compare_ladder",
    "effective_context",
    "finetune",
    "finetune_tasks",
    "gradient_flow",
    "harness_model",
    "load",
    "pretrain",
    "probe",
    "senses",
    "train",
    "train_tasks",
]


def __getattr__(name: str) -> Any:
    """Public names arrive with their first use: importing seqloom must not cost the two seconds of torch."""
    if name not in PLACES:
        raise AttributeError(f"module 'seqloom' has no attribute {name!r}")
    prepare_process(os.environ)
    return getattr(importlib.import_module(PLACES[name]), name)


def __dir__() -> list[str]:
    """What tab completion shows: the public names, and the modules that were imported."""
    modules = [name for name in globals() if f"{__name__}.{name}" in sys.modules]
    return sorted({*__all__, *modules, *(name for name in globals() if name.startswith("__"))})

"""seqloom: the instrument that makes two sequence models comparable."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seqloom.comparison.run import compare
    from seqloom.convert.huggingface import load
    from seqloom.runs.language_model import Run, pretrain
    from seqloom.runs.predictor import Predictor
    from seqloom.runs.training import finetune, train
    from seqloom.runs.translator import Translator

__all__ = ["Predictor", "Run", "Translator", "__version__", "compare", "finetune", "load", "pretrain", "train"]


def __getattr__(name: str) -> Any:
    """Public names arrive with their first use: importing seqloom must not cost the two seconds of torch."""
    if name in __all__:
        if name == "compare":
            from seqloom.comparison.run import compare

            return compare
        from seqloom.convert import huggingface
        from seqloom.runs import language_model, training

        places = {"Run": language_model, "pretrain": language_model, "load": huggingface}
        return getattr(places.get(name, training), name)
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")

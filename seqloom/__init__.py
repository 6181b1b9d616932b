"""seqloom: the instrument that makes two sequence models comparable."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seqloom.comparison.run import compare
    from seqloom.exchange import load
    from seqloom.predictor import Predictor
    from seqloom.runs import Run, pretrain
    from seqloom.supervise import finetune, train
    from seqloom.translator import Translator

__all__ = ["Predictor", "Run", "Translator", "__version__", "compare", "finetune", "load", "pretrain", "train"]


def __getattr__(name: str) -> Any:
    """Public names arrive with their first use: importing seqloom must not cost the two seconds of torch."""
    if name in __all__:
        if name == "compare":
            from seqloom.comparison.run import compare

            return compare
        from seqloom import exchange, runs, supervise

        places = {"Run": runs, "pretrain": runs, "load": exchange}
        return getattr(places.get(name, supervise), name)
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")

"""seqloom: the instrument that makes two sequence models comparable."""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from seqloom.runs import Run, load, pretrain

__all__ = ["Run", "__version__", "load", "pretrain"]


def __getattr__(name: str) -> Any:
    """Public names arrive with their first use: importing seqloom must not cost the two seconds of torch."""
    if name in __all__:
        from seqloom import runs

        return getattr(runs, name)
    raise AttributeError(f"module 'seqloom' has no attribute {name!r}")

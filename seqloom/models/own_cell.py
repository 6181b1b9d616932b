"""A recurrent language model around a cell of the user's own, from a --plugin file.

A cell is a torch.nn.Module made by `Class(input_dim, dim, **options)` with the four parts of `blocks.cells.Cell`:
`gates`, `inputs`, `step` and `start`; `init_weights` where it wants other first values than torch's.
"""

from typing import Any, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Lineage
from seqloom.blocks.connections import Connection, recurrent_stack
from seqloom.blocks.embedding import TokenEmbedding
from seqloom.blocks.recurrent import init_recurrent
from seqloom.blocks.stack import StackedBackbone
from seqloom.config import Config as BaseConfig
from seqloom.errors import UsageError
from seqloom.models.fields import Dim, Dropout, NumLayers, VocabSize
from seqloom.plugins import Plugin


class OwnCell(StackedBackbone):
    """h(t), … = step(inputs(x(t)), (h(t−1), …)), num_layers deep."""

    lineage = Lineage("a cell of your own", 0)
    recurrent = carries = True
    presets: ClassVar[dict[str, dict[str, Any]]] = {}

    class Config(BaseConfig):
        vocab_size: VocabSize
        cell: str = Field(description="Name of the class in the plugin file.")
        dim: Dim = 256
        num_layers: NumLayers = 2
        dropout: Dropout = 0.0
        connection: Connection = "none"
        options: dict[str, bool | int | float | str] = Field(
            {}, description="Values that are passed to the class: numbers, strings, true and false."
        )

    def __init__(self, config: Config, plugin: Plugin | None = None):
        if plugin is None:
            raise UsageError(f"the cell {config.cell} is code of your own: name its file with --plugin FILE.py")

        def build(width: int) -> nn.Module:
            assert plugin is not None
            with plugin.explain_errors(make.__init__):
                cell = make(width, config.dim, **config.options)
            check(cell, width, config.dim, plugin)
            return cell

        make = plugin.find_class(config.cell)
        stack = recurrent_stack(build, config.dim, config.num_layers, config.dropout, config.connection)
        super().__init__(TokenEmbedding(config.vocab_size, config.dim, dropout=0.0), stack, config.dim)

    def init_weights(self) -> None:
        init_recurrent(self)


def check(cell: Any, input_dim: int, dim: int, plugin: Plugin) -> None:
    """Takes one step with the cell and looks at every shape, so that a mistake is named where it was made."""
    check_parts(cell, plugin)
    check_shapes(cell, input_dim, dim, plugin)


def mistake(cell: Any, part: str, message: str, plugin: Plugin) -> UsageError:
    kind: Any = type(cell)
    return UsageError(plugin.at(getattr(kind, part, kind.__init__), f"{kind.__name__}.{part} {message}"))


def check_parts(cell: Any, plugin: Plugin) -> None:
    """The cell is a module with the four parts of a cell."""
    if not isinstance(cell, nn.Module):
        raise mistake(cell, "__init__", "must make a torch.nn.Module", plugin)
    names = getattr(cell, "gates", None)
    if not isinstance(names, tuple) or not names or not all(isinstance(name, str) for name in names):
        wanted = 'must be a tuple with the names of what step returns second, as ("h",)'
        raise mistake(cell, "gates", f"{wanted}, not {names!r}", plugin)
    for part in ("inputs", "step", "start"):
        if not callable(getattr(cell, part, None)):
            raise mistake(cell, part, "is missing", plugin)


@torch.no_grad()
def check_shapes(cell: Any, input_dim: int, dim: int, plugin: Plugin, n: int = 3) -> None:
    """Takes one step with n sequences."""

    def wrong(part: str, message: str) -> UsageError:
        return mistake(cell, part, message, plugin)

    like = next(cell.parameters(), torch.zeros(()))
    with plugin.explain_errors(type(cell).step), torch.random.fork_rng(devices=[]):
        state = cell.start(n)
        if not is_state(state, n):
            raise wrong("start", f"must return a tuple of tensors ({n}, …) for {n} sequences, not {shapes(state)}")
        if state[0].shape != (n, dim):
            raise wrong("start", f"must have h first, ({n}, {dim}) for {n} sequences, not {shapes(state)}")
        x = cell.inputs(like.new_zeros(2 * n, input_dim))
        if not isinstance(x, Tensor) or x.ndim != 2 or x.shape[0] != 2 * n:
            raise wrong("inputs", f"must return ({2 * n}, …) for {2 * n} tokens, not {shapes(x)}")
        result = cell.step(x[:n], state)
        if not isinstance(result, tuple) or len(result) != 2:
            raise wrong("step", f"must return two tuples, the new state and the gates, not {shapes(result)}")
        after, gates = result
        if not is_state(after, n) or [s.shape for s in after] != [s.shape for s in state]:
            raise wrong("step", f"returned the state {shapes(after)}, given was {shapes(state)}: they must be alike")
        names = cell.gates
        if not is_state(gates, n) or len(gates) != len(names) or len({gate.shape for gate in gates}) != 1:
            raise wrong("step", f"returned the gates {shapes(gates)} for the names {names}: one tensor each, all alike")


def is_state(value: Any, n: int) -> bool:
    return isinstance(value, tuple) and all(isinstance(s, Tensor) and s.ndim == 2 and s.shape[0] == n for s in value)


def shapes(value: Any) -> str:
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    if isinstance(value, tuple):
        return "(" + ", ".join(map(shapes, value)) + ("," if len(value) == 1 else "") + ")"
    return type(value).__name__

"""Ways past a recurrent layer, and the one function that builds a stack of such layers with them.

residual   x + f(x)                                  He et al., 2015; in recurrent stacks Wu et al., 2016 (arXiv 1609.08144)
highway    g f(x) + (1 − g) x, g = σ(W x + b)        Srivastava et al., 2015 (arXiv 1505.00387)
dense      [x ; f(x)]: every layer reads all before  Huang et al., 2016 (arXiv 1608.06993)
"""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.batch import Context, Ragged
from seqloom.blocks.layers import Mixed
from seqloom.blocks.recurrent import RecurrentLayer, RecurrentStack
from seqloom.blocks.stack import Stack

Connection = Annotated[
    Literal["none", "residual", "highway", "dense"], Field(description="Connections around the recurrent layers.")
]


class Residual(nn.Module):
    """Around a layer that gives as many numbers as it reads."""

    identity_path = True  # what is read is part of what comes out

    def __init__(self, layer: nn.Module, dim: int):
        super().__init__()
        self.layer: Any = layer

    @property
    def gates(self) -> tuple[str, ...]:
        return self.layer.gates

    def forward(self, x: Tensor, batch: Ragged, state: Any, context: Context | None, maps: bool) -> Mixed:
        y, state, weights = self.layer(x, batch, state, context, maps)
        return self.join(x, y), state, weights

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y

    def start(self, n: int, max_len: int) -> Any:
        return self.layer.start(n, max_len)


class Highway(Residual):
    """The gate starts at σ(−1) = 0.27: at first most goes past the layer, as its authors advise for depth."""

    def __init__(self, layer: nn.Module, dim: int):
        super().__init__(layer, dim)
        self.gate = nn.Linear(dim, dim)

    def init_weights(self) -> None:
        self.gate.reset_parameters()
        nn.init.constant_(self.gate.bias, -1.0)

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        gate = torch.sigmoid(self.gate(x))
        return x + gate * (y - x)


class Dense(Residual):
    identity_path = False  # beside, and the top layer gives its own alone

    def join(self, x: Tensor, y: Tensor) -> Tensor:
        return torch.cat((x, y), dim=1)


def recurrent_stack(
    cell: Callable[[int], nn.Module], dim: int, num_layers: int, dropout: float, connection: Connection
) -> Stack:
    """num_layers of cell(width of what it reads), each of which reads and gives `dim` numbers.

    Dense layers read more the higher they stand; from the top one only its own `dim` go out, so that the output layer
    keeps its width and may stay tied to the embeddings.
    """
    top = num_layers - 1
    widths = [dim * (i + 1) if connection == "dense" else dim for i in range(num_layers)]
    layers: list[nn.Module] = [RecurrentLayer(cell(width), dropout) for width in widths]
    if connection == "dense":
        layers = [Dense(layer, dim) if i < top else layer for i, layer in enumerate(layers)]
    elif connection != "none":
        around = Residual if connection == "residual" else Highway
        layers = [around(layer, dim) for layer in layers]
    return RecurrentStack(layers, top=nn.Dropout(dropout))

"""Loss and gradient of one example: computed as written, compiled, or on a GPU recorded once and replayed.

Small models on a large GPU wait for the host, which launches thousands of kernels a step. A CUDA graph launches them all
at once; what is computed stays the same, and so does every bit of randomness, which belongs to the step.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from seqloom.batch import Learner, Loss, State
from seqloom.blocks.alignment import AlignedCell
from seqloom.blocks.experts import Experts
from seqloom.blocks.lsh import LshAttention
from seqloom.blocks.recurrent import RecurrentLayer
from seqloom.errors import UsageError
from seqloom.training.precision import LossScale, autocast

MOST_GRAPHS = 40  # shapes of examples; later ones are computed as they come
ODD = 64  # widths below which it does not matter where rows begin in memory

Differentiate = Callable[[Any, State | None], Loss]


def worth_compiling(learner: nn.Module, device: torch.device) -> bool:
    """On a GPU, unless the work is done in recurrent layers: no compiler sees into their kernels, and it would unroll
    their loops. Nor where the backward pass computes layers anew."""
    return device.type == "cuda" and not any(
        isinstance(module, RecurrentLayer | AlignedCell | Experts | LshAttention) for module in learner.modules()
    )


def worth_recording(learner: Learner, device: torch.device) -> bool:
    """On a GPU, where nothing in a step asks the host. How many tokens an expert has is asked where no kernel takes them all;
    rotations of a step are drawn on the host."""
    asks = any(isinstance(module, Experts | LshAttention) for module in learner.modules())
    return device.type == "cuda" and learner.static and not asks


def has_odd_widths(learner: nn.Module) -> bool:
    """Whether larger products are of widths that no multiple of 8 is, such as the 410 of Transformer-XL."""
    sizes = (module.weight.shape for module in learner.modules() if isinstance(module, nn.Linear))
    return any(min(size) >= ODD and (size[0] % 8 or size[1] % 8) for size in sizes)


class Gradient:
    """Called with an example and a carried state it sets every parameter's .grad, and returns the loss, detached."""

    def __init__(self, learner: Learner, precision: str, device: torch.device, compiled: bool, recorded: bool):
        # what a GPU's matrix units read at odd places takes several times as long: the compiler fuses the zeros behind into what
        # comes before
        options: dict[str, Any] | None = (
            {"force_shape_pad": True} if device.type == "cuda" and has_odd_widths(learner) else None
        )
        self.model: Callable[..., Loss] = torch.compile(learner, options=options) if compiled else learner
        self.precision, self.device, self.recorded = precision, device, recorded
        self.scaler = LossScale(device) if precision == "fp16" else None
        self.parameters = list(learner.parameters())
        self.seen: set[Any] = set()
        self.graphs: dict[Any, Recorded] = {}
        if recorded:  # one after the other is replayed: they may compute in the same memory
            self.stream, self.pool = torch.cuda.Stream(), torch.cuda.graph_pool_handle()

    def plain(self, example: Any, carry: State | None) -> Loss:
        with autocast(self.precision, self.device):
            loss = self.model(example, carry)
        (loss.total if self.scaler is None else loss.total * self.scaler.scale).backward()
        return loss._replace(total=loss.total.detach())

    def __call__(self, example: Any, carry: State | None) -> Loss:
        if not self.recorded:
            return self.plain(example, carry)
        leaves, shape = pytree.tree_flatten((example, carry))
        key = tuple((leaf.shape, leaf.dtype) if isinstance(leaf, Tensor) else leaf for leaf in leaves)
        if key not in self.graphs:
            if key not in self.seen or len(self.graphs) == MOST_GRAPHS:  # a shape that comes once is not worth a graph
                self.seen.add(key)
                return self.plain(example, carry)
            self.graphs[key] = Recorded(self.plain, leaves, shape, self.parameters, self.stream, self.pool)
        return self.graphs[key](leaves)


class Recorded:
    """Forward and backward pass for examples of one shape. What it returns is overwritten by the next call of any that
    shares its pool of memory."""

    def __init__(
        self,
        differentiate: Differentiate,
        leaves: Sequence[Any],
        shape: Any,
        parameters: Sequence[nn.Parameter],
        side: torch.cuda.Stream,
        pool: Any,
    ):
        self.inputs = [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves]
        self.parameters = parameters
        given = pytree.tree_unflatten(self.inputs, shape)
        device = next(leaf.device for leaf in leaves if isinstance(leaf, Tensor))
        with torch.random.fork_rng([device]):  # the step's own draws come when it is replayed
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):  # compilers and libraries set themselves up in first calls
                for _ in range(2):
                    differentiate(*given)
                    self.forget()
            torch.cuda.current_stream().wait_stream(side)
            self.graph = torch.cuda.CUDAGraph()
            # on the stream of the first calls: gradients are added up where their parameter was first used
            try:
                with torch.cuda.graph(self.graph, pool=pool, stream=side, capture_error_mode="thread_local"):
                    self.loss = differentiate(*given)
            except RuntimeError as error:
                raise UsageError(
                    f"a step of this model cannot be recorded, because something in it asks the host "
                    f"({str(error).splitlines()[0]}): set train.record=false"
                ) from error
        self.gradients = [parameter.grad for parameter in parameters]

    def forget(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    def __call__(self, leaves: Sequence[Any]) -> Loss:
        for ours, given in zip(self.inputs, leaves, strict=True):
            if isinstance(ours, Tensor):
                ours.copy_(given, non_blocking=True)
        self.graph.replay()
        for parameter, gradient in zip(self.parameters, self.gradients, strict=True):
            parameter.grad = gradient
        return self.loss

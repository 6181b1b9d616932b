"""How a rank holds the weights: whole, or with `train.shard` its share of them, for models that do not fit one device.

Sharded are weights, gradients and what the optimizer remembers (PyTorch's FSDP2). A layer is whole only while it computes. What
is written, measured and read is always whole: a checkpoint does not say how it was made, and any number of ranks can go on with
it, sharded or not.
"""

import copy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from seqloom.batch import Learner, State
from seqloom.blocks.stack import Stack
from seqloom.errors import UsageError
from seqloom.training.ranks import Ranks
from seqloom.weights import unique


class Weights:
    """Every rank has all of them."""

    is_sharded = False

    def __init__(self, learner: Learner, ranks: Ranks):
        self.learner, self.first = learner, ranks.first

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors whole. All ranks call it; the first one uses it."""
        return dict(tensors)

    def copy(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Tensors whole, in the memory of the host, and as they are now, whatever becomes of them. As `gather`."""
        found = {}
        for name in sorted(tensors):  # in one order: what was read from a file has another one on every rank
            full = whole(tensors[name].detach())
            if self.first:
                found[name] = full.to("cpu", copy=True)
        return found

    def cut(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Stored tensors as this rank holds them. like: those that it has."""
        return dict(tensors)

    def start(self, n: int) -> State | None:
        """The state of n streams before their first batch."""
        return self.learner.start(n)

    @contextmanager
    def measured(self) -> Iterator[Learner]:
        """A learner with whole weights, to evaluate. All ranks call it."""
        yield self.learner


class Sharded(Weights):
    """Every rank has a share of each. Gradients are added up over the ranks while they arise: sums, not means."""

    is_sharded = True

    def __init__(self, learner: Learner, ranks: Ranks, device: torch.device):
        """learner: on the CPU, from where it is moved layer by layer, so that no device ever has all of it."""
        # imported here: it takes a second, and few runs need it
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import fully_shard

        super().__init__(learner, ranks)
        self.frame = copy.deepcopy(learner)  # of what is measured; it has weights only meanwhile
        for parameter in self.frame.parameters():
            parameter.data = parameter.new_empty(0)
        self.frame.to(device)
        if device.type == "cuda":
            torch.cuda.set_device(device)
        mesh = init_device_mesh(device.type, (ranks.world,))
        stacks = (module for module in learner.modules() if isinstance(module, Stack))
        for module in (*(unit for stack in stacks for unit in stack.units), learner):
            unit: Any = fully_shard(module, mesh=mesh)
            unit.set_gradient_divide_factor(1.0)
            unit.set_force_sum_reduction_for_comms(True)  # gloo can neither multiply nor divide while it sums
        learner.to(device)  # buffers that belong to no layer

    def gather(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """One after the other, and into the memory of the host: a device never has more than one of them."""
        return self.copy(tensors)

    def cut(self, tensors: Mapping[str, Tensor], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
        from torch.distributed.tensor import DTensor, distribute_tensor

        found = dict(tensors)
        for name, own in like.items():
            given = tensors.get(name)
            if isinstance(own, DTensor) and given is not None and given.shape == own.shape:
                # every rank has read the file: nothing is sent
                found[name] = distribute_tensor(
                    given.to(own.device, own.dtype), own.device_mesh, own.placements, src_data_rank=None
                )
        return found

    def start(self, n: int) -> State | None:
        return self.frame.start(n)  # it has the type and place of its weights, which must not be a share here

    @contextmanager
    def measured(self) -> Iterator[Learner]:
        frame = unique(self.frame)
        try:
            for name, tensor in sorted(unique(self.learner).items()):
                frame[name].data = whole(tensor.detach())
            yield self.frame
        finally:
            for parameter in self.frame.parameters():
                parameter.data = parameter.new_empty(0)


def is_shared(tensor: Tensor) -> bool:
    """Whether ranks share a tensor. Torch's own class is asked for by what it can do: to import it takes long."""
    return hasattr(tensor, "full_tensor")


def whole(tensor: Any) -> Tensor:
    """A tensor that ranks share as one of which each has all; any other as it is. All of them call it."""
    return tensor.full_tensor() if is_shared(tensor) else tensor


def own_share(tensor: Any) -> Tensor:
    """What this rank has of a tensor."""
    return tensor.to_local() if is_shared(tensor) else tensor


def check_shards(learner: Learner, ranks: Ranks, parts: int, compiled: bool) -> None:
    """Raises UsageError where weights cannot be shared out."""
    if ranks.ordered:
        raise UsageError(
            "--deterministic adds gradients up in one fixed tree, and train.shard adds them up while they arise: leave one of "
            "them out"
        )
    if not learner.static:
        raise UsageError(
            "train.shard = true: in a step of this model the data decides what is computed, and ranks would wait for each other: "
            "leave it out"
        )
    if compiled:
        raise UsageError(
            "train.shard = true: sharded models are not compiled: leave train.compile out, or set it to false"
        )
    if any(parameter.ndim == 0 for parameter in learner.parameters()):
        raise UsageError(
            "train.shard = true: this model has a weight that is a single number, which cannot be shared out"
        )
    if parts % ranks.world:
        raise UsageError(
            f"train.shard = true: {parts} parts a step cannot be shared equally by {ranks.world} ranks, which compute in step: "
            f"give a multiple of {ranks.world}"
        )
    if ranks.shares_device:
        raise UsageError("train.shard = true: each rank needs a GPU of its own: start fewer ranks, or leave it out")

"""The optimizer, and one step of it that no broken number survives."""

import re
from collections.abc import Iterable
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from seqloom.config import Config
from seqloom.training.precision import LossScale
from seqloom.training.shard import is_shared, own_share, whole


class OptimConfig(Config):
    name: Literal["adamw", "sgd", "adagrad"] = Field("adamw", description="Optimizer.")
    lr: float = Field(1e-3, gt=0, description="Peak learning rate; the schedule multiplies it.")
    weight_decay: float = Field(
        0.0, ge=0, description="Weight decay of matrices; vectors such as biases and norms have none."
    )
    beta1: float = Field(0.9, ge=0, lt=1, description="Decay of Adam's running mean of the gradient.")
    beta2: float = Field(0.99, ge=0, lt=1, description="Decay of Adam's running mean of the squared gradient.")
    eps: float = Field(1e-8, gt=0, description="Number added to the denominator of Adam and AdaGrad.")
    momentum: float = Field(0.0, ge=0, lt=1, description="Momentum of SGD.")
    nesterov: bool = Field(False, description="Use Nesterov momentum in SGD.")
    accumulator: float = Field(
        0.0, ge=0, description="Number that AdaGrad's sums of squared gradients begin with (GloVe uses 1)."
    )
    gradient: Literal["mean", "sum"] = Field(
        "mean",
        description="Step by the mean of the gradients of a step's targets, or by their sum: then lr is the rate of one target, "
        "as in programs that learn from one after the other.",
    )
    clip: float = Field(1.0, ge=0, description="Largest norm of the gradient; 0: no clipping.")
    row_clip: float = Field(
        0.0,
        ge=0,
        description="Largest norm of the gradient of one row of a matrix, such as the vector of one word; 0: no limit.",
    )
    average: Literal["never", "start", "nonmono"] = Field(
        "never",
        description="Evaluate and keep the mean of the weights: never, from the first step, or once the "
        "validation loss stops falling (NT-ASGD).",
    )
    nonmono: int = Field(5, ge=0, description="Evaluations without gain before averaging starts, with average nonmono.")
    layer_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="Learning rate of a layer as a share of that of the layer above it (Howard & Ruder, 2018, use 1/2.6).",
    )


def depths(learner: nn.Module) -> dict[str, int]:
    """How far above the embedding, which is at 0, each parameter stands; what belongs to no backbone is on top."""
    found = {}
    for name, _ in learner.named_parameters():
        layer = re.search(r"\.layers\.(\d+)\.", name)
        below = name.startswith("backbone.")
        found[name] = 0 if not below or layer is None else int(layer[1]) + 1
    top = max(found.values(), default=0)
    for name in found:
        if not name.startswith("backbone."):
            found[name] = top + 1
        elif ".layers." not in name and ".embedding." not in name:
            found[name] = top  # a pooler, a norm above the layers
    return found


def build_optimizer(
    config: OptimConfig, learner: nn.Module, by_depth: bool = False, few_rows: bool = False
) -> torch.optim.Optimizer:
    """Groups have their `depth` and the `share` of the rate that belongs to it. by_depth: a depth is a group of its own.
    few_rows: tables have gradients of the rows that were read alone, where that changes nothing."""
    apart = by_depth or config.layer_decay < 1
    depth = depths(learner) if apart else {}
    top = max(depth.values(), default=0)
    parts: dict[tuple[int, bool], list[nn.Parameter]] = {}
    for name, parameter in learner.named_parameters():
        parts.setdefault((depth.get(name, 0), parameter.ndim < 2), []).append(parameter)
    groups = [
        {
            "params": parameters,
            "weight_decay": 0.0 if small else config.weight_decay,
            "depth": place,
            "share": config.layer_decay ** (top - place),
        }
        for (place, small), parameters in sorted(parts.items(), key=lambda part: part[0])
    ]
    fused = all(parameter.device.type != "mps" for parameter in learner.parameters())  # there it cannot skip a step
    # a row without a gradient stays as it is, unless it decays or has momentum; on a GPU whole tables are faster, and recorded
    on_host = all(parameter.device.type == "cpu" for parameter in learner.parameters())
    moves_alone = config.name != "adamw" and not (config.weight_decay or config.momentum)
    if few_rows := few_rows and on_host and moves_alone:
        torch.sparse.check_sparse_tensor_invariants.disable()  # as they are; torch warns unless that is said
        for module in learner.modules():
            if isinstance(module, nn.Embedding):
                module.sparse = True
    if config.name == "sgd":
        shared = any(is_shared(parameter) for parameter in learner.parameters())
        fused = fused and not shared and not few_rows  # torch has no such kernel
        return torch.optim.SGD(groups, lr=config.lr, momentum=config.momentum, nesterov=config.nesterov, fused=fused)
    if config.name == "adagrad":
        return torch.optim.Adagrad(groups, lr=config.lr, eps=config.eps, initial_accumulator_value=config.accumulator)
    return torch.optim.AdamW(groups, lr=config.lr, betas=(config.beta1, config.beta2), eps=config.eps, fused=fused)


def step(
    optimizer: torch.optim.Optimizer,
    count: Tensor,
    clip: float,
    scaler: LossScale | None = None,
    mean: bool = True,
    row_clip: float = 0.0,
) -> tuple[Tensor, Tensor]:
    """Turns summed gradients into those of the mean over `count` targets, clips, and steps unless a number is broken.
    scaler: what the loss was multiplied by; it learns whether that was too much. mean: False leaves them sums. row_clip: the
    rows of matrices are clipped first, each for itself.

    With fused kernels everything stays on the device: they divide by `grad_scale` and skip the update where `found_inf` is
    set, so that nothing waits for the host. Others are given divided gradients, and the host decides whether they step.
    Returns the gradient's norm before clipping and 1.0 where it was skipped.
    """
    gradients = [values(p) for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
    many = count.clamp(min=1).to(torch.float32)
    if not mean:
        many = torch.ones_like(many)
    if scaler is not None:
        many = many * scaler.scale
    if row_clip:
        clip_rows(gradients, row_clip * many)
    norm = whole(torch.nn.utils.get_total_norm(gradients)).to(torch.float32) / many
    broken = (~torch.isfinite(norm) | (count == 0)).to(torch.float32)
    if scaler is not None:
        scaler.update((~torch.isfinite(norm)).to(torch.float32))
    shrink = torch.clamp(norm / clip, min=1.0) if clip else torch.ones_like(norm)
    if all(group.get("fused") for group in optimizer.param_groups):
        optimizer.grad_scale = many * shrink  # type: ignore[attr-defined]
        optimizer.found_inf = broken  # type: ignore[attr-defined]
        optimizer.step()
    elif not broken:
        torch._foreach_div_([own_share(gradient) for gradient in gradients], many * shrink)
        optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return norm, broken


def clip_rows(gradients: Iterable[Tensor], largest: Tensor) -> None:
    """Shortens the rows of matrices that are longer. Of a word that a batch has a thousand times the sum of a thousand gradients,
    all taken where it stood before the step, would throw it far beyond where one after the other would have moved it."""
    for gradient in gradients:
        rows = own_share(gradient)
        if rows.ndim > 1:
            lengths = torch.linalg.vector_norm(rows, dim=tuple(range(1, rows.ndim)), keepdim=True)
            rows.mul_((largest / lengths.clamp(min=torch.finfo(rows.dtype).tiny)).clamp(max=1.0))


def values(parameter: nn.Parameter) -> Tensor:
    """The numbers of a gradient: all of them, or those of its rows."""
    assert parameter.grad is not None
    if not parameter.grad.is_sparse:
        return parameter.grad
    parameter.grad = parameter.grad.coalesce()
    return parameter.grad.values()


def named_state(optimizer: torch.optim.Optimizer, learner: nn.Module) -> dict[str, Tensor]:
    """The optimizer's tensors under the names of their parameters."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in learner.named_parameters()}
    return {
        f"{names[parameter]}:{key}": value
        for parameter, state in optimizer.state.items()
        for key, value in state.items()
        if isinstance(value, Tensor)
    }


def load_named_state(optimizer: torch.optim.Optimizer, learner: nn.Module, tensors: dict[str, Tensor]) -> None:
    parameters = dict(learner.named_parameters())
    for full_name, value in tensors.items():
        name, _, key = full_name.rpartition(":")
        parameter = parameters[name]
        optimizer.state[parameter][key] = value.to(parameter.device)


def state_like(learner: nn.Module, tensors: Iterable[str]) -> dict[str, Tensor]:
    """The parameters that stored tensors of an optimizer belong to, under the names of those."""
    parameters: dict[str, Tensor] = dict(learner.named_parameters())
    names = {full_name: full_name.rpartition(":")[0] for full_name in tensors}
    return {full_name: parameters[name] for full_name, name in names.items() if name in parameters}

"""Averaged SGD: training continues with the weights, while their mean since some step is evaluated and kept.

Polyak & Juditsky, 1992. When the averaging begins: at the first step, or by itself where the validation loss has stopped
to fall (NT-ASGD, non-monotonically triggered: Merity et al., 2017, arXiv 1708.02182). The rate stays as it is.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from seqloom.weights import unique


class Averages:
    """The mean of a module's weights over the steps that were added to it, in fp32 at least as the weights are."""

    def __init__(self, module: nn.Module):
        parameters = set(module.parameters())
        self.weights = {name: weight for name, weight in unique(module).items() if weight in parameters}
        self.means = {name: weight.detach().clone() for name, weight in self.weights.items()}

    @torch.no_grad()
    def add(self, count: int) -> None:
        """The weights as they are now are the count-th of them; a count of 1 begins anew."""
        torch._foreach_lerp_(list(self.means.values()), list(self.weights.values()), 1 / count)

    def load(self, means: dict[str, Tensor]) -> None:
        for name, mean in self.means.items():
            mean.copy_(means[name])

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """Within it the module has the means. They are copied where the weights are: a recorded step knows their places."""
        raw = {name: weight.detach().clone() for name, weight in self.weights.items()}
        try:
            self.put(self.means)
            yield
        finally:
            self.put(raw)

    @torch.no_grad()
    def put(self, values: dict[str, Tensor]) -> None:
        for name, weight in self.weights.items():
            weight.copy_(values[name])


def is_time(losses: list[float], nonmono: int) -> bool:
    """Whether the last validation loss is above the best of those more than `nonmono` evaluations ago."""
    *before, last = losses
    return len(before) > nonmono and last > min(before[: len(before) - nonmono])

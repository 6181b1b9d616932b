"""Several tasks on one body: hard parameter sharing. Caruana, 1993 and 1997; Collobert & Weston, 2008.

Every step is of one task: H(w) = F(w) + λ G(w) is followed one summand at a time, and a step of a task with the weight λ has λ
times its gradient. A task's head has gradients of its own steps only. An auxiliary task may read a lower layer (`layers`;
Søgaard & Goldberg, 2016). The first task is the main one, by which weights are chosen.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from torch import nn

from seqloom.batch import Labelled, Loss, Sizes, State, Task, Vocabulary
from seqloom.errors import UsageError
from seqloom.tasks.transfer import Transfer


class OfTask(NamedTuple):
    """A batch of one of several tasks."""

    task: int
    example: Labelled

    @property
    def batch(self) -> Any:
        return self.example.batch

    def sizes(self) -> Sizes:
        return self.example.sizes()._replace(task=self.task)


class Several(Task):
    """heads: by name, the main task first; all of them were built with this backbone. weights: λ of each."""

    reads = "labelled"
    static = False  # steps of different tasks run different kernels

    def __init__(self, backbone: Any, heads: Mapping[str, Transfer], weights: Sequence[float]):
        super().__init__()
        self.backbone = backbone
        self.names, self.heads = list(heads), nn.ModuleList(heads.values())
        self.weights = list(weights)
        main = next(iter(heads.values()))
        self.about, self.frozen = main.about, main.frozen
        check_together(heads)
        for head in heads.values():
            head.look_at(heads)

    def forward(self, example: OfTask, carry: State | None = None) -> Loss:
        """Reported is the loss of the task itself: what its weight adds or takes is a penalty."""
        loss: Loss = self.tasks[example.task](example.example)
        weight = self.weights[example.task]
        if weight == 1:
            return loss
        reported = loss.total.detach() - loss.logs.get("penalty", 0.0)
        total = weight * loss.total
        return loss._replace(total=total, logs=loss.logs | {"penalty": total.detach() - reported})

    @property
    def tasks(self) -> list[Any]:
        return list(self.heads)

    def set_vocabulary(self, vocabulary: Vocabulary) -> None:
        self.backbone.set_vocabulary(vocabulary)

    def validate_loaded(self) -> None:
        self.backbone.validate_loaded()


def check_together(heads: Mapping[str, Transfer]) -> None:
    """Raises UsageError where tasks cannot share a body."""
    first, *others = heads
    for name in others:
        for key in ("frozen", "view"):
            ours, theirs = heads[first].about[key], heads[name].about[key]
            if ours != theirs:
                raise UsageError(
                    f"'task.{key}' is {ours!r} for {first} and {theirs!r} for {name}: tasks that share a model share it, too"
                )
    if any(head.beside_at for head in heads.values()):
        raise UsageError("'task.beside': several tasks on one body read no features from other runs: leave it out")

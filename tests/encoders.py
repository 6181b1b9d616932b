"""Untrained runs with weights large enough that every part of them shows, and texts for them."""

from pathlib import Path
from typing import Any

import torch

from seqloom.batch import Backbone, pack
from seqloom.batches.vocabulary import PreparedVocabulary
from seqloom.models import model_class
from seqloom.objectives import objective_class
from seqloom.runs.language_model import Run
from seqloom.tokens.tokenizer import Tokenizer
from tests.training.material import sentences

TEXTS = [
    "the cat sees the dog today .",
    "",
    "walking",
    "no child remembers a small river near the sea .",
    "the",
    "a . a",
]
SIZES: dict[str, Any] = {"dim": 12, "num_layers": 4}
ATTENTIVE = {"num_heads": 2, "max_len": 40, "dropout": 0.0}


def tokenizer_of(kind: str = "wordpiece") -> Tokenizer:
    size = {"wordpiece": 50, "bpe": 300}.get(kind)
    return Tokenizer.train(kind, sentences(200), vocab_size=size, min_count=1)


def run_of(model: str, objective: str, tokenizer: Tokenizer, dtype: torch.dtype = torch.float64, **changes: Any) -> Run:
    cls: Any = model_class(model)
    kind: Any = objective_class(objective)
    torch.manual_seed(0)
    sizes = {} if cls.learns_from == "counts" else SIZES if cls.recurrent else SIZES | ATTENTIVE
    sizes |= {"embedding_dim": 8} if model in ("albert", "electra") else {}
    learns = {"tie": False} if model in ("awd-lstm", "big-lstm") else {}
    learner = kind(cls(cls.Config(vocab_size=tokenizer.vocab_size, **(sizes | changes))), kind.Config(**learns))
    learner.set_vocabulary(PreparedVocabulary(tokenizer))  # type: ignore[arg-type]
    with torch.no_grad():  # nearly equal probabilities would hide much
        for parameter in learner.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return Run(Path("memory"), {}, learner.to(dtype).eval(), tokenizer, torch.device("cpu"))


def states(backbone: Backbone, ids: list[int]) -> tuple[torch.Tensor, ...]:
    """The embedding and every layer of one text, the top in the last's place."""
    with torch.no_grad():
        output = backbone(pack([ids]), layers=True)
    return (*output.layers[:-1], output.hidden)


def guesses(run: Run, ids: list[int]) -> torch.Tensor:
    """(T, V) the log-probabilities at every place of one whole sequence."""
    learner: Any = run.learner
    reader = getattr(learner, "generator", learner.backbone)
    with torch.no_grad():
        return torch.log_softmax(learner.softmax(learner.guess(reader(pack([ids])).hidden)), 1)

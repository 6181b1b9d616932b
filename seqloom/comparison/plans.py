"""Built-in plans. The classroom: the lineage in small, on text that ships with Python, in twenty minutes on two cores."""

from pathlib import Path
from typing import Any

from seqloom.comparison.names import check_plan_name
from seqloom.comparison.plan import PlanConfig, check, read_plan
from seqloom.config import build

STREAMS = ["batches.streams=16", "batches.length=64"]
ATTENTION = ["model.num_layers=2", "model.max_len=64", "batches.budget=1024", "batches.length=64"]
# learning rates near those of the tiny recipes, lower where a few trials were better; none was tuned
CLASSROOM: dict[str, tuple[str, list[str]]] = {
    "n-gram": ("ngram-tiny", []),
    "NNLM": ("nnlm-tiny", STREAMS),
    "RNN": ("rnn-tiny", [*STREAMS, "train.optim.lr=2e-3"]),
    "GRU": ("gru-tiny", [*STREAMS, "train.optim.lr=4e-3"]),
    "LSTM": ("lstm-tiny", [*STREAMS, "train.optim.lr=8e-3"]),
    "GPT": ("gpt2-tiny", [*ATTENTION, "model.num_heads=4", "train.optim.lr=2e-3"]),
    "BERT": ("bert-tiny", [*ATTENTION, "model.num_heads=4", "train.optim.lr=2e-3"]),
    "ELECTRA": ("electra-tiny", [*ATTENTION, "model.num_heads=4", "train.optim.lr=2e-3"]),
}
QUESTIONS = {
    "Do gates help?": ("RNN", "LSTM"),
    "Recurrence or attention?": ("LSTM", "GPT"),
    "Predict masked words, or detect replaced ones?": ("BERT", "ELECTRA"),
}
WORDS_PER_MINUTE = 110_000  # of each of the four, on two cores


def classroom(words: float = 500_000, seeds: int = 3, rows: tuple[str, ...] = tuple(CLASSROOM)) -> dict[str, Any]:
    return {
        "name": "The lineage in a classroom",
        "seeds": seeds,
        "parameters": 600_000,
        "settings": ["train.eval_every=200", "train.schedule.warmup=50", "valid.limit=20000"],
        "pairs": 150,
        "text": {"built_in": True, "vocab_size": 2048},
        "budget": {"words": words},
        "rows": [
            {"name": name, "recipe": CLASSROOM[name][0], "settings": CLASSROOM[name][1], "grow": "dim"} for name in rows
        ],
        "questions": [
            {"name": name, "rows": list(asked)} for name, asked in QUESTIONS.items() if set(asked) <= set(rows)
        ],
    }


def quick_plan(minutes: float, seed: int = 0) -> PlanConfig:
    """A slice of the classroom: one model of each kind, one seed."""
    rows = ("n-gram", "LSTM", "GPT", "BERT")
    values = classroom(words=max(WORDS_PER_MINUTE * minutes, 2000), rows=rows)
    return build(PlanConfig, values | {"name": "Four kinds of language model at an equal budget", "seeds": [seed]})


PLANS = {"classroom": classroom}


def open_plan(plan: str | Path | PlanConfig) -> PlanConfig:
    """A plan that was built in Python, checked as one that is read, or the one of that name."""
    if not isinstance(plan, PlanConfig):
        return find_plan(str(plan))
    check(plan, plan.name)
    return plan


def find_plan(name: str) -> PlanConfig:
    """A built-in plan, or one in a TOML file."""
    if name in PLANS:
        return build(PlanConfig, PLANS[name](), source=name)
    check_plan_name(name)
    return read_plan(Path(name))

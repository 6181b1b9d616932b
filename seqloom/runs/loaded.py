"""What every loaded run has: how it shows itself, and how it is called with texts."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch

from seqloom.charts import table
from seqloom.errors import SeqloomError
from seqloom.files import read_json
from seqloom.runs.language import LanguageSupport
from seqloom.runs.look_inside import LookInside
from seqloom.runs.results import Results, Table, one_line, read_given, short

FIGURES = ("words", "step", "train_loss", "valid_loss", "seconds", "flops", "energy_kwh", "co2_kg")  # of metrics.json


class LoadedRun(LanguageSupport, LookInside):
    """A trained model with its folder, on a device."""

    folder: Path
    config: dict[str, Any]
    learner: Any
    device: torch.device
    picture_size: Any = None  # what it reads of a picture; None: it reads texts alone

    @property
    def source_tokenizer(self) -> Any:
        """Of the texts that it reads: another one than `tokenizer` where a translator has two vocabularies."""
        return self.tokenizer

    @property
    def learns(self) -> str:
        """The objective or task that it was trained for."""
        recipe = self.config["recipe"]
        return (recipe.get("tasks") or recipe["objectives"])[0]["name"]

    def figures(self) -> dict[str, Any]:
        """What metrics.json says of its training, as far as it is there."""
        try:
            found = read_json(self.folder / "metrics.json")
            scores = {
                f"{split} {name}": value
                for split in ("valid", "test")
                for name, value in (found.get(f"{split}_scores") or {}).items()
                if isinstance(value, int | float) and name == getattr(self.learner, "main_metric", None)
            }
            return {name: found[name] for name in FIGURES if found.get(name) is not None} | scores
        except (SeqloomError, ValueError, TypeError, AttributeError, RecursionError):
            return {}

    def __repr__(self) -> str:
        figures = self.figures()
        known = [f"{name.replace('_', ' ')} {short(figures[name])}" for name in figures if name not in FIGURES]
        if not known and "valid_loss" in figures:
            known = [f"valid loss {figures['valid_loss']:.4g}"]
        facts = [f"{self.learner.size():,} parameters", self.learns, *known, f"on {self.device}"]
        return one_line(f"<{type(self).__name__} {self.config['recipe']['name']} in {self.folder}: {', '.join(facts)}>")

    def _repr_html_(self) -> str:
        recipe = self.config["recipe"]
        facts = {
            "recipe": recipe["name"], "model": recipe["model"]["name"], "trained for": self.learns,
            "parameters": self.learner.size(), "vocabulary": self.config["vocab_size"], "seed": self.config["seed"],
        } | self.figures() | {"device": self.device, "folder": self.folder}  # fmt: skip
        name = type(self).__name__
        return table([name, "value"], [[name.replace("_", " "), short(value)] for name, value in facts.items()])

    def answer_texts(
        self,
        given: Any,
        text: str,
        answer: Callable[[list[str]], list[dict[str, Any]]],
    ) -> Results | Table:
        """The results of `answer` for texts in any form; {"error": …} for what is no text. given: the texts; text: their column
        or key; answer: from texts to results."""
        rows, put = read_given(given, ("text",), {} if text == "text" else {"text": text})
        fields = [row if isinstance(row, Mapping) else {"text": row} for row in rows]
        texts = [row.get("text") for row in fields]
        found = iter(answer([text for text in texts if isinstance(text, str)]))
        wrong = "no text: give a string"
        results = [
            next(found) if isinstance(text, str) else {"error": f"row {i}: {wrong} instead of {short(text, 40)}"}
            for i, text in enumerate(texts, 1)
        ]
        named = [{key: row[key] for key in ("id", "text") if key in row} for row in fields]
        return put(Results(results, named))

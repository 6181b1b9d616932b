"""A trained task that predicts labels of texts: classes, numbers, tags, answers."""

import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.batches.labelled import Examples, Frame
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.evaluate.encode import Encoder
from seqloom.evaluate.labelled import evaluate_examples, predict_examples
from seqloom.progress import say
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.corpus import languages_of
from seqloom.runs.loaded import LoadedRun
from seqloom.runs.results import Report, Results, Table, read_given
from seqloom.tasks.transfer import Transfer
from seqloom.text.labelled import BadRow, known_id
from seqloom.tokens.tokenizer import Tokenizer

AT_ONCE = 2048  # rows that are predicted together


class Predictor(LoadedRun):
    """A trained task with its tokenizer, on a device."""

    def __init__(
        self, folder: Path, config: dict[str, Any], learner: Transfer, tokenizer: Tokenizer, device: torch.device
    ):
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device
        self.task: str = config["recipe"]["tasks"][0]["name"]
        recipe, data = build_recipe(config["recipe"], str(folder)), config.get("data")
        self.frame = held_out_frame(learner, tokenizer, recipe)
        self.languages = languages_of(recipe, data)
        if self.languages and isinstance(data, dict) and data.get("language") is not None:
            if data["language"] not in self.languages:
                raise ModelError(f"{folder}: the language in its config.json is damaged")
            self.set_language(data["language"])  # the one it was trained on, until another is set

    def __call__(
        self,
        rows: str | dict[str, Any] | Iterable[dict[str, Any] | str] | Table,
        others: Sequence["Predictor"] = (),
        **columns: str,
    ) -> Results | Table:
        """The same as `predict`. rows, others, columns: as there."""
        return self.predict(rows, others, **columns)

    def predict(
        self,
        rows: str | dict[str, Any] | Iterable[dict[str, Any] | str] | Table,
        others: Sequence["Predictor"] = (),
        **columns: str,
    ) -> Results | Table:
        """The prediction for each row; for a row that cannot be read it is {"error": …}.

        Args:
            rows: as in the task's files, without labels: dicts, or strings, which are {"text": …}. They give a list of dicts. A
                pandas DataFrame or datasets.Dataset is returned with the predictions as further columns; where it has a column
                of such a name already, the prediction is in "predicted_NAME".
            others: further runs of the same task, for an ensemble with this one.
            columns: what the fields of the task are called in the rows, as text="review", or question="Q", context="page".
        """
        given, put = read_given(rows, self.learner.fields, columns)
        fields = [{"text": row} if isinstance(row, str) else row for row in given]
        wrong = "no row: give a text, or a dict of fields"
        examples = self.examples_of(
            (f"row {i}", row if isinstance(row, dict) else wrong) for i, row in enumerate(fields, 1)
        )
        wanted = (*self.learner.fields, "id")
        inputs = [{key: row[key] for key in wanted if key in row} if isinstance(row, dict) else {} for row in fields]
        return put(Results(self.answered(examples, others), inputs))

    def examples_of(self, rows: Iterable[tuple[str, dict[str, Any] | str]]) -> Iterator[Any]:
        """The examples of rows. rows: given with their places; one that is a string is the error of one that cannot be read."""
        for place, row in rows:
            try:
                yield BadRow(place, row) if isinstance(row, str) else self.learner.of_row(row, place)
            except DataError as error:
                assert isinstance(row, dict)
                yield BadRow(place, str(error).removeprefix(f"{place}: "), known_id(row))

    def predict_files(self, paths: Sequence[Path], others: Sequence["Predictor"] = ()) -> Iterator[dict[str, Any]]:
        """The prediction for each row of files, as `predict` gives them. paths: of the files; others: as in `predict`."""
        yield from self.answered(self.learner.read(paths, need_labels=False), others)

    def answered(self, examples: Iterable[Any], others: Sequence["Predictor"] = ()) -> Iterator[dict[str, Any]]:
        """Predictions in their order. examples: a BadRow gives {"error": …}; others: as in `predict`."""
        rows = iter(examples)
        while some := list(itertools.islice(rows, AT_ONCE)):
            predictions = iter(self.together([each for each in some if not isinstance(each, BadRow)], others))
            for each in some:
                named = {} if getattr(each, "id", None) is None else {"id": each.id}
                wrong = {"error": f"{each.place}: {each.reason}"} if isinstance(each, BadRow) else None
                yield named | (next(predictions) if wrong is None else wrong)

    def together(self, examples: Sequence[Any], others: Sequence["Predictor"]) -> list[dict[str, Any]]:
        """The predictions of this run, or of an ensemble. examples: of the task; others: the further runs of the ensemble."""
        if not others:
            return self.predict_examples(examples)
        for other in others:
            mine, theirs = (getattr(run.learner, "labels", None) for run in (self, other))
            if other.task != self.task or mine != theirs:
                raise UsageError(f"{self.folder} and {other.folder} have learnt different tasks or classes")
        return self.learner.ensemble([run.predict_examples(examples) for run in (self, *others)])

    def predict_examples(self, examples: Sequence[Any]) -> list[dict[str, Any]]:
        """The predictions of this run alone. examples: of the task."""
        if not examples:
            return []
        rows, cut = self.learner.encode(examples, self.tokenizer, self.frame)
        say_cut(cut, self.frame, "predict")
        return predict_examples(self.learner, Examples(rows, 0, 0), examples, self.device)[0]

    def encode(
        self, texts: Sequence[str], layers: str | int = "last", pool: str = "mean", names: Sequence[str] | None = None
    ) -> np.ndarray | list[np.ndarray]:
        """The hidden states of each text. texts, layers, pool, names: as in `Run.encode`."""
        frame = self.frame
        reads = Encoder(self.learner.backbone, frame.before, frame.after, self.device)
        return reads.read(texts, self.tokenizer, layers, pool, names, frame.spelling, frame.backward)

    def evaluate(self, files: str | Path | Sequence[str | Path], others: Sequence["Predictor"] = ()) -> dict[str, Any]:
        """Loss and scores on labelled files.

        Args:
            files: a file in the task's format, or several.
            others: further runs of the same task, for an ensemble with this one, of which there are scores only.
        """
        several = [files] if isinstance(files, str | Path) else files
        examples = list(self.learner.read([Path(file) for file in several]))
        self.learner.check(examples)
        if others:
            scores = self.learner.scores(examples, self.together(examples, others))
            size = sum(run.learner.size() for run in (self, *others))
            main = scores[self.learner.main_metric]
            return Report({"examples": len(examples), "score": main, **scores, "parameters": size})
        rows, cut = self.learner.encode(examples, self.tokenizer, self.frame)
        say_cut(cut, self.frame, "test")
        found = evaluate_examples(self.learner, Examples(rows, 0, 0), examples, self.device, title="evaluate")
        return Report({"examples": len(examples), **found, "parameters": self.learner.size()})


def held_out_frame(learner: Transfer, tokenizer: Tokenizer, recipe: Recipe) -> Frame:
    """The frame of held-out texts, which may be longer than those of training: as long as the model can read."""
    longest = learner.backbone.max_len or max(recipe.batches.length, 4096)
    return Frame.of(learner.backbone, tokenizer, longest, recipe.batches.backward)


def say_cut(places: Sequence[str], frame: Frame, name: str) -> None:
    if places:
        first = ", ".join(places[:3])
        say(
            f"{name}: {len(places):,} texts are longer than {frame.limit} tokens and are read up to there (first: {first})"
        )

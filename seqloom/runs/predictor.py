"""A trained task that predicts labels of texts: classes, numbers, tags, answers."""

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from seqloom.analyse.attention import find_token
from seqloom.analyse.questions import about_label
from seqloom.analyse.saliency import Question
from seqloom.batch import reads_pictures, to_device
from seqloom.batches.labelled import Examples, Frame, batch_of
from seqloom.batches.pictures import Pictures, PictureSize, attach_pictures, blank, image_of
from seqloom.errors import DataError, ModelError, UsageError
from seqloom.evaluate.encode import Encoder, Reading
from seqloom.evaluate.labelled import evaluate_examples, predict_examples
from seqloom.files import new_file
from seqloom.models import model_class
from seqloom.progress import Progress, human, say
from seqloom.recipes.schema import Recipe, build_recipe
from seqloom.runs.beside import BesideRuns
from seqloom.runs.calibration import load_calibration, set_threshold
from seqloom.runs.corpus import languages_of
from seqloom.runs.loaded import LoadedRun
from seqloom.runs.prediction_files import Predicted, form_of, write_predictions
from seqloom.runs.results import Report, Results, flatten, read_given, rename
from seqloom.runs.results import Table as AnyTable
from seqloom.tasks.transfer import Transfer
from seqloom.text.labelled import BadRow, known_id, lines_of
from seqloom.text.tables import Layout, Table, is_table, objects_of
from seqloom.tokens.tokenizer import Tokenizer

AT_ONCE = 2048  # rows that are predicted together
CHARACTERS_AT_ONCE = 4_000_000  # of all columns of such rows; one that is longer is predicted alone


class Predictor(LoadedRun):
    """A trained task with its tokenizer, on a device."""

    def __init__(
        self,
        folder: Path,
        config: dict[str, Any],
        learner: Transfer,
        tokenizer: Tokenizer,
        device: torch.device,
        beside: BesideRuns | None = None,
        number: int = 0,
        for_task: "Callable[[str], Predictor] | None" = None,
    ):
        """number: which it is of several tasks of a run, the first of which may be calibrated; for_task: gives the others by
        their names, if there are others."""
        self.others = for_task
        self.stored_as = "" if for_task is None else f"heads.{number}."  # what the names of its own tensors begin with
        self.beside = beside  # the runs whose features it reads
        self.folder, self.config, self.learner, self.tokenizer, self.device = folder, config, learner, tokenizer, device
        self.task: str = config["recipe"]["tasks"][0]["name"]
        recipe, data = build_recipe(config["recipe"], str(folder)), config.get("data")
        self.frame = held_out_frame(learner, tokenizer, recipe)
        self.picture_size = picture_size(recipe)
        if number == 0:
            load_calibration(folder, learner)
        self.languages = languages_of(recipe, data)
        if self.languages and isinstance(data, dict) and data.get("language") is not None:
            if data["language"] not in self.languages:
                raise ModelError(f"{folder}: the language in its config.json is damaged")
            self.set_language(data["language"])  # the one it was trained on, until another is set

    def for_task(self, name: str) -> "Predictor":
        """What predicts another of several tasks that were learnt together. name: of the task."""
        if self.others is None:
            raise UsageError(f"{self.folder} has learnt one task, {self.task}: there is no other, {name}")
        return self.others(name)

    def __call__(
        self,
        rows: str | dict[str, Any] | Iterable[dict[str, Any] | str] | AnyTable,
        others: Sequence["Predictor"] = (),
        **columns: str,
    ) -> Results | AnyTable:
        """The same as `predict`. rows, others, columns: as there."""
        return self.predict(rows, others, **columns)

    def predict(
        self,
        rows: str | dict[str, Any] | Iterable[dict[str, Any] | str] | AnyTable,
        others: Sequence["Predictor"] = (),
        **columns: str,
    ) -> Results | AnyTable:
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
                yield BadRow(place, row) if isinstance(row, str) else self.learner.of_row(row, place)._replace(row=row)
            except DataError as error:
                assert isinstance(row, dict)
                yield BadRow(place, str(error).removeprefix(f"{place}: "), known_id(row), row)

    def predict_file(
        self,
        file: str | Path,
        out: str | Path | None = None,
        others: Sequence["Predictor"] = (),
        *,
        encoding: str | None = None,
        **columns: str,
    ) -> tuple[int, int]:
        """Predicts for each row of a file, which is not held in memory. A csv or tsv stays one, with all of its columns and
        further ones for the predictions; other files become jsonl. Returns the number of rows, and how many of them could not be
        read: these have an error in place of their prediction.

        Args:
            file: .csv, .tsv, .jsonl, .parquet, or a text with one text per line.
            out: the file to write, a .csv or .jsonl; without it, standard output.
            others: further runs of the same task, for an ensemble with this one.
            encoding: of a file that is not UTF-8.
            columns: what the fields of the task are called in the file, as text="review", id="number".
        """
        path, written = Path(file), None if out is None else new_file(Path(out), "--out")
        layout = self.layout(columns, encoding)
        form = form_of(written, Table(path, layout, self.learner.fields) if is_table(path) else None)
        rows = self.learner.read([path], need_labels=False, layout=layout)
        return write_predictions(self.with_rows(rows, others), form, written, self.fields_of_prediction)

    def predict_lines(
        self, lines: Iterable[str], out: str | Path | None = None, others: Sequence["Predictor"] = (), **columns: str
    ) -> tuple[int, int]:
        """The same for lines: JSON objects if the first one is, otherwise texts. lines: one for each row; out, others, columns:
        as in `predict_file`."""
        written = None if out is None else new_file(Path(out), "--out")
        given = self.layout(columns, None).columns
        plain = ((line.rstrip("\r\n"), None) for line in lines)
        head = []
        for each in plain:
            head.append(each)
            if each[0].strip():
                break
        is_json = bool(head) and head[-1][0].lstrip().startswith("{")
        rows = (objects_of if is_json else lines_of)(itertools.chain(head, plain), "line ")
        named = ((place, row if isinstance(row, str) else rename(row, given)) for place, row in rows)
        return write_predictions(
            self.with_rows(self.examples_of(named), others), form_of(written, None), written, self.fields_of_prediction
        )

    def layout(self, columns: Mapping[str, str], encoding: str | None, need_labels: bool = False) -> Layout:
        """Where the fields of files are: in columns that are given, or in those of its training files. columns, encoding: as in
        `predict_file`; need_labels: whether labels are among the fields."""
        data = self.config.get("data")
        trained = data.get("columns") if isinstance(data, dict) else None
        known = trained if isinstance(trained, dict) and all(isinstance(each, str) for each in trained.values()) else {}
        return self.learner.layout(columns, encoding, need_labels, known)

    def fields_of_prediction(self) -> list[str]:
        """The columns of its predictions in a table."""
        anything = {
            field: ["a", "b"] if field == "choices" else "a" for field in self.learner.fields if field != "words"
        }
        example = self.learner.of_row(anything, "")
        rows, _ = self.learner.encode([example], self.tokenizer, self.frame)
        if self.picture_size is not None:
            rows = [[row._replace(picture=(blank(self.picture_size), 0)) for row in each] for each in rows]
        if self.beside is not None:
            rows = self.beside.attach(rows, [self.learner.texts_of(example)])
        return list(
            flatten(predict_examples(self.learner, Examples(rows, 0, 0), [example], self.device, title="predict")[0][0])
        )

    def predict_files(self, paths: Sequence[Path], others: Sequence["Predictor"] = ()) -> Iterator[dict[str, Any]]:
        """The prediction for each row of files, as `predict` gives them. paths: of the files; others: as in `predict`."""
        rows = self.learner.read(paths, need_labels=False, layout=self.layout({}, None))
        return self.answered(rows, others)

    def answered(self, examples: Iterable[Any], others: Sequence["Predictor"] = ()) -> Iterator[dict[str, Any]]:
        """Predictions in their order. examples: a BadRow gives {"error": …}; others: as in `predict`."""
        return (prediction for _, prediction in self.with_rows(examples, others))

    def with_rows(self, examples: Iterable[Any], others: Sequence["Predictor"] = ()) -> Iterator[Predicted]:
        """The columns of each row, where it has some, and its prediction. examples, others: as in `answered`."""
        long, done = LongTexts(), 0
        with Progress("predict", None, "examples") as bar:
            for some in portions_of(examples):
                try:
                    predictions = iter(self.together(good_of(some), others, long, bar))
                except DataError:
                    some = self.without_bad_pictures(some)
                    predictions = iter(self.together(good_of(some), others, long, bar))
                for each in some:
                    named = {} if getattr(each, "id", None) is None else {"id": each.id}
                    wrong = {"error": f"{each.place}: {each.reason}"} if isinstance(each, BadRow) else None
                    yield each.row, named | (next(predictions) if wrong is None else wrong)
                done += len(some)
                bar.advance(note=f"{human(done)} rows")
        long.say(self.frame, "predict")

    def without_bad_pictures(self, examples: Sequence[Any]) -> list[Any]:
        """The same with a BadRow for each whose picture cannot be read. examples: of which at least one cannot be used."""
        if self.picture_size is None:
            return list(examples)
        found, pictures = [], Pictures(self.picture_size)
        for each in examples:
            try:
                if not isinstance(each, BadRow):
                    pictures.read(image_of(each), each.place)
            except DataError as error:
                each = BadRow(each.place, str(error).removeprefix(f"{each.place}: "), each.id, each.row)
            found.append(each)
        return found

    def together(
        self,
        examples: Sequence[Any],
        others: Sequence["Predictor"],
        long: "LongTexts | None" = None,
        bar: Progress | None = None,
    ) -> list[dict[str, Any]]:
        """The predictions of this run, or of an ensemble. examples: of the task; others: the further runs of the ensemble; long:
        counts too long examples; bar: the progress of several calls, which is advanced."""
        if not others:
            return self.predict_examples(examples, long, bar)
        for other in others:
            mine, theirs = (getattr(run.learner, "labels", None) for run in (self, other))
            if other.task != self.task or mine != theirs:
                raise UsageError(f"{self.folder} and {other.folder} have learnt different tasks or classes")
        first = self.predict_examples(examples, long, bar)
        return self.learner.ensemble([first, *(run.predict_examples(examples, LongTexts(), bar) for run in others)])

    def predict_examples(
        self, examples: Sequence[Any], long: "LongTexts | None" = None, bar: Progress | None = None
    ) -> list[dict[str, Any]]:
        """The predictions of this run alone. examples: of the task; long: counts too long ones, which are said here otherwise;
        bar: the progress of several calls, which is advanced."""
        if not examples:
            return []
        encoded = self.encoded(examples, "predict", long)
        return predict_examples(self.learner, encoded, examples, self.device, title=bar or "predict")[0]

    def encoded(self, examples: Sequence[Any], name: str, long: "LongTexts | None" = None) -> Examples:
        """Examples as token ids. examples: of the task; name: of them, for what is said of long texts; long: as in
        `predict_examples`."""
        rows, cut = self.learner.encode(examples, self.tokenizer, self.frame)
        rows = attach_pictures(rows, examples, self.picture_size, name)
        if self.beside is not None:
            rows = self.beside.attach(rows, [self.learner.texts_of(example) for example in examples])
        counted = LongTexts() if long is None else long
        counted.add(rows, cut, self.frame)
        if long is None:
            counted.say(self.frame, name)
        return Examples(rows, 0, 0)

    def set_threshold(self, name: str, probability: float) -> None:
        """Has a class predicted wherever its probability is at least this, and the most likely of the others elsewhere. name: of
        the class; probability: from 0 to 1."""
        set_threshold(self.learner, name, probability)

    def read_long_texts(self, how: str) -> None:
        """Sets how texts longer than the model reads are read from now on. how: "cut", or "windows", whose predictions are
        averaged."""
        if how not in ("cut", "windows"):
            raise UsageError(f"long texts {how!r}: choose cut or windows")
        if how == "windows" and self.task not in ("classify", "regress"):
            raise UsageError(f"{self.folder}: windows of long texts are for classify and regress, not for {self.task}")
        self.learner.long_texts = how
        self.frame = self.frame._replace(windows=how == "windows")

    def encode(
        self, texts: Sequence[str], layers: str | int = "last", pool: str = "mean", names: Sequence[str] | None = None
    ) -> np.ndarray | list[np.ndarray]:
        """The hidden states of each text. texts, layers, pool, names: as in `Run.encode`."""
        return self.reading.encode(texts, layers, pool, names)

    @property
    def reading(self) -> Reading:
        frame = self.frame
        if self.picture_size is not None:
            raise UsageError(
                f"{self.folder} reads texts about pictures: what it makes of a text alone says nothing, and is not shown"
            )
        if self.learner.beside_at.isdecimal():
            raise UsageError(
                f"{self.folder}: inside, its model reads features of other runs: it has no vectors of its own"
            )
        reads = Encoder(self.learner.backbone, frame.before, frame.after, self.device)
        return Reading(reads, self.tokenizer, frame.spelling, frame.backward)

    def _question(self, text: str, label: str | None, token: str | None, target: str | None) -> Question:
        if self.task not in ("classify", "regress", "tag"):
            raise UsageError(
                f"--show saliency: {self.folder} predicts {self.task}: only classes, numbers and tags can be traced"
            )
        self._refuse_target(target)
        example = self.learner.of_row({"text": text}, "the text")
        words = list(getattr(example, "words", ()))
        if token is not None and not words:
            raise UsageError("--token names a word whose tag is asked for, and this run predicts no tags: leave it out")
        encoded = self.encoded([example], "saliency")
        batch = to_device(batch_of([encoded.rows[0]]), self.device)
        word = None if token is None else find_token(words, token)
        return about_label(self.learner, self.tokenizer, batch, label, word)

    def evaluate(
        self,
        files: str | Path | Sequence[str | Path],
        others: Sequence["Predictor"] = (),
        *,
        encoding: str | None = None,
        **columns: str,
    ) -> dict[str, Any]:
        """Loss and scores on labelled files.

        Args:
            files: a file in the task's format, or several.
            others: further runs of the same task, for an ensemble with this one, of which there are scores only.
            encoding: of files that are not UTF-8.
            columns: what the fields of the task are called in the files, as text="review", label="sentiment".
        """
        several = [files] if isinstance(files, str | Path) else files
        layout = self.layout(columns, encoding, need_labels=True)
        examples = list(self.learner.read([Path(file) for file in several], layout=layout))
        self.learner.check(examples)
        if others:
            scores = self.learner.scores(examples, self.together(examples, others))
            size = sum(run.learner.size() for run in (self, *others))
            main = scores[self.learner.main_metric]
            return Report({"examples": len(examples), "score": main, **scores, "parameters": size})
        encoded = self.encoded(examples, "test")
        found = evaluate_examples(self.learner, encoded, examples, self.device, title="evaluate")
        return Report({"examples": len(examples), **found, "parameters": self.learner.size()})


def portions_of(examples: Iterable[Any]) -> Iterator[list[Any]]:
    """Examples in their order, as many at once as there is room for, so that memory grows neither with the number of rows nor,
    but for a single one, with their length."""
    some: list[Any] = []
    characters = 0
    for each in examples:
        some.append(each)
        characters += sum(len(value) for value in (each.row or {}).values() if isinstance(value, str))
        if len(some) >= AT_ONCE or characters >= CHARACTERS_AT_ONCE:
            yield some
            some, characters = [], 0
    if some:
        yield some


def held_out_frame(learner: Transfer, tokenizer: Tokenizer, recipe: Recipe) -> Frame:
    """The frame of held-out texts, which may be longer than those of training: as long as the model can read."""
    longest = learner.backbone.max_len or max(recipe.batches.length, 4096)
    frame = Frame.of(learner.backbone, tokenizer, longest, recipe.batches.backward)
    return frame._replace(windows=learner.long_texts == "windows", spots=bool(learner.beside_at))


def picture_size(recipe: Recipe) -> PictureSize | None:
    """What the model of a recipe reads of a picture; None where it reads texts alone."""
    cls: Any = model_class(recipe.model["name"])
    return cls.picture_size(recipe.model_config_of(1)) if reads_pictures(cls) else None


def good_of(examples: Sequence[Any]) -> list[Any]:
    """Those that can be read."""
    return [each for each in examples if not isinstance(each, BadRow)]


class LongTexts:
    """Counts the texts that are longer than the model reads, to say once what became of them."""

    def __init__(self) -> None:
        self.cut = self.windowed = self.windows = 0
        self.places: list[str] = []  # of the first ones that were cut

    def add(self, rows: Sequence[Sequence[Any]], cut: Sequence[str], frame: Frame) -> None:
        self.cut += len(cut)
        self.places += cut[: 3 - len(self.places)]
        several = [len(each) for each in rows if len(each) > 1] if frame.windows else []
        self.windowed, self.windows = self.windowed + len(several), self.windows + sum(several)

    def say(self, frame: Frame, name: str) -> None:
        """name: of what is read."""
        if self.cut:
            first = ", ".join(self.places)
            texts = "1 text is" if self.cut == 1 else f"{self.cut:,} texts are"
            say(f"{name}: {texts} longer than {frame.limit} tokens and truncated (first: {first})")
        if self.windowed:
            texts = "1 text is" if self.windowed == 1 else f"{self.windowed:,} texts are"
            say(
                f"{name}: {texts} longer than {frame.limit} tokens and read in {self.windows:,} windows, whose predictions are "
                f"averaged"
            )

"""Questions about paragraphs, with the stretches of text that answer them: the JSON of SQuAD 1.1 and 2.0, packed or not.

Rajpurkar et al., 2016 and 2018. Places are counted in characters. A question of 2.0 that its paragraph does not answer is
`impossible`, and has no answers. An answer that is not at its position in the paragraph is rejected: training and scores
would be wrong.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, overload

from seqloom.errors import DataError, UsageError
from seqloom.files import parse_json
from seqloom.text.labelled import BadRow, known_id, number_of, reject_bad_rows, text_of
from seqloom.text.read import MAX_FILE, file_format
from seqloom.text.stream import InputFile, check_text
from seqloom.text.tables import NOTHING, PLAIN, Layout, Names, Table, fields_of, read_objects


class Question(NamedTuple):
    id: str
    question: str
    context: str
    answers: list[tuple[str, int]]  # the text, and at which character of the context it begins
    impossible: bool
    place: str  # file: title, paragraph, question
    row: Mapping[str, Any] | None = None  # all columns of its row, where it is one of a table


@overload
def read_questions(paths: Sequence[Path], *, layout: Layout = PLAIN) -> Iterator[Question]: ...
@overload
def read_questions(
    paths: Sequence[Path], need_answers: Literal[True], layout: Layout = PLAIN
) -> Iterator[Question]: ...
@overload
def read_questions(
    paths: Sequence[Path], need_answers: bool, layout: Layout = PLAIN
) -> Iterator[Question | BadRow]: ...
def read_questions(
    paths: Sequence[Path], need_answers: bool = True, layout: Layout = PLAIN
) -> Iterator[Question | BadRow]:
    """The questions of all files in their order. Without need_answers, answers are ignored and a bad question is
    returned as BadRow."""
    rows = iter_questions(paths, need_answers, layout)
    return reject_bad_rows(rows, paths, "question") if need_answers else rows


def iter_questions(
    paths: Sequence[Path], need_answers: bool = True, layout: Layout = PLAIN
) -> Iterator[Question | BadRow]:
    """Every question, bad ones as BadRow. layout: there is none but the plain one, because the files have no columns."""
    if layout != PLAIN:
        raise UsageError(
            f"{paths[0]}: questions with answers are in SQuAD's JSON, which has no columns: leave them out"
        )
    seen: dict[str, str] = {}
    for path in paths:
        for place, paragraph, row in _rows(path):
            try:
                question = _question(row, paragraph, place, need_answers)
                if seen.setdefault(question.id, place) != place:
                    raise ValueError(f"this id is also used at {seen[question.id]}: ids must be unique")
            except ValueError as error:
                yield BadRow(place, str(error))
            else:
                yield question


def read_rows(paths: Sequence[Path], layout: Layout = PLAIN) -> Iterator[Question | BadRow]:
    """Questions without answers from tables with "question" and "context", with an optional "id"."""
    for path in paths:
        table = Table(path, layout, ("question", "context"))
        names = table.columns_of(["question", "context"], ["id"])
        for place, row in table.rows:
            kept = row if isinstance(row, dict) else None
            try:
                yield _unanswered_question(fields_of(row), place, names)._replace(row=kept)
            except ValueError as error:
                yield BadRow(place, str(error), known_id(row, names), kept)


def question_of(row: Mapping[str, Any], place: str) -> Question:
    """One row from any source as a question; DataError with its place if it is bad."""
    try:
        return _unanswered_question(row, place)
    except ValueError as wrong:
        raise DataError(f"{place}: {wrong}") from None


def _unanswered_question(row: Mapping[str, Any], place: str, names: Names = NOTHING) -> Question:
    question, context, id_ = (names.get(field, field) for field in ("question", "context", "id"))
    known = str(row[id_]) if isinstance(row.get(id_), str | int) else ""
    return Question(known, text_of(row, question), text_of(row, context), [], False, place)


def read_answers(path: Path) -> tuple[dict[str, str], dict[str, float] | None]:
    """Predictions by the ids of their questions, "" for no answer, and the probability that each question has none, if it is
    given. The JSON of SQuAD's own script, {id: answer}, or jsonl {"id", "answer", "no_answer"}, the last is the probability."""
    answers: dict[str, str] = {}
    likely: dict[str, float] = {}
    if file_format(path) != "jsonl":
        value = _json(path)
        wrong = [id_ for id_, text in value.items() if not isinstance(text, str)] if isinstance(value, dict) else [""]
        if wrong:
            raise DataError(
                f"{path}: {wrong[0]!r} has no answer text: predictions are {{id: answer}}, or jsonl with id and answer"
            )
        return value, None
    for place, row in read_objects(path):
        try:
            fields = fields_of(row)
            id_, answer = text_of(fields, "id"), fields.get("answer")
            if not isinstance(answer, str):
                raise ValueError('"answer" is not a string: give an empty one for no answer')
            if id_ in answers:
                raise ValueError(f"the id {id_!r} is given twice")
            answers[id_] = answer
            if fields.get("no_answer") is not None:
                likely[id_] = number_of(fields["no_answer"])
        except ValueError as error:
            raise DataError(f"{place}: {error}") from None
    return answers, likely or None


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any], Any]]:
    """The place of each question, its paragraph, and the question itself."""
    for a, article in enumerate(_list(_json(path), "data", str(path)), 1):
        title = article.get("title") if isinstance(article, dict) else None
        there = f"{path}: {title if isinstance(title, str) and title else f'article {a}'}"
        for p, paragraph in enumerate(_list(article, "paragraphs", there), 1):
            for q, row in enumerate(_list(paragraph, "qas", f"{there}, paragraph {p}"), 1):
                id_ = row.get("id") if isinstance(row, dict) else None
                # two rows with the same id have different places
                named = f"question {q} ({id_})" if isinstance(id_, str) and id_ else f"question {q}"
                yield f"{there}, paragraph {p}, {named}", paragraph, row


def _json(path: Path) -> Any:
    with InputFile(path) as opened:
        check_text(path, opened.bytes.peek(1 << 12))
        raw = opened.bytes.read(MAX_FILE + 1)
    if len(raw) > MAX_FILE:
        raise DataError(f"{path}: more than {MAX_FILE // 10**9} GB of JSON: split the file by articles")
    try:
        return parse_json(raw)
    except (ValueError, RecursionError) as error:  # bad UTF-8 is a ValueError, too
        raise DataError(f"{path}: not valid JSON ({error}): questions must be in the JSON format of SQuAD") from None


def _list(value: Any, name: str, place: str) -> list[Any]:
    found = value.get(name) if isinstance(value, dict) else None
    if not isinstance(found, list):
        raise DataError(f'{place}: no list "{name}": questions must be in the JSON format of SQuAD')
    return found


def _question(row: Any, paragraph: dict[str, Any], place: str, need_answers: bool) -> Question:
    if not isinstance(row, dict):
        raise ValueError("not a JSON object")
    id_, question, context = text_of(row, "id"), text_of(row, "question"), text_of(paragraph, "context")
    impossible = row.get("is_impossible", False)
    if not need_answers:
        return Question(id_, question, context, [], False, place)
    if not isinstance(impossible, bool):
        raise ValueError(f'"is_impossible" is neither true nor false: {impossible!r}')
    answers = row.get("answers", [])
    if not isinstance(answers, list):
        raise ValueError('"answers" is not a list')
    if impossible == bool(answers):
        raise ValueError(
            f"{len(answers)} answers, and is_impossible is {str(impossible).lower()}: one of the two is wrong"
        )
    return Question(id_, question, context, [_answer(each, context) for each in answers], impossible, place)


def _answer(answer: Any, context: str) -> tuple[str, int]:
    if not isinstance(answer, dict):
        raise ValueError("an answer is not a JSON object")
    text, start = text_of(answer, "text"), answer.get("answer_start")
    if isinstance(start, bool) or not isinstance(start, int) or start < 0:
        raise ValueError(f'"answer_start" of {text!r} is not a position in the paragraph: {start!r}')
    there = context[start : start + len(text)]
    if there != text:
        raise ValueError(f"the answer {text!r} is not at character {start}: the paragraph has {there!r} there")
    return text, start

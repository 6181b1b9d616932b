"""Questions about paragraphs: answers are where they are said to be, or are refused with their place."""

import copy
import json
import lzma

import pytest

from seqloom.errors import DataError
from seqloom.text.labelled import BadRow
from seqloom.text.spans import Question, read_questions
from tests.text.test_pairs import write

CONTEXT = "Das 😀 Café in Köln."
ANSWERED = {"id": "q1", "question": "Where?", "answers": [{"text": "Köln", "answer_start": 14}]}
UNANSWERED = {"id": "q2", "question": "When?", "answers": [], "is_impossible": True}


def squad(*questions, **more):
    return {"data": [{"title": "Cafés", "paragraphs": [{"context": CONTEXT, "qas": list(questions)} | more]}]}


def read(folder, value, **options):
    return list(read_questions([write(folder, "q.json", json.dumps(value))], **options))


def test_questions_of_both_versions(tmp_path):
    first, second = read(tmp_path, squad(ANSWERED, UNANSWERED))
    assert first[:5] == ("q1", "Where?", CONTEXT, [("Köln", 14)], False)
    assert first.place == f"{tmp_path / 'q.json'}: Cafés, paragraph 1, question 1 (q1)"
    assert second.impossible and second.answers == []
    packed = write(tmp_path, "q.json.xz", lzma.compress(json.dumps(squad(ANSWERED)).encode()))
    assert [question[:5] for question in read_questions([packed])] == [first[:5]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"answers": [{"text": "Köln", "answer_start": 15}]},
            "'Köln' is not at character 15: the paragraph has 'öln.' there",
        ),
        ({"answers": [{"text": "Köln", "answer_start": 17}]}, "is not at character 17"),  # bytes, not characters
        ({"answers": [{"text": "n.", "answer_start": -2}]}, "is not a position in the paragraph: -2"),
        ({"answers": [{"text": "Köln"}]}, "is not a position in the paragraph: None"),
        ({"answers": [{"text": "", "answer_start": 3}]}, '"text" is empty'),
        ({"answers": []}, "0 answers, and is_impossible is false"),
        ({"is_impossible": True}, "1 answers, and is_impossible is true"),
        ({"is_impossible": "no"}, "neither true nor false"),
        ({"answers": {}}, '"answers" is not a list'),
        ({"question": None}, 'no "question"'),
        ({"id": 5}, '"id" is not a string'),
    ],
)
def test_a_bad_question_is_named(tmp_path, change, message):
    with pytest.raises(DataError, match=r"Cafés, paragraph 1, question 1.*: ") as raised:
        read(tmp_path, squad(ANSWERED | change))
    assert message in str(raised.value)


def test_ids_are_given_once(tmp_path):
    with pytest.raises(DataError, match=r"question 2 \(q1\): this id is also used at .*question 1 \(q1\)"):
        read(tmp_path, squad(ANSWERED, ANSWERED))
    path = write(tmp_path, "q.json", json.dumps(squad(ANSWERED)))
    with pytest.raises(DataError, match="this id is also used at"):
        list(read_questions([path, write(tmp_path, "r.json", json.dumps(squad(ANSWERED)))]))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([], 'q.json: no list "data"'),
        ({"data": [{"title": "A"}]}, 'A: no list "paragraphs"'),
        ({"data": [{"paragraphs": [{"context": "x"}]}]}, 'article 1, paragraph 1: no list "qas"'),
        ({"data": []}, "no question"),
        (squad(ANSWERED, context=""), '"context" is empty'),
    ],
)
def test_a_file_in_another_form(tmp_path, value, message):
    with pytest.raises(DataError, match=message):
        read(tmp_path, value)
    with pytest.raises(DataError, match="not valid JSON"):
        list(read_questions([write(tmp_path, "q.json", b'{"data": "\xff"}')]))


def test_without_answers_a_bad_question_does_not_stop_the_others(tmp_path):
    wrong = copy.deepcopy(ANSWERED) | {"answers": [{"text": "Bonn", "answer_start": 0}]}
    found = read(tmp_path, squad(wrong, {"id": "q3"}, "what?", UNANSWERED), need_answers=False)
    assert [type(each) for each in found] == [Question, BadRow, BadRow, Question]
    assert found[0].answers == [] and found[1].reason == 'no "question"'

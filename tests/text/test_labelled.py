"""Labelled texts: every row is an example with its place, or is refused with it."""

import csv
import gzip
import io
import json
import lzma

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from seqloom.errors import DataError, UsageError
from seqloom.text.labelled import BadRow, Example, example_of, read_labelled
from tests.text.test_pairs import write


def rows(*values):
    return "".join(json.dumps(value) + "\n" for value in values)


def read(path, task="classify", **options):
    return [each[:3] for each in read_labelled([path], task, **options)]


def test_every_task_from_jsonl(tmp_path):
    path = write(
        tmp_path, "a.jsonl", "\ufeff" + rows({"text": "good", "label": "pos", "id": 7}, {"text": "bad", "label": 0})
    )
    assert read(path) == [(("good",), "pos", 7), (("bad",), "0", None)]
    path = write(tmp_path, "b.jsonl", "\n" + rows({"text": "a", "text2": "b", "label": True}))
    assert read(path, "pair") == [(("a", "b"), "true", None)]
    assert next(iter(read_labelled([path], "pair"))).place == f"{path}:2"
    path = write(tmp_path, "c.jsonl", rows({"text": "a", "label": 1}, {"text": "b", "label": "-2.5"}))
    assert read(path, "regress") == [(("a",), 1.0, None), (("b",), -2.5, None)]
    path = write(tmp_path, "d.jsonl", rows({"text": "a", "text2": "b", "label": 0.5}))
    assert read(path, "regress") == [(("a", "b"), 0.5, None)]
    choices = ["5", "two", "1"]
    path = write(
        tmp_path, "e.jsonl", rows(*({"text": "a", "choices": choices, "label": i} for i in (1, "two", "1", "0")))
    )
    # a string is the text of a choice, if there is one
    assert [label for _, label, _ in read(path, "choose")] == [1, 1, 2, 0]
    assert read(path, "choose")[0][0] == ("a", *choices)


@pytest.mark.parametrize(
    ("ending", "pack"), [("", bytes), (".gz", gzip.compress), (".xz", lzma.compress), (".zst", zstandard.compress)]
)
def test_tables_and_packing(tmp_path, ending, pack):
    table = 'ID,Label,Text\r\n1,pos,"two, and ""so""\non"\r\n\r\n2,neg,5" of snow\r\n'
    path = write(tmp_path, f"a.csv{ending}", pack(table.encode()))
    assert read(path) == [(('two, and "so"\non',), "pos", "1"), (('5" of snow',), "neg", "2")]
    assert [each.place for each in read_labelled([path], "classify")] == [f"{path}:2", f"{path}:5"]
    path = write(tmp_path, f"a.tsv{ending}", pack(b'label\ttext\n1\t"He said\n'))
    assert read(path) == [(('"He said',), "1", None)]
    path = write(tmp_path, f"b.tsv{ending}", pack(b'label\ttext\tchoices\n1\tx\t["a", "b"]\nb\ty\t["a", "b"]\n'))
    assert read(path, "choose") == [(("x", "a", "b"), 1, None), (("y", "a", "b"), 1, None)]


FINE = {"text": "a", "label": "x"}


@pytest.mark.parametrize(
    ("task", "row", "message"),
    [
        ("classify", {"label": "x"}, 'no "text"'),
        ("classify", {"text": ["a"], "label": "x"}, '"text" is not a string'),
        ("classify", {"text": " \n", "label": "x"}, '"text" is empty'),
        ("classify", {"text": "a\0", "label": "x"}, "NUL"),
        ("classify", {"text": "\ud800", "label": "x"}, "lone surrogate"),
        ("classify", {"text": "a"}, 'no "label"'),
        ("classify", {"text": "a", "label": " "}, 'no "label"'),
        ("classify", {"text": "a", "label": None}, 'no "label"'),
        ("classify", {"text": "a", "label": float("nan")}, "nan is not the name of a class"),
        ("classify", {"text": "a", "label": 0.5}, "task regress"),
        ("classify", {"text": "a", "text2": "b", "label": "x"}, "the task pair"),
        ("classify", {"text": "a", "label": "x", "id": [1]}, '"id" is neither'),
        ("pair", FINE, 'no "text2"'),
        ("regress", {"text": "a", "label": float("nan")}, "not a finite number"),
        ("regress", {"text": "a", "label": "inf"}, "not a finite number"),
        ("regress", {"text": "a", "label": "much"}, "'much' is not a finite number"),
        ("regress", {"text": "a", "label": True}, "not a finite number"),
        ("regress", {"text": "a", "label": 10**400}, "not a finite number"),
        ("choose", FINE, '"choices" is not a list'),
        ("choose", {"text": "a", "choices": ["b"], "label": 0}, "two or more"),
        ("choose", {"text": "a", "choices": ["b", 1], "label": 0}, "one of the choices"),
        ("choose", {"text": "a", "choices": ["b", "c"], "label": 2}, "not among the 2 choices"),
        ("choose", {"text": "a", "choices": ["b", "c"], "label": -1}, "not among the 2 choices"),
        ("choose", {"text": "a", "choices": ["b", "c"], "label": "d"}, "'d' is not among"),
        ("choose", {"text": "a", "choices": ["b", "b"], "label": "b"}, "the text of 2 choices"),
    ],
)
def test_a_bad_row_is_named_by_its_line(tmp_path, task, row, message):
    path = write(tmp_path, "a.jsonl", "\n" + rows(row))
    with pytest.raises(DataError, match=rf"a\.jsonl:2: .*{message}"):
        read(path, task)
    with pytest.raises(DataError, match=rf"here: .*{message}"):
        example_of(row, task, "here")


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("a.jsonl", rows(FINE) + "{\n", r"a\.jsonl:2: not valid JSON"),
        ("a.jsonl", rows(FINE) + "[]\n", r"a\.jsonl:2: not a JSON object"),
        ("a.jsonl", b'{"text": "\xff", "label": 1}', r"a\.jsonl:1: not valid UTF-8"),
        (
            "a.jsonl",
            rows(FINE | {"id": "1"}, FINE, FINE | {"id": 1}),
            r"a\.jsonl:3: the id 1 is also used at .*a\.jsonl:1",
        ),
        ("a.jsonl", "\n", "no example"),
        ("a.csv", "text,labels\na,x\n", r'a\.csv:1: no column "label"'),
        ("a.csv", "text,label,text\na,x,b\n", r'a\.csv:1: the header needs one column "text" and has 2'),
        ("a.csv", "text,label\na,b,c\n", r"a\.csv:2: 3 columns, but the header has 2"),
        ("a.csv", 'text,label\na,x\n"b,y\nc,z\n', r"a\.csv:3: not valid CSV"),
        ("a.csv", b'text,label\n"a\n\xff",x\n', r"a\.csv:3: not valid UTF-8"),
        ("a.tsv", b"text\tlabel\n\xff\tx\n", r"a\.tsv:2: not valid UTF-8"),
        ("a.csv", b"\xfftext,label\n", r"a\.csv:1: not valid UTF-8"),
        ("a.csv", "text,label\na,\n", r'a\.csv:2: no "label"'),
        ("a.txt", "a\n", r"a\.txt: not a \.jsonl, \.csv or \.tsv"),
        ("a.jsonl", b"PK\x03\x04 and so on", "a zip archive"),
    ],
)
def test_a_file_in_another_form(tmp_path, name, data, message):
    with pytest.raises(DataError, match=message):
        read(write(tmp_path, name, data))


def test_rows_of_one_kind(tmp_path):
    path = write(tmp_path, "a.jsonl", rows({"text": "a", "text2": "b", "label": 1}, {"text": "a", "label": 1}))
    with pytest.raises(DataError, match=r"a\.jsonl:2: 1 texts, .*a\.jsonl:1 has 2"):
        read(path, "regress")
    with pytest.raises(UsageError, match="did you mean 'classify'"):
        read(path, "clasify")


def test_without_labels_a_bad_row_does_not_stop_the_others(tmp_path):
    good = [{"text": "a", "label": float("nan"), "id": "1"}, {"text": "b"}]
    data = rows(good[0]).encode() + b"{\n\xff\n" + rows({"text": ""}, {"text": "c", "id": "1"}, good[1]).encode()
    found = list(read_labelled([write(tmp_path, "a.jsonl", data)], "regress", need_labels=False))
    assert [each.texts if isinstance(each, Example) else each.place[-1] for each in found] == [("a",), *"2345", ("b",)]
    assert all(each.label is None for each in found if isinstance(each, Example))
    reasons = [each.reason for each in found if isinstance(each, BadRow)]
    assert [reason.split()[0] for reason in reasons] == ["not", "not", '"text"', "the"]
    assert not any("a.jsonl" in reason for reason in reasons[:3]), "the place is not said twice"
    table = b'text,id\na,1\n"b\n\xff",2\nc\n"d""",4\n"e"f,5\ng,6\n'
    found = list(read_labelled([write(tmp_path, "a.csv", table)], "classify", need_labels=False))
    assert [each.texts[0] if isinstance(each, Example) else int(each.place[-1]) for each in found] == [
        "a", 4, 5, 'd"', 7, "g",
    ]  # fmt: skip
    with pytest.raises(DataError, match='no column "text"'):
        list(read_labelled([write(tmp_path, "b.csv", "words\na\n")], "classify", need_labels=False))


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0")).filter(str.strip)


@given(st.lists(st.tuples(TEXT, TEXT.filter(lambda label: "\r" not in label)), min_size=1))
def test_any_text_comes_back_as_it_was(tmp_path_factory, pairs):
    """From jsonl and from csv, whatever characters are in it."""
    folder = tmp_path_factory.mktemp("any")
    path = write(folder, "a.jsonl", rows(*({"text": text, "label": label} for text, label in pairs)))
    assert [(each.texts[0], each.label) for each in read_labelled([path], "classify")] == [
        (text, label.strip()) for text, label in pairs
    ]
    kept = [(text, label) for text, label in pairs if "\r" not in text]  # a csv may end its lines with one
    out = io.StringIO(newline="")
    csv.writer(out).writerows([("text", "label"), *kept])
    path = write(folder, "a.csv", out.getvalue())
    found = list(read_labelled([path], "classify", need_labels=True)) if kept else []
    assert [(each.texts[0], each.label) for each in found] == [(text, label.strip()) for text, label in kept]

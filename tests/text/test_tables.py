"""Analysts' files: columns of any name, separators, quotes and encodings; what cannot be read is said with what was found."""

import codecs
import csv
import io
import itertools

import pyarrow
import pyarrow.parquet
import pytest

from seqloom.errors import DataError, UsageError
from seqloom.text import labelled
from seqloom.text.labelled import BadRow, read_labelled
from seqloom.text.tables import Layout, Table, say_once
from seqloom.text.tagged import read_tagged
from tests.text.test_pairs import write

NAMED = Layout({"text": "review", "label": "sentiment"})


@pytest.fixture(autouse=True)
def nothing_said_before():
    say_once.cache_clear()


def read(path, layout=NAMED, task="classify", **options):
    return [each[:3] for each in read_labelled([path], task, layout=layout, **options)]


def test_columns_by_name_in_every_format(tmp_path, capsys):
    rows = [
        {"number": 1, "review": "good, I think", "sentiment": "pos"},
        {"number": 2, "review": "bad", "sentiment": "neg"},
    ]
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), tmp_path / "a.parquet")
    lines = "".join(
        f'{{"number": {r["number"]}, "review": "{r["review"]}", "sentiment": "{r["sentiment"]}"}}\n' for r in rows
    )
    write(tmp_path, "a.jsonl", lines)
    write(tmp_path, "a.csv", 'number,review,sentiment\n1,"good, I think",pos\n2,bad,neg\n')
    write(tmp_path, "a.tsv", "number\treview\tsentiment\n1\tgood, I think\tpos\n2\tbad\tneg\n")
    layout = Layout({"text": "review", "label": "sentiment", "id": "number"})
    for ending in ("parquet", "jsonl", "csv", "tsv"):
        path = tmp_path / f"a.{ending}"
        found = [(texts, label, str(key)) for texts, label, key in read(path, layout)]
        assert found == [(("good, I think",), "pos", "1"), (("bad",), "neg", "2")], ending
        said = capsys.readouterr().err
        assert (
            f"{path}: text is the column 'review', label is the column 'sentiment', id is the column 'number'" in said
        )
        assert read(path, layout) and not capsys.readouterr().err, "it is said once"


def test_usual_names_are_found_where_there_is_no_doubt(tmp_path, capsys):
    path = write(tmp_path, "a.csv", "Review,Sentiment\na,x\n")
    assert read(path, Layout()) == [(("a",), "x", None)]
    assert "text is the column 'Review', label is the column 'Sentiment'" in capsys.readouterr().err
    path = write(tmp_path, "b.csv", "review,comment,sentiment\na,b,x\n")
    with pytest.raises(
        DataError, match=r"""b\.csv:1: no column "text".*it has 'review', 'comment', 'sentiment'; --text-col"""
    ):
        read(path, Layout())
    path = write(tmp_path, "c.csv", "text,review,label\na,b,x\n")
    assert read(path, Layout()) == [(("a",), "x", None)], "the name of the field comes first"
    # the columns of the training files come before that, if a file has them
    assert read(path, Layout(trained={"text": "review"})) == [(("b",), "x", None)]
    assert read(path, Layout(trained={"text": "body"})) == [(("a",), "x", None)]


@pytest.mark.parametrize(
    ("data", "separator"),
    [
        ("review;sentiment\n5,5 points;good\n", ";"),
        ("review\tsentiment\n5,5 points\tgood\n", "\t"),
        ("review|sentiment\n5,5 points|good\n", "|"),
        ("sep=;\nreview;sentiment\n5,5 points;good\n", ";"),
        ("\ufeffsep=;\r\nreview;sentiment\r\n5,5 points;good\r\n", ";"),
        ('\ufeff"review","sentiment"\n"5,5 points","good"\n', ","),
        ("id,note;review;sentiment\n1,a;5,5 points;good\n", ";"),
    ],
)
def test_separators(tmp_path, data, separator):
    path = write(tmp_path, "a.csv", data)
    assert Table(path, NAMED, ("text", "label")).separator == separator
    assert read(path) == [(("5,5 points",), "good", None)]
    assert next(iter(read_labelled([path], "classify", layout=NAMED))).place == f"{path}:{3 if 'sep' in data else 2}"


@pytest.mark.parametrize(
    ("name", "data", "error", "message"),
    [
        (
            "a.csv",
            "revew,sentiment\na,x\n",
            UsageError,
            r"no column 'review' for 'text', it has 'revew', 'sentiment': did you mean 'revew'",
        ),
        (
            "a.jsonl",
            '{"text": "a", "sentiment": 1}\n',
            UsageError,
            r"no column 'review' for 'text', it has 'text', 'sentiment'",
        ),
        ("a.csv", "review,sentiment,review\na,x,b\n", DataError, r"a\.csv:1: 2 columns are named 'review'"),
        (
            "a.csv",
            "review;sentiment\na;x\nb,y\n",
            DataError,
            r"a\.csv:3: 1 columns, .* 2: here commas separate them, in the header semicolons",
        ),
        (
            "a.csv",
            "review,sentiment\na, and so on,x\n",
            DataError,
            r"a\.csv:2: 3 columns, .* has 2: put texts with commas in quotes",
        ),
        ("a.tsv", "review,sentiment\na,x\n", UsageError, r"no column 'review' for 'text', it has 'review,sentiment'"),
        ("a.csv", 'review,sentiment\n"He said "hi"",x\n', DataError, r"a\.csv:2: not valid CSV"),
        (
            "a.csv",
            'review,sentiment\n"a,x\nb,y\nc,z\n',
            DataError,
            r"a\.csv:2: not valid CSV \(.*, up to line 4\): close the quote",
        ),
        (
            "a.csv",
            "review,sentiment\ncaf\xe9,x\n".encode("latin-1"),
            DataError,
            r"a\.csv:2: not valid UTF-8 .*: convert .*, or give --encoding cp1252",
        ),
        (
            "a.csv",
            "review,sentiment\ncafé,x\n".encode() + b"caf\xe9,y\n",
            DataError,
            r"a\.csv:3: .*line 2 is UTF-8, so the file has lines in two",
        ),
        ("a.csv", "review,sentiment\na,x\n".encode("utf-16"), DataError, r"a\.csv: .*UTF-16 text .*--encoding utf-16"),
        ("a.csv", "review,sentiment\n ,x\n", DataError, r'a\.csv:2: "review" is empty'),
        ("a.csv", "review,sentiment\na,\n", DataError, r'a\.csv:2: no "sentiment"'),
        ("a.csv", "review,sentiment,id\na,x,1\nb,y,1\n", DataError, r"a\.csv:3: the id '1' is also used at .*a\.csv:2"),
        ("a.csv", "", DataError, "the files are empty"),
        ("a.csv", "review,sentiment\n", DataError, "the files are empty"),
        ("a.parquet", b"PAR1 and then nothing", DataError, "damaged parquet file"),
        ("a.xlsx", b"PK\x03\x04", DataError, r"not a \.jsonl, \.csv or \.tsv"),
    ],
)
def test_bad_files_are_named_with_what_was_found(tmp_path, name, data, error, message):
    with pytest.raises(error, match=message) as raised:
        read(write(tmp_path, name, data))
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "cp1252", "utf-8-sig"])
def test_other_encodings_are_read_when_named(tmp_path, encoding):
    data = "review,sentiment\ncafé,gut und schön\n".encode(encoding)
    assert data.startswith(codecs.BOM_UTF16) == (encoding == "utf-16")
    layout = NAMED._replace(encoding=encoding)
    assert read(write(tmp_path, "a.csv", data), layout) == [(("café",), "gut und schön", None)]
    with pytest.raises(UsageError, match="--encoding nonsense"):
        read(tmp_path / "a.csv", NAMED._replace(encoding="nonsense"))


def test_second_texts_choices_and_sentences(tmp_path):
    path = write(tmp_path, "a.csv", "premise,hypothesis,gold\na,b,yes\n")
    layout = Layout({"text": "premise", "text2": "hypothesis", "label": "gold"})
    assert read(path, layout, "pair") == [(("a", "b"), "yes", None)]
    assert read(path, layout._replace(columns=layout.columns | {"label": "hypothesis"}), "pair")[0][1] == "b"
    path = write(tmp_path, "b.csv", 'question,answers,gold\na,"[""b"", ""c""]",1\n')
    layout = Layout({"text": "question", "choices": "answers", "label": "gold"})
    assert read(path, layout, "choose") == [(("a", "b", "c"), 1, None)]
    path = write(tmp_path, "c.csv", "number,body\n7,Obama visited Paris.\n")
    layout = Layout({"text": "body", "id": "number"})
    (sentence,) = read_tagged([path], False, layout)
    assert sentence.words == ["Obama", "visited", "Paris", "."] and sentence.id == "7"
    assert [sentence.text[a:b] for a, b in sentence.word_offsets] == sentence.words
    path = write(tmp_path, "d.jsonl", '{"tokens": ["a", "b"], "ner": ["O", "B-X"]}\n')
    (sentence,) = read_tagged([path], True, Layout({"words": "tokens", "tags": "ner"}))
    assert sentence.words == ["a", "b"] and sentence.tags == ["O", "B-X"]


def test_long_documents_fit_in_a_cell(tmp_path):
    text = "word " * 60_000  # more than the 128 KB of the csv module
    path = write(tmp_path, "a.csv", f'review,sentiment\n"{text}",x\n')
    assert len(read(path)[0][0][0]) == len(text)


def test_rows_are_read_one_by_one(tmp_path, monkeypatch):
    """The first rows are there before the file is read to its end, and no more ids are kept than allowed."""
    path = write(tmp_path, "a.csv", "id,review\n" + "".join(f"{i},text {i}\n" for i in range(30_000)))
    table = Table(path, NAMED._replace(columns={"text": "review"}))
    opened = []
    before = labelled.Table.__init__
    monkeypatch.setattr(labelled.Table, "__init__", lambda self, *given: (before(self, *given), opened.append(self))[0])
    rows = read_labelled([path], "classify", False, Layout({"text": "review"}))
    assert len(list(itertools.islice(rows, 3))) == 3
    assert len(list(itertools.islice(opened[0].rows, 10**6))) > 29_000 and len(list(table.rows)) == 30_000
    monkeypatch.setattr(labelled, "MAX_IDS", 2)
    path = write(tmp_path, "b.csv", "id,review\n1,a\n2,b\n3,c\n3,d\n1,e\n")
    found = list(read_labelled([path], "classify", False, Layout({"text": "review"})))
    assert [isinstance(each, BadRow) for each in found] == [False, False, False, False, True]


def test_rows_keep_all_columns_where_labels_are_not_needed(tmp_path):
    path = write(tmp_path, "a.csv", "id,review,stars\n,a,5\n2, ,1\n3,c\n")
    found = list(read_labelled([path], "classify", False, Layout({"text": "review"})))
    assert [each.row for each in found] == [
        {"id": None, "review": "a", "stars": "5"}, {"id": "2", "review": " ", "stars": "1"}, None,
    ]  # fmt: skip
    assert [isinstance(each, BadRow) for each in found] == [False, True, True]
    assert found[1].id == "2" and '"review" is empty' in found[1].reason


def test_plain_lines(tmp_path, capsys):
    path = write(tmp_path, "a.txt", "one text\n\nanother, with a comma\n")
    first, blank, last = read_labelled([path], "classify", need_labels=False)
    assert (first.texts, last.texts) == (("one text",), ("another, with a comma",))
    assert isinstance(blank, BadRow) and "the line is blank" in blank.reason, "so that rows keep their places"
    with pytest.raises(UsageError, match="a text file has no columns"):
        list(read_labelled([path], "classify", False, NAMED))
    with pytest.raises(DataError, match=r"not a \.jsonl"):
        list(read_labelled([path], "pair", need_labels=False))


def test_whatever_a_csv_writer_writes_comes_back(tmp_path):
    texts = [
        '"',
        '""',
        'a "quoted" word',
        "two\nlines",
        "tab\there",
        "semi;colon",
        "a,b",
        " blanks ",
        "|",
        "'",
        "sep=;",
    ]
    for separator in ",;\t|":
        out = io.StringIO(newline="")
        csv.writer(out, delimiter=separator).writerows([("review", "sentiment"), *((text, text) for text in texts)])
        found = read(write(tmp_path, "a.csv", out.getvalue()))
        assert [(each[0][0], each[1]) for each in found] == [(text, text.strip()) for text in texts]

"""Reading documents: every packing, every oddity, bounded memory."""

import gzip
import json
import lzma
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from seqloom.errors import DataError, FileError, UsageError
from seqloom.text import read as read_module
from seqloom.text import stream
from seqloom.text.read import Document, Problems, Reader, detect_documents


def read(paths: Iterable[Path], *options: Any, **more: Any) -> Iterator[Document]:
    for path in paths:
        yield from Reader(path, *options, **more)


def texts(path: Path, documents: str = "auto", problems: Problems | None = None) -> list[str]:
    return [document.text for document in read([path], documents, problems)]


def pack(kind: str, data: bytes) -> bytes:
    if kind == "zst":
        import zstandard

        return zstandard.ZstdCompressor(write_checksum=True).compress(data)
    return {"gz": gzip.compress, "xz": lzma.compress, "": bytes}[kind](data)


@pytest.mark.parametrize("kind", ["", "gz", "xz", "zst"])
def test_every_packing_is_told_by_its_bytes_not_its_name(kind: str, tmp_path: Path) -> None:
    data = "one\ntwo é\n\x0bthree".encode()
    for name in ("a.txt", f"a.txt.{kind or 'gz'}"):
        (tmp_path / name).write_bytes(pack(kind, data))
        assert texts(tmp_path / name) == ["one", "two é", "\x0bthree"]


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_streams_end_to_end_are_read_through(kind: str, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(pack(kind, b"one\n" * 1000) + pack(kind, b"two\n" * 1000))
    assert texts(tmp_path / "a.txt") == ["one"] * 1000 + ["two"] * 1000


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_a_damaged_or_cut_file_is_bad_data(kind: str, tmp_path: Path) -> None:
    whole = pack(kind, b"".join(b"%d some words\n" % i for i in range(20_000)))
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0x55
    for data in (whole[: len(whole) // 2], bytes(flipped)):
        (tmp_path / "a.txt").write_bytes(data)
        with pytest.raises(DataError, match="damaged"):
            texts(tmp_path / "a.txt")


@pytest.mark.parametrize("kind", ["gz", "xz", "zst"])
def test_a_bomb_is_refused(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "FREE_BYTES", 1 << 20)
    (tmp_path / "a.txt").write_bytes(pack(kind, b"\n".join([b"x" * 1000] * 20_000)))
    with pytest.raises(DataError, match="times its size"):
        texts(tmp_path / "a.txt")


def test_lines_or_paragraphs_are_told_apart(tmp_path: Path) -> None:
    assert detect_documents(b"a\nb\nc\n\n\n") == "line"
    assert detect_documents(b"a\nb\n\nc\nd\n") == "blank"
    assert detect_documents(b"a\n" * 500 + b"\n" + b"b\n" * 500) == "line"
    path = tmp_path / "a.txt"
    path.write_bytes(b"\xef\xbb\xbfa\r\nb\r\n\r\n \r\nc")
    assert texts(path) == ["a\nb", "c"]
    assert texts(path, "line") == ["a", "b", "c"]
    assert texts(path, "file") == ["a\nb\n\n \nc"]
    assert [d.location.rpartition(":")[2] for d in read([path])] == ["1", "5"]
    with pytest.raises(UsageError, match="--documents odd"):
        texts(path, "odd")


@given(
    st.lists(
        st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n\r\0"), min_size=1, max_size=30),
        max_size=20,
    )
)
@settings(max_examples=60)
def test_lines_come_back(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    path = tmp_path_factory.mktemp("lines") / "a.txt"
    path.write_text("\n".join(lines), encoding="utf-8")
    expected = [line for line in lines if line.strip()]
    if expected and expected[0].startswith("\ufeff"):
        return  # a byte-order mark is dropped on purpose
    assert texts(path, "line") == expected


def test_bad_rows_are_left_out_and_named(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\nb\xffd\n\nnul \0 here\nlast")
    problems = Problems()
    assert texts(path, "line", problems) == ["good", "last"]
    found = {kind: [place.rpartition(":")[2] for place in places] for kind, places in problems.places.items()}
    assert found == {"bad UTF-8": ["2"], "empty": ["3"], "NUL byte": ["4"]}


def test_bad_utf8_in_a_paragraph_names_its_own_line(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(b"a\nb\n\nc\nd\xff\n\ne\nf\n")
    problems = Problems()
    assert texts(path, "auto", problems) == ["a\nb", "e\nf"]
    assert problems.places["bad UTF-8"] == [f"{path}:5"]


def test_jsonl_rows(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    rows = [
        '{"text": "one\\ntwo", "id": 3}',
        "{",
        '{"txt": "x"}',
        '{"text": 4}',
        "",
        '{"text": "\\ud800"}',
        '{"text": " "}',
    ]
    path.write_text("\n".join([*rows, "[" * 100_000, '{"text": "end", "split": "test"}']))
    problems = Problems()
    assert texts(path, "auto", problems) == ["one\ntwo", "end"]
    assert problems.counts == {"bad JSON": 2, 'no "text"': 2, "bad UTF-8": 1, "empty": 1}
    problems = Problems()
    assert [d.split for d in read([path], problems=problems, split_field="split")] == ["test"]
    assert problems.counts['no "split"'] == 3


def test_parquet(tmp_path: Path) -> None:
    import pyarrow
    import pyarrow.parquet

    path = tmp_path / "a.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"text": ["one", None, "two"], "n": [1, 2, 3]}), path)
    problems = Problems()
    assert texts(path, "auto", problems) == ["one", "two"]
    assert problems.places['no "text"'] == [f"{path}:2"]
    pyarrow.parquet.write_table(pyarrow.table({"body": ["one"]}), path)
    with pytest.raises(DataError, match="no column 'text'"):
        texts(path)
    path.write_bytes(b"PAR1" + b"x" * 100)
    with pytest.raises(DataError, match="damaged parquet"):
        texts(path)
    path.write_bytes(b"text")
    with pytest.raises(DataError, match="not a parquet file"):
        texts(path)


def test_a_very_long_line_is_cut_not_held(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_module, "MAX_DOCUMENT", 1000)
    path = tmp_path / "a.txt"
    for line in ("word " * 2000, "é你" * 3000, "x" * 5000, "ab " * 333 + "c", "a" * 1000, "a" * 999):
        path.write_text(f"first\n{line}\nlast\n", encoding="utf-8")
        problems = Problems()
        found = texts(path, "line", problems)
        assert (found[0], found[-1]) == ("first", "last")
        assert "".join(found[1:-1]) == line
        assert all(len(piece.encode()) <= 1000 for piece in found)
        if len(line.encode()) > 1000:
            assert problems.places == {"too long, cut": [f"{path}:2"]}
    row = json.dumps({"text": "x" * 5000})
    (tmp_path / "a.jsonl").write_text(f'{{"text": "a"}}\n{row}\n{{"text": "b"}}\n')
    problems = Problems()
    assert texts(tmp_path / "a.jsonl", "auto", problems) == ["a", "b"]
    assert problems.places == {"too long": [f"{tmp_path / 'a.jsonl'}:2"]}


def test_files_that_are_no_text(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    for data, words in (
        (b"\x89PNG\r\n", "PNG"),
        (b"%PDF-1.7", "PDF"),
        (b"\xff\xfea\0", "UTF-16"),
        (b"ab" + b"\0" * 500, "first NUL byte at offset 2"),
    ):
        path.write_bytes(data)
        with pytest.raises(DataError, match=f"binary file.*{words}"):
            texts(path)
    with pytest.raises(DataError, match="no such file"):
        texts(tmp_path / "missing.txt")
    with pytest.raises(DataError, match="is a folder"):
        texts(tmp_path)
    path.write_bytes(b"")
    assert texts(path) == []


def test_an_unreadable_file_is_a_file_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.txt").write_text("x")

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", str(tmp_path / "a.txt"))

    monkeypatch.setattr(stream, "open", refuse, raising=False)
    with pytest.raises(FileError, match="no permission"):
        Reader(tmp_path / "a.txt")

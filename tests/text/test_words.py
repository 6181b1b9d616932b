"""What counts as a word: white space where it is written, characters where it is not."""

from pathlib import Path

import pytest

from seqloom.batches.prepare import prepare
from seqloom.batches.store import Store
from seqloom.files import read_json, write_json
from seqloom.text.words import SCRIPTS, WHITESPACE, count_words


@pytest.mark.parametrize(
    "text",
    [
        "",
        "one two  three\n four",
        "– dashes — “quotes” … and naïve café",
        "Привет, мир! Γειά σου Κόσμε",
        "안녕하세요 세계",  # Korean has spaces
        "مرحبا بالعالم नमस्ते दुनिया",
        "12 % ！ ， 　 ideographic punctuation alone",
    ],
)
def test_text_with_spaces_is_counted_by_them(text: str) -> None:
    assert count_words(text) == len(text.split())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("今天天气很好。", 4),  # 6 characters
        ("今天天气很好，我们去公园吧！", 8),  # 12
        ("我用 Python 写程序", 5),  # 5 characters are 4 words (rounded up), and one in Latin letters
        ("我用Python写程序。", 5),  # whether spaces are set or not
        ("東京タワーへ行きました。", 8),  # 11
        ("สวัสดีชาวโลก", 3),  # 12
        ("ສະບາຍດີ", 2),  # 7
        ("မင်္ဂလာပါ", 3),  # 9
        ("字", 1),
    ],
)
def test_scripts_without_spaces_are_counted_by_characters(text: str, words: int) -> None:
    assert count_words(text) == words


def test_a_longer_text_has_no_fewer_words() -> None:
    text = "今天 weather 很好。สวัสดี 123 です！"
    counts = [count_words(text[:end]) for end in range(len(text) + 1)]
    assert counts == sorted(counts) and counts[-1] == 8


def test_the_manifest_says_what_a_word_is(tmp_path: Path) -> None:
    text = tmp_path / "zh.txt"
    text.write_text("".join(f"今天是第{i}天，天气很好。\n" for i in range(200)), "utf-8")
    manifest = prepare([text], tmp_path / "data", tokenizer="char", valid=0.1)
    assert manifest.word_rule == SCRIPTS == Store.open(tmp_path / "data").manifest.word_rule
    lines = text.read_text("utf-8").splitlines()
    assert sum(split.words for split in manifest.splits.values()) == sum(map(count_words, lines)) == 7 * len(lines)
    assert manifest.report["words"] == sum(map(count_words, lines))
    # what an older version has prepared was counted by white space alone
    path = tmp_path / "data" / "manifest.json"
    older = read_json(path)
    del older["options"]["word_rule"]
    write_json(path, older)
    assert Store.open(tmp_path / "data").manifest.word_rule == WHITESPACE

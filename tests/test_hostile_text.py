"""Text of files cannot give a terminal orders, nor end as an internal error."""

import io
import json
import os
import shutil
import sys

import pytest

from seqloom import cli
from seqloom.cli import run
from seqloom.errors import one_line, printable
from seqloom.progress import say
from seqloom.runs.language_model import Run
from seqloom.tokens.tokenizer import Tokenizer, panics_as_errors
from tests.training.material import prepared

ESCAPE = "\x1b]0;owned\x07\x1b[2J"  # sets the title of the window and clears the screen


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("hostile")
    data = prepared(place / "data", 60)
    small = ["--set", "model.dim=20", "--set", "model.num_layers=1", "--tokens", "300"]
    assert run(["pretrain", "gpt2-tiny", "--data", str(data), "--out", str(place / "run"), *small]) == 0
    return place


def test_what_a_terminal_obeys_is_written_out():
    assert printable(f"a{ESCAPE}b\tc\n") == "a\\x1b]0;owned\\x07\\x1b[2Jb\tc\n"
    assert printable("grün 中文 😀 \u200d") == "grün 中文 😀 \u200d", "letters, joiners and emoji are left alone"
    assert printable("\x9b31m \u202e \ud800") == "\\x9b31m \\u202e \\ud800"
    assert one_line("a\x00\r\nb\x85c") == "a\\x00 b c"


def check(code, capsys, *call, wanted=()):
    assert run([str(each) for each in call]) == code
    shown = capsys.readouterr()
    error = [line for line in shown.err.splitlines() if line.startswith("seqloom: error:")]
    assert len(error) == 1, shown.err
    assert not {"\x1b", "\x07", "\ud800"} & set(shown.err + shown.out)
    assert "this should not happen" not in error[0] and "Traceback" not in shown.err, shown.err
    for words in wanted:
        assert words in error[0], error[0]


def test_keys_of_recipes_and_plans(place, tmp_path, capsys):
    (tmp_path / "my.toml").write_text('[model]\nname = "gpt2"\n"\\u001b[2Jkey" = 1\n')
    check(
        2, capsys, "pretrain", tmp_path / "my.toml", "--data", place / "data", "--out", tmp_path / "o", wanted=["\\x1b"]
    )
    (tmp_path / "plan.toml").write_text('name = "a"\n"\\u001b[2Jkey" = 1\n')
    check(2, capsys, "compare", tmp_path / "plan.toml", "--out", tmp_path / "o", wanted=["\\x1b"])


def test_rows_of_columns_and_labels(tmp_path, capsys):
    (tmp_path / "a.conll").write_text(f"word O\nother {ESCAPE}-X\nx B-PER\n")
    files = ("--train", tmp_path / "a.conll", "--valid", tmp_path / "a.conll", "--out", tmp_path / "o")
    check(3, capsys, "train", "lstm-tiny", "--task", "tag", *files, wanted=["\\x1b"])


class Screen(io.StringIO):
    def isatty(self):
        return True


def test_a_terminal_is_shown_no_orders_and_a_pipe_gets_the_text(tmp_path, capsys, monkeypatch):
    rows = [{"text": f"text {i}", "label": f"{ESCAPE}{i % 2}"} for i in range(6)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    call = ["check", "--task", "classify", str(tmp_path / "a.jsonl")]
    with monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", Screen())
        assert run(call) == 0
        shown = sys.stdout.getvalue()
    assert "\\x1b]0;owned" in shown and "\x1b" not in shown
    assert run(call) == 0
    assert "\x1b" in capsys.readouterr().out


def test_planted_plain_printing_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(cli.errors, "printable", lambda text: text)
    with pytest.raises(AssertionError):
        test_a_terminal_is_shown_no_orders_and_a_pipe_gets_the_text(tmp_path, None, monkeypatch)


def test_remarks_are_escaped(capsys):
    say(f"read {ESCAPE}")
    assert capsys.readouterr().err == "read \\x1b]0;owned\\x07\\x1b[2J\n"


# ---- half a character

HALF = "\\ud800"  # as JSON spells it


@pytest.mark.parametrize("where", ["suite", "lambada", "label", "text", "key", "config", "tokenizer", "manifest"])
def test_half_a_character_is_the_fault_of_its_file(where, place, tmp_path, capsys):
    path = tmp_path / "a.jsonl"
    if where in ("suite", "lambada"):
        rows = {"suite": f'{{"sentence_good": "a{HALF}", "sentence_bad": "b"}}', "lambada": f'{{"text": "a b {HALF}"}}'}
        path.write_text(rows[where] + "\n")
        suite = "blimp" if where == "suite" else "lambada"
        check(3, capsys, "evaluate", place / "run", "--suite", suite, "--suite-data", path, wanted=[f"{path}:1"])
    elif where in ("label", "text", "key"):
        text, label, key = ("a" + HALF * (where == name) for name in ("text", "label", "key"))
        path.write_text(f'{{"text": "{text}", "label": "{label}", "{key}": 1}}\n{{"text": "c", "label": "d"}}\n')
        files = ("--train", path, "--valid", path, "--out", tmp_path / "o")
        check(3, capsys, "finetune", place / "run", "--task", "classify", *files, wanted=[f"{path}:1"])
        check(3, capsys, "check", "--task", "classify", path, wanted=[f"{path}:1"])
        if where == "label":
            check(3, capsys, "metric", "classify", path, path, wanted=[f"{path}:1"])
    else:
        source, name = ("data", "manifest.json") if where == "manifest" else ("run", f"{where}.json")
        folder = shutil.copytree(place / source, tmp_path / "copy")
        damaged = (folder / name).read_text().replace("{", f'{{"{HALF}": 1, ', 1)
        (folder / name).write_text(damaged)
        call = ("evaluate", place / "run", "--data", folder) if where == "manifest" else ("score", folder, path)
        path.write_text("a text\n")
        check(3 if where == "manifest" else 4, capsys, *call, wanted=[str(folder)])


def test_half_a_character_on_the_command_line(place, capsys):
    """A terminal that is not in UTF-8 hands over bytes that Python keeps as such halves."""
    check(3, capsys, "generate", place / "run", "--prompt", "a\udcff b", wanted=["lone surrogate"])


# ---- panics of the library behind tokenizers


def hostile_tokenizers():
    base = json.loads(Tokenizer.train("bpe", ["a small text of some words"] * 9, vocab_size=270).to_json())
    charsmap = {"type": "Precompiled", "precompiled_charsmap": "AAAA"}
    yield "charsmap", base | {"normalizer": charsmap}
    yield "huge id", base | {"added_tokens": [base["added_tokens"][0] | {"id": 2**32 - 1}]}
    yield (
        "stride",
        base | {"truncation": {"direction": "Right", "max_length": 2, "strategy": "LongestFirst", "stride": 9}},
    )
    unigram = {"type": "Unigram", "unk_id": 7, "vocab": [["a", -1.0]], "byte_fallback": True}
    yield "unigram", base | {"model": unigram}


@pytest.mark.parametrize("name", [name for name, _ in hostile_tokenizers()])
def test_a_hostile_tokenizer_is_one_line(name, place, tmp_path, capfd):
    folder = shutil.copytree(place / "run", tmp_path / "copy")
    (folder / "tokenizer.json").write_text(json.dumps(dict(hostile_tokenizers())[name]))
    (tmp_path / "a.txt").write_text("a text\n")
    call = ["prepare", str(tmp_path / "a.txt"), "--out", str(tmp_path / "o")]
    assert run([*call, "--from-tokenizer", str(folder / "tokenizer.json")]) in (0, 3, 4)
    shown = capfd.readouterr().err
    assert "panicked" not in shown and "Traceback" not in shown, shown


def test_a_panic_is_an_error_and_prints_nothing(capfd):
    class PanicException(BaseException):
        pass

    def panic():
        os.write(2, b"thread '<unnamed>' panicked\n")
        raise PanicException("boom")

    with pytest.raises(ValueError, match="boom"), panics_as_errors():
        panic()
    assert capfd.readouterr().err == ""
    with panics_as_errors():
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"


def test_a_panic_while_encoding_has_an_exit_code(place, capsys, monkeypatch):
    class PanicException(BaseException):
        pass

    def panic(*_, **__):
        raise PanicException("index out of bounds")

    monkeypatch.setattr(Run, "generate", panic)
    check(4, capsys, "generate", place / "run", "--prompt", "a", wanted=["index out of bounds"])

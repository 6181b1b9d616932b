"""Records of older versions are read through migrations, newer ones are refused with the version that is needed."""

import copy
import json
from pathlib import Path

import pytest

from seqloom.cli import run as call
from seqloom.errors import DataError, ModelError
from seqloom.migrations import ARCHIVE, CHECKPOINT, COMPARISON, PREPARED, RESULT, RUN, TRIAL, Format
from tests.release import copy_release, tool

made = tool("make_release_folders")
KINDS = [RUN, CHECKPOINT, PREPARED, COMPARISON, RESULT, TRIAL, ARCHIVE]


def renames(record):
    """A planted migration; careless on purpose: it changes what it was given."""
    record["recipe"]["budget"] = record["recipe"].pop("how_long")
    return record


def adds(record):
    return record | {"tasks": [record["task"]]}


PLANTED = Format(("0.1.0", "0.2.0", "0.3.0"), (renames, adds))
OLD = {"format": 1, "recipe": {"how_long": 5}, "task": "tag"}


def test_an_old_record_goes_through_every_migration_and_stays_as_it_is():
    before = copy.deepcopy(OLD)
    found = PLANTED.migrate(OLD, "config.json")
    assert found == {"format": 3, "needs": "0.3.0", "recipe": {"budget": 5}, "task": "tag", "tasks": ["tag"]}
    assert before == OLD
    assert PLANTED.migrate(found, "config.json") == found
    second = {"format": 2, "recipe": {"budget": 5}, "task": "tag"}
    assert PLANTED.migrate(second, "config.json") == found


@pytest.mark.parametrize("kind", KINDS)
def test_formats_and_migrations_fit_together(kind):
    assert len(kind.since) == len(kind.steps) + 1
    assert kind.stamp() == {"format": kind.number, "needs": kind.since[-1]}


@pytest.mark.parametrize("needs", ["0.9.0", None, "../../x", "0.9.0\nrm -rf", 7])
@pytest.mark.parametrize("kind", KINDS)
def test_a_newer_record_is_refused_with_what_is_needed(kind, needs):
    wanted = "seqloom 0.9.0 or later is needed" if needs == "0.9.0" else "a newer seqloom is needed"
    with pytest.raises(DataError if kind in (PREPARED, ARCHIVE) else ModelError, match="has format 9") as caught:
        kind.migrate({"format": 9, "needs": needs}, "place/file.json")
    assert str(caught.value).endswith(wanted)


@pytest.mark.parametrize("number", [None, True, 0, -1, 1.0, "1", [], 10**30])
def test_what_is_no_format_is_refused(number):
    with pytest.raises((ValueError, ModelError)):
        RUN.migrate({"format": number, "recipe": {}}, "config.json")


@pytest.fixture
def place(tmp_path, monkeypatch):
    monkeypatch.chdir(copy_release(tmp_path))
    return tmp_path


def planted(path, **values):
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("file", "code", "command"),
    [
        ("gpt2/config.json", 4, ["evaluate", "gpt2", "--data", "prepared"]),
        ("gpt2/config.json", 4, [*made.TRAIN["gpt2"], "--out", "gpt2", "--resume"]),
        ("prepared/manifest.json", 3, ["evaluate", "gpt2", "--data", "prepared"]),
        ("comparison/plan.json", 4, ["compare", "plan.toml", "--out", "comparison"]),
    ],
)
def test_folders_of_a_newer_version_are_refused_in_one_line(file, code, command, place, capsys):
    path = Path(file)
    planted(path, format=9, needs="7.1.0")
    before = {each: each.read_bytes() for each in sorted(path.parent.rglob("*")) if each.is_file()}
    assert call(command) == code
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert f"{path} has format 9" in line and "seqloom 7.1.0 or later is needed" in line
    assert before == {each: each.read_bytes() for each in before}


def test_a_folder_of_the_release_is_read_through_its_migrations(place, monkeypatch, capsys):
    """A planted migration of the recipe is seen, and no file is changed by reading."""
    path = Path("gpt2/config.json")
    assert json.loads(path.read_text())["format"] == 1
    before = path.read_bytes()

    def broken(config):
        return config | {"vocab_size": config["vocab_size"] + 1}

    assert call(["score", "gpt2", "lines.txt"]) == 0
    monkeypatch.setattr("seqloom.migrations.RUN", RUN._replace(steps=(broken,)))
    assert call(["score", "gpt2", "lines.txt"]) == 4
    assert "does not fit the tokenizer's" in capsys.readouterr().err
    assert path.read_bytes() == before

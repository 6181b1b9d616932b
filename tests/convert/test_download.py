"""Models of the hub: by name, through huggingface_hub, and never by mistake. The hub of these tests is a folder."""

import sys
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.errors import LocalEntryNotFoundError

from seqloom.cli import run
from seqloom.convert.download import hub_name
from tests.convert.material import save


@pytest.fixture
def asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """A hub with one model, and what it was asked for."""
    save("bert", tmp_path / "cache" / "small-bert")
    calls: list[Any] = []

    def snapshot_download(name: str, allow_patterns: list[str]) -> str:
        calls.append((name, allow_patterns))
        if name != "people/small-bert":
            raise LocalEntryNotFoundError(
                "Cannot find the requested files\nin the disk cache, and the hub is unreachable"
            )
        return str(tmp_path / "cache" / "small-bert")

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    monkeypatch.chdir(tmp_path)
    return calls


@pytest.mark.parametrize("source", ["people/small-bert", "hub:people/small-bert"])
def test_a_name_of_the_hub_is_imported(source: str, asked: list[Any], tmp_path: Path) -> None:
    assert run(["import", source, "--out", str(tmp_path / "run")]) == 0
    assert [name for name, _ in asked] == ["people/small-bert"]
    assert (tmp_path / "run" / "weights.json").is_file()


def test_offline_is_one_clear_line(asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["import", "hub:gpt2", "--out", str(tmp_path / "run")]) == 4
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and err.startswith(
        "seqloom: error: hub:gpt2 cannot be downloaded (LocalEntryNotFoundError: "
    )
    assert "offline, give a folder" in err and not (tmp_path / "run").exists()


def test_without_the_library(
    asked: list[Any], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert run(["import", "people/small-bert", "--out", str(tmp_path / "run")]) == 4
    assert 'pip install "seqloom[hub]"' in capsys.readouterr().err


def test_a_path_never_asks_the_hub(asked: list[Any], tmp_path: Path) -> None:
    (tmp_path / "models").mkdir()
    for mistyped in ("models/brt", "nowhere", "./people/small-bert", "/people/small-bert", "a/b/c", "models"):
        assert hub_name(mistyped) is None
        assert run(["import", mistyped, "--out", str(tmp_path / "run")]) in (2, 4)
    assert run(["import", "cache/small-bert", "--out", str(tmp_path / "run")]) == 0
    assert not asked

"""Runs that cannot be served, or not yet: one line each, a documented exit code, and the others are served."""

import os
import shutil
import threading

import pytest
from starlette.testclient import TestClient

from seqloom.errors import FileError, ModelError, OutOfMemory, UsageError, explain
from seqloom.runs.load import load
from seqloom.runs.training import pretrain
from seqloom.serve import start
from seqloom.serve.app import Limits, Server
from tests.serve.conftest import SIZES


def test_a_run_in_training_is_served_from_its_last_complete_weights(folders, tmp_path):
    """Loaded from within its training, when it has been measured once."""
    found = []

    def look(line):
        if not found and (tmp_path / "run" / "weights.json").is_file():
            (run,) = start.load_runs({"run": tmp_path / "run"}, "cpu").values()
            found.append(run.generate("the", max_new=3))
            assert not (tmp_path / "run" / "card.md").exists(), "it is not finished"

    settings = [*SIZES["lstm"], "budget={steps=40}", "train.eval_every=10"]
    pretrain("lstm-tiny", folders["lstm"].parent / "data", tmp_path / "run", settings=settings, on_log=look)
    assert found


def test_weights_that_are_being_written_are_waited_for(folders, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(folders["lstm"], run)
    whole = (run / "head.safetensors").read_bytes()
    (run / "head.safetensors").write_bytes(whole[:-1])
    writing = threading.Timer(0.5, (run / "head.safetensors").write_bytes, [whole])
    writing.start()
    assert start.load_runs({"run": run}, "cpu").keys() == {"run"}
    writing.join()


def test_a_run_that_has_no_weights_yet_says_so(folders, tmp_path, capsys):
    run = tmp_path / "run"
    shutil.copytree(folders["lstm"], run)
    for path in (run / "weights.json", run / "card.md", *run.glob("*.safetensors")):
        path.unlink()
    assert start.load_runs({"run": run, "lstm": folders["lstm"]}, "cpu").keys() == {"lstm"}
    assert "run is not served" in capsys.readouterr().err
    with pytest.raises(ModelError, match="no weights yet"):
        start.load_runs({"run": run}, "cpu")


def test_a_run_that_vanishes(folders, tmp_path, monkeypatch):
    """Before it is loaded, meanwhile, and afterwards."""
    with pytest.raises(ModelError, match="there is no such folder"):
        start.load_runs({"gone": tmp_path / "gone"}, "cpu")

    def vanishing(folder, device):
        shutil.rmtree(folder)
        return load(folder, device) if folder.exists() else (folder / "tokenizer.json").read_text()

    run = tmp_path / "run"
    shutil.copytree(folders["lstm"], run)
    with monkeypatch.context() as patch:
        patch.setattr(start, "load", vanishing)
        with pytest.raises(FileNotFoundError) as caught:
            start.load_runs({"run": run}, "cpu")
        assert explain(caught.value)[1] == FileError.exit_code
    shutil.copytree(folders["lstm"], run)
    made = Server({"run": load(run, "cpu")}, Limits())
    shutil.rmtree(run)
    with TestClient(made.app, base_url="http://127.0.0.1:1", raise_server_exceptions=False) as client:
        assert [each["id"] for each in client.get("/v1/models").json()["data"]] == ["run"]
        body = {"model": "run", "prompt": "the", "max_tokens": 2}
        assert client.post("/v1/completions", json=body).status_code == 200
    made.engines["run"].close()


def test_a_damaged_run_leaves_the_others(folders, tmp_path, capsys):
    for name in ("config.json", "tokenizer.json", "backbone.safetensors", "weights.json"):
        run = tmp_path / name
        shutil.copytree(folders["lstm"], run)
        (run / name).write_bytes(b"{" + (run / name).read_bytes()[: -len(name)])
        for path in run.iterdir():
            os.utime(path, (0, 0))  # it is not being written
        capsys.readouterr()
        assert start.load_runs({"run": run, "gpt2": folders["gpt2"]}, "cpu").keys() == {"gpt2"}
        line = next(line for line in capsys.readouterr().err.splitlines() if "run is not served" in line)
        assert str(run) in line
        with pytest.raises(ModelError) as caught:
            start.load_runs({"run": run}, "cpu")
        assert explain(caught.value)[1] == 4


def test_two_of_one_name(folders):
    with pytest.raises(UsageError, match=r"two runs are called 'lstm'.*other-lstm="):
        start.named_runs([str(folders["lstm"]), f"lstm={folders['gpt2']}"])


@pytest.mark.parametrize("name", ["", "n" * 201, "two\nlines"])
def test_names_that_nobody_could_ask_for(folders, tmp_path, name):
    with pytest.raises(UsageError, match=r"no name for a run that is served: .* my-run="):
        start.named_runs([f"{name}={folders['lstm']}"])
    if name == "two\nlines":
        (tmp_path / name).mkdir()
        with pytest.raises(UsageError, match="no name for a run"):
            start.named_runs([str(tmp_path / name)])
    assert start.named_runs(["имя с a/b <x>=" + str(folders["lstm"])]) == {"имя с a/b <x>": folders["lstm"]}


@pytest.mark.parametrize("how", ["free", "load"])
def test_a_model_that_does_not_fit_in_memory(folders, monkeypatch, capsys, how):
    size = sum(path.stat().st_size for path in folders["lstm"].glob("*.safetensors"))
    small = sum(path.stat().st_size for path in folders["ngram"].glob("*.safetensors"))
    assert small < size, "so that one of them fits"

    def no_room(folder, device):
        if folder == folders["lstm"]:
            raise MemoryError
        return load(folder, device)

    if how == "free":
        monkeypatch.setattr(start, "free_memory", lambda: 2 * size - 1)
    else:
        monkeypatch.setattr(start, "load", no_room)
    named = {"lstm": folders["lstm"], "ngram": folders["ngram"]}
    assert start.load_runs(named, "cpu").keys() == {"ngram"}
    assert "does not fit in memory" in capsys.readouterr().err
    with pytest.raises(OutOfMemory, match="does not fit in memory"):
        start.load_runs({"lstm": folders["lstm"]}, "cpu")
    assert OutOfMemory.exit_code == 6


def test_a_port_in_use():
    with start.listen("127.0.0.1", 0) as taken:
        with pytest.raises(FileError, match="choose another --port"):
            start.listen("127.0.0.1", taken.getsockname()[1])

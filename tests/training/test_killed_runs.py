"""A run, a preparation and an export that are killed at any file operation leave, once repeated, the folder of an unbroken one:
the same files, the same record, nothing half."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from seqloom import progress
from seqloom.batches.prepare import prepare
from seqloom.cli import run as command
from seqloom.convert.huggingface import export_folder
from seqloom.files import files_below
from seqloom.runs.training import pretrain
from seqloom.training import checkpoint as checkpoints
from seqloom.training.loop import Fit
from tests.killing import die_at
from tests.training.material import prepared, write_text
from tests.training.test_resume import TIMES, fingerprint

SETTINGS = [
    "model.dim=10",
    "model.num_layers=1",
    "batches.budget=64",
    "batches.length=16",
    "batches.streams=4",
    "train.save_every=2",
    "train.eval_every=3",
    "train.log_every=1",
    "train.milestones=true",
    "train.keep=1",
    "valid.limit=100",
]
# beside what depends on the clock
CLOCK = {*TIMES, "energy_kwh", "co2_kg", "flops_per_second", "peak_memory_mb"}
LAST = 130  # operations of a run that are tried in the quick tests: the last two saves and all that follows


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return prepared(tmp_path_factory.mktemp("killed") / "data", 100)


def record(folder: Path) -> dict[str, object]:
    """All that an unbroken run leaves, times apart."""
    metrics = json.loads((folder / "metrics.json").read_text())
    return {
        "files": set(files_below(folder)) - {"lock"},
        "latest": (folder / "checkpoints/latest").read_text(),
        "metrics.json": {key: value for key, value in metrics.items() if key not in CLOCK},
        "milestones": [
            {key: value for key, value in json.loads(path.read_text()).items() if key not in CLOCK}
            for path in sorted(folder.glob("milestones/*/milestone.json"))
        ],
        **fingerprint(folder),
    }


def killed_everywhere(tmp_path: Path, work: Callable[[Path], None], last: int, every: int) -> list[Path]:
    """Folders in which the work was killed at one of its operations and then repeated; none but the last ones, where `last`."""
    total = die_at(-1, lambda: work(tmp_path / "count"))
    assert total > 30, "the operations are not seen"
    found = []
    for fatal in range(max(total - last, 0) + 1 if last else 1, total + 1, every):
        folder = tmp_path / f"at-{fatal}"
        died = die_at(fatal, lambda folder=folder: work(folder))
        assert died == -9 or fatal > total - 5  # how often the energy is asked for may differ a little
        work(folder)
        found.append(folder)
    return found


def train(name: str, data: Path, out: Path, steps: int = 6) -> None:
    progress.QUIET = True
    pretrain(f"{name}-tiny", data, out, settings=[*SETTINGS, f"budget={{steps={steps},tokens=9000}}"], resume=True)


@pytest.mark.parametrize(
    ("name", "steps", "last", "every"),
    [
        ("gpt2", 6, LAST, 13),  # ends where it was saved
        pytest.param("gpt2", 6, 0, 1, marks=pytest.mark.long),
        pytest.param("lstm", 5, 0, 1, marks=pytest.mark.long),
    ],
)
def test_a_run_killed_at_a_file_operation_leaves_the_record_of_an_unbroken_one(
    name, steps, last, every, data, tmp_path, monkeypatch
):
    monkeypatch.setattr(progress, "QUIET", True)
    train(name, data, tmp_path / "whole", steps)
    whole = record(tmp_path / "whole")
    assert whole["metrics.json"]["energy_method"]
    assert whole["milestones"], "no milestone is passed"
    for folder in killed_everywhere(tmp_path, lambda out: train(name, data, out, steps), last, every):
        assert record(folder) == whole, folder.name
        shutil.rmtree(folder)


def resumed_after_the_last_checkpoint(data: Path, folder: Path) -> bool:
    """Whether a run that was killed once its last checkpoint was complete, and nothing after it, ends as the unbroken one."""
    train("gpt2", data, folder, 5)
    whole = record(folder)
    (folder / "checkpoints/latest").write_text("step-4\n")
    (folder / "head.safetensors.tmp").write_text("half")
    shutil.copytree(folder / "checkpoints/step-5", folder / "checkpoints/step-4")  # was to be deleted next
    (folder / "checkpoints/step-4/manifest.json").unlink()
    for name in ("metrics.json", "card.md"):
        (folder / name).unlink()
    train("gpt2", data, folder, 5)
    return (folder / "checkpoints/latest").read_text() == whole["latest"] and record(folder) == whole


def test_a_run_killed_after_its_last_checkpoint_leaves_the_record_of_an_unbroken_one(data, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "QUIET", True)
    assert resumed_after_the_last_checkpoint(data, tmp_path / "run")


@pytest.mark.parametrize("lost", ["latest", "energy", "leftovers"])
def test_planted_losses_are_noticed(lost, data, tmp_path, monkeypatch):
    """What was wrong once: a resumed run that had nothing left to do mended nothing."""
    monkeypatch.setattr(progress, "QUIET", True)
    load_latest, restore = checkpoints.load_latest, Fit.restore

    def unmended(folder):
        before = (folder / "latest").read_bytes()
        found = load_latest(folder)
        (folder / "latest").write_bytes(before)
        return found

    def forgetful(fit):
        restore(fit)
        if fit.state.finished:
            fit.state.energy_method = "unknown"

    if lost == "latest":
        monkeypatch.setattr(checkpoints, "load_latest", lambda folder: unmended(folder) if folder.is_dir() else None)
    elif lost == "energy":
        monkeypatch.setattr(Fit, "restore", forgetful)
    else:
        monkeypatch.setattr("seqloom.runs.folder.remove_leftovers", lambda *_: None)
    assert not resumed_after_the_last_checkpoint(data, tmp_path / "run")


@pytest.mark.parametrize("every", [6, pytest.param(1, marks=pytest.mark.long)])
def test_a_preparation_killed_at_a_file_operation(every, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "QUIET", True)
    text = write_text(tmp_path / "text.txt", 60)

    def work(out: Path) -> None:
        progress.QUIET = True
        if not (out / "manifest.json").exists() or (out / "prepare.json").exists():
            prepare([text], out, tokenizer="word", min_count=1, valid=0.2, keep_leaks=True, keep_duplicates=True)

    work(tmp_path / "whole")
    whole = {name: (tmp_path / "whole" / name).read_bytes() for name in files_below(tmp_path / "whole")}
    for folder in killed_everywhere(tmp_path, work, 0, every):
        found = {name: (folder / name).read_bytes() for name in files_below(folder)}
        assert {name for name in found if found[name] != whole.get(name)} <= {"lock"}, folder.name
        assert found.keys() == whole.keys(), folder.name


@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
def test_an_export_killed_at_a_file_operation(every, data, tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "QUIET", True)
    train("gpt2", data, tmp_path / "run", 2)

    def work(out: Path) -> None:
        export_folder(tmp_path / "run", out, overwrite=True)

    work(tmp_path / "whole")
    for folder in killed_everywhere(tmp_path, work, 0, every):
        assert set(files_below(folder)) == set(files_below(tmp_path / "whole")), folder.name


LEFT = {
    "run": (
        "backbone.safetensors.tmp", ".tmpAb3dE9", "checkpoints/latest.tmp", "checkpoints/step-2/.tmpAb3dE9", "card.md.tmp",
        "milestones/7/.tmpx1y2z3", "milestones/7/milestone.json.tmp",
    ),
    "several": ("seeds.json.tmp", "curve.json.tmp", "curve.html.tmp"),
    "comparison": (
        "plan.json.tmp", "results/gpt2/seed-0.npz.tmp", "results/gpt2/seed-0.json.tmp", "data/bpe/prepare.json.tmp",
        "report.html.tmp",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", LEFT)
def test_leftovers_are_removed_at_the_next_start_and_other_files_stay(kind, data, tmp_path, monkeypatch, capsys):
    from seqloom.comparison.run import begin
    from seqloom.runs.seeds import holding_runs

    monkeypatch.setattr(progress, "QUIET", True)
    out = tmp_path / "out"
    if kind == "run":
        train("gpt2", data, out)
    else:
        out.mkdir()
        (out / "plan.json").write_text("{}")
    foreign = {"thesis.tmp", "notes/.tmpAb3dE9"} | ({".tmpAb3dE9"} if kind != "run" else set())
    for name in (*LEFT[kind], *foreign):
        (out / name).parent.mkdir(parents=True, exist_ok=True)
        (out / name).write_bytes(b"half")
    if kind == "run":
        train("gpt2", data, out)
    elif kind == "several":
        with holding_runs(out, resume=True, overwrite=False):
            pass
    else:
        begin(out, overwrite=False)
    there = set(files_below(out))
    assert not there & set(LEFT[kind])
    assert foreign <= there


def test_a_file_that_only_looks_left_over_is_nobodys_to_delete(data, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "thesis.tmp").write_text("dear reader")
    call = ["pretrain", "gpt2-tiny", "--data", str(data), "--out", str(out), "--tokens", "100"]
    for more in ([], ["--overwrite"]):
        assert command([*call, *more]) == 2
        assert "choose another --out" in capsys.readouterr().err
        assert (out / "thesis.tmp").read_text() == "dear reader"

"""Trackers follow metrics.jsonl: every metric of every step once, whatever happens to the run, and the run never notices."""

import json
import os
import subprocess
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from seqloom.cli import run as command
from seqloom.errors import ModelError, SeqloomError, UsageError
from seqloom.runs import track as module
from seqloom.runs.track import Following, LogReader, Tracked, Tracker, find_runs, is_finished, nothing_sent, track
from seqloom.training.log import MetricsLog, read_log
from tests.runs.test_on_log import data, trained  # noqa: F401 - a fixture


def log_line(step, **more):
    return {"step": step, "loss": 5 - 0.25 * step, "lr": 0.5, "skipped": 0, **more}


def write_run(folder, steps, finished=True):
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    log = MetricsLog(folder / "metrics.jsonl", 0)
    for step in steps:
        log.write(log_line(step))
        if step % 2 == 0:
            log.write({"step": step, "valid": 4.0, "languages": {"en": 3.5, "de": 4.5}})
    log.close()
    if finished:
        (folder / "card.md").write_text("done")
    return folder


def in_log(folder):
    """Every (metric, step, value) of a log; the first where two lines of a step have the same metric."""
    found = {}
    for record in read_log(folder):
        step = record.pop("step")
        for name, value in record.items():
            several = (
                {f"{name}/{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
            )
            for key, each in several.items():
                found.setdefault((key, step), pytest.approx(each, rel=1e-6))
    return found


def on_board(folder):
    events = EventAccumulator(str(folder), size_guidance={"tensors": 0})
    events.Reload()
    rows = [(tag, e.step, e.tensor_proto.float_val[0]) for tag in events.Tags()["tensors"] for e in events.Tensors(tag)]
    found = {(tag, step): value for tag, step, value in rows}
    assert len(found) == len(rows), "a step was sent twice"
    return found


# ---- read back


def test_tensorboard_has_every_line_once(tmp_path):
    run, boards = write_run(tmp_path / "lstm", range(1, 6)), tmp_path / "boards"
    assert track([run], out=boards) == 7
    assert on_board(boards / "lstm") == in_log(run)
    assert track([run], out=boards) == 0 and on_board(boards / "lstm") == in_log(run), "called again"
    log = MetricsLog(run / "metrics.jsonl", 1 << 30)
    log.write(log_line(9))
    log.close()
    assert track([run], out=boards) == 1 and on_board(boards / "lstm") == in_log(run)


def test_trackio_has_every_line_once(tmp_path):
    """In a process of its own: where its database is, it decides when it is imported."""
    run = write_run(tmp_path / "lstm", range(1, 6))
    program = (
        "import json, sys\nfrom seqloom.runs.track import track\n"
        f"counts = [track([{str(run)!r}], 'trackio', out={str(tmp_path / 'board')!r}, project='mine') for _ in range(2)]\n"
        "from trackio.sqlite_storage import SQLiteStorage\n"
        "print(json.dumps([counts, SQLiteStorage.get_logs('mine', 'lstm')], default=str))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    counts, rows = json.loads(done.stdout)
    assert counts == [7, 0] and len(rows) == 7
    values = [(name, row["step"], row[name]) for row in rows for name in row if name not in ("step", "timestamp")]
    assert {(name, step): value for name, step, value in values} == in_log(run) and len(values) == len(in_log(run))


class FakeWandb(ModuleType):
    """As far as it is used: runs by their id, each of which takes no step below its own."""

    def __init__(self):
        super().__init__("wandb")
        self.runs = {}

    def init(self, *, id, resume, reinit, **about):
        assert resume == "allow" and reinit == "create_new"
        run = self.runs.setdefault(id, SimpleNamespace(step=0, rows=[], about=about))

        def log(values, step):
            assert step >= run.step
            run.rows.append((step, values))

        def finish():
            run.step = run.rows[-1][0] + 1

        run.log, run.finish = log, finish
        return run


def test_wandb_has_every_line_once(tmp_path, monkeypatch):
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    (
        write_run(tmp_path / "compared/runs/A/seed-0", range(1, 4)),
        write_run(tmp_path / "compared/runs/A/seed-1", range(1, 4)),
    )
    for expected in (8, 0):
        assert track([tmp_path / "compared"], "wandb", project="mine") == expected
    assert [run.about["group"] for run in wandb.runs.values()] == ["compared", "compared"]
    assert [[step for step, _ in run.rows] for run in wandb.runs.values()] == [[1, 2, 2, 3]] * 2


# ---- killed and resumed


class Listening(Tracker):
    """Keeps what it is sent."""

    name = "listening"

    def __init__(self):
        super().__init__(None, "x")
        self.rows = []

    def already_sent(self, run):
        found = nothing_sent()
        for name, step, _ in self.rows:
            found[name] = max(found[name], step)
        return found

    def send(self, run, lines):
        self.rows += [(name, line.step, value) for line in lines for name, value in line.values.items()]

    def close(self):
        pass


def lives(folder, look):
    """A run that is killed three times, each time after lines that it had not saved, and looked at after each step or so."""
    folder.mkdir()
    saved, step, bytes_saved = 0, 0, 0
    for life in range(4):
        step = saved
        log = MetricsLog(folder / "metrics.jsonl", bytes_saved)
        for _ in range(5 + life):
            step += 1
            log.write(log_line(step, seconds=100 * life + step))
            if step % 3 == 0:
                saved, bytes_saved = step, log.sync()
            if (step + life) % 2:
                look()
        log.close()
    look()


@pytest.mark.parametrize("restarted", [False, True])
def test_no_step_is_sent_twice_after_a_kill(tmp_path, restarted):
    sent_twice, steps = follow_lives(tmp_path / "run", restarted)
    assert not sent_twice and steps == list(range(1, max(steps) + 1))


def follow_lives(folder, restarted):
    tracker = Listening()
    following = [Following(tracker)]
    run = Tracked(folder, "run", None)

    def look():
        if restarted:  # the tracker was killed, too
            following[0] = Following(tracker)
        following[0].update([run])

    lives(folder, look)
    losses = [step for name, step, _ in tracker.rows if name == "loss"]
    return len(losses) - len(set(losses)), sorted(set(losses))


def test_a_follower_that_forgets_what_it_sent_is_noticed(tmp_path, monkeypatch):
    monkeypatch.setattr(Following, "unsent", lambda self, run, lines: list(lines))
    assert follow_lives(tmp_path / "run", False)[0] > 0


def test_a_reader_that_does_not_see_a_log_cut_back_is_noticed(tmp_path, monkeypatch):
    def read(self):
        with open(self.path, "rb") as file:
            file.seek(self.offset)
            found = file.read()
        self.offset += len(found)
        return [self.parse(line) for line in found.splitlines()]

    monkeypatch.setattr(LogReader, "read", read)
    try:
        sent_twice, steps = follow_lives(tmp_path / "run", False)
    except ModelError:
        return  # it read from the middle of a line
    assert sent_twice or steps != list(range(1, max(steps) + 1))


def test_half_a_line_waits_for_its_other_half(tmp_path):
    path = tmp_path / "metrics.jsonl"
    reader = LogReader(path)
    assert reader.read() == []
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "lo')
    assert [line.step for line in reader.read()] == [1] and reader.read() == []
    path.write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n')
    assert reader.read() == [module.Line(2, {"loss": 2.25})]


# ---- which runs, and when they end


def test_a_comparison_is_one_group(tmp_path):
    for name in ("runs/A/seed-0", "runs/B/seed-0", "tasks/cola/A/seed-0", "budgets/9-words/runs/A/seed-1"):
        write_run(tmp_path / "compared" / name, [1])
    write_run(tmp_path / "compared/shared/0123-40", [1])  # a start that runs share is none of its own
    write_run(tmp_path / "compared/runs/A/seed-0/milestones/100", [1])
    write_run(tmp_path / "compared/runs/shared/seed-0", [1])  # a row of that name
    found = find_runs([tmp_path / "compared"])
    assert {run.group for run in found} == {"compared"} and len(found) == 5
    assert {"compared/tasks/cola/A/seed-0", "compared/runs/shared/seed-0"} <= {run.name for run in found}
    alone = [write_run(tmp_path / "x" / name / "seed-0", [1]) for name in "ab"]
    assert [run.name for run in find_runs(alone)] == ["a/seed-0", "b/seed-0"]
    assert [(run.name, run.group) for run in find_runs([alone[0], alone[0]])] == [("seed-0", None)]


def test_following_ends_with_the_runs(tmp_path, monkeypatch):
    run = write_run(tmp_path / "run", [1, 2], finished=False)
    waits = []

    def sleep(seconds):
        waits.append(seconds)
        if len(waits) == 2:
            (run / "card.md").write_text("done")
        assert len(waits) < 9

    monkeypatch.setattr(module.time, "sleep", sleep)
    assert track([run], follow=True, out=tmp_path / "boards") == 3 and len(waits) == 2
    assert is_finished(run) and not is_finished(tmp_path)
    (tmp_path / "comparison.json").write_text("{}")
    assert is_finished(tmp_path)


# ---- what goes wrong


def test_wrong_calls(tmp_path, capsys, monkeypatch):
    run = write_run(tmp_path / "run", [1])
    (tmp_path / "empty").mkdir()
    assert command(["track", str(run), "--to", "tensorbord"]) == 2
    assert "did you mean 'tensorboard'?" in capsys.readouterr().err
    for name in ("empty", "nowhere"):
        assert command(["track", str(tmp_path / name), "--out", str(tmp_path / "boards")]) == 4
        assert f"{tmp_path / name} is not a run folder and holds none" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert command(["track", str(run), "--to", "wandb"]) == 4
    assert "needs wandb, which is not installed: pip install wandb" in capsys.readouterr().err
    with pytest.raises(UsageError):
        track([])


@pytest.mark.parametrize(
    "text", ["{\n", "5\n", '{"loss": 2}\n', '{"step": -1}\n', '{"step": true}\n', '{"step": 1e3}\n', "\xff\n", "[]\n"]
)
def test_a_damaged_log_is_named(tmp_path, capsys, text):
    run = write_run(tmp_path / "run", [])
    (run / "metrics.jsonl").write_text(text, encoding="latin-1")
    assert command(["track", str(run), "--out", str(tmp_path / "boards")]) == 4
    assert f"{run / 'metrics.jsonl'} is damaged" in capsys.readouterr().err


def test_the_command_prints_how_many_lines_were_new(tmp_path, capsys):
    run = write_run(tmp_path / "run", range(1, 4))
    assert command(["track", str(run), "--out", str(tmp_path / "boards")]) == 0
    out, err = capsys.readouterr()
    assert out == "new lines sent to tensorboard: 4\n" and f"tensorboard --logdir {tmp_path / 'boards'}" in err


def test_a_tracker_that_raises_ends_in_one_line(tmp_path):
    class Broken(Listening):
        def send(self, run, lines):
            raise ValueError("no such\nproject")

    with pytest.raises(SeqloomError, match=r"listening failed on run \(ValueError") as caught:
        Following(Broken()).update([Tracked(write_run(tmp_path / "run", [1]), "run", None)])
    assert caught.value.exit_code == 1


PLANTED = {
    "raises": "def init(**about):\n    raise RuntimeError('no server')\n",
    "hangs": "import time\ndef init(**about):\n    open({mark!r}, 'w').close()\n    time.sleep(1000)\n",
}
STORAGE = "class SQLiteStorage:\n    @staticmethod\n    def get_logs(project, run):\n        return []\n"


@pytest.mark.parametrize("planted", PLANTED)
def test_no_tracker_changes_a_bit_of_a_run(data, tmp_path, planted):  # noqa: F811
    """One that raises or hangs follows a run from its beginning: the run ends as it does alone."""
    alone = trained(data, tmp_path / "alone")
    package, mark = tmp_path / "packages/trackio", tmp_path / "hangs"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(PLANTED[planted].replace("{mark!r}", repr(str(mark))))
    (package / "sqlite_storage.py").write_text(STORAGE)
    path = os.pathsep.join([str(tmp_path / "packages"), os.environ.get("PYTHONPATH", "")])
    call = [sys.executable, "-m", "seqloom", "track", str(tmp_path / "run"), "--to", "trackio", "--follow", "-q"]
    with subprocess.Popen(call, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE, text=True) as tracker:
        seen = []

        def on_log(line):
            """Waits until the tracker has met the first line: then it is known to be there."""
            deadline = time.monotonic() + 60
            while not seen and not mark.exists() and tracker.poll() is None and time.monotonic() < deadline:
                time.sleep(0.02)
            seen.append(line)

        try:
            assert trained(data, tmp_path / "run", on_log=on_log) == alone
            assert tracker.poll() == {"raises": 1, "hangs": None}[planted]
        finally:
            tracker.kill()
            _, errors = tracker.communicate()
    lines = [line for line in errors.splitlines() if line.startswith("seqloom: error:")]
    assert len(lines) == (planted == "raises") and all("trackio failed" in line for line in lines)

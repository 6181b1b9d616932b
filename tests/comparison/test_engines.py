"""Jobs on Slurm and Ray: the same results as here, whatever happens to the machines."""

import json
import os
import stat
import threading
import time
from pathlib import Path

import pytest

from seqloom.comparison.engines import Task, Where
from seqloom.comparison.engines import on_slurm as slurm
from seqloom.comparison.engines.on_slurm import SlurmEngine, parse_options, script
from seqloom.comparison.run import compare
from seqloom.errors import UsageError
from tests.comparison.plans import GPT, LSTM, plan_of, write_text
from tests.comparison.test_run import hard

TASK = Task(
    "LSTM, seed 0",
    ["python", "-m", "seqloom.comparison.job", "/an out", "LSTM", "0", "--quiet"],
    Path("/an out/logs/LSTM-0.log"),
    False,
    {"PYTHONPATH": "/a b", "SECRET": "x"},
)
GOLDEN = """#!/bin/bash
#SBATCH --job-name="seqloom LSTM, seed 0"
#SBATCH --output="/an out/logs/LSTM-0.log"
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:TERM@60
#SBATCH --cpus-per-task=2
#SBATCH --gres=gpu:1
#SBATCH --partition=gpu
#SBATCH --exclusive
: > '/an out/logs/LSTM-0.begun.log'
export PYTHONPATH='/a b'
export OMP_NUM_THREADS=2 SEQLOOM_NODE=$SLURMD_NODENAME
trap 'kill -TERM $job 2>/dev/null' TERM
python -m seqloom.comparison.job '/an out' LSTM 0 --quiet &
job=$!
wait $job; code=$?
while kill -0 $job 2>/dev/null; do wait $job; code=$?; done
echo $code > '/an out/logs/LSTM-0.exit.log'.tmp && mv '/an out/logs/LSTM-0.exit.log'.tmp '/an out/logs/LSTM-0.exit.log'
exit $code
"""
SBATCH = r"""#!/bin/bash
[ "$1" = --version ] && echo fake && exit
n=$(( $(cat "$FAKE/n" 2>/dev/null || echo 0) + 1 )); echo $n > "$FAKE/n"
out=$(sed -n 's/^#SBATCH --output="\(.*\)"$/\1/p' "$2")
cp "$2" "$FAKE/$n.sh"
SLURMD_NODENAME=n1 setsid bash "$2" >> "$out" 2>&1 < /dev/null &
echo $! > "$FAKE/$n.pid"
echo "$n;cluster"
"""
SQUEUE = """#!/bin/bash
for file in "$FAKE"/*.pid; do
  [ -e "$file" ] && kill -0 $(cat "$file") 2>/dev/null && echo "$(basename "$file" .pid) RUNNING"
done
exit 0
"""
SCANCEL = """#!/bin/bash
for number; do :; done
kill -TERM $(cat "$FAKE/$number.pid")
"""


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    return write_text(tmp_path_factory.mktemp("engines") / "text.txt")


@pytest.fixture(scope="module")
def local(text):
    return compare(small(text), text.parent / "local", jobs=2, device="cpu"), text.parent / "local"


def small(text):
    return plan_of(text, rows=[LSTM, GPT], seeds=1, pairs=0)


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A Slurm of three scripts, which runs what is submitted at once."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": SQUEUE, "scancel": SCANCEL}.items():
        (programs / name).write_text(text)
        (programs / name).chmod(stat.S_IRWXU)
    fake = tmp_path / "fake"
    fake.mkdir()
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setenv("FAKE", str(fake))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.setattr(slurm, "BETWEEN", 0.2)
    monkeypatch.setattr(slurm, "MISSING", 2.0)
    return fake


def test_the_script():
    options = parse_options(["partition=gpu", "--exclusive"])
    assert script(TASK, 2, 1.0, options) == GOLDEN
    assert "--gres=gpu:1\n" not in script(TASK, 2, 1.0, parse_options(["gres=gpu:a100:1"]))


def test_on_slurm_it_finds_the_same(local, text, tmp_path, cluster):
    compare(small(text), tmp_path / "out", device="cpu", where=Where("slurm"))
    assert hard(tmp_path / "out")["metrics"] == hard(local[1])["metrics"]
    assert len(list(cluster.glob("*.sh"))) == 2 and (tmp_path / "out" / "logs" / "device-n1.log").exists()
    again = compare(small(text), tmp_path / "out", device="cpu", where=Where("slurm"))
    assert again.rows == ["LSTM", "GPT"] and len(list(cluster.glob("*.sh"))) == 2, "nothing is submitted again"


def engine_of(folder, **task):
    (folder / "logs").mkdir(parents=True, exist_ok=True)
    engine = SlurmEngine(10, 1, 0.0, ())
    engine.prepare(folder)
    log = folder / "logs" / "LSTM-0.log"
    return engine, TASK._replace(log=log, environment=dict(os.environ), **task)


def wait(job, seconds=20):
    until = time.monotonic() + seconds
    while (code := job.poll()) is None and time.monotonic() < until:
        time.sleep(0.05)
    return code


def test_exit_codes_come_back(tmp_path, cluster):
    for code in (0, 3, 75):
        engine, task = engine_of(tmp_path / f"{code}", call=["bash", "-c", f"exit {code}"])
        assert wait(engine.start(task)) == code


def test_a_folder_that_is_not_shared_is_noticed(tmp_path, cluster):
    """The node writes to a folder of its own by the same name."""
    program = tmp_path / "bin" / "sbatch"
    program.write_text(SBATCH.replace("setsid bash", "setsid true"))
    engine, task = engine_of(tmp_path / "out", call=["true"])
    with pytest.raises(UsageError, match=r"job 1 has ended and written nothing to .*out: choose an --out"):
        wait(engine.start(task))


def test_a_job_that_was_killed_after_its_start_is_known(tmp_path, cluster):
    engine, task = engine_of(tmp_path / "out", call=["bash", "-c", "kill -9 $PPID; sleep 0.1"])
    assert wait(engine.start(task)) == -9


def test_a_job_that_was_stopped_saves_its_state(tmp_path, cluster):
    """SIGTERM reaches the job itself, and its exit code is that of an interruption."""
    loop = "trap 'echo saved; exit 75' TERM; while true; do sleep 0.05; done"
    engine, task = engine_of(tmp_path, call=["bash", "-c", loop])
    job = engine.start(task)
    time.sleep(0.5)
    job.terminate()
    assert wait(job) == 75 and "saved" in task.log.read_text()


def test_a_job_of_an_earlier_call_is_taken_over(tmp_path, cluster):
    engine, task = engine_of(tmp_path, call=["bash", "-c", "sleep 2; exit 3"])
    first = engine.start(task)
    other, _ = engine_of(tmp_path)
    second = other.start(task)
    assert second.number == first.number and wait(second) == 3 and len(list(cluster.glob("*.sh"))) == 1


def test_a_job_that_is_gone_has_failed(tmp_path, cluster):
    engine, task = engine_of(tmp_path, call=["bash", "-c", "kill -9 $PPID; sleep 5"])
    assert wait(engine.start(task)) == -9


def test_what_cannot_be(monkeypatch, tmp_path):
    for where, message in (
        (Where("slrum"), "slurm"),
        (Where("local", cpus=2), "--cpus and --gpus are for --on ray and --on slurm"),
        (Where("ray", slurm=("a=b",)), "--slurm is for --on slurm"),
        (Where("slurm", gpus=0.5), "whole GPUs"),
        (Where("slurm", slurm=("output=x",)), "set by seqloom itself"),
        (Where("slurm", slurm=("a b",)), "key=value"),
        (Where("slurm", jobs=0), "at least 1"),
    ):
        with pytest.raises(UsageError, match=message):
            where.engine()
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(UsageError, match="there is no sbatch here"):
        SlurmEngine(1, 1, 0.0, ()).prepare(tmp_path)


def test_what_slurm_refuses_is_said(tmp_path, cluster):
    """A job that needs more than any node has, for example: in Slurm's own words."""
    program = tmp_path / "bin" / "sbatch"
    program.write_text(
        '#!/bin/bash\n[ "$1" = --version ] && exit\necho "Requested node configuration is not available" >&2\nexit 1\n'
    )
    engine, task = engine_of(tmp_path / "out")
    with pytest.raises(
        UsageError, match="sbatch failed with exit code 1: Requested node configuration is not available"
    ):
        engine.start(task)


def test_the_plan_does_not_say_where(local):
    assert not {"where", "engine", "jobs", "on"} & set(json.loads((local[1] / "plan.json").read_text()))


@pytest.mark.long
def test_on_ray_a_lost_node_costs_nothing(local, text, tmp_path, monkeypatch):
    """Two nodes on this machine; one is removed without grace while a job on it has checkpoints and no result."""
    import ray
    from ray.cluster_utils import Cluster

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    second = cluster.add_node(num_cpus=1)
    lost = []

    def disturb():
        out = tmp_path / "out"
        while not lost:
            for run in (out / "runs").glob("*/seed-0"):
                done = (out / "results" / run.parent.name / "seed-0.json").exists()
                busy = any(run.glob("checkpoints/step-*/manifest.json")) and not done
                if busy and (out / "logs" / f"device-{second.node_id[:12]}.log").exists():
                    cluster.remove_node(second, allow_graceful=False)
                    lost.append(run.parent.name)
                    return
            time.sleep(0.02)

    try:
        ray.init(address=cluster.address, log_to_driver=False)
        with pytest.raises(UsageError, match="no node has more than 1"):
            compare(small(text), tmp_path / "big", device="cpu", where=Where("ray", cpus=99))
        (tmp_path / "apart" / "logs").mkdir(parents=True)
        with monkeypatch.context() as patch:
            patch.setattr(Path, "write_text", lambda path, text: 0)  # what is written here is not seen there
            with pytest.raises(UsageError, match="is not the same folder on"):
                Where("ray").engine().prepare(tmp_path / "apart")
        threading.Thread(target=disturb, daemon=True).start()
        compare(small(text), tmp_path / "out", device="cpu", where=Where("ray"))
    finally:
        ended = list(lost)
        lost.append("")
        ray.shutdown()
        cluster.shutdown()
    assert hard(tmp_path / "out")["metrics"] == hard(local[1])["metrics"]
    assert ended, "no node was lost while a job was between checkpoints"


@pytest.mark.long
def test_ray_without_a_cluster(monkeypatch, tmp_path):
    monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")
    (tmp_path / "logs").mkdir()
    with pytest.raises(UsageError, match=r"no cluster at RAY_ADDRESS=127\.0\.0\.1:1"):
        Where("ray").engine().prepare(tmp_path)

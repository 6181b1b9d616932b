"""A real Slurm of two nodes on this machine, and a comparison on it while one node is killed: the results must be those of a
local run.

    apt-get install slurmctld slurmd slurm-client munge        # Debian's packages; needs root
    python benchmarks/slurm.py OUT

Prints what happened, and the seconds that both took.
"""

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from seqloom.comparison.engines import Where
from seqloom.comparison.plan import PlanConfig
from seqloom.comparison.run import compare
from seqloom.config import build

CONF = """ClusterName=seqloom
SlurmctldHost={host}
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CredType=cred/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={place}/state
SlurmdSpoolDir={place}/spool-%n
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd-%n.pid
SlurmctldLogFile={place}/slurmctld.log
SlurmdLogFile={place}/slurmd-%n.log
SlurmctldPort={port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SlurmdTimeout=10
MpiDefault=none
SwitchType=switch/none
JobAcctGatherType=jobacct_gather/none
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={first} CPUs=1 State=UNKNOWN
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={second} CPUs=1 State=UNKNOWN
PartitionName=all Nodes=n1,n2 Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count: int) -> list[int]:
    found = [socket.socket() for _ in range(count)]
    for each in found:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in found]
    for each in found:
        each.close()
    return ports


class Cluster:
    def __init__(self, place: Path):
        self.place = place.resolve()
        shutil.rmtree(self.place, ignore_errors=True)
        self.place.mkdir(parents=True)
        (self.place / "state").mkdir()
        self.place.chmod(0o755)
        key = self.place / "munge.key"
        key.write_bytes(secrets.token_bytes(1024))
        key.chmod(0o600)
        port, first, second = free_ports(3)
        host = socket.gethostname()
        (self.place / "slurm.conf").write_text(
            CONF.format(host=host, place=self.place, port=port, first=first, second=second)
        )
        os.environ["SLURM_CONF"] = str(self.place / "slurm.conf")
        munged = ["munged", "--foreground", "--force", f"--socket={self.place}/munge.socket", f"--key-file={key}"]
        munged += [
            f"--pid-file={self.place}/munged.pid",
            f"--log-file={self.place}/munged.log",
            f"--seed-file={self.place}/seed",
        ]
        self.processes = {"munged": self.start(*munged)}
        time.sleep(1)
        self.processes["slurmctld"] = self.start("slurmctld", "-D")
        for node in ("n1", "n2"):
            self.processes[node] = self.start("slurmd", "-D", "-N", node)

    def start(self, *command: str) -> subprocess.Popen[bytes]:
        log = (self.place / f"{command[0]}.out").open("ab")
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def wait(self) -> None:
        for _ in range(60):
            found = subprocess.run(["sinfo", "-h", "-N", "-o", "%N %T"], capture_output=True, text=True).stdout.split(
                "\n"
            )
            if sum("idle" in line for line in found) == 2:
                return
            time.sleep(1)
        raise SystemExit(f"the cluster did not start: see {self.place}")

    def kill_node(self, node: str) -> list[int]:
        """The daemon and everything that it started: first those that would tell the controller."""
        jobs = steps_of(node)
        watchers = [parent for pid in jobs if is_watcher(parent := parent_of(pid))]
        victims = [*watchers, *descendants(self.processes[node].pid), *jobs]
        for pid in dict.fromkeys([self.processes[node].pid, *victims]):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        return victims

    def close(self) -> None:
        for process in reversed(self.processes.values()):
            process.terminate()
        time.sleep(2)
        for process in self.processes.values():
            process.kill()


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def is_watcher(pid: int) -> bool:
    return "slurmstepd" in Path(f"/proc/{pid}/cmdline").read_text()


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def steps_of(node: str) -> list[int]:
    """Jobs on a node, by the name that the batch script exports: their steps are no children of the daemon any more."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            if f"SLURMD_NODENAME={node}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


def main() -> None:
    out = Path(sys.argv[1])
    cluster = Cluster(out / "cluster")
    try:
        cluster.wait()
        print("two nodes are idle", flush=True)
        settings = ["model.dim=32", "train.eval_every=50", "train.save_every=5", "train.log_every=10"]
        small = ["batches.streams=8", "batches.length=32"]
        rows = [
            {"recipe": "lstm-tiny", "settings": [*settings, *small]},
            {"recipe": "gru-tiny", "settings": [*settings, *small]},
        ]
        values = {
            "name": "slurm", "text": {"built_in": True, "vocab_size": 500}, "budget": {"tokens": 250_000}, "seeds": 2,
            "rows": rows,
        }  # fmt: skip
        plan = build(PlanConfig, values, source="benchmarks/slurm.py")
        started = time.monotonic()
        compare(plan, out / "local", jobs=2, device="cpu")
        here = time.monotonic() - started
        done = threading.Event()

        def disturb() -> None:
            while not done.is_set():
                for run in (out / "slurm" / "runs").glob("*/seed-*"):
                    saved = len(list(run.glob("checkpoints/step-*/manifest.json")))
                    result = out / "slurm" / "results" / run.parent.name / f"{run.name}.json"
                    if saved and not result.exists() and steps_of("n2"):
                        lost = cluster.kill_node("n2")
                        print(
                            f"killed n2 with {len(lost)} processes, while {run.parent.name} was training",
                            flush=True,
                        )
                        return
                time.sleep(0.1)

        threading.Thread(target=disturb, daemon=True).start()
        started = time.monotonic()
        compare(plan, out / "slurm", device="cpu", where=Where("slurm", slurm=("time=30",)))
        there = time.monotonic() - started
        done.set()
        found = [json.loads((out / name / "comparison.json").read_text())["metrics"] for name in ("local", "slurm")]
        print(
            f"results equal: {found[0] == found[1]}; here {here:.0f} s, on Slurm {there:.0f} s with a node lost",
            flush=True,
        )
        sys.exit(found[0] != found[1])
    finally:
        cluster.close()


if __name__ == "__main__":
    main()

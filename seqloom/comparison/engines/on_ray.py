"""Jobs as tasks of a Ray cluster, which is found by RAY_ADDRESS, or started here where there is none.

A task runs the command of a job on some node. If the node is lost, Ray runs the task again elsewhere, and the job resumes from
its last checkpoint, in a folder that all nodes see.
"""

import contextlib
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from seqloom.comparison.engines import Polled, Task
from seqloom.errors import BusyError, ModelError, UsageError

CARRIED = ("PYTHONPATH", "ONEDNN_MAX_CPU_ISA", "TOKENIZERS_PARALLELISM")
PATIENCE = 90.0  # seconds for which the job of a lost node may still hold its folder


def run_on_a_node(call: list[str], log: str, environment: dict[str, str]) -> int:
    """In a worker of Ray. A task that is cancelled has its job save its state."""
    import os

    import ray

    environment = {**os.environ, **environment, "SEQLOOM_NODE": ray.get_runtime_context().get_node_id()[:12]}
    call = [sys.executable, *call[1:]]  # the Python of the node
    until = time.monotonic() + PATIENCE
    while True:
        with open(log, "ab") as output:
            process = subprocess.Popen(call, stdout=output, stderr=output, env=environment)
            try:
                code = process.wait()
            except BaseException:  # cancelled
                process.terminate()
                process.wait(25)
                raise
        if code != BusyError.exit_code or time.monotonic() > until:
            return code
        time.sleep(1.0)


def sees(folder: str, name: str) -> bool:
    return (Path(folder) / name).exists()


class RayEngine:
    here, restarts = False, False

    def __init__(self, most: int, cpus: int, gpus: float):
        try:
            import ray
        except ImportError:
            raise ModelError("--on ray needs Ray, which is not installed: pip install 'seqloom[ray]'") from None
        self.ray: Any = ray
        self.most, self.cpus, self.gpus = most, cpus, gpus

    def prepare(self, folder: Path) -> None:
        ray = self.ray
        if not ray.is_initialized():
            address = os.environ.get("RAY_ADDRESS")
            check_address(address)
            try:
                own = {} if address else {"include_dashboard": False}
                ray.init(address=address, log_to_driver=False, logging_level="ERROR", **own)
            except (ConnectionError, ValueError, RuntimeError) as error:
                said = " ".join(str(error).split())[:200]
                raise UsageError(f"--on ray: no cluster at RAY_ADDRESS={address}: {said}") from error
        nodes = [node for node in ray.nodes() if node["Alive"]]
        most = max((node["Resources"].get("CPU", 0.0) for node in nodes), default=0.0)
        cards = max((node["Resources"].get("GPU", 0.0) for node in nodes), default=0.0)
        if self.cpus > most or self.gpus > cards:
            raise UsageError(
                f"--on ray: a job wants {self.cpus} CPUs and {self.gpus:g} GPUs, and no node has more than {most:g} and "
                f"{cards:g}: lower --cpus or --gpus"
            )
        self.check_shared(folder, nodes)
        task = ray.remote(num_cpus=self.cpus, num_gpus=self.gpus, max_retries=-1, retry_exceptions=False)
        self.remote = task(run_on_a_node)

    def check_shared(self, folder: Path, nodes: list[dict[str, Any]]) -> None:
        """Every node must see what is written here."""
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        probe = folder / "logs" / f"probe-{os.getpid()}.log"
        probe.write_text("")
        try:
            remote = self.ray.remote(num_cpus=0)(sees)
            where = [NodeAffinitySchedulingStrategy(node["NodeID"], soft=False) for node in nodes]
            asked = [
                remote.options(scheduling_strategy=each).remote(str(folder / "logs"), probe.name) for each in where
            ]
            seen = self.ray.get(asked, timeout=120)
        finally:
            probe.unlink(missing_ok=True)
        blind = [node["NodeManagerAddress"] for node, fine in zip(nodes, seen, strict=True) if not fine]
        if blind:
            raise UsageError(
                f"--on ray: {folder} is not the same folder on {', '.join(blind)}: choose one that all nodes share"
            )

    def start(self, task: Task) -> "RayJob":
        environment = {name: value for name, value in task.environment.items() if name in CARRIED}
        environment["OMP_NUM_THREADS"] = str(self.cpus)
        return RayJob(self.ray, self.remote.options(name=task.name).remote(task.call, str(task.log), environment))


def check_address(address: str | None) -> None:
    """Raises UsageError where nobody answers: Ray itself would wait for minutes."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return
    try:
        socket.create_connection((host, int(port)), timeout=10).close()
    except OSError as error:
        raise UsageError(f"--on ray: no cluster at RAY_ADDRESS={address}: {error.strerror or error}") from error


class RayJob(Polled):
    def __init__(self, ray: Any, reference: Any):
        self.ray, self.reference = ray, reference
        self.code: int | None = None

    def poll(self) -> int | None:
        if self.code is None:
            ready, _ = self.ray.wait([self.reference], timeout=0)
            if ready:
                try:
                    self.code = int(self.ray.get(self.reference))
                except Exception:  # cancelled, or Ray gave it up: the log of the job says more
                    self.code = 1
        return self.code

    def terminate(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.cancel(self.reference)

    def kill(self) -> None:
        with contextlib.suppress(Exception):
            self.ray.cancel(self.reference, force=True)

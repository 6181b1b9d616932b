"""How torch's threads wait for each other; it must be decided before torch is loaded.

Between two operations OpenMP's threads spin: each keeps its core busy until the others are there. Beside any other process that
takes one of the cores, they spin for a thread that does not run, and training falls to a tenth of its speed. Threads that sleep
instead cost nothing measurable on an idle machine (docs/results, benchmarks/busy.py).
"""

from collections.abc import MutableMapping

PASSIVE = {"OMP_WAIT_POLICY": "passive", "GOMP_SPINCOUNT": "0"}


def wait_passively(environment: MutableMapping[str, str]) -> None:
    """Let threads sleep instead of spin, unless the user has set either variable."""
    if not any(name in environment for name in PASSIVE):
        environment.update(PASSIVE)

"""What must be decided before torch is loaded: how its threads wait for each other, and what Apple GPUs cannot compute.

Between two operations OpenMP's threads spin: each keeps its core busy until the others are there, about a millisecond long.
Beside any other process that takes one of the cores they spin for a thread that does not run, and training falls to a fraction
of its speed. Threads that sleep at once cost a third of it on an idle machine. So they spin shortly, as long as OpenMP itself
has them spin where it knows of more threads than cores, and then sleep (docs/results, benchmarks/busy.py).

Apple GPUs lack some operations; with FALLBACK torch computes those on the CPU instead of failing.
"""

from collections.abc import MutableMapping

CHOICES = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")  # by which a user may have decided it
SPINS = "1000"
FALLBACK = "PYTORCH_ENABLE_MPS_FALLBACK"


def wait_briefly(environment: MutableMapping[str, str]) -> None:
    """Let threads sleep after a short spin, unless the user has decided how they wait."""
    if not any(name in environment for name in CHOICES):
        environment["GOMP_SPINCOUNT"] = SPINS


def fall_back_to_cpu(environment: MutableMapping[str, str]) -> None:
    """Let the CPU compute what an Apple GPU cannot, unless the user has decided against it."""
    environment.setdefault(FALLBACK, "1")

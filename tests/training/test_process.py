"""How OpenMP's threads wait, as its library itself reports when it is loaded; and whether freed memory is kept."""

import os
import subprocess
import sys

import pytest

from seqloom.comparison.engines.here import LocalEngine
from seqloom.comparison.run import Jobs
from seqloom.training.process import ALLOCATORS, CHOICES, SPINS, wait_briefly


def reported(*call, **settings):
    """What libgomp prints about its settings while a command runs."""
    clean = {name: value for name, value in os.environ.items() if name not in CHOICES}
    environment = clean | {"OMP_DISPLAY_ENV": "VERBOSE", "OMP_NUM_THREADS": "2"} | settings
    done = subprocess.run([sys.executable, *call], env=environment, capture_output=True, text=True)
    lines = [line.strip().removeprefix("[host] ") for line in done.stderr.splitlines()]
    return {name: value.strip("' ") for name, _, value in (line.partition(" = ") for line in lines)}


def test_commands_let_threads_sleep_after_a_short_spin():
    assert reported("-m", "seqloom", "doctor")["GOMP_SPINCOUNT"] == SPINS


def test_what_the_user_has_set_stays():
    found = reported("-m", "seqloom", "doctor", OMP_WAIT_POLICY="active")
    assert found["OMP_WAIT_POLICY"].upper() == "ACTIVE"
    assert found["GOMP_SPINCOUNT"] != SPINS


@pytest.mark.parametrize("setting", [{}, {"OMP_WAIT_POLICY": "active"}, {"GOMP_SPINCOUNT": "7"}])
def test_jobs_of_a_comparison_inherit_it(tmp_path, monkeypatch, setting):
    for name in CHOICES:
        monkeypatch.delenv(name, raising=False)
    for name, value in setting.items():
        monkeypatch.setenv(name, value)
    environment = Jobs(tmp_path, LocalEngine(2)).environment
    chosen = {name: environment[name] for name in CHOICES if name in environment}
    assert chosen == (setting or {"GOMP_SPINCOUNT": SPINS})


def test_nothing_else_is_touched():
    environment = {"PATH": "here"}
    wait_briefly(environment)
    assert environment == {"PATH": "here", "GOMP_SPINCOUNT": SPINS}


FAULTS = """
import resource
import seqloom
if {prepared}:
    seqloom.load
for _ in range(800):
    b"x" * (1 << 20)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""


def page_faults(prepared: bool, **settings):
    """How many pages a process gets anew that asks for a megabyte 800 times (less than a huge page, which would come at once)."""
    clean = {name: value for name, value in os.environ.items() if name not in ALLOCATORS}
    call = [sys.executable, "-c", FAULTS.format(prepared=prepared)]
    return int(subprocess.run(call, env=clean | settings, capture_output=True, text=True, check=True).stdout)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="mallopt is glibc's")
def test_freed_memory_is_kept_from_the_first_use_of_the_library():
    without = page_faults(False, MALLOC_MMAP_THRESHOLD_="131072")
    assert without > 100_000  # the planted fault: 256 pages each time
    assert page_faults(True) < 0.5 * without
    assert page_faults(True, MALLOC_MMAP_THRESHOLD_="131072") > 100_000  # what the user has set stays

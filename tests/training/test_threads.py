"""How OpenMP's threads wait, as its library itself reports when it is loaded."""

import os
import subprocess
import sys

import pytest

from seqloom.comparison.engines.here import LocalEngine
from seqloom.comparison.run import Jobs
from seqloom.training.threads import CHOICES, SPINS, wait_briefly


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

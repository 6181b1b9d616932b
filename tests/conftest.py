import contextlib
import os
import random
import zlib

# some CPUs advertise AMX that they cannot use: bf16 would die with SIGILL
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# one thread a test process: they run side by side, and threads that wait for each other make tiny models slow
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import pytest
import torch

# Chance is the same in every run and in any order of the tests, so that only a change of the code can break them.
# With another number the same tests look elsewhere: SEQLOOM_TEST_SEED=1 make test
SEED = os.environ.get("SEQLOOM_TEST_SEED", "")
with contextlib.suppress(ModuleNotFoundError):  # a machine that runs the tests of its GPU alone may lack it
    from hypothesis import HealthCheck, settings

    slow = [HealthCheck.too_slow]  # how fast this machine is now breaks no test either
    settings.register_profile("seqloom", derandomize=not SEED, deadline=None, suppress_health_check=slow)
    settings.load_profile("seqloom")


def start_chance(name):
    number = zlib.crc32(f"{SEED} {name}".encode())
    random.seed(number)
    np.random.seed(number)
    torch.manual_seed(number)


@pytest.hookimpl(tryfirst=True)
def pytest_fixture_setup(fixturedef, request):
    start_chance(f"{request.node.nodeid} {fixturedef.argname}")


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item):
    start_chance(item.nodeid)


def pytest_collection_modifyitems(items):
    """The longest comes first: at the end the other process would wait for it."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)

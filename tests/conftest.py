import os

# some CPUs advertise AMX that they cannot use: bf16 would die with SIGILL
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
# one thread a test process: they run side by side, and threads that wait for each other make tiny models slow
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items):
    """The longest comes first: at the end the other process would wait for it."""
    items.sort(key=lambda item: "test_readme" not in item.nodeid)

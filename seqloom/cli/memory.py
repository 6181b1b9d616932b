"""Memory of a process that computes with ever new shapes for hours: what it needs stays what one batch needs."""

import ctypes
import os
import sys

MMAP_THRESHOLD = -3  # of mallopt, in glibc's malloc.h
LARGE = 1 << 20  # bytes


def keep_memory_flat() -> None:
    """Has large blocks returned to the system when they are freed, and few compiled kernels kept. Called before torch is loaded.

    By default glibc raises the size from which blocks are returned, and blocks of many sizes then leave gaps that are never used
    again; oneDNN keeps what it compiled for the last 1,024 shapes. Together that is hundreds of MB.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", "64")
    if sys.platform == "linux":
        mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # other C libraries have none
        if mallopt is not None:
            mallopt(MMAP_THRESHOLD, LARGE)

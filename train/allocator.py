"""Memory that an update frees and needs again at once."""

from __future__ import annotations

import ctypes

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # malloc.h of glibc


def keep_freed_memory() -> None:
    """Have the C library keep what is freed, in this process, rather than give it back to the system.

    Faulting the same pages in again takes an eighth of an update (bench/ppo_update.py). Does nothing without
    glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_THRESHOLD, 2**25)  # the largest that it takes
        mallopt(M_TRIM_THRESHOLD, 2**30)

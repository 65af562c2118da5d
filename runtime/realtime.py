"""All that is asked of the operating system to keep the rate: best effort, and each result told."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol

MCL_CURRENT, MCL_FUTURE = 1, 2  # sys/mman.h
SWITCH_INTERVAL_S = 0.0005
"""How long another Python thread may keep the interpreter from the control loop."""


class Clock(Protocol):
    """A monotonic clock."""

    def now_ns(self) -> int:
        """The time."""
        ...

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at the deadline or later; at once when it has passed."""
        ...


class MonotonicClock:
    """The system's monotonic clock."""

    def now_ns(self) -> int:
        """The time."""
        return time.monotonic_ns()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at the deadline or later; at once when it has passed."""
        while (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns * 1e-9)


@contextmanager
def tuned(fifo_priority: int | None, cpu: int | None) -> Iterator[dict[str, str]]:
    """Tune this thread and process for a control loop, and undo it afterwards.

    Args:
        fifo_priority: 1 to 99 for SCHED_FIFO; needs CAP_SYS_NICE or an rtprio limit.
        cpu: the one core for this thread to run on.

    Yields:
        What each measure came to: `ok`, `not asked for`, or the error.
    """
    results: dict[str, str] = {}
    scheduler, parameters = os.sched_getscheduler(0), os.sched_getparam(0)
    affinity, interval, collecting = os.sched_getaffinity(0), sys.getswitchinterval(), gc.isenabled()
    libc = ctypes.CDLL(None, use_errno=True)
    locked = False
    try:
        results["SCHED_FIFO"] = _attempt(_set_fifo, fifo_priority)
        results["affinity"] = _attempt(_set_affinity, cpu)
        locked = libc.mlockall(MCL_CURRENT | MCL_FUTURE) == 0
        results["mlockall"] = "ok" if locked else os.strerror(ctypes.get_errno())
        # A collection that walks the whole heap takes longer than a tick may.
        gc.collect()
        gc.freeze()
        gc.disable()
        results["gc"] = "ok"
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        results["switch interval"] = "ok"
        yield results
    finally:
        sys.setswitchinterval(interval)
        gc.unfreeze()
        if collecting:
            gc.enable()
        if locked:
            libc.munlockall()
        os.sched_setaffinity(0, affinity)
        os.sched_setscheduler(0, scheduler, parameters)


def _set_fifo(priority: int) -> None:
    os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(priority))


def _set_affinity(cpu: int) -> None:
    os.sched_setaffinity(0, {cpu})


def _attempt(measure: Callable[[int], None], value: int | None) -> str:
    if value is None:
        return "not asked for"
    try:
        measure(value)
    except (OSError, ValueError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return "ok"

"""All that is asked of the operating system to keep the rate: best effort, and each result told."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import NamedTuple, Protocol

MCL_CURRENT, MCL_FUTURE = 1, 2  # sys/mman.h
SWITCH_INTERVAL_S = 0.0005
"""How long another Python thread may keep the interpreter from the control loop."""


class Clock(Protocol):
    """A monotonic clock."""

    def now_ns(self) -> int:
        """The time."""

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at the deadline or later; at once when it has passed."""


class MonotonicClock:
    """The system's monotonic clock."""

    def now_ns(self) -> int:
        """The time."""
        return time.monotonic_ns()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at the deadline or later; at once when it has passed."""
        # Once: where the clock has gone back meanwhile, its caller must hear of that, and not sleep on.
        if (left_ns := deadline_ns - time.monotonic_ns()) > 0:
            time.sleep(left_ns * 1e-9)


class VirtualClock:
    """A clock that jumps to every deadline: a loop on it runs as fast as it can, and is never late."""

    _now_ns: int = 0

    def now_ns(self) -> int:
        """The time."""
        return self._now_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Have it be that time."""
        self._now_ns = max(self._now_ns, deadline_ns)


class SteadyClock:
    """Another clock, without its leaps back: where it goes back, this one stands still, and says so."""

    lost_ns: int = 0
    """How far it has gone back, all in all."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._last_ns = clock.now_ns()

    def now_ns(self) -> int:
        """The time."""
        now_ns = self._clock.now_ns() + self.lost_ns
        self.lost_ns += max(self._last_ns - now_ns, 0)
        self._last_ns = max(self._last_ns, now_ns)
        return self._last_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at the deadline or later."""
        if self.now_ns() < deadline_ns:  # which finds out whether it has gone back since
            self._clock.sleep_until_ns(deadline_ns - self.lost_ns)
        self._last_ns = max(self._last_ns, deadline_ns)


class Tuning(NamedTuple):
    """What has been asked of the operating system for a control loop."""

    results: dict[str, str]
    """What each measure came to: `ok`, `not asked for`, or the error."""
    adopt: Callable[[int | None], None]
    """Tune a thread that works for this one, by its id and once: a priority less, on any of the cores."""


@contextmanager
def tuned(fifo_priority: int | None, cpu: int | None) -> Iterator[Tuning]:
    """Tune this thread and process for a control loop, and undo it afterwards.

    Args:
        fifo_priority: 1 to 99 for SCHED_FIFO, and cores that do not sleep; needs CAP_SYS_NICE or an rtprio
            limit, and the right to write /dev/cpu_dma_latency.
        cpu: the one core for this thread to run on.
    """
    results: dict[str, str] = {}
    libc = ctypes.CDLL(None, use_errno=True)
    before = os.sched_getscheduler(0), os.sched_getparam(0), os.sched_getaffinity(0)
    adopted: set[int | None] = {None}
    with ExitStack() as undo:

        def adopt(thread: int | None) -> None:
            if thread is None or thread in adopted:
                return
            adopted.add(thread)
            undo.callback(_restore, thread, *before)
            _restore(thread, *before)
            if fifo_priority is not None:
                results["SCHED_FIFO of inference"] = _attempt(_set_fifo, fifo_priority - 1, thread)

        undo.callback(_restore, 0, *before)
        undo.callback(sys.setswitchinterval, sys.getswitchinterval())
        results["SCHED_FIFO"] = _attempt(_set_fifo, fifo_priority)
        results["affinity"] = _attempt(lambda core: os.sched_setaffinity(0, {core}), cpu)
        results["idle states"] = _attempt(lambda _: _stay_awake(undo), fifo_priority)
        locked = libc.mlockall(MCL_CURRENT | MCL_FUTURE) == 0
        results["mlockall"] = "ok" if locked else os.strerror(ctypes.get_errno())
        if locked:
            undo.callback(libc.munlockall)
        if gc.isenabled():
            undo.callback(gc.enable)
        # A collection that walks the whole heap takes longer than a tick may.
        gc.collect()
        undo.callback(gc.unfreeze)
        gc.freeze()
        gc.disable()
        sys.setswitchinterval(SWITCH_INTERVAL_S)
        results |= {"gc": "ok", "switch interval": "ok"}
        yield Tuning(results, adopt)


def _set_fifo(priority: int, thread: int = 0) -> None:
    os.sched_setscheduler(thread, os.SCHED_FIFO, os.sched_param(priority))


def _stay_awake(undo: ExitStack) -> None:
    """Keep the cores from sleeping, from which they wake late (the kernel's PM QoS, as `cyclictest` does)."""
    file = os.open("/dev/cpu_dma_latency", os.O_WRONLY)
    undo.callback(os.close, file)
    os.write(file, bytes(4))  # us that waking up may take; in force until it is closed


def _restore(thread: int, policy: int, param: os.sched_param, cores: set[int]) -> None:
    # A helper may have ended; who has lost a priority may not take it again.
    with suppress(OSError):
        os.sched_setscheduler(thread, policy, param)
    with suppress(OSError):
        os.sched_setaffinity(thread, cores)


def _attempt(measure: Callable[..., None], value: int | None, *more: int) -> str:
    if value is None:
        return "not asked for"
    try:
        measure(value, *more)
    except (OSError, ValueError, OverflowError) as error:
        return str(getattr(error, "strerror", None) or error)
    return "ok"

"""What a machine grants a control loop, how late it wakes one up, and what to change."""

from __future__ import annotations

import os
import platform
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import onnxruntime

from andante.runtime.histogram import Histogram, Quantiles
from andante.runtime.realtime import MonotonicClock, tuned

LARGEST_SHARE = 0.05
"""Of the period: a 99th percentile of the jitter above it is worth a change of the machine."""
STEADY_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter")
"""Clock sources that are read without a call into the kernel's drivers."""
LIMITS = "/etc/security/limits.d/andante.conf"
CPUS = Path("/sys/devices/system/cpu")
CLOCK_SOURCE = Path("/sys/devices/system/clocksource/clocksource0/current_clocksource")
BUSY = "import os\nparent = os.getppid()\nwhile os.getppid() == parent: sum(range(100000))"


@dataclass(frozen=True)
class Finding:
    """One fact about the machine."""

    name: str
    found: str
    advice: str | None = None
    """What to change; null where nothing needs to be."""

    def __str__(self) -> str:
        advice = "" if self.advice is None else f"\n  change: {self.advice}"
        return f"{self.name:<18}{self.found}{advice}"


def inspect_machine(fifo_priority: int, cpu: int | None = None) -> list[Finding]:
    """What the kernel and its administrator grant, asked by trying.

    Args:
        fifo_priority: priority to ask for, 1 to 99.
        cpu: core to ask for.
    """
    with tuned(fifo_priority, cpu) as tuning:
        granted = tuning.results
    return [
        _kernel(),
        _right("SCHED_FIFO", granted, f"'* - rtprio {fifo_priority}' in {LIMITS}, then log in again"),
        _right("mlockall", granted, f"'* - memlock unlimited' in {LIMITS}, then log in again"),
        _right("idle states", granted, "let this user write /dev/cpu_dma_latency (a udev rule)"),
        _right("affinity", granted, "give --cpu one of the cores below"),
        Finding("memlock limit", _bytes(resource.getrlimit(resource.RLIMIT_MEMLOCK)[0])),
        _governor(),
        _cores(),
        _clock_source(),
        Finding("onnxruntime", f"{onnxruntime.__version__}, one thread per policy, no spinning"),
    ]


def measure_jitter(
    rate: float, seconds: float, fifo_priority: int | None = None, cpu: int | None = None
) -> Quantiles:
    """How late a loop at `rate` Hz wakes up, with the tuning that is granted."""
    clock, lateness = MonotonicClock(), Histogram()
    with tuned(fifo_priority, cpu):
        start_ns = clock.now_ns()
        for tick in range(1, max(2, round(rate * seconds))):
            deadline_ns = start_ns + round(tick * 1e9 / rate)
            clock.sleep_until_ns(deadline_ns)
            lateness.add(clock.now_ns() - deadline_ns)
    return lateness.quantiles()


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep so many cores busy with processes of our own, which end with this one at the latest."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
        for process in busy:
            process.wait()


def judge_jitter(name: str, jitter: Quantiles, rate: float, fifo: bool) -> Finding:
    """Whether a loop at `rate` Hz can live with it; `fifo`: it was measured under SCHED_FIFO."""
    limit_us = LARGEST_SHARE * 1e6 / rate
    advice = None
    if jitter.p99 > limit_us:
        advice = (
            f"p99 is above {limit_us:.0f} us, {LARGEST_SHARE:.0%} of the period: "
            f"{'' if fifo else 'see to it that SCHED_FIFO is granted, '}"
            "isolate a core (isolcpus=N on the kernel's command line) for --cpu N, or use PREEMPT_RT"
        )
    return Finding(name, f"{jitter} at {rate:g} Hz", advice)


def _kernel() -> Finding:
    realtime = "PREEMPT_RT" in platform.version() or _read(Path("/sys/kernel/realtime")) == "1"
    advice = None if realtime else "a kernel with PREEMPT_RT bounds the longest wake-up"
    return Finding("kernel", f"{platform.release()}{' with' if realtime else ', not'} PREEMPT_RT", advice)


def _right(name: str, granted: dict[str, str], advice: str) -> Finding:
    return Finding(name, granted[name], None if granted[name] in ("ok", "not asked for") else advice)


def _bytes(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else f"{limit >> 10} KiB"


def _governor() -> Finding:
    found = {_read(path) for path in CPUS.glob("cpu[0-9]*/cpufreq/scaling_governor")}
    advice = "cpupower frequency-set --governor performance" if found - {"performance"} else None
    return Finding(
        "governor", ", ".join(sorted(found)) or "none: the clock rate is not this system's", advice
    )


def _cores() -> Finding:
    allowed = len(os.sched_getaffinity(0))
    found = f"{allowed} of {os.cpu_count()}, isolated: {_read(CPUS / 'isolated') or 'none'}"
    return Finding(
        "cores", found, "allow a second one, for all that is not the loop" if allowed < 2 else None
    )


def _clock_source() -> Finding:
    found = _read(CLOCK_SOURCE) or "unknown"
    advice = None if found in STEADY_CLOCKS else f"one of {', '.join(STEADY_CLOCKS)} is read faster"
    return Finding("clock source", found, advice)


def _read(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""

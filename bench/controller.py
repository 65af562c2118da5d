"""Overhead of `Controller.tick` without inference: 29 joints, every kind of source, chunks of 6 at 2 ticks.

Prints microseconds per tick, for a policy that decides every second tick, and what is left in memory.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from humanoid import humanoid_policy, humanoid_profile
from rig import Rig

from andante.runtime.states import State

TICKS = 20_000
TARGETS_US = {"p50": 40.0, "p99": 80.0}
ROUNDS = 5


def running(folder: Path) -> Rig:
    """A rig whose policy runs and whose robot moves."""
    rig = Rig(humanoid_policy(folder), humanoid_profile(), horizon=2)
    rig.operator.command[:] = [0.5, 0.0, 0.2]
    rig.operator.heartbeat_ns = 0

    beat(rig)
    rig.go(State.RUN)
    return rig


def beat(rig: Rig) -> None:
    """Have the operator's devices speak at every tick, and the sensors be alive."""
    tick, random = rig.tick, np.random.default_rng(0)
    noise = random.normal(size=(64, len(rig.q))) * 1e-3
    stand = rig.controller.profile.actuated_values(rig.controller.profile.keyframes["stand"])

    def alive(*args, **options):
        now_ns = rig.next * rig.controller.contract.control_period_ns
        rig.operator.heartbeat_ns = rig.operator.command_ns = now_ns
        rig.q[:] = stand + noise[rig.next % 64]
        rig.dq[:] = noise[(rig.next + 7) % 64]
        # Upside down, as the IMU is mounted.
        rig.sample.values["orientation"][:] = [0.0, 1.0, 0.0, 0.0]
        rig.sample.values["orientation"][0] = 1e-6 * (rig.next % 64)
        rig.sample.values["angular_velocity"][:] = noise[rig.next % 64, :3]
        rig.sample.values["linear_acceleration"][:] = noise[rig.next % 64, 3:6]
        return tick(*args, **options)

    rig.tick = alive


def measure(rig: Rig) -> np.ndarray:
    """Microseconds of every tick, without what inference took."""
    controller, sample, worker = rig.controller, rig.sample, rig.controller.worker
    durations = np.zeros(TICKS)
    noise = np.random.default_rng(1).normal(size=(64, len(rig.q))) * 1e-3
    stand = rig.q.copy()
    period_ns = controller.contract.control_period_ns
    for i in range(TICKS):
        sample.now_ns = rig.next * period_ns
        for signal in sample.received_ns:
            sample.received_ns[signal] = sample.source_ns[signal] = sample.now_ns
        sample.operator.heartbeat_ns = sample.operator.command_ns = sample.now_ns
        rig.q[:] = stand + noise[i % 64]
        rig.dq[:] = noise[(i + 7) % 64]
        sample.values["orientation"][0] = 1e-6 * (i % 64)
        sample.values["angular_velocity"][:] = noise[i % 64, :3]
        sample.values["linear_acceleration"][:] = noise[i % 64, 3:6]
        inferences = worker.inferences
        start = time.perf_counter_ns()
        controller.tick(rig.next, sample)
        durations[i] = time.perf_counter_ns() - start
        if worker.inferences != inferences:
            durations[i] -= worker.inference_ns
        rig.next += 1
    assert controller.state is State.RUN, controller.fault
    return durations / 1e3


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rig = running(Path(folder))
        measure(rig)
        rounds = [measure(rig) for _ in range(ROUNDS)]
        quantiles = {
            name: float(np.median([np.quantile(r, q) for r in rounds]))
            for name, q in (("p50", 0.5), ("p99", 0.99))
        }
        tracemalloc.start()
        measure(rig)
        before = tracemalloc.take_snapshot()
        measure(rig)
        after = tracemalloc.take_snapshot()
        tracemalloc.stop()
        own = [tracemalloc.Filter(True, "*/runtime/*")]
        grown = sum(
            d.size_diff for d in after.filter_traces(own).compare_to(before.filter_traces(own), "filename")
        )
        rig.controller.deactivate()
    for name, value in quantiles.items():
        print(f"{name} {value:.1f} us (target {TARGETS_US[name]:.0f})")
    print(f"grown in {TICKS} ticks: {grown} bytes")
    holds = all(value <= TARGETS_US[name] for name, value in quantiles.items()) and grown < 1000
    value = {name: round(value, 1) for name, value in quantiles.items()} | {"grown_bytes": grown}
    print(
        json.dumps({"name": "controller overhead, us", "value": value, "target": TARGETS_US, "holds": holds})
    )


if __name__ == "__main__":
    main()

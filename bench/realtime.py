"""The real-time loop of a GRU-128 chunk policy on the quadruped's profile, no robot: does it keep time?

    python bench/realtime.py [--seconds 60] [--fifo-priority 50] [--rows "50 Hz" ...]

| row | loop | decisions | machine | demanded |
|---|---|---|---|---|
| 50 Hz | 50 Hz | 10 Hz, within the tick | idle | 0 missed, jitter p99 0.2 ms |
| 200 Hz | 200 Hz | 40 Hz, within the tick | idle | 0 missed, jitter p99 0.2 ms |
| 50 Hz loaded | 50 Hz | 10 Hz, within the tick | every core busy | 0 missed |
| 1 kHz | 1 kHz | 20 Hz, asynchronous | idle | 0 missed |

With SCHED_FIFO where it is granted. The last line is JSON: the rows' missed deadlines and jitter.
"""

from __future__ import annotations

import argparse
import json
import os
from contextlib import nullcontext
from typing import NamedTuple

from common import gru_contract, gru_policy

from andante.doctor.machine import load
from andante.doctor.null_robot import NullRobot
from andante.runtime.controller import Controller
from andante.runtime.loop import LoopReport, RealtimeLoop
from andante.runtime.profile import load_profile
from andante.runtime.worker import AsynchronousWorker

JITTER_US = 200.0


class Row(NamedTuple):
    rate: int
    """Hz."""
    horizon: int
    """Ticks between two decisions."""
    delays: tuple[int, ...] = (0,)
    """Ticks that an asynchronous decision may take."""
    loaded: bool = False
    jitter_us: float | None = None
    """Largest p99."""


ROWS = {
    "50 Hz": Row(50, 5, jitter_us=JITTER_US),
    "200 Hz": Row(200, 5, jitter_us=JITTER_US),
    "50 Hz loaded": Row(50, 5, loaded=True),
    "1 kHz": Row(1000, 50, delays=tuple(range(2, 11))),
}


def measure(row: Row, seconds: float, fifo_priority: int) -> LoopReport:
    contract = gru_contract(
        horizon=row.horizon,
        delays=row.delays,
        chunk_size=row.horizon + row.delays[-1],
        control_period_ns=10**9 // row.rate,
    )
    policy, profile = gru_policy(contract), load_profile("quadruped")
    worker = AsynchronousWorker(policy) if row.delays[-1] else None
    controller = Controller(policy, profile, worker=worker)
    loop = RealtimeLoop(
        controller, NullRobot(contract, profile), fifo_priority, on_ready=lambda: loop.confirm()
    )
    try:
        with load(len(os.sched_getaffinity(0))) if row.loaded else nullcontext():
            return loop.run(seconds)
    finally:
        controller.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--fifo-priority", type=int, default=50)
    parser.add_argument("--rows", nargs="+", choices=ROWS, default=list(ROWS))
    options = parser.parse_args()
    values, targets, holds = {}, {}, True
    for name in options.rows:
        row = ROWS[name]
        report = measure(row, options.seconds, options.fifo_priority)
        print(f"{name}, {options.seconds:g} s", str(report), sep="\n", end="\n\n")
        values[name] = {"missed": report.missed, "jitter_p99_us": report.jitter_us.p99}
        targets[name] = {"missed": 0} | ({} if row.jitter_us is None else {"jitter_p99_us": row.jitter_us})
        holds &= report.decisions > 0 and not report.faults and report.state == "disabled"
        holds &= all(values[name][key] <= target for key, target in targets[name].items())
    print(json.dumps({"name": "real-time loop", "value": values, "target": targets, "holds": holds}))


if __name__ == "__main__":
    main()

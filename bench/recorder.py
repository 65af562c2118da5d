"""What recording costs the control thread: 29 joints, a loop of about 2 kHz.

Ticks with and without a recorder take turns, in blocks; prints the microseconds that `Recorder.add` takes
while ticks are kept in the ring or written to a file, and how much longer a whole tick is (with what the
writing thread takes from it).
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
from controller import running
from rig import Rig

from andante.runtime.recorder.recorder import Recorder
from andante.runtime.states import State

TARGET_US = 25.0
ROUNDS, BLOCK = 7, 400
PACE_S = 0.0005
"""Between ticks: a loop of about 2 kHz, in which the writing thread keeps up."""


def block(rig: Rig, recorder: Recorder | None) -> tuple[np.ndarray, np.ndarray]:
    """Microseconds of every tick, and of adding it."""
    ticks, adds = np.zeros(BLOCK), np.zeros(BLOCK)
    for i in range(BLOCK):
        time.sleep(PACE_S)
        start = time.perf_counter_ns()
        command = rig.tick()
        done = time.perf_counter_ns()
        if recorder is not None:
            recorder.add(rig.next - 1, rig.sample, command)
        adds[i] = time.perf_counter_ns() - done
        ticks[i] = time.perf_counter_ns() - start
    assert rig.state is State.RUN, rig.controller.fault
    return ticks / 1e3, adds / 1e3


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = arguments.parse_args().rounds
    values: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        rig = running(Path(folder))
        block(rig, None)
        for name, path in (("ring", None), ("file", Path(folder) / "rec.mcap")):
            recorder = Recorder(rig.controller, path)
            block(rig, recorder)
            found = [(block(rig, None), block(rig, recorder)) for _ in range(rounds)]
            recorder.close()
            assert recorder.lost == 0, recorder.told
            for quantile in (0.5, 0.99):
                adds = [np.quantile(with_recorder[1], quantile) for _, with_recorder in found]
                ratios = [
                    np.quantile(with_recorder[0], quantile) / np.quantile(without[0], quantile)
                    for without, with_recorder in found
                ]
                key = f"{name} p{100 * quantile:.0f}"
                values[f"{key} us"] = round(float(np.median(adds)), 1)
                values[f"{key} tick ratio"] = round(float(np.median(ratios)), 2)
    for name, value in values.items():
        print(f"{name:<22} {value}")
    holds = values["ring p50 us"] <= TARGET_US and values["file p50 us"] <= TARGET_US
    print(
        json.dumps(
            {
                "name": "recording, us per tick",
                "value": values,
                "target": {"p50 us": TARGET_US},
                "holds": holds,
            }
        )
    )


if __name__ == "__main__":
    main()

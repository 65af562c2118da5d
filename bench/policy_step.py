"""One decision as the controller makes it, against a plain `session.run` of the same file.

A GRU of 128 units that reads the quadruped's 12 joints and IMU (48 numbers) and emits chunks of 8 x 12. Ours:
gather sources, infer, non-finite guard, commit, chunk copy. Theirs: build the inputs from the same arrays,
`session.run`, carry the state in Python. Interleaved; prints the median of the rounds' ratios of p50.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
from common import HIDDEN, gru_contract, gru_graph

from andante.runtime.command import Sample
from andante.runtime.contract import Contract
from andante.runtime.measurement import Measurement
from andante.runtime.planner import Counters, Execution, Planner
from andante.runtime.policy import PolicySession
from andante.runtime.profile import load_profile
from andante.runtime.worker import Worker

CHUNK = 8
ROUNDS, STEPS = 11, 2000
TARGET = 0.90


def plain(path: Path, terms: Contract) -> Callable[[], float]:
    """A step with nothing but onnxruntime's documented `run`, single-threaded like ours."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    inputs = {source.name: np.zeros((1, *source.shape), np.float32) for source in terms.sources}
    inputs["h_in"] = np.zeros((1, HIDDEN), np.float32)

    def step() -> float:
        start = time.perf_counter_ns()
        _, inputs["h_in"] = session.run(["actions", "h_out"], inputs)
        return time.perf_counter_ns() - start

    return step


def ours(path: Path, terms: Contract) -> Callable[[], float]:
    """A decision through the controller's own planner: from a row of measurements to this tick's action."""
    profile = load_profile("quadruped")
    policy = PolicySession(path.read_bytes(), terms, "", path)
    measured = Measurement(terms, profile)
    planner = Planner(policy, profile, measured, Execution.resolve(terms), Worker(policy))
    components = sum(len(source.components) for source in terms.sources)
    sample = Sample.allocate(profile.signals, len(profile.joints), components)
    sample.values["orientation"][0] = 1.0
    for signal in sample.received_ns:
        sample.received_ns[signal] = 0
    measured.update(sample)
    counters = Counters()
    planner.act(0, 0, sample, counters)
    tick = 0

    def step() -> float:
        nonlocal tick
        tick += 1
        start = time.perf_counter_ns()
        planner.ask(tick, True)
        planner.receive(tick, True, counters)
        return time.perf_counter_ns() - start

    return step


def main() -> None:
    terms = gru_contract(chunk_size=CHUNK)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "gru.onnx"
        path.write_bytes(gru_graph(terms).SerializeToString())
        steps = {"plain": plain(path, terms), "ours": ours(path, terms)}
        times: dict[str, list[float]] = {name: [] for name in steps}
        for _ in range(ROUNDS):
            for name, step in steps.items():
                times[name].append(float(np.median([step() for _ in range(STEPS)])) / 1e3)
    ratios = np.array(times["ours"][1:]) / np.array(times["plain"][1:])
    for name, values in times.items():
        print(f"{name}: p50 {np.median(values[1:]):.1f} us")
    value = round(float(np.median(ratios)), 3)
    print(
        json.dumps(
            {"name": "policy step / session.run", "value": value, "target": TARGET, "holds": value <= TARGET}
        )
    )


if __name__ == "__main__":
    main()

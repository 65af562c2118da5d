"""HalfCheetah-v5: env steps/s of the batched task against EnvPool (github.com/sail-sg/envpool), same threads.

Environment only: random actions made beforehand, the same for all, no policy. Each side gives observations,
rewards and ends of every world and tick, and restarts worlds at the time limit. Each runs in two ways:
EnvPool with all worlds in every call, and asynchronously, a call returning as soon as half of them are
through; ours with 1 tick per call, as EnvPool, and with 8, for policies that decide so often. The figures
compare with the better of EnvPool's ways, and the target is for 1 tick; the other ratios are printed. All
take turns, at least five times each; ratios are medians of those within a turn, and the last line is JSON.

EnvPool is no part of any extra; `pip install envpool` (it has wheels for Python 3.11 and later).

    python bench/half_cheetah.py [--worlds 256] [--threads 2] [--turns 7]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import envpool
import numpy as np
import torch

from andante.sim import make

TASK = "HalfCheetah-v5"
TARGET = 1.3
CHUNK = 8
TICKS = 400
"""Of every world, in one measurement; divisible by `CHUNK`."""


def envpool_sync(worlds: int, threads: int, actions: np.ndarray) -> Callable[[], None]:
    env = envpool.make(TASK, env_type="gymnasium", num_envs=worlds, num_threads=threads)
    env.reset()

    def run() -> None:
        for action in actions:
            env.step(action)

    return run


def envpool_async(worlds: int, threads: int, actions: np.ndarray) -> Callable[[], None]:
    half = worlds // 2
    env = envpool.make(TASK, env_type="gymnasium", num_envs=worlds, batch_size=half, num_threads=threads)
    env.async_reset()

    def run() -> None:
        for action in actions:
            for part in (action[:half], action[half:]):
                env.send(part, env.recv()[-1]["env_id"])

    return run


def andante(n: int, worlds: int, threads: int, actions: np.ndarray) -> Callable[[], None]:
    env = make(TASK, worlds, threads=threads)
    env.reset()
    calls = torch.from_numpy(actions).float().transpose(0, 1).split(n, dim=1)

    def run() -> None:
        for call in calls:
            env.step(call)

    return run


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--worlds", type=int, default=256)
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    torch.set_num_threads(1)
    actions = np.random.default_rng(0).uniform(-1, 1, (TICKS, options.worlds, 6))
    shared = (options.worlds, options.threads, actions)
    sides = {
        "EnvPool, sync": envpool_sync(*shared),
        "EnvPool, async": envpool_async(*shared),
        "andante, n=1": andante(1, *shared),
        f"andante, n={CHUNK}": andante(CHUNK, *shared),
    }
    turns: list[dict[str, float]] = []
    for turn in range(options.turns + 1):
        rates = {}
        for name in sides if turn % 2 else reversed(sides):
            start = time.perf_counter()
            sides[name]()
            rates[name] = TICKS * options.worlds / (time.perf_counter() - start)
        print(
            "  ".join(f"{name} {rates[name] / 1e3:.1f}k/s" for name in sides)
            + ("" if turn else "  (warm-up)")
        )
        if turn:
            turns.append(rates)
    for rates in turns:
        rates["EnvPool, better"] = max(rates["EnvPool, sync"], rates["EnvPool, async"])
    found = {}
    for ours in ("andante, n=1", f"andante, n={CHUNK}"):
        for theirs in ("EnvPool, sync", "EnvPool, async", "EnvPool, better"):
            ratios = [rates[ours] / rates[theirs] for rates in turns]
            low, value, high = min(ratios), statistics.median(ratios), max(ratios)
            print(f"{ours} / {theirs}: {value:.2f} ({low:.2f} to {high:.2f})")
        found[ours.removeprefix("andante, ")] = round(value, 3)
    name = f"{TASK} env steps/s against EnvPool's better way"
    print(json.dumps({"name": name, "value": found, "target": TARGET, "holds": found["n=1"] >= TARGET}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

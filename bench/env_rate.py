"""Physics steps/s of a task's full environment against raw `mujoco.rollout` of the same model and controls.

Both sides run interleaved at 1024 worlds, for one tick a call and for five. Then: time per world from 256 to
4096 worlds, and the peak memory of a process with 4096. Torch has one thread: more of them wait busily, and
take time from the engine's.

    python bench/env_rate.py [TASK] [--repeats 7]
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable

import mujoco
import mujoco.rollout
import numpy as np
import torch

from andante.sim import make
from andante.sim.env import Env
from andante.sim.spec.randomization import Randomization
from andante.train.pipeline import ActionDecoder

LEAST = {1: 0.85, 5: 0.92}
"""Rate of the environment over that of the raw rollout, by ticks per call."""
FLAT = 0.10
MEMORY_GB = 2.0
WORLDS = 1024
SIZES = (256, 1024, 4096)


def random_actions(env: Env, n: int, calls: int) -> list[torch.Tensor]:
    """Near the middle, so that a good part of the worlds stays on its feet."""
    decode, generator = ActionDecoder(env.spec), torch.Generator().manual_seed(0)
    shape = (env.num_worlds, n, env.spec.action_size)
    return [decode(0.3 * torch.randn(shape, generator=generator)) for _ in range(calls)]


def settled(task: str, worlds: int, threads: int, randomization: Randomization | None = None) -> Env:
    """Worlds in the midst of their episodes, each at another tick of it."""
    env = make(task, worlds, seed=1, threads=threads, device="cpu", randomization=randomization)
    assert isinstance(env, Env)
    env.reset()
    saved = env.state_dict()
    saved["tick"] = torch.arange(worlds) * env.spec.episode_ticks // worlds
    env.load_state_dict(saved)
    for actions in random_actions(env, 5, 10):
        env.step(actions)
    return env


def raw_rollout(env: Env, n: int, threads: int) -> Callable[[torch.Tensor], None]:
    """The same model from the same states, with its results left where they fall."""
    model, steps = env._backend.model, n * env.spec.decimation
    engine = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
    data = [mujoco.MjData(model) for _ in range(threads)]
    state = env.state_dict()["state"].numpy()
    control = np.zeros((env.num_worlds, steps, model.nu))
    states = np.zeros((env.num_worlds, steps, state.shape[1]))
    sensors = np.zeros((env.num_worlds, steps, model.nsensordata))
    models = [model] * env.num_worlds

    def run(actions: torch.Tensor) -> None:
        control[:] = actions.repeat_interleave(env.spec.decimation, 1).numpy()
        nonlocal state
        engine.rollout(
            models, data, state, control, skip_checks=True, nstep=steps, state=states, sensordata=sensors
        )

    return run


def seconds(run: Callable[[torch.Tensor], object], actions: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    for each in actions:
        run(each)
    return (time.perf_counter() - start) / len(actions)


def compare(task: str, n: int, threads: int, repeats: int) -> float:
    """Median ratio of the rates."""
    env = settled(task, WORLDS, threads)
    actions, steps = random_actions(env, n, 20 // n), WORLDS * n * env.spec.decimation
    ratios = []
    for _ in range(repeats):
        raw = steps / seconds(raw_rollout(env, n, threads), actions)
        full = steps / seconds(env.step, actions)
        ratios.append(full / raw)
        print(f"n = {n}: raw {raw:,.0f}, environment {full:,.0f} physics steps/s, ratio {full / raw:.3f}")
    return statistics.median(ratios)


def per_world(task: str, threads: int, repeats: int) -> dict[int, float]:
    """Median time of a tick per world, at each number of worlds over that at the first."""
    envs = {worlds: settled(task, worlds, threads) for worlds in SIZES}
    actions = {worlds: random_actions(env, 5, 2 * max(SIZES) // worlds) for worlds, env in envs.items()}
    ratios: dict[int, list[float]] = {worlds: [] for worlds in SIZES}
    for _ in range(repeats):
        times = {worlds: seconds(env.step, actions[worlds]) / worlds for worlds, env in envs.items()}
        for worlds, taken in times.items():
            ratios[worlds].append(taken / times[SIZES[0]])
    return {worlds: statistics.median(found) for worlds, found in ratios.items()}


def peak_memory_gb(task: str) -> float:
    """Of a process of its own, that resets and steps."""
    command = [sys.executable, __file__, task, "--memory-only"]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_own_peak(task: str) -> None:
    env = make(task, SIZES[-1])
    env.reset()
    for n in (1, 5):
        for actions in random_actions(env, n, 3):
            env.step(actions)
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("task", nargs="?", default="quadruped-velocity")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--memory-only", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.memory_only:
        print_own_peak(options.task)
        return
    rates = {n: compare(options.task, n, options.threads, options.repeats) for n in LEAST}
    flatness = per_world(options.task, options.threads, options.repeats)
    unevenness = max(flatness.values()) / min(flatness.values()) - 1.0
    memory_gb = peak_memory_gb(options.task)
    print(f"ratio of rates: {rates}; time per world: {flatness}; peak memory: {memory_gb:.2f} GB")
    value = {f"n={n}": rate for n, rate in rates.items()} | {"flat": unevenness, "memory_gb": memory_gb}
    target = {f"n={n}": least for n, least in LEAST.items()} | {"flat": FLAT, "memory_gb": MEMORY_GB}
    # Rates are to be at least what is told, the rest at most.
    holds = all((value[key] >= bound) == key.startswith("n=") for key, bound in target.items())
    figure = {"name": f"env_rate of {options.task}", "value": value, "target": target, "holds": holds}
    print(json.dumps(figure))


if __name__ == "__main__":
    main()

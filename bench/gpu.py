"""What `bench/gpu.sh` runs: MuJoCo Warp beside the C engine, rates of `quadruped-velocity`, a short training.

Rates are env steps (control ticks) per second over all worlds. The three kinds are timed in turn, as often
as `--repeats` says, and each figure is the median: `simulation` is `env.step` under prepared actions,
`inference` the policy's decisions as well, `training` whole iterations of PPO. Chunks are the recipe's.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import replace

import msgspec
import torch

from andante.runtime.errors import AndanteError
from andante.sim.backends import resolve_device
from andante.sim.env import Env
from andante.sim.tasks import get_task
from andante.train.evaluate import evaluate
from andante.train.ppo import PPO
from andante.train.recipes import get_recipe

TASK = "quadruped-velocity"
LARGEST_ERROR = 1e-4
"""Of qpos and qvel after one physics step."""
LARGEST_SHIFT = 0.25
"""Of the means of 2 s of random actions, in standard deviations over worlds."""
START_S = time.perf_counter()


def say(text: str) -> None:
    print(f"{time.perf_counter() - START_S:6.1f} s  {text}", flush=True)


def random_actions(env: Env, n: int, seed: int, scale: float) -> torch.Tensor:
    """Around the middle, the same for every device."""
    low, high, middle = (
        torch.tensor(values) for values in (env.spec.action_low, env.spec.action_high, env.spec.action_middle)
    )
    shape = (env.num_worlds, n, len(low))
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (middle + scale * (high - low) / 2 * noise).clamp(low, high).to(env.device)


def step_error(device: str, worlds: int, steps: int) -> float:
    """Largest difference of qpos and qvel after single physics steps from the same states."""
    task = get_task(TASK)
    period = task.spec.control_period_ns // task.spec.decimation
    task = replace(task, spec=replace(task.spec, control_period_ns=period, decimation=1))
    exact, single = Env(task, worlds, device="cpu"), Env(task, worlds, device=device)
    exact.reset()
    single.reset()
    largest = 0.0
    for seed in range(steps):
        before, actions = exact.state_dict()["state"], random_actions(exact, 1, seed, 0.2)
        expected = exact._backend.advance(before, actions).states
        found = single._backend.advance(before.to(single.device), actions.to(single.device)).states.cpu()
        largest = max(largest, float((found - expected)[..., 1:].abs().max()))
        exact.step(actions)
    return largest


def statistics_of(device: str, worlds: int) -> dict[str, torch.Tensor]:
    """By figure, its mean over 2 s of random actions in each world."""
    env = Env(get_task(TASK), worlds, device=device)
    env.reset()
    found: dict[str, list[torch.Tensor]] = {"reward": [], "height": [], "speed": [], "falls": []}
    for seed in range(20):
        outcome = env.step(random_actions(env, 5, seed, 0.2))
        state = env.state_dict()["state"].cpu()
        found["reward"].append(outcome.reward.mean(1).cpu())
        found["height"].append(state[:, 3])
        found["speed"].append(state[:, -env._backend.model.nv :].abs().mean(1))
        found["falls"].append(outcome.terminated.sum(1).cpu())
    return {name: torch.stack(values, 1).double().mean(1) for name, values in found.items()}


def largest_shift(device: str, worlds: int) -> float:
    expected, found = statistics_of("cpu", worlds), statistics_of(device, worlds)
    shifts = {
        name: float((found[name].mean() - expected[name].mean()).abs() / expected[name].std())
        for name in found
    }
    say(f"shift of means: {', '.join(f'{name} {shift:.4f}' for name, shift in shifts.items())}")
    return max(shifts.values())


def make_trainer(device: str, worlds: int) -> PPO:
    return PPO.from_config(msgspec.structs.replace(get_recipe(TASK), num_worlds=worlds, device=device))


def rate(run: Callable[[], object], ticks: int, device: torch.device, seconds: float) -> float:
    """Ticks per second of `run`, which simulates so many."""

    def now() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        return time.perf_counter()

    start, done = now(), 0
    while now() - start < seconds:
        run()
        done += ticks
    return done / (now() - start)


def rates(device: str, worlds: int, repeats: int, seconds: float) -> dict[str, float]:
    trainer = make_trainer(device, worlds)
    env, size = trainer.env, trainer.policy.execution_horizon
    assert isinstance(env, Env)
    actions = random_actions(env, size, 0, 0.2)
    kinds = {
        "simulation": (lambda: env.step(actions), worlds * size),
        "inference": (trainer.scheduler.advance, worlds * size),
        "training": (trainer.iterate, trainer.ticks_per_iteration),
    }
    seen: dict[str, list[float]] = {kind: [] for kind in kinds}
    for run, _ in kinds.values():
        run()
    for _ in range(repeats):
        for kind, (run, ticks) in kinds.items():
            seen[kind].append(rate(run, ticks, env.device, seconds))
    found = {kind: statistics.median(values) for kind, values in seen.items()}
    memory = ""
    if env.device.type == "cuda":
        free, total = torch.cuda.mem_get_info(env.device)
        found["memory_gb"] = (total - free) / 1e9
        memory = f"; {found['memory_gb']:.1f} GB in use"
    text = ", ".join(f"{kind} {found[kind]:,.0f}" for kind in kinds)
    say(f"{worlds} worlds: {text} env steps/s{memory}; {env.diverged} diverged")
    return found


def train(device: str, worlds: int, seconds: float, episodes: int) -> dict[str, float]:
    """Iterate for so long; then one episode of the policy's means in each of some worlds of the C engine."""
    trainer, start, last = make_trainer(device, worlds), time.perf_counter(), 0.0
    while (spent := time.perf_counter() - start) < seconds:
        metrics = trainer.iterate()
        if spent - last > seconds / 10:
            last = spent
            say(f"{trainer.ticks:,} ticks, reward per tick {metrics['reward_per_tick']:.4f}")
    result = {
        "seconds": time.perf_counter() - start,
        "ticks": trainer.ticks,
        "reward_per_tick": metrics["reward_per_tick"],
        "diverged_worlds": metrics["diverged_worlds"],
        "return": float(evaluate(trainer.policy, TASK, episodes, seed=1_000_000).returns.mean()),
    }
    say(f"trained for {result['ticks']:,} ticks: return {result['return']:.2f} over {episodes} episodes")
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--worlds", type=int, nargs="+", default=[1024, 4096, 16384])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.0, help="of each timing")
    parser.add_argument("--train-worlds", type=int, default=4096)
    parser.add_argument("--train-seconds", type=float, default=180.0)
    parser.add_argument("--parity-worlds", type=int, default=256)
    parser.add_argument("--episodes", type=int, default=64)
    given = parser.parse_args()
    try:
        device = resolve_device(given.device)
    except AndanteError as error:
        print(f"bench/gpu: {error} (torch {torch.__version__})", file=sys.stderr)
        return 1
    name = torch.cuda.get_device_name(device) if device.startswith("cuda") else device
    say(name)
    error = step_error(device, given.parity_worlds, 60)
    say(f"one physics step: largest error {error:.1e}")
    shift = largest_shift(device, given.parity_worlds)
    found = {str(worlds): rates(device, worlds, given.repeats, given.seconds) for worlds in given.worlds}
    trained = train(device, given.train_worlds, given.train_seconds, given.episodes)
    holds = error < LARGEST_ERROR and shift < LARGEST_SHIFT
    report = {
        "name": "gpu: largest error of one physics step against the C engine",
        "value": error,
        "target": LARGEST_ERROR,
        "holds": holds,
        "device": name,
        "largest_shift": shift,
        "env_steps_per_s": found,
        "training": trained,
        "seconds": time.perf_counter() - START_S,
    }
    print(json.dumps(report))
    return 0 if holds else 1


if __name__ == "__main__":
    raise SystemExit(main())

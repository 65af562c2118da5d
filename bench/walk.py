"""How long a quadruped takes to learn to walk: `quadruped-velocity`, nominal, by the shipped recipe.

It walks when, deterministically and in two evaluations in a row, 64 worlds are commanded 0.5 to 1.0 m/s
forward for 10 s, none falls, and the mean over worlds and time (after 1 s) of |v_xy - command| is below the
error asked for. Training time counts, evaluations do not. The raw rate of the physics (random control, all
threads, nothing else) is measured at every evaluation, and time is scaled by it to a machine that does
150,000 physics steps per second. Roughness is the root mean square of the third difference of the executed
actions in that evaluation, rad per tick^3. The last line is JSON.

    python bench/walk.py h5 [--seeds 0 1 2 3 4] [--errors 0.2 0.1] [--ticks 4000000]
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
import sys
import time
from dataclasses import replace

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
import torch

from andante.sim import make
from andante.sim.spec.task import CommandSampling, TaskSpec
from andante.train import PPO
from andante.train.config import TrainConfig
from andante.train.policy import Policy
from andante.train.recipes import get_recipe
from andante.train.scheduler import ChunkScheduler

TASK = "quadruped-velocity"
REFERENCE_RATE = 150_000
"""Physics steps per second of the machine that minutes are for."""
EVALUATION_TICKS = 100_000
"""Of training, between two evaluations."""
WORLDS, TICKS, SETTLED = 64, 500, 50
MINUTES = {("h1", 0.2): 4.0, ("h5", 0.2): 4.0, ("h5", 0.1): 12.0}
"""Targets."""
VARIANTS = {
    "h1": ({"chunk_size": 1}, {"decisions": 24}),
    "h5": ({}, {}),
    "hold": ({"decoder": "hold"}, {"target_kl": 0.06, "minibatches": 2}),
    "interpolate": ({"decoder": "interpolate"}, {"target_kl": 0.06, "decisions": 24}),
}
"""What differs from the recipe: of the policy, and of PPO.

The baselines choose one action where a chunk chooses five, so the divergence per choice may be larger; their
segments are the best of those tried.
"""


def config_of(variant: str, seed: int, ticks: int) -> TrainConfig:
    recipe = get_recipe(TASK)
    policy, ppo = VARIANTS[variant]
    return msgspec.structs.replace(
        recipe,
        ticks=ticks,
        seed=seed,
        policy=msgspec.structs.replace(recipe.policy, **policy),
        ppo=msgspec.structs.replace(recipe.ppo, **ppo),
    )


def forward(spec: TaskSpec) -> TaskSpec:
    """Nominal: no pushes, one command per episode, 0.5 to 1.0 m/s straight ahead."""
    ranges = {"lin_vel_x": (0.5, 1.0), "lin_vel_y": (-1e-6, 1e-6), "yaw_rate": (-1e-6, 1e-6)}
    command = spec.command_source
    components = tuple(
        msgspec.structs.replace(each, low=ranges[each.name][0], high=ranges[each.name][1])
        for each in command.components
    )
    told = msgspec.structs.replace(command, components=components)
    sources = tuple(told if source is command else source for source in spec.sources)
    return replace(spec, sources=sources, pushes=None, command=CommandSampling(10 * TICKS))


def walk(policy: Policy) -> tuple[float, int, float]:
    """Mean error (m/s), falls, and roughness."""
    env = make(forward(policy.spec), WORLDS, seed=999, device="cpu")
    scheduler, fallen, errors, actions = ChunkScheduler(env, policy), torch.zeros(WORLDS).bool(), [], []
    columns = slice(9, 11)  # of the critic's state: the command, times 2; the first two are the velocity
    for k in range(TICKS // policy.execution_horizon):
        decision = scheduler.advance()
        outcome = decision.outcome
        fallen |= outcome.terminated.any(1)
        actions.append(decision.actions)
        if k * policy.execution_horizon >= SETTLED:
            error = outcome.critic[..., :2] - outcome.critic[..., columns] / 2.0
            errors.append(error.norm(dim=-1).mean())
    roughness = torch.cat(actions, 1).diff(n=3, dim=1).square().mean().sqrt()
    return float(torch.stack(errors).mean()), int(fallen.sum()), float(roughness)


def raw_rate(env) -> float:
    """Physics steps per second of the engine alone, from where the worlds are, under random control."""
    backend, spec, ticks = env._backend, env.spec, 5
    state = env._state.clone()
    control = torch.tensor(spec.action_middle) + 0.3 * torch.randn(len(state), ticks, spec.action_size)
    backend.advance(state, control)
    start, calls = time.perf_counter(), 0
    while time.perf_counter() - start < 0.5:
        backend.advance(state, control)
        calls += 1
    return calls * control[..., 0].numel() * spec.decimation / (time.perf_counter() - start)


def train(variant: str, seed: int, ticks: int, errors: list[float]) -> dict:
    trainer = PPO.from_config(config_of(variant, seed, ticks))
    due, seconds, scaled = EVALUATION_TICKS, 0.0, 0.0
    good, reached, rates, last = dict.fromkeys(errors, 0), {}, [], (math.nan, 0, math.nan)
    since = 0.0
    while trainer.ticks < ticks and len(reached) < len(errors):
        start = time.perf_counter()
        trainer.iterate()
        since += time.perf_counter() - start
        if trainer.ticks < due:
            continue
        due += EVALUATION_TICKS
        rates.append(raw_rate(trainer.env))
        seconds, scaled, since = seconds + since, scaled + since * rates[-1] / REFERENCE_RATE, 0.0
        last = error, falls, roughness = walk(trainer.policy)
        for bar in errors:
            good[bar] = good[bar] + 1 if error < bar and falls == 0 else 0
            if good[bar] == 2 and bar not in reached:
                reached[bar] = {"ticks": trainer.ticks, "seconds": seconds, "minutes": scaled / 60}
        print(
            f"{variant} seed {seed}: {trainer.ticks:>9,} ticks  {seconds:6.1f} s  raw {rates[-1]:,.0f}/s  "
            f"error {error:.3f} m/s  falls {falls}  roughness {roughness:.3f}",
            flush=True,
        )
    return {
        "seed": seed,
        "reached": reached,
        "last": dict(zip(("error", "falls", "roughness"), last, strict=True)),
        "ticks_per_s": trainer.ticks / max(seconds + since, 1e-9),
        "raw": statistics.median(rates) if rates else None,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("variant", choices=VARIANTS)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--errors", type=float, nargs="+", default=[0.2])
    parser.add_argument("--ticks", type=int, default=4_000_000)
    options = parser.parse_args()
    runs = [train(options.variant, seed, options.ticks, options.errors) for seed in options.seeds]
    value, target, holds = {}, {}, True
    for bar in options.errors:
        minutes = [run["reached"].get(bar, {}).get("minutes", math.inf) for run in runs]
        ticks = [run["reached"].get(bar, {}).get("ticks", math.inf) for run in runs]
        value[f"below {bar} m/s"] = {
            "median_minutes": statistics.median(minutes),
            "median_ticks": statistics.median(ticks),
            "ticks": ticks,
        }
        if (options.variant, bar) in MINUTES:
            target[f"below {bar} m/s"] = MINUTES[options.variant, bar]
            holds = holds and statistics.median(minutes) <= MINUTES[options.variant, bar]
    value["roughness"] = statistics.median(run["last"]["roughness"] for run in runs)
    value["training_ticks_per_s"] = round(statistics.median(run["ticks_per_s"] for run in runs))
    value["raw_steps_per_s"] = round(statistics.median(run["raw"] for run in runs))
    print(json.dumps({"name": f"walk {options.variant}", "value": value, "target": target, "holds": holds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""Ticks/s of training `quadruped-velocity` by its recipe, GRU 128: chunks of H = 5 against H = 1.

Wall-clock time of whole iterations, simulation and update: 8 decisions of 5 ticks, and 24 of one. The rate of
raw `mujoco.rollout` on the same model with random controls is measured in every round too: times to learn on
other machines scale with it. Rounds are interleaved after one to warm up; the median of their ratios.

    python bench/chunk_rate.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")

import msgspec
from env_rate import random_actions, raw_rollout, seconds, settled

from andante.train.ppo import PPO
from andante.train.recipes import VELOCITY

LEAST = 1.7
DECISIONS = {1: 24, 5: 8}
"""Per world and iteration, by H."""
RAW_CALL = 5
"""Ticks per call of the raw rollout."""


def training_rate(chunk_size: int) -> Callable[[], float]:
    replace = msgspec.structs.replace
    trainer = PPO.from_config(
        replace(
            VELOCITY,
            device="cpu",
            policy=replace(VELOCITY.policy, memory="gru", hidden_size=128, chunk_size=chunk_size),
            ppo=replace(VELOCITY.ppo, decisions=DECISIONS[chunk_size]),
        )
    )
    iterations = 5 // chunk_size * 2

    def measure() -> float:
        start = time.perf_counter()
        for _ in range(iterations):
            trainer.iterate()
        return iterations * trainer.ticks_per_iteration / (time.perf_counter() - start)

    return measure


def raw_rate(threads: int) -> Callable[[], float]:
    """In physics steps/s."""
    env = settled(VELOCITY.task, VELOCITY.num_worlds, threads)
    actions, run = random_actions(env, RAW_CALL, 8), raw_rollout(env, RAW_CALL, threads)
    steps = env.num_worlds * RAW_CALL * env.spec.decimation
    return lambda: steps / seconds(run, actions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    sides = {
        "H=1": training_rate(1),
        "H=5": training_rate(5),
        "raw": raw_rate(len(os.sched_getaffinity(0))),
    }
    rounds: list[dict[str, float]] = []
    for turn in range(options.rounds + 1):
        rates = {name: sides[name]() for name in (sides if turn % 2 else reversed(sides))}
        print(
            f"H=1 {rates['H=1']:,.0f}  H=5 {rates['H=5']:,.0f} ticks/s  "
            f"raw {rates['raw']:,.0f} physics steps/s" + ("" if turn else "  (warm-up)"),
            flush=True,
        )
        if turn:
            rounds.append(rates)
    ratios = [rates["H=5"] / rates["H=1"] for rates in rounds]
    value = statistics.median(ratios)
    print(f"H=5 / H=1: {value:.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    figure = {
        "name": "training ticks/s of quadruped-velocity, H=5 against H=1",
        "value": round(value, 3),
        "target": LEAST,
        "holds": value >= LEAST,
        "raw_steps_per_s": round(statistics.median(rates["raw"] for rates in rounds)),
    }
    print(json.dumps(figure))


if __name__ == "__main__":
    main()

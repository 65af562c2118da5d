"""T-maze: trained in corridors of 1 to 100 ticks, tried in ones of 1,000 and 10,000.

A gate that reaches 0 holds the sign for ever; whatever fades, or only nearly holds, ends somewhere. PPO, a
decision per tick, segments of 128 ticks, and little lambda: the critic knows the sign and the way that is
left, so that nothing but the turn itself is a surprise. Deterministic policies after the last iteration, 128
episodes each. The last line is JSON: shares of right turns, by cell, corridor and seed; it holds if the
hard-sigmoid minGRU is right every time at 10,000.

    python bench/tmaze.py [--seeds 3] [--against lru ffm gru]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import msgspec

from andante.train.config import TrainConfig
from andante.train.evaluate import evaluate
from andante.train.ppo import PPO
from andante.train.recipes import get_recipe

CELL, AGAINST = "mingru-hard", ("lru", "ffm", "gru")
TARGET = 1.0
LENGTHS = (100, 1_000, 10_000)
EPISODES = 128
EPISODE_SEED = 1_000_000


def config(memory: str, seed: int) -> TrainConfig:
    recipe = get_recipe("tmaze")
    policy = msgspec.structs.replace(recipe.policy, memory=memory)
    return msgspec.structs.replace(recipe, policy=policy, seed=seed)


def successes(memory: str, seed: int) -> dict[int, float]:
    """Corridor -> share of right turns, 0.5 by chance."""
    trainer = PPO.from_config(config(memory, seed))
    start = time.perf_counter()
    while trainer.ticks < config(memory, seed).ticks:
        trainer.iterate()
    seconds = time.perf_counter() - start
    found = {
        length: float(evaluate(trainer.policy, f"tmaze/{length}", EPISODES, EPISODE_SEED).returns.mean())
        for length in LENGTHS
        if memory == CELL or length < max(LENGTHS)
    }
    figures = ", ".join(f"{share:.0%} at {length:,}" for length, share in found.items())
    print(f"{memory}, seed {seed}: {figures}; {trainer.ticks:,} ticks in {seconds:.0f} s", flush=True)
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--against", nargs="*", choices=AGAINST, default=AGAINST)
    options = parser.parse_args()
    value = {}
    for memory in (CELL, *options.against):
        seeds = [successes(memory, seed) for seed in range(options.seeds)]
        value[memory] = {length: [found[length] for found in seeds] for length in seeds[0]}
    holds = min(value[CELL][max(LENGTHS)]) == TARGET
    print(json.dumps({"name": "tmaze_success", "value": value, "target": TARGET, "holds": holds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

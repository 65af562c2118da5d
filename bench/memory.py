"""Recurrent policies against policies without memory, where something that matters is not measured.

Per task: cells and `mlp`, several seeds each, equal budgets of ticks, trained as the task's recipe says but
for what stands in `RUNS`. A figure is the mean return of 64 deterministic episodes that the run has not seen,
of the policy after the last iteration. The last line is JSON: the figures by task, cell and seed; it holds if
in every task the worst recurrent policy is better than the best one without memory.

    python bench/memory.py [--seeds 3] [--cells gru] [--tasks NAME ...]
"""

from __future__ import annotations

import argparse
import json
import sys
import time

import msgspec

from andante.sim.spec.randomization import Randomization
from andante.train.config import TrainConfig
from andante.train.evaluate import evaluate
from andante.train.ppo import PPO
from andante.train.recipes import get_recipe

BASELINE = "mlp"
EPISODES = 64
EPISODE_SEED = 1_000_000
SWINGUP_TICKS = 1_500_000


def adapted(task: str, **changes) -> TrainConfig:
    return msgspec.structs.replace(get_recipe(task), **changes)


RUNS = {
    "repeat-previous": get_recipe("repeat-previous"),
    "pendulum-swingup-blind": adapted("pendulum-swingup-blind", ticks=SWINGUP_TICKS),
    "cartpole-swingup-blind": adapted("cartpole-swingup-blind", ticks=SWINGUP_TICKS),
    "pendulum-swingup-blind, 3 ticks late": adapted(
        "pendulum-swingup-blind", ticks=SWINGUP_TICKS, randomization=Randomization(observation_delay={"*": 3})
    ),
}


def trained_return(config: TrainConfig) -> float:
    trainer = PPO.from_config(config)
    while trainer.ticks < config.ticks:
        trainer.iterate()
    returns = evaluate(
        trainer.policy, config.task, EPISODES, EPISODE_SEED, randomization=config.randomization
    ).returns
    return round(float(returns.mean()), 3)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--cells", nargs="+", default=["gru"])
    parser.add_argument("--tasks", nargs="+", choices=RUNS, default=list(RUNS))
    options = parser.parse_args()
    value: dict[str, dict[str, list[float]]] = {}
    for task in options.tasks:
        value[task] = {}
        for memory in (*options.cells, BASELINE):
            policy = msgspec.structs.replace(RUNS[task].policy, memory=memory)
            start = time.perf_counter()
            value[task][memory] = [
                trained_return(msgspec.structs.replace(RUNS[task], policy=policy, seed=seed))
                for seed in range(options.seeds)
            ]
            seconds = time.perf_counter() - start
            print(f"{task}: {memory} {value[task][memory]} in {seconds:.0f} s", flush=True)
    worst = {task: min(min(found[memory]) for memory in options.cells) for task, found in value.items()}
    holds = all(worst[task] > max(found[BASELINE]) for task, found in value.items())
    target = f"worst recurrent above best {BASELINE}"
    print(json.dumps({"name": "memory_returns", "value": value, "target": target, "holds": holds}))
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""One episode of one world, recorded tick by tick."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
from torch import Tensor

from andante.sim import make
from andante.sim.spec.task import TaskSpec

from .agents import Agent


@dataclass(frozen=True)
class Episode:
    """T ticks; `state` and `sources` are as they were before each tick."""

    spec: TaskSpec
    sources: dict[str, np.ndarray]
    """{name: [T, n]}, SI units."""
    actions: np.ndarray
    """[T, A], SI units."""
    rewards: np.ndarray
    """[T]."""
    decided: np.ndarray
    """Bool [T]: a decision was made at this tick."""
    states: np.ndarray
    """MuJoCo's full physics state [T, n], float64."""


def play_episode(agent: Agent, task: str, seed: int) -> Episode:
    """Play the first episode of world 0 of `seed`."""
    env = make(task, num_worlds=1, seed=seed, threads=1)
    observation = env.reset()
    sources: dict[str, list[np.ndarray]] = {name: [] for name in observation.sources}
    actions, rewards, decided, states = [], [], [], []
    done = False
    while not done:
        plan = agent.decide(observation.sources)
        for i in range(plan.shape[1]):
            for name, value in observation.sources.items():
                sources[name].append(value[0].numpy())
            states.append(cast(Tensor, env.state_dict()["state"])[0].numpy())
            outcome = env.step(plan[:, i : i + 1])
            actions.append(plan[0, i].numpy())
            rewards.append(outcome.reward.item())
            decided.append(i == 0)
            observation, done = outcome.observation, bool(outcome.done)
            if done:
                break
    return Episode(
        env.spec,
        {name: np.stack(values) for name, values in sources.items()},
        np.stack(actions),
        np.array(rewards),
        np.array(decided),
        np.stack(states),
    )

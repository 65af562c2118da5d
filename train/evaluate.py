"""How good a policy is: deterministic, in an environment of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from andante.sim import make

from .policy import Policy
from .scheduler import ChunkScheduler


@dataclass(frozen=True)
class Evaluation:
    """One episode in each of N worlds."""

    returns: Tensor
    """Undiscounted sum of rewards [N]."""


def evaluate(policy: Policy, task: str, episodes: int, seed: int) -> Evaluation:
    """Run the mean policy for one episode in each of `episodes` worlds."""
    env = make(task, num_worlds=episodes, seed=seed)
    scheduler = ChunkScheduler(env, policy)
    returns = torch.zeros(episodes)
    running = torch.ones(episodes, dtype=torch.bool)
    while running.any():
        outcome = scheduler.advance().outcome
        returns += (outcome.reward * running[:, None]).sum(1)
        running &= ~outcome.done
    return Evaluation(returns)

"""Observations to try a policy on: what it meets when it acts in its own task, exploring."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from andante.sim import make
from andante.sim.spec.randomization import Randomization
from andante.train.policy import Policy
from andante.train.scheduler import ChunkScheduler


@dataclass(frozen=True)
class Observations:
    """N consecutive decisions of one world."""

    sources: dict[str, NDArray[np.float32]]
    """Per source `[N, *shape]`."""
    reset: NDArray[np.bool_]
    """`[N]`: the first decision of an episode."""


def observe(
    policy: Policy,
    decisions: int,
    seed: int,
    restart_every: int,
    randomization: Randomization | None = None,
) -> Observations:
    """Let the policy act with its training noise, for some decisions.

    Args:
        policy: acts, and decides when to decide.
        decisions: N.
        seed: of the world and of the noise.
        restart_every: decisions after which an episode is cut, whatever its length.
        randomization: of the world.
    """
    generator = torch.Generator().manual_seed(seed)
    name = policy.spec.name
    env = make(name, num_worlds=1, seed=seed, threads=1, device="cpu", randomization=randomization)
    scheduler = ChunkScheduler(env, policy)
    noise_shape = (1, policy.execution_horizon, policy.spec.action_size)
    steps = []
    for i in range(decisions):
        if i and i % restart_every == 0:
            scheduler.restart()
        steps.append(scheduler.advance(torch.randn(noise_shape, generator=generator)))
    sources = {
        source.name: np.stack([step.sources[source.name][0].numpy() for step in steps])
        for source in policy.spec.sources
    }
    return Observations(sources, np.array([bool(step.reset[0]) for step in steps]))

"""Observations to try a policy on: what it meets when it acts in its own task, exploring."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Generator, Tensor

from andante.sim import make
from andante.sim.env import Env
from andante.sim.spec.randomization import Randomization
from andante.sim.worlds import Worlds
from andante.train.policy import Policy
from andante.train.scheduler import ChunkScheduler
from andante.train.timed import TimedScheduler


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
    env = make(policy.spec, num_worlds=1, seed=seed, threads=1, device="cpu", randomization=randomization)
    step = _timed(env, policy, generator) if env.timing is not None else _on_time(env, policy, generator)
    seen = []
    for i in range(decisions):
        seen.append(step(i > 0 and i % restart_every == 0))
    sources = {
        source.name: np.stack([values[source.name][0].numpy() for values, _ in seen])
        for source in policy.spec.sources
    }
    return Observations(sources, np.array([bool(reset[0]) for _, reset in seen]))


Step = Callable[[bool], tuple[dict[str, Tensor], Tensor]]
"""Whether to cut the episode before -> what the next decision is made on, and whether it is the first one."""


def _on_time(env: Worlds, policy: Policy, generator: Generator) -> Step:
    scheduler = ChunkScheduler(env, policy)
    shape = (1, policy.choices, policy.spec.action_size)

    def step(restart: bool) -> tuple[dict[str, Tensor], Tensor]:
        if restart:
            scheduler.restart()
        decision = scheduler.advance(torch.randn(shape, generator=generator))
        return decision.sources, decision.reset

    return step


def _timed(env: Worlds, policy: Policy, generator: Generator) -> Step:
    assert isinstance(env, Env)
    scheduler = TimedScheduler(env, policy)
    shape = (1, policy.chunk_size, policy.spec.action_size)

    def step(restart: bool) -> tuple[dict[str, Tensor], Tensor]:
        if restart:
            scheduler.restart()
        while True:
            tick = scheduler.advance(torch.randn(shape, generator=generator))
            if tick.decided:
                return tick.sources, tick.reset

    return step

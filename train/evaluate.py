"""How good a policy is: deterministic, in an environment of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from andante.sim import make
from andante.sim.env import Outcome

from .finite import require_finite
from .pipeline import ActionDecoder
from .policy import Policy
from .scheduler import ChunkScheduler, Decision

RANDOM_TICKS = 25
"""Ticks per call of the environment under random actions; does not change the distribution."""


@dataclass(frozen=True)
class Recording:
    """What N worlds went through in K decisions of s ticks; worlds that end begin another episode."""

    sources: dict[str, Tensor]
    """What was decided on {name: [K, N, n]}."""
    reset: Tensor
    """Bool [K, N]: decided from the initial state."""
    actions: Tensor
    """Executed actions [K, s, N, A], SI units."""


@dataclass(frozen=True)
class Evaluation:
    """One episode in each of N worlds."""

    returns: Tensor
    """Undiscounted sum of rewards [N]."""
    recording: Recording | None = None


def evaluate(policy: Policy, task: str, episodes: int, seed: int, record: bool = False) -> Evaluation:
    """Play the policy's means for one episode in each of `episodes` worlds; `seed` is the environment's.

    Raises:
        NonFiniteError: an observation, an action or a return is not finite.
    """
    scheduler = ChunkScheduler(make(task, num_worlds=episodes, seed=seed), policy)
    decisions: list[Decision] = []

    def advance() -> Outcome:
        decision = scheduler.advance()
        if record:
            decisions.append(decision)
        return decision.outcome

    returns = _first_returns(advance, episodes)
    require_finite("return", returns)
    return Evaluation(returns, _join(decisions, policy) if record else None)


def random_return(task: str, episodes: int, seed: int) -> float:
    """Mean return of actions drawn uniformly from their range, a new one at every tick."""
    env = make(task, num_worlds=episodes, seed=seed)
    decode = ActionDecoder(env.spec)
    generator = torch.Generator().manual_seed(seed)
    env.reset()

    def advance() -> Outcome:
        shape = (episodes, RANDOM_TICKS, env.spec.action_size)
        return env.step(decode(2.0 * torch.rand(shape, generator=generator) - 1.0))

    return float(_first_returns(advance, episodes).mean())


def _first_returns(advance: Callable[[], Outcome], episodes: int) -> Tensor:
    returns = torch.zeros(episodes)
    running = torch.ones(episodes, dtype=torch.bool)
    while running.any():
        outcome = advance()
        returns += outcome.reward.sum(1) * running
        running &= ~outcome.done
    return returns


def _join(decisions: list[Decision], policy: Policy) -> Recording:
    return Recording(
        sources={
            name: torch.stack([decision.sources[name] for decision in decisions])
            for name in policy.features.sources
        },
        reset=torch.stack([decision.reset for decision in decisions]),
        actions=torch.stack([policy.decode(decision.u).transpose(0, 1) for decision in decisions]),
    )

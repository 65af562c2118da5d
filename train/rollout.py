"""Experience of all worlds over K decisions."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .finite import require_finite
from .scheduler import ChunkScheduler


@dataclass(frozen=True)
class Rollout:
    """K decisions of s ticks in B worlds (A actions, C true state, S packed state)."""

    sources: dict[str, Tensor]
    """{name: [K, B, n]}."""
    reset: Tensor
    """Bool [K, B]: decided from the initial state."""
    h0: Tensor
    """State before the first decision [B, S], before its reset."""
    mean: Tensor
    """Means of the executed actions [K, B, s, A]."""
    u: Tensor
    """Executed actions before decoding [K, B, s, A]."""
    critic: Tensor
    """True state before each tick, and after the last [K, B, s + 1, C]."""
    reward: Tensor
    """[K, B, s]."""
    terminated: Tensor
    """Bool [K, B, s]: the episode ended for good with this tick."""
    truncated: Tensor
    """Bool [K, B, s]: the episode ran out of time with this tick."""
    valid: Tensor
    """Bool [K, B, s]: the tick was lived through, not idled after an end."""

    @classmethod
    def empty(cls, scheduler: ChunkScheduler, decisions: int) -> Rollout:
        """Tensors to be filled by `collect`."""
        env, policy = scheduler.env, scheduler.policy
        shape = (decisions, env.num_worlds, policy.execution_horizon)
        actions = (*shape, policy.spec.action_size)
        return cls(
            sources={
                name: torch.zeros(decisions, *value.shape)
                for name, value in scheduler.observation.sources.items()
            },
            reset=torch.zeros(shape[:2], dtype=torch.bool),
            h0=torch.zeros_like(scheduler.h),
            mean=torch.zeros(actions),
            u=torch.zeros(actions),
            critic=torch.zeros(*shape[:2], shape[2] + 1, env.critic_size),
            reward=torch.zeros(shape),
            terminated=torch.zeros(shape, dtype=torch.bool),
            truncated=torch.zeros(shape, dtype=torch.bool),
            valid=torch.zeros(shape, dtype=torch.bool),
        )

    def worlds(self, index: Tensor) -> Rollout:
        """The part of the worlds in `index`."""
        picked = {
            name: value.index_select(1, index)
            for name, value in vars(self).items()
            if name not in ("sources", "h0")
        }
        sources = {name: value.index_select(1, index) for name, value in self.sources.items()}
        return Rollout(sources=sources, h0=self.h0[index], **picked)


def collect(scheduler: ChunkScheduler, rollout: Rollout, generator: Generator) -> None:
    """Fill `rollout` with the scheduler's next decisions, exploring with noise from `generator`.

    Raises:
        NonFiniteError: an observation, an action, a true state or a reward is not finite.
    """
    noise = torch.randn(rollout.u.shape, generator=generator)
    rollout.h0.copy_(scheduler.h)
    for k in range(len(noise)):
        decision = scheduler.advance(noise[k])
        outcome = decision.outcome
        for name, value in decision.sources.items():
            rollout.sources[name][k] = value
        rollout.reset[k] = decision.reset
        rollout.mean[k] = decision.mean
        rollout.u[k] = decision.u
        rollout.critic[k, :, 0] = decision.critic
        rollout.critic[k, :, 1:] = outcome.critic
        rollout.reward[k] = outcome.reward
        rollout.terminated[k] = outcome.terminated
        rollout.truncated[k] = outcome.truncated
        rollout.valid[k] = outcome.valid
    require_finite("critic observation", rollout.critic)
    require_finite("reward", rollout.reward)

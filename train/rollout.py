"""Experience of all worlds over K decisions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

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
        """Tensors to be filled by `collect`, on the environment's device."""
        env, policy = scheduler.env, scheduler.policy
        zeros = partial(torch.zeros, device=env.device)
        shape = (decisions, env.num_worlds, policy.execution_horizon)
        actions = (*shape, policy.spec.action_size)
        return cls(
            sources={
                name: zeros(decisions, *value.shape) for name, value in scheduler.observation.sources.items()
            },
            reset=zeros(shape[:2], dtype=torch.bool),
            h0=torch.zeros_like(scheduler.h),
            mean=zeros(actions),
            u=zeros(actions),
            critic=zeros(*shape[:2], shape[2] + 1, env.critic_size),
            reward=zeros(shape),
            terminated=zeros(shape, dtype=torch.bool),
            truncated=zeros(shape, dtype=torch.bool),
            valid=zeros(shape, dtype=torch.bool),
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


def collect(scheduler: ChunkScheduler, rollout: Rollout, generator: Generator) -> dict[str, float]:
    """Fill `rollout` with the scheduler's next decisions, exploring with noise from `generator`.

    Returns the mean per tick of each term of the reward that the environment tells.

    Raises:
        NonFiniteError: an observation, an action, a true state or a reward is not finite.
    """
    noise = torch.randn(rollout.u.shape, generator=generator).to(rollout.u.device)
    rollout.h0.copy_(scheduler.h)
    terms: dict[str, Tensor] = {}
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
        ticks = outcome.valid.sum()
        for name, mean in outcome.terms.items():
            terms[name] = terms.get(name, 0.0) + mean * ticks
    require_finite("critic observation", rollout.critic)
    require_finite("reward", rollout.reward)
    return {name: float(total / rollout.valid.sum()) for name, total in terms.items()}

"""Experience of all worlds over K decisions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Generator, Tensor

from andante.sim.env import Outcome

from .finite import require_finite
from .scheduler import ChunkScheduler
from .smoothness import RecentActions, roughness_cost
from .timed import TimedScheduler


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
    """Means of the choices whose actions were executed [K, B, F, A]; F = s, or 1 where the decoder ties."""
    u: Tensor
    """The choices, before decoding [K, B, F, A]."""
    actions: Tensor
    """Executed [K, B, s, A], SI units."""
    critic: Tensor
    """What the critic sees: true state, and recent actions if it needs them, before each tick and after the
    last [K, B, s + 1, C]."""
    reward: Tensor
    """[K, B, s]."""
    terminated: Tensor
    """Bool [K, B, s]: the episode ended for good with this tick."""
    truncated: Tensor
    """Bool [K, B, s]: the episode ran out of time with this tick."""
    valid: Tensor
    """Bool [K, B, s]: the tick was lived through, not idled after an end."""

    @classmethod
    def empty(
        cls, scheduler: ChunkScheduler | TimedScheduler, recent: RecentActions, decisions: int
    ) -> Rollout:
        """Tensors to be filled by `collect`, on the environment's device."""
        env, policy = scheduler.env, scheduler.policy
        zeros = partial(torch.zeros, device=env.device)
        shape = (decisions, env.num_worlds, policy.execution_horizon)
        choices = (*shape[:2], policy.choices, policy.spec.action_size)
        return cls(
            sources={
                name: zeros(decisions, *value.shape) for name, value in scheduler.observation.sources.items()
            },
            reset=zeros(shape[:2], dtype=torch.bool),
            h0=torch.zeros_like(scheduler.h),
            mean=zeros(choices),
            u=zeros(choices),
            actions=zeros(*shape, policy.spec.action_size),
            critic=zeros(*shape[:2], shape[2] + 1, env.critic_size + recent.size),
            reward=zeros(shape),
            terminated=zeros(shape, dtype=torch.bool),
            truncated=zeros(shape, dtype=torch.bool),
            valid=zeros(shape, dtype=torch.bool),
        )

    @property
    def decided(self) -> Tensor:
        """Bool [K, B]: whether there is such a decision; all of them."""
        return torch.ones_like(self.reset)

    @property
    def executed(self) -> Tensor:
        """Bool [K, B, F]: whether a choice was executed, not idled after an end."""
        return self.valid[..., : self.u.shape[2]]

    @property
    def states(self) -> Tensor:
        """What the critic sees before each tick [K, B, s, C]."""
        return self.critic[:, :, :-1]

    def chosen(self, mean: Tensor) -> Tensor:
        """Of means of whole decisions [K, B, H, A], those that `mean` holds of the behaviour policy."""
        return mean[:, :, : self.mean.shape[2]]

    def worlds(self, index: Tensor) -> Rollout:
        """The part of the worlds in `index`."""
        picked = {
            name: value.index_select(1, index)
            for name, value in vars(self).items()
            if name not in ("sources", "h0")
        }
        sources = {name: value.index_select(1, index) for name, value in self.sources.items()}
        return Rollout(sources=sources, h0=self.h0[index], **picked)


def collect(
    scheduler: ChunkScheduler,
    rollout: Rollout,
    generator: Generator,
    recent: RecentActions,
    smoothness: Sequence[float],
) -> dict[str, float]:
    """Fill `rollout` with the scheduler's next decisions, exploring with noise from `generator`.

    Rewards are less the `roughness_cost` of weights `smoothness`. Returns the mean per tick of each term of
    the reward that the environment tells.

    Raises:
        NonFiniteError: an observation, an action, a true state or a reward is not finite.
    """
    noise = torch.randn(rollout.u.shape, generator=generator).to(rollout.u.device)
    rollout.h0.copy_(scheduler.h)
    means, size = TermMeans(), scheduler.env.critic_size
    for k in range(len(noise)):
        decision = scheduler.advance(noise[k])
        outcome = decision.outcome
        for name, value in decision.sources.items():
            rollout.sources[name][k] = value
        rollout.reset[k] = decision.reset
        rollout.mean[k] = decision.mean
        rollout.u[k] = decision.u
        rollout.actions[k] = decision.actions
        rollout.critic[k, :, 0, :size] = decision.critic
        rollout.critic[k, :, 1:, :size] = outcome.critic
        rollout.reward[k] = outcome.reward
        rollout.terminated[k] = outcome.terminated
        rollout.truncated[k] = outcome.truncated
        rollout.valid[k] = outcome.valid
        means.add(outcome)
        if recent.reach:
            stream = recent.follow(decision.actions, outcome.done)
            rollout.critic[k, :, :, size:] = recent.seen(stream)
        if any(smoothness):
            cost = roughness_cost(stream, smoothness, outcome.reward.shape[1]) * outcome.valid
            rollout.reward[k] -= cost
            means.add_term("smoothness", -cost.sum())
    require_finite("critic observation", rollout.critic)
    require_finite("reward", rollout.reward)
    return means.result()


class TermMeans:
    """Means per tick of the terms of the reward, over calls of an environment."""

    def __init__(self) -> None:
        self._totals: dict[str, Tensor] = {}
        self._ticks: Tensor | int = 0

    def add(self, outcome: Outcome) -> None:
        """Of one more call."""
        ticks = outcome.valid.sum()
        self._ticks = self._ticks + ticks
        for name, mean in outcome.terms.items():
            self.add_term(name, mean * ticks)

    def add_term(self, name: str, total: Tensor) -> None:
        """The sum of one term over the ticks of the last call."""
        self._totals[name] = self._totals.get(name, 0.0) + total

    def result(self) -> dict[str, float]:
        """Name -> mean."""
        return {name: float(total / self._ticks) for name, total in self._totals.items()}

"""Experience of worlds whose decisions have a time of their own: ticks here, decisions there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Generator, Tensor

from .critic import Critic
from .finite import require_finite
from .rollout import TermMeans
from .smoothness import RecentActions, roughness_cost
from .timed import TimedScheduler, TimedTick


@dataclass(frozen=True)
class TimedRollout:
    """T ticks of B worlds, and the up to K decisions that each made meanwhile (A actions, S packed state).

    What is per tick has the shape of decisions of one tick each: [T, B, 1, ...].
    """

    sources: dict[str, Tensor]
    """{name: [K, B, n]}."""
    reset: Tensor
    """Bool [K, B]: decided from the initial state."""
    decided: Tensor
    """Bool [K, B]: there was such a decision."""
    h0: Tensor
    """State before the first decision [B, S], before its reset."""
    decision: Tensor
    """Which decision's action was executed, int64 [T, B]; -1: held, of one before these, or of one that
    memory did not keep."""
    index: Tensor
    """Which action of its chunk, int64 [T, B]."""
    mean: Tensor
    """Its mean [T, B, 1, A]."""
    u: Tensor
    """It, before decoding [T, B, 1, A]."""
    actions: Tensor
    """Executed [T, B, 1, A], SI units."""
    inputs: Tensor
    """Of the critic, before the tick [T, B, 1, X]."""
    next_inputs: Tensor
    """After it, at the true end of an episode too [T, B, 1, X]."""
    states: Tensor
    """True state before the tick, and recent actions if the critic needs them [T, B, 1, C]."""
    reward: Tensor
    """[T, B, 1]."""
    terminated: Tensor
    """Bool [T, B, 1]."""
    truncated: Tensor
    """Bool [T, B, 1]."""
    valid: Tensor
    """Bool [T, B, 1]: true."""

    @property
    def executed(self) -> Tensor:
        """Bool [T, B, 1]: whether the tick's action is one of these decisions'."""
        return (self.decision >= 0)[..., None]

    def chosen(self, mean: Tensor) -> Tensor:
        """Of means of decisions [K, B, H, A], each tick's own [T, B, 1, A]; any where there is none."""
        world = torch.arange(mean.shape[1], device=mean.device)
        return mean[self.decision.clamp(min=0), world, self.index][:, :, None]

    def worlds(self, index: Tensor) -> TimedRollout:
        """The part of the worlds in `index`."""
        picked = {
            name: value.index_select(1, index)
            for name, value in vars(self).items()
            if name not in ("sources", "h0")
        }
        sources = {name: value.index_select(1, index) for name, value in self.sources.items()}
        return TimedRollout(sources=sources, h0=self.h0[index], **picked)


def collect_timed(
    scheduler: TimedScheduler,
    critic: Critic,
    ticks: int,
    generator: Generator,
    recent: RecentActions,
    smoothness: Sequence[float],
) -> tuple[TimedRollout, dict[str, float]]:
    """The next `ticks` of all worlds, exploring with noise from `generator`.

    Rewards are less the `roughness_cost` of weights `smoothness`. Also returns the mean per tick of each term
    of the reward that the environment tells.

    Raises:
        NonFiniteError: an observation, an action, a true state or a reward is not finite.
    """
    policy, env, device = scheduler.policy, scheduler.env, scheduler.env.device
    scheduler.renumber()
    h0, means, lived, rewards, seen = scheduler.h, TermMeans(), [], [], []
    for _ in range(ticks):
        shape = (env.num_worlds, policy.chunk_size, policy.spec.action_size)
        tick = scheduler.advance(torch.randn(shape, generator=generator).to(device))
        outcome, reward = tick.outcome, tick.outcome.reward
        means.add(outcome)
        stream = recent.follow(tick.action, outcome.done)
        if any(smoothness):
            cost = roughness_cost(stream, smoothness, 1)
            reward = reward - cost
            means.add_term("smoothness", -cost.sum())
        lived.append(tick)
        rewards.append(reward)
        seen.append(recent.seen(stream))
    rollout = _assemble(lived, critic, torch.stack(rewards), torch.stack(seen), h0)
    require_finite("critic observation", rollout.next_inputs)
    require_finite("reward", rollout.reward)
    return rollout, means.result()


def _assemble(
    ticks: list[TimedTick], critic: Critic, reward: Tensor, recent: Tensor, h0: Tensor
) -> TimedRollout:
    decided = torch.stack([tick.decided for tick in ticks])
    number = decided.cumsum(0) - 1
    size = int(number.max()) + 1 if decided.any() else 1
    at, world = decided.nonzero(as_tuple=True)
    place = number[at, world], world

    def by_decision(values: list[Tensor]) -> Tensor:
        rows = torch.stack(values)
        return rows.new_zeros(size, *rows.shape[1:]).index_put(place, rows[at, world])

    def inputs(known: list[tuple[Tensor, ...]], recent: Tensor) -> Tensor:
        rows = [
            critic.at_tick(torch.cat((state, last), -1), *rest)
            for (state, *rest), last in zip(known, recent, strict=True)
        ]
        return torch.stack(rows)[:, :, None]

    states = torch.stack([tick.before[0] for tick in ticks])
    first = [tick.plan for tick in ticks]
    # A row that is not planned is not played: the last action is held.
    played = torch.stack([plan.planned[:, 0] for plan in first])
    decision = torch.stack([plan.decision[:, 0] for plan in first])
    ends = {
        name: torch.stack([getattr(tick.outcome, name) for tick in ticks])
        for name in ("terminated", "truncated", "valid")
    }
    return TimedRollout(
        sources={name: by_decision([tick.sources[name] for tick in ticks]) for name in ticks[0].sources},
        reset=by_decision([tick.reset for tick in ticks]),
        decided=by_decision([tick.decided for tick in ticks]),
        h0=h0,
        decision=torch.where(played, decision, -1),
        index=torch.stack([plan.index[:, 0] for plan in first]),
        mean=torch.stack([plan.mean[:, :1] for plan in first]),
        u=torch.stack([plan.u[:, :1] for plan in first]),
        actions=torch.stack([tick.action for tick in ticks]),
        inputs=inputs([tick.before for tick in ticks], recent[:, :, 0]),
        next_inputs=inputs([tick.after for tick in ticks], recent[:, :, 1]),
        states=torch.cat((states, recent[:, :, 0]), -1)[:, :, None],
        reward=reward,
        **ends,
    )

"""Decisions that take time, come at another rate in every world, or do not come through."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from andante.runtime.errors import AndanteError
from andante.sim.env import Env, Outcome
from andante.sim.worlds import Worlds

from .finite import require_finite
from .policy import Policy
from .scheduler import ChunkScheduler


@dataclass(frozen=True)
class Plan:
    """What is to be played in B worlds at this tick and the next ones, row by row.

    Rows of no plan hold whatever they hold.
    """

    planned: Tensor
    """Bool [B, H]."""
    mean: Tensor
    """[B, H, A]."""
    u: Tensor
    """Before decoding [B, H, A]."""
    decision: Tensor
    """Number of the decision of the world's that a row comes from, int64 [B, H]; see `TimedTick.decided`."""
    index: Tensor
    """Which action of its chunk a row is, int64 [B, H]."""

    @classmethod
    def empty(cls, worlds: int, size: int, actions: int, device: torch.device) -> Plan:
        """Nothing is planned."""
        rows, whole = (worlds, size), torch.int64
        return cls(
            planned=torch.zeros(rows, dtype=torch.bool, device=device),
            mean=torch.zeros(*rows, actions, device=device),
            u=torch.zeros(*rows, actions, device=device),
            decision=torch.full(rows, -1, dtype=whole, device=device),
            index=torch.zeros(rows, dtype=whole, device=device),
        )

    def shifted(self) -> Plan:
        """As of the next tick; at the far end nothing is planned."""
        moved = {name: rows.roll(-1, 1) for name, rows in vars(self).items()}
        moved["planned"][:, -1] = False
        return Plan(**moved)


@dataclass(frozen=True)
class TimedTick:
    """One tick of every world (B worlds, H chunk, A actions)."""

    sources: dict[str, Tensor]
    """What was decided on, where there was a decision {name: [B, n]}."""
    decided: Tensor
    """Bool [B]: a decision was made that memory keeps. They are numbered from 0 on, world by world."""
    reset: Tensor
    """Bool [B]: it would be the first one of its episode, from the initial state."""
    plan: Plan
    """With the decision in it; the tick plays its first row, if one is planned there."""
    action: Tensor
    """Executed [B, 1, A], SI units."""
    before: tuple[Tensor, ...]
    """What the critic may know before the tick: arguments of `Critic.at_tick`."""
    after: tuple[Tensor, ...]
    """The same after it, at the true end of an episode too."""
    outcome: Outcome
    """Of the tick."""


class TimedScheduler:
    """Runs a policy in an environment with `timing`, tick by tick, as `runtime.planner.Planner` on a robot.

    Decisions are due at the ticks k s of an episode. One that is lost lets the chunk before play its tail;
    when that is over, the last action is held. But where inference takes no time, the policy is then asked
    beside the grid, and its memory stays as it is. Owns, per world: the grid's phase, the plan of the next
    H ticks, the memory's state, and how long all decisions are lost.
    """

    def __init__(self, env: Env, policy: Policy) -> None:
        """Begin a new episode in every world.

        Raises:
            AndanteError: horizons that do not go with the policy's chunks: d <= s and d + s <= H must hold.
        """
        assert env.timing is not None
        self.env = env
        self.policy = policy
        self._timing = env.timing
        _check_horizon(env, policy)
        self._committed = [source for source in env.spec.sources if source.kind == "committed_actions"]
        self._rest = torch.tensor(env.spec.action_middle, device=env.device)
        self._ahead = torch.arange(policy.chunk_size, device=env.device)
        self.restart()

    def restart(self) -> None:
        """Begin a new episode in every world."""
        worlds, device = self.env.num_worlds, self.env.device
        self.observation = self.env.reset()
        self.h = self.policy.initial_state(worlds)
        self.reset = torch.ones(worlds, dtype=torch.bool, device=device)
        """No decision of the episode yet that memory keeps."""
        self._plan = Plan.empty(worlds, self.policy.chunk_size, len(self._rest), device)
        self._held = self._rest.repeat(worlds, 1)
        self._phase = torch.zeros(worlds, dtype=torch.int64, device=device)
        """Ticks since the first decision was due."""
        self._starved = torch.zeros(worlds, dtype=torch.int64, device=device)
        """Ticks for which decisions are still lost."""
        self._decisions = torch.zeros(worlds, dtype=torch.int64, device=device)
        """That memory kept, since `renumber`."""

    def renumber(self) -> None:
        """Number decisions from 0 on again; what is planned comes from decisions before."""
        self._decisions.zero_()
        self._plan = replace(self._plan, decision=torch.full_like(self._plan.decision, -1))

    @torch.no_grad()
    def advance(self, noise: Tensor | None = None) -> TimedTick:
        """Decide where a decision is due and comes through, and play one tick.

        Explores with standard normal `noise` [B, H, A], that of whole chunks, or is deterministic.

        Raises:
            NonFiniteError: a source or an action is not finite.
        """
        observation = self.observation
        for name, value in observation.sources.items():
            require_finite(f"source {name!r}", value)
        delay, horizon = self._limits()
        before = self._known(observation.critic, delay, horizon)
        due = self._phase % horizon == 0
        asked = due | ~self._plan.planned[:, 0] & (delay == 0)
        fates = self.env.decision_fates()
        self._starved = torch.maximum(self._starved, fates.starved * due)
        asked &= ~fates.dropped & (self._starved == 0)
        sources, reset, decided = self._told(delay), self.reset, asked & due
        self._decide(asked, due, delay, sources, noise)
        plan = self._plan
        action = torch.where(plan.planned[:, :1], self.policy.decode(plan.u[:, 0]), self._held)
        outcome = self.env.step(action[:, None])
        self._held = torch.where(outcome.done[:, None], self._rest, action)
        self._phase += 1
        self._plan = plan.shifted()
        after = self._known(outcome.critic[:, 0], delay, horizon)
        self._reset(outcome.done)
        self.observation = outcome.observation
        return TimedTick(sources, decided, reset, plan, action[:, None], before, after, outcome)

    def state_dict(self) -> dict[str, Any]:
        """Everything an exact continuation needs, the environment's state included."""
        return {
            "env": self.env.state_dict(),
            "h": self.h,
            "reset": self.reset,
            "sources": self.observation.sources,
            "critic": self.observation.critic,
            "plan": vars(self._plan),
            "held": self._held,
            "phase": self._phase,
            "starved": self._starved,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.env.load_state_dict(state["env"])
        device = self.env.device
        self.h, self.reset, self._held, self._phase, self._starved = (
            state[name].to(device, copy=True) for name in ("h", "reset", "held", "phase", "starved")
        )
        self._plan = Plan(**{name: rows.to(device, copy=True) for name, rows in state["plan"].items()})
        sources = {name: value.to(device) for name, value in state["sources"].items()}
        self.observation = type(self.observation)(sources=sources, critic=state["critic"].to(device))

    def _limits(self) -> tuple[Tensor, Tensor]:
        """d and s of each world [B]."""
        horizon = self._timing.execution_horizon
        if horizon is None:
            horizon = torch.full_like(self._phase, self.policy.execution_horizon)
        return self._timing.inference_delay, horizon

    def _known(self, critic: Tensor, delay: Tensor, horizon: Tensor) -> tuple[Tensor, ...]:
        plan = self._plan
        return critic, plan.mean, plan.planned, self._phase.clone(), horizon.clone(), delay.clone()

    def _told(self, delay: Tensor) -> dict[str, Tensor]:
        """The sources, with what is already committed."""
        sources = dict(self.observation.sources)
        for source in self._committed:
            rows = min(source.history, len(self._ahead))
            fixed = self._plan.planned[:, :rows] & (self._ahead[:rows] < delay[:, None])
            committed = self._rest.new_zeros(len(fixed), source.history, len(self._rest))
            committed[:, :rows] = self.policy.decode(self._plan.u[:, :rows]) * fixed[..., None]
            sources[source.name] = committed.view(len(fixed), *source.shape)
        return sources

    def _decide(
        self, asked: Tensor, due: Tensor, delay: Tensor, sources: dict[str, Tensor], noise: Tensor | None
    ) -> None:
        worlds = asked.nonzero().squeeze(1)
        if not len(worlds):
            return
        policy, kept = self.policy, due[worlds]
        # Not what state passing left there, in an episode that has no decision yet.
        h = torch.where(self.reset[worlds, None], policy.initial_state(len(worlds)), self.h[worlds])
        mean, after = policy.decide({name: value[worlds] for name, value in sources.items()}, h)
        chosen = mean if noise is None else mean + policy.log_std.exp() * noise[worlds, : mean.shape[1]]
        require_finite("action", chosen)
        number = torch.where(kept, self._decisions[worlds], -1)
        chunk = {
            "planned": torch.ones(len(worlds), policy.chunk_size, dtype=torch.bool, device=h.device),
            "mean": policy.chunk(mean, h),
            "u": policy.chunk(chosen, h),
            "decision": number[:, None].expand(-1, policy.chunk_size),
            "index": self._ahead.expand(len(worlds), -1),
        }
        acts = self._ahead >= delay[worlds, None]
        # New tensors: the plan before the decision is what the critic knew.
        self._plan = Plan(
            **{
                name: rows.index_put(
                    (worlds,),
                    torch.where(acts if rows.dim() == 2 else acts[..., None], chunk[name], rows[worlds]),
                )
                for name, rows in vars(self._plan).items()
            }
        )
        self.h = self.h.index_put((worlds,), torch.where(kept[:, None], policy.remember(after, chosen), h))
        self.reset = self.reset.index_put((worlds,), self.reset[worlds] & ~kept)
        self._decisions[worlds] += kept

    def _reset(self, done: Tensor) -> None:
        """Forget everything where a new episode begins."""
        self.h = torch.where(done[:, None], self.policy.initial_state(len(done)), self.h)
        self.reset = self.reset | done
        self._plan = replace(self._plan, planned=self._plan.planned & ~done[:, None])
        self._phase = self._phase.masked_fill(done, 0)
        self._starved = (self._starved - 1).clamp(min=0).masked_fill(done, 0)


def make_scheduler(env: Worlds, policy: Policy) -> ChunkScheduler | TimedScheduler:
    """The scheduler for an environment: whether all decisions come through at once is its `timing`."""
    if env.timing is None:
        return ChunkScheduler(env, policy)
    assert isinstance(env, Env)
    return TimedScheduler(env, policy)


def _check_horizon(env: Env, policy: Policy) -> None:
    """Raise where a world may be given a horizon and a delay that its chunks are too short for."""
    horizons = env.randomization.ticks("execution_horizon", policy.execution_horizon)
    delay = max(env.randomization.ticks("inference_delay", 0))
    if delay > min(horizons) or delay + max(horizons) > policy.chunk_size:
        raise AndanteError(
            f"impossible horizon: inference_delay d up to {delay}, execution_horizon s from {min(horizons)} "
            f"to {max(horizons)}; d <= s and s + d <= chunk_size, {policy.chunk_size}, must hold"
        )

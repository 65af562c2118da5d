"""Decisions that take time, come at another rate in every world, or do not come through."""

from __future__ import annotations

import torch
from torch import Tensor

from andante.sim.env import Env, Outcome

from .finite import require_finite
from .policy import Policy


class TimedScheduler:
    """Runs a policy in an environment with `timing`, tick by tick, as `runtime.planner.Planner` on a robot.

    Decisions are due at the ticks k s of an episode. One that is lost lets the chunk before play its tail;
    when that is over, the last action is held. But where inference takes no time, the policy is then asked
    beside the grid, and its memory stays as it is. Owns, per world: the grid's phase, the actions of the next
    H ticks, the memory's state, and how long all decisions are lost.
    """

    def __init__(self, env: Env, policy: Policy) -> None:
        """Begin a new episode in every world."""
        assert env.timing is not None
        self.env = env
        self.policy = policy
        worlds, size = env.num_worlds, policy.chunk_size
        self._timing = env.timing
        self._committed = [source for source in env.spec.sources if source.kind == "committed_actions"]
        self._rest = torch.tensor(env.spec.action_middle)
        self._plan = torch.zeros(worlds, size, len(self._rest))
        """Actions of this tick and the next ones."""
        self._planned = torch.zeros(worlds, size, dtype=torch.bool)
        self._held = self._rest.repeat(worlds, 1)
        self._phase = torch.zeros(worlds, dtype=torch.int64)
        """Ticks since the last decision was due."""
        self._starved = torch.zeros(worlds, dtype=torch.int64)
        """Ticks for which decisions are still lost."""
        self._h = policy.initial_state(worlds)
        self.observation = env.reset()

    @torch.no_grad()
    def advance(self) -> Outcome:
        """Decide where a decision is due and comes through, and play one tick; deterministic.

        Raises:
            NonFiniteError: a source or an action is not finite.
        """
        for name, value in self.observation.sources.items():
            require_finite(f"source {name!r}", value)
        delay, horizon = self._limits()
        due = self._phase % horizon == 0
        asked = due | ~self._planned[:, 0] & (delay == 0)
        fates = self.env.decision_fates()
        self._starved = torch.maximum(self._starved, fates.starved * due)
        asked &= ~fates.dropped & (self._starved == 0)
        self._decide(asked.nonzero().squeeze(1), due, delay)
        action = torch.where(self._planned[:, :1], self._plan[:, 0], self._held)
        outcome = self.env.step(action[:, None])
        self._held = action
        self._shift()
        self._phase += 1
        self._starved = (self._starved - 1).clamp(min=0)
        self._reset(outcome.done)
        self.observation = outcome.observation
        return outcome

    def _limits(self) -> tuple[Tensor, Tensor]:
        """d and s of each world [B]: d <= s and d + s <= H, as far as they are drawn larger."""
        size, horizon = self.policy.chunk_size, self._timing.execution_horizon
        if horizon is None:
            horizon = torch.full_like(self._phase, self.policy.execution_horizon)
        horizon = horizon.clamp(max=size)
        return torch.minimum(self._timing.inference_delay, torch.minimum(horizon, size - horizon)), horizon

    def _decide(self, worlds: Tensor, due: Tensor, delay: Tensor) -> None:
        if not len(worlds):
            return
        ahead = torch.arange(self.policy.chunk_size)
        sources = {name: value[worlds] for name, value in self.observation.sources.items()}
        for source in self._committed:
            rows = min(source.history, len(ahead))
            fixed = self._planned[worlds, :rows] & (ahead[:rows] < delay[worlds, None])
            committed = torch.zeros(len(worlds), source.history, len(self._rest))
            committed[:, :rows] = self._plan[worlds, :rows] * fixed[..., None]
            sources[source.name] = committed.view(len(worlds), *source.shape)
        mean, h = self.policy.decide(sources, self._h[worlds])
        chunk = self.policy.decode(mean)
        require_finite("action", chunk)
        self._h[worlds] = torch.where(due[worlds, None], h, self._h[worlds])
        acts = ahead >= delay[worlds, None]
        self._plan[worlds] = torch.where(acts[..., None], chunk, self._plan[worlds])
        self._planned[worlds] |= acts

    def _shift(self) -> None:
        """On to the next tick, for which nothing new is planned at the far end."""
        self._plan = torch.cat((self._plan[:, 1:], torch.zeros_like(self._plan[:, :1])), 1)
        self._planned = torch.cat((self._planned[:, 1:], torch.zeros_like(self._planned[:, :1])), 1)

    def _reset(self, done: Tensor) -> None:
        """Forget everything where a new episode begins."""
        self._h = torch.where(done[:, None], self.policy.initial_state(len(done)), self._h)
        self._held = torch.where(done[:, None], self._rest, self._held)
        self._planned &= ~done[:, None]
        self._phase = self._phase.masked_fill(done, 0)
        self._starved = self._starved.masked_fill(done, 0)

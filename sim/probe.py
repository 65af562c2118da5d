"""Memory probes: worlds without physics, whose every moment is a function of (seed, world, episode, tick)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .env import Observation, Outcome
from .randomness import Draws
from .spec.task import TaskSpec
from .worlds import Ends, Worlds, check_actions, check_saved, world_ids


@dataclass(frozen=True)
class Probe:
    """A declaration and its functions, over B worlds at n ticks each.

    What happens in an episode is drawn, not remembered: a function gets the draws of the episodes (B worlds
    at their first tick) and the ticks [B, n] to look at, so that a call of any length is one evaluation, and
    nothing but counters has to be saved.
    """

    spec: TaskSpec
    critic_size: int
    """C."""
    observe: Callable[[Draws, Tensor], dict[str, Tensor]]
    """What is measured before the ticks: source name -> float32 [B, n, size]."""
    critic: Callable[[Draws, Tensor], Tensor]
    """True state before the ticks, float32 [B, n, C]."""
    outcome: Callable[[Draws, Tensor, Tensor], tuple[Tensor, Tensor]]
    """Reward float32 [B, n] of the ticks under actions [B, n, A], and where the episode ends, bool [B, n]."""


def at_ticks(draws: Draws, tick: Tensor) -> Draws:
    """Of B worlds at n ticks [B, n] each: B n draws, world by world."""
    n = tick.shape[1]
    world, episode = (ids.repeat_interleave(n) for ids in (draws.world, draws.episode))
    return replace(draws, world=world, episode=episode, tick=tick.flatten())


def integers(uniform: Tensor, low: int, high: int) -> Tensor:
    """Draws from [0, 1) -> integers from `low` to `high`, both included, as likely as each other; int64."""
    return low + (uniform * (high - low + 1)).long()


class ProbeEnv(Worlds):
    """B worlds of a probe, with the public interface of `env.Env`."""

    device = torch.device("cpu")
    device_name = "cpu"

    def __init__(self, probe: Probe, num_worlds: int, seed: int = 0, ids: Tensor | None = None):
        """B = `num_worlds`; `ids` int64 [B] key the random draws, 0 .. B-1 when None."""
        self.probe = probe
        self.spec = probe.spec
        self.num_worlds = num_worlds
        self.critic_size = probe.critic_size
        self.diverged = 0
        self._seed = seed
        self._world = world_ids(num_worlds, ids)
        self._episode = torch.full((num_worlds,), -1)
        self._tick = torch.zeros(num_worlds, dtype=torch.int64)

    def reset(self) -> Observation:
        """Start a new episode in every world."""
        self._episode += 1
        self._tick.zero_()
        return self._observation()

    def step(self, actions: Tensor) -> Outcome:
        """Apply `actions` [B, n, A], one per tick.

        Raises:
            AndanteError: wrong shape, an action that is not finite, or no episode yet.
        """
        check_actions(actions, self._episode, self.spec.action_size)
        n = actions.shape[1]
        draws = self._draws()
        tick = self._tick[:, None] + torch.arange(n)
        reward, terminated = self.probe.outcome(draws, tick, actions)
        ends = Ends.of(terminated, tick + 1 >= self.spec.episode_ticks)
        critic = self.probe.critic(draws, tick + 1)
        self._episode += ends.done
        self._tick = (self._tick + n).masked_fill(ends.done, 0)
        return Outcome(
            reward=reward * ends.valid,
            terminated=ends.terminated,
            truncated=ends.truncated,
            valid=ends.valid,
            critic=critic,
            done=ends.done,
            observation=self._observation(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact continuation needs; the random draws have no state."""
        return {
            "seed": self._seed,
            "world": self._world.clone(),
            "episode": self._episode.clone(),
            "tick": self._tick.clone(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, bit for bit.

        Raises:
            AndanteError: saved by an environment of another kind or size.
        """
        check_saved(saved, self.num_worlds, set(self.state_dict()))
        self._seed = saved["seed"]
        self._world.copy_(saved["world"])
        self._episode.copy_(saved["episode"])
        self._tick.copy_(saved["tick"])

    def _draws(self) -> Draws:
        return Draws(self._seed, self._world, self._episode, torch.zeros_like(self._tick))

    def _observation(self) -> Observation:
        draws, tick = self._draws(), self._tick[:, None]
        sources = self.probe.observe(draws, tick)
        return Observation(
            {name: value.squeeze(1) for name, value in sources.items()},
            self.probe.critic(draws, tick).squeeze(1),
        )

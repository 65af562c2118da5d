"""Worlds of other packages, `gym/<id>` and `popgym/<id>`, each stepped in Python through its own interface.

Observations are flattened (discrete ones one-hot). A continuous action goes in as it is, within its bounds;
of a discrete one the policy gives scores, and the largest decides. The critic sees the environment's true
state where it tells one (`get_state` of POPGym), else the observation.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from andante.runtime.errors import AndanteError

from .env import Observation, Outcome
from .randomness import Draws
from .spec.foreign import choices, foreign_spec, open_env
from .worlds import Ends, Worlds, check_actions, check_saved, world_ids


class ForeignEnv(Worlds):
    """B environments of one kind, with the public interface of `env.Env`.

    Episode e of a world resets its environment with a seed drawn from (seed, world, e). Their state cannot be
    saved: see `load_state_dict`.
    """

    device = torch.device("cpu")
    device_name = "cpu"

    def __init__(self, name: str, num_worlds: int, seed: int = 0, ids: Tensor | None = None):
        """B = `num_worlds`; `ids` int64 [B] key the random draws, 0 .. B-1 when None.

        Raises:
            AndanteError: see `spec.foreign.foreign_spec`.
        """
        self.spec = foreign_spec(name)
        self.num_worlds = num_worlds
        self.diverged = 0
        """Worlds so far that ended because an observation or reward was not finite."""
        self._envs = [open_env(name) for _ in range(num_worlds)]
        first = self._envs[0]
        self._flatten = importlib.import_module("gymnasium.spaces").flatten
        self._actions = first.action_space
        self._choices = choices(first.action_space)
        self._limits = tuple(torch.tensor(getattr(self.spec.actions[0], key)) for key in ("low", "high"))
        self._state_space = getattr(first.unwrapped, "state_space", None)
        if self._state_space is not None:
            flatdim = importlib.import_module("gymnasium.spaces").flatdim
            self.critic_size = int(flatdim(self._state_space))
        else:
            self.critic_size = self.spec.sources[0].shape[0]
        self._seed = seed
        self._world = world_ids(num_worlds, ids)
        self._episode = torch.full((num_worlds,), -1)
        self._tick = torch.zeros(num_worlds, dtype=torch.int64)
        self._lived = torch.zeros(num_worlds, dtype=torch.bool)
        """Stepped since their reset: not what a reset with the same seed would give."""
        self._lost = torch.zeros(num_worlds, dtype=torch.bool)
        """Where `load_state_dict` found a world in mid-episode."""
        self._sources = {source.name: torch.zeros(num_worlds, *source.shape) for source in self.spec.sources}
        self._critic = torch.zeros(num_worlds, self.critic_size)

    def reset(self) -> Observation:
        """Start a new episode in every world."""
        self._restart(torch.arange(self.num_worlds))
        return self._observation()

    def step(self, actions: Tensor) -> Outcome:
        """Apply `actions` [B, n, A], one per tick; beyond their bounds they are clipped.

        Raises:
            AndanteError: wrong shape, an action that is not finite, or no episode yet.
        """
        check_actions(actions, self._episode, self.spec.action_size)
        n = actions.shape[1]
        actions = actions.clamp(*self._limits)
        native, executed = self._native(actions)
        reward = torch.zeros(self.num_worlds, n)
        terminated = torch.zeros(self.num_worlds, n, dtype=torch.bool)
        truncated = self._lost[:, None].repeat(1, n)
        critic = torch.zeros(self.num_worlds, n, self.critic_size)
        for world in range(self.num_worlds):
            for i in range(n):
                if not truncated[world, i]:
                    reward[world, i], terminated[world, i], truncated[world, i] = self._advance(
                        world, native[world][i], executed[world, i]
                    )
                critic[world, i] = self._critic[world]
                if terminated[world, i] or truncated[world, i]:
                    break
        ends = Ends.of(terminated, truncated)
        self._restart(ends.done.nonzero().squeeze(1))
        return Outcome(
            reward=reward,
            terminated=ends.terminated,
            truncated=ends.truncated,
            valid=ends.valid,
            critic=critic,
            done=ends.done,
            observation=self._observation(),
        )

    def state_dict(self) -> dict[str, Any]:
        """Counters and the last observations; not the environments' state, which they do not give away."""
        return {
            "seed": self._seed,
            "diverged": self.diverged,
            "world": self._world.clone(),
            "episode": self._episode.clone(),
            "tick": self._tick.clone(),
            "lived": self._lived.clone(),
            "sources": {name: value.clone() for name, value in self._sources.items()},
            "critic": self._critic.clone(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue as well as can be: worlds at an episode's start exactly, others with a new episode.

        Those others are cut, as if out of time, at the next tick, whose action does nothing; how many there
        are is said on stderr.

        Raises:
            AndanteError: saved by an environment of another kind or size.
        """
        check_saved(saved, self.num_worlds, set(self.state_dict()))
        self._seed, self.diverged = saved["seed"], saved["diverged"]
        for name in ("world", "episode", "tick", "lived", "critic"):
            getattr(self, f"_{name}").copy_(saved[name])
        for name, value in saved["sources"].items():
            self._sources[name].copy_(value)
        self._lost.copy_(self._lived)
        for world, seed in self._reset_seeds((~self._lived).nonzero().squeeze(1)):
            self._envs[world].reset(seed=seed)
        if lost := int(self._lost.sum()):
            print(
                f"{self.spec.name}: the environments' state cannot be saved: "
                f"{lost} of {self.num_worlds} worlds begin a new episode",
                file=sys.stderr,
            )

    def _native(self, actions: Tensor) -> tuple[Any, Tensor]:
        """Actions [B, n, A] as the environments want them, [B][n], and as `previous_action` shows them."""
        if self._choices is None:
            shape = (*actions.shape[:2], *self._actions.shape)
            return actions.numpy().astype(self._actions.dtype).reshape(shape), actions
        picked = [part.argmax(-1) for part in torch.split(actions, self._choices, -1)]
        executed = [
            torch.nn.functional.one_hot(index, count)
            for index, count in zip(picked, self._choices, strict=True)
        ]
        values = torch.stack(picked, -1).numpy() + np.ravel(self._actions.start)
        native = values.reshape(*values.shape[:2], *self._actions.shape)
        return native if self._actions.shape else native.tolist(), torch.cat(executed, -1).float()

    def _advance(self, world: int, action: Any, executed: Tensor) -> tuple[float, bool, bool]:
        """One tick of one world; remembers what it shows."""
        env = self._envs[world]
        observation, reward, terminated, truncated, _ = env.step(action)
        self._lived[world] = True
        self._tick[world] += 1
        if not (np.isfinite(reward) and self._remember(world, observation, executed)):
            self.diverged += 1
            return 0.0, True, False
        return (
            float(reward),
            bool(terminated),
            bool(truncated or self._tick[world] >= self.spec.episode_ticks),
        )

    def _remember(self, world: int, observation: Any, executed: Tensor | float) -> bool:
        """Keep what the world shows, unless it is not finite; tells whether it is."""
        env = self._envs[world]
        flat = torch.from_numpy(np.asarray(self._flatten(env.observation_space, observation), np.float32))
        critic = flat
        if self._state_space is not None:
            state = self._flatten(self._state_space, env.unwrapped.get_state())
            critic = torch.from_numpy(np.asarray(state, np.float32))
        if not (flat.isfinite().all() and critic.isfinite().all()):
            return False
        self._sources["observation"][world] = flat
        self._critic[world] = critic
        if "previous_action" in self._sources:
            self._sources["previous_action"][world] = executed
        return True

    def _restart(self, worlds: Tensor) -> None:
        self._episode[worlds] += 1
        self._tick[worlds] = 0
        self._lived[worlds] = False
        self._lost[worlds] = False
        for world, seed in self._reset_seeds(worlds):
            observation, _ = self._envs[world].reset(seed=seed)
            if not self._remember(world, observation, 0.0):
                raise AndanteError(f"{self.spec.name}: observation after reset(seed={seed}) is not finite")

    def _reset_seeds(self, worlds: Tensor) -> list[tuple[int, int]]:
        draws = Draws(self._seed, self._world[worlds], self._episode[worlds], torch.zeros_like(worlds))
        seeds = (draws.uniform("gymnasium reset", 1)[:, 0] * 2**31).long()
        return list(zip(worlds.tolist(), seeds.tolist(), strict=True))

    def _observation(self) -> Observation:
        return Observation(
            {name: value.clone() for name, value in self._sources.items()}, self._critic.clone()
        )

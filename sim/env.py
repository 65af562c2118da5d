"""Parallel worlds of one task, stepped by any number of ticks per call."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from andante.runtime.contract import Source
from andante.runtime.errors import AndanteError

from .backends.mujoco import MujocoBackend
from .randomness import Draws
from .task import Task

DIVERGED = 1e6
"""A state value beyond this is physics gone wrong. MuJoCo stops a rollout where a value or an acceleration
passes 1e10; at any sane time step this bound is passed first, so that the length of a call does not show."""


@dataclass(frozen=True)
class Observation:
    """What is known where a decision starts."""

    sources: dict[str, Tensor]
    """What the robot measures: name -> float32 [B, *shape]."""
    critic: Tensor
    """Privileged true state, float32 [B, C]."""


@dataclass(frozen=True)
class Outcome:
    """What n ticks did. A world that ends inside the call is not `valid` until it restarts, at the border."""

    reward: Tensor
    """Of each tick, float32 [B, n]; 0 where not valid."""
    terminated: Tensor
    """The episode ended for good with this tick, bool [B, n]."""
    truncated: Tensor
    """The episode ran out of time with this tick, bool [B, n]; never together with `terminated`."""
    valid: Tensor
    """The tick belongs to the episode that the call started in, bool [B, n]."""
    critic: Tensor
    """True state after each tick, float32 [B, n, C]: at the ending tick the final one, before the restart;
    finite but meaningless where not valid."""
    done: Tensor
    """The world ended inside this call, bool [B]."""
    observation: Observation
    """After restarts: where the next decision starts."""


class Env:
    """B worlds of a task. Knows ticks, not chunks.

    A world's future depends on (seed, its id, its episode, its actions) alone: not on the other worlds, the
    number of threads or, until its episode ends, how ticks are grouped into calls.
    """

    def __init__(
        self,
        task: Task,
        num_worlds: int,
        seed: int = 0,
        threads: int | None = None,
        world_ids: Tensor | None = None,
    ):
        """B = `num_worlds`; `world_ids` int64 [B] key the random draws, 0 .. B-1 when None."""
        self.task = task
        self.spec = task.spec
        self.num_worlds = num_worlds
        self.critic_size = task.critic_size
        self.diverged = 0
        """Worlds so far that ended because their physics left all bounds."""
        self._backend = MujocoBackend(task.spec, num_worlds, threads)
        self._seed = seed
        self._world = torch.arange(num_worlds) if world_ids is None else world_ids.clone()
        self._episode = torch.full((num_worlds,), -1)
        self._tick = torch.zeros(num_worlds, dtype=torch.int64)
        self._state = torch.zeros(num_worlds, self._backend.state_size, dtype=torch.float64)
        nq, nv = self._backend.model.nq, self._backend.model.nv
        self._qpos, self._qvel = slice(1, 1 + nq), slice(1 + nq, 1 + nq + nv)
        self._columns = {source.name: self._state_columns(source) for source in task.spec.sources}

    def reset(self) -> Observation:
        """Start a new episode in every world."""
        self._restart(torch.arange(self.num_worlds))
        return self._observe()

    def step(self, actions: Tensor) -> Outcome:
        """Apply `actions` [B, n, A] (SI units), one per tick; beyond an action's limits they are clipped.

        Raises:
            AndanteError: wrong shape, or an action that is not finite.
        """
        self._check(actions)
        states = self._backend.advance(self._state, actions)
        diverged = _hold_last_good(states, self._state)
        true = states.to(torch.float32)
        qpos, qvel = true[..., self._qpos], true[..., self._qvel]
        terminated = self.task.terminated(qpos, qvel)
        reward = self.task.reward(qpos, qvel)
        if diverged is not None:
            terminated = terminated | diverged
            reward = reward.masked_fill(diverged, 0.0)
        n = actions.shape[1]
        truncated = self._tick.unsqueeze(1) + torch.arange(1, n + 1) >= self.spec.episode_ticks
        ended = terminated | truncated
        # The end itself still belongs to the episode.
        valid = ended.cumsum(1) - ended.long() == 0
        terminated = terminated & valid
        truncated = truncated & valid & ~terminated
        done = ended.any(1)
        self._state.copy_(states[:, -1])
        self._tick += n
        if diverged is not None:
            self.diverged += int((diverged & valid).sum())
        if done.any():
            self._restart(done.nonzero().squeeze(1))
        return Outcome(
            reward=reward * valid,
            terminated=terminated,
            truncated=truncated,
            valid=valid,
            critic=self.task.critic(qpos, qvel),
            done=done,
            observation=self._observe(),
        )

    def state_dict(self) -> dict[str, int | Tensor]:
        """Everything that an exact continuation needs; the random draws have no state."""
        return {
            "seed": self._seed,
            "diverged": self.diverged,
            "world": self._world.clone(),
            "episode": self._episode.clone(),
            "tick": self._tick.clone(),
            "state": self._state.clone(),
        }

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken, bit for bit.

        Raises:
            AndanteError: saved by an environment of another size or robot.
        """
        if saved["state"].shape != self._state.shape:
            raise AndanteError(
                f"environment state: expected {list(self._state.shape)}, found {list(saved['state'].shape)}"
            )
        self._seed = saved["seed"]
        self.diverged = saved["diverged"]
        self._world.copy_(saved["world"])
        self._episode.copy_(saved["episode"])
        self._tick.copy_(saved["tick"])
        self._state.copy_(saved["state"])

    def _state_columns(self, source: Source) -> Tensor:
        joints = [self._backend.model.joint(name) for name in source.joints]
        if source.kind == "joint_position":
            return torch.tensor([self._qpos.start + joint.qposadr[0] for joint in joints])
        return torch.tensor([self._qvel.start + joint.dofadr[0] for joint in joints])

    def _check(self, actions: Tensor) -> None:
        worlds, size = self.num_worlds, self.spec.action_size
        if actions.dim() != 3 or (len(actions), actions.shape[2]) != (worlds, size) or actions.shape[1] == 0:
            raise AndanteError(f"actions: expected [{worlds}, n, {size}], found {list(actions.shape)}")
        if self._episode[0] < 0:
            raise AndanteError("step before reset: no episode has begun")
        # MuJoCo would silently take NaN as zero.
        if not actions.isfinite().all():
            world, tick, column = (~actions.isfinite()).nonzero()[0].tolist()
            raise AndanteError(
                f"actions: expected finite values, found {actions[world, tick, column].item()} "
                f"(world {world}, tick {tick}, column {column})"
            )

    def _restart(self, worlds: Tensor) -> None:
        self._episode[worlds] += 1
        self._tick[worlds] = 0
        draws = Draws(self._seed, self._world[worlds], self._episode[worlds], self._tick[worlds])
        qpos, qvel = self.task.initial_state(draws)
        self._state[worlds] = torch.cat((torch.zeros_like(qpos[:, :1]), qpos, qvel), -1)

    def _observe(self) -> Observation:
        true = self._state.to(torch.float32)
        return Observation(
            {name: true[:, columns] for name, columns in self._columns.items()},
            self.task.critic(true[:, self._qpos], true[:, self._qvel]),
        )


def _hold_last_good(states: Tensor, start: Tensor) -> Tensor | None:
    """Replace diverged states [B, n, S] in place by the last good one; tell which [B, n], or None."""
    low, high = torch.aminmax(states)
    # Written so that NaN counts: no comparison with it is true.
    if low > -DIVERGED and high < DIVERGED:
        return None
    diverged = ~(states.abs() < DIVERGED).all(-1)
    diverged = diverged.cumsum(1) > 0
    for tick in range(states.shape[1]):
        before = states[:, tick - 1] if tick else start
        states[:, tick] = torch.where(diverged[:, tick, None], before, states[:, tick])
    return diverged

"""The shoves that each world gets, drawn anew in every interval."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import torch
from torch import Tensor

from andante.runtime.errors import AndanteError

from .randomness import Draws
from .spec.task import TaskSpec


class Shoves:
    """Forces of `TaskSpec.pushes`, as functions of (seed, world, episode, tick).

    What is kept from call to call only saves drawing it again.
    """

    def __init__(self, spec: TaskSpec, model: mujoco.MjModel, num_worlds: int, device: torch.device):
        """Look up the body.

        Raises:
            AndanteError: the model has no such body.
        """
        self._pushes = spec.pushes
        self._body = 0
        if spec.pushes is not None:
            self._body = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, spec.pushes.body)
            if self._body < 0:
                raise AndanteError(
                    f"robot model {spec.robot_name!r} has no body {spec.pushes.body!r} to push"
                )
        self._drawn = torch.full((num_worlds, 2), -1, device=device)
        """Episode and first tick of the interval that was drawn for last."""
        self._begin = torch.zeros(num_worlds, dtype=torch.int64, device=device)
        self._force = torch.zeros(num_worlds, 2, device=device)

    def forces(
        self, episode: Tensor, tick: Tensor, n: int, draws: Callable[[Tensor, Tensor], Draws]
    ) -> dict[int, Tensor] | None:
        """By body, force and torque along the world's axes [B, n, 6] at n ticks from `tick` [B] on.

        `draws` gives those of some worlds at a tick each. None where nobody is pushed.
        """
        if self._pushes is None:
            return None
        ticks = tick[:, None] + torch.arange(n, device=tick.device)
        within = ticks % self._pushes.interval_ticks
        begin, force = self._plan(episode, ticks - within, draws)
        active = (within >= begin) & (within < begin + self._pushes.duration_ticks)
        if not active.any():
            return None
        wrench = torch.zeros(len(tick), n, 6, device=tick.device)
        wrench[..., :2] = force * active[..., None]
        return {self._body: wrench}

    def _plan(
        self, episode: Tensor, interval: Tensor, draws: Callable[[Tensor, Tensor], Draws]
    ) -> tuple[Tensor, Tensor]:
        """When within its interval the shove begins, and its force: [B, n] and [B, n, 2] at each tick."""
        n = interval.shape[1]
        begin, force = self._begin[:, None].repeat(1, n), self._force[:, None].repeat(1, n, 1)
        first = torch.stack((episode, interval[:, 0]), 1)
        fresh = torch.cat(((first != self._drawn).any(1, keepdim=True), interval.diff(dim=1) != 0), 1)
        if fresh.any():
            worlds, offset = fresh.nonzero(as_tuple=True)
            moments, forces = self._draw(draws(worlds, interval[worlds, offset]))
            for i in sorted(set(offset.tolist())):
                now = offset == i
                begin[worlds[now], i:] = moments[now, None]
                force[worlds[now], i:] = forces[now, None]
            self._drawn = torch.stack((episode, interval[:, -1]), 1)
            self._begin, self._force = begin[:, -1].clone(), force[:, -1].clone()
        return begin, force

    def _draw(self, draws: Draws) -> tuple[Tensor, Tensor]:
        assert self._pushes is not None
        moment, size, direction = draws.uniform("push", 3).unbind(1)
        room = self._pushes.interval_ticks - self._pushes.duration_ticks + 1
        angle = 2 * torch.pi * direction
        force = torch.stack((angle.cos(), angle.sin()), 1) * (self._pushes.force * size)[:, None]
        return (moment * room).long(), force.float()

"""The shoves that each world gets, drawn anew in every interval."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import torch
from torch import Tensor

from andante.runtime.errors import AndanteError

from .randomness import Ahead, Draws
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
        self._first, self._later = (Ahead(self._draw) for _ in range(2))
        self._known = True
        """Whether what follows is of the intervals that the worlds are in."""
        self._shove = torch.zeros(num_worlds, 3, device=device)

    def forget(self) -> None:
        """The worlds' ticks will not go on from where they were."""
        self._known = False

    def restart(self, worlds: Tensor, draws: Draws, following: Callable[[], Draws]) -> None:
        """Begin an episode in `worlds` [k] with `draws` at tick 0; `following`: next episodes' of all."""
        if self._pushes is not None:
            self._shove[worlds] = self._first(worlds, draws, following)

    def forces(
        self, tick: Tensor, n: int, draws: Callable[[Tensor, Tensor], Draws]
    ) -> dict[int, Tensor] | None:
        """By body, force and torque along the world's axes [B, n, 6] at n ticks from `tick` [B] on.

        `draws` gives those of some worlds at a tick each. None where nobody is pushed.
        """
        if self._pushes is None:
            return None
        ticks = tick[:, None] + torch.arange(n, device=tick.device)
        within = ticks % self._pushes.interval_ticks
        shove = self._plan(ticks, within, draws)
        since = within - shove[..., 0]
        active = (since >= 0) & (since < self._pushes.duration_ticks)
        if not active.any():
            return None
        wrench = torch.zeros(len(tick), n, 6, device=tick.device)
        torch.mul(shove[..., 1:], active[..., None], out=wrench[..., :2])
        return {self._body: wrench}

    def _plan(self, ticks: Tensor, within: Tensor, draws: Callable[[Tensor, Tensor], Draws]) -> Tensor:
        """What `_draw` gave for the interval of each tick [B, n, 3]."""
        assert self._pushes is not None
        fresh = (within == 0) & (ticks > 0)
        if not self._known:
            fresh[:, 0], self._known = True, True
        worlds, offset = fresh.nonzero(as_tuple=True)
        shove = self._shove[:, None].expand(-1, ticks.shape[1], -1)
        if len(worlds):
            begin, interval = ticks - within, self._pushes.interval_ticks
            drawn = self._later(
                worlds,
                draws(worlds, begin[worlds, offset]),
                lambda: draws(torch.arange(len(ticks), device=ticks.device), begin[:, -1] + interval),
            )
            shove = shove.clone()
            for i in sorted(set(offset.tolist())):
                now = offset == i
                shove[worlds[now], i:] = drawn[now, None]
            self._shove = shove[:, -1]
        return shove

    def _draw(self, draws: Draws) -> Tensor:
        """When within its interval a shove begins, and its force along x and y [k, 3]."""
        assert self._pushes is not None
        moment, size, direction = draws.uniform("push", 3).unbind(1)
        room = self._pushes.interval_ticks - self._pushes.duration_ticks + 1
        force, angle = self._pushes.force * size, 2 * torch.pi * direction
        return torch.stack(((moment * room).floor(), force * angle.cos(), force * angle.sin()), 1).float()

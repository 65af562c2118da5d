"""What `Hopper-v5` and `Walker2d-v5` share: everything but when they are healthy."""

from __future__ import annotations

from collections.abc import Callable

import mujoco
import torch
from torch import Tensor

from ...spec.gymnasium import gymnasium_spec
from ...task import Functions, Task, Ticks
from .terms import control_cost, forward_velocity, planar_observation

MAX_VELOCITY = 10.0
"""That is shown."""


def planar_task(name: str, critic_size: int, healthy: Callable[[Ticks], Tensor]) -> Task:
    """The task `name`, which ends where it is not `healthy` (bool [B, n]).

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    spec = gymnasium_spec(name)

    def reward(ticks: Ticks) -> dict[str, Tensor]:
        return {
            "forward": forward_velocity(ticks, spec.control_dt),
            "healthy": healthy(ticks).to(ticks.qpos.dtype),
            "control": control_cost(ticks, 1e-3),
        }

    def bind(model: mujoco.MjModel) -> Functions:
        return Functions(
            reward,
            lambda ticks: ~healthy(ticks),
            lambda ticks: planar_observation(ticks, MAX_VELOCITY),
            readings={"clipped_velocity": lambda ticks: ticks.qvel.clamp(-MAX_VELOCITY, MAX_VELOCITY)},
        )

    return Task(spec, critic_size, bind, torch.float64)

"""`Walker2d-v5`: Gymnasium's, equal to 1e-6. Critic and actor both see its observation."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ...spec.gymnasium import gymnasium_spec
from ...task import Functions, Task, Ticks
from .terms import between, control_cost, forward_velocity, planar_observation

MAX_VELOCITY = 10.0
"""That is shown."""


def task() -> Task:
    """The task.

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    spec = gymnasium_spec("Walker2d-v5")

    def healthy(ticks: Ticks) -> Tensor:
        return between(ticks.qpos[..., 1], 0.8, 2.0) & between(ticks.qpos[..., 2], -1.0, 1.0)

    def reward(ticks: Ticks) -> dict[str, Tensor]:
        return {
            "forward": forward_velocity(ticks, spec.control_dt),
            "healthy": healthy(ticks).to(ticks.qpos.dtype),
            "control": control_cost(ticks, 1e-3),
        }

    def critic(ticks: Ticks) -> Tensor:
        return planar_observation(ticks, MAX_VELOCITY)

    def bind(model: mujoco.MjModel) -> Functions:
        return Functions(
            reward,
            lambda ticks: ~healthy(ticks),
            critic,
            readings={"clipped_velocity": lambda ticks: ticks.qvel.clamp(-MAX_VELOCITY, MAX_VELOCITY)},
        )

    return Task(spec, 17, bind, torch.float64)

"""`HalfCheetah-v5`: Gymnasium's, equal to 1e-6. Critic and actor both see its observation."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ...spec.gymnasium import gymnasium_spec
from ...task import Functions, Task, Ticks
from .terms import control_cost, forward_velocity, planar_observation


def task() -> Task:
    """The task.

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    spec = gymnasium_spec("HalfCheetah-v5")

    def reward(ticks: Ticks) -> dict[str, Tensor]:
        return {"forward": forward_velocity(ticks, spec.control_dt), "control": control_cost(ticks, 0.1)}

    def terminated(ticks: Ticks) -> Tensor:
        return torch.zeros_like(ticks.tick, dtype=torch.bool)

    def bind(model: mujoco.MjModel) -> Functions:
        return Functions(reward, terminated, planar_observation)

    return Task(spec, 17, bind, torch.float64)

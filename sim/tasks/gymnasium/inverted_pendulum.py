"""`InvertedPendulum-v5`: Gymnasium's, equal to 1e-6. Critic and actor both see its observation."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ...spec.gymnasium import gymnasium_spec
from ...task import Functions, Task, Ticks

MAX_LEAN = 0.2
"""rad."""


def task() -> Task:
    """The task.

    Raises:
        AndanteError: Gymnasium is not installed.
    """

    def terminated(ticks: Ticks) -> Tensor:
        return ticks.qpos[..., 1].abs() > MAX_LEAN

    def reward(ticks: Ticks) -> dict[str, Tensor]:
        return {"upright": (~terminated(ticks)).to(ticks.qpos.dtype)}

    def critic(ticks: Ticks) -> Tensor:
        return torch.cat((ticks.qpos, ticks.qvel), -1)

    def bind(model: mujoco.MjModel) -> Functions:
        return Functions(reward, terminated, critic)

    return Task(gymnasium_spec("InvertedPendulum-v5"), 4, bind, torch.float64)

"""Reward, termination and critic state of `pendulum-swingup-blind`."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ..spec.describe import describe
from ..spec.pendulum import PENDULUM, SLOW
from ..task import Functions, Task, Ticks

__doc__ = f"{__doc__}\n\n{describe(PENDULUM)}"


def reward(ticks: Ticks) -> dict[str, Tensor]:
    """High only upright and slow: spinning through the top does not pay."""
    upright = (1 + ticks.qpos[..., 0].cos()) / 2
    return {"upright": upright.square() * (-(ticks.qvel[..., 0] / SLOW).square()).exp()}


def terminated(ticks: Ticks) -> Tensor:
    """Never."""
    return torch.zeros(ticks.tick.shape, dtype=torch.bool, device=ticks.tick.device)


def critic(ticks: Ticks) -> Tensor:
    """Sine and cosine of the angle, and the speed that the policy has to remember."""
    return torch.cat((ticks.qpos.sin(), ticks.qpos.cos(), ticks.qvel / 5), -1)


def bind(model: mujoco.MjModel) -> Functions:
    """The task's functions; the hinge is all that moves."""
    return Functions(reward, terminated, critic)


TASK = Task(PENDULUM, 3, bind)

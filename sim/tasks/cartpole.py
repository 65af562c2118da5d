"""Reward, termination and critic state of `cartpole-swingup-blind`."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ..spec.cartpole import CARTPOLE, RAIL, SLOW
from ..spec.describe import describe
from ..task import Functions, Task, Ticks

__doc__ = f"{__doc__}\n\n{describe(CARTPOLE)}"


def reward(ticks: Ticks) -> dict[str, Tensor]:
    """High only with the pole upright and slow, more so near the middle of the rail."""
    upright = (1 + ticks.qpos[..., 1].cos()) / 2
    slow = (-(ticks.qvel[..., 1] / SLOW).square()).exp()
    centred = 1 - (ticks.qpos[..., 0] / RAIL).square().clamp(max=1) / 2
    return {"upright": upright.square() * slow * centred}


def terminated(ticks: Ticks) -> Tensor:
    """The cart is off its rail."""
    return ticks.qpos[..., 0].abs() > RAIL


def critic(ticks: Ticks) -> Tensor:
    """Cart position, sine and cosine of the pole, and both speeds."""
    cart, pole = ticks.qpos[..., :1], ticks.qpos[..., 1:]
    return torch.cat(
        (cart / RAIL, pole.sin(), pole.cos(), ticks.qvel[..., :1] / 2, ticks.qvel[..., 1:] / 5), -1
    )


def bind(model: mujoco.MjModel) -> Functions:
    """The task's functions; slider and pole are all that move."""
    return Functions(reward, terminated, critic)


TASK = Task(CARTPOLE, 5, bind)

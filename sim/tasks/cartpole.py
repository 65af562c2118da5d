"""Reward, termination and critic state of `cartpole-swingup-blind`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..spec.cartpole import CARTPOLE, RAIL, SLOW
from ..spec.describe import describe
from ..task import Task

__doc__ = f"{__doc__}\n\n{describe(CARTPOLE)}"


def reward(qpos: Tensor, qvel: Tensor) -> Tensor:
    """High only with the pole upright and slow, more so near the middle of the rail."""
    upright = (1 + qpos[..., 1].cos()) / 2
    slow = (-(qvel[..., 1] / SLOW).square()).exp()
    centred = 1 - (qpos[..., 0] / RAIL).square().clamp(max=1) / 2
    return upright.square() * slow * centred


def terminated(qpos: Tensor, qvel: Tensor) -> Tensor:
    """The cart is off its rail."""
    return qpos[..., 0].abs() > RAIL


def critic(qpos: Tensor, qvel: Tensor) -> Tensor:
    """Cart position, sine and cosine of the pole, and both speeds."""
    cart, pole = qpos[..., :1], qpos[..., 1:]
    return torch.cat((cart / RAIL, pole.sin(), pole.cos(), qvel[..., :1] / 2, qvel[..., 1:] / 5), -1)


TASK = Task(CARTPOLE, 5, reward, terminated, critic)

"""Reward, termination and critic state of `pendulum-swingup-blind`."""

from __future__ import annotations

import torch
from torch import Tensor

from ..spec.describe import describe
from ..spec.pendulum import PENDULUM, SLOW
from ..task import Task

__doc__ = f"{__doc__}\n\n{describe(PENDULUM)}"


def reward(qpos: Tensor, qvel: Tensor) -> Tensor:
    """High only upright and slow: spinning through the top does not pay."""
    upright = (1 + qpos[..., 0].cos()) / 2
    return upright.square() * (-(qvel[..., 0] / SLOW).square()).exp()


def terminated(qpos: Tensor, qvel: Tensor) -> Tensor:
    """Never."""
    return torch.zeros(qpos.shape[:-1], dtype=torch.bool, device=qpos.device)


def critic(qpos: Tensor, qvel: Tensor) -> Tensor:
    """Sine and cosine of the angle, and the speed that the policy has to remember."""
    return torch.cat((qpos.sin(), qpos.cos(), qvel / 5), -1)


TASK = Task(PENDULUM, 3, reward, terminated, critic)

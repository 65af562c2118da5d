"""Reward, termination and critic state of `arm-push`."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ..spec.arm import SCALE
from ..spec.arm_push import ARM_PUSH, FAR, GOAL_RADIUS, NEAR, READY, SIDE
from ..spec.describe import describe
from ..task import Functions, Task, Ticks

__doc__ = f"{__doc__}\n\n{describe(ARM_PUSH)}"

ARM, PUCK = slice(0, 6), slice(6, 8)
"""Columns of `qpos` and `qvel`: the puck's joints come after the arm's, x and y first."""


def reward(ticks: Ticks) -> dict[str, Tensor]:
    """Whether the puck lies at the target."""
    distance = (ticks.qpos[..., PUCK] - ticks.command).norm(dim=-1)
    return {"goal": (distance < GOAL_RADIUS).float()}


def terminated(ticks: Ticks) -> Tensor:
    """The puck has left the part of the table where the arm can bring it back."""
    x, y = ticks.qpos[..., PUCK].unbind(-1)
    return (x < NEAR) | (x > FAR) | (y.abs() > SIDE)


def critic(ticks: Ticks) -> Tensor:
    """Joints, the last action, the tip, the puck and its speed, the target, and what is between them."""
    ready, scale = (ticks.qpos.new_tensor(values) for values in (READY, SCALE))
    joints, speeds = (ticks.qpos[..., ARM] - ready) / scale, 0.5 * ticks.qvel[..., ARM]
    tip, puck, target = ticks.sensors["tip_position"], ticks.qpos[..., PUCK], ticks.command
    parts = (
        *(joints, speeds, (ticks.action - ready) / scale),
        *(2 * tip, 2 * puck, 4 * ticks.qvel[..., PUCK], 2 * target),
        *(4 * (puck - tip[..., :2]), 4 * (target - puck)),
    )
    return torch.cat(parts, -1)


def bind(model: mujoco.MjModel) -> Functions:
    """The task's functions."""
    return Functions(reward, terminated, critic)


TASK = Task(ARM_PUSH, 31, bind)

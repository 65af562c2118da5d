"""Reward and critic state of `arm-reach`."""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ..spec.arm import SCALE
from ..spec.arm_reach import ARM_REACH, CENTER, NEAR
from ..spec.describe import describe
from ..task import Functions, Task, Ticks

__doc__ = f"{__doc__}\n\n{describe(ARM_REACH)}"


def reward(ticks: Ticks) -> dict[str, Tensor]:
    """Linear in the distance from afar, a bonus that grows when near, and a price on jerky targets."""
    distance = (ticks.sensors["tip_position"] - ticks.command).norm(dim=-1)
    return {
        "distance": -distance,
        "near": (-(distance / NEAR).square()).exp(),
        "smoothness": -0.02 * ticks.action_difference(1).square().sum(-1),
    }


def terminated(ticks: Ticks) -> Tensor:
    """Never."""
    return torch.zeros(ticks.tick.shape, dtype=torch.bool, device=ticks.tick.device)


def critic(ticks: Ticks) -> Tensor:
    """Joints, the last action, where the tip is, where it should be and what is between."""
    tip, target = ticks.sensors["tip_position"], ticks.command
    center, scale = (ticks.qpos.new_tensor(values) for values in (CENTER, SCALE))
    joints = (ticks.qpos - center) / scale, 0.5 * ticks.qvel, (ticks.action - center) / scale
    return torch.cat((*joints, 2 * tip, 2 * target, 4 * (target - tip)), -1)


def bind(model: mujoco.MjModel) -> Functions:
    """The task's functions; the arm is all that moves."""
    return Functions(reward, terminated, critic)


TASK = Task(ARM_REACH, 27, bind)

"""Reward, termination and critic state of `quadrotor-hover`."""

from __future__ import annotations

import math

import mujoco
import torch
from torch import Tensor

from ..spec.describe import describe
from ..spec.quadrotor import FAR, GROUND, HOVER, QUADROTOR, RANGE, SPOT, TARGET, TILT
from ..task import Functions, Task, Ticks

__doc__ = f"{__doc__}\n\n{describe(QUADROTOR)}"


def reward(ticks: Ticks) -> dict[str, Tensor]:
    """High at the target; swinging, spinning and nervous rotors cost."""
    up = _up(ticks)
    return {
        "position": 1 / (1 + (_offset(ticks) / SPOT).square().sum(-1)),
        "tilt": -0.1 * (1 - up[..., 2].square()),
        "spin": -0.02 * ticks.qvel[..., 3:].square().sum(-1),
        "velocity": -0.05 * ticks.qvel[..., :3].square().sum(-1),
        "smoothness": -0.02 * ticks.action_difference(1).square().sum(-1),
    }


def terminated(ticks: Ticks) -> Tensor:
    """Crashed, toppled or gone."""
    toppled = _up(ticks)[..., 2] < math.cos(math.radians(TILT))
    lost: Tensor = (ticks.qpos[..., 2] < GROUND) | toppled | (_offset(ticks).norm(dim=-1) > FAR)
    return lost


def critic(ticks: Ticks) -> Tensor:
    """Position and velocity in the world, the body's axes, its spin, and the rotors' last commands."""
    forward = _turn(ticks.qpos[..., 3:7], ticks.qpos.new_tensor([1.0, 0.0, 0.0]))
    parts = (
        *(2 * _offset(ticks), ticks.qvel[..., :3], 2 * _up(ticks), forward),
        *(0.3 * ticks.qvel[..., 3:], (ticks.action - HOVER) / RANGE),
    )
    return torch.cat(parts, -1)


def bind(model: mujoco.MjModel) -> Functions:
    """The task's functions; the free trunk is all that moves."""
    return Functions(reward, terminated, critic)


def _offset(ticks: Ticks) -> Tensor:
    return ticks.qpos[..., :3] - ticks.qpos.new_tensor(TARGET)


def _up(ticks: Ticks) -> Tensor:
    """The body's z axis in the world."""
    return _turn(ticks.qpos[..., 3:7], ticks.qpos.new_tensor([0.0, 0.0, 1.0]))


def _turn(quaternion: Tensor, vector: Tensor) -> Tensor:
    """A vector of the body [3], along the world's axes [..., 3]; quaternion w, x, y, z [..., 4]."""
    w, axis = quaternion[..., :1], quaternion[..., 1:]
    twice = 2 * torch.linalg.cross(axis, vector.expand_as(axis))
    turned: Tensor = vector + w * twice + torch.linalg.cross(axis, twice)
    return turned


TASK = Task(QUADROTOR, 19, bind)

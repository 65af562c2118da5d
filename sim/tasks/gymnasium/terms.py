"""Reward terms and observations that several of Gymnasium's tasks have in common."""

from __future__ import annotations

import torch
from torch import Tensor

from ...task import Ticks


def forward_velocity(ticks: Ticks, control_dt: float) -> Tensor:
    """Mean velocity along x during each tick, m/s [B, n]; its first coordinate is x."""
    return (ticks.qpos[..., 0] - ticks.qpos_before[..., 0]) / control_dt


def control_cost(ticks: Ticks, weight: float) -> Tensor:
    """-weight * |action|^2, [B, n]."""
    return -weight * ticks.action.square().sum(-1)


def planar_observation(ticks: Ticks, clip: float | None = None) -> Tensor:
    """Positions but for x, then velocities, which may be clipped: [B, n, nq - 1 + nv]."""
    velocity = ticks.qvel if clip is None else ticks.qvel.clamp(-clip, clip)
    return torch.cat((ticks.qpos[..., 1:], velocity), -1)


def between(values: Tensor, low: float, high: float) -> Tensor:
    """Whether low < value < high; false for NaN."""
    return (low < values) & (values < high)

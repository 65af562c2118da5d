"""`Hopper-v5`: Gymnasium's, equal to 1e-6. Critic and actor both see its observation."""

from __future__ import annotations

import torch
from torch import Tensor

from ...task import Task, Ticks
from .planar import planar_task
from .terms import between


def healthy(ticks: Ticks) -> Tensor:
    """Upright, high enough, and within bounds [B, n]."""
    height, pitch = ticks.qpos[..., 1], ticks.qpos[..., 2]
    in_bounds = between(torch.cat((ticks.qpos[..., 2:], ticks.qvel), -1), -100.0, 100.0).all(-1)
    return in_bounds & (height > 0.7) & between(pitch, -0.2, 0.2)


def task() -> Task:
    """The task.

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    return planar_task("Hopper-v5", 11, healthy)

"""`Walker2d-v5`: Gymnasium's, equal to 1e-6. Critic and actor both see its observation."""

from __future__ import annotations

from torch import Tensor

from ...task import Task, Ticks
from .planar import planar_task
from .terms import between


def healthy(ticks: Ticks) -> Tensor:
    """Upright, and neither low nor in the air [B, n]."""
    return between(ticks.qpos[..., 1], 0.8, 2.0) & between(ticks.qpos[..., 2], -1.0, 1.0)


def task() -> Task:
    """The task.

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    return planar_task("Walker2d-v5", 17, healthy)

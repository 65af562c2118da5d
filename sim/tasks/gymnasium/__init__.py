"""Gymnasium's MuJoCo tasks, version 5, over batched state; see `spec.gymnasium` for the declarations."""

from __future__ import annotations

from collections.abc import Callable

from ...task import Task
from . import ant, half_cheetah, hopper, inverted_pendulum, walker2d

GYMNASIUM: dict[str, Callable[[], Task]] = {
    "HalfCheetah-v5": half_cheetah.task,
    "Hopper-v5": hopper.task,
    "Walker2d-v5": walker2d.task,
    "Ant-v5": ant.task,
    "InvertedPendulum-v5": inverted_pendulum.task,
}
"""Name -> what makes the task, if Gymnasium is installed."""

"""The torch half of a task: functions over batched true state that know nothing of chunks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from .randomness import Draws
from .spec.task import TaskSpec


@dataclass(frozen=True)
class Task:
    """`qpos` and `qvel` are float32 [..., nq] and [..., nv] in the order of the robot model's joints."""

    spec: TaskSpec
    critic_size: int
    """C."""
    reward: Callable[[Tensor, Tensor], Tensor]
    """(qpos, qvel) after a tick -> reward of the tick [...], float32."""
    terminated: Callable[[Tensor, Tensor], Tensor]
    """(qpos, qvel) after a tick -> whether the episode ends there for good [...], bool."""
    critic: Callable[[Tensor, Tensor], Tensor]
    """(qpos, qvel) -> what the critic sees of the true state [..., C], float32, of order one."""

    def initial_state(self, draws: Draws) -> tuple[Tensor, Tensor]:
        """qpos [B, nq] and qvel [B, nv] at the start of an episode, float64."""
        start = self.spec.start
        middle = torch.tensor([[joint.position for joint in start], [0.0] * len(start)], dtype=torch.float64)
        spread = torch.tensor(
            [[joint.position_spread for joint in start], [joint.velocity_spread for joint in start]],
            dtype=torch.float64,
        )
        noise = 2 * draws.uniform("initial_state", 2 * len(start)) - 1
        qpos, qvel = (middle + spread * noise.view(-1, 2, len(start))).unbind(1)
        return qpos, qvel

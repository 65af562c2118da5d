"""`Ant-v5`: Gymnasium's. Critic and actor both see its observation.

Positions and velocities, the end and the control's share of the reward are equal to 1e-6. Two things differ,
since Gymnasium takes them from intermediate results of MuJoCo's last Runge-Kutta stage, which no state holds:

- Contact forces are those at the start of the tick's last physics step. Nearly all are either zero or
  clipped, so they agree but where a contact begins or ends; their cost, at most 0.04, differs by less.
- The forward velocity is that of the final positions; Gymnasium's are those of the last stage.
"""

from __future__ import annotations

import mujoco
import torch
from torch import Tensor

from ...spec.gymnasium import ANT_BODIES, gymnasium_spec
from ...task import Functions, Task, Ticks
from .terms import control_cost, forward_velocity


def contact_forces(ticks: Ticks) -> Tensor:
    """Torque and force on every body, about the centre of mass, clipped to +-1: [B, n, 6 bodies]."""
    net = torch.stack([ticks.sensors[f"contact_{i}"] for i in range(ANT_BODIES)], -2)
    force, torque, position = net[..., :3], net[..., 3:6], net[..., 6:]
    lever = position - ticks.sensors["centre_of_mass"].unsqueeze(-2)
    # The sensor tells what the body does to the floor.
    wrench = -torch.cat((torque + torch.linalg.cross(lever, force), force), -1)
    return wrench.clamp(-1.0, 1.0).flatten(-2)


def task() -> Task:
    """The task.

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    spec = gymnasium_spec("Ant-v5")

    def healthy(ticks: Ticks) -> Tensor:
        height = ticks.qpos[..., 2]
        return (height >= 0.2) & (height <= 1.0)

    def reward(ticks: Ticks) -> dict[str, Tensor]:
        return {
            "forward": forward_velocity(ticks, spec.control_dt),
            "healthy": healthy(ticks).to(ticks.qpos.dtype),
            "control": control_cost(ticks, 0.5),
            "contact": -5e-4 * contact_forces(ticks).square().sum(-1),
        }

    def critic(ticks: Ticks) -> Tensor:
        return torch.cat((ticks.qpos[..., 2:], ticks.qvel, contact_forces(ticks)), -1)

    def bind(model: mujoco.MjModel) -> Functions:
        return Functions(
            reward,
            lambda ticks: ~healthy(ticks),
            critic,
            readings={
                "torso_pose": lambda ticks: ticks.qpos[..., 2:7],
                "torso_velocity": lambda ticks: ticks.qvel[..., :6],
                "contact_forces": contact_forces,
            },
        )

    return Task(spec, 27 + 6 * ANT_BODIES, bind, torch.float64)

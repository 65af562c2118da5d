"""`twolink-raise`, a task of another package: raise an arm of two links, and hold it up."""

from __future__ import annotations

from pathlib import Path

import mujoco
import torch
from torch import Tensor

from andante.runtime.contract import ActionTerm, Source
from andante.sim.spec import Feature, JointStart, TaskSpec
from andante.sim.task import Functions, Task, Ticks

JOINTS = ("shoulder", "elbow")
MAX_AGE_NS = 60_000_000

SPEC = TaskSpec(
    name="twolink-raise",
    summary="raise an arm of two links, and hold it up",
    robot_model=str(Path(__file__).with_name("twolink.xml")),
    control_period_ns=20_000_000,
    decimation=4,
    episode_ticks=250,
    sources=(
        Source(name="q", kind="joint_position", joints=JOINTS, unit="rad", max_age_ns=MAX_AGE_NS),
        Source(name="dq", kind="joint_velocity", joints=JOINTS, unit="rad/s", max_age_ns=MAX_AGE_NS),
    ),
    features=(Feature("q"), Feature("dq", scale=0.2)),
    actions=(
        ActionTerm(
            name="torque",
            kind="effort",
            joints=JOINTS,
            unit="N m",
            low=(-6.0, -3.0),
            high=(6.0, 3.0),
            kp=(0.0, 0.0),
            kd=(0.0, 0.0),
            closed_by="drive",
        ),
    ),
    start=tuple(JointStart(joint, 0.0, position_spread=1.5, velocity_spread=0.5) for joint in JOINTS),
    reward="exp(-|joints|^2) * exp(-|joint speeds / 5 rad/s|^2), in [0, 1]",
    termination="none",
)


def reward(ticks: Ticks) -> dict[str, Tensor]:
    """Terms of the reward by name [B, n]: here one."""
    still = (ticks.qvel / 5.0).square().sum(-1)
    return {"raised": (-ticks.qpos.square().sum(-1) - still).exp()}


def terminated(ticks: Ticks) -> Tensor:
    """Whether the episode ends there for good, bool [B, n]: never."""
    return torch.zeros(ticks.tick.shape, dtype=torch.bool, device=ticks.tick.device)


def critic(ticks: Ticks) -> Tensor:
    """What the critic sees of the true state [B, n, 4], of order one."""
    return torch.cat((ticks.qpos, ticks.qvel / 5.0), -1)


def bind(model: mujoco.MjModel) -> Functions:
    """The task's functions for a compiled model: here nothing has to be looked up in it."""
    return Functions(reward, terminated, critic)


TASK = Task(SPEC, critic_size=4, bind=bind)

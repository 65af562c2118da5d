"""`arm-push`: push a puck over the table to a target; the reward tells only whether it lies there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from andante.runtime.contract import Source

from .arm import JOINT_SOURCES, JOINTS, POSITION_TARGETS, SCALE, joint_features, target_source
from .task import CommandSampling, Feature, JointStart, TaskSpec

if TYPE_CHECKING:
    import mujoco

READY = (0.0, 0.3, 2.1, 0.0, 0.74, 0.0)
"""Where the arm starts, rad, and what an action of zero means: the tool hangs down, near the base."""
RADIUS, HEIGHT = 0.04, 0.05
"""Of the puck, m."""
MASS = 0.2
"""kg."""
GOAL_RADIUS = 0.04
"""A puck whose middle is this near to the target lies there, m."""
NEAR, FAR, SIDE = 0.15, 0.75, 0.45
"""The puck must stay between these distances along x, and within this one along y, m."""
LOW, HIGH = (0.46, -0.2), (0.56, 0.2)
"""Opposite corners of the targets' rectangle, m; the puck starts nearer to the base."""
PUCK_JOINTS = ("puck_x", "puck_y", "puck_z", "puck_yaw")

TARGET, TARGET_FEATURE = target_source(LOW, HIGH)
PUCK = Source(name="puck_position", kind="position", frame="puck", unit="m", max_age_ns=100_000_000)


def add_puck(model: mujoco.MjSpec) -> None:
    """Lay a puck on the table that slides and turns, but does not tip; its joints read its position, m."""
    import mujoco

    puck = model.worldbody.add_body(name="puck")
    kinds = (mujoco.mjtJoint.mjJNT_SLIDE,) * 3 + (mujoco.mjtJoint.mjJNT_HINGE,)
    axes = ((1, 0, 0), (0, 1, 0), (0, 0, 1), (0, 0, 1))
    for name, kind, axis in zip(PUCK_JOINTS, kinds, axes, strict=True):
        puck.add_joint(name=name, type=kind, axis=axis)
    puck.add_geom(
        name="puck",
        type=mujoco.mjtGeom.mjGEOM_CYLINDER,
        size=(RADIUS, HEIGHT / 2, 0),
        mass=MASS,
        contype=1,
        conaffinity=1,
        friction=(0.4, 0.005, 0.0001),
        rgba=(0.3, 0.65, 0.35, 1),
    )


ARM_PUSH = TaskSpec(
    name="arm-push",
    # Little above chance: noise does not find so rare a reward. It is for learning from demonstrations.
    expected=(2.0, 12.0),
    summary="push a puck over the table to a target; the reward tells only whether it lies there",
    robot_model="arm",
    control_period_ns=20_000_000,
    decimation=4,
    episode_ticks=400,
    sources=(*JOINT_SOURCES, PUCK, TARGET),
    features=(
        *joint_features(READY),
        Feature("puck_position", scale=5.0, offset=(0.45, 0.0, 0.025)),
        TARGET_FEATURE,
    ),
    actions=(POSITION_TARGETS,),
    start=(
        *(JointStart(joint, position, 0.03, 0.0) for joint, position in zip(JOINTS, READY, strict=True)),
        JointStart("puck_x", 0.36, position_spread=0.04, velocity_spread=0.0),
        JointStart("puck_y", 0.0, position_spread=0.15, velocity_spread=0.0),
        JointStart("puck_z", HEIGHT / 2, position_spread=0.0, velocity_spread=0.0),
        JointStart("puck_yaw", 0.0, position_spread=0.0, velocity_spread=0.0),
    ),
    reward=f"1 while the puck's middle is within {GOAL_RADIUS} m of the target, else 0",
    termination=f"the puck's x leaves [{NEAR}, {FAR}] m, or its y [-{SIDE}, {SIDE}] m",
    action_center=READY,
    action_scale=SCALE,
    command=CommandSampling(interval_ticks=400),
    edit_model=add_puck,
)

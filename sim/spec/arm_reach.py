"""`arm-reach`: bring the tip of a six-joint arm to a target in the air, and hold it there."""

from __future__ import annotations

from .arm import JOINT_SOURCES, JOINTS, POSITION_TARGETS, SCALE, joint_features, target_source
from .task import CommandSampling, JointStart, TaskSpec

CENTER = (0.0, 0.6, 1.5, 0.0, 0.9, 0.0)
"""Where the arm starts, rad, and what an action of zero means: the tool hangs down in front of the arm."""
NEAR = 0.04
"""Distance at which the bonus is down to 1/e, m."""
LOW, HIGH = (0.3, -0.3, 0.1), (0.6, 0.3, 0.5)
"""Opposite corners of the box of targets, m; all of it is within the arm's reach."""

TARGET, TARGET_FEATURE = target_source(LOW, HIGH)

ARM_REACH = TaskSpec(
    name="arm-reach",
    expected=(200.0, 280.0),
    summary="bring the tip of a six-joint arm to a target in the air, and hold it there",
    robot_model="arm",
    control_period_ns=20_000_000,
    decimation=4,
    episode_ticks=300,
    sources=(*JOINT_SOURCES, TARGET),
    features=(*joint_features(CENTER), TARGET_FEATURE),
    actions=(POSITION_TARGETS,),
    start=tuple(
        JointStart(joint, position, position_spread=0.3, velocity_spread=0.0)
        for joint, position in zip(JOINTS, CENTER, strict=True)
    ),
    reward=(
        f"- distance / m + exp(-(distance / {NEAR} m)^2) - 0.02 |change of action / rad|^2, "
        "distance from the tip to the target; at most 1"
    ),
    termination="none",
    action_center=CENTER,
    action_scale=SCALE,
    command=CommandSampling(interval_ticks=150),
)

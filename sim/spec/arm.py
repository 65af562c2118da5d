"""What the tasks of the six-joint arm share: joints, drives, limits and what the arm measures."""

from __future__ import annotations

from andante.runtime.contract import ActionTerm, CommandComponent, Source

from .task import Feature

JOINTS = ("shoulder_pan", "shoulder_lift", "elbow", "forearm_roll", "wrist_pitch", "wrist_roll")
SCALE = (0.8, 0.6, 0.6, 0.6, 0.6, 0.6)
"""What an action of one adds to the position targets, rad."""
MAX_AGE_NS = 50_000_000

POSITION_TARGETS = ActionTerm(
    name="position_target",
    kind="position",
    joints=JOINTS,
    unit="rad",
    low=(-2.0, -0.6, 0.2, -1.2, -1.0, -1.2),
    high=(2.0, 1.6, 2.5, 1.2, 2.0, 1.2),
    kp=(600.0, 600.0, 400.0, 80.0, 80.0, 30.0),
    kd=(40.0, 40.0, 25.0, 4.0, 4.0, 1.5),
    closed_by="drive",
)

JOINT_SOURCES = (
    Source(name="joint_position", kind="joint_position", joints=JOINTS, unit="rad", max_age_ns=MAX_AGE_NS),
    Source(name="joint_velocity", kind="joint_velocity", joints=JOINTS, unit="rad/s", max_age_ns=MAX_AGE_NS),
    Source(name="executed_action", kind="executed_action", joints=JOINTS, unit="", stage="after_limits"),
)


def joint_features(center: tuple[float, ...]) -> tuple[Feature, ...]:
    """Of `JOINT_SOURCES`: joints and actions in units of the action, around what an action of zero means."""
    scale = tuple(1.0 / value for value in SCALE)
    return (
        Feature("joint_position", scale=scale, offset=center),
        Feature("joint_velocity", scale=0.5),
        Feature("executed_action", scale=scale, offset=center),
    )


def target_source(low: tuple[float, ...], high: tuple[float, ...]) -> tuple[Source, Feature]:
    """A target position that the operator names along x, y (and z) of the base, m, anywhere in a box.

    One that is not renewed becomes the middle of the box. The feature is in halves of the box around it.
    """
    middle = tuple((a + b) / 2 for a, b in zip(low, high, strict=True))
    components = tuple(
        CommandComponent(name=f"target_{axis}", unit="m", low=a, high=b, timeout_value=m)
        for axis, a, b, m in zip("xyz", low, high, middle, strict=False)
    )
    source = Source(name="target", kind="command", components=components, unit="", max_age_ns=1_000_000_000)
    scale = tuple(2.0 / (b - a) for a, b in zip(low, high, strict=True))
    return source, Feature("target", scale=scale, offset=middle)

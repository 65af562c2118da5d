"""The velocity task of a legged robot: follow a commanded velocity on flat or rough ground."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import msgspec

from andante.runtime.contract import ActionTerm, CommandComponent, Source

from ..task import BaseStart, CommandSampling, Feature, JointStart, Pushes, TaskSpec
from ..terrain import Terrain
from .robot import REWARD, LeggedJoint, LeggedRobot

if TYPE_CHECKING:  # declarations are listed where MuJoCo is not installed
    import mujoco

MAX_AGE_NS = 50_000_000
COMMAND_AGE_NS = 500_000_000
"""An older command becomes zero."""
EPISODE_S = 20.0
COMMAND_S = 10.0
STAND_SHARE = 0.1
"""Share of commands to stand still."""
SLEW = {"lin_vel_x": 2.0, "lin_vel_y": 2.0, "yaw_rate": 4.0}
"""Largest change of the command per second."""
PUSH_INTERVAL_S, PUSH_S = 5.0, 0.2
"""Time for one push, and how long it lasts."""
MAX_TILT = 1.0
"""A base that leans further ends the episode, rad."""
LOWEST = 0.5
"""A base lower than this share of its wanted height ends the episode."""


def velocity_spec(
    name: str,
    summary: str,
    robot_model: str,
    robot: LeggedRobot,
    start: tuple[JointStart, ...],
    free_joint: str = "base",
    terrain: Terrain | None = None,
    expected: tuple[float, float] | None = None,
) -> TaskSpec:
    """Declare the task.

    Args:
        name: Of the task.
        summary: One line.
        robot_model: Name or absolute path of the MJCF.
        robot: What else there is to know of it; every joint has its `target`.
        start: Of all joints of the MJCF, in its order.
        free_joint: Of the base.
        terrain: Rough ground; a plane when None.
        expected: Return of the recipe, as of `TaskSpec`.
    """
    x, y = (0.0, 0.0) if terrain is None else terrain.home
    return TaskSpec(
        name=name,
        summary=summary,
        robot_model=robot_model,
        control_period_ns=robot.control_period_ns,
        decimation=robot.decimation,
        episode_ticks=_ticks(robot, EPISODE_S),
        sources=_sources(robot),
        features=_features(robot),
        actions=(_action(robot),),
        start=start,
        base=BaseStart(free_joint, (x, y, robot.start_height), (0.2, 0.2, 0.0), yaw_spread=3.1415),
        action_center=robot.pose,
        action_scale=(robot.action_scale,) * len(robot.joints),
        command=CommandSampling(_ticks(robot, COMMAND_S), STAND_SHARE),
        pushes=_pushes(robot),
        reward=_reward(robot),
        termination=(
            f"the base touches something, leans by more than {MAX_TILT:g} rad, or is lower than "
            f"{LOWEST * robot.height:.3g} m above the ground"
        ),
        edit_model=partial(_edit, robot=robot, terrain=terrain),
        robot_licence=robot.licence,
        expected=expected,
    )


def standing(robot: LeggedRobot, spread: float = 0.1) -> tuple[JointStart, ...]:
    """The robot's joints, in its order, near their pose."""
    return tuple(JointStart(joint.name, joint.pose, spread, 0.0) for joint in robot.joints)


def _edit(spec: mujoco.MjSpec, robot: LeggedRobot, terrain: Terrain | None) -> None:
    # Not before: declarations are listed without MuJoCo.
    from .model import edit_model

    edit_model(spec, robot, terrain)


def _ticks(robot: LeggedRobot, seconds: float) -> int:
    return round(seconds * 1e9 / robot.control_period_ns)


def _sources(robot: LeggedRobot) -> tuple[Source, ...]:
    units = {"lin_vel_x": "m/s", "lin_vel_y": "m/s", "yaw_rate": "rad/s"}
    components = tuple(
        CommandComponent(name=name, unit=unit, low=low, high=high, slew=SLEW[name])
        for (name, unit), (low, high) in zip(
            units.items(), msgspec.structs.astuple(robot.command), strict=True
        )
    )
    joints = robot.joint_names
    return (
        Source(name="gyro", kind="angular_velocity", frame=robot.imu, unit="rad/s", max_age_ns=MAX_AGE_NS),
        Source(name="gravity", kind="gravity", frame=robot.imu, unit="1", max_age_ns=MAX_AGE_NS),
        Source(name="command", kind="command", components=components, unit="", max_age_ns=COMMAND_AGE_NS),
        Source(
            name="joint_position", kind="joint_position", joints=joints, unit="rad", max_age_ns=MAX_AGE_NS
        ),
        Source(
            name="joint_velocity", kind="joint_velocity", joints=joints, unit="rad/s", max_age_ns=MAX_AGE_NS
        ),
        Source(name="last_action", kind="executed_action", joints=joints, unit="", stage="after_limits"),
        Source(name="clock", kind="clock", period_ns=round(1e9 / robot.gait.frequency_hz), unit="1"),
    )


def _features(robot: LeggedRobot) -> tuple[Feature, ...]:
    return (
        Feature("gyro", scale=0.25),
        Feature("gravity"),
        Feature("command", scale=(2.0, 2.0, 1.0)),
        Feature("joint_position", offset=robot.pose),
        Feature("joint_velocity", scale=0.05),
        Feature("last_action", offset=robot.pose, scale=0.25 / robot.action_scale),
        Feature("clock", transform="turn"),
    )


def _action(robot: LeggedRobot) -> ActionTerm:
    targets = [_target(joint) for joint in robot.joints]
    return ActionTerm(
        name="joint_targets",
        kind="position",
        joints=robot.joint_names,
        unit="rad",
        low=tuple(low for low, _ in targets),
        high=tuple(high for _, high in targets),
        kp=tuple(joint.kp for joint in robot.joints),
        kd=tuple(joint.kd for joint in robot.joints),
        closed_by="drive",
    )


def _target(joint: LeggedJoint) -> tuple[float, float]:
    if joint.target is None:
        raise ValueError(f"joint {joint.name!r} has no target range")
    return joint.target


def _pushes(robot: LeggedRobot) -> Pushes | None:
    if not robot.push_force:
        return None
    return Pushes(robot.base, _ticks(robot, PUSH_INTERVAL_S), _ticks(robot, PUSH_S), robot.push_force)


def _reward(robot: LeggedRobot) -> str:
    terms = [f"{weight:g} x {name}: {REWARD[name].formula}" for name, weight in robot.reward_weights.items()]
    terms[0] = terms[0].replace("velocity width", f"{robot.velocity_width:g} m^2/s^2")
    return f"\n{' ' * 13}".join(["duration of the tick x the sum of these, at least zero", *terms])

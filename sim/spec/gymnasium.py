"""Gymnasium's MuJoCo tasks, version 5, declared for batched simulation on Gymnasium's own model files.

Physics, action, observation, reward, termination and time limit are Gymnasium's. The sources, one after the
other, are Gymnasium's observation: joints where its numbers are those of joints, readings where they are not.
Episodes start from as wide a spread, but a uniform one also where Gymnasium's is normal.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from andante.runtime.contract import ActionTerm, Source
from andante.runtime.errors import AndanteError

from .probe import reading
from .task import BaseStart, Feature, JointStart, TaskSpec

if TYPE_CHECKING:  # declarations are listed where MuJoCo is not installed
    import mujoco

EPISODE_TICKS = 1000
AS_WIDE = math.sqrt(3.0)
"""Half-width of the uniform distribution that has a standard deviation of one."""
NET_WRENCH = (0b10110, 3, 1)
"""Of a contact sensor: force, torque and position of the net contact, of all contacts together."""

CHEETAH_JOINTS = ("bthigh", "bshin", "bfoot", "fthigh", "fshin", "ffoot")
HOPPER_JOINTS = ("thigh_joint", "leg_joint", "foot_joint")
WALKER_JOINTS = (*HOPPER_JOINTS, "thigh_left_joint", "leg_left_joint", "foot_left_joint")
ANT_JOINTS = tuple(f"{joint}_{leg}" for leg in (1, 2, 3, 4) for joint in ("hip", "ankle"))
ANT_ACTUATORS = tuple(f"{joint}_{leg}" for leg in (4, 1, 2, 3) for joint in ("hip", "ankle"))
ANT_BODIES = 13


def gymnasium_spec(name: str) -> TaskSpec:
    """The task of that name, one of `DECLARATIONS`.

    Raises:
        AndanteError: Gymnasium is not installed.
    """
    package = importlib.util.find_spec("gymnasium")
    if package is None or package.origin is None:
        raise AndanteError(
            f"task {name} needs gymnasium, which is not installed: in andante's folder: pip install '.[gym]'"
        )
    return DECLARATIONS[name](Path(package.origin).parent / "envs" / "mujoco" / "assets")


@cache
def half_cheetah(assets: Path) -> TaskSpec:
    """`HalfCheetah-v5`."""
    period_ns = 50_000_000
    return TaskSpec(
        name="HalfCheetah-v5",
        expected=(4000.0, 9000.0),
        summary="run forward, planar, on two legs (Gymnasium's)",
        robot_model=str(assets / "half_cheetah.xml"),
        control_period_ns=period_ns,
        decimation=5,
        episode_ticks=EPISODE_TICKS,
        sources=(*_positions(CHEETAH_JOINTS, period_ns), *_velocities(CHEETAH_JOINTS, period_ns)),
        features=tuple(map(Feature, ("height", "angles", "speeds", "rates"))),
        actions=(_controls(CHEETAH_JOINTS),),
        start=_starts(("rootx", "rootz", "rooty", *CHEETAH_JOINTS), 0.1, 0.1 * AS_WIDE),
        reward="forward velocity, less 0.1 |action|^2",
        termination="none",
        edit_model=_name_actuators,
        integrator=None,
        robot_licence="MIT",
    )


@cache
def hopper(assets: Path) -> TaskSpec:
    """`Hopper-v5`."""
    return _walking(
        "Hopper-v5",
        "hop forward, planar, on one leg (Gymnasium's)",
        (1400.0, 3700.0),
        assets / "hopper.xml",
        HOPPER_JOINTS,
        "torso at most 0.7 m high, pitched 0.2 rad or more, or a state value of 100 or more",
    )


@cache
def walker2d(assets: Path) -> TaskSpec:
    """`Walker2d-v5`."""
    return _walking(
        "Walker2d-v5",
        "walk forward, planar, on two legs (Gymnasium's)",
        (1700.0, 5500.0),
        assets / "walker2d_v5.xml",
        WALKER_JOINTS,
        "torso not between 0.8 and 2 m high, or pitched 1 rad or more",
    )


@cache
def inverted_pendulum(assets: Path) -> TaskSpec:
    """`InvertedPendulum-v5`."""
    period_ns = 40_000_000
    return TaskSpec(
        name="InvertedPendulum-v5",
        expected=(950.0, 1000.0),
        summary="balance a pole on a cart (Gymnasium's)",
        robot_model=str(assets / "inverted_pendulum.xml"),
        control_period_ns=period_ns,
        decimation=2,
        episode_ticks=EPISODE_TICKS,
        sources=(
            _joints("cart_position", "joint_position", "m", ("slider",), period_ns),
            _joints("pole_position", "joint_position", "rad", ("hinge",), period_ns),
            _joints("cart_velocity", "joint_velocity", "m/s", ("slider",), period_ns),
            _joints("pole_velocity", "joint_velocity", "rad/s", ("hinge",), period_ns),
        ),
        features=tuple(map(Feature, ("cart_position", "pole_position", "cart_velocity", "pole_velocity"))),
        actions=(_controls(("slider",), limit=3.0),),
        start=_starts(("slider", "hinge"), 0.01, 0.01),
        reward="1 unless the pole falls",
        termination="the pole leans more than 0.2 rad",
        edit_model=_name_actuators,
        integrator=None,
        robot_licence="MIT",
    )


@cache
def ant(assets: Path) -> TaskSpec:
    """`Ant-v5`."""
    period_ns = 50_000_000
    sources = (
        reading("torso_pose", 5, period_ns),
        _joints("angles", "joint_position", "rad", ANT_JOINTS, period_ns),
        reading("torso_velocity", 6, period_ns),
        _joints("rates", "joint_velocity", "rad/s", ANT_JOINTS, period_ns),
        reading("contact_forces", 6 * ANT_BODIES, period_ns),
    )
    return TaskSpec(
        name="Ant-v5",
        expected=(3500.0, 6000.0),
        summary="run forward on four legs (Gymnasium's)",
        robot_model=str(assets / "ant.xml"),
        control_period_ns=period_ns,
        decimation=5,
        episode_ticks=EPISODE_TICKS,
        sources=sources,
        features=tuple(Feature(source.name) for source in sources),
        actions=(_controls(ANT_ACTUATORS),),
        start=_starts(ANT_JOINTS, 0.1, 0.1 * AS_WIDE),
        # A quaternion component of 0.1 turns by 0.2 rad.
        base=BaseStart(
            joint="root",
            position=(0.0, 0.0, 0.75),
            position_spread=(0.1, 0.1, 0.1),
            yaw_spread=0.2,
            tilt_spread=0.2,
            linear_spread=0.1 * AS_WIDE,
            angular_spread=0.1 * AS_WIDE,
        ),
        reward="forward velocity + 1, less 0.5 |action|^2 and 0.0005 |contact forces, clipped to +-1|^2",
        termination="torso not from 0.2 to 1 m high",
        edit_model=_prepare_ant,
        integrator=None,
        robot_licence="MIT",
    )


DECLARATIONS: dict[str, Callable[[Path], TaskSpec]] = {
    "HalfCheetah-v5": half_cheetah,
    "Hopper-v5": hopper,
    "Walker2d-v5": walker2d,
    "Ant-v5": ant,
    "InvertedPendulum-v5": inverted_pendulum,
}
"""Name -> declaration, given the folder of Gymnasium's model files."""


def _walking(
    name: str,
    summary: str,
    expected: tuple[float, float],
    model: Path,
    joints: tuple[str, ...],
    termination: str,
) -> TaskSpec:
    """Hopper and walker; the velocities that they show are clipped, so no longer those of joints."""
    period_ns = 8_000_000
    root = ("rootx", "rootz", "rooty")
    return TaskSpec(
        name=name,
        expected=expected,
        summary=summary,
        robot_model=str(model),
        control_period_ns=period_ns,
        decimation=4,
        episode_ticks=EPISODE_TICKS,
        sources=(*_positions(joints, period_ns), reading("clipped_velocity", len(root + joints), period_ns)),
        features=tuple(map(Feature, ("height", "angles", "clipped_velocity"))),
        actions=(_controls(joints),),
        start=tuple(
            JointStart(joint, 1.25 if joint == "rootz" else 0.0, position_spread=5e-3, velocity_spread=5e-3)
            for joint in (*root, *joints)
        ),
        reward="forward velocity + 1 unless it falls, less 0.001 |action|^2",
        termination=termination,
        edit_model=_name_actuators,
        integrator=None,
        robot_licence="MIT",
    )


def _joints(name: str, kind: str, unit: str, joints: tuple[str, ...], period_ns: int) -> Source:
    return Source(name=name, kind=kind, unit=unit, joints=joints, max_age_ns=period_ns)


def _positions(joints: tuple[str, ...], period_ns: int) -> tuple[Source, ...]:
    """Of a planar robot, but for the distance that it has come."""
    return (
        _joints("height", "joint_position", "m", ("rootz",), period_ns),
        _joints("angles", "joint_position", "rad", ("rooty", *joints), period_ns),
    )


def _velocities(joints: tuple[str, ...], period_ns: int) -> tuple[Source, ...]:
    return (
        _joints("speeds", "joint_velocity", "m/s", ("rootx", "rootz"), period_ns),
        _joints("rates", "joint_velocity", "rad/s", ("rooty", *joints), period_ns),
    )


def _controls(actuators: tuple[str, ...], limit: float = 1.0) -> ActionTerm:
    size = len(actuators)
    return ActionTerm(
        name="control",
        kind="actuator",
        joints=actuators,
        unit="1",
        low=(-limit,) * size,
        high=(limit,) * size,
        kp=(0.0,) * size,
        kd=(0.0,) * size,
        closed_by="drive",
    )


def _starts(joints: tuple[str, ...], position: float, velocity: float) -> tuple[JointStart, ...]:
    return tuple(
        JointStart(joint, 0.0, position_spread=position, velocity_spread=velocity) for joint in joints
    )


def _name_actuators(model: mujoco.MjSpec) -> None:
    """After their joints: most have no name in the file."""
    for actuator in model.actuators:
        actuator.name = actuator.target


def _prepare_ant(model: mujoco.MjSpec) -> None:
    """Sensors of what MuJoCo calls `cfrc_ext`: the contact wrench on every body, about the centre of mass."""
    from mujoco import mjtObj, mjtSensor

    _name_actuators(model)
    bodies = [body for body in model.bodies if body.name != "world"]
    for i, body in enumerate(bodies):
        body.name = body.name or f"body_{i}"
        model.add_sensor(
            name=f"contact_{i}",
            type=mjtSensor.mjSENS_CONTACT,
            objtype=mjtObj.mjOBJ_BODY,
            objname=body.name,
            intprm=NET_WRENCH,
        )
    model.add_sensor(
        name="centre_of_mass",
        type=mjtSensor.mjSENS_SUBTREECOM,
        objtype=mjtObj.mjOBJ_BODY,
        objname="torso",
    )

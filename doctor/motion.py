"""What the operator is asked to do with the robot, and what is measured of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from andante.runtime.command import NEVER_NS
from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.runtime.profile import Joint, Profile
from andante.runtime.robots.base import Robot

Values = dict[str, NDArray[np.float64]]
FARTHEST = 0.3
"""Of a joint's movement, rad or m."""
TILT = 0.4
"""Of the base, rad."""
OF_BASE = ("orientation", "angular_velocity", "linear_acceleration")
"""Signals that tell how their sensor is mounted, when the base is tilted."""
RATES = ("joint_velocity", "angular_velocity")
WAYS = {"x": "roll: its right side down", "y": "pitch: its front down", "z": "turn: to its left"}


class Pose(Record, frozen=True):
    """Put every joint somewhere, in the policy's convention, rad or m."""

    joints: dict[str, float]

    def __str__(self) -> str:
        values = ", ".join(f"{name} {value:.3g}" for name, value in self.joints.items())
        return f"without torque, put the joints where the policy's robot model has {values}"


class Move(Record, frozen=True):
    """Move one joint in the policy's convention, rad or m."""

    joint: str
    by: float

    def __str__(self) -> str:
        return f"move {self.joint} by about {self.by:+.2g}, in the policy's direction, and leave it there"


class Level(Record, frozen=True):
    """Put the base level."""

    def __str__(self) -> str:
        return "level the base"


class Tilt(Record, frozen=True):
    """Turn the level base about one of its own axes (x ahead, y to the left, z up) by `TILT`."""

    axis: Literal["x", "y", "z"]

    def __str__(self) -> str:
        return f"with the base, {WAYS[self.axis]} by about {np.degrees(TILT):.0f} degrees, and hold it"


Instruction = Pose | Move | Level | Tilt


@dataclass(frozen=True)
class Motion:
    """Readings by signal before and after, and the time integral of rates in between."""

    before: Values
    after: Values
    turned: Values


def plan(profile: Profile) -> list[Instruction]:
    """All that is asked of the operator, in order."""
    pose = {joint.name: _reference(joint) for joint in profile.joints}
    instructions: list[Instruction] = [Pose(joints=pose)]
    instructions += [_move(joint, pose[joint.name]) for joint in profile.joints]
    if not profile.signals.keys().isdisjoint(OF_BASE):
        for axis in ("y", "x", "z"):
            instructions += [Level(), Tilt(axis=axis)]
    return instructions


def watch(robot: Robot, wait: Callable[[], bool]) -> Motion:
    """Measure until `wait`, called between two measurements, returns true.

    Raises:
        AndanteError: a signal has never arrived.
    """
    before, last_ns = _read(robot)
    turned = {signal: np.zeros_like(values) for signal, values in before.items() if signal in RATES}
    done = False
    while not done:
        done = wait()
        after, now_ns = _read(robot)
        for signal, angle in turned.items():
            angle += after[signal] * (now_ns - last_ns) * 1e-9
        last_ns = now_ns
    for signal, received_ns in robot.read().received_ns.items():
        if received_ns == NEVER_NS:
            raise AndanteError(f"robot {robot.name!r}: signal {signal!r} has never arrived")
    return Motion(before, after, turned)


def _read(robot: Robot) -> tuple[Values, int]:
    sample = robot.read()
    return {signal: values.copy() for signal, values in sample.values.items()}, sample.now_ns


def _reference(joint: Joint) -> float:
    low, high = joint.action_range("position")
    return min(max(0.0, low), high)


def _move(joint: Joint, start: float) -> Move:
    low, high = joint.action_range("position")
    way, room = max((1.0, high - start), (-1.0, start - low), key=lambda choice: choice[1])
    return Move(joint=joint.name, by=way * min(FARTHEST, room / 2))

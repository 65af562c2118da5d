"""Which joints a profile has in the wrong order, with the wrong sign or with the wrong zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
from numpy.typing import NDArray

from andante.runtime.profile import Profile

from .motion import Motion, Move, Pose, Values

FOLLOWED = 0.3
"""Share of the movement asked for from which on a reading has followed."""
ZERO_TOLERANCE = 0.15
"""How exactly a joint is put anywhere by hand, rad or m; half of the movement where that is less."""


def unclear(profile: Profile, move: Move, motion: Motion) -> str | None:
    """Why a movement cannot be judged, and must be made again."""
    for signal, changes in _changes(profile, motion).items():
        followed = np.flatnonzero(np.abs(changes) >= FOLLOWED * abs(move.by))
        if len(followed) != 1:
            found = ", ".join(profile.joints[i].name for i in followed) or "none"
            return f"joint {move.joint!r}: one reading of {signal} must follow it, found {found}"
    return None


def judge_joints(
    profile: Profile, pose: Pose, posed: Values, moves: Iterable[tuple[Move, Motion]]
) -> Iterator[str]:
    """What is wrong with the joints, a line each.

    Args:
        profile: what its owner believes.
        pose: where the joints were at first.
        posed: what was measured there.
        moves: one joint after the other.
    """
    joints = {joint.name: joint for joint in profile.joints}
    for move, motion in moves:
        if reason := unclear(profile, move, motion):
            yield reason
            continue
        joint = joints[move.joint]
        for signal, changes in _changes(profile, motion).items():
            where, column = f"joint {joint.name!r}: {signal}", int(np.argmax(np.abs(changes)))
            if (other := profile.joints[column].name) != joint.name:
                yield f"{where}: wrong order: it is at place {column}, where the profile has {other!r}"
            sign = 1 if changes[column] * move.by > 0 else -1
            if sign != joint.sign:
                yield f"{where}: wrong sign: it must be {sign}, found {joint.sign}"
            if signal == "joint_position":
                offset = posed[signal][column] - sign * joint.gear_ratio * pose.joints[joint.name]
                tolerance = min(ZERO_TOLERANCE, abs(move.by) / 2) * joint.gear_ratio
                if abs(offset - joint.zero_offset) > tolerance:
                    yield (
                        f"{where}: wrong zero_offset: it must be about {offset:.2f}, "
                        f"found {joint.zero_offset:g}"
                    )


def _changes(profile: Profile, motion: Motion) -> dict[str, NDArray[np.float64]]:
    """By how much each joint has moved, without its sign, by signal."""
    gears = np.array([joint.gear_ratio for joint in profile.joints])
    found = {"joint_position": motion.after["joint_position"] - motion.before["joint_position"]}
    if "joint_velocity" in motion.turned:
        found["joint_velocity"] = motion.turned["joint_velocity"]
    return {signal: changes / gears for signal, changes in found.items()}

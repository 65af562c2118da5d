"""The walk around a robot: one instruction after the other, then what is wrong with the profile."""

from __future__ import annotations

from collections.abc import Callable

from andante.runtime.profile import Profile
from andante.runtime.robots.base import Robot

from .base import judge_base
from .joints import judge_joints, unclear
from .motion import Instruction, Motion, Move, Pose, Tilt, Values, plan, watch

TRIES = 2
"""Of a movement that cannot be judged."""


def examine(
    robot: Robot, profile: Profile, ask: Callable[[str, Instruction], Callable[[], bool]]
) -> list[str]:
    """Have an operator move every joint and tilt every axis; nothing is ever written to the robot.

    Args:
        robot: to read from.
        profile: what its owner believes.
        ask: shows an instruction, after some words on it; returns what says, called again and again, whether
            it is done.

    Returns:
        What is wrong, a line each.

    Raises:
        AndanteError: a signal never arrives.
    """
    pose, posed = Pose(joints={}), Values()
    moves: list[tuple[Move, Motion]] = []
    tilts: dict[str, Motion] = {}
    instructions = plan(profile)
    for number, instruction in enumerate(instructions, 1):
        motion = watch(robot, ask(f"{number}/{len(instructions)}", instruction))
        if isinstance(instruction, Pose):
            pose, posed = instruction, motion.after
        elif isinstance(instruction, Tilt):
            tilts[instruction.axis] = motion
        elif isinstance(instruction, Move):
            for _ in range(TRIES - 1):
                if reason := unclear(profile, instruction, motion):
                    motion = watch(robot, ask(f"{reason}; once more", instruction))
            moves.append((instruction, motion))
    found = list(judge_joints(profile, pose, posed, moves))
    return found + list(judge_base(profile, tilts)) if tilts else found

"""The velocity task of legged robots, without torch; robots are data."""

from .robot import REWARD, Gait, LeggedJoint, LeggedRobot, VelocityCommand
from .spec import standing, velocity_spec

__all__ = [
    "REWARD",
    "Gait",
    "LeggedJoint",
    "LeggedRobot",
    "VelocityCommand",
    "standing",
    "velocity_spec",
]

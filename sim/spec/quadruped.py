"""`quadruped-velocity`: walk with a quadruped as fast as commanded, on flat or on rough ground."""

from __future__ import annotations

from .legged import Gait, LeggedJoint, LeggedRobot, standing, velocity_spec
from .terrain import Terrain

LEGS = ("FL", "FR", "RL", "RR")
KP, KD = 35.0, 0.8


def _leg(name: str) -> tuple[LeggedJoint, ...]:
    inwards, thigh = -0.05 if name[1] == "L" else 0.05, 0.85 if name[0] == "F" else 1.0
    return (
        LeggedJoint(name=f"{name}_hip", pose=inwards, target=(-0.8, 0.8), sideways=True, kp=KP, kd=KD),
        LeggedJoint(name=f"{name}_thigh", pose=thigh, target=(-0.6, 2.6), kp=KP, kd=KD),
        LeggedJoint(name=f"{name}_calf", pose=-1.6, target=(-2.7, -0.9), kp=KP, kd=KD),
    )


QUADRUPED = LeggedRobot(
    base="trunk",
    imu="imu",
    joints=tuple(joint for leg in LEGS for joint in _leg(leg)),
    feet=LEGS,
    gait=Gait(phases=(0.0, 0.5, 0.5, 0.0)),
    height=0.29,
    start_height=0.34,
    action_scale=0.5,
    push_force=60.0,
    licence="Apache-2.0",
)
ROUGH_GROUND = Terrain()

FLAT = velocity_spec(
    "quadruped-velocity",
    "walk with a quadruped as fast as commanded",
    "quadruped",
    QUADRUPED,
    standing(QUADRUPED),
    expected=(80.0, 100.0),
)
ROUGH = velocity_spec(
    "quadruped-velocity-rough",
    "walk with a quadruped as fast as commanded, over rows of ever rougher ground",
    "quadruped",
    QUADRUPED,
    standing(QUADRUPED),
    terrain=ROUGH_GROUND,
    expected=(75.0, 95.0),
)

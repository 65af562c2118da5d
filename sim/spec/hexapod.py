"""`hexapod-velocity`: walk with a hexapod as fast as commanded."""

from __future__ import annotations

from .legged import Gait, LeggedJoint, LeggedRobot, VelocityCommand, standing, velocity_spec

LEGS = ("L1", "L2", "L3", "R1", "R2", "R3")
KP, KD = 20.0, 0.5
TRIPOD = ("L1", "L3", "R2")


def _leg(name: str) -> tuple[LeggedJoint, ...]:
    return (
        LeggedJoint(name=f"{name}_coxa", pose=0.0, target=(-0.7, 0.7), kp=KP, kd=KD),
        LeggedJoint(name=f"{name}_femur", pose=-0.3, target=(-1.3, 1.1), kp=KP, kd=KD),
        LeggedJoint(name=f"{name}_tibia", pose=1.5, target=(-0.1, 2.3), kp=KP, kd=KD),
    )


HEXAPOD = LeggedRobot(
    base="body",
    imu="imu",
    joints=tuple(joint for leg in LEGS for joint in _leg(leg)),
    feet=LEGS,
    gait=Gait(
        phases=tuple(0.0 if leg in TRIPOD else 0.5 for leg in LEGS),
        frequency_hz=2.0,
        foot_height=0.012,
        swing_height=0.04,
    ),
    height=0.105,
    start_height=0.13,
    action_scale=0.25,
    command=VelocityCommand(lin_vel_x=(-0.5, 0.5), lin_vel_y=(-0.3, 0.3)),
    velocity_width=0.06,
    # Its legs are light: the same shaking means larger accelerations.
    weights={"acceleration": -2.5e-8},
    push_force=20.0,
    licence="Apache-2.0",
)
FLAT = velocity_spec(
    "hexapod-velocity",
    "walk with a hexapod as fast as commanded",
    "hexapod",
    HEXAPOD,
    standing(HEXAPOD),
    expected=(75.0, 95.0),
)

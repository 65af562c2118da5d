"""`pendulum-swingup-blind`: swing a weak pendulum up and hold it, measuring only its angle."""

from __future__ import annotations

import math

from andante.runtime.contract import ActionTerm, Source

from .task import Feature, JointStart, TaskSpec

SLOW = 2.0
"""Speed at which the reward is down to 1/e, rad/s."""
TORQUE = 0.7
"""N m; gravity's largest torque on this pendulum is 1.96 N m, so it cannot be lifted directly."""

PENDULUM = TaskSpec(
    name="pendulum-swingup-blind",
    summary="swing a weak pendulum up and hold it upright; only the angle is measured",
    robot_model="pendulum",
    control_period_ns=20_000_000,
    decimation=2,
    episode_ticks=500,
    sources=(
        Source(
            name="joint_position", kind="joint_position", joints=("hinge",), unit="rad", max_age_ns=50_000_000
        ),
    ),
    features=(Feature("joint_position", transform="sin_cos"),),
    actions=(
        ActionTerm(
            name="torque",
            kind="effort",
            joints=("hinge",),
            unit="N m",
            low=(-TORQUE,),
            high=(TORQUE,),
            kp=(0.0,),
            kd=(0.0,),
            closed_by="drive",
        ),
    ),
    start=(JointStart("hinge", math.pi, position_spread=0.5, velocity_spread=1.0),),
    reward=f"((1 + cos hinge) / 2)^2 * exp(-(speed / {SLOW} rad/s)^2), in [0, 1]",
    termination="none",
    expected=(350.0, 395.0),
)

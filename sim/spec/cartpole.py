"""`cartpole-swingup-blind`: swing a passive pole up and hold it, measuring only positions."""

from __future__ import annotations

import math

from andante.runtime.contract import ActionTerm, Source

from .task import Feature, JointStart, TaskSpec

SLOW = 3.0
"""Pole speed at which the reward is down to 1/e, rad/s."""
RAIL = 1.5
"""The cart may be this far from the middle, m."""
FORCE = 12.0
"""N."""

CARTPOLE = TaskSpec(
    name="cartpole-swingup-blind",
    summary="swing a passive pole up by moving its cart, and hold it; only positions are measured",
    robot_model="cartpole",
    control_period_ns=20_000_000,
    decimation=2,
    episode_ticks=500,
    sources=(
        Source(
            name="cart_position", kind="joint_position", joints=("slider",), unit="m", max_age_ns=50_000_000
        ),
        Source(
            name="pole_position", kind="joint_position", joints=("pole",), unit="rad", max_age_ns=50_000_000
        ),
    ),
    features=(
        Feature("cart_position", scale=1.0 / RAIL),
        Feature("pole_position", transform="sin_cos"),
    ),
    actions=(
        ActionTerm(
            name="force",
            kind="effort",
            joints=("slider",),
            unit="N",
            low=(-FORCE,),
            high=(FORCE,),
            kp=(0.0,),
            kd=(0.0,),
            closed_by="drive",
        ),
    ),
    start=(
        JointStart("slider", 0.0, position_spread=0.2, velocity_spread=0.2),
        JointStart("pole", math.pi, position_spread=0.3, velocity_spread=0.2),
    ),
    reward=(
        f"((1 + cos pole) / 2)^2 * exp(-(pole speed / {SLOW} rad/s)^2) * (1 - (slider / {RAIL} m)^2 / 2), "
        "in [0, 1]"
    ),
    termination=f"the cart is more than {RAIL} m from the middle",
    expected=(375.0, 455.0),
)

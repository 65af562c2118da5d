"""`quadrotor-hover`: hold a quadrotor still above one spot, by four rotors that lag."""

from __future__ import annotations

from andante.runtime.contract import ActionTerm, Source

from .task import BaseStart, Feature, TaskSpec

TARGET = (0.0, 0.0, 1.0)
"""Where to hover, m."""
SPOT = 0.3
"""Distance at which the reward is halved, m."""
GROUND, FAR, TILT = 0.1, 2.0, 75.0
"""Lower than this above the floor is a crash; so far from the target, m, or so tilted, degrees, is lost."""
ROTORS = ("rotor_fl", "rotor_fr", "rotor_rl", "rotor_rr")
HOVER = 0.6 * 9.81 / 4
"""Thrust of one rotor that carries its share, N."""
MAX_THRUST = 4.0
"""N."""
RANGE = 1.0
"""What an action of one adds to the hovering thrust, N."""
BODY, MAX_AGE = "trunk", 30_000_000
"""What is measured is of the trunk, and stale after so many ns."""

QUADROTOR = TaskSpec(
    name="quadrotor-hover",
    summary="hold a quadrotor still above one spot, by four rotors that lag; its heading is not measured",
    robot_model="quadrotor",
    control_period_ns=10_000_000,
    decimation=2,
    episode_ticks=500,
    sources=(
        Source(
            name="angular_velocity", kind="angular_velocity", frame=BODY, unit="rad/s", max_age_ns=MAX_AGE
        ),
        Source(name="gravity", kind="gravity", frame=BODY, unit="1", max_age_ns=MAX_AGE),
        Source(name="linear_velocity", kind="linear_velocity", frame=BODY, unit="m/s", max_age_ns=MAX_AGE),
        Source(name="position", kind="position", frame=BODY, unit="m", max_age_ns=MAX_AGE),
        Source(name="executed_action", kind="executed_action", joints=ROTORS, unit="", stage="after_limits"),
    ),
    features=(
        Feature("angular_velocity", scale=0.3),
        Feature("gravity", scale=2.0, offset=(0.0, 0.0, -1.0)),
        Feature("linear_velocity"),
        Feature("position", scale=2.0, offset=TARGET),
        Feature("executed_action", scale=1.0 / RANGE, offset=HOVER),
    ),
    actions=(
        ActionTerm(
            name="thrust",
            kind="actuator",
            joints=ROTORS,
            unit="N",
            low=(0.0,) * 4,
            high=(MAX_THRUST,) * 4,
            kp=(0.0,) * 4,
            kd=(0.0,) * 4,
            closed_by="drive",
        ),
    ),
    start=(),
    reward=(
        f"1 / (1 + (distance to the target / {SPOT} m)^2) - 0.1 (tilt's sine)^2 "
        "- 0.02 |angular velocity / (rad/s)|^2 - 0.05 |velocity / (m/s)|^2 "
        "- 0.02 |change of action / N|^2; at most 1"
    ),
    termination=f"less than {GROUND} m above the floor, {FAR:g} m from the target, or tilted by {TILT:g} deg",
    base=BaseStart(
        BODY,
        TARGET,
        position_spread=(0.5, 0.5, 0.4),
        yaw_spread=0.2,
        tilt_spread=0.2,
        linear_spread=0.3,
        angular_spread=0.5,
    ),
    action_center=(HOVER,) * 4,
    action_scale=(RANGE,) * 4,
    expected=(390.0, 470.0),
)

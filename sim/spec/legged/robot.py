"""A legged robot as data: all that tells the velocity task of one robot from that of another."""

from __future__ import annotations

import math
from typing import Annotated, NamedTuple

import msgspec

from andante.runtime.contract import NO_ASSERTION, PeriodNs, Positive, Record

Range = tuple[float, float]
PositiveFloat = Annotated[float, msgspec.Meta(gt=0.0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0.0)]


def _check_range(what: str, values: Range) -> None:
    if not -math.inf < values[0] < values[1] < math.inf:
        raise ValueError(f"{what} must be [low, high], low below high, found {list(values)}")


class LeggedJoint(Record, frozen=True):
    """A position-controlled joint."""

    name: str
    pose: float
    """Where it stands by default, rad."""
    kp: PositiveFloat
    """N m/rad."""
    kd: NotNegative
    """N m s/rad."""
    target: Range | None = None
    """Range of its position target, rad; the joint's own range in the MJCF when left out."""
    sideways: bool = False
    """Whether it swings the leg sideways; the reward keeps such joints near their pose."""

    def __post_init__(self) -> None:
        if self.target is not None:
            _check_range(f"joint {self.name!r}: target", self.target)
            if not self.target[0] <= self.pose <= self.target[1]:
                raise ValueError(
                    f"joint {self.name!r}: pose must be within target {list(self.target)}, found {self.pose}"
                )


class Gait(Record, frozen=True):
    """The rhythm that the clock gives and the reward asks for."""

    phases: tuple[Annotated[float, msgspec.Meta(ge=0.0, lt=1.0)], ...]
    """Share of the cycle that each foot is ahead by, in the order of `feet`; it swings in the first half."""
    frequency_hz: PositiveFloat = 2.5
    """Cycles per second."""
    foot_height: NotNegative = 0.023
    """Of a foot's named point above the ground when it is planted, m."""
    swing_height: PositiveFloat = 0.07
    """How much higher it is in the middle of its swing, m."""


class VelocityCommand(Record, frozen=True):
    """Ranges of the command, along and about the axes of the robot's heading.

    A range must not be empty: a robot that cannot move in one of these ways has a narrow one there.
    """

    lin_vel_x: Range = (-1.0, 1.0)
    """Forward, m/s."""
    lin_vel_y: Range = (-0.4, 0.4)
    """Left, m/s."""
    yaw_rate: Range = (-1.0, 1.0)
    """To the left, rad/s."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            _check_range(name, getattr(self, name))


class RewardTerm(NamedTuple):
    """One term of the reward."""

    weight: float
    formula: str


REWARD: dict[str, RewardTerm] = {
    "linear_velocity": RewardTerm(3.0, "exp(-|v_xy - command|^2 / velocity width), along the heading"),
    "yaw_rate": RewardTerm(1.5, "exp(-(yaw rate - command)^2 / 0.25 rad^2/s^2)"),
    "alive": RewardTerm(0.1, "1"),
    "gait": RewardTerm(0.8, "mean over feet of exp(-((clearance - the clock's) / (3/7 swing height))^2)"),
    "air_time": RewardTerm(1.0, "sum over landing feet of min(air time - 0.25 s, 0.25 s), if told to move"),
    "vertical_velocity": RewardTerm(-2.0, "v_z^2"),
    "roll_pitch_rate": RewardTerm(-0.05, "|the base's angular velocity, x and y|^2"),
    "tilt": RewardTerm(-2.5, "|gravity in the base's frame, x and y|^2"),
    "height": RewardTerm(-20.0, "(height above the ground - wanted)^2"),
    "torque": RewardTerm(-2e-4, "|joint torques|^2"),
    "acceleration": RewardTerm(-2.5e-7, "|joint accelerations, mean of the tick|^2"),
    "action_rate": RewardTerm(-0.01, "|change of the action / action scale|^2"),
    "pose": RewardTerm(-0.05, "|joints - pose|^2, five times that if told to stand"),
    "sideways": RewardTerm(-0.25, "|joints that swing sideways - pose|^2"),
    "slip": RewardTerm(-0.05, "sum over feet on the ground of |horizontal velocity|^2"),
}
"""Terms of the reward, with the weights that are used unless a robot has its own; SI units."""


class LeggedRobot(Record, frozen=True):
    """All that the velocity task of a legged robot is made of, besides its MJCF."""

    base: str
    """Body that carries the free joint."""
    imu: str
    """Site or body of the inertial measurement unit."""
    joints: Annotated[tuple[LeggedJoint, ...], msgspec.Meta(min_length=1)]
    """In the order of the action's columns."""
    feet: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Geom, site or body of each foot; a site counts contacts within its volume."""
    gait: Gait
    height: PositiveFloat
    """Of the base's frame above the ground, walking, m."""
    start_height: PositiveFloat
    """Of the base's frame above the ground when an episode starts, m."""
    action_scale: PositiveFloat
    """What an action of one adds to a joint's pose, rad."""
    command: VelocityCommand = VelocityCommand()
    """Ranges of the command."""
    velocity_width: PositiveFloat = 0.25
    """Square of the velocity error at which tracking is worth 1/e, m^2/s^2."""
    weights: dict[str, float] = msgspec.field(default_factory=dict)
    """Of terms in `REWARD`, where they differ."""
    control_period_ns: PeriodNs = 20_000_000
    """One tick."""
    decimation: Positive = 4
    """Physics steps per tick."""
    push_force: NotNegative = 0.0
    """Largest force of the pushes on the base, N; zero for none."""
    licence: str = NO_ASSERTION
    """SPDX identifier of the robot model's licence."""

    def __post_init__(self) -> None:
        for what, names in (("joint", [joint.name for joint in self.joints]), ("foot", self.feet)):
            if repeated := {name for name in names if list(names).count(name) > 1}:
                raise ValueError(f"{what} named twice: {', '.join(sorted(repeated))}")
        for name, weight in self.weights.items():
            if name not in REWARD:
                raise ValueError(f"weights: no reward term {name!r}; terms: {', '.join(REWARD)}")
            if not math.isfinite(weight):
                raise ValueError(f"weights: {name} must be finite, found {weight}")
        if len(self.gait.phases) != len(self.feet):
            raise ValueError(
                f"gait: phases must have one value per foot, {len(self.feet)}, found {len(self.gait.phases)}"
            )

    @property
    def joint_names(self) -> tuple[str, ...]:
        """Of the action's columns."""
        return tuple(joint.name for joint in self.joints)

    @property
    def pose(self) -> tuple[float, ...]:
        """Of each joint."""
        return tuple(joint.pose for joint in self.joints)

    @property
    def reward_weights(self) -> dict[str, float]:
        """Of every term in `REWARD`."""
        return {name: term.weight for name, term in REWARD.items()} | self.weights

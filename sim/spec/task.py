"""What a task declares without torch: sources, actions, rates; for training and the simulated robot alike."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from andante.runtime.contract import ActionTerm, Source

if TYPE_CHECKING:  # declarations are listed where MuJoCo is not installed
    import mujoco


@dataclass(frozen=True)
class Feature:
    """How one source becomes columns of the policy's observation, for every tick of its history."""

    source: str
    elements: tuple[str, ...] | None = None
    """Names among the source's `elements`; all of them when None."""
    transform: Literal["identity", "sin_cos", "turn"] = "identity"
    """`sin_cos` yields two columns, for angles that wrap; `turn` too, of a share of a full turn."""
    scale: float | tuple[float, ...] = 1.0
    """Multiplies an `identity` value; one for all elements, or one each."""
    offset: float | tuple[float, ...] = 0.0
    """Subtracted from an `identity` value before it is scaled; one for all elements, or one each."""


@dataclass(frozen=True)
class JointStart:
    """Where a joint starts an episode: uniformly within a spread of the middle (rad or m, and per second)."""

    joint: str
    position: float
    position_spread: float
    velocity_spread: float
    """The middle of the velocity is zero."""


@dataclass(frozen=True)
class BaseStart:
    """Where a floating base starts an episode: uniformly within a spread of the middle, at any heading."""

    joint: str
    """Its free joint."""
    position: tuple[float, float, float]
    """m, in the world; above the terrain's surface where there is one."""
    position_spread: tuple[float, float, float] = (0.0, 0.0, 0.0)
    yaw_spread: float = 0.0
    """rad."""
    tilt_spread: float = 0.0
    """rad, of roll and of pitch."""
    linear_spread: float = 0.0
    """m/s, along each axis."""
    angular_spread: float = 0.0
    """rad/s, about each axis."""


@dataclass(frozen=True)
class CommandSampling:
    """How the task's command changes: drawn uniformly from its components' ranges, now and then zero."""

    interval_ticks: int
    """Ticks between two draws; the first is at the start of the episode."""
    zero_probability: float = 0.0
    """Share of draws that command nothing at all."""


@dataclass(frozen=True)
class Pushes:
    """Shoves: one in every interval, at a random moment of it, horizontally in a random direction."""

    body: str
    interval_ticks: int
    duration_ticks: int
    """Of one shove; at most the interval."""
    force: float
    """Largest, N; uniform from zero up."""


@dataclass(frozen=True)
class TaskSpec:
    """A task's torch-free half.

    `robot_model` names `sim/spec/robots/<robot_model>.xml`, or is the absolute path of an MJCF file.
    Actuators are added from `actions`, IMU sensors from `sources`.
    """

    name: str
    summary: str
    robot_model: str
    control_period_ns: int
    decimation: int
    episode_ticks: int
    sources: tuple[Source, ...]
    features: tuple[Feature, ...]
    actions: tuple[ActionTerm, ...]
    start: tuple[JointStart, ...]
    """All hinges and slides of the robot model, in its order."""
    reward: str
    """The reward of one tick, in words."""
    termination: str
    """What ends an episode before its time, in words."""
    base: BaseStart | None = None
    """Of a robot that stands on no foundation."""
    action_center: tuple[float, ...] | None = None
    """What an action of zero means, SI, per column; the middle of the range when None."""
    action_scale: tuple[float, ...] | None = None
    """What an action of one adds to it, SI, per column; half the range when None."""
    command: CommandSampling | None = None
    """With a source of kind `command`."""
    pushes: Pushes | None = None
    """Forces from outside."""
    edit_model: Callable[[mujoco.MjSpec], None] | None = None
    """Changes to the robot's model before it is compiled: terrain, objects, sensors that the reward needs."""
    integrator: Literal["Euler", "RK4", "implicit", "implicitfast"] | None = "implicitfast"
    """MuJoCo's; the model's own when None."""
    expected: tuple[float, float] | None = None
    """Range of the return to expect of the recipe, whatever the seed; `andante check-recipe` checks it."""
    robot_licence: str = "Apache-2.0"
    max_gap_ticks: int = 2

    @property
    def robot_name(self) -> str:
        """Identifies the robot model in contracts and profiles."""
        return Path(self.robot_model).stem if Path(self.robot_model).is_absolute() else self.robot_model

    @property
    def action_size(self) -> int:
        """A: columns of the action tensor."""
        return len(self.action_joints)

    @property
    def action_joints(self) -> tuple[str, ...]:
        """Joint, or actuator, of every column of the action tensor."""
        return tuple(joint for term in self.actions for joint in term.joints)

    @property
    def action_low(self) -> tuple[float, ...]:
        """Smallest action per column, SI."""
        return tuple(value for term in self.actions for value in term.low)

    @property
    def action_high(self) -> tuple[float, ...]:
        """Largest action per column, SI."""
        return tuple(value for term in self.actions for value in term.high)

    @property
    def action_middle(self) -> tuple[float, ...]:
        """What an action of zero means, SI, per column; also what counts as executed before the first one."""
        ends = zip(self.action_low, self.action_high, strict=True)
        return self.action_center or tuple((low + high) / 2 for low, high in ends)

    @property
    def action_unit(self) -> tuple[float, ...]:
        """What an action of one adds to the middle, SI, per column."""
        ends = zip(self.action_low, self.action_high, strict=True)
        return self.action_scale or tuple((high - low) / 2 for low, high in ends)

    @property
    def control_dt(self) -> float:
        """One tick, in seconds."""
        return self.control_period_ns * 1e-9

    @property
    def command_source(self) -> Source | None:
        """The source of kind `command`, if there is one."""
        return next((source for source in self.sources if source.kind == "command"), None)

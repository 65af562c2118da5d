"""What a task declares without torch: sources, actions, rates; for training and the simulated robot alike."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from andante.runtime.contract import ActionTerm, Source


@dataclass(frozen=True)
class Feature:
    """How one source becomes columns of the policy's observation."""

    source: str
    joint: str
    transform: Literal["identity", "sin_cos"] = "identity"
    """`sin_cos` yields two columns, for angles that wrap."""
    scale: float = 1.0
    """Multiplies an `identity` value."""


@dataclass(frozen=True)
class JointStart:
    """Where a joint starts an episode: uniformly within a spread of the middle (rad or m, and per second)."""

    joint: str
    position: float
    position_spread: float
    velocity_spread: float
    """The middle of the velocity is zero."""


@dataclass(frozen=True)
class TaskSpec:
    """A task's torch-free half.

    `robot_model` names `sim/spec/robots/<robot_model>.xml`; actuators are added from `actions`.
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
    """All joints of the robot model, in its order."""
    reward: str
    """The reward of one tick, in words."""
    termination: str
    """What ends an episode before its time, in words."""
    robot_licence: str = "Apache-2.0"
    max_gap_ticks: int = 2

    @property
    def action_size(self) -> int:
        """A: columns of the action tensor."""
        return sum(len(term.joints) for term in self.actions)

    @property
    def control_dt(self) -> float:
        """One tick, in seconds."""
        return self.control_period_ns * 1e-9

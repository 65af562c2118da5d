"""What a robot does without its policy: phases of its sequences, and the fallback table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Literal

import msgspec

from .contract import Positive, Record

Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=3600.0)]
"""A duration."""


class Gains(Record, frozen=True):
    """Gains per actuated joint: N m/rad and N m s/rad, or N/m and N s/m."""

    kd: dict[str, float]
    """Velocity gains."""
    kp: dict[str, float] | None = None
    """Needed wherever a position is tracked or held."""

    def __post_init__(self) -> None:
        for key, gains in (("kd", self.kd), ("kp", self.kp or {})):
            for joint, gain in gains.items():
                if not 0.0 <= gain < math.inf:
                    raise ValueError(f"{key} of joint {joint!r} must be finite and not negative: {gain}")


class Keep(Record, frozen=True, tag="keep", tag_field="action"):
    """Carry on for so many ticks of the event, skipped ones included; two without it make up for one with it.

    A starved policy's last action is held; before its first one, the pose where the start sequence ended, or
    after a gap that reset the memory damping.
    """

    ticks: Positive
    """How many."""


class Brake(Record, frozen=True, tag="brake", tag_field="action"):
    """Bring every joint to rest within its largest acceleration and jerk, then hold it there."""

    gains: str
    """Name of a set."""
    duration_s: Seconds | None = None
    """Then comes the next step; absent in the last one, which stays until the fault is cleared."""


class Hold(Record, frozen=True, tag="hold", tag_field="action"):
    """Hold the pose measured when this step begins."""

    gains: str
    """Name of a set."""
    duration_s: Seconds | None = None
    """As in `Brake`."""


class Track(Record, frozen=True, tag="track", tag_field="action"):
    """Move smoothly from the measured pose to a keyframe, a crouch for example."""

    gains: str
    """Name of a set."""
    duration_s: Seconds
    """Of the motion, which the joints' velocities may make longer."""
    pose: dict[str, float] | str
    """Target reading of every actuated joint, rad or m; or the name of a keyframe."""


class Damping(Record, frozen=True, tag="damping", tag_field="action"):
    """Brake every joint in proportion to its velocity."""

    gains: str
    """Name of a set; only its `kd` counts."""
    duration_s: Seconds | None = None
    """As in `Brake`; always present in a sequence."""


class External(Record, frozen=True, tag="external", tag_field="action"):
    """Send nothing more: the robot, or a safety node, takes over when the last command's time is over."""


Phase = Damping | Track
"""What sequences are made of."""
Step = Keep | Brake | Hold | Track | Damping | External
"""What ladders are made of."""
Ladder = tuple[Step, ...]
"""Steps that only escalate."""
RANK: dict[type[Record], int] = {Keep: 0, Brake: 1, Hold: 2, Track: 3, Damping: 4, External: 5}
"""A ladder of steps only climbs."""
OTHERWISE = "otherwise"
"""Key of the ladder for every other state."""
Table = dict[Literal["wait_sensors", "start", "ready", "run", "stop", "otherwise"], Ladder]
"""Ladders by state."""


class Fallback(Record, frozen=True):
    """What to do about each event that can happen, as a ladder of steps; no event has a default.

    A ladder may depend on the controller's state: `{run: [...], otherwise: [...]}`.
    """

    stale_source: Ladder | Table
    """A signal is too old, frozen, has a gap, or a stamp that went back or lies in the future."""
    starvation: Ladder | Table
    """The chunk is played to its end, and no new one came."""
    overrun: Ladder | Table
    """Work ended after the next deadline, or a tick was missed."""
    non_finite: Ladder | Table
    """NaN or infinity in a measurement, the operator's command, the policy's output or a command; an
    orientation that is no rotation; or a policy or controller that failed."""
    limit: Ladder | Table
    """A measured position or velocity outside its hard limits."""
    e_stop: Ladder | Table
    """Emergency stop, the silence of its device, or a failure of the robot's interface."""
    tilt: Ladder | Table | None = None
    """The base leans further than `max_tilt`."""
    operator: Ladder | Table | None = None
    """The running policy's operator has been silent for longer than `operator.link_s`."""
    battery: Ladder | Table | None = None
    """The battery is below `min_battery_voltage`."""
    temperature: Ladder | Table | None = None
    """A joint is hotter than its `temperature`."""
    custom: Ladder | Table | None = None
    """One of the `predicates` gave a reason."""

    def ladder(self, event: str, state: str = OTHERWISE) -> Ladder | None:
        """The steps for one of `EVENTS` in a state; None where the table has none."""
        steps: Ladder | dict[str, Ladder] | None = getattr(self, event)
        return steps.get(state, steps[OTHERWISE]) if isinstance(steps, dict) else steps

    def ladders(self, event: str) -> tuple[Ladder, ...]:
        """Every ladder for one of `EVENTS`."""
        steps: Ladder | dict[str, Ladder] | None = getattr(self, event)
        return tuple(steps.values()) if isinstance(steps, dict) else () if steps is None else (steps,)

    def __post_init__(self) -> None:
        for event in EVENTS:
            steps = getattr(self, event)
            if isinstance(steps, dict) and OTHERWISE not in steps:
                raise ValueError(f"{event}: a table by state needs {OTHERWISE!r}, found {sorted(steps)}")
            for ladder in self.ladders(event):
                for fault in _ladder_faults(event, ladder):
                    raise ValueError(f"{event}: {fault}")


EVENTS: tuple[str, ...] = Fallback.__struct_fields__
"""All that can happen."""


def _ladder_faults(event: str, ladder: Ladder) -> Iterator[str]:
    last = ladder[-1] if ladder else None
    if (
        not isinstance(last, Brake | Hold | Damping | External)
        or getattr(last, "duration_s", None) is not None
    ):
        yield "the last step must be brake, hold or damping without duration_s, or external"
    ranks = [RANK[type(step)] for step in ladder]
    if ranks != sorted(set(ranks)):
        yield "steps must escalate in the order keep, brake, hold, track, damping, external"
    if any(isinstance(step, Brake | Hold | Damping) and step.duration_s is None for step in ladder[:-1]):
        yield "every step but the last needs duration_s"
    if event == "e_stop" and isinstance(ladder[0], Keep):
        yield "keep is not possible"
    if event == "non_finite" and not isinstance(ladder[0], Damping | External):
        yield "from a pose that may not be a number, only damping or external can begin"

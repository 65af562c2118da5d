"""Plays one step at a time, of a sequence or of a ladder of the fallback table."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from .command import Floats, JointCommand
from .contract import Record
from .motion import BrakingMotion, SmoothMotion
from .profile import Profile
from .steps import Brake, Damping, External, Hold, Keep, Step, Track


class ResolvedStep(NamedTuple):
    """A step in ticks, and with its values per actuated joint `[Ja]`."""

    kind: type[Record]
    """Its class in `steps`."""
    ticks: float
    """Infinite for one that stays."""
    kp: Floats
    """Position gains."""
    kd: Floats
    """Velocity gains."""
    pose: Floats
    """Target of a `Track`, otherwise zero."""


class StepPlayer:
    """Keeps what a step needs while it is played: where it began, and its motion."""

    def __init__(self, profile: Profile, control_period_ns: int) -> None:
        """For a robot; one tick lasts `control_period_ns`."""
        self._profile = profile
        self._period_ns = control_period_ns
        self._smooth = SmoothMotion(profile, control_period_ns)
        self._braking = BrakingMotion(profile, control_period_ns)
        self._held = np.zeros(len(profile.actuated))
        self._step = self._resolve(External())

    def resolve(self, steps: Iterable[Step]) -> tuple[ResolvedStep, ...]:
        """Look up gains, poses and durations; `Keep` is nothing to play."""
        return tuple(self._resolve(step) for step in steps if not isinstance(step, Keep))

    def begin(self, step: ResolvedStep, measured: Floats) -> float:
        """Begin a step from measured positions and velocities `[2, Ja]`; the ticks that it takes."""
        self._step = step
        self._held[:] = measured[0]
        if step.kind is Brake:
            self._braking.begin(measured[0], measured[1])
        elif step.kind is Track:
            self._smooth.begin(measured[0], step.pose, int(step.ticks))
            return self._smooth.ticks
        return step.ticks

    @property
    def moving(self) -> bool:
        """Whether the step is on its way to a pose."""
        return self._step.kind is Track and not self._smooth.done

    def fill(self, command: JointCommand, q: Floats) -> bool:
        """Fill the step's next command from the measured positions `[Ja]`; a motion stays where it ended.

        Returns:
            Whether a joint has to brake harder than its acceleration and jerk allow.
        """
        step, yields = self._step, False
        if step.kind is External:
            command.set_zero("disabled")
        elif step.kind is Damping:
            command.set_damping(q, step.kd)
        elif step.kind is Hold:
            command.set_track(self._held, 0.0, step.kp, step.kd)
        elif step.kind is Track:
            self._smooth.advance()
            command.set_track(self._smooth.q, self._smooth.dq, step.kp, step.kd)
        else:
            yields = self._braking.advance()
            command.set_track(self._braking.q, self._braking.dq, step.kp, step.kd)
        return yields

    def _resolve(self, step: Brake | Hold | Track | Damping | External) -> ResolvedStep:
        profile, nothing = self._profile, np.zeros(len(self._profile.actuated))
        if isinstance(step, External):
            return ResolvedStep(External, math.inf, nothing, nothing, nothing)
        ticks = math.inf
        if step.duration_s is not None:
            ticks = max(math.ceil(step.duration_s * 1e9 / self._period_ns - 1e-9), 1)
        pose = profile.actuated_values(profile.pose(step)) if isinstance(step, Track) else nothing
        return ResolvedStep(type(step), ticks, profile.kp(step.gains), profile.kd(step.gains), pose)

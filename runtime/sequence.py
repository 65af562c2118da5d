"""Start and stop sequences: phases of damping and of smooth motion from the measured pose to a keyframe."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .command import JointCommand
from .profile import Phase, Profile, Track

PEAK = 15 / 8
"""Largest speed of a minimum-jerk motion, in units of its mean speed."""


class _Phase(NamedTuple):
    ticks: int
    kp: NDArray[np.float64]
    kd: NDArray[np.float64]
    pose: NDArray[np.float64] | None


class Sequence:
    """Plays phases one tick at a time. A skipped tick delays a motion; it does not make it jump.

    A motion that would exceed a joint's hard velocity limit takes longer than its phase says.
    """

    def __init__(self, phases: Iterable[Phase], profile: Profile, control_period_ns: int) -> None:
        """Resolve joints and gains; one tick lasts `control_period_ns`."""
        self._dt = control_period_ns * 1e-9
        self._phases = [
            _Phase(
                max(1, math.ceil(phase.duration_s / self._dt - 1e-9)) if phase.duration_s else 1,
                profile.kp(phase.gains),
                profile.kd(phase.gains),
                profile.actuated_values(phase.pose) if isinstance(phase, Track) else None,
            )
            for phase in phases
        ]
        self._velocity = np.array([joint.velocity for joint in profile.actuated])
        self._begin = np.zeros(len(profile.actuated))
        self._q = np.zeros_like(self._begin)
        self._dq = np.zeros_like(self._begin)
        self.restart()

    def restart(self) -> None:
        """Back to the first phase."""
        self._index = self._count = self._ticks = 0

    @property
    def done(self) -> bool:
        """Whether every phase has been played."""
        return self._index == len(self._phases)

    def advance(self, command: JointCommand, q: NDArray[np.float64]) -> None:
        """Fill the command of the next tick from the measured positions `[Ja]`; not when `done`."""
        phase = self._phases[self._index]
        if self._count == 0:
            np.copyto(self._begin, q)
            self._ticks = max(phase.ticks, self._fastest(phase.pose))
        self._count += 1
        if phase.pose is None:
            command.set_damping(q, phase.kd)
        else:
            self._interpolate(phase.pose)
            command.set_track(self._q, self._dq, phase.kp, phase.kd)
        if self._count == self._ticks:
            self._index += 1
            self._count = 0

    def rest(self, command: JointCommand, q: NDArray[np.float64]) -> None:
        """Fill a command that stays where the last phase ended."""
        phase = self._phases[-1]
        if phase.pose is None:
            command.set_damping(q, phase.kd)
        else:
            command.set_track(phase.pose, 0.0, phase.kp, phase.kd)

    def _fastest(self, pose: NDArray[np.float64] | None) -> int:
        """The least number of ticks, by the joint with the longest way for its hard limit."""
        if pose is None:
            return 0
        np.subtract(pose, self._begin, out=self._dq)
        np.abs(self._dq, out=self._dq)
        np.divide(self._dq, self._velocity, out=self._dq)
        return math.ceil(min(PEAK * float(self._dq.max()) / self._dt, 1e9))  # no joint is that far away

    def _interpolate(self, pose: NDArray[np.float64]) -> None:
        """Minimum-jerk motion (Flash and Hogan, 1985): at rest at both ends."""
        x = self._count / self._ticks
        np.subtract(pose, self._begin, out=self._q)
        np.multiply(self._q, 30 * x**2 * (1 - x) ** 2 / (self._ticks * self._dt), out=self._dq)
        np.multiply(self._q, x**3 * (10 - 15 * x + 6 * x**2), out=self._q)
        np.add(self._q, self._begin, out=self._q)

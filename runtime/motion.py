"""Motions that need no policy: smoothly to a pose, and to rest."""

from __future__ import annotations

import math

import numpy as np

from .command import Floats
from .profile import Profile

PEAK = 15 / 8
"""Largest speed of a minimum-jerk motion, in units of its mean speed."""
SHARE = 0.9
"""Of a joint's hard velocity limit that a motion may ask for: a joint that lags behind may overshoot it."""


class SmoothMotion:
    """From the measured pose to another, minimum-jerk (Flash and Hogan, 1985): at rest at both ends.

    One that would come too near to a joint's hard velocity limit takes longer than asked.
    """

    q: Floats
    """Where to be now `[Ja]`."""
    dq: Floats
    """How fast `[Ja]`."""
    ticks: int
    """Of the whole motion."""

    def __init__(self, profile: Profile, control_period_ns: int) -> None:
        self._dt = control_period_ns * 1e-9
        self._velocity = np.array([joint.velocity for joint in profile.actuated])
        self._begin, self._pose, self.q, self.dq = np.zeros((4, len(self._velocity)))
        self.ticks = self._count = 0

    def begin(self, q: Floats, pose: Floats, ticks: int) -> None:
        """Go from `q` to `pose` `[Ja]` in `ticks`, or more where the joints need them."""
        self._begin[:] = q
        self._pose[:] = pose
        np.subtract(pose, q, out=self.dq)
        np.abs(self.dq, out=self.dq)
        np.divide(self.dq, self._velocity, out=self.dq)
        needed = PEAK / SHARE * float(self.dq.max()) / self._dt
        least = math.ceil(min(needed, 1e9))  # no joint is that far away
        self.ticks, self._count = max(ticks, least), 0

    @property
    def done(self) -> bool:
        """Whether it has come to its end."""
        return self._count == self.ticks

    def advance(self) -> None:
        """Go on by a tick; after the last one, stay."""
        self._count = min(self._count + 1, self.ticks)
        x = self._count / self.ticks
        np.subtract(self._pose, self._begin, out=self.q)
        np.multiply(self.q, 30 * x**2 * (1 - x) ** 2 / (self.ticks * self._dt), out=self.dq)
        np.multiply(self.q, x**3 * (10 - 15 * x + 6 * x**2), out=self.q)
        np.add(self.q, self._begin, out=self.q)


class BrakingMotion:
    """To rest within each joint's acceleration and jerk, then stays.

    A joint that would leave its position range that way brakes as hard as it must: position comes before
    acceleration, acceleration before jerk.
    """

    q: Floats
    """Where to be now `[Ja]`."""
    dq: Floats
    """How fast `[Ja]`."""

    def __init__(self, profile: Profile, control_period_ns: int) -> None:
        self._dt = control_period_ns * 1e-9
        joints = profile.actuated
        self._velocity = np.array([joint.velocity for joint in joints])
        self._acceleration = np.array([joint.acceleration or math.inf for joint in joints])
        self._jerk = np.array([joint.jerk or math.inf for joint in joints])
        self._low, self._high = np.array([joint.position or (-math.inf, math.inf) for joint in joints]).T
        self.q, self.dq, self._rate = np.zeros((3, len(joints)))

    def begin(self, q: Floats, dq: Floats) -> None:
        """From the measured positions and velocities `[Ja]`."""
        self.q[:] = q
        np.clip(dq, -self._velocity, self._velocity, out=self.dq)
        self._rate.fill(0.0)

    def advance(self) -> bool:
        """Go on by a tick; whether a joint has to brake harder than its limits."""
        speed, dt = np.abs(self.dq), self._dt
        if not speed.any():
            return False
        # With this rate the acceleration is back at zero when the speed is.
        wanted = np.minimum(self._acceleration, np.sqrt(2 * self._jerk * speed))
        np.minimum(wanted, self._rate + self._jerk * dt, out=self._rate)
        left = np.where(self.dq > 0, self._high - self.q, self.q - self._low)
        needed = speed**2 / (2 * np.maximum(left, 1e-12))
        harder = needed > np.maximum(self._rate, self._acceleration)
        rate = np.where(harder, needed, self._rate)
        slower = np.maximum(speed - rate * dt, 0.0)
        direction = np.sign(self.dq)
        self.q += direction * (speed + slower) / 2 * dt
        np.clip(self.q, self._low, self._high, out=self.q)
        self.dq[:] = direction * slower
        return bool(harder.any())

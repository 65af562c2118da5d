"""One tick's measurement: checked against time, hard limits and itself, before anything is made of it."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from .command import NEVER_NS, Floats, Sample, signal_size
from .contract import JOINT_KINDS, Contract
from .errors import AndanteError
from .frames import gravity_direction
from .profile import Profile, SignalQuality

FLOAT32_MAX = float(np.finfo(np.float32).max)
"""The graph reads float32: anything beyond is infinite to it."""
NORM_TOLERANCE = 0.05
"""How far the square of an orientation's norm may be from 1."""
AHEAD_NS = 1_000_000
"""So far may a synchronised clock be ahead of this one."""
LIMIT_EVENTS = {
    "joint_temperature": ("temperature", "at most {1:.4g}"),
    "battery_voltage": ("battery", "at least {0:.4g}"),
}
"""Event and wording of limits that are not those of motion."""


class Measurement:
    """What is known about the robot now, in the robot's convention."""

    values: Floats
    """All signals in the profile's order, flat, and a zero behind them; zero where not finite."""
    signals: Mapping[str, Floats]
    """The same by name, as views."""
    state: Floats
    """Positions and velocities `[2, Ja]` of the actuated joints; a velocity that is not measured is zero."""
    usable: NDArray[np.bool_]
    """`[2, Ja]`: whether a joint's position is finite, and its velocity; rows `usable_q`, `usable_dq`."""
    stale: str | None
    """What is wrong with the time of the first signal that cannot be relied upon, as a phrase."""
    lost: set[str]
    """All that cannot be relied upon."""
    faults: list[tuple[str, str]]
    """Events, with their reasons, that the values themselves bring."""

    def __init__(self, contract: Contract, profile: Profile) -> None:
        """Lay the signals out; contract and profile must fit each other."""
        end, self.places = 0, {}
        for name in profile.signals:
            begin, end = end, end + signal_size(name, len(profile.joints))
            self.places[name] = slice(begin, end)
        self.values = np.zeros(end + 1)
        self.signals = {name: self.values[place] for name, place in self.places.items()}
        self._profile = profile
        self._low, self._high = self._limits(profile)
        self._not_below, self._not_above = self._within = np.ones((2, len(self.values)), np.bool_)
        self._actuated = actuated = np.flatnonzero([joint.actuated for joint in profile.joints])
        self._columns = columns = np.full((2, len(actuated)), end)
        for row, kind in enumerate(JOINT_KINDS):
            if kind in self.places:
                columns[row] = self.places[kind].start + actuated
        self.q, self.dq = self.state = np.zeros((2, len(actuated)))
        self.usable_q, self.usable_dq = self.usable = np.ones((2, len(actuated)), np.bool_)
        self._stamps = [
            (name, view, _Stamps(profile.signals[name], view.shape)) for name, view in self.signals.items()
        ]
        self._orientations = [name for name in self.signals if name.startswith("orientation")]
        levels = "orientation" in profile.signals
        self._up = profile.signals["orientation"].rotation[2].tolist() if levels else [0.0, 0.0, 1.0]
        self._max_tilt = math.inf if profile.max_tilt is None else profile.max_tilt
        self.trust(contract)
        self.reset()

    def trust(self, contract: Contract) -> None:
        """Demand signals as fresh as profile and contract want them."""
        for name, _, stamps in self._stamps:
            ages = [round(self._profile.signals[name].max_age_s * 1e9)]
            for source in contract.sources:
                if source.max_age_ns is not None and self._profile.signal_of(source) == name:
                    ages.append(source.max_age_ns)
            stamps.max_age_ns = min(ages)

    def reset(self) -> None:
        """Nothing has been measured."""
        self.stale = None
        self.lost = set()
        self.tilt = 0.0
        self.faults = []
        for _, _, stamps in self._stamps:
            stamps.reset()

    def update(self, sample: Sample) -> None:
        """Take over a sample.

        Raises:
            AndanteError: a signal has not the shape that the profile calls for.
        """
        self.stale = None
        self.lost.clear()
        now_ns, received_ns, source_ns = sample.now_ns, sample.received_ns, sample.source_ns
        for name, view, stamps in self._stamps:
            found = sample.values[name]
            if found.shape != stamps.shape:  # one value would be broadcast to all joints
                raise AndanteError(f"{name} has shape {found.shape}, expected {stamps.shape}")
            view[:] = found
            wrong = stamps.check(found, received_ns[name], source_ns[name], now_ns)
            if wrong is not None:
                self.stale = self.stale or f"{name} {wrong}"
                self.lost.add(name)
        if self.faults:
            self.faults.clear()
        self.usable.fill(True)
        np.less_equal(self._low, self.values, out=self._not_below)
        np.less_equal(self.values, self._high, out=self._not_above)
        if np.count_nonzero(self._within) != self._within.size:
            self._judge()
        self.values.take(self._columns, None, self.state, "clip")
        for name in self._orientations:
            self._level(name)

    def unmet(self) -> str | None:
        """The first condition for the start sequence that does not hold, as a phrase."""
        wanted = self._profile.conditions
        found = [("the base leans by", self.tilt, 0.0, wanted.max_tilt)]
        for i, joint in enumerate(self._profile.joints):
            if joint.name in wanted.position:
                q = self.signals["joint_position"].item(i)
                found.append((f"joint {joint.name!r} is at", q, *wanted.position[joint.name]))
            if wanted.max_speed is not None:
                speed = abs(self.signals["joint_velocity"].item(i))
                found.append((f"joint {joint.name!r} moves at", speed, 0.0, wanted.max_speed))
        for what, value, low, high in found:
            if high is not None and not low <= value <= high:
                return f"{what} {value:.3g}, to start it must be in [{low:g}, {high:g}]"
        return None

    def _limits(self, profile: Profile) -> tuple[Floats, Floats]:
        low, high = (np.full(len(self.values), bound) for bound in (-FLOAT32_MAX, FLOAT32_MAX))
        for i, joint in enumerate(profile.joints):
            ranges = {
                "joint_position": joint.position,
                "joint_velocity": (-joint.velocity, joint.velocity),
                "joint_temperature": (-FLOAT32_MAX, joint.temperature or FLOAT32_MAX),
            }
            for kind, ends in ranges.items():
                if kind in self.places and ends:
                    low[self.places[kind].start + i], high[self.places[kind].start + i] = ends
        if profile.min_battery_voltage is not None:
            low[self.places["battery_voltage"]] = profile.min_battery_voltage
        return low, high

    def _judge(self) -> None:
        """Name the values that are outside; those that are no numbers become zero."""
        values = self.values
        finite = np.abs(values) <= FLOAT32_MAX
        beyond = finite & ~(self._not_below & self._not_above)
        for name, place in self.places.items():
            if not finite[place].all():
                self.faults.append(("non_finite", f"{self._locate(name, ~finite[place])} is not finite"))
                if name in JOINT_KINDS:
                    self.usable[JOINT_KINDS.index(name)] = finite[place][self._actuated]
        for name, place in self.places.items():
            if beyond[place].any():
                at = place.start + int(np.argmax(beyond[place]))
                event, limits = LIMIT_EVENTS.get(name, ("limit", "hard limits [{:.4g}, {:.4g}]"))
                found = f"{self._locate(name, beyond[place])} is {values[at]:.4g}"
                self.faults.append((event, f"{found}, {limits.format(self._low[at], self._high[at])}"))
        values[~finite] = 0.0

    def _level(self, name: str) -> None:
        """Judge an orientation, and how far the base leans."""
        w, x, y, z = self.signals[name].tolist()
        square = w * w + x * x + y * y + z * z
        if abs(square - 1.0) > NORM_TOLERANCE:
            self.faults.append(("non_finite", f"{name} is no rotation: its norm is {math.sqrt(square):.3g}"))
        elif name == "orientation":
            gx, gy, gz = gravity_direction(w, x, y, z)
            ux, uy, uz = self._up
            self.tilt = math.acos(min(max(-(ux * gx + uy * gy + uz * gz), -1.0), 1.0))
            if self.tilt > self._max_tilt:
                leans = f"the base leans by {self.tilt:.3g} rad, at most {self._max_tilt:.3g}"
                self.faults.append(("tilt", leans))

    def _locate(self, name: str, mask: NDArray[np.bool_]) -> str:
        if name.startswith("joint_"):
            return f"{name} of joint {self._profile.joints[int(np.argmax(mask))].name!r}"
        return name


class _Stamps:
    """When a signal was measured: age, progress, gaps, and repetitions."""

    def __init__(self, quality: SignalQuality, shape: tuple[int, ...]) -> None:
        self.max_age_ns = 0
        self.shape = shape
        self._clock = quality.clock
        self._max_gap_ns = math.inf if quality.max_gap_s is None else quality.max_gap_s * 1e9
        self._frozen_after = math.inf if quality.frozen_after is None else quality.frozen_after
        self.reset()

    def reset(self) -> None:
        """Nothing has been measured."""
        self._received_ns = self._source_ns = self._fresh_ns = NEVER_NS
        self._equal = 0
        self._last = b""

    def check(self, values: Floats, received_ns: int, source_ns: int, now_ns: int) -> str | None:
        """What is wrong with a measurement's time, as a phrase."""
        wrong = None
        last_ns, self._received_ns = self._received_ns, received_ns
        if received_ns != last_ns:
            if self._frozen_after < math.inf:
                found = values.tobytes()
                self._equal = self._equal + 1 if found == self._last else 1
                self._last = found
            if last_ns != NEVER_NS and received_ns - last_ns > self._max_gap_ns:
                wrong = f"had a gap of {(received_ns - last_ns) * 1e-6:.1f} ms"
            elif received_ns < last_ns:
                wrong = f"was received {(last_ns - received_ns) * 1e-6:.1f} ms before the one before"
            if self._clock == "none" or source_ns > self._source_ns:
                self._fresh_ns = received_ns
            elif source_ns < self._source_ns:
                wrong = f"has a stamp {(self._source_ns - source_ns) * 1e-6:.1f} ms before the one before"
            self._source_ns = source_ns
        if received_ns == NEVER_NS:
            return "has not arrived"
        age_ns = now_ns - min(self._fresh_ns, received_ns)
        if self._clock == "synchronised":
            late_ns = now_ns - source_ns
            age_ns = late_ns if late_ns < -AHEAD_NS else max(age_ns, late_ns)
        if age_ns < 0:
            return f"is stamped {-age_ns * 1e-6:.1f} ms in the future"
        if age_ns > self.max_age_ns:
            return f"is {age_ns * 1e-6:.1f} ms old"
        if self._equal >= self._frozen_after:
            return f"is frozen: {self._equal} equal measurements in a row"
        return wrong

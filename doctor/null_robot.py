"""No robot: for trying a policy's timing on a machine."""

from __future__ import annotations

import time

import numpy as np

from andante.runtime.command import FIELDS, JointCommand, Sample
from andante.runtime.contract import Contract
from andante.runtime.frames import rotation_matrix
from andante.runtime.profile import Profile

AT_REST: dict[str, float | tuple[float, ...]] = {
    "orientation": (1.0, 0.0, 0.0, 0.0),
    "linear_acceleration": (0.0, 0.0, 9.81),
    "battery_voltage": 1000.0,
}
"""What is not zero for a robot that stands still, upright and charged."""
NOISE = 1e-6
"""Of every other reading: values that never change are those of a frozen sensor."""


class NullRobot:
    """Measures a robot at rest, at zero or as near to it as its limits allow; swallows commands."""

    name: str = "null"
    carries: frozenset[str] = frozenset(FIELDS)

    def __init__(self, contract: Contract, profile: Profile) -> None:
        self.joints: tuple[str, ...] = profile.joint_names
        self._sample = Sample.allocate(profile.signals, len(self.joints))
        for signal, values in self._sample.values.items():
            values[:] = AT_REST.get(signal.partition("/")[0], 0.0)
            mounting = profile.signals[signal].mounting
            if mounting is not None:  # it is the body that is upright, not the sensor
                orientation = signal.startswith("orientation")
                values[:] = mounting if orientation else rotation_matrix(mounting).T @ values
        for i, joint in enumerate(profile.joints):
            low, high = profile.conditions.position.get(joint.name, joint.position) or (-np.inf, np.inf)
            self._sample.values["joint_position"][i] = np.clip(0.0, low + NOISE, high - NOISE)
        self._noise = NOISE

    def read(self) -> Sample:
        """The same measurement, fresh."""
        now_ns = self._sample.now_ns = time.monotonic_ns()
        for signal, values in self._sample.values.items():
            np.add(values, self._noise, out=values)
            self._sample.received_ns[signal] = self._sample.source_ns[signal] = now_ns
        self._noise = -self._noise
        return self._sample

    def write(self, command: JointCommand) -> None:
        """Swallow the command."""

    def close(self) -> None:
        """Nothing is held."""

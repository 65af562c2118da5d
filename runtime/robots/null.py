"""No robot: for trying a policy's timing on a machine."""

from __future__ import annotations

import time

import numpy as np

from ..command import FIELDS, JointCommand, Sample
from ..contract import Contract
from ..profile import Profile


class NullRobot:
    """Measures a robot at rest, at zero or as near to it as the hard limits allow, and swallows commands."""

    name: str = "null"
    carries: frozenset[str] = frozenset(FIELDS)

    def __init__(self, contract: Contract, profile: Profile) -> None:
        self.joints: tuple[str, ...] = profile.joint_names
        self._sample = Sample.allocate(profile.signals, len(self.joints))
        ranges = [joint.position or (-np.inf, np.inf) for joint in profile.joints]
        self._sample.values["joint_position"][:] = [np.clip(0.0, low, high) for low, high in ranges]

    def read(self) -> Sample:
        """The same measurement, fresh."""
        now_ns = time.monotonic_ns()
        self._sample.now_ns = now_ns
        for signal in self._sample.received_ns:
            self._sample.received_ns[signal] = now_ns
        return self._sample

    def write(self, command: JointCommand) -> None:
        """Swallow the command."""

    def close(self) -> None:
        """Nothing is held."""

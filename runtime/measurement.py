"""One tick's measurement: checked, and gathered into the policy's inputs by maps made once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .command import Sample, Signal
from .contract import Contract
from .errors import AndanteError
from .profile import Profile

ROWS: tuple[Signal, ...] = ("joint_position", "joint_velocity")
FLOAT32_MAX = float(np.finfo(np.float32).max)
"""The graph reads float32: anything beyond is infinite to it."""


class Measurement:
    """What is known about the joints now, in the robot's convention."""

    q: NDArray[np.float64]
    """Positions of the actuated joints `[Ja]`; zero where not finite."""
    dq: NDArray[np.float64]
    """Velocities of the actuated joints `[Ja]`; zero where not finite or not measured."""
    usable: NDArray[np.bool_]
    """`[Ja]`: whether all that is measured of the joint is finite."""
    stale: str | None
    """The first signal that is too old, or of a time to come, as a phrase."""

    def __init__(self, contract: Contract, profile: Profile) -> None:
        """Make the maps; contract and profile must fit each other."""
        joints = profile.joints
        self._names = profile.joint_names
        self._rows = [(signal, ROWS.index(signal)) for signal in profile.signals]
        self._max_age_ns = {
            signal: min(
                [round(quality.max_age_s * 1e9)]
                + [source.max_age_ns for source in contract.sources if source.kind == signal]
            )
            for signal, quality in profile.signals.items()
        }
        shape = (len(ROWS), len(joints))
        position = [joint.position or (-np.inf, np.inf) for joint in joints]
        velocity = [(-joint.velocity, joint.velocity) for joint in joints]
        self._low, self._high = np.array([position, velocity]).transpose(2, 0, 1)
        self._sign = np.array([joint.sign for joint in joints], np.float64)
        self._offset = np.array([[joint.zero_offset for joint in joints], [0.0] * len(joints)])
        self._values = np.zeros(shape)
        self._policy_values = np.zeros(shape)
        self._magnitude = np.zeros(shape)
        self._finite = np.ones(shape, np.bool_)
        self._beyond = np.zeros(shape, np.bool_)
        self._beyond_low = np.zeros(shape, np.bool_)
        self._joint_finite = np.ones(len(joints), np.bool_)
        self._actuated = np.flatnonzero([joint.actuated for joint in joints])
        self.q, self.dq = np.zeros((2, len(self._actuated)))
        self.usable = np.ones(len(self._actuated), np.bool_)
        self.stale = None
        self._sources = [
            (
                source.name,
                np.array(
                    [ROWS.index(source.kind) * len(joints) + self._names.index(j) for j in source.joints]
                ),
                np.zeros(len(source.joints)),
            )
            for source in contract.sources
        ]

    def update(self, sample: Sample) -> None:
        """Take over a sample.

        Raises:
            AndanteError: a signal has not one value per joint.
        """
        self.stale = None
        for signal, row in self._rows:
            values = sample.values[signal]
            if values.shape != self._values[row].shape:  # one value would be broadcast to all joints
                raise AndanteError(f"{signal} has shape {values.shape}, expected ({len(self._names)},)")
            np.copyto(self._values[row], values)
            age_ns = sample.now_ns - sample.received_ns[signal]
            if not 0 <= age_ns <= self._max_age_ns[signal] and self.stale is None:
                told = f"{age_ns * 1e-6:.1f} ms old"
                if age_ns < 0:
                    told = f"stamped {-age_ns * 1e-6:.1f} ms in the future"
                self.stale = f"{signal} is {told}"
        np.abs(self._values, out=self._magnitude)
        np.less_equal(self._magnitude, FLOAT32_MAX, out=self._finite)
        if not self._finite.all():
            np.copyto(self._values, 0.0, where=~self._finite)
        np.logical_and.reduce(self._finite, out=self._joint_finite)
        np.take(self._joint_finite, self._actuated, out=self.usable)
        np.take(self._values[0], self._actuated, out=self.q)
        np.take(self._values[1], self._actuated, out=self.dq)

    def not_finite(self) -> str | None:
        """The first value that is not finite, as a phrase."""
        if self._finite.all():
            return None
        return f"{self._locate(~self._finite)} is not finite"

    def beyond_limit(self) -> str | None:
        """The first value outside its hard limits, as a phrase."""
        np.less(self._values, self._low, out=self._beyond_low)
        np.greater(self._values, self._high, out=self._beyond)
        np.logical_or(self._beyond, self._beyond_low, out=self._beyond)
        if not self._beyond.any():
            return None
        at = int(np.argmax(self._beyond))
        low, high, value = self._low.flat[at], self._high.flat[at], self._values.flat[at]
        return f"{self._locate(self._beyond)} is {value:.4g}, hard limits [{low:.4g}, {high:.4g}]"

    def gather(self, inputs: dict[str, NDArray[np.float32]]) -> None:
        """Fill the policy's inputs, in the policy's convention."""
        np.subtract(self._values, self._offset, out=self._policy_values)
        np.multiply(self._policy_values, self._sign, out=self._policy_values)
        for name, indices, values in self._sources:
            np.take(self._policy_values, indices, out=values)
            inputs[name][0] = values

    def _locate(self, mask: NDArray[np.bool_]) -> str:
        row, joint = divmod(int(np.argmax(mask)), mask.shape[1])
        return f"{ROWS[row]} of joint {self._names[joint]!r}"

"""What goes into and comes out of one control tick: `Sample` and `JointCommand`, filled in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .errors import AndanteError

Signal = Literal["joint_position", "joint_velocity"]
Mode = Literal["disabled", "damping", "track"]

FIELDS = ("q", "dq", "tau_ff", "kp", "kd")
"""The fields of a `JointCommand` that an output may or may not be able to carry."""

NEVER_NS = -(2**62)
"""Receive stamp of a signal that has not arrived yet: older than any age allowed."""


@dataclass
class Sample:
    """What the robot measured, in the robot's own convention and SI units.

    `values` holds one array `[J]` per signal, in the profile's joint order; `received_ns` says when each
    arrived, `now_ns` what time it is after that, all on one monotonic clock.
    """

    values: dict[str, NDArray[np.float64]]
    received_ns: dict[str, int]
    now_ns: int

    @classmethod
    def allocate(cls, signals: Iterable[str], joints: int) -> Sample:
        """Zeros that never arrived, to be filled in place."""
        signals = tuple(signals)
        return cls({signal: np.zeros(joints) for signal in signals}, dict.fromkeys(signals, NEVER_NS), 0)

    def take(self, other: Sample) -> None:
        """Take over the signals of `other`; whatever is wrong with one of them is an exception."""
        for signal, values in self.values.items():
            found = other.values[signal]
            if found.shape != values.shape:  # one value would be broadcast to all joints
                raise AndanteError(f"{signal} has shape {found.shape}, expected {values.shape}")
            np.copyto(values, found)
            self.received_ns[signal] = int(other.received_ns[signal])
        self.now_ns = int(other.now_ns)

    def lose(self) -> None:
        """Keep the values, and have them count as never received."""
        for signal in self.received_ns:
            self.received_ns[signal] = NEVER_NS


@dataclass
class JointCommand:
    """One tick's command: torque = `kp` (`q` - q measured) + `kd` (`dq` - dq measured) + `tau_ff`.

    Arrays are `[Ja]` over the profile's actuated joints, in profile order, robot convention, SI units.
    `valid_for_ns` is how long a receiver may go on obeying. In mode `disabled` nothing is to be written.
    """

    tick: int
    valid_for_ns: int
    mode: Mode
    q: NDArray[np.float64]
    dq: NDArray[np.float64]
    tau_ff: NDArray[np.float64]
    kp: NDArray[np.float64]
    kd: NDArray[np.float64]

    @classmethod
    def allocate(cls, joints: int, valid_for_ns: int) -> JointCommand:
        """A disabled command of zeros."""
        return cls(-1, valid_for_ns, "disabled", *(np.zeros(joints) for _ in FIELDS))

    def copy(self) -> JointCommand:
        """An independent copy: the controller fills one command over and over."""
        arrays = (getattr(self, field).copy() for field in FIELDS)
        return JointCommand(self.tick, self.valid_for_ns, self.mode, *arrays)

    def set_zero(self, mode: Mode) -> None:
        """No torque at all."""
        self.mode = mode
        for array in (self.q, self.dq, self.tau_ff, self.kp, self.kd):
            array.fill(0.0)

    def set_damping(self, q: NDArray[np.float64], kd: NDArray[np.float64]) -> None:
        """Brake in proportion to velocity; `q` is where the joints are."""
        self.set_zero("damping")
        np.copyto(self.q, q)
        np.copyto(self.kd, kd)

    def set_track(
        self,
        q: NDArray[np.float64],
        dq: NDArray[np.float64] | float,
        kp: NDArray[np.float64],
        kd: NDArray[np.float64],
    ) -> None:
        """Follow a pose and its velocity."""
        self.mode = "track"
        np.copyto(self.q, q)
        np.copyto(self.dq, dq)
        self.tau_ff.fill(0.0)
        np.copyto(self.kp, kp)
        np.copyto(self.kd, kd)

"""What goes into and comes out of one control tick: `Sample` and `JointCommand`, filled in place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .errors import AndanteError

Floats = NDArray[np.float64]
"""Numbers of the control loop."""
Mode = Literal["disabled", "damping", "track"]
"""What a command asks for: no torque at all, a brake on every joint, or a pose to follow."""

SIGNAL_SIZES: dict[str, int | None] = {
    "joint_position": None,
    "joint_velocity": None,
    "joint_temperature": None,
    "orientation": 4,
    "angular_velocity": 3,
    "linear_acceleration": 3,
    "linear_velocity": 3,
    "position": 3,
    "battery_voltage": 1,
}
"""Numbers in each kind of signal; None is one per joint. `orientation` is a unit quaternion w, x, y, z that
turns vectors of the sensor's frame into the world's. A signal of another body than the robot's base is named
`kind/body`."""

FIELDS = ("q", "dq", "tau_ff", "kp", "kd")
"""The fields of a `JointCommand` that an output may or may not be able to carry."""

NEVER_NS = -(2**62)
"""Receive stamp of a signal that has not arrived yet: older than any age allowed."""


def signal_size(signal: str, joints: int) -> int:
    """Numbers in a signal of a robot with so many joints.

    Raises:
        AndanteError: no such kind of signal.
    """
    kind = signal.partition("/")[0]
    if kind not in SIGNAL_SIZES:
        raise AndanteError(f"no signal {signal!r}; kinds of signals: {', '.join(SIGNAL_SIZES)}")
    return SIGNAL_SIZES[kind] or joints


def _stamp(value: int) -> int:
    if not -(2**63) <= value < 2**63:
        raise AndanteError(f"a stamp must be ns that fit into 64 bits, found {value}")
    return int(value)


@dataclass
class OperatorInput:
    """What the operator wants at this tick, on the sample's clock."""

    command: Floats
    """Task command `[k]`, in the order and units of the contract's source of kind `command`."""
    command_ns: int = NEVER_NS
    """When it arrived."""
    start: bool = False
    """Let the policy run; counts in `READY` only."""
    stop: bool = False
    """Stop softly."""
    e_stop: str | None = None
    """Reason of an emergency stop."""
    heartbeat_ns: int | None = None
    """When the emergency-stop device last said that it is not pressed; None where there is no such device."""

    def take(self, other: OperatorInput) -> None:
        """Take over what `other` says; whatever is wrong with it is an exception."""
        command = np.asarray(other.command, np.float64)
        if command.shape != self.command.shape:
            raise AndanteError(f"the command has shape {command.shape}, expected {self.command.shape}")
        np.copyto(self.command, command)
        self.command_ns, self.start, self.stop = _stamp(other.command_ns), bool(other.start), bool(other.stop)
        self.e_stop = None if other.e_stop is None else str(other.e_stop)
        self.heartbeat_ns = None if other.heartbeat_ns is None else _stamp(other.heartbeat_ns)


@dataclass
class Sample:
    """What the robot measured, in the robot's own convention and SI units, and what the operator wants.

    `values` holds one array per signal, per-joint ones `[J]` in the profile's joint order. `received_ns` says
    when each arrived, `now_ns` what time it is after that, all on one monotonic clock; `source_ns` is the
    stamp of the sensor's own clock, equal to `received_ns` where it has none.

    Nothing else influences a tick: the same samples at the same ticks give the same commands.
    """

    values: dict[str, Floats]
    """One array per signal."""
    received_ns: dict[str, int]
    """When each signal arrived."""
    source_ns: dict[str, int]
    """Each sensor's own stamp."""
    now_ns: int
    """The time of the sample."""
    operator: OperatorInput
    """What the operator wants."""
    overrun: bool = False
    """The driver's work ended after the next deadline, or it missed a tick."""
    answered: bool = True
    """An inference asked for earlier is done; an answer that is not is waited for at later ticks."""
    delay_ticks: int = 0
    """How many ticks inference needs, as far as the driver has seen."""

    @classmethod
    def allocate(cls, signals: Iterable[str], joints: int, command_size: int = 0) -> Sample:
        """Zeros that never arrived, to be filled in place."""
        values = {signal: np.zeros(signal_size(signal, joints)) for signal in signals}
        never = dict.fromkeys(values, NEVER_NS)
        return cls(values, never, never.copy(), 0, OperatorInput(np.zeros(command_size)))

    def take(self, other: Sample) -> None:
        """Take over the signals of `other`; whatever is wrong with one of them is an exception."""
        for signal, values in self.values.items():
            found = other.values[signal]
            if found.shape != values.shape:  # one value would be broadcast to all joints
                raise AndanteError(f"{signal} has shape {found.shape}, expected {values.shape}")
            np.copyto(values, found)
            self.received_ns[signal] = _stamp(other.received_ns[signal])
            self.source_ns[signal] = _stamp(other.source_ns[signal])
        self.now_ns = _stamp(other.now_ns)

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

    rows: Floats = field(init=False, repr=False, compare=False)
    """The fields' memory `[5, Ja]` in the order `tau_ff`, `q`, `dq`, `kp`, `kd`."""
    limited: Floats = field(init=False, repr=False, compare=False)
    """Rows `tau_ff` and `q`."""
    state: Floats = field(init=False, repr=False, compare=False)
    """Rows `q` and `dq`."""
    targets: Floats = field(init=False, repr=False, compare=False)
    """Rows `tau_ff`, `q` and `dq`."""
    gains: Floats = field(init=False, repr=False, compare=False)
    """Rows `kp` and `kd`."""
    tick: int
    """Number of the control period that it is for."""
    valid_for_ns: int
    """How long it may be obeyed."""
    mode: Mode
    """What it asks for."""
    q: Floats
    """Positions, rad or m."""
    dq: Floats
    """Velocities, rad/s or m/s."""
    tau_ff: Floats
    """Torques to be added, N m or N."""
    kp: Floats
    """Position gains, N m/rad or N/m."""
    kd: Floats
    """Velocity gains, N m s/rad or N s/m."""

    def __post_init__(self) -> None:
        self.rows = np.array([self.tau_ff, self.q, self.dq, self.kp, self.kd], np.float64)
        self.tau_ff, self.q, self.dq, self.kp, self.kd = self.rows
        self.limited, self.state = self.rows[:2], self.rows[1:3]
        self.targets, self.gains = self.rows[:3], self.rows[3:]

    @classmethod
    def allocate(cls, joints: int, valid_for_ns: int) -> JointCommand:
        """A disabled command of zeros."""
        return cls(-1, valid_for_ns, "disabled", *(np.zeros(joints) for _ in FIELDS))

    def copy(self) -> JointCommand:
        """An independent copy: the controller fills one command over and over."""
        return JointCommand(self.tick, self.valid_for_ns, self.mode, *(getattr(self, key) for key in FIELDS))

    def set_zero(self, mode: Mode) -> None:
        """No torque at all."""
        self.mode = mode
        self.rows.fill(0.0)

    def set_damping(self, q: Floats | float, kd: Floats) -> None:
        """Brake in proportion to velocity; `q` is where the joints are."""
        self.set_zero("damping")
        np.copyto(self.q, q)
        np.copyto(self.kd, kd)

    def set_track(self, q: Floats, dq: Floats | float, kp: Floats, kd: Floats) -> None:
        """Follow a pose and its velocity."""
        self.set_zero("track")
        np.copyto(self.q, q)
        np.copyto(self.dq, dq)
        np.copyto(self.kp, kp)
        np.copyto(self.kd, kd)

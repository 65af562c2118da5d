"""The contract: what a policy reads, emits and assumes. It travels inside the ONNX file.

Structures are immutable, refuse unknown keys, and keep every float at full precision.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, Literal

import msgspec

from .errors import ArtifactError

SCHEMA = 1

Positive = Annotated[int, msgspec.Meta(ge=1)]
GapTicks = Annotated[int, msgspec.Meta(ge=0, le=100)]
PeriodNs = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
AgeNs = Annotated[int, msgspec.Meta(ge=1, le=3600 * 10**9)]
Joints = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]

UNITS = {
    "joint_position": ("rad", "m"),
    "joint_velocity": ("rad/s", "m/s"),
    "position": ("rad", "m"),
    "effort": ("N m", "N"),
}
"""Units of each kind of source and of action: for joints that turn, and for those that slide."""
RESERVED = ("", "h_in", "h_out", "actions")
"""Names that no source may have: none, and those of the graph's other tensors."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every contract structure: immutable, keyword-only, no unknown keys."""


class Source(Record, frozen=True):
    """A quantity that the robot measures, as one input tensor `[1, *shape]` of the graph."""

    name: str
    """Input tensor name."""
    kind: Literal["joint_position", "joint_velocity"]
    """Signal that it is gathered from."""
    joints: Joints
    """Joints in tensor order."""
    unit: str
    """Unit of the values: rad or m (positions), rad/s or m/s (velocities)."""
    max_age_ns: AgeNs
    """Older than this at a tick is stale: the robot profile's fallback applies."""

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise ValueError(f"a source cannot be named {self.name!r}")
        _check_unit(f"source {self.name!r}", self.kind, self.unit)

    @property
    def shape(self) -> tuple[int, ...]:
        """Tensor shape without the batch dimension."""
        return (len(self.joints),)


class ActionTerm(Record, frozen=True):
    """Consecutive columns of the action tensor, one per joint, in SI units."""

    name: str
    kind: Literal["position", "effort"]
    joints: Joints
    unit: str
    low: tuple[float, ...]
    """Smallest value per joint that the policy was trained with."""
    high: tuple[float, ...]
    """Largest value per joint that the policy was trained with."""
    kp: tuple[float, ...]
    """Position gain per joint in training, N m/rad or N/m; zero for `effort`."""
    kd: tuple[float, ...]
    """Velocity gain per joint in training, N m s/rad or N s/m; zero for `effort`."""
    closed_by: Literal["drive", "host"]
    """Who closes the position loop in training: every physics step (`drive`) or every tick (`host`)."""
    interpolation: Literal["zoh"] = "zoh"
    """What happens between two ticks: the action is held."""

    def __post_init__(self) -> None:
        _check_unit(f"action term {self.name!r}", self.kind, self.unit)
        for key in ("low", "high", "kp", "kd"):
            values = getattr(self, key)
            if len(values) != len(self.joints):
                raise ValueError(
                    f"action term {self.name!r}: {key} has {len(values)} values for {len(self.joints)} joints"
                )
            if not all(map(math.isfinite, values)):
                raise ValueError(f"action term {self.name!r}: {key} must be finite, found {list(values)}")
            if key in ("kp", "kd") and (min(values) < 0.0 or (self.kind == "effort" and any(values))):
                least = "zero for effort" if self.kind == "effort" else "not negative"
                raise ValueError(f"action term {self.name!r}: {key} must be {least}, found {list(values)}")
        for joint, low, high in zip(self.joints, self.low, self.high, strict=True):
            if not low < high:
                raise ValueError(f"action term {self.name!r}: empty range [{low}, {high}] of joint {joint!r}")


class StateTensor(Record, frozen=True):
    """A slice of the packed state `h`, in order."""

    name: str
    size: Positive
    initial: tuple[float, ...]
    """Value at every reset."""
    max_seen: float
    """Largest absolute value in the golden trace and the export replay; for monitoring, not a limit."""

    def __post_init__(self) -> None:
        if len(self.initial) != self.size:
            raise ValueError(f"state {self.name!r}: {len(self.initial)} initial values for size {self.size}")


class Trained(Record, frozen=True):
    """A set or range covered by training, with the value to use by default."""

    values: tuple[int, ...]
    default: int

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(f"default {self.default} is not among the trained values {self.values}")


NO_ASSERTION = "NOASSERTION"
"""SPDX for a licence that nobody has told."""


class Licences(Record, frozen=True):
    """SPDX identifiers."""

    policy: str
    robot_model: str
    data: str


class Verification(Record, frozen=True):
    """What the export's free-running replay against torch showed."""

    decisions: int
    resets: int
    max_action_error: float
    max_state_error: float
    """Relative to the largest state value seen."""


class Contract(Record, frozen=True):
    """Everything that a runtime must know to run the policy (durations in integer nanoseconds)."""

    schema: int
    task: str
    robot_model: str
    """Identifier of the robot model; a profile for another one is refused."""
    control_period_ns: PeriodNs
    """One tick."""
    decimation: Positive
    """Physics steps per tick in training."""
    chunk_size: Positive
    """H: actions per decision."""
    execution_horizon: Trained
    """s: ticks between two decisions."""
    inference_delay: Trained
    """d: ticks from the observation until its chunk may act."""
    max_gap_ticks: GapTicks
    """More skipped ticks in a row than this reset the memory."""
    sources: tuple[Source, ...]
    actions: tuple[ActionTerm, ...]
    states: tuple[StateTensor, ...]
    licences: Licences
    provenance: dict[str, str]
    """How the policy came to be: run, versions, seed, git state."""
    verification: Verification

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema}, expected {SCHEMA}")
        names = [source.name for source in self.sources]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"source named twice: {', '.join(sorted(repeated))}")
        joints = self.action_joints
        if repeated := {joint for joint in joints if joints.count(joint) > 1}:
            raise ValueError(f"joint acted on twice: {', '.join(sorted(repeated))}")
        for s in self.execution_horizon.values:
            for d in self.inference_delay.values:
                if not (s >= 1 and 0 <= d <= s and d + s <= self.chunk_size):
                    raise ValueError(f"impossible horizon: s={s}, d={d}, chunk_size={self.chunk_size}")

    @property
    def action_joints(self) -> tuple[str, ...]:
        """Joint of every column of the action tensor."""
        return tuple(joint for term in self.actions for joint in term.joints)

    @property
    def state_size(self) -> int:
        """S: length of the packed state."""
        return sum(state.size for state in self.states)

    @property
    def physics_timestep_s(self) -> float:
        """Physics step of training, in seconds."""
        return self.control_period_ns / self.decimation * 1e-9

    def to_json(self) -> str:
        """JSON with full float precision."""
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str | bytes, where: str = "contract") -> Contract:
        """Parse and validate.

        Raises:
            ArtifactError: names `where`, the key, the expected and the found.
        """
        try:
            contract = msgspec.json.decode(text, type=cls)
            json.loads(text, object_pairs_hook=_refuse_repeated)
        except (msgspec.DecodeError, ValueError) as error:
            raise ArtifactError(f"{where}: {error}") from None
        return contract


def _check_unit(what: str, kind: str, unit: str) -> None:
    if unit not in UNITS[kind]:
        raise ValueError(f"{what}: unit of {kind} must be {' or '.join(UNITS[kind])}, found {unit!r}")


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    keys = [key for key, _ in pairs]
    if repeated := {key for key in keys if keys.count(key) > 1}:
        raise ValueError(f"key given twice: {', '.join(sorted(repeated))}")

"""The contract: what a policy reads, emits and assumes. It travels inside the ONNX file.

Structures are immutable, refuse unknown keys, and keep every float at full precision.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from .errors import ArtifactError

SCHEMA = 1
"""Version of the contract's format."""

Positive = Annotated[int, msgspec.Meta(ge=1)]
"""A count."""
PeriodNs = Annotated[int, msgspec.Meta(ge=1, le=10**9)]
"""A duration of at most a second."""


class SourceKind(NamedTuple):
    """What sources of one kind have."""

    units: tuple[str, ...]
    """Joints either turn or slide; empty where every element has its own."""
    keys: tuple[str, ...]
    """Of `OPTIONAL_KEYS`, those that they need; they cannot have the others."""


OPTIONAL_KEYS = ("joints", "frame", "components", "period_ns", "size", "stage", "max_age_ns")
"""Keys of a source that its kind needs or forbids."""
SOURCE_KINDS = {
    "joint_position": SourceKind(("rad", "m"), ("joints", "max_age_ns")),
    "joint_velocity": SourceKind(("rad/s", "m/s"), ("joints", "max_age_ns")),
    "angular_velocity": SourceKind(("rad/s",), ("frame", "max_age_ns")),
    "linear_acceleration": SourceKind(("m/s^2",), ("frame", "max_age_ns")),
    "linear_velocity": SourceKind(("m/s",), ("frame", "max_age_ns")),
    "position": SourceKind(("m",), ("frame", "max_age_ns")),
    "gravity": SourceKind(("1",), ("frame", "max_age_ns")),
    "command": SourceKind(("",), ("components", "max_age_ns")),
    "executed_action": SourceKind(("",), ("joints", "stage")),
    "committed_actions": SourceKind(("",), ("joints",)),
    "clock": SourceKind(("1",), ("period_ns",)),
    "reading": SourceKind(("1",), ("size", "max_age_ns")),
}
"""The controller knows by itself what has no largest age; everything else is measured, or told."""
ACTION_UNITS = {
    "position": ("rad", "m"),
    "velocity": ("rad/s", "m/s"),
    "effort": ("N m", "N"),
    "actuator": ("1", "N", "N m"),
}
"""Units of each kind of action."""
AXES = ("x", "y", "z")
"""Elements of a vector."""
JOINT_KINDS = ("joint_position", "joint_velocity")
"""Kinds of source that are measured of joints."""
BODY_KINDS = ("angular_velocity", "linear_acceleration", "linear_velocity", "position", "gravity")
"""Kinds of source that are measured of a body."""
ACTION_KINDS = ("executed_action", "committed_actions")
"""Kinds of source that tell of actions."""
RESERVED = ("", "h_in", "h_out", "actions")
"""Names that no source may have: none, and those of the graph's other tensors."""


class Record(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of every contract structure: immutable, keyword-only, no unknown keys."""


class CommandComponent(Record, frozen=True):
    """One number of the task's command, in the range that training covered."""

    name: str
    """Of the number, as in `lin_vel_x`."""
    unit: str
    """SI."""
    low: float
    """Smallest value that training covered."""
    high: float
    """Largest value that training covered."""
    slew: float | None = None
    """Largest change per second; null where it may jump."""
    timeout_value: float = 0.0
    """What a command older than the source's `max_age_ns` becomes: for velocities a stop, not a hold."""

    def __post_init__(self) -> None:
        if not -math.inf < self.low < self.high < math.inf:
            raise ValueError(f"command {self.name!r}: empty range [{self.low}, {self.high}]")
        if self.slew is not None and not 0.0 < self.slew < math.inf:
            raise ValueError(f"command {self.name!r}: slew must be positive and finite, found {self.slew}")
        if not math.isfinite(self.timeout_value):
            raise ValueError(f"command {self.name!r}: timeout_value {self.timeout_value} is not finite")


class Source(Record, frozen=True):
    """A quantity that the robot measures or is told, as one input tensor `[1, *shape]` of the graph.

    | kind | elements | what |
    |---|---|---|
    | joint_position, joint_velocity | `joints` | of joints |
    | angular_velocity, linear_acceleration, linear_velocity | x, y, z | of `frame`, along its own axes |
    | gravity | x, y, z | direction of gravity along the axes of `frame`: (0, 0, -1) when level |
    | position | x, y, z | of `frame`, in the world |
    | command | `components` | what the operator wants |
    | executed_action | `joints` | action of the tick before |
    | committed_actions | `joints` | actions of this tick and the next ones, fixed by earlier decisions |
    | clock | phase | ticks since the memory's reset, modulo `period_ns`, as a share of it in [0, 1) |
    | reading | 0, 1, ... | `size` numbers without a meaning for robots |
    """

    name: str
    """Input tensor name."""
    kind: str
    """One of `SOURCE_KINDS`."""
    unit: str
    """Of the values; empty for commands and actions, whose elements have their own."""
    joints: tuple[str, ...] = ()
    """Joints in tensor order; for actions, the columns."""
    frame: str = ""
    """Body or site that a vector belongs to."""
    components: tuple[CommandComponent, ...] = ()
    """Of a command, in tensor order."""
    period_ns: PeriodNs | None = None
    """Of a clock."""
    size: Positive | None = None
    """Of a reading."""
    stage: Literal["raw", "after_limits"] | None = None
    """Which action was executed: the policy's, or what limits left of it."""
    history: Positive = 1
    """Ticks back, oldest first, this tick last; from 2 on the tensor is [history, n]. At a memory reset every
    row is the first value. For `committed_actions`: ticks ahead, this tick first, zeros where not fixed."""
    max_age_ns: Annotated[int, msgspec.Meta(ge=1, le=3600 * 10**9)] | None = None
    """Older than this at a tick is stale: the robot profile's fallback applies, or the command's timeout."""

    def __post_init__(self) -> None:
        if self.name in RESERVED:
            raise ValueError(f"a source cannot be named {self.name!r}")
        if self.kind not in SOURCE_KINDS:
            raise ValueError(f"source {self.name!r}: no kind {self.kind!r}; kinds: {', '.join(SOURCE_KINDS)}")
        units, needed = SOURCE_KINDS[self.kind]
        _check_unit(f"source {self.name!r}", self.kind, self.unit, units)
        for key in OPTIONAL_KEYS:
            if bool(getattr(self, key)) != (key in needed):
                verb = "needs" if key in needed else "cannot have"
                raise ValueError(f"source {self.name!r} of kind {self.kind} {verb} {key}")
        _check_unique(f"source {self.name!r}: listed twice", self.elements)

    @property
    def elements(self) -> tuple[str, ...]:
        """Name of every element of one tick's value."""
        if self.kind in BODY_KINDS:
            return AXES
        if self.kind == "command":
            return tuple(component.name for component in self.components)
        if self.kind == "clock":
            return ("phase",)
        return self.joints or tuple(str(i) for i in range(self.size or 0))

    @property
    def shape(self) -> tuple[int, ...]:
        """Tensor shape without the batch dimension."""
        size = len(self.elements)
        return (size,) if self.history == 1 else (self.history, size)


class ActionTerm(Record, frozen=True):
    """Consecutive columns of the action tensor, one per joint, in SI units."""

    name: str
    """Of the term, for messages."""
    kind: Literal["position", "velocity", "effort", "actuator"]
    """`actuator` drives something without a joint, a rotor for example; `joints` then names the actuators."""
    joints: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]
    """Joint, or actuator, of every column."""
    unit: str
    """Of the values."""
    low: tuple[float, ...]
    """Smallest value per joint that the policy was trained with."""
    high: tuple[float, ...]
    """Largest value per joint that the policy was trained with."""
    kp: tuple[float, ...]
    """Position gain per joint in training, N m/rad or N/m; zero unless `position`."""
    kd: tuple[float, ...]
    """Velocity gain per joint in training, N m s/rad or N s/m; zero for `effort` and `actuator`."""
    closed_by: Literal["drive", "host"]
    """Who closes the position loop in training: every physics step (`drive`) or every tick (`host`)."""
    interpolation: Literal["zoh"] = "zoh"
    """What happens between two ticks: the action is held."""
    center: tuple[float, ...] | None = None
    """What sources of executed actions read before the first one, per joint; None: middle of the range."""

    def __post_init__(self) -> None:
        what, count = f"action term {self.name!r}", len(self.joints)
        _check_unit(what, self.kind, self.unit, ACTION_UNITS[self.kind])
        for key in ("low", "high", "kp", "kd", "center"):
            values = getattr(self, key)
            if values is None:
                continue
            if len(values) != count:
                raise ValueError(f"{what}: {key} has {len(values)} values for {count} joints")
            if not all(map(math.isfinite, values)):
                raise ValueError(f"{what}: {key} must be finite, found {list(values)}")
            gains = {"kp": ("position",), "kd": ("position", "velocity")}.get(key)
            if gains is not None and (min(values) < 0.0 or (self.kind not in gains and any(values))):
                least = "not negative" if self.kind in gains else f"zero for {self.kind}"
                raise ValueError(f"{what}: {key} must be {least}, found {list(values)}")
        for joint, low, high in zip(self.joints, self.low, self.high, strict=True):
            if not low < high:
                raise ValueError(f"{what}: empty range [{low}, {high}] of joint {joint!r}")


class StateTensor(Record, frozen=True):
    """A slice of the packed state `h`, in order."""

    name: str
    """Of the part of the memory."""
    size: Positive
    """Numbers in it."""
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
    """All that training covered, in ticks."""
    default: int
    """One of them."""

    def __post_init__(self) -> None:
        if self.default not in self.values:
            raise ValueError(f"default {self.default} is not among the trained values {self.values}")


NO_ASSERTION = "NOASSERTION"
"""SPDX for a licence that nobody has told."""


class Licences(Record, frozen=True):
    """SPDX identifiers."""

    policy: str
    """Of the weights."""
    robot_model: str
    """Of the MJCF that they were trained with."""
    data: str
    """Of what they were trained on besides."""


class Verification(Record, frozen=True):
    """What the export's free-running replay against torch showed."""

    decisions: int
    """How many were replayed."""
    resets: int
    """How many resets of the memory were among them."""
    max_action_error: float
    """Largest absolute difference, SI units."""
    max_state_error: float
    """Relative to the largest state value seen."""


class Contract(Record, frozen=True):
    """Everything that a runtime must know to run the policy (durations in integer nanoseconds)."""

    schema: int
    """Version of the format."""
    task: str
    """Name of the task that it was trained on."""
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
    max_gap_ticks: Annotated[int, msgspec.Meta(ge=0, le=100)]
    """More skipped ticks in a row than this reset the memory."""
    sources: tuple[Source, ...]
    """What it reads, in the order of the flat input."""
    actions: tuple[ActionTerm, ...]
    """What it emits, in the order of the columns."""
    states: tuple[StateTensor, ...]
    """What it remembers, in the order of the packed state."""
    licences: Licences
    """Under which it may be used."""
    provenance: dict[str, str]
    """How the policy came to be: run, versions, seed, git state."""
    verification: Verification
    """What the export has shown."""

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema}, expected {SCHEMA}")
        _check_unique("source named twice", [source.name for source in self.sources])
        if sum(source.kind == "command" for source in self.sources) > 1:
            raise ValueError("more than one source of kind command")
        joints = self.action_joints
        for source in self.sources:
            if source.kind in ACTION_KINDS and source.joints != joints:
                raise ValueError(f"source {source.name!r} must list the action's joints, in their order")
        _check_unique("joint acted on twice", joints)
        for s in self.execution_horizon.values:
            for d in self.inference_delay.values:
                if not (s >= 1 and 0 <= d <= s and d + s <= self.chunk_size):
                    raise ValueError(f"impossible horizon: s={s}, d={d}, chunk_size={self.chunk_size}")

    @property
    def action_joints(self) -> tuple[str, ...]:
        """Joint of every column of the action tensor."""
        return tuple(joint for term in self.actions for joint in term.joints)

    @property
    def action_center(self) -> tuple[float, ...]:
        """What sources of executed actions read before the first one, per column."""
        return tuple(x for term in self.actions for x in term.center or map(_middle, term.low, term.high))

    @property
    def state_size(self) -> int:
        """S: length of the packed state."""
        return sum(state.size for state in self.states)

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
            json.loads(text, object_pairs_hook=_check_keys)
        except (msgspec.DecodeError, ValueError) as error:
            raise ArtifactError(f"{where}: {error}") from None
        return contract


def _check_unit(what: str, kind: str, unit: str, units: tuple[str, ...]) -> None:
    if unit not in units:
        raise ValueError(f"{what}: unit of {kind} must be {' or '.join(units)}, found {unit!r}")


def _check_unique(what: str, names: Sequence[str]) -> None:
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ValueError(f"{what}: {', '.join(sorted(repeated))}")


def _check_keys(pairs: list[tuple[str, Any]]) -> None:
    _check_unique("key given twice", [key for key, _ in pairs])


def _middle(low: float, high: float) -> float:
    return (low + high) / 2

"""The robot profile: one robot, as its owner describes it in YAML.

Limits in force are the stricter of profile and contract.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import yaml

from .command import SIGNAL_SIZES, Floats
from .contract import BODY_KINDS, JOINT_KINDS, ActionTerm, Contract, Record, Source
from .errors import ProfileError
from .frames import rotation_matrix
from .steps import EVENTS, Brake, Damping, External, Fallback, Gains, Keep, Phase, Seconds, Step, Track
from .strict_yaml import load_yaml

SCHEMA = 1
"""Version of the profile's format."""
ROUNDING = 1e-6
"""By so much, rad or m, may a start pose be outside a policy's range."""
SHIPPED = Path(__file__).parent / "profiles"
"""Folder of the profiles that andante ships."""
Limit = Annotated[float, msgspec.Meta(gt=0.0, le=1e12)]
"""A bound above zero."""
Finite = Annotated[float, msgspec.Meta(ge=-1e12, le=1e12)]
"""A number that is one."""
Phases = Annotated[tuple[Phase, ...], msgspec.Meta(min_length=1)]
"""A sequence."""
TURNED = ("orientation", "angular_velocity", "linear_acceleration", "linear_velocity")
"""Kinds of signal that depend on how their sensor is mounted."""


class Joint(Record, frozen=True):
    """A joint, in the robot's own convention.

    Its reading is `sign` * `gear_ratio` * (policy's value) + `zero_offset`.
    """

    name: str
    """As in the policy."""
    actuated: bool
    """Whether it is driven; false for one that is only measured."""
    sign: Literal[1, -1]
    """-1 where the reading grows against the policy's direction."""
    zero_offset: Finite
    """The robot's reading where the policy's joint is at zero, rad or m."""
    position: tuple[Finite, Finite] | None
    """Hard range of the reading, rad or m; null where the joint turns freely."""
    velocity: Limit
    """Hard limit of the reading, rad/s or m/s."""
    effort: Limit | None
    """Hard limit of an actuated joint in the robot's convention, N m or N; null for a passive one."""
    gear_ratio: Limit = 1.0
    """Turns of what is read and driven per turn of the joint; the profile's gains are on that side."""
    acceleration: Limit | None = None
    """Largest deceleration of a `brake`, rad/s^2 or m/s^2."""
    jerk: Limit | None = None
    """Largest change of it, rad/s^3 or m/s^3."""
    temperature: Limit | None = None
    """Hottest allowed, degrees Celsius."""

    def __post_init__(self) -> None:
        if self.position is not None and not self.position[0] < self.position[1]:
            raise ValueError(f"joint {self.name!r}: position must be [low, high], found {self.position}")
        if self.actuated != (self.effort is not None):
            raise ValueError(f"joint {self.name!r}: effort is for actuated joints, and only for them")

    @property
    def scale(self) -> float:
        """Reading per policy's value."""
        return self.sign * self.gear_ratio

    def action_range(self, kind: str) -> tuple[float, float]:
        """Hard limits of an action of that kind, in the policy's convention."""
        if kind == "position":
            ends = self.position or (-math.inf, math.inf)
            low, high = sorted((end - self.zero_offset) / self.scale for end in ends)
            return low, high
        if kind == "velocity":
            return -self.velocity / self.gear_ratio, self.velocity / self.gear_ratio
        effort = (self.effort or 0.0) * self.gear_ratio
        return -effort, effort


class SignalQuality(Record, frozen=True):
    """How a measured signal is to be trusted, and how its sensor is mounted."""

    max_age_s: Seconds
    """Older than this is stale, by receive time and, where clocks are synchronised, by source time too."""
    clock: Literal["none", "progress", "synchronised"] = "none"
    """What source stamps are good for: nothing; they rise with every measurement; they are of this clock."""
    max_gap_s: Seconds | None = None
    """Longest time between two measurements."""
    frozen_after: Annotated[int, msgspec.Meta(ge=2)] | None = None
    """So many equal measurements in a row are a frozen sensor; null where a value may well stay the same."""
    mounting: tuple[float, float, float, float] | None = None
    """Unit quaternion w, x, y, z that turns the sensor's vectors into the body's frame; null when aligned."""

    def __post_init__(self) -> None:
        if self.mounting is not None and not abs(math.hypot(*self.mounting) - 1.0) < 1e-3:
            raise ValueError(f"mounting must be a unit quaternion w, x, y, z, found {list(self.mounting)}")

    @property
    def rotation(self) -> Floats:
        """The mounting as a matrix `[3, 3]`."""
        return rotation_matrix(self.mounting or (1.0, 0.0, 0.0, 0.0))


class OperatorLink(Record, frozen=True):
    """What is demanded of whoever watches the robot."""

    heartbeat_s: Seconds | None = None
    """Longest silence of the emergency-stop device, which must be there; null where none is demanded."""
    link_s: Seconds | None = None
    """Longest silence of the command while the policy runs; null where its timeout value is enough."""


class Conditions(Record, frozen=True):
    """What must hold before the start sequence begins."""

    max_tilt: Limit | None = None
    """rad."""
    max_speed: Limit | None = None
    """Of any joint, rad/s or m/s."""
    position: dict[str, tuple[float, float]] = msgspec.field(default_factory=dict)
    """Range of a joint's reading, rad or m."""


class ProfileFile(Record, frozen=True, kw_only=True):
    """A profile file's content."""

    schema: int
    """Version of the format."""
    robot_model: str
    """Only policies for this model are accepted."""
    pd_loop: Literal["host", "drive"]
    """Who turns gains into torque: the controller, once a tick, or the robot's drives."""
    effort_limited_by: Literal["controller", "drive"] = "controller"
    """Who keeps a torque within its joint's `effort`: the controller, which weakens a command's gains for a
    whole tick, or the drives, which cut it off at every step of their loops, as motors do in training."""
    floating_base: bool = False
    """Whether the robot can fall over; then `max_tilt` is needed."""
    base: str | None = None
    """Body or site that signals belong to which name none; needed by an IMU's signals."""
    joints: tuple[Joint, ...]
    """In the order of the robot's arrays."""
    signals: dict[str, SignalQuality]
    """What is measured: a kind, for joints of every joint; `kind/body` for another body than `base`."""
    gains: dict[str, Gains]
    """Named sets; `damping` is used until sensors are there."""
    keyframes: dict[str, dict[str, float]] = msgspec.field(default_factory=dict)
    """Named poses: reading of every actuated joint, rad or m."""
    max_tilt: Limit | None = None
    """Largest angle between the base's z axis and the vertical, rad."""
    min_battery_voltage: Limit | None = None
    """V."""
    operator: OperatorLink = OperatorLink()
    """What is demanded of whoever watches the robot."""
    predicates: tuple[str, ...] = ()
    """Watched conditions beyond the built-in ones, by name in the entry-point group `andante.safety`."""
    conditions: Conditions = Conditions()
    """Before the start sequence."""
    confirm: bool
    """Whether an operator must confirm between the start sequence and the policy."""
    start: Phases
    """The sequence before the policy."""
    settle_s: Seconds | None = None
    """How long the policy goes on before the stop sequence, with its command let go: to come to rest."""
    stop: Phases
    """The sequence after it."""
    fallback: Fallback
    """What to do when something is amiss."""

    def __post_init__(self) -> None:
        for fault in self._faults():
            raise ValueError(fault)

    def _faults(self) -> Iterator[str]:
        """What is wrong with it; each check relies on those before."""
        if self.schema != SCHEMA:
            yield f"schema {self.schema}, expected {SCHEMA}"
        names = [joint.name for joint in self.joints]
        if repeated := {name for name in names if names.count(name) > 1}:
            yield f"joint listed twice: {', '.join(sorted(repeated))}"
        yield from self._signal_faults()
        if "damping" not in self.gains:
            yield f"gains need a set `damping`, found {sorted(self.gains)}"
        yield from self._damping_faults("gains", "damping")
        for name, gains in self.gains.items():
            yield from self._joint_faults(f"gains {name!r}: kd", gains.kd)
            if gains.kp is not None:
                yield from self._joint_faults(f"gains {name!r}: kp", gains.kp)
        for name, pose in self.keyframes.items():
            yield from self._pose_faults(f"keyframe {name!r}", pose)
        for key, phases in (("start", self.start), ("stop", self.stop)):
            for phase in phases:
                if phase.duration_s is None:
                    yield f"{key}: every phase needs duration_s"
                yield from self._step_faults(key, phase)
        for name, (low, high) in self.conditions.position.items():
            if name not in names:
                yield f"conditions: position of no joint, found {name!r}; joints: {', '.join(names)}"
            if not low < high:
                yield f"conditions: position of joint {name!r} must be [low, high], found [{low}, {high}]"
        yield from self._fallback_faults()

    def _signal_faults(self) -> Iterator[str]:
        tilts = self.max_tilt or self.conditions.max_tilt
        for signal, needed, reason in (
            ("joint_position", True, "every robot"),
            ("joint_velocity", self.pd_loop == "host", "pd_loop 'host'"),
            ("joint_velocity", self.conditions.max_speed, "conditions: max_speed"),
            ("joint_temperature", any(joint.temperature for joint in self.joints), "a joint's temperature"),
            ("orientation", tilts, "max_tilt"),
            ("battery_voltage", self.min_battery_voltage, "min_battery_voltage"),
        ):
            if needed and signal not in self.signals:
                yield f"{reason} needs the signal {signal!r}"
        for signal, quality in self.signals.items():
            kind, _, body = signal.partition("/")
            if kind not in SIGNAL_SIZES or (body and kind not in (*TURNED, "position")):
                yield f"no signal {signal!r}; kinds of signals: {', '.join(SIGNAL_SIZES)}"
            if quality.mounting is not None and kind not in TURNED:
                yield f"signal {signal!r} cannot have a mounting"
            if kind in (*TURNED, "position") and not body and self.base is None:
                yield f"signal {signal!r} needs base: the body that it belongs to"
        if self.floating_base and self.max_tilt is None:
            yield "floating_base needs max_tilt"
        if self.effort_limited_by == "drive" and self.pd_loop == "host":
            yield "effort_limited_by 'drive' needs pd_loop 'drive': the host's loop limits its torques itself"

    def _fallback_faults(self) -> Iterator[str]:
        for event, needed, reason in (
            ("tilt", self.max_tilt, "max_tilt"),
            ("operator", self.operator.link_s, "operator.link_s"),
            ("battery", self.min_battery_voltage, "min_battery_voltage"),
            ("temperature", "joint_temperature" in self.signals, "joint_temperature"),
            ("custom", self.predicates, "predicates"),
        ):
            if needed and getattr(self.fallback, event) is None:
                yield f"fallback: needs {event!r}, since there is {reason}"
        for event in EVENTS:
            for step in chain(*self.fallback.ladders(event)):
                yield from self._step_faults(f"fallback {event}", step)

    def _step_faults(self, where: str, step: Step) -> Iterator[str]:
        if isinstance(step, Keep | External):
            return
        if step.gains not in self.gains:
            yield f"{where}: no gains {step.gains!r}; sets: {', '.join(self.gains)}"
        if isinstance(step, Damping):
            yield from self._damping_faults(where, step.gains)
        elif self.gains[step.gains].kp is None:
            yield f"{where}: gains {step.gains!r} need kp to hold or track a pose"
        if isinstance(step, Track):
            if isinstance(step.pose, str) and step.pose not in self.keyframes:
                yield f"{where}: no keyframe {step.pose!r}; keyframes: {sorted(self.keyframes)}"
            yield from self._pose_faults(f"{where}: pose", self.pose(step))
        for joint in self.actuated if isinstance(step, Brake) else ():
            if joint.acceleration is None or joint.jerk is None or "joint_velocity" not in self.signals:
                yield f"{where}: brake needs joint_velocity, acceleration and jerk of joint {joint.name!r}"

    def _pose_faults(self, where: str, pose: dict[str, float]) -> Iterator[str]:
        yield from self._joint_faults(where, pose)
        for joint in self.actuated:
            (low, high), q = joint.position or (-math.inf, math.inf), pose[joint.name]
            if not low <= q <= high or math.isinf(q):
                yield f"{where} of joint {joint.name!r} must be in [{low}, {high}], found {q}"

    def _damping_faults(self, where: str, gains: str) -> Iterator[str]:
        for joint, kd in self.gains[gains].kd.items():
            if not kd > 0.0:
                yield f"{where}: damping by gains {gains!r} needs kd > 0 of joint {joint!r}"

    def _joint_faults(self, where: str, found: dict[str, float]) -> Iterator[str]:
        expected = [joint.name for joint in self.actuated]
        if sorted(found) != sorted(expected):
            yield f"{where} must name the actuated joints {expected}, found {sorted(found)}"

    def pose(self, step: Track) -> dict[str, float]:
        """A track's target by joint."""
        return self.keyframes[step.pose] if isinstance(step.pose, str) else step.pose

    @property
    def actuated(self) -> tuple[Joint, ...]:
        """The actuated joints (Ja), in order."""
        return tuple(joint for joint in self.joints if joint.actuated)


class Profile(ProfileFile, frozen=True, kw_only=True):
    """A validated profile."""

    digest: str
    """sha256 of the file's bytes."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """All joints (J), in order."""
        return tuple(joint.name for joint in self.joints)

    def actuated_values(self, values: dict[str, float]) -> Floats:
        """One value per actuated joint, `[Ja]`."""
        return np.array([values[joint.name] for joint in self.actuated])

    def kp(self, gains: str) -> Floats:
        """Position gains `[Ja]` of a named set; zero where it has none."""
        kp = self.gains[gains].kp
        return np.zeros(len(self.actuated)) if kp is None else self.actuated_values(kp)

    def kd(self, gains: str) -> Floats:
        """Velocity gains `[Ja]` of a named set."""
        return self.actuated_values(self.gains[gains].kd)

    def signal_of(self, source: Source) -> str | None:
        """The signal that a source of joints or of a body is gathered from; None where the robot has none."""
        kind = "orientation" if source.kind == "gravity" else source.kind
        if source.kind in JOINT_KINDS:
            return kind if kind in self.signals else None
        if f"{kind}/{source.frame}" in self.signals:
            return f"{kind}/{source.frame}"
        return kind if kind in self.signals and source.frame == self.base else None


def load_profile(name_or_path: str | Path) -> Profile:
    """Read a profile: a YAML file, or the name of one that andante ships (`pendulum`, `cartpole`, ...).

    Raises:
        ProfileError: names the file, the key, the expected and the found.
    """
    shipped = {file.stem: file for file in SHIPPED.glob("*.yaml")}
    path = shipped.get(str(name_or_path), Path(name_or_path))
    try:
        data = path.read_bytes()
    except OSError as error:
        names = f"shipped ones: {', '.join(sorted(shipped))}; --profile gives a file"
        raise ProfileError(f"{path}: no robot profile ({error.strerror}); {names}") from None
    try:
        content = msgspec.convert(load_yaml(data), ProfileFile)
    except (msgspec.ValidationError, yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise ProfileError(f"{path}: {' '.join(str(error).split())}") from None
    return Profile(**msgspec.structs.asdict(content), digest=hashlib.sha256(data).hexdigest())


def check_fit(contract: Contract, profile: Profile) -> None:
    """Refuse a policy that this robot cannot run.

    Raises:
        ProfileError: names the robot model, joint, signal or action term, the expected and the found.
    """
    if found := list(mismatches(contract, profile)):
        more = f" (and {len(found) - 1} more: `andante profile check` lists them)" if len(found) > 1 else ""
        raise ProfileError(found[0] + more)


def mismatches(contract: Contract, profile: Profile) -> Iterator[str]:
    """Every reason why this robot cannot run a policy."""
    model, own = contract.robot_model, profile.robot_model
    if model != own:
        yield f"the policy is for robot model {model!r}, the profile for {own!r}"
    for source in contract.sources:
        yield from _source_mismatches(source, profile)
    for term in contract.actions:
        yield from _action_mismatches(term, profile)
    for joint in profile.actuated:
        if joint.name not in contract.action_joints:
            yield f"the policy does not command the actuated joint {joint.name!r}"


def _source_mismatches(source: Source, profile: Profile) -> Iterator[str]:
    if source.kind == "reading":
        yield f"source {source.name!r} of kind reading has no meaning for a robot"
    elif source.kind in (*JOINT_KINDS, *BODY_KINDS) and profile.signal_of(source) is None:
        kind = "orientation" if source.kind == "gravity" else source.kind
        body = f" of {source.frame!r}" if source.frame else ""
        signals = ", ".join(profile.signals)
        yield f"source {source.name!r} needs the signal {kind!r}{body}, the robot measures: {signals}"
    if source.kind in JOINT_KINDS:
        names = ", ".join(profile.joint_names)
        for name in source.joints:
            if name not in profile.joint_names:
                yield f"source {source.name!r} reads joint {name!r}, which the profile lacks; joints: {names}"


def _action_mismatches(term: ActionTerm, profile: Profile) -> Iterator[str]:
    if term.kind == "actuator":
        yield f"action term {term.name!r} drives actuators, for which a joint command has no field"
        return
    joints = {joint.name: joint for joint in profile.actuated}
    for name, low, high in zip(term.joints, term.low, term.high, strict=True):
        if name not in joints:
            names = ", ".join(joints)
            yield f"action term {term.name!r} moves joint {name!r}, not one of the actuated joints: {names}"
            continue
        own_low, own_high = joints[name].action_range(term.kind)
        if not max(low, own_low) < min(high, own_high):
            yield (
                f"joint {name!r}: the policy's {term.kind} range [{low:g}, {high:g}] and the profile's "
                f"[{own_low:g}, {own_high:g}] do not overlap"
            )
        if term.kind == "position" and isinstance(begin := profile.start[-1], Track):
            q = (profile.pose(begin)[name] - joints[name].zero_offset) / joints[name].scale
            if not low - ROUNDING <= q <= high + ROUNDING:
                yield (
                    f"joint {name!r}: the start sequence ends at {q:g} in the policy's convention, outside "
                    f"its position range [{low:g}, {high:g}]: it would jump when the policy takes over"
                )
    if term.kind != "effort" and term.closed_by != profile.pd_loop:
        yield (
            f"action term {term.name!r}: training closed the {term.kind} loop by {term.closed_by!r}, "
            f"the profile says pd_loop {profile.pd_loop!r}"
        )

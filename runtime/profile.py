"""The robot profile: one robot, as its owner describes it in YAML.

Limits in force are the stricter of profile and contract.
"""

from __future__ import annotations

import hashlib
import math
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
import numpy as np
import yaml
from numpy.typing import NDArray

from .command import Signal
from .contract import Contract, Positive, Record
from .errors import ProfileError

SCHEMA = 1
SHIPPED = Path(__file__).parent / "profiles"

Seconds = Annotated[float, msgspec.Meta(gt=0.0, le=3600.0)]


class Joint(Record, frozen=True):
    """A joint, in the robot's own convention: reading = `sign` * (policy's value) + `zero_offset`."""

    name: str
    actuated: bool
    sign: Literal[1, -1]
    zero_offset: float
    """The robot's reading where the policy's joint is at zero, rad or m."""
    position: tuple[float, float] | None
    """Hard range of the reading, rad or m; null where the joint turns freely."""
    velocity: float
    """Hard limit, rad/s or m/s."""
    effort: float | None
    """Hard limit of an actuated joint, N m or N; null for a passive one."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.zero_offset):
            raise ValueError(f"joint {self.name!r}: zero_offset must be finite, found {self.zero_offset}")
        if self.position is not None and not -math.inf < self.position[0] < self.position[1] < math.inf:
            raise ValueError(
                f"joint {self.name!r}: position must be [low, high], found {list(self.position)}"
            )
        _check_positive(f"joint {self.name!r}: velocity", self.velocity)
        if self.actuated != (self.effort is not None):
            raise ValueError(f"joint {self.name!r}: effort is for actuated joints, and only for them")
        if self.effort is not None:
            _check_positive(f"joint {self.name!r}: effort", self.effort)


class SignalQuality(Record, frozen=True):
    """How a measured signal is to be trusted."""

    max_age_s: Seconds
    """Older than this is stale."""


class Gains(Record, frozen=True):
    """Gains per actuated joint: N m/rad and N m s/rad, or N/m and N s/m."""

    kd: dict[str, float]
    kp: dict[str, float] | None = None
    """Needed wherever a position is tracked or held."""

    def __post_init__(self) -> None:
        for key, gains in (("kd", self.kd), ("kp", self.kp or {})):
            for joint, gain in gains.items():
                if not 0.0 <= gain < math.inf:
                    raise ValueError(
                        f"{key} of joint {joint!r} must be finite and not negative, found {gain}"
                    )


class Keep(Record, frozen=True, tag="keep", tag_field="action"):
    """Carry on while the event lasts, for so many ticks in a row, skipped ones included.

    A starved policy's last action is held; before its first one the joints are damped.
    """

    ticks: Positive


class Hold(Record, frozen=True, tag="hold", tag_field="action"):
    """Hold the pose measured when this step begins."""

    gains: str
    duration_s: Seconds | None = None
    """Then comes the next step; absent in the last one, which stays until the fault is cleared."""


class Damping(Record, frozen=True, tag="damping", tag_field="action"):
    """Brake every joint in proportion to its velocity."""

    gains: str
    duration_s: Seconds | None = None
    """As in `Hold`; always present in a sequence."""


class Track(Record, frozen=True, tag="track", tag_field="action"):
    """Move smoothly from the measured pose to a keyframe."""

    gains: str
    duration_s: Seconds
    pose: dict[str, float]
    """Target reading of every actuated joint, rad or m."""


Phase = Damping | Track
Step = Keep | Hold | Damping
RANK: dict[type[Record], int] = {Keep: 0, Hold: 1, Damping: 2}
"""A ladder of steps only climbs."""


class Fallback(Record, frozen=True):
    """What to do about each event, as a ladder of steps; no event has a default."""

    stale_source: tuple[Step, ...]
    """A signal is older than its largest age, or stamped in the future."""
    starvation: tuple[Step, ...]
    """The chunk is played to its end, and no new one came."""
    overrun: tuple[Step, ...]
    """Work ended after the next deadline, or a tick was missed."""
    non_finite: tuple[Step, ...]
    """NaN or infinity in a measurement, in the policy's output or in a command."""
    limit: tuple[Step, ...]
    """A measured position or velocity outside its hard limits."""
    e_stop: tuple[Step, ...]
    """Emergency stop by the operator, or the robot's interface failed."""

    def ladder(self, event: str) -> tuple[Step, ...]:
        """The steps for one of `EVENTS`."""
        steps: tuple[Step, ...] = getattr(self, event)
        return steps

    def __post_init__(self) -> None:
        for event in EVENTS:
            ladder = self.ladder(event)
            ranks = [RANK[type(step)] for step in ladder]
            if not ladder or isinstance(ladder[-1], Keep) or ladder[-1].duration_s is not None:
                raise ValueError(f"{event}: the last step must be hold or damping without duration_s")
            if any(low >= high for low, high in pairwise(ranks)):
                raise ValueError(f"{event}: steps must escalate in the order keep, hold, damping")
            for step in ladder[:-1]:
                if not isinstance(step, Keep):
                    _check_duration(f"{event}: every step but the last", step.duration_s)
            if event in ("non_finite", "e_stop") and isinstance(ladder[0], Keep):
                raise ValueError(f"{event}: keep is not possible")
            if event == "non_finite" and isinstance(ladder[0], Hold):
                raise ValueError("non_finite: a pose that may not be a number cannot be held")


EVENTS: tuple[str, ...] = Fallback.__struct_fields__


class ProfileFile(Record, frozen=True):
    """A profile file's content."""

    schema: int
    robot_model: str
    """Only policies for this model are accepted."""
    pd_loop: Literal["host", "drive"]
    """Who turns gains into torque: the controller, once a tick, or the robot's drives."""
    joints: tuple[Joint, ...]
    signals: dict[Signal, SignalQuality]
    """What the robot measures, of every joint."""
    gains: dict[str, Gains]
    """Named sets; `damping` is used until sensors are there."""
    confirm: bool
    """Whether an operator must confirm between the start sequence and the policy."""
    start: tuple[Phase, ...]
    stop: tuple[Phase, ...]
    fallback: Fallback

    def __post_init__(self) -> None:
        if self.schema != SCHEMA:
            raise ValueError(f"schema {self.schema}, expected {SCHEMA}")
        names = [joint.name for joint in self.joints]
        if repeated := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"joint listed twice: {', '.join(sorted(repeated))}")
        for signal in ("joint_position", "joint_velocity") if self.pd_loop == "host" else ("joint_position",):
            if signal not in self.signals:
                raise ValueError(f"pd_loop {self.pd_loop!r} needs the signal {signal!r}")
        if "damping" not in self.gains:
            raise ValueError(f"gains need a set `damping`, found {sorted(self.gains)}")
        self._check_damping("gains", "damping")
        for name, gains in self.gains.items():
            self._check_joints(f"gains {name!r}: kd", gains.kd)
            if gains.kp is not None:
                self._check_joints(f"gains {name!r}: kp", gains.kp)
        for key in ("start", "stop"):
            self._check_sequence(key, getattr(self, key))
        for event in EVENTS:
            for step in self.fallback.ladder(event):
                if not isinstance(step, Keep):
                    self._check_gains(f"fallback {event}", step)

    def _check_sequence(self, key: str, phases: tuple[Phase, ...]) -> None:
        if not phases:
            raise ValueError(f"{key}: needs a phase")
        for phase in phases:
            _check_duration(f"{key}: every phase", phase.duration_s)
            self._check_gains(key, phase)
            if isinstance(phase, Track):
                self._check_joints(f"{key}: pose", phase.pose)
                for joint in self.actuated:
                    low, high = joint.position or (-math.inf, math.inf)
                    if not low <= phase.pose[joint.name] <= high or math.isinf(phase.pose[joint.name]):
                        raise ValueError(
                            f"{key}: pose of joint {joint.name!r} must be in [{low}, {high}], "
                            f"found {phase.pose[joint.name]}"
                        )

    def _check_gains(self, where: str, step: Damping | Hold | Track) -> None:
        if step.gains not in self.gains:
            raise ValueError(f"{where}: no gains {step.gains!r}; sets: {', '.join(self.gains)}")
        if isinstance(step, Damping):
            self._check_damping(where, step.gains)
        elif self.gains[step.gains].kp is None:
            raise ValueError(f"{where}: gains {step.gains!r} need kp to hold or track a pose")

    def _check_damping(self, where: str, gains: str) -> None:
        for joint, kd in self.gains[gains].kd.items():
            if not kd > 0.0:
                raise ValueError(f"{where}: damping by gains {gains!r} needs kd > 0 of joint {joint!r}")

    def _check_joints(self, where: str, found: dict[str, float]) -> None:
        expected = [joint.name for joint in self.actuated]
        if sorted(found) != sorted(expected):
            raise ValueError(f"{where} must name the actuated joints {expected}, found {sorted(found)}")

    @property
    def actuated(self) -> tuple[Joint, ...]:
        """The actuated joints (Ja), in order."""
        return tuple(joint for joint in self.joints if joint.actuated)


class Profile(ProfileFile, frozen=True):
    """A validated profile."""

    digest: str
    """sha256 of the file's bytes."""

    @property
    def joint_names(self) -> tuple[str, ...]:
        """All joints (J), in order."""
        return tuple(joint.name for joint in self.joints)

    def actuated_values(self, values: dict[str, float]) -> NDArray[np.float64]:
        """One value per actuated joint, `[Ja]`."""
        return np.array([values[joint.name] for joint in self.actuated])

    def kp(self, gains: str) -> NDArray[np.float64]:
        """Position gains `[Ja]` of a named set; zero where it has none."""
        kp = self.gains[gains].kp
        return np.zeros(len(self.actuated)) if kp is None else self.actuated_values(kp)

    def kd(self, gains: str) -> NDArray[np.float64]:
        """Velocity gains `[Ja]` of a named set."""
        return self.actuated_values(self.gains[gains].kd)


def load_profile(name_or_path: str | Path) -> Profile:
    """Read a profile: a YAML file, or the name of one that andante ships (`pendulum`, `cartpole`).

    Raises:
        ProfileError: names the file, the key, the expected and the found.
    """
    shipped = {file.stem: file for file in SHIPPED.glob("*.yaml")}
    path = shipped.get(str(name_or_path), Path(name_or_path))
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ProfileError(
            f"{path}: no robot profile ({error.strerror}); shipped ones: {', '.join(sorted(shipped))}"
        ) from None
    try:
        content = msgspec.convert(yaml.load(data, _UniqueKeys), ProfileFile)
    except (msgspec.ValidationError, yaml.YAMLError, ValueError, LookupError, RecursionError) as error:
        raise ProfileError(f"{path}: {' '.join(str(error).split())}") from None
    return Profile(**msgspec.structs.asdict(content), digest=hashlib.sha256(data).hexdigest())


class _UniqueKeys(yaml.SafeLoader):
    """YAML of plain values, in which no key of a mapping is given twice: the last would win in silence."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node = super().compose_mapping_node(anchor)
        keys = [key.value for key, _ in node.value]
        for key, _ in node.value:
            if keys.count(key.value) > 1:
                raise yaml.MarkedYAMLError(
                    problem=f"key {key.value!r} given twice", problem_mark=key.start_mark
                )
        return node


def check_fit(contract: Contract, profile: Profile) -> None:
    """Refuse a policy that this robot cannot run.

    Raises:
        ProfileError: names the robot model, joint, signal or action term, the expected and the found.
    """
    if contract.robot_model != profile.robot_model:
        raise ProfileError(
            f"the policy is for robot model {contract.robot_model!r}, the profile for {profile.robot_model!r}"
        )
    actuated = [joint.name for joint in profile.actuated]
    for source in contract.sources:
        if source.kind not in profile.signals:
            raise ProfileError(
                f"source {source.name!r} needs the signal {source.kind!r}, which the robot does not measure; "
                f"signals: {', '.join(profile.signals)}"
            )
        for name in source.joints:
            if name not in profile.joint_names:
                raise ProfileError(
                    f"source {source.name!r} reads joint {name!r}, which the profile lacks; "
                    f"joints: {', '.join(profile.joint_names)}"
                )
    for term in contract.actions:
        for name in term.joints:
            if name not in actuated:
                raise ProfileError(
                    f"action term {term.name!r} moves joint {name!r}, which the profile lacks or does not "
                    f"actuate; actuated joints: {', '.join(actuated)}"
                )
        if term.kind == "position" and term.closed_by != profile.pd_loop:
            raise ProfileError(
                f"action term {term.name!r}: training closed the position loop by {term.closed_by!r}, "
                f"the profile says pd_loop {profile.pd_loop!r}"
            )
    if left := [name for name in actuated if name not in contract.action_joints]:
        raise ProfileError(f"the policy does not command the actuated joint {left[0]!r}")


def _check_positive(what: str, value: float) -> None:
    if not 0.0 < value < math.inf:
        raise ValueError(f"{what} must be positive and finite, found {value}")


def _check_duration(what: str, value: float | None) -> None:
    if value is None:
        raise ValueError(f"{what} needs duration_s")

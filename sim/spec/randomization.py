"""What differs from world to world and from episode to episode, as data: physics, sensors, delays, timing."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError

from ..curriculum.config import CurriculumConfig
from .yaml_file import read_yaml

LONGEST_DELAY = 1000
"""Ticks."""


class Spread(Record, frozen=True, kw_only=True):
    """Base of the distributions."""

    shared: bool = False
    """One draw for all that the key names, instead of one for each element."""


class Uniform(Spread, frozen=True, tag_field="kind", tag="uniform"):
    """Every value from `low` to `high` is equally likely."""

    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high


class LogUniform(Spread, frozen=True, tag_field="kind", tag="log_uniform"):
    """The logarithm is uniform: twice as much is as likely as half as much."""

    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high


class Normal(Spread, frozen=True, tag_field="kind", tag="normal"):
    """Gaussian, clipped to `low` .. `high`."""

    mean: float
    std: float
    low: float
    high: float

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return self.low, self.high


class Choice(Spread, frozen=True, tag_field="kind", tag="choice"):
    """One of a few values, equally likely."""

    values: tuple[float, ...]

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        return min(self.values), max(self.values)


Distribution = float | Uniform | LogUniform | Normal | Choice
"""A number is always that number."""
Named = dict[str, Distribution]
"""By name, or by a pattern (`*_calf`) for all names that match. Where several match, factors multiply, and
everything else adds."""


class CurriculumChoice(Record, frozen=True):
    """Ranges whose values are chosen by what was learned from past episodes, instead of drawn."""

    ranges: tuple[str, ...]
    """`field` or `field.name`, each a uniform distribution, which gives the limits. All that a range names
    gets the same value."""
    teacher: CurriculumConfig
    score: Literal["return", "survival"] = "return"
    """Of an episode: its sum of rewards, or 1 if it lasted to the end of its time, else 0."""


class Randomization(Record, frozen=True):
    """Drawn anew for every world and episode; what is not given is nominal."""

    mass: Named = msgspec.field(default_factory=dict)
    """Factor, by body; its inertia goes along."""
    center_of_mass: Named = msgspec.field(default_factory=dict)
    """Shift along each of the body's axes, m, by body."""
    friction: Named = msgspec.field(default_factory=dict)
    """Factor on sliding friction, by geom. A contact has the larger friction of its two geoms, so that both
    must slip: `"*"` with `shared`."""
    kp: Named = msgspec.field(default_factory=dict)
    """Factor on the drive's position gain, by joint."""
    kd: Named = msgspec.field(default_factory=dict)
    """Factor on the drive's velocity gain, by joint."""
    motor_strength: Named = msgspec.field(default_factory=dict)
    """Factor on force and force limit, by joint or actuator."""
    armature: Named = msgspec.field(default_factory=dict)
    """Factor, by joint."""
    damping: Named = msgspec.field(default_factory=dict)
    """Factor, by joint."""
    gravity_tilt: Distribution | None = None
    """Rotation of gravity about each of the world's x and y, rad: as on a slope."""
    zero_offset: Named = msgspec.field(default_factory=dict)
    """What a joint's encoder reads too much, rad or m, by joint; its drive believes the encoder, too."""
    mounting: Named = msgspec.field(default_factory=dict)
    """Rotation of an IMU about each axis of its frame, rad, by frame."""
    noise: Named = msgspec.field(default_factory=dict)
    """Standard deviation of white noise, in the source's unit, by source."""
    bias: Named = msgspec.field(default_factory=dict)
    """Offset during an episode, in the source's unit, by source."""
    observation_delay: Named = msgspec.field(default_factory=dict)
    """Ticks, by source; before there is a reading so old, the episode's first."""
    action_delay: Distribution | None = None
    """Ticks from an action to its effect; before there is one, what an action of zero means."""
    inference_delay: Distribution | None = None
    """d, ticks."""
    execution_horizon: Distribution | None = None
    """s, ticks; the policy's own when null."""
    dropped_decisions: Distribution | None = None
    """Probability that a decision is lost."""
    starvation: Distribution | None = None
    """Probability that, from a decision on, all are lost for some time."""
    starvation_ticks: Distribution | None = None
    """How long."""
    curriculum: CurriculumChoice | None = None

    def __post_init__(self) -> None:
        entries = {entry.path: entry for entry in self.entries()}
        for entry in entries.values():
            _check(entry)
        if (self.starvation is None) != (self.starvation_ticks is None):
            raise AndanteError("starvation and starvation_ticks must be given together")
        for path in () if self.curriculum is None else self.curriculum.ranges:
            if path not in entries:
                raise AndanteError(f"curriculum: no range {path!r}; ranges: {', '.join(entries)}")
            if not isinstance(entries[path].distribution, Uniform):
                raise AndanteError(f"curriculum: range {path!r} must be uniform")

    def entries(self) -> Iterator[Entry]:
        """Everything given, in the order of the fields."""
        for field in FIELDS:
            value = getattr(self, field)
            if isinstance(value, dict):
                for name, distribution in value.items():
                    yield Entry(field, f"{field}.{name}", name, distribution)
            elif value is not None:
                yield Entry(field, field, "*", value)

    def ticks(self, field: str, default: int) -> tuple[int, ...]:
        """What a field of whole ticks may be; `default` alone where it is not given."""
        given = getattr(self, field)
        match given:
            case None:
                return (default,)
            case Choice(values=values):
                return tuple(sorted({int(value) for value in values}))
            case float() | int():
                return (int(given),)
            case _:
                low, high = given.bounds
                return tuple(range(int(low), int(high) + 1))

    @property
    def whole(self) -> Randomization:
        """The same without its curriculum: with ranges that are what they say from the first episode on."""
        return msgspec.structs.replace(self, curriculum=None)

    @property
    def nominal(self) -> bool:
        """Nothing is given."""
        return not any(True for _ in self.entries())


class Entry(NamedTuple):
    """One distribution and what it is for."""

    field: str
    path: str
    """`field` or `field.name`."""
    name: str
    """Or pattern; `*` for what has no names."""
    distribution: Distribution

    @property
    def bounds(self) -> tuple[float, float]:
        """Smallest and largest value."""
        given = self.distribution
        return (given, given) if isinstance(given, float | int) else given.bounds


FACTOR, ANY, ANGLE, LEAST_ZERO = (0.0, 1e3), (-math.inf, math.inf), (-1.5, 1.5), (0.0, math.inf)
TICKS, PROBABILITY = (0.0, LONGEST_DELAY), (0.0, 1.0)
FIELDS: dict[str, tuple[float, float]] = {
    "mass": (1e-3, 1e3),
    "center_of_mass": ANY,
    "friction": FACTOR,
    "kp": FACTOR,
    "kd": FACTOR,
    "motor_strength": FACTOR,
    "armature": FACTOR,
    "damping": FACTOR,
    "gravity_tilt": ANGLE,
    "zero_offset": ANY,
    "mounting": ANGLE,
    "noise": LEAST_ZERO,
    "bias": ANY,
    "observation_delay": TICKS,
    "action_delay": TICKS,
    "inference_delay": TICKS,
    "execution_horizon": (1.0, LONGEST_DELAY),
    "dropped_decisions": PROBABILITY,
    "starvation": PROBABILITY,
    "starvation_ticks": (1.0, LONGEST_DELAY),
}
"""What is possible."""
FACTORS = ("mass", "friction", "kp", "kd", "motor_strength", "armature", "damping")
IN_TICKS = ("observation_delay", "action_delay", "inference_delay", "execution_horizon", "starvation_ticks")
LOSSES = ("dropped_decisions", "starvation")
TIMING = ("inference_delay", "execution_horizon", "dropped_decisions", "starvation", "starvation_ticks")
"""Fields that concern decisions, not worlds."""


def load_randomization(path: Path) -> Randomization:
    """Read a YAML file of `Randomization`'s fields.

    Raises:
        AndanteError: names the file, the field, the expected and the found.
    """
    return read_yaml(path, Randomization)


def choose_randomization(
    path: Path | None, observation_delay: int | None, default: Randomization
) -> Randomization:
    """What a file says, or the default; with another delay of all that is measured, if one is given."""
    chosen = default if path is None else load_randomization(path)
    if observation_delay is None:
        return chosen
    return msgspec.structs.replace(chosen, observation_delay={"*": observation_delay})


def _check(entry: Entry) -> None:
    given = entry.distribution
    if isinstance(given, Choice) and not given.values:
        raise AndanteError(f"{entry.path}: no values to choose from")
    low, high = entry.bounds
    if not (math.isfinite(low) and math.isfinite(high)):
        raise AndanteError(f"{entry.path} must be finite, found {low:g} to {high:g}")
    if low > high:
        raise AndanteError(f"{entry.path}: low must be at most high, found {low:g} and {high:g}")
    least, most = FIELDS[entry.field]
    if low < least or high > most:
        raise AndanteError(f"{entry.path} must be from {least:g} to {most:g}, found {low:g} to {high:g}")
    if entry.field in LOSSES and high == 1.0:
        raise AndanteError(
            f"{entry.path} must be below 1, so that some decisions come through, found {high:g}"
        )
    if isinstance(given, LogUniform) and low <= 0.0:
        raise AndanteError(f"{entry.path}: a log_uniform range must be positive, found {low:g}")
    if isinstance(given, Normal) and not (math.isfinite(given.mean) and 0.0 <= given.std < math.inf):
        raise AndanteError(
            f"{entry.path}: mean and std must be finite, and std not negative, "
            f"found {given.mean:g} and {given.std:g}"
        )
    if entry.field in IN_TICKS:
        values = given.values if isinstance(given, Choice) else (low, high)
        if any(value % 1 for value in values):
            raise AndanteError(
                f"{entry.path} must be whole ticks, found {', '.join(f'{v:g}' for v in values)}"
            )

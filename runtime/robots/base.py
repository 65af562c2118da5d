"""What a robot must offer, and how one is found by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

import msgspec

from ..command import JointCommand, Sample
from ..contract import Contract
from ..errors import AndanteError
from ..profile import Profile

GROUP = "andante.robots"
"""Entry-point group under which packages register their robots."""


class Robot(Protocol):
    """One robot's input and output; constructed as `RobotClass(contract, profile, **options)`."""

    name: str
    """For messages."""
    joints: tuple[str, ...]
    """In profile order."""
    carries: frozenset[str]
    """Fields of `JointCommand` that reach the robot."""

    def read(self) -> Sample:
        """The latest measurement, at once; may be the same object every time."""

    def write(self, command: JointCommand) -> None:
        """Send one command; never called with mode `disabled`."""

    def close(self) -> None:
        """Let go of the robot."""


def find_robot(name: str) -> Callable[..., Robot]:
    """The class registered under that name.

    Raises:
        AndanteError: unknown name (lists the known ones), or its package is not installed (names the extra).
    """
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in known:
        raise AndanteError(f"no robot {name!r}; robots: {', '.join(sorted(known))}")
    try:
        robot: Callable[..., Robot] = known[name].load()
    except ModuleNotFoundError as error:
        module = known[name].module
        extra = module.split(".")[1] if module.startswith("andante.") else None
        hint = f"; in andante's folder: pip install '.[{extra}]'" if extra else ""
        raise AndanteError(f"robot {name!r} needs {error.name}, which is not installed{hint}") from None
    return robot


def open_robot(name: str, options: tuple[str, ...], contract: Contract, profile: Profile) -> Robot:
    """Find a robot and open it with options written as `name=value`, of the types that its class declares.

    Raises:
        AndanteError: no such robot, no such option of it, one of another type, or one missing.
    """
    robot = find_robot(name)
    known = {p.name: p for p in list(inspect.signature(robot).parameters.values())[2:] if str(p)[0] != "*"}
    given = {key: value for key, equals, value in (option.partition("=") for option in options) if equals}
    used = [p for p in known.values() if p.name in given or p.default is p.empty]
    fields = [
        (p.name, str if p.default in (p.empty, None) else type(p.default))
        if p.annotation is p.empty
        else (p.name, p.annotation)
        for p in used
    ]
    kind = msgspec.defstruct("Options", fields, module=robot.__module__, forbid_unknown_fields=True)
    try:
        if len(given) < len(options):
            raise msgspec.ValidationError("expected each once, as name=value")
        found = msgspec.convert(given, kind, strict=False, dec_hook=lambda kind, value: kind(value))
    except msgspec.ValidationError as error:
        words = f"with options [{', '.join(options)}] of {', '.join(known) or 'none'}"
        raise AndanteError(f"robot {name!r} {words}: {error}") from None
    try:
        return robot(contract, profile, **msgspec.structs.asdict(found))
    except OSError as error:  # no such port, for example
        raise AndanteError(f"cannot open robot {name!r}: {error}") from None

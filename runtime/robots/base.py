"""What a robot must offer, and how one is found by name."""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import entry_points
from typing import Protocol

from ..command import JointCommand, Sample
from ..errors import AndanteError

GROUP = "andante.robots"
"""Entry-point group under which packages register their robots."""


class Robot(Protocol):
    """One robot's input and output; constructed as `RobotClass(contract, profile, **options)`."""

    name: str
    joints: tuple[str, ...]
    """In profile order."""
    carries: frozenset[str]
    """Fields of `JointCommand` that reach the robot."""

    def read(self) -> Sample:
        """The latest measurement, at once; may be the same object every time."""
        ...

    def write(self, command: JointCommand) -> None:
        """Send one command; never called with mode `disabled`."""
        ...

    def close(self) -> None:
        """Let go of the robot."""
        ...


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

"""The robot on the page, drawn by whichever package knows its shape."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import entry_points
from typing import Protocol

from ..contract import Contract
from ..errors import AndanteError
from ..profile import Profile
from .server import Server

GROUP = "andante.scenes"
"""Entry-point group under which packages register their scenes."""


class Scene(Protocol):
    """Draws a robot; constructed as `SceneClass(server, contract, profile)` or refused by `AndanteError`."""

    def show(self, values: Mapping[str, Sequence[float]]) -> None:
        """Draw it as it is measured: signals by name, in the robot's own convention; all of them finite."""
        ...


def find_scene(server: Server, contract: Contract, profile: Profile) -> tuple[Scene | None, str]:
    """The first scene that can be made of that robot, and else why there is none."""
    reasons = []
    for entry in entry_points(group=GROUP):
        try:
            return entry.load()(server, contract, profile), ""
        except (AndanteError, ModuleNotFoundError) as error:
            reasons.append(f"{entry.name}: {error}")
    return None, "; ".join(reasons) or "no package draws robots"

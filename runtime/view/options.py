"""What `andante run` can be told about its live view."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..controller import Controller
from ..loop import RealtimeLoop
from ..robots.base import Robot

if TYPE_CHECKING:
    from .live import LiveView


@dataclass(frozen=True)
class ViewOptions:
    """A page to watch the run on."""

    view: bool = False
    """Serve a web page that shows the run and can stop it; with `--robot sim` it can inject faults, too."""
    host: str = "127.0.0.1"
    """Where the page listens; anything else lets other machines watch, and stop the robot."""
    port: int = 8080
    """Of the page; the next free one where it is taken, any for 0."""

    def open(self, controller: Controller, robot: Robot, loop: Callable[[], RealtimeLoop]) -> LiveView | None:
        """The view of a run of this controller on this robot; None where it was not asked for.

        Raises:
            AndanteError: the extra is not installed, or nobody can listen there.
        """
        if not self.view:
            return None
        from .live import LiveView

        return LiveView(controller, robot, loop, self.host, self.port)


NOT_VIEWED = ViewOptions()
"""The defaults: no page."""

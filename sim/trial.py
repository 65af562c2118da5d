"""The simulated robot, made to fail while it runs: what would the fallback table have it do?"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import msgspec

from .faults import AMOUNTS, KINDS, Fault, FaultyRobot
from .robot import SimRobot


class TrialRobot(FaultyRobot):
    """A `SimRobot` with faults that begin when they are asked for."""

    kinds: ClassVar[Mapping[str, float]] = {kind: AMOUNTS.get(kind, (0.0, 0.0))[1] for kind in KINDS}
    """Every kind of fault, with its usual amount: the largest of the random ones."""

    def __init__(self, robot: SimRobot):
        """Wrap a robot that is where it is to start."""
        super().__init__(robot, ())
        self._simulated = robot
        self._start = robot.data.qpos.copy(), robot.data.qvel.copy()

    def inject(self, kind: str, signal: str | None, ticks: int, amount: float) -> None:
        """Begin a fault at the next reading, of one signal or of all, for so many ticks.

        Raises:
            msgspec.ValidationError: no such kind, or no such amount of it.
        """
        content = {"kind": kind, "signal": signal, "amount": amount}
        window = {"from_tick": self._tick, "to_tick": self._tick + ticks}
        fault = msgspec.convert(content | window, Fault)
        self.faults = (*self.faults[: self._next], fault, *self.faults[self._next :])

    def restart(self) -> None:
        """End every fault, and put the robot where it started."""
        self.faults = ()
        self._restart(self._tick)
        self._simulated.set_state(*self._start)

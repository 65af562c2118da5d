"""What the control process and the page's process tell each other, as MessagePack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import msgspec

from ..contract import Contract, Record
from ..profile import Profile
from ..robots.base import Robot

BINS = 20
"""Of a histogram: bin k counts durations below 2^k us; the last one, those beyond as well."""
MESSAGE_BYTES = 1 << 17
"""No message after the first is longer."""


class Trial(Robot, Protocol):
    """A simulated robot that is made to fail while it runs."""

    kinds: Mapping[str, float]
    """Faults that it knows, each with the usual amount."""

    def inject(self, kind: str, signal: str | None, ticks: int, amount: float) -> None:
        """Begin a fault at the next reading, of one signal or of all, for so many ticks."""
        ...

    def restart(self) -> None:
        """End every fault, and put the robot where it started."""
        ...


class Setup(Record, frozen=True):
    """The first thing that the page is told."""

    host: str
    """Where to listen."""
    port: int
    """Where to listen; any free one when 0."""
    contract: Contract
    """The policy's."""
    profile: Profile
    """The robot's."""
    faults: dict[str, float]
    """Kinds of faults that can be tried, each with the usual amount; none with a real robot."""


class Snapshot(Record, frozen=True):
    """One tick."""

    tick: int
    """Its number."""
    state: str
    """The controller's."""
    fault: str | None
    """Event and reason of the latched fault."""
    waiting: str | None
    """For what, while waiting for sensors."""
    stopping: str | None
    """Why the run is being ended."""
    values: dict[str, list[float]]
    """Signals in the robot's convention."""
    ages_ms: dict[str, float | None]
    """None: never received."""
    wanted: list[float]
    """The operator's command."""
    mode: str
    """The command's."""
    command: dict[str, list[float]]
    """Fields of the joint command, over the actuated joints."""
    counters: dict[str, int]
    """The controller's."""
    timings: dict[str, list[int]]
    """Histograms [BINS]."""


class Press(Record, frozen=True, tag="press"):
    """A button of the page."""

    button: str
    """Which one."""


class Inject(Record, frozen=True, tag="inject"):
    """A fault to be tried, see `Trial.inject`."""

    kind: str
    """Of fault."""
    signal: str | None
    """That it befalls; all of them when None."""
    ticks: int
    """How long it lasts."""
    amount: float
    """As in `andante.sim.faults.Fault`."""


class Serving(Record, frozen=True, tag="serving"):
    """The page is there."""

    url: str
    """Where the page is."""


class Refused(Record, frozen=True, tag="refused"):
    """There is no page."""

    reason: str
    """Why there is none."""


STOP, EMERGENCY_STOP, RESTART = (Press(button=name) for name in ("stop", "emergency_stop", "restart"))
Told = Press | Inject | Serving | Refused
"""By the page."""
encode = msgspec.msgpack.Encoder().encode
"""A message to bytes."""
decode_told = msgspec.msgpack.Decoder(Told).decode
"""What the page said."""
decode_snapshot = msgspec.msgpack.Decoder(Snapshot).decode
"""What the run said."""

"""Faults of sensors and links, injected between a robot and whoever drives it; deterministic."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from andante.runtime.command import NEVER_NS, JointCommand, Sample
from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.runtime.robots.base import Robot

Kind = Literal[
    "drop",
    "freeze",
    "duplicate",
    "delay",
    "reorder",
    "nan",
    "inf",
    "set",
    "permute",
    "stamp_zero",
    "stamp_jump",
    "clock_jump",
    "slow_read",
    "raise_read",
    "raise_write",
]
KINDS: tuple[Kind, ...] = get_args(Kind)
CONSTANTS = {"nan": np.nan, "inf": np.inf}
AMOUNTS = {
    "delay": (1.0, 20.0),
    "set": (-1e3, 1e3),
    "stamp_jump": (-1e9, 1e9),
    "clock_jump": (-1e9, 1e9),
    "slow_read": (0.0, 1e8),
}
"""Range of the random amounts."""
LONGEST_DELAY = 1000
"""Ticks."""


class Fault(Record, frozen=True):
    """One fault, in the ticks `from_tick` up to and without `to_tick`.

    | kind | what happens | `amount` |
    |---|---|---|
    | drop | nothing new arrives | |
    | freeze | new messages arrive, with the value from before the fault | |
    | duplicate | the last message from before the fault arrives again and again | |
    | delay | messages arrive late | ticks |
    | reorder | every second message is overtaken by the one after it | |
    | nan, inf | the values are not finite | |
    | set | the values are all the same | the value |
    | permute | the values are shifted by one place | |
    | stamp_zero | the sensor's own stamps are zero | |
    | stamp_jump | the sensor's own stamps are displaced | ns |
    | clock_jump | the robot's clock is displaced, and all stamps of the time of the fault | ns |
    | slow_read | a reading takes time | ns |
    | raise_read, raise_write | the driver raises `OSError` | |
    """

    kind: Kind
    from_tick: int
    to_tick: int
    signal: str | None = None
    """The signal that it befalls; all of them when null."""
    amount: float = 0.0

    def __post_init__(self) -> None:
        if not 0 <= self.from_tick < self.to_tick:
            raise ValueError(f"{self.kind}: empty range of ticks [{self.from_tick}, {self.to_tick})")
        if not math.isfinite(self.amount):
            raise ValueError(f"{self.kind}: amount must be finite, found {self.amount}")
        if self.kind == "delay" and not 1 <= self.amount <= LONGEST_DELAY:
            raise ValueError(f"delay: amount must be 1 to {LONGEST_DELAY} ticks, found {self.amount}")


class FaultyRobot:
    """A robot that is well but for the faults listed; otherwise it is `robot`.

    A reading belongs to the tick after the last command's. Each fault begins with what the robot itself
    measured; one that is to befall what another has left goes into a second `FaultyRobot` around the first.
    """

    def __init__(
        self, robot: Robot, faults: Iterable[Fault], sleep: Callable[[float], None] = time.sleep
    ) -> None:
        """Wrap a robot.

        Args:
            robot: the one that is driven.
            faults: applied in the order in which they begin.
            sleep: how a slow reading takes its time, in seconds.

        Raises:
            AndanteError: a fault names a signal that the robot does not measure.
        """
        self.name = robot.name
        self.joints = robot.joints
        self.carries = robot.carries
        self.faults = tuple(sorted(faults, key=lambda fault: fault.from_tick))
        self._robot = robot
        self._sleep = sleep
        self._tick = 0
        self._active: list[tuple[Fault, Sample | None]] = []
        self._past: dict[int, Sample] = {}
        signals = robot.read().values
        for fault in self.faults:
            if fault.signal is not None and fault.signal not in signals:
                raise AndanteError(
                    f"fault {fault.kind}: no signal {fault.signal!r}; signals: {', '.join(signals)}"
                )
        self._restart(0)

    def read(self) -> Sample:
        """The robot's measurement, after the faults of this tick; a new object every time."""
        tick = self._tick
        while self._next < len(self.faults) and self.faults[self._next].from_tick <= tick:
            self._active.append((self.faults[self._next], self._message(tick - 1)))
            self._next += 1
        self._active = [(fault, before) for fault, before in self._active if tick < fault.to_tick]
        for fault, _ in self._active:
            if fault.kind == "raise_read":
                raise OSError(f"injected at tick {tick}")
            if fault.kind == "slow_read":
                self._sleep(fault.amount * 1e-9)
        true = _copy(self._robot.read())
        sample = _copy(true)
        for fault, before in self._active:
            for signal in sample.values if fault.signal is None else (fault.signal,):
                self._disturb(fault, before, sample, signal)
            if fault.kind == "clock_jump":
                _displace(sample, int(fault.amount), before)
        self._past[tick] = true
        while next(iter(self._past)) < tick - LONGEST_DELAY:
            del self._past[next(iter(self._past))]
        return sample

    def write(self, command: JointCommand) -> None:
        """Pass the command on, or fail."""
        if command.tick < self._tick:
            self._restart(command.tick)
        self._tick = command.tick + 1
        for fault, _ in self._active:
            if fault.kind == "raise_write" and command.tick < fault.to_tick:
                raise OSError(f"injected at tick {command.tick}")
        self._robot.write(command)

    def close(self) -> None:
        """Let go of the robot."""
        self._robot.close()

    def _restart(self, tick: int) -> None:
        """A new count of ticks: every fault is to come again."""
        self._tick = tick
        self._next = 0
        self._active.clear()
        self._past.clear()

    def _message(self, tick: int) -> Sample | None:
        """What the robot measured at that tick, or last before it."""
        return self._past.get(max((past for past in self._past if past <= tick), default=-1))

    def _disturb(self, fault: Fault, before: Sample | None, sample: Sample, signal: str) -> None:
        values, tick = sample.values[signal], self._tick
        if fault.kind == "drop":
            _replace(sample, signal, before)
        elif fault.kind == "duplicate":
            _replace(sample, signal, before, late=True)
        elif fault.kind == "delay":
            sent = tick - int(fault.amount)
            late = sent >= fault.from_tick
            _replace(sample, signal, self._message(sent) if late else before, late)
        elif fault.kind == "reorder" and tick == fault.from_tick:
            _replace(sample, signal, before)
        elif fault.kind == "reorder" and (tick - fault.from_tick) % 2 == 0:
            _replace(sample, signal, self._message(tick - 2), late=True)
        elif fault.kind == "freeze" and before is not None:
            np.copyto(values, before.values[signal])
        elif fault.kind in CONSTANTS:
            values.fill(CONSTANTS[fault.kind])
        elif fault.kind == "set":
            values.fill(fault.amount)
        elif fault.kind == "permute":
            values[:] = np.roll(values, 1)
        elif fault.kind == "stamp_zero":
            sample.source_ns[signal] = 0
        elif fault.kind == "stamp_jump":
            sample.source_ns[signal] += int(fault.amount)


def random_faults(
    seed: int, ticks: int, signals: Sequence[str], gap: int = 200, longest: int = 20
) -> list[Fault]:
    """Faults of every kind in so many ticks, one at a time.

    Args:
        seed: of every draw.
        ticks: the last fault ends before this.
        signals: that a robot measures; every second fault befalls one, the others all of them.
        gap: mean ticks between two.
        longest: ticks that one lasts at most.
    """
    random = np.random.default_rng(seed)
    faults: list[Fault] = []
    tick = 0
    while True:
        begin = tick + 1 + int(random.exponential(gap))
        tick = begin + int(random.integers(1, longest + 1))
        if tick >= ticks:
            return faults
        kind = KINDS[int(random.integers(len(KINDS)))]
        signal = signals[int(random.integers(len(signals)))] if random.random() < 0.5 else None
        low, high = AMOUNTS.get(kind, (0.0, 0.0))
        amount = float(random.uniform(low, high))
        faults.append(Fault(kind=kind, from_tick=begin, to_tick=tick, signal=signal, amount=amount))


def _copy(sample: Sample) -> Sample:
    values = {signal: array.copy() for signal, array in sample.values.items()}
    return replace(
        sample, values=values, received_ns=dict(sample.received_ns), source_ns=dict(sample.source_ns)
    )


def _replace(sample: Sample, signal: str, message: Sample | None, late: bool = False) -> None:
    """Have an earlier message be the last one; a `late` one arrives now. None has never arrived."""
    if message is None or message.received_ns[signal] == NEVER_NS:
        sample.values[signal].fill(0.0)
        sample.received_ns[signal] = sample.source_ns[signal] = NEVER_NS
        return
    np.copyto(sample.values[signal], message.values[signal])
    sample.source_ns[signal] = message.source_ns[signal]
    if not late:
        sample.received_ns[signal] = message.received_ns[signal]


def _displace(sample: Sample, by_ns: int, before: Sample | None) -> None:
    """Set the robot's clock; what arrived earlier keeps its stamp."""
    since_ns = NEVER_NS if before is None else before.now_ns
    for signal, received_ns in sample.received_ns.items():
        if received_ns > since_ns:
            if sample.source_ns[signal] == received_ns:  # the sensor has no clock of its own
                sample.source_ns[signal] += by_ns
            sample.received_ns[signal] += by_ns
    sample.now_ns += by_ns

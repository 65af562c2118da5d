"""Recordings run again, and recordings compared: to the first tick that differs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..command import JointCommand
from ..controller import Controller
from ..errors import AndanteError
from ..policy import PolicySession
from ..states import State
from .recording import Recording
from .row import MODES, ROWS, STATES
from .snapshot import Carried

COMPARED = {
    "tick": "tick numbers",
    "sample": "time",
    "signals": "measurements",
    "operator": "operator",
    "wanted": "operator's command",
    "state": "states",
    "state_norm": "memory",
    "action": "actions",
    "command": "modes",
    "target": "commands",
}
"""Groups of numbers that two recordings are compared by, what goes into a controller first."""


@dataclass(frozen=True)
class Comparison:
    """How far two accounts of the same ticks agree."""

    ticks: int
    """Compared and equal, from the first one on."""
    difference: str | None
    """The first one that is not."""
    unfinished: str | None = None
    """Why what follows was not compared."""

    @property
    def equal(self) -> bool:
        """Whether all was compared, and is equal."""
        return self.difference is None and self.unfinished is None


def replay(recording: Recording, policy: PolicySession) -> Comparison:
    """Give a new controller what the recorded one was given, and compare what both gave, bit by bit.

    What was recorded of a run before its activation, or before the first snapshot of it, is left out.
    Inference runs within the tick; an answer is taken at the tick at which it was taken then.

    Raises:
        AndanteError: another policy than the recorded one, or a recording in which no run and no snapshot of
            one begins.
    """
    header, rows = recording.header, recording.rows
    if policy.digest != header.policy_digest:
        raise AndanteError(
            f"{recording.where}: recorded with the policy of digest {header.policy_digest[:16]}..., "
            f"found {policy.digest[:16]}..."
        )
    begins, lost = recording.integers("begins"), recording.integers("lost")
    if not len(rows):
        raise AndanteError(f"{recording.where}: no ticks in it")
    snapshot, first = recording.snapshot, int(np.argmax(begins)) if begins.any() else len(rows)
    if snapshot is not None and snapshot.row < first:
        first = snapshot.row + 1
    elif first == len(rows):
        raise AndanteError(
            f"{recording.where}: begins in the middle of a run, and its policy did not run there: a "
            "controller can be run again from its activation on, or while its policy runs"
        )
    controller = Controller(
        policy,
        recording.profile,
        header.execution_horizon,
        inference_delay=header.inference_delay,
        mode=header.mode,
        overlap=header.overlap,
    )
    controller.warmup()
    if snapshot is not None and first == snapshot.row + 1:
        Carried(controller).put_back(snapshot)
    expected = _Given(recording)
    for i, (tick, sample) in enumerate(recording.samples()):
        if i < first:
            continue
        if not begins[i] and lost[i] != lost[i - 1]:
            return Comparison(i - first, None, f"{lost[i] - lost[i - 1]} ticks before tick {tick} were lost")
        if recording.statuses[i].policy != header.policy_digest:
            return Comparison(i - first, None, f"at tick {tick} another policy took over")
        if begins[i]:
            controller.deactivate()
            controller.clear()
            controller.activate()
        command = controller.tick(tick, sample)
        if difference := expected.difference(i, controller, command):
            return Comparison(i - first, f"tick {tick}: {difference}")
    return Comparison(len(rows) - first, None)


class _Given:
    """What a recorded controller gave."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._states = recording.integers("state")
        self._modes = recording.integers("command", "mode")
        self._valid_for_ns = recording.integers("command", "valid_for_ns")
        self._joints = recording.layout.names("target", "q")
        self._targets = recording.numbers("target").reshape(-1, len(ROWS), len(self._joints))

    def difference(self, i: int, controller: Controller, command: JointCommand) -> str | None:
        """The first thing that another controller gave otherwise, in words."""
        state: State = STATES[self._states[i]]
        for what, recorded, found in (
            ("state", state.name, controller.state.name),
            ("fault", self._recording.statuses[i].fault, controller.fault),
            ("mode", MODES[self._modes[i]], command.mode),
            ("valid_for_ns", self._valid_for_ns.item(i), command.valid_for_ns),
        ):
            if recorded != found:
                return f"{what}: recorded {recorded!r}, replayed {found!r}"
        if at := _first(self._targets[i], command.rows):
            recorded, found = self._targets[i][at], command.rows[at]
            return (
                f"{ROWS[at[0]]} of joint {self._joints[at[1]]!r}: recorded {recorded!r}, replayed {found!r}"
            )
        return None


def compare(first: Recording, second: Recording) -> tuple[list[str], dict[str, Comparison]]:
    """Compare two recordings tick by tick, bit by bit.

    Returns:
        What their headers say differently; and for each group of numbers, how far it agrees.
    """
    headers = [
        f"{name}: {getattr(first.header, name)!r} and {getattr(second.header, name)!r}"
        for name in first.header.__struct_fields__
        if name not in ("started_ns", "part") and getattr(first.header, name) != getattr(second.header, name)
    ]
    return headers, {name: _compare(first, second, name) for name in COMPARED}


def _compare(first: Recording, second: Recording, group: str) -> Comparison:
    columns = _columns(first, group)
    if columns != _columns(second, group):
        return Comparison(0, "other names")
    count = min(len(first.rows), len(second.rows))
    values = [recording.numbers(group)[:count] for recording in (first, second)]
    at = _first(*values)
    if at is None:
        lengths = len(first.rows), len(second.rows)
        shorter = None if lengths[0] == lengths[1] else f"{lengths[0]} and {lengths[1]} ticks"
        return Comparison(count, None, shorter)
    path = columns[at[1]]
    one, other = (recording.rows[at[0], recording.layout.place(*path)] for recording in (first, second))
    if first.layout.kind(*path) != "double":
        one, other = one.view(np.int64), other.view(np.int64)
    tick = first.integers("tick").item(at[0])
    return Comparison(int(at[0]), f"tick {tick}: {'.'.join(path)} {one.item()!r} and {other.item()!r}")


def _columns(recording: Recording, *path: str) -> list[tuple[str, ...]]:
    names = recording.layout.names(*path)
    return [path] if not names else [leaf for name in names for leaf in _columns(recording, *path, name)]


def _first(one: NDArray[np.float64], other: NDArray[np.float64]) -> tuple[int, int] | None:
    """Where two arrays `[m, n]` first differ in a bit."""
    unequal = np.ascontiguousarray(one).view(np.int64) != np.ascontiguousarray(other).view(np.int64)
    if not unequal.any():
        return None
    row, column = np.unravel_index(np.argmax(unequal), unequal.shape)
    return int(row), int(column)

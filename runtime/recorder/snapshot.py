"""What a running controller carries from tick to tick, for recordings to be run again from the middle."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..contract import Record
from ..controller import Controller
from ..errors import AndanteError
from ..planner import Counters, Execution
from ..states import State
from ..step_player import StepPlayer
from ..worker import Worker

ROOM = __name__.partition(".recorder")[0]
"""Only its objects are taken apart."""
Plain = bool | int | float | str | bytes | None
"""What is kept as it is."""
NOT_WALKED = (Worker, StepPlayer, Counters, Execution, Enum)
"""An inference under way is begun again, steps are of other states than `RUN`, every activation has new
counters, and the others never change."""


class Snapshot(Record, frozen=True):
    """All of it after one tick; values and the bytes of arrays by where they are."""

    row: int
    """Of that tick in the recording."""
    values: dict[str, Any]
    """Plain values by path."""
    arrays: dict[str, bytes]
    """Arrays by path, as bytes."""
    counters: dict[str, int]
    """The controller's."""


def encode_snapshot(snapshot: Snapshot) -> bytes:
    """As MessagePack, in which every float is exact."""
    return msgspec.msgpack.encode(snapshot)


def decode_snapshot(data: bytes, where: str) -> Snapshot:
    """Read it back.

    Raises:
        AndanteError: no snapshot of this version of andante; the text starts with `where`.
    """
    try:
        return msgspec.msgpack.decode(data, type=Snapshot)
    except msgspec.MsgspecError as error:
        raise AndanteError(f"{where}: snapshot: {error}") from None


class Carried:
    """Finds it by walking the controller once, so that what is added there later is not forgotten here."""

    def __init__(self, controller: Controller) -> None:
        """Of the policy in force."""
        self._controller = controller
        self._planner = controller.planner
        self._places: dict[str, tuple[object, str]] = {}
        self._arrays: dict[str, NDArray[Any]] = {}
        self._walk(controller, "controller", set())

    def take(self, row: int) -> Snapshot | None:
        """A snapshot of now; None unless the policy runs, and no other one is about to."""
        controller = self._controller
        same = controller.planner is self._planner and not controller.swapping
        if controller.state is not State.RUN or not same or not controller.planner.acted:
            return None
        found = {path: getattr(*place) for path, place in self._places.items()}
        return Snapshot(
            row=row,
            values={path: dict(value) if isinstance(value, dict) else value for path, value in found.items()},
            arrays={path: array.tobytes() for path, array in self._arrays.items()},
            counters=dict(vars(controller.counters)),
        )

    def put_back(self, snapshot: Snapshot) -> None:
        """Have a new controller of the same policy, profile and execution go on from there.

        Raises:
            AndanteError: the snapshot is of something else.
        """
        if {*snapshot.values, *snapshot.arrays} != {*self._places, *self._arrays}:
            raise AndanteError("the controller's snapshot is of another version of andante")
        for path, array in self._arrays.items():
            array[...] = np.frombuffer(snapshot.arrays[path], array.dtype).reshape(array.shape)
        for path, (owner, name) in self._places.items():
            setattr(owner, name, snapshot.values[path])
        vars(self._controller.counters).update(snapshot.counters)
        self._controller.state = State.RUN
        # What the worker was asked is in the policy's inputs; its answer is not there yet.
        asked, epoch = (getattr(*self._places[f"controller.planner._{key}"]) for key in ("asked", "epoch"))
        if asked is not None:
            self._planner.worker.request(asked, epoch)

    def _walk(self, owner: object, path: str, seen: set[int]) -> None:
        seen.add(id(owner))
        for name, value in _inside(owner):
            place = f"{path}.{name}"
            if isinstance(value, Plain) or _is_plain(value):
                if hasattr(owner, "__dict__"):
                    self._places[place] = owner, name
            elif isinstance(value, np.ndarray):
                self._arrays[place] = value
            elif id(value) not in seen and not isinstance(value, NOT_WALKED):
                self._walk(value, place, seen)


def _inside(owner: object) -> Iterator[tuple[str, object]]:
    if isinstance(owner, dict):
        yield from ((str(key), value) for key, value in owner.items())
    elif isinstance(owner, list | tuple):
        yield from ((str(i), value) for i, value in enumerate(owner))
    elif type(owner).__module__.startswith(ROOM) and hasattr(owner, "__dict__"):
        yield from vars(owner).items()


def _is_plain(value: object) -> bool:
    return isinstance(value, dict) and all(
        isinstance(key, str) and isinstance(inner, Plain) for key, inner in value.items()
    )

"""sensor_msgs/JointState to and from arrays in a fixed joint order; joints are matched by name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

MEASURED = {"joint_position": "position", "joint_velocity": "velocity"}
"""Signal of a `Sample` -> the message's field."""

COMMANDED = {"q": "position", "dq": "velocity", "tau_ff": "effort"}
"""Field of a `JointCommand` -> the message's field. Gains have no place in a JointState."""


class JointStateReader:
    """Copies the values of messages into arrays of one joint order."""

    def __init__(self, joints: Sequence[str], arrays: Mapping[str, NDArray[np.float64]]) -> None:
        """`arrays`: field of the message -> array `[len(joints)]` that `read` fills."""
        self._joints = tuple(joints)
        self._arrays = dict(arrays)
        self._names: list[str] | None = None
        self._places = np.zeros(len(self._joints), np.intp)

    def read(self, message: Any) -> list[str]:
        """Fill the arrays and name the fields that the message has; an empty field leaves its array alone.

        Raises:
            ValueError: a joint is missing or named twice, or a field has not one value per name. The arrays
                are as they were.
        """
        if message.name != self._names:
            self._places[:] = _places(self._joints, message.name)
            self._names = list(message.name)
        found = [field for field in self._arrays if len(getattr(message, field)) > 0]
        for field in found:
            if len(getattr(message, field)) != len(message.name):
                raise ValueError(
                    f"{field} has {len(getattr(message, field))} values for {len(message.name)} joint names"
                )
        for field in found:
            np.take(getattr(message, field), self._places, out=self._arrays[field])
        return found


class JointStateWriter:
    """Holds one message, filled over and over through views into its arrays."""

    def __init__(self, message: Any, joints: Sequence[str], fields: Iterable[str]) -> None:
        """`message`: an empty sensor_msgs/JointState; `fields`: which of its arrays are used."""
        self.message = message
        self.arrays: dict[str, NDArray[np.float64]] = {}
        message.name = list(joints)
        for field in fields:
            setattr(message, field, [0.0] * len(joints))
            self.arrays[field] = np.frombuffer(getattr(message, field))


def _places(joints: tuple[str, ...], names: Sequence[str]) -> list[int]:
    for joint in joints:
        if names.count(joint) != 1:
            fault = "repeats" if joint in names else "lacks"
            raise ValueError(f"the message {fault} joint {joint!r}; it names: {', '.join(names) or 'none'}")
    return [names.index(joint) for joint in joints]

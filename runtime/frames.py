"""Orientations as unit quaternions w, x, y, z."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray


def rotation_matrix(quaternion: Iterable[float]) -> NDArray[np.float64]:
    """The matrix `[3, 3]` that turns vectors as a unit quaternion does (Rodrigues' formula)."""
    w, x, y, z = quaternion
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    turn: NDArray[np.float64] = np.eye(3) + 2.0 * (w * cross + cross @ cross)
    return turn


def gravity_direction(w: float, x: float, y: float, z: float) -> tuple[float, float, float]:
    """Gravity along the axes of a frame, whose orientation in the world is given: (0, 0, -1) when level."""
    return 2 * (w * y - x * z), -2 * (w * x + y * z), 2 * (x * x + y * y) - 1

"""How the sensors of a robot's base are really mounted: what they measure while it is turned by hand.

The axes of the base, as a sensor sees them, are the rows of the matrix that turns vectors of the sensor's
frame into the base's.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from andante.runtime.frames import rotation_matrix
from andante.runtime.profile import Profile

from .motion import TILT, Motion

Array = NDArray[np.float64]
FOLLOWED = 0.4 * TILT
TOLERANCE = 0.4
"""How exactly the base is turned about the axis asked for, rad."""
CONVENTIONS: dict[str, tuple[list[int], int]] = {
    "": ([0, 1, 2, 3], 1),
    "wrong order: it is sent as x, y, z, w, must be w, x, y, z": ([3, 0, 1, 2], 1),
    "inverted: it must turn vectors of the sensor's frame into the world's": ([0, 1, 2, 3], -1),
    "inverted, and sent as x, y, z, w": ([3, 0, 1, 2], -1),
}
"""Ways to send an orientation: places of w, x, y, z, and the sign of x, y, z."""
UNMOVED = "has not followed the base about each of its axes"


def judge_base(profile: Profile, tilts: Mapping[str, Motion]) -> Iterator[str]:
    """What is wrong with the signals of the base, a line each.

    Args:
        profile: what its owner believes.
        tilts: what was measured from level to tilted, by axis.
    """
    judges = {
        "orientation": _judge_orientation,
        "angular_velocity": _judge_rates,
        "linear_acceleration": _judge_acceleration,
    }
    for kind, judge in judges.items():
        if kind in profile.signals:
            if fault := _unusable(kind, tilts.values()):
                yield f"{kind}: {fault}"
                continue
            mounting = rotation_matrix(profile.signals[kind].mounting or (1.0, 0.0, 0.0, 0.0))
            yield from (f"{kind}: {fault}" for fault in judge(tilts, mounting))


def _unusable(kind: str, motions: Collection[Motion]) -> str | None:
    readings = np.array([values[kind] for motion in motions for values in (motion.before, motion.after)])
    turned = [motion.turned[kind] for motion in motions if kind in motion.turned]
    if not (np.isfinite(readings).all() and np.isfinite(turned).all()):
        return "has readings that are not finite"
    if kind != "angular_velocity" and not readings.any(axis=1).all():
        return "has readings that are zero"
    return None


def _judge_orientation(tilts: Mapping[str, Motion], mounting: Array) -> Iterator[str]:
    for convention, (places, sign) in CONVENTIONS.items():
        axes = _axes_by_orientation(tilts, places, sign)
        if axes is not None and np.linalg.det(axes) > 0:
            yield from [convention] * bool(convention)
            yield from _judge_axes(axes, mounting)
            return
    yield f"{UNMOVED}, in any known convention"


def _axes_by_orientation(tilts: Mapping[str, Motion], places: list[int], sign: int) -> Array | None:
    signs = np.array([1, sign, sign, sign])
    turned = {
        axis: [
            rotation_matrix((signs * values["orientation"][places]).tolist())
            for values in (motion.before, motion.after)
        ]
        for axis, motion in tilts.items()
    }
    about = _twist(turned["z"][1] @ turned["z"][0].T) / 2
    if about[2] < max(FOLLOWED, float(np.linalg.norm(about)) * np.cos(TOLERANCE)):
        return None  # to the left is about the world's z axis, however the sensor is mounted
    return _axes_by_up({axis: [matrix[2] for matrix in matrices] for axis, matrices in turned.items()})


def _judge_rates(tilts: Mapping[str, Motion], mounting: Array) -> Iterator[str]:
    turned = np.array([tilts[axis].turned["angular_velocity"] for axis in ("x", "y", "z")])
    lengths = np.linalg.norm(turned, axis=1, keepdims=True)
    yield from [UNMOVED] if lengths.min() < FOLLOWED else _judge_axes(turned / lengths, mounting)


def _judge_acceleration(tilts: Mapping[str, Motion], mounting: Array) -> Iterator[str]:
    axes = _axes_by_up(
        {
            axis: [_unit(values["linear_acceleration"]) for values in (motion.before, motion.after)]
            for axis, motion in tilts.items()
        }
    )
    if axes is None:
        yield UNMOVED
    elif np.trace(axes @ mounting.T) < -2.0:
        yield "wrong sign: at rest it must point up"
    else:
        yield from _judge_axes(axes, mounting)


def _axes_by_up(up: Mapping[str, list[Array]]) -> Array | None:
    """From where up is, level and tilted, by axis of the tilt; None where it has not followed."""
    z = _unit(sum((level for level, _ in up.values()), np.zeros(3)))
    moves = [tilted - level for level, tilted in (up["y"], up["x"])]
    back, left = (move - z * (z @ move) for move in moves)
    if min(np.linalg.norm(back), np.linalg.norm(left)) < FOLLOWED:
        return None
    return np.array([-_unit(back), _unit(left), z])


def _judge_axes(axes: Array, mounting: Array) -> Iterator[str]:
    turn, determinant = axes @ mounting.T, np.linalg.det(axes)
    if abs(determinant) < 0.5:
        yield UNMOVED
    elif determinant < 0:
        reversed_axes = [axis for axis, cosine in zip("xyz", np.diag(turn), strict=True) if cosine < -0.5]
        yield f"wrong frame: it is left-handed; reversed axes: {', '.join(reversed_axes) or 'none alone'}"
    elif not _near(axes, mounting):
        yield f"wrong frame: mounting must be about {_quaternion(axes)}, found {_quaternion(mounting)}"


def _quaternion(axes: Array) -> list[float]:
    """w, x, y, z of the nearest rotation; of the nearest one by right angles where that is near."""
    right = np.round(axes)
    axes = right if _near(axes, right) else axes
    trace, twist = np.trace(axes), _twist(axes)
    # Davenport's matrix: its largest eigenvector is the nearest rotation.
    corner, block = np.array([[trace]]), axes + axes.T - trace * np.eye(3)
    found = np.linalg.eigh(np.block([[corner, twist[None]], [twist[:, None], block]]))[1][:, -1]
    return [round(float(value), 4) + 0.0 for value in found * np.sign(found[np.argmax(np.abs(found))])]


def _near(axes: Array, others: Array) -> bool:
    return bool((np.trace(axes @ others.T) - 1) / 2 > np.cos(TOLERANCE))


def _twist(matrix: Array) -> Array:
    """Axis of a rotation, times twice the sine of its angle."""
    return np.array([matrix[2, 1] - matrix[1, 2], matrix[0, 2] - matrix[2, 0], matrix[1, 0] - matrix[0, 1]])


def _unit(vector: Array) -> Array:
    return vector / np.linalg.norm(vector)

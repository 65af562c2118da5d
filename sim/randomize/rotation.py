"""Rotations."""

from __future__ import annotations

import numpy as np

from .draw import Floats


def rotations(vectors: Floats) -> Floats:
    """Rotation vectors [..., 3], rad -> matrices [..., 3, 3], by Rodrigues' formula; exactly 1 for zero."""
    angle = np.linalg.norm(vectors, axis=-1)[..., None, None]
    x, y, z = np.moveaxis(vectors, -1, 0)
    zero = np.zeros_like(x)
    cross = np.stack((zero, -z, y, z, zero, -x, -y, x, zero), -1).reshape(*x.shape, 3, 3)
    half = np.sinc(angle / (2.0 * np.pi))
    matrices: Floats = np.eye(3) + np.sinc(angle / np.pi) * cross + 0.5 * half * half * (cross @ cross)
    return matrices


def rotate(matrices: Floats, vectors: Floats) -> Floats:
    """Matrices [..., 3, 3], vectors [..., 3] -> [..., 3]."""
    rotated: Floats = (matrices * vectors[..., None, :]).sum(-1)
    return rotated

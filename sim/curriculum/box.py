"""The box of ranges, and the unit cube that it is mapped to."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from andante.runtime.errors import AndanteError

from .config import Range

Floats = NDArray[np.float64]


class Box:
    """Bounds [D] of the ranges, immutable."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.low: Floats = np.array([dimension.low for dimension in ranges], float)
        self.high: Floats = np.array([dimension.high for dimension in ranges], float)
        self._span = np.where(self.high > self.low, self.high - self.low, 1.0)

    def from_unit(self, unit: Floats) -> Floats:
        """Points [k, D] of the box; those outside the unit cube are moved to its surface."""
        params: Floats = np.clip(self.low + unit * self._span, self.low, self.high)
        return params

    def to_unit(self, params: Floats) -> Floats:
        """Points [k, D] in [0, 1]."""
        return (params - self.low) / self._span


def check_scores(score: Floats) -> None:
    """Raise `AndanteError` unless all scores [k] are finite."""
    if not np.isfinite(score).all():
        raise AndanteError(f"a curriculum needs finite scores, found {score[~np.isfinite(score)][0]}")

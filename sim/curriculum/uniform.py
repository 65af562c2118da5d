"""The curriculum that learns nothing: the baseline of the others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .box import Box, Floats
from .config import Range


class Uniform:
    """Every point of the box is equally likely; see `Curriculum`."""

    def __init__(self, ranges: Sequence[Range]) -> None:
        self.draws = len(ranges)
        self._box = Box(ranges)

    def sample(self, uniform: Floats) -> Floats:
        """Parameters [k, D] from uniform draws [k, D]."""
        return self._box.from_unit(uniform)

    def update(self, params: Floats, score: Floats) -> None:
        """Nothing is learned."""

    def state_dict(self) -> dict[str, Any]:
        """Empty."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """There is nothing to continue."""

    def statistics(self) -> dict[str, float]:
        """None."""
        return {}

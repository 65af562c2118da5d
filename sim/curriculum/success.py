"""Ranges that grow while their frontier is mastered.

Each end of each range is a frontier of its own that starts at an easy value, as in automatic domain
randomisation (OpenAI et al., "Solving Rubik's Cube with a Robot Hand", 2019, arXiv 1910.07113). Instead of
forcing some episodes onto a boundary, those that happen to be close to it are counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from andante.runtime.errors import AndanteError

from .box import Box, Floats, check_scores
from .config import Range, SuccessConfig


class SuccessDriven:
    """The success-driven curriculum; see `Curriculum`."""

    def __init__(self, config: SuccessConfig, ranges: Sequence[Range]) -> None:
        names = [dimension.name for dimension in ranges]
        if set(config.start) != set(names):
            raise AndanteError(f"start must name every range once, {names}, found {list(config.start)}")
        for dimension in ranges:
            if not dimension.low <= config.start[dimension.name] <= dimension.high:
                raise AndanteError(
                    f"start of range {dimension.name!r} must be from {dimension.low} to {dimension.high}, "
                    f"found {config.start[dimension.name]}"
                )
        self.draws = len(ranges)
        self._config = config
        self._names = names
        self._box = Box(ranges)
        self._start = np.array([config.start[name] for name in names])
        self._limits = np.stack((self._box.low, self._box.high))
        self._level = np.zeros((2, len(names)), np.int64)
        """Outward moves of the low and the high frontiers [2, D]."""
        self._episodes = np.zeros_like(self._level)
        """Episodes at each frontier since its last decision."""
        self._successes = np.zeros_like(self._level)

    @property
    def _frontier(self) -> Floats:
        reached = self._level / self._config.steps
        frontier: Floats = np.clip(
            self._start + reached * (self._limits - self._start), self._box.low, self._box.high
        )
        return frontier

    def sample(self, uniform: Floats) -> Floats:
        """Parameters [k, D] from uniform draws [k, D]: uniform between the frontiers."""
        low, high = self._frontier
        params: Floats = np.clip(low + uniform * (high - low), low, high)
        return params

    def update(self, params: Floats, score: Floats) -> None:
        """Count the episodes at each frontier, and move those frontiers that enough of them are known of.

        Episodes beyond a frontier, chosen before it moved back, are not counted.

        Raises:
            AndanteError: a score that is not finite.
        """
        check_scores(score)
        # Seen from the start, outwards is positive on both sides.
        outwards = np.array([[-1.0], [1.0]])
        way = (params[:, None] - self._start) * outwards
        extent = (self._frontier - self._start) * outwards
        # Parameters may have been rounded to float32 on their way.
        slack = 1e-6 * (self._box.high - self._box.low)
        at_frontier = (way >= (1 - self._config.band) * extent - slack) & (way <= extent + slack)
        success = (score >= self._config.success_score)[:, None, None]
        self._episodes += at_frontier.sum(0)
        self._successes += (at_frontier & success).sum(0)

        decided = self._episodes >= self._config.episodes
        rate = self._successes / np.maximum(self._episodes, 1)
        grow, shrink = rate > self._config.grow_above, rate < self._config.shrink_below
        moves = np.where(decided, grow.astype(int) - shrink.astype(int), 0)
        self._level = np.clip(self._level + moves, 0, self._config.steps)
        self._episodes[decided] = 0
        self._successes[decided] = 0

    def state_dict(self) -> dict[str, Any]:
        """Counts, as lists."""
        return {
            "level": self._level.tolist(),
            "episodes": self._episodes.tolist(),
            "successes": self._successes.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue exactly."""
        self._level = np.array(state["level"])
        self._episodes = np.array(state["episodes"])
        self._successes = np.array(state["successes"])

    def statistics(self) -> dict[str, float]:
        """`<range>/low` and `<range>/high`: where the frontiers are."""
        low, high = self._frontier
        at_low = {f"{name}/low": float(value) for name, value in zip(self._names, low, strict=True)}
        return at_low | {f"{name}/high": float(value) for name, value in zip(self._names, high, strict=True)}

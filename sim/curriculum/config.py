"""What can be chosen about a curriculum, as data. Without torch: `--help` needs it."""

from __future__ import annotations

import math

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError


class Range(Record, frozen=True):
    """One dimension of the box that a curriculum chooses from."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            raise AndanteError(f"range {self.name!r} must be finite, found {self.low} to {self.high}")
        if self.low > self.high:
            raise AndanteError(f"range {self.name!r} must have low <= high, found {self.low} > {self.high}")


class UniformConfig(Record, frozen=True, tag_field="kind", tag="uniform"):
    """Every point of the box is equally likely, always."""


class SuccessConfig(Record, frozen=True, tag_field="kind", tag="success"):
    """Ranges that grow from an easy start while the episodes at their frontier succeed."""

    start: dict[str, float]
    """Easy value of every range; from there one frontier moves towards each of its two limits."""
    success_score: float = 0.5
    """Least score of a successful episode."""
    grow_above: float = 0.8
    """Success rate above which a frontier moves outwards."""
    shrink_below: float = 0.4
    """Success rate below which a frontier moves back."""
    steps: int = 10
    """Moves of a frontier from start to limit."""
    band: float = 0.2
    """Share of the way from start to frontier, its outer end, whose episodes count as at the frontier."""
    episodes: int = 50
    """Episodes at a frontier, since its last decision, that the next one needs."""

    def __post_init__(self) -> None:
        if not math.isfinite(self.success_score):
            raise AndanteError(f"success_score must be finite, found {self.success_score}")
        if not 0.0 <= self.shrink_below < self.grow_above <= 1.0:
            raise AndanteError(
                "thresholds must be 0 <= shrink_below < grow_above <= 1, "
                f"found shrink_below {self.shrink_below}, grow_above {self.grow_above}"
            )
        if not 0.0 < self.band <= 1.0:
            raise AndanteError(f"band must be above 0 and at most 1, found {self.band}")
        _check_at_least_one(self, "steps", "episodes")


class AlpGmmConfig(Record, frozen=True, tag_field="kind", tag="alp_gmm"):
    """Gaussian mixtures over absolute learning progress; defaults of the authors, but for `history`."""

    fit_every: int = 250
    """Episodes between two fits; before the first one, draws are uniform."""
    window: int = 250
    """Latest episodes that a mixture is fitted to."""
    min_components: int = 2
    """Fewest Gaussians to try."""
    max_components: int = 10
    """Most Gaussians to try."""
    uniform_share: float = 0.2
    """Share of draws that stay uniform over the box."""
    history: int = 2000
    """Latest episodes among which the nearest previous one is looked for."""

    def __post_init__(self) -> None:
        _check_at_least_one(self, "min_components")
        if self.min_components > self.max_components:
            raise AndanteError(
                f"max_components must be at least min_components, {self.min_components}, "
                f"found {self.max_components}"
            )
        for name in ("fit_every", "window"):
            if getattr(self, name) < self.max_components:
                raise AndanteError(
                    f"{name} must be at least max_components, {self.max_components}, "
                    f"found {getattr(self, name)}"
                )
        if self.window > self.history:
            raise AndanteError(f"window must be at most history, {self.history}, found {self.window}")
        if not 0.0 <= self.uniform_share <= 1.0:
            raise AndanteError(f"uniform_share must be from 0 to 1, found {self.uniform_share}")


CurriculumConfig = UniformConfig | SuccessConfig | AlpGmmConfig
"""Any kind; in data, `kind` says which."""


def _check_at_least_one(config: Record, *names: str) -> None:
    for name in names:
        if getattr(config, name) < 1:
            raise AndanteError(f"{name} must be at least 1, found {getattr(config, name)}")

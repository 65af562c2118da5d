"""Curricula: which point of a box of named ranges a world's next episode gets, learned from past episodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec

from andante.runtime.errors import AndanteError

from .box import Floats
from .config import AlpGmmConfig, CurriculumConfig, Range, SuccessConfig, UniformConfig


class Curriculum(Protocol):
    """Chooses the parameters of episodes, and learns from how the episodes went.

    Each sample is a function of its own row of uniform draws and of what was learned so far. A world whose
    draws are keyed by world and episode (`andante.sim.randomness.Draws`) thus depends on its neighbours
    through the learning only, and that does not depend on the order of episodes within one `update`.
    """

    draws: int
    """U: uniform draws that one sample takes."""

    def sample(self, uniform: Floats) -> Floats:
        """Parameters [k, D] of k episodes, in the order of the ranges and within them, from draws [k, U]."""
        ...

    def update(self, params: Floats, score: Floats) -> None:
        """Learn from k episodes that ended: their parameters [k, D], as sampled, and scores [k].

        Raises:
            AndanteError: a score that is not finite.
        """
        ...

    def state_dict(self) -> dict[str, Any]:
        """All that an exact continuation needs: tensors, numbers and lists."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict` of a curriculum with the same config and ranges."""
        ...

    def statistics(self) -> dict[str, float]:
        """Figures for a log, by name."""
        ...


def make_curriculum(config: CurriculumConfig | Mapping[str, Any], ranges: Sequence[Range]) -> Curriculum:
    """The curriculum that a config describes, over ranges.

    Args:
        config: Of any kind; plain data has its `kind` beside the fields of that kind.
        ranges: The D dimensions, in the order of the parameters.

    Raises:
        AndanteError: names the field, threshold or range, the expected and the found.
    """
    # The config is read by `--help`, which must not import torch.
    from .alp_gmm import AlpGmm
    from .success import SuccessDriven
    from .uniform import Uniform

    try:
        chosen: CurriculumConfig = msgspec.convert(config, CurriculumConfig)
    except msgspec.ValidationError as error:
        raise AndanteError(f"curriculum: {error}") from None
    names = [dimension.name for dimension in ranges]
    if not names or len(set(names)) < len(names):
        raise AndanteError(f"a curriculum needs at least one range, each with its own name, found {names}")
    match chosen:
        case UniformConfig():
            return Uniform(ranges)
        case SuccessConfig():
            return SuccessDriven(chosen, ranges)
        case AlpGmmConfig():
            return AlpGmm(chosen, ranges)


__all__ = [
    "AlpGmmConfig",
    "Curriculum",
    "CurriculumConfig",
    "Range",
    "SuccessConfig",
    "UniformConfig",
    "make_curriculum",
]

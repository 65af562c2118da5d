"""A curriculum over ranges of a randomisation: what the next episodes get, and how the last ones went."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ..curriculum import Range, make_curriculum
from ..randomness import Draws
from ..spec.randomization import CurriculumChoice, Randomization
from ..worlds import Ends
from .draw import Floats


class Lessons:
    """Owns the curriculum, what it gave the B worlds for their episodes, and their scores so far."""

    def __init__(
        self, randomization: Randomization, choice: CurriculumChoice, num_worlds: int, device: torch.device
    ):
        """Nothing is learned yet.

        Raises:
            AndanteError: what the teacher's config says does not fit the ranges.
        """
        bounds = {entry.path: entry.bounds for entry in randomization.entries()}
        ranges = [Range(name=path, low=bounds[path][0], high=bounds[path][1]) for path in choice.ranges]
        self._choice = choice
        self._curriculum = make_curriculum(choice.teacher, ranges)
        self._given = np.zeros((num_worlds, len(ranges)))
        self._total = torch.zeros(num_worlds, dtype=torch.float64, device=device)

    def begin(self, worlds: Tensor, draws: Draws) -> None:
        """Choose for the episodes that begin in `worlds` [k]."""
        uniform = draws.uniform("curriculum", self._curriculum.draws).cpu().numpy()
        self._given[worlds.cpu().numpy()] = self._curriculum.sample(uniform)
        self._total[worlds] = 0.0

    def chosen(self, worlds: Tensor) -> dict[str, Floats]:
        """By range, what `worlds` [k] got [k]."""
        return dict(zip(self._choice.ranges, self._given[worlds.cpu().numpy()].T, strict=True))

    def learn(self, reward: Tensor, ends: Ends) -> None:
        """Account for n ticks, reward [B, n], and learn from the episodes that ended in them."""
        for now in (reward * ends.valid).unbind(1):
            # One after the other: the sum must not depend on how ticks are grouped.
            self._total += now
        worlds = ends.done.nonzero().squeeze(1)
        if not len(worlds):
            return
        if self._choice.score == "return":
            score = self._total[worlds]
        else:
            score = ends.truncated[worlds].any(1).double()
        self._curriculum.update(self._given[worlds.cpu().numpy()], score.cpu().numpy())

    def statistics(self) -> dict[str, float]:
        """Figures for a log."""
        return self._curriculum.statistics()

    def state_dict(self) -> dict[str, Any]:
        """Everything that an exact continuation needs."""
        return {
            "curriculum": self._curriculum.state_dict(),
            "given": torch.from_numpy(self._given.copy()),
            "total": self._total.clone(),
        }

    def load_state_dict(self, saved: Mapping[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        self._curriculum.load_state_dict(saved["curriculum"])
        self._given = saved["given"].numpy().copy()
        self._total.copy_(saved["total"])

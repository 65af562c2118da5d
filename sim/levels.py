"""How hard each world has it: kept from episode to episode, moved by how they went."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from .randomness import Draws
from .task import Levels


class WorldLevels:
    """Owns the level of every world of a task with `Levels`; without, there are none, and nothing happens."""

    value: Tensor
    """int64 [B]."""

    def __init__(self, levels: Levels | None, num_worlds: int, device: torch.device):
        """All at zero until `begin`."""
        self._levels = levels
        self.value = torch.zeros(num_worlds, dtype=torch.int64, device=device)

    def begin(self, draws: Draws) -> None:
        """Spread all worlds evenly over the levels, as `draws` of their first episode say."""
        if self._levels is not None:
            self.value = (draws.uniform("level", 1)[:, 0] * self._levels.count).long()

    def move(self, worlds: Tensor, variables: Mapping[str, Tensor], terminated: Tensor) -> None:
        """Account for how the episodes of `worlds` [k] ended: the task's variables, and whether for good."""
        if self._levels is not None:
            moved = self.value[worlds] + self._levels.move(variables, terminated)
            self.value[worlds] = moved.clamp(0, self._levels.count - 1)

    def place(self, worlds: Tensor, draws: Draws) -> Tensor | None:
        """Where the bases of `worlds` [k] start, seen from the declared start [k, 2], m; None if all do."""
        if self._levels is None:
            return None
        return self._levels.place(self.value[worlds], draws.uniform("place", 1)[:, 0])

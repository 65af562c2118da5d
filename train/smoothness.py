"""What rough motion costs: differences of the executed stream of actions, across decisions."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .policy import Policy


class Smoothness:
    """Owns the last executed actions of every world; the cost is the training's, no part of the task.

    Orders 1 to 3: the third is what a motor's jerk follows. At a reset the history is of the task's
    `action_middle`, as for the sources of executed actions.
    """

    def __init__(self, weights: Sequence[float], policy: Policy, num_worlds: int) -> None:
        """`weights` of orders 1, 2, ...; actions are taken in units of the task's `action_unit`."""
        self.weights = tuple(weights)
        self.free = not any(weights)
        """Nothing costs anything."""
        self._offset, self._unit = policy.decode.offset, policy.decode.scale
        self._recent = torch.zeros(num_worlds, len(self.weights), len(self._unit), device=self._unit.device)

    def cost(self, actions: Tensor, done: Tensor) -> Tensor:
        """Of n ticks [B, n], executed `actions` [B, n, A] in SI units; where `done` [B] an episode ended."""
        stream = torch.cat((self._recent, (actions - self._offset) / self._unit), 1)
        order, cost = len(self.weights), torch.zeros(actions.shape[:2], device=actions.device)
        self._recent = stream[:, -order:].masked_fill(done[:, None, None], 0.0)
        for n, weight in enumerate(self.weights, 1):
            stream = stream.diff(dim=1)
            if weight:
                cost += weight * stream[:, order - n :].square().mean(-1)
        return cost

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs."""
        return {"recent": self._recent}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from `state_dict`."""
        self._recent = state["recent"].to(self._recent)

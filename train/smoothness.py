"""The executed stream of actions: what rough motion costs, and what the critic has to know of it."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from .policy import Policy


class RecentActions:
    """Owns the last executed actions of every world, R ticks of them, in units of the task's `action_unit`.

    R reaches as far back as the costs, and as the decoder's start: rewards and chunks depend on them, so
    they are part of what the critic sees. At a reset they are the task's `action_middle`, as for the sources
    of executed actions.
    """

    def __init__(self, policy: Policy, smoothness: Sequence[float], num_worlds: int) -> None:
        """`smoothness`: weights of `roughness_cost`."""
        orders = [order for order, weight in enumerate(smoothness, 1) if weight]
        self.reach = max([*orders, int(policy.decoder.starts_from_last)])
        """R."""
        self.size = self.reach * policy.spec.action_size
        """Numbers that the critic sees of each world."""
        self._encode = policy.decode.encode
        device = policy.log_std.device
        self._recent = torch.zeros(num_worlds, self.reach, policy.spec.action_size, device=device)

    def follow(self, actions: Tensor, done: Tensor) -> Tensor:
        """Go on by n ticks, and return the stream [B, R + n, A] of those before and these.

        Executed `actions` [B, n, A] in SI units; where `done` [B] an episode ended.
        """
        stream = torch.cat((self._recent, self._encode(actions)), 1)
        self._recent = stream[:, stream.shape[1] - self.reach :].masked_fill(done[:, None, None], 0.0)
        return stream

    def seen(self, stream: Tensor) -> Tensor:
        """What the critic sees of a stream: before each tick, and after the last [B, n + 1, R A]."""
        return stream.unfold(1, self.reach, 1).flatten(2)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs."""
        return {"recent": self._recent}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Continue from `state_dict`."""
        self._recent = state["recent"].to(self._recent)


def roughness_cost(stream: Tensor, weights: Sequence[float], ticks: int) -> Tensor:
    """Of the last n `ticks` of a stream [B, R + n, A], per tick [B, n]; the training's, no part of the task.

    Weighted mean squares over actions of its differences of orders 1, 2, ...; the third is what a motor's
    jerk follows.
    """
    cost = stream.new_zeros(len(stream), ticks)
    for weight in weights:
        stream = stream.diff(dim=1)
        if weight:
            cost += weight * stream[:, -ticks:].square().mean(-1)
    return cost

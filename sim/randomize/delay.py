"""Values that arrive late, by another number of ticks in each world."""

from __future__ import annotations

import torch
from torch import Tensor


class DelayLine:
    """Owns the last `longest` values of each of B worlds, oldest first."""

    def __init__(self, num_worlds: int, longest: int, size: int, device: torch.device):
        """Full of zeros, and without any delay."""
        self._past = torch.zeros(num_worlds, longest, size, device=device)
        self._delay = torch.zeros(num_worlds, 1, dtype=torch.int64, device=device)

    def restart(self, worlds: Tensor, delay: Tensor) -> None:
        """Begin an episode with `delay` [k], whole ticks, in `worlds` [k]."""
        self._delay[worlds] = delay[:, None].to(self._delay)

    def fill(self, worlds: Tensor, values: Tensor) -> None:
        """Have `values` [k, size] be all that was before in `worlds` [k]."""
        self._past[worlds] = values[:, None]

    def push(self, values: Tensor) -> Tensor:
        """Values [B, n, size] of n more ticks -> what arrives at these ticks [B, n, size]."""
        n, longest = values.shape[1], self._past.shape[1]
        stream = torch.cat((self._past, values), 1)
        self._past = stream[:, n:]
        index = longest + torch.arange(n, device=values.device) - self._delay
        return stream.take_along_dim(index[..., None], 1)

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that an exact continuation needs."""
        return {"past": self._past.clone(), "delay": self._delay.clone()}

    def load_state_dict(self, saved: dict[str, Tensor]) -> None:
        """Continue where `state_dict` was taken."""
        self._past = saved["past"].to(self._past.device, copy=True)
        self._delay.copy_(saved["delay"])

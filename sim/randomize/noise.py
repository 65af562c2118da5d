"""White noise for sensors: a draw for each world, tick and element, at the price of a look-up."""

from __future__ import annotations

from functools import cache

import torch
from torch import Tensor

from ..randomness import Draws

LEVELS = 1 << 16


@cache
def _quantiles(device: torch.device) -> Tensor:
    """Standard normal quantiles in the middle of equally likely steps, float32 [LEVELS]."""
    share = (torch.arange(LEVELS, dtype=torch.float64) + 0.5) / LEVELS
    quantiles: Tensor = torch.special.ndtri(share).float().to(device)
    return quantiles


def white_noise(draws: Draws, stream: str, size: int) -> Tensor:
    """Independent standard normal draws, float32 [B, size], in `LEVELS` steps, at most 4.3 in size."""
    words = draws.words(stream, -(-size // 8)).permute(1, 2, 0)
    index = torch.stack((words & 0xFFFF, words >> 16), -1).flatten(1)[:, :size]
    noise: Tensor = _quantiles(index.device)[index]
    return noise

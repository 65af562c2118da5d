"""Running normalisation of observations."""

from __future__ import annotations

import torch
from torch import Tensor, nn

CLIP = 10.0
STD_FLOOR = 1e-2
"""Added to the standard deviation: a feature that never moves must not have its rounding noise magnified."""


class RunningNormalizer(nn.Module):
    """(x - mean) / std of everything that `update` has seen, clipped to +-10.

    The statistics change only in `update`, so evaluation, export and all epochs of one training
    iteration see one fixed affine map. Statistics are float64, the map is float32.
    """

    count: Tensor
    mean: Tensor
    squared_deviation: Tensor
    center: Tensor
    gain: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros((), dtype=torch.float64))
        self.register_buffer("mean", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("squared_deviation", torch.zeros(size, dtype=torch.float64))
        self.register_buffer("center", torch.zeros(size))
        self.register_buffer("gain", torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        """x [..., size] -> normalised, same shape."""
        return ((x - self.center) * self.gain).clamp(-CLIP, CLIP)

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Merge the samples x [N, size] (parallel variance: Chan, Golub, LeVeque 1983)."""
        x = x.double()
        mean = x.mean(0)
        delta = mean - self.mean
        total = self.count + len(x)
        self.squared_deviation += (x - mean).square().sum(0) + delta.square() * self.count * len(x) / total
        self.mean += delta * len(x) / total
        self.count.copy_(total)
        std = (self.squared_deviation / total).sqrt()
        self.center.copy_(self.mean)
        self.gain.copy_(1.0 / (std + STD_FLOOR))

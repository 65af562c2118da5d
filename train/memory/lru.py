"""The linear recurrent unit (arXiv 2303.06349)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .diagonal import DiagonalCell, DiagonalRecurrence

SMALLEST_MODULUS, LARGEST_MODULUS, LARGEST_PHASE = 0.9, 0.999, math.pi / 10
"""Initial eigenvalues: the paper's ring and sector for long memory."""


class Lru(DiagonalCell):
    """s' = lambda * s + exp(gamma) * (B x), complex; y = ELU(C [Re s', Im s'] + D x).

    Without the exponential linear unit, stacked ones would be no more than one.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        modulus = torch.empty(size).uniform_(SMALLEST_MODULUS**2, LARGEST_MODULUS**2).sqrt()
        self.recurrence = DiagonalRecurrence(modulus, torch.rand(size) * LARGEST_PHASE)
        self.gamma = nn.Parameter((1.0 - modulus.square()).sqrt().log())
        self.from_input = nn.Linear(input_size, 2 * size, bias=False)
        self.output = nn.Linear(2 * size, size)
        self.skip = nn.Linear(input_size, size, bias=False)

    def drive(self, x: Tensor) -> Tensor:
        """See `DiagonalCell`."""
        driven: Tensor = self.from_input(x) * self.gamma.exp().repeat(2)
        return driven

    def read(self, x: Tensor, h: Tensor) -> Tensor:
        """See `DiagonalCell`."""
        return nn.functional.elu(self.output(h) + self.skip(x))

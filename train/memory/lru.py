"""The linear recurrent unit (arXiv 2303.06349)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .cell import MemoryCell, StateSpec
from .diagonal import DiagonalRecurrence

SMALLEST_MODULUS, LARGEST_MODULUS, LARGEST_PHASE = 0.9, 0.999, math.pi / 10
"""Initial eigenvalues: the paper's ring and sector for long memory."""


class Lru(MemoryCell):
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

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The real and the imaginary parts."""
        return tuple(StateSpec(name, self.size, (0.0,) * self.size) for name in ("re", "im"))

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision."""
        h = self.recurrence.step(self._drive(x), h)
        return self._read(x, h), h

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop; all but the recurrence itself is done for all decisions at once."""
        h = self.recurrence.scan(self._drive(x), reset, valid, h0)
        return self._read(x, h), h[-1]

    def freeze(self) -> None:
        """Fold lambda."""
        self.recurrence.freeze()

    def _drive(self, x: Tensor) -> Tensor:
        driven: Tensor = self.from_input(x) * self.gamma.exp().repeat(2)
        return driven

    def _read(self, x: Tensor, h: Tensor) -> Tensor:
        return nn.functional.elu(self.output(h) + self.skip(x))

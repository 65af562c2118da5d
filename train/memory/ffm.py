"""Fast and forgetful memory (arXiv 2310.04128)."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .diagonal import DiagonalCell, DiagonalRecurrence

CONTEXT = 4
"""c: how many frequencies each trace is kept at; the paper's."""
LONGEST = 1024.0
"""Decisions: longest initial time constant and period; the paper's longest episode."""


class Ffm(DiagonalCell):
    """S' = exp(a_m + i b_c) S + (W1 x) * sigmoid(W2 x), a grid of m traces by c frequencies;
    g = sigmoid(W3 x); y = LN(M [Re S', Im S']) * g + (W4 x) * (1 - g).

    m is a quarter of `size`, so that the state has twice as many numbers. Time constants start spaced evenly
    on a logarithmic scale: on the paper's linear one nearly all traces fade within ten decisions.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.traces = math.ceil(size / CONTEXT)
        modulus = (-1.0 / torch.logspace(0.0, math.log10(LONGEST), self.traces)).exp()
        phase = 2.0 * math.pi / torch.linspace(1.0, LONGEST, CONTEXT)
        self.recurrence = DiagonalRecurrence(modulus[:, None], phase)
        self.input = nn.Linear(input_size, self.traces)
        self.input_gate = nn.Linear(input_size, self.traces)
        self.output_gate = nn.Linear(input_size, size)
        self.skip = nn.Linear(input_size, size)
        self.mix = nn.Linear(2 * self.traces * CONTEXT, size)
        self.norm = nn.LayerNorm(size, elementwise_affine=False)

    def drive(self, x: Tensor) -> Tensor:
        """See `DiagonalCell`."""
        real = (self.input(x) * torch.sigmoid(self.input_gate(x))).repeat_interleave(CONTEXT, -1)
        return torch.cat([real, torch.zeros_like(real)], -1)

    def read(self, x: Tensor, h: Tensor) -> Tensor:
        """See `DiagonalCell`."""
        gate = torch.sigmoid(self.output_gate(x))
        read: Tensor = self.norm(self.mix(h)) * gate + self.skip(x) * (1.0 - gate)
        return read

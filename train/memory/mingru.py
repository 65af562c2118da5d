"""The minimal gated recurrent unit (arXiv 2410.01201): gates see only the input, so the state is linear."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .cell import MemoryCell, StateSpec
from .scan import linear_scan


class MinGru(MemoryCell):
    """z = sigmoid(W x); h' = (1 - z) * h + z * tanh(V x); y = h'."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.from_input = nn.Linear(input_size, 2 * size)

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The hidden state h."""
        return (StateSpec("h", self.size, (0.0,) * self.size),)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision; the output is the new state."""
        keep, new = self._terms(x)
        h = torch.addcmul(new, keep, h)
        return h, h

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop; gates and candidates of all decisions are taken at once."""
        h = linear_scan(*self._terms(x), reset, valid, h0)
        return h, h[-1]

    @staticmethod
    def gate(z: Tensor) -> Tensor:
        """From any number to 0, hold the state, ... 1, replace it."""
        return torch.sigmoid(z)

    def _terms(self, x: Tensor) -> tuple[Tensor, Tensor]:
        gate, candidate = self.from_input(x).chunk(2, -1)
        z = self.gate(gate)
        return 1.0 - z, z * torch.tanh(candidate)


class HardMinGru(MinGru):
    """With z = clip(W x / 6 + 1/2, 0, 1), which can be 0: then the state does not fade, however long."""

    @staticmethod
    def gate(z: Tensor) -> Tensor:
        """From any number to 0 ... 1, both reached."""
        return nn.functional.hardsigmoid(z)

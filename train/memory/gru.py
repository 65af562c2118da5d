"""Gated recurrent unit, in the form with the reset gate after the product (arXiv 1406.1078, 1412.3555)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .cell import MemoryCell, StateSpec
from .scan import step_scan


class Gru(MemoryCell):
    """r, z = sigmoid(W x + U h); n = tanh(W x + b + r * (U h + c)); h' = n + z * (h - n); y = h'.

    Plain matrix products rather than the ONNX GRU operator, which can't be quantized.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.from_input = nn.Linear(input_size, 3 * size)
        self.from_state = nn.Linear(size, 3 * size)
        with torch.no_grad():
            for gate in self.from_state.weight.view(3, size, size):
                nn.init.orthogonal_(gate)
            self.from_input.bias.zero_()
            self.from_state.bias.zero_()

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The hidden state h."""
        return (StateSpec("h", self.size, (0.0,) * self.size),)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision; the output is the new state."""
        return self._advance(self.from_input(x), h)

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop, with the products of all inputs taken at once."""
        return step_scan(self._advance, self.from_input(x), reset, valid, h0, self.init_state(len(h0)))

    def _advance(self, driven: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        parts = [2 * self.size, self.size]
        (gates, candidate), (recurrent_gates, recurrent) = (
            torch.split(sums, parts, -1) for sums in (driven, self.from_state(h))
        )
        r, z = torch.sigmoid(gates + recurrent_gates).chunk(2, -1)
        n = torch.tanh(torch.addcmul(candidate, r, recurrent))
        h = torch.addcmul(n, z, h - n)
        return h, h

"""Long short-term memory (Hochreiter and Schmidhuber 1997, with the forget gate of Gers et al. 2000)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .cell import MemoryCell, StateSpec
from .scan import step_scan


class Lstm(MemoryCell):
    """i, f, o = sigmoid(W x + U h + b); c' = f * c + i * tanh(W x + U h + b); y = h' = o * tanh(c').

    Forget gates start mostly open (bias 1). Plain matrix products rather than the ONNX LSTM operator, which
    can't be quantized.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.from_input = nn.Linear(input_size, 4 * size)
        self.from_state = nn.Linear(size, 4 * size, bias=False)
        with torch.no_grad():
            for gate in self.from_state.weight.view(4, size, size):
                nn.init.orthogonal_(gate)
            self.from_input.bias.zero_()
            self.from_input.bias[size : 2 * size] = 1.0

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The output h and the cell state c."""
        return tuple(StateSpec(name, self.size, (0.0,) * self.size) for name in ("h", "c"))

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision; the output is the first half of the new state."""
        return self._advance(self.from_input(x), h)

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop, with the products of all inputs taken at once."""
        return step_scan(self._advance, self.from_input(x), reset, valid, h0, self.init_state(len(h0)))

    def _advance(self, driven: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        h, c = state.chunk(2, -1)
        gates, candidate = torch.split(driven + self.from_state(h), [3 * self.size, self.size], -1)
        i, f, o = torch.sigmoid(gates).chunk(3, -1)
        c = torch.addcmul(f * c, i, torch.tanh(candidate))
        y = o * torch.tanh(c)
        return y, torch.cat([y, c], -1)

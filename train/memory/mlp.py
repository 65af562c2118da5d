"""No memory: the comparison that shows whether a task needs any."""

from __future__ import annotations

from torch import Tensor, nn

from .cell import MemoryCell, StateSpec


class Mlp(MemoryCell):
    """A feed-forward layer of the same width as the recurrent cells.

    Its state is one number that stays 0: tensors without elements can't be bound by every inference runtime.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.layer = nn.Linear(input_size, size)

    def state_spec(self) -> tuple[StateSpec, ...]:
        """One unused slot."""
        return (StateSpec("unused", 1, (0.0,)),)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """y = tanh(W x + b); the state passes through."""
        return self.layer(x).tanh(), h.clone()

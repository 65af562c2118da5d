"""What every memory cell can do."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from .scan import step_scan


class StateSpec(NamedTuple):
    """One slice of the packed state."""

    name: str
    size: int
    initial: tuple[float, ...]
    """Value at every reset."""


class MemoryCell(nn.Module):
    """A function of (input, state) with parameters; it keeps nothing between calls.

    Sizes: B worlds, T decisions, F `input_size`, S state size, Y `size`, the width of the output.
    """

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__()
        self.input_size = input_size
        self.size = size

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The slices of the packed state, in order."""
        raise NotImplementedError

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision: x [B, F], h [B, S] -> y [B, Y], h' [B, S]."""
        raise NotImplementedError

    def init_state(self, batch: int) -> Tensor:
        """The state that every reset puts in place, [batch, S]."""
        values = [value for part in self.state_spec() for value in part.initial]
        parameter = next(self.parameters())
        return torch.tensor(values, dtype=parameter.dtype, device=parameter.device).repeat(batch, 1)

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """Run a sequence of decisions.

        Args:
            x: inputs [T, B, F].
            reset: bool [T, B]; the initial state is put in place before x[t] is read.
            valid: bool [T, B]; where False the state is held and y is unspecified.
            h0: state before the first decision [B, S].

        Returns:
            y [T, B, Y], and the state after the last decision [B, S].
        """
        return step_scan(self.step, x, reset, valid, h0, self.init_state(len(h0)))

    def freeze(self) -> None:
        """Fold what training computes anew at each call into constants, before export. Nothing by default."""

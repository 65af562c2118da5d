"""Several memories, one above the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from .cell import MemoryCell, StateSpec


class Stacked(MemoryCell):
    """Each layer reads the output of the one before; the states are packed in that order."""

    def __init__(self, layers: Sequence[MemoryCell]) -> None:
        super().__init__(layers[0].input_size, layers[-1].size)
        self.layers = nn.ModuleList(layers)

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The layers' slices, named `0.h`, `1.h` ..."""
        return tuple(
            part._replace(name=f"{i}.{part.name}")
            for i, layer in enumerate(self._cells())
            for part in layer.state_spec()
        )

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision, through all layers."""
        states = []
        for layer, part in zip(self._cells(), self._split(h), strict=True):
            x, state = layer.step(x, part)
            states.append(state)
        return x, torch.cat(states, -1)

    def scan(self, x: Tensor, reset: Tensor, valid: Tensor, h0: Tensor) -> tuple[Tensor, Tensor]:
        """As the step loop, by the layers' own scans."""
        states = []
        for layer, part in zip(self._cells(), self._split(h0), strict=True):
            x, state = layer.scan(x, reset, valid, part)
            states.append(state)
        return x, torch.cat(states, -1)

    def freeze(self) -> None:
        """Freeze every layer."""
        for layer in self._cells():
            layer.freeze()

    def _cells(self) -> list[MemoryCell]:
        return [cast(MemoryCell, layer) for layer in self.layers]

    def _split(self, h: Tensor) -> tuple[Tensor, ...]:
        return torch.split(h, [sum(part.size for part in cell.state_spec()) for cell in self._cells()], -1)

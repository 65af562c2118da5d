"""A memory cell from another package: the minimal gated unit of torchrecurrent (pip install torchrecurrent).

In the pyproject.toml of the package that holds this module:

    [project.entry-points."andante.memory_cells"]
    mgu = "torchrecurrent_cell:MinimalGatedUnit"

and then `andante train TASK --memory mgu`.
"""

from __future__ import annotations

from torch import Tensor
from torchrecurrent import MGUCell

from andante.train.memory import MemoryCell, StateSpec


class MinimalGatedUnit(MemoryCell):
    """A gated recurrent unit with one gate (arXiv 1603.09420)."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.cell = MGUCell(input_size, size)

    def state_spec(self) -> tuple[StateSpec, ...]:
        """The hidden state h."""
        return (StateSpec("h", self.size, (0.0,) * self.size),)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        """One decision; the output is the new state."""
        h = self.cell(x, h)
        return h, h

"""Memory cells: what a policy carries from one decision to the next. One file a cell."""

from __future__ import annotations

from andante.runtime.errors import AndanteError

from .cell import MemoryCell, StateSpec
from .gru import Gru
from .mlp import Mlp

CELLS: dict[str, type[MemoryCell]] = {"gru": Gru, "mlp": Mlp}


def make_cell(name: str, input_size: int, size: int) -> MemoryCell:
    """Build the memory cell called `name`.

    Raises:
        AndanteError: no such cell; the message lists the names.
    """
    if name not in CELLS:
        raise AndanteError(f"no memory cell {name!r}; cells: {', '.join(CELLS)}")
    return CELLS[name](input_size, size)


__all__ = ["CELLS", "Gru", "MemoryCell", "Mlp", "StateSpec", "make_cell"]

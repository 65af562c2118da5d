"""Memory cells: what a policy carries from one decision to the next. One file a cell.

Another package adds one by an entry point of the group `andante.memory_cells` that names a `MemoryCell`
class, constructed as `Class(input_size, size)`; it needs `state_spec` and `step`, and may bring a `scan`.
"""

from __future__ import annotations

from importlib.metadata import entry_points

from andante.runtime.errors import AndanteError

from .cell import MemoryCell, StateSpec
from .ffm import Ffm
from .gru import Gru
from .lru import Lru
from .lstm import Lstm
from .mingru import HardMinGru, MinGru
from .mlp import Mlp
from .stacked import Stacked

GROUP = "andante.memory_cells"
"""Entry-point group under which packages register their cells."""

CELLS: dict[str, type[MemoryCell]] = {
    "gru": Gru,
    "lstm": Lstm,
    "mingru": MinGru,
    "mingru-hard": HardMinGru,
    "lru": Lru,
    "ffm": Ffm,
    "mlp": Mlp,
}
"""Those of this package."""


def find_cell(name: str) -> type[MemoryCell]:
    """The class called `name`, of this package or of another.

    Raises:
        AndanteError: no such cell (lists the names), or what another package registered is no memory cell.
    """
    if name in CELLS:
        return CELLS[name]
    added = {entry.name: entry for entry in entry_points(group=GROUP)}
    if name not in added:
        names = dict.fromkeys([*CELLS, *sorted(added)])
        raise AndanteError(f"no memory cell {name!r}; cells: {', '.join(names)}")
    entry = added[name]
    try:
        cell = entry.load()
    except (ImportError, AttributeError) as error:
        raise AndanteError(f"memory cell {name!r}: can't load {entry.value}: {error}") from error
    if not (isinstance(cell, type) and issubclass(cell, MemoryCell)):
        raise AndanteError(f"memory cell {name!r}: expected a MemoryCell at {entry.value}, found {cell!r}")
    return cell


def make_cell(name: str, input_size: int, size: int, layers: int = 1) -> MemoryCell:
    """Build the memory called `name`: as many cells of that kind as `layers` says, stacked.

    Raises:
        AndanteError: as `find_cell`.
    """
    kind = find_cell(name)
    cells = [kind(input_size if i == 0 else size, size) for i in range(layers)]
    return cells[0] if layers == 1 else Stacked(cells)


__all__ = [
    "CELLS",
    "Ffm",
    "Gru",
    "HardMinGru",
    "Lru",
    "Lstm",
    "MemoryCell",
    "MinGru",
    "Mlp",
    "Stacked",
    "StateSpec",
    "find_cell",
    "make_cell",
]

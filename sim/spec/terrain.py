"""Rough ground: one height field for all worlds, in rows of tiles that rise in difficulty."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

TILE = 16
"""Cells along a side of a tile."""
CELL = 0.25
"""Side of a cell, m."""
PLATFORM = 2
"""Cells from the middle of a tile to the edge of the level square that a robot starts on."""
BUMP, STEP, WAVE = 0.08, 0.06, 0.16
"""Largest bump, step and wave of the most difficult row, m."""
EDGE = 0.02
"""Height of the field's edge above the plane around it, m."""


@dataclass(frozen=True)
class Terrain:
    """`rows` x `columns` square tiles of 4 m: bumps, terraces and waves in turn, the first row flat.

    Row r runs along +x at the r-th smallest y; the middle of the field is the origin of the world.
    """

    rows: int = 8
    columns: int = 8
    seed: int = 0

    @cached_property
    def heights(self) -> NDArray[np.float64]:
        """m, of the grid's points [16 rows, 16 columns], y along the first axis, x along the second."""
        random = np.random.default_rng(self.seed)
        difficulty = np.linspace(0.0, 1.0, self.rows)
        tiles = [
            [level * _with_platform(KINDS[column % len(KINDS)](random)) for column in range(self.columns)]
            for level in difficulty
        ]
        heights: NDArray[np.float64] = np.block(tiles)
        return heights

    @property
    def half_size(self) -> tuple[float, float]:
        """From the middle to the outermost points, along x and along y, m."""
        rows, columns = self.rows * TILE, self.columns * TILE
        return (columns - 1) * CELL / 2, (rows - 1) * CELL / 2

    @cached_property
    def spawns(self) -> NDArray[np.float64]:
        """Middle of each tile in the world [rows, columns, 2], m."""
        x = (np.arange(self.columns) * TILE + TILE // 2) * CELL - self.half_size[0]
        y = (np.arange(self.rows) * TILE + TILE // 2) * CELL - self.half_size[1]
        return np.stack(np.meshgrid(x, y), -1)

    @property
    def home(self) -> tuple[float, float]:
        """The spawn in the middle of the flat row, m."""
        x, y = self.spawns[0, self.columns // 2].tolist()
        return x, y


def _with_platform(tile: NDArray[np.float64]) -> NDArray[np.float64]:
    middle = slice(TILE // 2 - PLATFORM, TILE // 2 + PLATFORM + 1)
    tile[middle, middle] = tile[TILE // 2, TILE // 2]
    return tile


def _bumps(random: np.random.Generator) -> NDArray[np.float64]:
    return BUMP * random.random((TILE, TILE))


def _terraces(random: np.random.Generator) -> NDArray[np.float64]:
    """A square pyramid, two cells to a step."""
    from_edge = np.minimum(np.arange(TILE), np.arange(TILE)[::-1])
    steps: NDArray[np.float64] = STEP * (np.minimum(from_edge[:, None], from_edge) // 2)
    return steps


def _waves(random: np.random.Generator) -> NDArray[np.float64]:
    """Two hills each way, level with the ground at the tile's edges."""
    wave = np.sin(2 * np.pi * np.arange(TILE) / TILE) ** 2
    waves: NDArray[np.float64] = WAVE * wave[:, None] * wave
    return waves


KINDS = (_bumps, _terraces, _waves)

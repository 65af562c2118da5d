"""Height of the ground under points, as MuJoCo's collision detection sees it."""

from __future__ import annotations

import torch
from torch import Tensor

from ..spec.terrain import CELL, EDGE, Terrain


class Ground:
    """The surface of a terrain, for tensors on one device."""

    def __init__(self, terrain: Terrain, device: torch.device):
        """Copy the heights to `device`."""
        self._rows, self._columns = terrain.heights.shape
        self._heights = torch.from_numpy(terrain.heights).to(device, torch.float32).flatten()
        self._half_x, self._half_y = terrain.half_size

    def height(self, x: Tensor, y: Tensor) -> Tensor:
        """m, at points x, y of any shape, m; each cell is two triangles that meet at its rising diagonal."""
        column, row = (x + self._half_x) / CELL, (y + self._half_y) / CELL
        outside = (column < 0) | (row < 0) | (column > self._columns - 1) | (row > self._rows - 1)
        i = row.clamp(0, self._rows - 1.001).long()
        j = column.clamp(0, self._columns - 1.001).long()
        along_x, along_y = column - j, row - i
        corner = i * self._columns + j
        at = self._heights.take
        low, high = at(corner), at(corner + self._columns + 1)
        side = at(torch.where(along_y > along_x, corner + self._columns, corner + 1))
        upper = low + along_y * (side - low) + along_x * (high - side)
        lower = low + along_x * (side - low) + along_y * (high - side)
        return torch.where(along_y > along_x, upper, lower).masked_fill(outside, -EDGE)

"""`metrics.jsonl`: what there is to say of each iteration, one line each, none twice and none missing."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

import msgspec

from andante.runtime.errors import AndanteError

from .files import write_atomically

Row: TypeAlias = Mapping[str, float]
"""Figures of one iteration by name; `iteration`, from 1 on, and `ticks` are among them."""


class MetricsFile:
    """Owns the file of a run that goes on after `iteration`: later lines are dropped, and come again."""

    def __init__(self, path: Path, iteration: int) -> None:
        kept = [row for row in read_metrics(path) if row["iteration"] <= iteration]
        write_atomically(path, b"".join(map(_line, kept)))
        self._file = path.open("ab")

    def write(self, row: Row) -> None:
        """Append an iteration. Whole even if the process is killed after it."""
        self._file.write(_line(row))
        self._file.flush()

    def sync(self) -> None:
        """Bring it to the disk, as before a checkpoint that relies on it."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """No more lines."""
        self._file.close()


def read_metrics(path: Path) -> list[Row]:
    """The rows, in order; without a last line that a killed process has not finished.

    Raises:
        AndanteError: names the line that is no row.
    """
    if not path.exists():
        return []
    rows: list[Row] = []
    for number, line in enumerate(path.read_bytes().split(b"\n")[:-1], 1):
        try:
            msgspec.json.decode(line, type=_Place)
            row = msgspec.json.decode(line, type=dict[str, int | float | None])
        except msgspec.DecodeError as error:
            raise AndanteError(f"{path}: line {number}: {error}") from None
        # JSON has null for what is not a number.
        rows.append({name: math.nan if value is None else value for name, value in row.items()})
    return rows


class _Place(msgspec.Struct):
    iteration: int
    ticks: int


def _line(row: Row) -> bytes:
    return msgspec.json.encode(row) + b"\n"

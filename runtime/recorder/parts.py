"""One recording in files of limited size and number."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import AndanteError
from .files import RecordingFile
from .header import Header, Status
from .layout import Layout


def refuse_taken(path: Path) -> None:
    """Make sure that neither a recording nor a part of it, of which the first may be gone, is there.

    Raises:
        AndanteError: one is.
    """
    taken = re.compile(rf"{re.escape(path.stem)}(-\d+)?{re.escape(path.suffix)}")
    names: list[str] = []
    with suppress(OSError):  # of which opening the file will tell
        names += sorted(each.name for each in path.parent.iterdir())
    for name in filter(taken.fullmatch, names):
        raise AndanteError(f"{path.with_name(name)}: File exists, cannot record")


class Parts:
    """A file, and those that follow when it is full; after an exception from a method the rest is lost."""

    paths: list[Path]
    """Files that are kept, oldest first."""

    def __init__(
        self,
        path: Path,
        header: Header,
        attachments: dict[str, bytes],
        layouts: tuple[Layout, Layout],
        part_bytes: int,
        parts: int,
    ) -> None:
        """Begin the first file, which does not exist yet; then `NAME-2.mcap` follows `NAME.mcap`."""
        self.paths = []
        self._first = path
        self._header, self._attachments, self._layouts = header, attachments, layouts
        self._part_bytes, self._parts = part_bytes, parts
        self._file = self._open(path)

    def write(self, row: NDArray[np.float64], status: Status) -> None:
        """Append a tick; see `RecordingFile.write`."""
        if self._file.size > self._part_bytes:
            self._file.finish()
            part = self._header.part + 1
            self._header = msgspec.structs.replace(self._header, part=part)
            self._file = self._open(self._first.with_stem(f"{self._first.stem}-{part}"))
            while len(self.paths) > self._parts:
                self.paths.pop(0).unlink(missing_ok=True)
        self._file.write(row, status)

    def flush(self) -> None:
        """See `RecordingFile.flush`."""
        self._file.flush()

    def finish(self) -> None:
        """Write the index, and close."""
        self._file.finish()

    def abandon(self) -> int:
        """Close it as it is; how many ticks are not in it."""
        self._file.abandon()
        return self._file.unsaved

    def _open(self, path: Path) -> RecordingFile:
        file = RecordingFile(path, self._header, self._attachments, *self._layouts)
        self.paths.append(path)
        return file

"""What `andante run` can be told about recording."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..controller import Controller
from ..errors import AndanteError

if TYPE_CHECKING:
    from .recorder import Recorder


@dataclass(frozen=True)
class RecordingOptions:
    """Recording of a run; faults are recorded in any case, where the extra `record` is installed."""

    record: Path | None = None
    """Record every tick into this new MCAP file."""
    record_faults: Path | None = None
    """Folder for recordings of faults; `~/.local/state/andante/faults` when left out."""
    record_seconds: float = 60.0
    """How far the recording of a fault reaches back."""
    record_part_mb: int = 1024
    """A larger file ends, and the next part begins."""
    record_parts: int = 8
    """How many parts are kept; the oldest is deleted."""

    def check(self, report: Path | None = None) -> None:
        """Find what cannot be before anything is opened; `report` is another file that will be written.

        Raises:
            AndanteError: an impossible number, or a file that is there or wanted for two things.
        """
        for name in ("record_seconds", "record_part_mb", "record_parts"):
            if not 0 < getattr(self, name) < 1e6:
                raise AndanteError(f"{name} must be positive, found {getattr(self, name)}")
        if self.record is None:
            return
        if report is not None and os.path.realpath(report) == os.path.realpath(self.record):
            raise AndanteError(f"{report}: asked for as report and as recording")
        from .parts import refuse_taken

        refuse_taken(self.record)

    def open(self, controller: Controller, fifo: bool) -> Recorder | None:
        """A recorder for this controller; None where the extra is missing and nothing was asked for.

        Raises:
            AndanteError: asked for, and not possible.
        """
        self.check()
        from .recorder import Recorder

        try:
            return Recorder(
                controller,
                self.record,
                faults=self.record_faults,
                seconds=self.record_seconds,
                part_bytes=self.record_part_mb * 1024**2,
                parts=self.record_parts,
                fifo=fifo,
            )
        except AndanteError:
            if self.record is not None or self.record_faults is not None:
                raise
            return None


NOT_RECORDED = RecordingOptions()
"""The defaults: faults only."""

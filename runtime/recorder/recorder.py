"""The recorder: a ring that the control thread fills, and a thread that writes it to files."""

from __future__ import annotations

import math
import os
import re
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from datetime import datetime
from pathlib import Path

import numpy as np
from msgspec.structs import replace

from ..command import JointCommand, Sample
from ..controller import Controller
from ..errors import AndanteError
from .files import CONTRACT, PROFILE, SNAPSHOT, need_mcap
from .header import Header, Status, encode_profile
from .parts import Parts, refuse_taken
from .row import STATES, Row
from .snapshot import Carried, Snapshot, encode_snapshot

POLL_S = 0.05
"""How often the thread looks for ticks to write."""
AFTER_S = 5.0
"""How long after a fault its recording goes on."""
RING_BYTES = 512 * 1024**2
"""The ring is no larger, and then reaches back less far."""
SNAPSHOT_S = 1.0
"""From one snapshot of the running controller to the next."""
SPARE = 500
"""Ticks, at least, that the files may lag behind."""
FAULTS_KEPT = 20
"""Newest recordings of faults that a folder keeps."""
LONGEST_NAME = 100
"""Of a robot model, in a file's name."""
CLOSING_S = 10.0
"""How long a file system may take to take the rest."""
FIFO_PRIORITY = 1
"""Of the thread, where the loop has one."""
ALWAYS = sys.maxsize
"""A number of ticks that is never over."""


def fault_folder() -> Path:
    """Where recordings of faults go by default: the user's folder for state (XDG)."""
    state = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(state) / "andante" / "faults"


class Recorder:
    """Records a controller's ticks: all of them into `path`, or those around a fault into a folder.

    The control thread's `add` copies numbers into a ring and never waits, fails or does I/O; whatever happens
    to the files, control goes on. When the ring is full of ticks that are not yet written, a tick is lost and
    counted. Without a path the ring is kept in memory, and written when a fault is latched: what happened in
    the last `seconds`, and in the `AFTER_S` that follow.
    """

    error: str | None
    """What kept them from being written, last."""

    def __init__(
        self,
        controller: Controller,
        path: Path | None = None,
        *,
        faults: Path | None = None,
        seconds: float = 60.0,
        part_bytes: int = 1024**3,
        parts: int = 8,
        fifo: bool = False,
    ) -> None:
        """Begin to record.

        Args:
            controller: whose ticks are added; `DISABLED`.
            path: file for all ticks, or None.
            faults: folder for recordings of faults; `fault_folder()` when None.
            seconds: how far the ring reaches back.
            part_bytes: a larger file ends, and the next part begins: `NAME-2.mcap` after `NAME.mcap`.
            parts: how many of them are kept; the oldest is deleted.
            fifo: ask for real-time scheduling of the writing thread, at the lowest priority: where the
                control thread has it, a thread that has not may keep the interpreter from it.

        Raises:
            AndanteError: the extra is not installed, or there cannot be such a file.
        """
        need_mcap()
        self.error = None
        self._unsaved = self._missed = 0
        self._recordings: list[Parts] = []
        self._controller = controller
        self._faults = fault_folder() if faults is None else faults
        self._limits = part_bytes, parts
        self._row = Row(controller)
        self._header = Header.of(controller, time.time_ns())
        self._attachments = {
            CONTRACT: controller.contract.to_json().encode(),
            PROFILE: encode_profile(controller.profile),
        }
        rate = 1e9 / controller.contract.control_period_ns
        most = RING_BYTES // self._row.values.nbytes
        self._keep = max(1, min(math.ceil(seconds * rate), most))
        self._after = math.ceil(AFTER_S * rate)
        # What is being written must not be overwritten at once.
        self._ring = np.zeros((self._keep + max(self._keep // 10, SPARE), len(self._row.values)))
        self._ring.fill(0.0)  # every page is there before the loop begins
        self._words: list[tuple[str | None, str | None, str | None, str]] = [("",) * 4] * len(self._ring)
        self._added = self._next = self._gaps = 0
        self._pace = max(1, min(round(SNAPSHOT_S * rate), self._keep // 10))
        self._carried = Carried(controller)
        self._snapshots: deque[Snapshot] = deque(maxlen=self._keep // self._pace + 2)
        self._end = 0 if path is None else ALWAYS
        self._begun = 0
        self._fault: str | None = None
        self._failed = self._asked = False
        self._parts: Parts | None = None
        if path is not None:
            self._asked = True
            refuse_taken(path)
            try:
                self._parts = self._open(path)
            except OSError as error:
                raise AndanteError(f"{path}: {error.strerror}, cannot record") from None
        self._fifo = fifo
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="recorder", daemon=True)
        self._thread.start()

    def add(
        self, tick: int, sample: Sample, command: JointCommand, lateness_ns: int = 0, work_ns: int = 0
    ) -> None:
        """Take over a tick, after it: what the controller was given, and what it gave.

        Args:
            tick: its number.
            sample: as the controller got it, signals in the profile's order.
            command: the controller's.
            lateness_ns: from the tick's deadline until the loop woke.
            work_ns: reading, deciding and writing.
        """
        try:
            self._add(tick, sample, command, lateness_ns, work_ns)
        except Exception as error:  # recording must never be what stops a robot
            self._gaps += 1
            self.error = f"tick {tick}: {error!r}"
        # A latched fault stays the same object.
        if (fault := self._controller.fault) is not self._fault:
            self._latch(fault)

    def close(self) -> None:
        """Write what is left, and end the thread; a file that was to have all ticks, and has none, goes."""
        self._closing.set()
        self._thread.join(CLOSING_S)
        if self._thread.is_alive():
            self.error = f"the file system has not taken the rest for {CLOSING_S:g} s"
        elif not self._added + self._gaps:
            while self._recordings:
                for path in self._recordings.pop().paths:
                    path.unlink(missing_ok=True)
        self._miss()

    @property
    def told(self) -> str | None:
        """What became of the recording, in words; None where there was nothing to record."""
        if not self.written and self.error is None:
            return None
        trouble = f"; {self.error}" if self.error else ""
        return f"{', '.join(map(str, self.written)) or 'none'} ({self.lost} ticks lost{trouble})"

    @property
    def lost(self) -> int:
        """Ticks that should have been written, and were not; after a failed write, a second's too many."""
        return self._gaps + self._missed + self._unsaved

    @property
    def written(self) -> list[Path]:
        """Files that there are."""
        return [path for parts in self._recordings for path in parts.paths]

    def _add(self, tick: int, sample: Sample, command: JointCommand, lateness_ns: int, work_ns: int) -> None:
        controller, added = self._controller, self._added
        if self._failed:
            self._give_up()
        if self._next >= self._end:
            self._missed += self._asked
        elif added - self._next >= len(self._ring):
            self._gaps += 1
            self.error = "the files are written too slowly"
            return
        self._row.fill(tick, sample, command, lateness_ns, work_ns, self._gaps)
        at = added % len(self._ring)
        self._ring[at] = self._row.values
        waiting = controller.waiting if controller.state.value == "wait_sensors" else None
        self._words[at] = controller.fault, waiting, sample.operator.e_stop, controller.policy.digest
        if added % self._pace == 0 and (snapshot := self._carried.take(added)) is not None:
            self._snapshots.append(snapshot)
        self._added = added + 1

    def _latch(self, fault: str | None) -> None:
        """Have what was before a fault, and what comes after it, written."""
        self._fault = fault
        if fault is not None and self._end != ALWAYS:
            if self._next >= self._end:  # the other thread has nothing to do
                self._next = max(self._begun, self._added - self._keep)
            self._end = self._added + self._after

    def _give_up(self) -> None:
        """The file is lost; what is in the ring may still be written after a fault."""
        self._miss()
        self._begun = 0 if self._end == ALWAYS else self._added
        self._next = self._end = self._added
        self._failed = False

    def _miss(self) -> None:
        """Count what should have been written by now, and will not be."""
        self._missed += max(min(self._end, self._added) - self._next, 0)

    def _serve(self) -> None:
        if self._fifo:
            with suppress(OSError):
                os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(FIFO_PRIORITY))
        while not self._closing.wait(POLL_S):
            self._drain()
        self._drain()
        self._finish()

    def _drain(self) -> None:
        """Write what has been added."""
        if self._failed:
            return
        try:
            while self._next < min(self._end, self._added):
                if self._parts is None:
                    self._parts = self._open_fault()
                at = self._next % len(self._ring)
                self._parts.write(self._ring[at].copy(), self._status(at))
                self._next += 1
                time.sleep(0)  # the control thread must not wait longer than for one tick's encoding
            if self._parts is not None:
                self._parts.flush()
        except Exception as error:
            self._fail(error)
        if self._next >= self._end and self._parts is not None:
            self._begun = self._end
            self._finish()

    def _finish(self) -> None:
        if self._parts is not None and not self._failed:
            try:
                self._parts.finish()
            except Exception as error:
                self._fail(error)
            self._parts = None

    def _fail(self, error: Exception) -> None:
        reason = getattr(error, "strerror", None) or repr(error)
        where = self._faults if self._parts is None else self._parts.paths[-1]
        self.error = f"{where}: {reason}, cannot record"
        if self._parts is not None:
            self._unsaved += self._parts.abandon()
            self._parts = None
        self._failed = True

    def _status(self, at: int) -> Status:
        fault, waiting, e_stop, policy = self._words[at]
        integers = self._ring[at].view(np.int64)
        return Status(
            tick=integers.item(0),
            state=STATES[integers.item(self._row.layout.place("state").start)].name,
            fault=_text(fault),
            waiting=_text(waiting),
            e_stop=_text(e_stop),
            policy=policy,
        )

    def _open(self, path: Path) -> Parts:
        layouts, attachments = (self._row.layout, self._row.sources), dict(self._attachments)
        for snapshot in list(self._snapshots):
            if (row := snapshot.row - self._next) >= 0:
                attachments[SNAPSHOT] = encode_snapshot(replace(snapshot, row=row))
                break
        parts = Parts(path, self._header, attachments, layouts, *self._limits)
        self._recordings.append(parts)
        return parts

    def _open_fault(self) -> Parts:
        """A file in the folder of faults, which keeps the newest ones."""
        model = re.sub(r"[^A-Za-z0-9_.-]", "_", self._header.robot_model)[:LONGEST_NAME]
        folder, pattern = self._faults, f"{model}-fault-*.mcap"
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob(pattern))[: -FAULTS_KEPT + 1]:
            with suppress(OSError):  # rather one too many than none of this fault
                old.unlink()
        now = datetime.now().strftime("%Y%m%d-%H%M%S-%f")
        return self._open(folder / pattern.replace("*", now))


def _text(found: object) -> str | None:
    """What others gave as a reason, as text that can be written."""
    return None if found is None else str(found).encode(errors="replace").decode()

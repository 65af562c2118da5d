"""Recordings as MCAP files (mcap.dev), in parts of limited size."""

from __future__ import annotations

import io
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..errors import AndanteError
from .header import Header, Status
from .layout import Layout
from .row import ages_ms

if TYPE_CHECKING:
    from mcap.writer import Writer

HEADER, CONTRACT, PROFILE, SNAPSHOT = "andante", "contract.json", "profile.json", "snapshot.msgpack"
"""Names of the metadata record and the attachments."""
TICKS, SOURCES, STATUS = "/tick", "/sources", "/status"
"""Topics."""
CHUNK_BYTES = 64 * 1024
"""Messages are written in blocks of about this size."""
FLUSH_S = 0.5
"""A process that is killed loses at most the ticks of so long."""
_TEXT = {"type": ["string", "null"]}
_STATUS_SCHEMA = {
    "title": "foxglove.Log",
    "type": "object",
    "properties": {
        "timestamp": {
            "type": "object",
            "title": "time",
            "properties": {"sec": {"type": "integer"}, "nsec": {"type": "integer"}},
        },
        "level": {"type": "integer"},
        "message": {"type": "string"},
        "name": {"type": "string"},
        "file": {"type": "string"},
        "line": {"type": "integer"},
        "status": {
            "type": "object",
            "properties": {"tick": {"type": "integer"}} | dict.fromkeys(Status.__struct_fields__[1:], _TEXT),
        },
    },
}
"""What Foxglove's log panel shows, with a `Status` in it."""
_INFO, _ERROR = 2, 4


def need_mcap() -> None:
    """Say which extra brings MCAP.

    Raises:
        AndanteError: it is not there.
    """
    try:
        import mcap  # noqa: F401
    except ModuleNotFoundError as error:
        raise AndanteError(
            f"recordings need {error.name}, which is not installed: in andante's folder: "
            "pip install '.[record]'"
        ) from None


class _Output:
    """A new file, unbuffered: a write that fails leaves nothing behind to be tried again."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb", buffering=0)
        self.size = 0

    def write(self, data: bytes) -> int:
        rest = memoryview(data)
        while rest:
            rest = rest[self._file.write(rest) :]
        self.size += len(data)
        return len(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        """Nothing is held back."""

    def close(self) -> None:
        if self._file.closed:
            return
        with suppress(OSError):  # some file systems cannot
            os.fsync(self._file.fileno())
        self._file.close()


class RecordingFile:
    """One MCAP file; an exception from any method means that the rest is lost."""

    unsaved: int
    """Ticks that are not in the file yet."""

    def __init__(
        self, path: Path, header: Header, attachments: dict[str, bytes], layout: Layout, sources: Layout
    ) -> None:
        """Begin a file that does not exist yet."""
        from mcap.writer import CompressionType, Writer

        self._layout, self._sources = layout, sources
        self._output = _Output(path)
        self._last: tuple[object, ...] | None = None
        self._flushed_s = time.monotonic()
        self.unsaved = 0
        try:
            output: io.BytesIO = self._output  # type: ignore[assignment]
            self._writer: Writer = Writer(output, CHUNK_BYTES, CompressionType.LZ4)
            self._writer.start(library="andante")
            self._writer.add_metadata(HEADER, header.to_metadata())
            for name, data in attachments.items():
                kind = f"application/{name.rpartition('.')[2]}"
                self._writer.add_attachment(header.started_ns, header.started_ns, name, kind, data)
            self._channels = {
                topic: self._register(topic, layout.name, "protobuf", layout.schema)
                for topic, layout in ((TICKS, layout), (SOURCES, sources))
            }
            self._channels[STATUS] = self._register(
                STATUS, "foxglove.Log", "jsonschema", msgspec.json.encode(_STATUS_SCHEMA)
            )
        except Exception:
            self.abandon()
            path.unlink(missing_ok=True)
            raise

    @property
    def size(self) -> int:
        """Bytes so far."""
        return self._output.size

    def write(self, row: NDArray[np.float64], status: Status) -> None:
        """Append a tick; `row` is as in `Row.values`, and its ages are filled in here."""
        layout, size = self._layout, self.size
        self.unsaved += 1
        ages_ms(row, layout)
        integers = row.view(np.int64)
        tick = status.tick
        time_ns = integers.item(layout.place("time_ns").start)
        waiting = status.waiting and status.waiting.split()[0]  # its number changes at every tick
        words = status.state, status.fault, waiting, status.e_stop, status.policy
        if words != self._last:
            self._last = words
            self._add(STATUS, tick, time_ns, msgspec.json.encode(_log(status, time_ns)))
        self._add(TICKS, tick, time_ns, layout.encode(row[: layout.width]))
        if integers.item(layout.place("decided").start):
            self._add(SOURCES, tick, time_ns, self._sources.encode(row[layout.width :]))
        if self.size != size:
            self.unsaved = 0

    def flush(self) -> None:
        """Have everything so far in the file, if the last time is a while ago."""
        if time.monotonic() - self._flushed_s > FLUSH_S:
            self._writer.flush()  # type: ignore[no-untyped-call]
            self._flushed_s = time.monotonic()
            self.unsaved = 0

    def finish(self) -> None:
        """Write the index, and close."""
        try:
            self._writer.finish()  # type: ignore[no-untyped-call]
        finally:
            self._output.close()

    def abandon(self) -> None:
        """Close it as it is."""
        with suppress(OSError):
            self._output.close()

    def _register(self, topic: str, name: str, encoding: str, schema: bytes) -> int:
        number = self._writer.register_schema(name, encoding, schema)
        return self._writer.register_channel(topic, encoding.removesuffix("schema"), number)

    def _add(self, topic: str, tick: int, time_ns: int, data: bytes) -> None:
        self._writer.add_message(self._channels[topic], time_ns, data, time_ns, tick % 2**32)


def _log(status: Status, time_ns: int) -> dict[str, object]:
    seconds, nanoseconds = divmod(time_ns, 10**9)
    told = [f"tick {status.tick}: {status.state}"]
    told += [text for text in (status.fault, status.waiting, status.e_stop) if text]
    return {
        "timestamp": {"sec": seconds, "nsec": nanoseconds},
        "level": _ERROR if status.fault else _INFO,
        "message": "; ".join(told),
        "name": "andante",
        "file": "",
        "line": 0,
        "status": status,
    }

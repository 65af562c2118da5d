"""Recordings, read back; damaged ones as far as they go."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from ..command import Sample
from ..contract import Contract
from ..errors import AndanteError
from ..profile import Profile
from .files import CONTRACT, HEADER, PROFILE, SNAPSHOT, SOURCES, STATUS, TICKS, need_mcap
from .header import Header, Status, decode_contract, decode_profile
from .layout import Layout
from .row import sources_layout, tick_layout
from .snapshot import Snapshot, decode_snapshot

DAMAGE = ValueError, KeyError, RuntimeError, EOFError, OverflowError, MemoryError, struct.error
"""What damaged bytes make a reader raise, beyond its own errors."""


class _Log(msgspec.Struct):
    status: Status


@dataclass(frozen=True)
class Recording:
    """N ticks of one run, or of several in a row."""

    where: str
    """The files, for messages."""
    header: Header
    """What ran, and how."""
    contract: Contract
    """The policy's."""
    profile: Profile
    """The robot's."""
    layout: Layout
    """Where each number is in a row."""
    rows: NDArray[np.float64]
    """`[N, layout.width]`; see `numbers` and `integers`."""
    sources: NDArray[np.float64]
    """`[M, sources_layout.width]`: what the policy read, with the tick in front as an int64."""
    statuses: tuple[Status, ...]
    """In force at each of the N ticks; `Status.tick` is the one that it began with."""
    snapshot: Snapshot | None
    """From which a controller can go on, where the recording begins in the middle of a run."""
    damage: str | None
    """Why it may end early."""

    def numbers(self, *path: str) -> NDArray[np.float64]:
        """Columns `[N, n]` of a group of numbers, or of one: `numbers("signals", "joint_position")`."""
        return self.rows[:, self.layout.place(*path)]

    def integers(self, *path: str) -> NDArray[np.int64]:
        """Columns `[N, n]` of a group of integers, flags or names; one alone is `[N]`."""
        columns = self.rows.view(np.int64)[:, self.layout.place(*path)]
        return columns[:, 0] if columns.shape[1] == 1 and not self.layout.names(*path) else columns

    def samples(self) -> Iterator[tuple[int, Sample]]:
        """Every tick and what the controller was given then; the same object every time."""
        profile = self.profile
        sample = Sample.allocate(profile.signals, len(profile.joints), len(self.layout.names("wanted")))
        signals = [(values, self.numbers("signals", name)) for name, values in sample.values.items()]
        names = list(sample.values)
        received_ns, source_ns = (self.integers("sample", f"{kind}_ns") for kind in ("received", "source"))
        flags = {
            key: self.integers("sample", key) for key in ("now_ns", "overrun", "answered", "delay_ticks")
        }
        operator, wanted = sample.operator, self.numbers("wanted")
        wishes = {name: self.integers("operator", name) for name in self.layout.names("operator")}
        for i, tick in enumerate(self.integers("tick").tolist()):
            for values, columns in signals:
                np.copyto(values, columns[i])
            sample.received_ns.update(zip(names, received_ns[i].tolist(), strict=True))
            sample.source_ns.update(zip(names, source_ns[i].tolist(), strict=True))
            sample.now_ns, sample.delay_ticks = flags["now_ns"].item(i), flags["delay_ticks"].item(i)
            sample.overrun, sample.answered = bool(flags["overrun"][i]), bool(flags["answered"][i])
            operator.start, operator.stop = bool(wishes["start"][i]), bool(wishes["stop"][i])
            np.copyto(operator.command, wanted[i])
            operator.command_ns = wishes["command_ns"].item(i)
            has_heartbeat = bool(wishes["has_heartbeat"][i])
            operator.heartbeat_ns = wishes["heartbeat_ns"].item(i) if has_heartbeat else None
            operator.e_stop = self.statuses[i].e_stop
            yield tick, sample


def read_recording(*paths: Path) -> Recording:
    """Read a recording, all its parts in any order. A part that ends early is read as far as it goes.

    Raises:
        AndanteError: missing, not a recording of andante, or not all parts of one recording.
    """
    need_mcap()
    parts = sorted((_read_part(path) for path in paths), key=lambda part: part.header.part)
    first = parts[0]
    for i, part in enumerate(parts):
        expected = msgspec.structs.replace(first.header, part=first.header.part + i)
        if part.header != expected:
            raise AndanteError(
                f"{part.where}: part {part.header.part} of a recording begun at {part.header.started_ns} ns, "
                f"expected part {expected.part} of the one begun at {expected.started_ns} ns"
            )
    return Recording(
        ", ".join(part.where for part in parts),
        first.header,
        first.contract,
        first.profile,
        first.layout,
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.sources for part in parts]),
        tuple(status for part in parts for status in part.statuses),
        first.snapshot,
        "; ".join(part.damage for part in parts if part.damage) or None,
    )


def _read_part(path: Path) -> Recording:
    from mcap.exceptions import McapError
    from mcap.records import Attachment, Channel, Message, Metadata
    from mcap.stream_reader import StreamReader

    header: Header | None = None
    attached: dict[str, bytes] = {}
    topics: dict[int, str] = {}
    messages: dict[str, list[bytes]] = {TICKS: [], SOURCES: []}
    statuses: list[Status] = []
    damage = status = None
    try:
        with path.open("rb") as file:
            try:
                for record in StreamReader(file, validate_crcs=True).records:
                    if isinstance(record, Metadata) and record.name == HEADER:
                        header = Header.from_metadata(record.metadata, str(path))
                    elif isinstance(record, Attachment):
                        attached[record.name] = record.data
                    elif isinstance(record, Channel):
                        topics[record.id] = record.topic
                    elif isinstance(record, Message):
                        topic = topics[record.channel_id]
                        if topic == STATUS:
                            status = msgspec.json.decode(record.data, type=_Log).status
                            continue
                        messages[topic].append(record.data)
                        if topic == TICKS and status is not None:
                            statuses.append(status)
            except (McapError, *DAMAGE) as error:
                damage = (
                    f"{path}: ends early, after {len(statuses)} ticks: {str(error) or type(error).__name__}"
                )
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}") from None
    if header is None or CONTRACT not in attached or PROFILE not in attached:
        raise AndanteError(f"{path}: not a recording of andante, or damaged at its beginning")
    contract = decode_contract(attached[CONTRACT], str(path))
    profile = decode_profile(attached[PROFILE], str(path))
    layout, sources = tick_layout(contract, profile), sources_layout(contract)
    try:
        rows = _decode(layout, messages[TICKS][: len(statuses)])
        read = _decode(sources, messages[SOURCES])
    except ValueError as error:
        raise AndanteError(f"{path}: {error}: recorded by another version of andante") from None
    snapshot = decode_snapshot(attached[SNAPSHOT], str(path)) if SNAPSHOT in attached else None
    where, told = str(path), tuple(statuses)
    return Recording(where, header, contract, profile, layout, rows, read, told, snapshot, damage)


def _decode(layout: Layout, messages: list[bytes]) -> NDArray[np.float64]:
    rows = np.zeros((len(messages), layout.width))
    for row, message in zip(rows, messages, strict=True):
        row[:] = layout.decode(message)
    return rows

"""Datagrams between a controller, a robot's motors and an operator; `docs/udp.md` has the byte offsets."""

from __future__ import annotations

import secrets
import socket
import struct
import time
import zlib
from collections.abc import Iterable
from contextlib import suppress
from typing import Any

import numpy as np

from .command import FIELDS, NEVER_NS, Mode, signal_size
from .contract import CommandComponent
from .errors import AndanteError
from .profile import Profile

MAGIC = b"ANDT"
"""First bytes of every datagram."""
VERSION = 1
"""Of the layout."""
HEADER = struct.Struct("<4sBBHIIQq")
"""Magic, version, kind, bytes in all, layout, session, sequence number, sender's clock in ns."""
COMMAND, MEASUREMENT, OPERATOR = 1, 2, 3
"""Kinds."""
START, STOP, E_STOP = 1, 2, 4
"""Buttons of an operator, to be added."""
MODES: tuple[Mode, ...] = ("disabled", "damping", "track")
"""By the number that a command carries."""
COUNTERS = ("accepted", "lost", "old", "foreign", "mismatched", "malformed")
"""What becomes of datagrams: taken; missing before a taken one; repeated or overtaken; of another address, a
second sender, or a number that the sender cannot have come to; of other names; of another length, format or
version, or not finite where it must be."""
LEASE_NS = 200_000_000
"""A receiver obeys one session; another one may begin only after so much silence."""
MOST = 1024
"""Datagrams taken at once: a flood must not keep a control loop from its deadline."""
FASTEST_NS = 100_000
"""Between two datagrams of a sender. A number that this and a burst of `MOST` do not explain is not its own:
once taken, it would make all that the sender really sends `old`."""
SO_TIMESTAMPNS = 35  # asm-generic/socket.h
"""The socket option for the kernel's arrival stamps."""
_TIMESPEC = struct.Struct("@ll")
_STAMP_BYTES = socket.CMSG_SPACE(_TIMESPEC.size)

Address = tuple[str, int]
"""Host and port."""


class Packet:
    """A layout over a buffer of its own: header, `fixed` numbers (`struct`), then float64 `values`."""

    def __init__(self, kind: int, names: Iterable[str], fixed: str, floats: int) -> None:
        self.fixed = struct.Struct("<" + fixed)
        self.begin = HEADER.size + self.fixed.size
        self.size = self.begin + 8 * floats
        self.start = (MAGIC, VERSION, kind, self.size)
        self.layout = zlib.crc32("\n".join(names).encode())
        self.buffer = bytearray(self.size)
        self.values = np.frombuffer(self.buffer, "<f8", floats, self.begin)


def command_packet(profile: Profile) -> Packet:
    """Tick, valid-for in us, mode; then the `FIELDS` of a command, each `[Ja]`."""
    joints = [joint.name for joint in profile.actuated]
    return Packet(COMMAND, joints, "qIB3x", len(FIELDS) * len(joints))


def measurement_packet(profile: Profile) -> Packet:
    """A stamp in ns per signal; then the signals' values."""
    signals, joints = tuple(profile.signals), profile.joint_names
    floats = sum(signal_size(signal, len(joints)) for signal in signals)
    return Packet(MEASUREMENT, (*signals, *joints), f"{len(signals)}q", floats)


def operator_packet(components: tuple[CommandComponent, ...]) -> Packet:
    """Buttons; then the task command, in SI units."""
    return Packet(OPERATOR, [component.name for component in components], "B7x", len(components))


def address(text: str) -> Address:
    """The IPv4 address of `host:port`.

    Raises:
        AndanteError: not of that form, or the host is unknown.
    """
    host, _, port = text.rpartition(":")
    if host and port.isdecimal() and int(port) < 2**16:
        with suppress(OSError, UnicodeError):
            return socket.gethostbyname(host), int(port)
    raise AndanteError(f"expected an address host:port of a known host, found {text!r}")


def open_socket(local: str) -> socket.socket:
    """A UDP socket bound to `local` (`host:port`); calls on it return at once.

    Raises:
        AndanteError: no such address, or it is taken.
    """
    where = address(local)
    opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    opened.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    opened.setblocking(False)
    try:
        opened.bind(where)
    except OSError as error:
        opened.close()
        raise AndanteError(f"cannot listen at {local}: {error.strerror}") from None
    return opened


class Sender:
    """Sends one packet over and over, numbered, under a session of its own."""

    def __init__(self, link: socket.socket, packet: Packet, remote: str) -> None:
        self.packet = packet
        self.unsent = 0
        """Datagrams that the system refused to send."""
        self._link = link
        self._remote = address(remote)
        self._session = secrets.randbits(32)
        self._sequence = 0

    def send(self, *fixed: Any) -> bool:
        """Send the packet's values with these fixed numbers; whether it left this machine."""
        packet = self.packet
        self._sequence += 1
        stamp = time.monotonic_ns()
        HEADER.pack_into(packet.buffer, 0, *packet.start, packet.layout, self._session, self._sequence, stamp)
        packet.fixed.pack_into(packet.buffer, HEADER.size, *fixed)
        try:
            self._link.sendto(packet.buffer, self._remote)
        except OSError:
            self.unsent += 1
            return False
        return True


class Receiver:
    """Keeps the newest sound datagram of one sender in `packet`; drops and counts all others."""

    arrived_ns: int
    """When it reached this machine, on the monotonic clock."""

    def __init__(
        self, link: socket.socket, packet: Packet, remote: str | None = None, finite: bool = False
    ) -> None:
        """Listen on `link`.

        Args:
            link: bound.
            packet: to be filled.
            remote: the only address listened to; any when None.
            finite: drop values that are not.
        """
        self.packet = packet
        self.arrived_ns = NEVER_NS
        self.counters = dict.fromkeys(COUNTERS, 0)
        self._link = link
        self._remote = None if remote is None else address(remote)
        self._session: int | None = None
        self._sequence = 0
        self._earliest_ns, self._ahead_ns = time.monotonic_ns(), 0
        scratch = bytearray(packet.size + 1)  # one more, to notice what is too long
        self._scratch = [scratch]
        self._source = memoryview(scratch)[: packet.size]
        self._target = memoryview(packet.buffer)
        self._values = np.frombuffer(scratch, "<f8", len(packet.values), packet.begin) if finite else None

    def receive(self) -> bool:
        """Take what has arrived, without waiting; whether `packet` is a newer one now."""
        accepted, begin_ns = self.counters["accepted"], time.monotonic_ns()
        ahead_ns = time.time_ns() - begin_ns  # too much rather than too little, if held up in between
        for _ in range(MOST):
            try:
                size, ancillary, _, sender = self._link.recvmsg_into(self._scratch, _STAMP_BYTES)
            except OSError:  # empty: what comes next cannot be older
                self._earliest_ns, self._ahead_ns = max(begin_ns, self._earliest_ns), ahead_ns
                break
            self._earliest_ns = self._arrival(ancillary[0][2], ahead_ns)
            self._judge(size, sender, self._earliest_ns)
        return self.counters["accepted"] > accepted

    def fixed(self) -> tuple[Any, ...]:
        """The fixed numbers of `packet`."""
        return self.packet.fixed.unpack_from(self.packet.buffer, HEADER.size)

    def _judge(self, size: int, sender: Address, arrived_ns: int) -> None:
        packet, counters = self.packet, self.counters
        *start, layout, session, sequence, _ = HEADER.unpack_from(self._scratch[0])
        known, silence_ns = session == self._session, arrived_ns - self.arrived_ns
        lost = sequence - self._sequence - 1 if known else 0
        if self._remote not in (None, sender):
            counters["foreign"] += 1
        elif size < HEADER.size or tuple(start[:3]) != packet.start[:3]:
            counters["malformed"] += 1
        elif layout != packet.layout:
            counters["mismatched"] += 1
        elif size != packet.size or start[3] != size or not self._finite():
            counters["malformed"] += 1
        elif lost > MOST + silence_ns // FASTEST_NS or not (known or silence_ns >= LEASE_NS):
            counters["foreign"] += 1
        elif lost < 0:
            counters["old"] += 1
        else:
            counters["lost"] += lost
            counters["accepted"] += 1
            self._session, self._sequence, self.arrived_ns = session, sequence, arrived_ns
            self._target[:] = self._source

    def _arrival(self, timespec: bytes, ahead_ns: int) -> int:
        """The kernel's stamp on the monotonic clock: what waited in the queue must not count as fresh.

        The system clock may have been set meanwhile, either way: then the older reading counts, but nothing
        came before the queue was last empty, before what was in front of it, or after now.
        """
        seconds, nanoseconds = _TIMESPEC.unpack(timespec)
        stamp_ns: int = seconds * 10**9 + nanoseconds - max(ahead_ns, self._ahead_ns)
        return min(max(stamp_ns, self._earliest_ns), time.monotonic_ns())

    def _finite(self) -> bool:
        return self._values is None or bool(np.isfinite(self._values).all())


class Duplex:
    """One end of a link between two: a socket, what it receives and what it sends."""

    def __init__(self, incoming: Packet, outgoing: Packet, local: str, remote: str, finite: bool) -> None:
        """Open a socket at `local`; send to `remote` (`host:port`), the only one listened to.

        Raises:
            AndanteError: an address is wrong or taken.
        """
        self._link = open_socket(local)
        self._receiver = Receiver(self._link, incoming, remote, finite)
        self._sender = Sender(self._link, outgoing, remote)

    @property
    def link(self) -> str:
        """What became of the datagrams of both directions, in words."""
        counted = [f"{name} {count}" for name, count in self._receiver.counters.items()]
        return f"{', '.join(counted)}, unsent {self._sender.unsent}"

    def close(self) -> None:
        """Close the socket."""
        self._link.close()

"""A robot behind UDP: any motor bridge that speaks the packets of `docs/udp.md`."""

from __future__ import annotations

import time

import numpy as np

from ..command import FIELDS, NEVER_NS, JointCommand, Sample
from ..contract import Contract
from ..errors import AndanteError
from ..packet import MODES, Duplex, command_packet, measurement_packet
from ..profile import Profile

CONTROLLER = "127.0.0.1:47001"
"""Where the controller listens."""
BRIDGE = "127.0.0.1:47000"
"""Where the motor bridge does."""
LONGEST_US = 2**32 - 1
"""That the packet can carry."""


class UdpRobot(Duplex):
    """Sends every command as a datagram, and reads the newest measurement that has arrived.

    `received_ns` is when a signal's last new value reached this machine, `source_ns` its stamp by the sender.
    A signal whose stamp has not moved was not measured anew, and grows old.
    """

    name: str = "udp"
    """Under which it is registered."""
    carries: frozenset[str] = frozenset(FIELDS)
    """Every field has its place in the packet."""

    def __init__(
        self, contract: Contract, profile: Profile, local: str = CONTROLLER, remote: str = BRIDGE
    ) -> None:
        """Open a socket.

        Args:
            contract: of the policy.
            profile: of the robot; the bridge must know the same joints and signals, in the same order.
            local: address (`host:port`) to listen at; only this machine can reach the default one.
            remote: of the motor bridge, the only one listened to.

        Raises:
            AndanteError: an address is wrong or taken.
        """
        super().__init__(measurement_packet(profile), command_packet(profile), local, remote, finite=False)
        self.joints: tuple[str, ...] = profile.joint_names
        self._sample = Sample.allocate(profile.signals, len(self.joints))
        ends = np.cumsum([len(values) for values in self._sample.values.values()])[:-1]
        signals = np.split(self._receiver.packet.values, ends)
        self._signals = list(zip(self._sample.values, signals, strict=True))
        self._fields = self._sender.packet.values.reshape(len(FIELDS), -1)
        self._sent_ns = NEVER_NS

    def read(self) -> Sample:
        """The newest measurement; the same object every time."""
        sample, receiver = self._sample, self._receiver
        if receiver.receive():
            for (signal, values), stamp in zip(self._signals, receiver.fixed(), strict=True):
                if stamp != sample.source_ns[signal]:
                    np.copyto(sample.values[signal], values)
                    sample.source_ns[signal] = stamp
                    sample.received_ns[signal] = receiver.arrived_ns
        sample.now_ns = time.monotonic_ns()
        return sample

    def write(self, command: JointCommand) -> None:
        """Send a command; what the network drops is made up for by the next one.

        Raises:
            AndanteError: nothing has left this machine for as long as a command is valid.
        """
        for row, field in zip(self._fields, FIELDS, strict=True):
            np.copyto(row, getattr(command, field))
        now_ns = time.monotonic_ns()
        valid_us = min(command.valid_for_ns // 1000, LONGEST_US)
        if self._sender.send(command.tick, valid_us, MODES.index(command.mode)) or self._sent_ns == NEVER_NS:
            self._sent_ns = now_ns
        elif now_ns - self._sent_ns > command.valid_for_ns:
            raise AndanteError(f"no command could be sent for {(now_ns - self._sent_ns) * 1e-6:.0f} ms")

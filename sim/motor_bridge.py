"""The robot's end of UDP, for a process or a board that drives motors: the reference of `docs/udp.md`."""

from __future__ import annotations

import numpy as np

from andante.runtime.command import FIELDS, NEVER_NS, Floats, JointCommand, Sample
from andante.runtime.packet import MODES, Duplex, command_packet, measurement_packet
from andante.runtime.profile import Profile
from andante.runtime.robots.udp import BRIDGE, CONTROLLER


class MotorBridge(Duplex):
    """Takes commands and obeys none beyond its validity; sends measurements."""

    valid: bool
    """Whether the last command asked for was one of the controller's."""

    def __init__(
        self, profile: Profile, damping: Floats | None = None, local: str = BRIDGE, remote: str = CONTROLLER
    ) -> None:
        """Open a socket.

        Args:
            profile: of the robot.
            damping: gains `[Ja]` to brake with where no command is valid; without torque when None.
            local: address (`host:port`) to listen at; only this machine can reach the default one.
            remote: of the controller, the only one listened to.

        Raises:
            AndanteError: an address is wrong or taken.
        """
        super().__init__(command_packet(profile), measurement_packet(profile), local, remote, finite=True)
        self.valid = False
        self._damping = damping
        self._signals = tuple(profile.signals)
        self._command = JointCommand.allocate(len(profile.actuated), 0)
        self._fields = self._receiver.packet.values.reshape(len(FIELDS), -1)

    def command(self, now_ns: int) -> JointCommand:
        """What the motors are to do at `now_ns` (monotonic), and for how long from then on.

        The same object every time. Damping is `kd` alone: motors that only know torque make it themselves.
        """
        self._receiver.receive()
        tick, valid_us, mode = self._receiver.fixed()
        command = self._command
        left_ns = self._receiver.arrived_ns + valid_us * 1000 - now_ns
        self.valid = left_ns >= 0 and mode < len(MODES)
        if self.valid:
            command.tick, command.valid_for_ns, command.mode = tick, left_ns, MODES[mode]
            for row, field in zip(self._fields, FIELDS, strict=True):
                np.copyto(getattr(command, field), row)
            return command
        command.valid_for_ns = -NEVER_NS
        if self._damping is None:
            command.set_zero("disabled")
        else:
            command.set_damping(command.q, self._damping)
        return command

    def send(self, sample: Sample) -> None:
        """Send a measurement; its `source_ns` go along."""
        values = [sample.values[signal] for signal in self._signals]
        np.concatenate(values, out=self._sender.packet.values)
        self._sender.send(*(sample.source_ns[signal] for signal in self._signals))

"""An operator behind UDP: a web page, a telephone, another machine."""

from __future__ import annotations

import time

import numpy as np

from ..command import NEVER_NS, OperatorInput
from ..contract import CommandComponent
from ..errors import AndanteError
from ..packet import E_STOP, START, STOP, Receiver, Sender, open_socket, operator_packet

LISTENER = "127.0.0.1:47002"
"""Where a run listens unless told otherwise."""
WAIT_S = 10.0
"""How long an operator may be waited for before a run."""
SILENCE_NS = 500_000_000
"""A silent operator is an emergency stop; a profile may want less."""
REPEAT = 10
"""Datagrams that carry a press, so that it survives losses."""


class UdpOperator:
    """Every datagram is a heartbeat of the emergency stop, unless it says that it is pressed."""

    hint: str = "waiting for the operator's start"
    """How it is used."""

    def __init__(
        self, components: tuple[CommandComponent, ...], local: str = LISTENER, wait_s: float = WAIT_S
    ) -> None:
        """Listen at `local` (`host:port`), and wait for an operator: nobody there counts as a stop.

        Raises:
            AndanteError: the address is wrong or taken, or nobody came.
        """
        self._link = open_socket(local)
        self._receiver = Receiver(self._link, operator_packet(components), finite=True)
        self._low = [component.low for component in components]
        self._high = [component.high for component in components]
        self._buttons = 0
        self._heartbeat_ns = NEVER_NS
        deadline_s = time.monotonic() + wait_s
        while not self._receiver.receive():
            if time.monotonic() >= deadline_s:
                self.close()
                counters = self._receiver.counters
                raise AndanteError(f"no operator heard at {local} within {wait_s:g} s: {counters}")
            time.sleep(0.01)

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        """See `OperatorSource`."""
        receiver = self._receiver
        receiver.receive()
        (buttons,) = receiver.fixed()
        clock_ns = time.monotonic_ns()
        silence_ns = clock_ns - receiver.arrived_ns
        operator.start = bool(buttons & START & ~self._buttons)
        operator.stop = bool(buttons & STOP)
        operator.e_stop = "operator" if buttons & E_STOP else None
        if silence_ns > SILENCE_NS:
            operator.e_stop = f"operator not heard for {silence_ns * 1e-6:.0f} ms"
        elif operator.e_stop is None:
            self._heartbeat_ns = receiver.arrived_ns
        self._buttons = buttons
        np.clip(receiver.packet.values, self._low, self._high, out=operator.command)
        operator.command_ns = now_ns - silence_ns  # the sample's clock need not be this machine's
        operator.heartbeat_ns = now_ns - (clock_ns - self._heartbeat_ns)

    def close(self) -> None:
        """Close the socket."""
        self._link.close()


class OperatorSender:
    """The other end: send what the operator wants, many times a second; a pause is an emergency stop."""

    def __init__(self, components: tuple[CommandComponent, ...], remote: str = LISTENER) -> None:
        """Send to `remote` (`host:port`).

        Raises:
            AndanteError: the address is wrong.
        """
        self._link = open_socket("0.0.0.0:0")
        self._sender = Sender(self._link, operator_packet(components), remote)
        self._left = {START: 0, STOP: 0, E_STOP: 0}

    def send(self, operator: OperatorInput) -> None:
        """Send command and buttons. A press is sent several times, an emergency stop from then on."""
        wanted = (operator.start, operator.stop, operator.e_stop is not None)
        for button, pressed in zip(self._left, wanted, strict=True):
            left = self._left[button]
            self._left[button] = REPEAT if pressed or (button == E_STOP and left) else max(0, left - 1)
        self._sender.packet.values[:] = operator.command
        self._sender.send(sum(button for button, left in self._left.items() if left))

    def close(self) -> None:
        """Close the socket."""
        self._link.close()

"""The operator's keyboard, through the terminal."""

from __future__ import annotations

import os
import select
import termios
import time
import tty
from contextlib import suppress

from ..command import OperatorInput
from ..contract import CommandComponent
from ..errors import AndanteError
from .base import deflect

PAIRS = ("ws", "ad", "qe", "rf", "tg")
"""Keys that push each component of the command up and down."""
START, STOP, E_STOP = b"\n", b"x", b" "
HOLD_NS = 200_000_000
"""A terminal tells of no release: a key is held while it repeats within this time."""


class Keyboard:
    """Hold-to-run: a component moves while its key repeats. Losing the terminal is an emergency stop."""

    hint: str
    """How it is used."""

    def __init__(self, components: tuple[CommandComponent, ...], terminal: int = 0) -> None:
        """Take over the terminal of that file descriptor.

        Raises:
            AndanteError: it is none, this process is not in its foreground, or the command is too long.
        """
        if len(components) > len(PAIRS):
            raise AndanteError(f"the keyboard has {len(PAIRS)} pairs of keys, the command {len(components)}")
        if not os.isatty(terminal) or _in_background(terminal):
            raise AndanteError("the keyboard needs a terminal at standard input, in the foreground")
        holds = [f"hold {'/'.join(pair)} for {c.name}" for pair, c in zip(PAIRS, components, strict=False)]
        self.hint = "; ".join(["Enter starts, x stops, space is the emergency stop", *holds])
        self._components = components
        self._terminal = terminal
        self._held = [(0, 0.0)] * len(components)
        self._previous = termios.tcgetattr(terminal)
        tty.setcbreak(terminal)
        settings = termios.tcgetattr(terminal)
        settings[0] &= ~termios.IXON  # Ctrl-S would freeze the output, Ctrl-Z the whole loop
        settings[6][termios.VSUSP] = os.fpathconf(terminal, "PC_VDISABLE").to_bytes(1, "little")
        termios.tcsetattr(terminal, termios.TCSANOW, settings)

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        """See `OperatorSource`."""
        keys = self._read()
        operator.start, operator.stop = START in (keys or b""), STOP in (keys or b"")
        if keys is None:
            operator.e_stop = "the keyboard's terminal is gone"
            return
        operator.e_stop = "space bar" if E_STOP in keys else None
        clock_ns = time.monotonic_ns()
        for i, (component, pair) in enumerate(zip(self._components, PAIRS, strict=False)):
            for key in keys.decode("latin-1"):
                if key in pair:
                    self._held[i] = (clock_ns + HOLD_NS, 1.0 if key == pair[0] else -1.0)
            until_ns, deflection = self._held[i]
            operator.command[i] = deflect(component, deflection if clock_ns < until_ns else 0.0)
        operator.command_ns = operator.heartbeat_ns = now_ns

    def close(self) -> None:
        """Give the terminal back."""
        with suppress(termios.error):  # it may be gone
            termios.tcsetattr(self._terminal, termios.TCSANOW, self._previous)

    def _read(self) -> bytes | None:
        """The keys since the last time; None where the terminal is gone."""
        try:
            if not select.select([self._terminal], [], [], 0)[0]:
                return b""
            return os.read(self._terminal, 256) or None
        except OSError:
            return None


def _in_background(terminal: int) -> bool:
    try:
        return os.tcgetpgrp(terminal) != os.getpgrp()
    except OSError:  # not this process's controlling terminal: nobody stops it for reading
        return False

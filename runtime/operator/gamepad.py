"""The operator's gamepad, through the kernel's joystick interface (its Documentation/input/joydev)."""

from __future__ import annotations

import os
import struct

from ..command import OperatorInput
from ..contract import CommandComponent
from ..errors import AndanteError
from .base import deflect

EVENT = struct.Struct("=IhBB")
"""`struct js_event`: time in ms, value, type, number."""
BUTTON, AXIS, INITIAL = 0x01, 0x02, 0x80
AXES = (1, 0, 3, 4)
"""Left stick forward, left stick left, right stick left, right stick forward; all of them are negative."""
HOLD, E_STOP, STOP, START = 4, 1, 6, 7
"""Buttons as the kernel's driver for Xbox pads numbers them: left shoulder, B, back, start."""
FULL = 32767
"""Largest value of an axis."""
DEAD_ZONE = 0.1
"""Share of an axis within which it counts as at rest."""


class Gamepad:
    """Hold-to-run: the sticks count while the left shoulder button is held. Unplugging stops at once."""

    hint: str = "button `start` starts, `back` stops, `B` is the emergency stop; hold LB to move"
    """How it is used."""

    def __init__(self, components: tuple[CommandComponent, ...], device: str = "/dev/input/js0") -> None:
        """Open the device.

        Raises:
            AndanteError: it cannot be opened, or the command is too long for its sticks.
        """
        if len(components) > len(AXES):
            raise AndanteError(f"the gamepad has {len(AXES)} axes, the command {len(components)}")
        try:
            self._file = os.open(device, os.O_RDONLY | os.O_NONBLOCK)
        except OSError as error:
            raise AndanteError(f"{device}: {error.strerror}, no gamepad") from None
        self._components = components
        self._buttons = [False] * 256
        self._axes = [0.0] * 256

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        """See `OperatorSource`."""
        operator.start = operator.stop = False
        operator.e_stop = None
        try:
            while events := os.read(self._file, 64 * EVENT.size):
                for event in EVENT.iter_unpack(events):
                    self._take(operator, *event)
        except BlockingIOError:
            pass
        except OSError as error:
            operator.e_stop = f"the gamepad is gone ({error.strerror})"
            return
        else:
            operator.e_stop = "the gamepad is gone"
            return
        if self._buttons[E_STOP]:
            operator.e_stop = "gamepad"
        held = self._buttons[HOLD]
        for i, component in enumerate(self._components):
            operator.command[i] = deflect(component, -self._axes[AXES[i]] if held else 0.0)
        operator.command_ns = operator.heartbeat_ns = now_ns

    def close(self) -> None:
        """Close the device."""
        os.close(self._file)

    def _take(self, operator: OperatorInput, _time: int, value: int, kind: int, number: int) -> None:
        if kind & AXIS:
            share = max(-1.0, value / FULL)
            self._axes[number] = share if abs(share) > DEAD_ZONE else 0.0
        elif kind & BUTTON:
            self._buttons[number] = value != 0
            pressed = value != 0 and not kind & INITIAL  # what was down at first was pressed for another run
            operator.start |= pressed and number == START
            operator.stop |= pressed and number == STOP
            if pressed and number == E_STOP:  # also when released within a tick
                operator.e_stop = "gamepad"

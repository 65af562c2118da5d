"""The page's process: shows what it is told, and tells what is pressed. It ends with the run."""

from __future__ import annotations

import math
import os
import socket
import sys
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Literal

import msgspec
import viser

from ..contract import Record
from ..errors import AndanteError
from . import words
from .messages import (
    EMERGENCY_STOP,
    MESSAGE_BYTES,
    RESTART,
    STOP,
    Inject,
    Refused,
    Serving,
    Setup,
    Snapshot,
    decode_snapshot,
    encode,
)
from .scene import find_scene
from .server import Server

NICENESS = 10
"""The control process comes first."""
LINES = 12
"""Of what happened that the page keeps."""
WRITTEN_EVERY = 5
"""Snapshots per update of the texts, which cost a browser more than the scene does."""
LEAVING_S = 1.0
"""For the last texts to be sent: the server does not wait for that by itself."""
EVERY_SIGNAL = "all signals"
"""The choice that befalls all."""


class Page:
    """Controls and texts beside the robot."""

    def __init__(self, setup: Setup, tell: Callable[[Record], None]) -> None:
        """Serve it; `tell` passes on what is pressed, from any thread.

        Raises:
            AndanteError: nobody can listen at the address asked for.
        """
        self._setup = setup
        self._tell = tell
        self.server = Server(setup.host, setup.port, f"andante: {setup.contract.robot_model}")
        self._happened: deque[str] = deque(maxlen=LINES)
        self._joints = [joint.name for joint in setup.profile.actuated]
        self._state = ""
        self._shown = 0
        gui = self.server.gui
        self._facts = gui.add_html("")
        self._add_button("Stop", viser.Icon.PLAYER_STOP, STOP)
        stop = self._add_button("Emergency stop", viser.Icon.ALERT_OCTAGON, EMERGENCY_STOP, "red")
        self._log = gui.add_html("")
        if setup.faults:
            restart = self._add_faults()
            stop.on_click(lambda _: _switch_off(restart, "No restart: the emergency stop stays"))
        self._event: str | None = None
        with gui.add_folder("Fallback table"):
            self._fallback = gui.add_html(words.fallback(setup.profile, None))
        with gui.add_folder("Measured"):
            self._measured = gui.add_html("")
        with gui.add_folder("Command"):
            self._command = gui.add_html("")
        with gui.add_folder("Timings"):
            self._timings = gui.add_html("")
        self._scene, reason = find_scene(self.server, setup.contract, setup.profile)
        if self._scene is None:
            gui.add_html(words.log([f"no scene: {reason}"]))

    def note(self, snapshot: Snapshot) -> None:
        """Take down what happened."""
        if snapshot.state == self._state:
            return
        self._state, self._shown = snapshot.state, 0
        seconds = snapshot.tick * self._setup.contract.control_period_ns * 1e-9
        reason = words.reason(snapshot)
        self._happened.appendleft(
            f"{seconds:.2f} s: {snapshot.state}{'' if reason is None else f', {reason}'}"
        )

    def show(self, snapshot: Snapshot) -> None:
        """Draw how things are."""
        values = snapshot.values
        if self._scene is not None and all(
            math.isfinite(value) for each in values.values() for value in each
        ):
            self._scene.show(values)
        self._shown += 1
        if self._shown % WRITTEN_EVERY != 1:
            return
        event = None if snapshot.fault is None else snapshot.fault.partition(":")[0]
        if event != self._event:
            self._event = event
            self._fallback.content = words.fallback(self._setup.profile, event)
        for handle, content in (
            (self._facts, words.facts(snapshot, self._setup.contract)),
            (self._log, words.log(self._happened)),
            (self._measured, words.measured(snapshot)),
            (self._command, words.command(snapshot, self._joints)),
            (self._timings, words.timings(snapshot)),
        ):
            if handle.content != content:
                handle.content = content

    def end(self) -> None:
        """Leave the browsers with what was shown last."""
        self._happened.appendleft("the run is over")
        self._log.content = words.log(self._happened)
        self.server.flush()
        time.sleep(LEAVING_S)
        self.server.stop()

    def _add_button(
        self, label: str, icon: viser.IconName, wish: Record, color: Literal["red"] | None = None
    ) -> viser.GuiButtonHandle:
        button = self.server.gui.add_button(label, icon=icon, color=color)
        button.on_click(lambda _: self._tell(wish))
        return button

    def _add_faults(self) -> viser.GuiButtonHandle:
        """Controls for trying, in simulation, what the robot would do; the one that begins anew."""
        setup, gui = self._setup, self.server.gui
        with gui.add_folder("Try a fault"):
            signal = gui.add_dropdown("Of", (EVERY_SIGNAL, *setup.profile.signals))
            seconds = gui.add_slider("For [s]", min=0.02, max=5.0, step=0.02, initial_value=1.0)
            number = gui.add_number("Value of set", 1000.0)
            kinds = gui.add_button_group("", tuple(setup.faults))
            restart = self._add_button("Restart", viser.Icon.REFRESH, RESTART)

        @kinds.on_click
        def _(event: object) -> None:
            kind = kinds.value
            self._tell(
                Inject(
                    kind=kind,
                    signal=None if signal.value == EVERY_SIGNAL else signal.value,
                    ticks=max(1, round(seconds.value * 1e9 / setup.contract.control_period_ns)),
                    amount=number.value if kind == "set" else setup.faults[kind],
                )
            )

        return restart


def _switch_off(button: viser.GuiButtonHandle, reason: str) -> None:
    button.disabled, button.label = True, reason


def main() -> None:
    """Serve; what to is on standard input, the other end of the socket in the first argument."""
    setup = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=Setup)
    os.nice(NICENESS)
    with socket.socket(fileno=int(sys.argv[1])) as connection:

        def tell(message: Record) -> None:
            with suppress(OSError):  # the run is over
                connection.send(encode(message))

        try:
            page = Page(setup, tell)
        except AndanteError as error:
            tell(Refused(reason=str(error)))
            return
        tell(Serving(url=page.server.url))
        while data := connection.recv(MESSAGE_BYTES):
            snapshot = decode_snapshot(data)
            page.note(snapshot)
            with suppress(BlockingIOError):
                while data := connection.recv(MESSAGE_BYTES, socket.MSG_DONTWAIT):
                    snapshot = decode_snapshot(data)
                    page.note(snapshot)
            page.show(snapshot)
        page.end()

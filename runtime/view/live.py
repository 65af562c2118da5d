"""The control process's side of the live view."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec

from ..command import FIELDS, NEVER_NS, JointCommand, Sample
from ..controller import Controller
from ..errors import AndanteError
from ..loop import RealtimeLoop
from ..robots.base import Robot
from ..states import State
from .messages import (
    BINS,
    EMERGENCY_STOP,
    MESSAGE_BYTES,
    RESTART,
    STOP,
    Inject,
    Refused,
    Serving,
    Setup,
    Snapshot,
    Told,
    Trial,
    decode_told,
    encode,
)

RATE_HZ = 15.0
"""How often the page is told: a browser that draws in software must still find time for its buttons."""
OPENING_S = 60.0
"""The page may take so long to come up."""
CLOSING_S = 5.0
"""And so long to end."""
MAIN = "from andante.runtime.view.page import main; main()"
"""The page's process."""


class LiveView:
    """A page in a process of its own, which the control thread tells how things are, and asks what is wanted.

    Neither ever waits for the page: what it does not take in time it does not see, and without it the run
    goes on.
    """

    url: str
    """Where the page is."""
    robot: Robot
    """The one to be driven: what was given, or a simulated one's twin that can be made to fail."""
    error: str | None
    """Why the page has gone."""

    def __init__(
        self, controller: Controller, robot: Robot, loop: Callable[[], RealtimeLoop], host: str, port: int
    ) -> None:
        """Serve at `port`, or the next free one; 0 for any.

        Args:
            controller: what is shown.
            robot: what it drives; where it has a method `on_trial`, which returns a `Trial`, faults can be
                tried.
            loop: the loop that runs both, once there is one.
            host: name or address to listen at; anything but 127.0.0.1 lets other machines watch and stop.
            port: of TCP.

        Raises:
            AndanteError: the extra is not installed, or nobody can listen there.
        """
        if find_spec("viser") is None:
            raise AndanteError("--view needs viser, which is not installed: pip install '.[view]'")
        self._controller = controller
        self._loop = loop
        on_trial: Callable[[], Trial] | None = getattr(robot, "on_trial", None)
        self._trial = None if on_trial is None else on_trial()
        self.robot = robot if self._trial is None else self._trial
        self.error = None
        self._period_ns = controller.contract.control_period_ns
        self._every = max(1, round(1e9 / RATE_HZ / self._period_ns))
        self._due = 0
        self._state = State.DISABLED
        self._unsent = b""
        self._pressed = False
        self._worker, self._inferences = controller.worker, controller.worker.inferences
        self._timings = {name: [0] * BINS for name in ("wake-up", "work", "inference")}
        setup = Setup(
            host=host,
            port=port,
            contract=controller.contract,
            profile=controller.profile,
            faults={} if self._trial is None else dict(self._trial.kinds),
        )
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # A session of its own: Ctrl-C is for the run. A safe path: not the modules of the current folder.
            self._process = subprocess.Popen(
                [sys.executable, "-c", MAIN, str(theirs.fileno())],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=os.environ | {"PYTHONSAFEPATH": "1"},
            )
        try:
            self.url = self._open(encode(setup))
        except BaseException:
            self.close()
            raise

    def after_tick(
        self, tick: int, sample: Sample, command: JointCommand, lateness_ns: int, work_ns: int
    ) -> None:
        """Show the tick, if it is time to, and pass on what the watcher wants; an `Observer`."""
        if self.error is not None:
            return
        try:
            self._count("wake-up", lateness_ns)
            self._count("work", work_ns)
            worker = self._controller.worker
            if worker is not self._worker:
                self._worker, self._inferences = worker, worker.inferences
            elif worker.inferences != self._inferences:
                self._inferences = worker.inferences
                self._count("inference", worker.inference_ns)
            if tick >= self._due or self._controller.state is not self._state:
                self._due, self._state = tick + self._every, self._controller.state
                self._show(tick, sample, command)
            self._listen()
        except Exception as error:  # a view must never be what stops a robot
            self.error = f"the page is gone: {error!r}"

    def obey(self, wish: Told) -> None:
        """Do what is pressed on the page; between ticks. Its emergency stop stays until the run is over.

        Raises:
            ValueError: a fault that cannot be.
        """
        trial = self._trial
        if wish == STOP:
            self._loop().stop("asked to on the page")
        elif wish == EMERGENCY_STOP:
            self._pressed = True
            self._loop().emergency_stop("pressed on the page")
        elif isinstance(wish, Inject) and trial is not None:
            trial.inject(wish.kind, wish.signal, wish.ticks, wish.amount)
        elif wish == RESTART and trial is not None and not self._pressed:
            trial.restart()
            self._controller.deactivate()
            self._controller.clear()
            self._controller.activate()

    def close(self) -> None:
        """Show the last tick, and end the page's process."""
        self._socket.settimeout(CLOSING_S)
        with self._socket, suppress(OSError):
            if self._unsent:
                self._socket.send(self._unsent)
        try:
            self._process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _open(self, setup: bytes) -> str:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:
            stdin.write(setup)
        self._socket.settimeout(OPENING_S)
        try:
            found = self._socket.recv(MESSAGE_BYTES)
        except TimeoutError:
            found = b""
        answer = decode_told(found) if found else Refused(reason="the page's process does not answer")
        if not isinstance(answer, Serving):
            raise AndanteError(answer.reason if isinstance(answer, Refused) else f"found {answer}")
        self._socket.setblocking(False)
        return answer.url

    def _count(self, name: str, duration_ns: int) -> None:
        self._timings[name][min((duration_ns // 1000).bit_length(), BINS - 1)] += 1

    def _show(self, tick: int, sample: Sample, command: JointCommand) -> None:
        controller = self._controller
        snapshot = Snapshot(
            tick=tick,
            state=controller.state.value,
            fault=controller.fault,
            waiting=controller.waiting if controller.state is State.WAIT_SENSORS else None,
            stopping=self._loop().stopping,
            values={name: values.tolist() for name, values in sample.values.items()},
            ages_ms={
                name: None if ns == NEVER_NS else (sample.now_ns - ns) * 1e-6
                for name, ns in sample.received_ns.items()
            },
            wanted=sample.operator.command.tolist(),
            mode=command.mode,
            command={field: getattr(command, field).tolist() for field in FIELDS},
            counters=vars(controller.counters),
            timings=self._timings,
        )
        self._unsent = encode(snapshot)
        with suppress(BlockingIOError):  # the page is slow; it gets a later one
            self._socket.send(self._unsent)
            self._unsent = b""

    def _listen(self) -> None:
        with suppress(BlockingIOError):
            found = self._socket.recv(MESSAGE_BYTES)
            if not found:
                raise ConnectionError("its process ended")
            self.obey(decode_told(found))

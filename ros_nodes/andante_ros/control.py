"""The control loop in a thread of its own, beside the executor."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Sequence

from andante.runtime import AndanteError, Controller, LoopReport, RealtimeLoop
from andante.runtime.histogram import Histogram
from andante.runtime.loop import Observer
from andante.runtime.realtime import MonotonicClock
from andante.runtime.states import State

from .topics import TopicRobot

UNLIMITED_S = 1e9


class JitterClock(MonotonicClock):
    """The monotonic clock, which also tells how late it woke its caller."""

    def __init__(self) -> None:
        self.jitter = Histogram()

    def sleep_until_ns(self, deadline_ns: int) -> None:
        """Return at the deadline or later."""
        super().sleep_until_ns(deadline_ns)
        self.jitter.add(time.monotonic_ns() - deadline_ns)


class ControlThread:
    """Runs a controller on a robot; a run lasts from `start` until the controller is `DISABLED` again."""

    report: LoopReport | None
    """How the last run went, once it is over."""
    error: str | None
    """Traceback of a defect that broke off the last run."""

    def __init__(
        self,
        controller: Controller,
        robot: TopicRobot,
        fifo_priority: int | None,
        on_ready: Callable[[], None],
        observers: Sequence[Observer] = (),
    ) -> None:
        """Join a controller and a robot; `on_ready` and observers are called in the control thread."""
        self.controller = controller
        self.robot = robot
        self.clock = JitterClock()
        self.report = self.error = None
        self._fifo_priority = fifo_priority
        self._on_ready, self._observers = on_ready, observers
        self._loop: RealtimeLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        """Whether the robot is being driven."""
        return self._thread is not None and self._thread.is_alive()

    def start(self) -> None:
        """Begin a run: nothing measured, the policy's initial memory, counters at zero.

        Raises:
            AndanteError: it is running, or a fault is latched.
        """
        if self.running:
            raise AndanteError(f"already running, in state {self.controller.state.name}")
        if self.controller.fault is not None:
            raise AndanteError(f"a fault is latched ({self.controller.fault}): clear it first")
        self.report = self.error = None
        self.clock.jitter = Histogram()
        self.robot.reset()
        self._loop = RealtimeLoop(
            self.controller,
            self.robot,
            self._fifo_priority,
            clock=self.clock,
            on_ready=self._on_ready,
            observers=self._observers,
        )
        self._thread = threading.Thread(target=self._run, args=(self._loop,), name="control", daemon=True)
        self._thread.start()

    def confirm(self) -> None:
        """Let the policy run.

        Raises:
            AndanteError: the controller is not `READY`.
        """
        if self._loop is not None:
            self._loop.confirm()

    def emergency_stop(self, reason: str) -> None:
        """Raise the event `e_stop`, if the robot is being driven."""
        if self._loop is not None:
            self._loop.emergency_stop(reason)

    def stop(self) -> None:
        """Have the stop sequence played (in `FAULT`: the fallback ended); returns at once."""
        if self._loop is not None:
            self._loop.stop()

    def halt(self) -> None:
        """Like `stop`, and waits until the robot is left alone."""
        self.stop()
        if self._thread is not None:
            self._thread.join()
        self.controller.deactivate()

    def clear(self) -> None:
        """End the fallback and take the latched fault away.

        Raises:
            AndanteError: it is running, and not in `FAULT`.
        """
        if self.running and self.controller.state is not State.FAULT:
            raise AndanteError(f"no fault to clear in state {self.controller.state.name}")
        self.halt()
        self.controller.clear()

    def _run(self, loop: RealtimeLoop) -> None:
        try:
            self.report = loop.run(UNLIMITED_S)
        except Exception:
            self.error = traceback.format_exc()
            self.controller.deactivate()

"""The real-time loop: one controller and one robot, at rate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .command import Sample
from .contract import Record
from .controller import Controller
from .errors import AndanteError
from .histogram import Histogram, Quantiles
from .realtime import Clock, MonotonicClock, tuned
from .robots.base import Robot
from .states import State

LONGEST_S = 1e9
"""Of a run: 30 years, so that its end fits into integer nanoseconds."""

_TIME_OVER = {
    State.WAIT_SENSORS: "never ready: a signal is not fresh",
    State.READY: "never confirmed",
}


class LoopReport(Record, frozen=True):
    """How a run went."""

    ticks: int
    missed: int
    """Ticks that passed without a command."""
    overruns: int
    """Ticks whose work ended after the next one's deadline."""
    jitter_us: Quantiles
    """From a tick's deadline until the loop woke for it."""
    step_us: Quantiles
    """The policy's inference."""
    tick_us: Quantiles
    """Read, decide, write."""
    decisions: int
    dropped: int
    starved: int
    saturations: int
    faults: tuple[str, ...]
    stopped: str
    """Why the run ended."""
    state: str
    """The controller's last state: `disabled` after a complete stop."""
    tuning: dict[str, str]
    """What the operating system granted."""

    def __str__(self) -> str:
        faults = "; ".join(self.faults) or "none"
        return "\n".join(
            [
                f"ticks        {self.ticks} ({self.missed} missed, {self.overruns} overruns)",
                f"jitter       {self.jitter_us}",
                f"inference    {self.step_us}",
                f"tick         {self.tick_us}",
                f"decisions    {self.decisions} ({self.dropped} dropped, {self.starved} starved ticks)",
                f"saturations  {self.saturations}",
                f"faults       {faults}",
                f"stopped      {self.stopped}",
                f"state        {self.state}",
                f"tuning       {', '.join(f'{name}: {result}' for name, result in self.tuning.items())}",
            ]
        )


@dataclass
class _Timing:
    jitter: Histogram = field(default_factory=Histogram)
    step: Histogram = field(default_factory=Histogram)
    work: Histogram = field(default_factory=Histogram)
    missed: int = 0
    overruns: int = 0


class RealtimeLoop:
    """Ticks at absolute deadlines: tick = floor((now - start) / period); a late one is not made up for."""

    def __init__(
        self,
        controller: Controller,
        robot: Robot,
        fifo_priority: int | None = None,
        cpu: int | None = None,
        clock: Clock | None = None,
        on_ready: Callable[[], None] | None = None,
    ) -> None:
        """Join a controller and a robot, whose `close` stays the caller's business.

        Args:
            controller: in `DISABLED`.
            robot: what to run it on.
            fifo_priority: for SCHED_FIFO, 1 to 99.
            cpu: the core to run on.
            clock: the system's monotonic clock when None; the robot's stamps must be of the same.
            on_ready: called whenever the controller becomes `READY` and its profile wants a confirmation;
                must return at once, and have `controller.confirm` called. An exception is an emergency stop.

        Raises:
            ProfileError: the robot cannot carry what the profile's fallback needs.
        """
        controller.check_output(robot.carries)
        self._controller = controller
        self._robot = robot
        self._fifo_priority = fifo_priority
        self._cpu = cpu
        self._clock = MonotonicClock() if clock is None else clock
        self._on_ready = on_ready
        self._stopping = False
        self._failed = False
        self._sample = Sample.allocate(controller.profile.signals, len(controller.profile.joints))

    def stop(self) -> None:
        """Have `run` play the stop sequence and return; may come from a signal handler or another thread."""
        self._stopping = True

    def run(self, seconds: float) -> LoopReport:
        """Start, let the policy run for `seconds`, stop softly.

        Waiting for sensors and for a confirmation may take `seconds` too, each. In `FAULT` the fallback's
        last command goes on until the time is over or `stop` is called; after a failure of the robot or of
        `on_ready` the run ends there.

        Raises:
            AndanteError: impossible `seconds`, or the controller is not `DISABLED` or has a latched fault.
        """
        if not 0.0 < seconds <= LONGEST_S:
            raise AndanteError(f"seconds must be positive and at most {LONGEST_S:g}, found {seconds}")
        controller, clock = self._controller, self._clock
        period_ns, duration_ns = controller.contract.control_period_ns, round(seconds * 1e9)
        timing = _Timing()
        controller.warmup()
        self._failed = False
        with tuned(self._fifo_priority, self._cpu) as tuning:
            controller.activate()
            start_ns = clock.now_ns()
            end_ns = start_ns + duration_ns
            tick, state = -1, controller.state
            stopped = "asked to"
            while not self._finished():
                expected = tick + 1
                clock.sleep_until_ns(start_ns + expected * period_ns)
                woken_ns = clock.now_ns()
                tick = (woken_ns - start_ns) // period_ns
                next_ns = start_ns + (tick + 1) * period_ns
                if tick > expected:
                    timing.missed += tick - expected
                    controller.overrun()
                timing.jitter.add(woken_ns - start_ns - expected * period_ns)
                decisions = controller.counters.decisions
                self._exchange(tick)
                if controller.counters.decisions != decisions:
                    timing.step.add(controller.worker.inference_ns)
                done_ns = clock.now_ns()
                timing.work.add(done_ns - woken_ns)
                if done_ns >= next_ns:
                    timing.overruns += 1
                    controller.overrun()
                if controller.state is not state:
                    state = controller.state
                    if state is State.READY:
                        self._confirm()
                    if state in (State.READY, State.RUN):
                        end_ns = next_ns - period_ns + duration_ns
                if not self._stopping and next_ns >= end_ns and state is not State.START:
                    self._stopping, stopped = True, _TIME_OVER.get(state, "time over")
                if self._stopping:
                    controller.stop()
        self._stopping = False
        return self._report(timing, tuning, stopped if controller.fault is None else "fault")

    def _report(self, timing: _Timing, tuning: dict[str, str], stopped: str) -> LoopReport:
        controller, counters = self._controller, self._controller.counters
        return LoopReport(
            ticks=counters.ticks,
            missed=timing.missed,
            overruns=timing.overruns,
            jitter_us=timing.jitter.quantiles(),
            step_us=timing.step.quantiles(),
            tick_us=timing.work.quantiles(),
            decisions=counters.decisions,
            dropped=counters.dropped,
            starved=counters.starved,
            saturations=counters.saturations,
            faults=() if controller.fault is None else (controller.fault,),
            stopped=stopped,
            state=controller.state.value,
            tuning=tuning,
        )

    def _finished(self) -> bool:
        state = self._controller.state
        return state is State.DISABLED or (state is State.FAULT and (self._stopping or self._failed))

    def _exchange(self, tick: int) -> None:
        """Read, tick, write. A failing robot is an emergency stop; the command still goes out if it can."""
        try:
            self._sample.take(self._robot.read())
        except Exception as error:  # its driver's exceptions are its own
            self._sample.lose()
            self._fail(f"robot {self._robot.name!r} failed to read", error)
        command = self._controller.tick(tick, self._sample)
        if command.mode == "disabled":
            return
        try:
            self._robot.write(command)
        except Exception as error:
            self._fail(f"robot {self._robot.name!r} failed to write", error)

    def _fail(self, what: str, error: Exception) -> None:
        self._failed = True
        self._controller.emergency_stop(f"{what}: {error!r}")

    def _confirm(self) -> None:
        if not self._controller.profile.confirm:
            self._controller.confirm()
        elif self._on_ready is not None:
            try:
                self._on_ready()
            except Exception as error:  # the robot moves: it must be stopped before anybody is told
                self._fail("operator failed to confirm", error)

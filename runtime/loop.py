"""The real-time loop: one controller and one robot, at rate."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from .command import JointCommand, OperatorInput, Sample
from .contract import Record
from .controller import Controller
from .errors import AndanteError
from .histogram import Histogram, Quantiles
from .operator import OperatorSource, command_components
from .realtime import Clock, MonotonicClock, SteadyClock, tuned
from .robots.base import Robot
from .states import State
from .worker import Worker

Observer = Callable[[int, Sample, JointCommand, int, int], None]
"""Is told after every tick: its number, what the controller was given and what it gave, to be copied; from
the tick's deadline until the loop woke, ns; and the duration of the work, ns. Must return at once."""
LONGEST_S = 1e9
"""Of a run: 30 years, so that its end fits into integer nanoseconds."""
WARMUP = 10
"""Inferences that do not count yet, and then, that are too few to judge by."""
WINDOW = 100
"""Inferences that are judged by."""

COUNTED = ("ticks", "decisions", "dropped", "refused", "starved", "saturations")
"""Counters that a report repeats."""


class LoopReport(Record, frozen=True):
    """How a run went."""

    ticks: int
    """With a command."""
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
    """Asked for on the grid."""
    dropped: int
    """Decisions that were not asked for."""
    refused: int
    """Chunks that came too late."""
    starved: int
    """Ticks that no chunk covered."""
    saturations: int
    """How often an action or a torque began to exceed its limit."""
    faults: tuple[str, ...]
    """What was latched; and an emergency stop that came on top."""
    fell: str | None
    """State and tick in which the fault came."""
    stopped: str
    """Why the run ended."""
    state: str
    """The controller's last state: `disabled` after a complete stop."""
    tuning: dict[str, str]
    """What the operating system granted."""

    def __str__(self) -> str:
        late = f"{self.dropped} dropped, {self.refused} refused, {self.starved} starved ticks"
        lines = {
            "ticks": f"{self.ticks} ({self.missed} missed, {self.overruns} overruns)",
            "jitter": self.jitter_us,
            "inference": self.step_us,
            "tick": self.tick_us,
            "decisions": f"{self.decisions} ({late})",
            "saturations": self.saturations,
            "faults": "; ".join(self.faults) or "none",
            "stopped": self.stopped if self.fell is None else f"{self.stopped} {self.fell}",
            "state": self.state,
            "tuning": ", ".join(f"{name}: {result}" for name, result in self.tuning.items()),
        }
        return "\n".join(f"{name:<12} {value}" for name, value in lines.items())


def _needed_ticks(durations_ns: deque[int], period_ns: int) -> int:
    """Whole ticks that the 95th percentile takes; one while there are too few to tell."""
    if len(durations_ns) < WARMUP:
        return 1
    return math.ceil(sorted(durations_ns)[math.ceil(0.95 * len(durations_ns)) - 1] / period_ns)


@dataclass
class _Timing:
    jitter: Histogram = field(default_factory=Histogram)
    step: Histogram = field(default_factory=Histogram)
    work: Histogram = field(default_factory=Histogram)
    latencies_ns: deque[int] = field(default_factory=lambda: deque(maxlen=WINDOW))
    """Of the worker's last inferences, the first ones left out; they only say when the delay must grow."""
    worker: Worker | None = None
    inferences: int = 0
    to_skip: int = WARMUP
    delay_ticks: int = 0
    missed: int = 0
    overruns: int = 0

    def follow(self, worker: Worker) -> None:
        """Judge by what this worker does from now on."""
        if worker is not self.worker:
            self.worker, self.inferences, self.to_skip = worker, worker.inferences, WARMUP
            self.delay_ticks = int(not worker.immediate)
            self.latencies_ns.clear()


@dataclass(eq=False)
class RealtimeLoop:
    """Ticks at absolute deadlines: tick = floor((now - start) / period); a late one is not made up for.

    `confirm`, `stop` and `emergency_stop` may come from signal handlers and other threads: the next tick
    obeys.

    Raises:
        ProfileError: the robot cannot carry what the profile's fallback needs.
    """

    controller: Controller
    """In `DISABLED`."""
    robot: Robot
    """What to run it on; its `close` stays the caller's business."""
    fifo_priority: int | None = None
    """For SCHED_FIFO, 1 to 99; an asynchronous worker gets one less."""
    cpu: int | None = None
    """The core to run on."""
    clock: Clock | None = None
    """The system's monotonic clock when None; the robot's stamps must be of the same."""
    on_ready: Callable[[], None] | None = None
    """Called whenever the controller becomes `READY` and its profile wants a confirmation, and again when one
    could not be heeded (`Controller.waiting`); must return at once, and have `confirm` called. An exception
    is an emergency stop."""
    operator: OperatorSource | None = None
    """What the operator has in hand."""
    observers: Sequence[Observer] = ()
    """Called after every tick, in that order. An exception is an emergency stop."""
    stopping: str | None = field(default=None, init=False)
    """Why the run is being ended."""

    def __post_init__(self) -> None:
        profile, contract = self.controller.profile, self.controller.contract
        self.controller.check_output(self.robot.carries)
        self._e_stop: str | None = None
        size = len(command_components(contract))
        self._sample = Sample.allocate(profile.signals, len(profile.joints), size)
        self._wishes = OperatorInput(np.zeros(size))

    def confirm(self) -> None:
        """Let the policy run.

        Raises:
            AndanteError: the controller is not `READY`.
        """
        if self.controller.state is not State.READY:
            raise AndanteError(f"cannot confirm in state {self.controller.state.name}, only in READY")
        self._confirmed = True

    def stop(self, reason: str = "asked to") -> None:
        """Have `run` play the stop sequence and return."""
        self.stopping = self.stopping or reason

    def emergency_stop(self, reason: str = "operator") -> None:
        """Press the emergency stop, until the run is over."""
        self._e_stop = reason

    def run(self, seconds: float) -> LoopReport:
        """Start, let the policy run for `seconds`, stop softly.

        Waiting for sensors and for a confirmation may take `seconds` too, each. In `FAULT` the fallback's
        last command goes on until the time is over or `stop` is called; after a failure of the robot or of a
        callback the run ends there.

        Raises:
            AndanteError: impossible `seconds`, or the controller is not `DISABLED` or has a latched fault.
        """
        if not 0.0 < seconds <= LONGEST_S:
            raise AndanteError(f"seconds must be positive and at most {LONGEST_S:g}, found {seconds}")
        controller, sample, clock = self.controller, self._sample, SteadyClock(self.clock or MonotonicClock())
        period_ns, duration_ns = controller.contract.control_period_ns, round(seconds * 1e9)
        timing = _Timing()
        controller.warmup()
        self._failed = self._confirmed = self._unheeded = self._wanted = False
        with tuned(self.fifo_priority, self.cpu) as tuning:
            controller.activate()
            start_ns = clock.now_ns()
            end_ns = start_ns + duration_ns
            tick, state, overrun = -1, controller.state, False
            while not self._finished():
                expected = tick + 1
                deadline_ns = start_ns + expected * period_ns
                clock.sleep_until_ns(deadline_ns)
                woken_ns = clock.now_ns()
                if clock.lost_ns and self._e_stop is None:
                    self.emergency_stop(f"the clock went back by {clock.lost_ns * 1e-6:.1f} ms")
                tick = (woken_ns - start_ns) // period_ns
                next_ns = start_ns + (tick + 1) * period_ns
                lateness_ns = woken_ns - deadline_ns
                timing.missed += tick - expected
                timing.jitter.add(lateness_ns)
                sample.overrun = overrun or tick > expected
                tuning.adopt(controller.next_worker.thread_id)
                command = self._exchange(tick, timing)
                work_ns = clock.now_ns() - woken_ns
                timing.work.add(work_ns)
                for observe in self.observers:
                    self._attempt("observer failed", observe, tick, sample, command, lateness_ns, work_ns)
                overrun = clock.now_ns() >= next_ns
                timing.overruns += overrun
                changed, state = controller.state is not state, controller.state
                asks = state is State.READY and controller.profile.confirm and (changed or self._unheeded)
                if asks and self.on_ready is not None:
                    self._attempt("operator failed to confirm", self.on_ready)
                if changed and state in (State.READY, State.RUN):
                    end_ns = next_ns - period_ns + duration_ns
                if self.stopping is None and next_ns >= end_ns and state is not State.START:
                    waiting = controller.waiting
                    over = "never confirmed" if state is State.READY else "time over"
                    self.stop(over if waiting is None else f"never ready: {waiting}")
        stopped = "fault" if controller.fault is not None else self.stopping or "asked to"
        report = self._report(timing, tuning.results, stopped)
        self.stopping = self._e_stop = None
        return report

    def _report(self, timing: _Timing, tuning: dict[str, str], stopped: str) -> LoopReport:
        controller, counters = self.controller, vars(self.controller.counters)
        state, tick = controller.fell
        fault, stop = controller.fault or "", self._e_stop
        more = () if stop is None or fault.startswith("e_stop: ") else (f"e_stop: {stop}",)
        return LoopReport(
            **{name: counters[name] for name in COUNTED},
            missed=timing.missed,
            overruns=timing.overruns,
            jitter_us=timing.jitter.quantiles(),
            step_us=timing.step.quantiles(),
            tick_us=timing.work.quantiles(),
            faults=(fault, *more) if fault else (),
            fell=f"in {state.name} at tick {tick}" if fault else None,
            stopped=stopped,
            state=controller.state.value,
            tuning=tuning,
        )

    def _finished(self) -> bool:
        state, ended = self.controller.state, self._failed or self.stopping is not None
        return state is State.DISABLED or (state is State.FAULT and ended and not self.controller.falling)

    def _exchange(self, tick: int, timing: _Timing) -> JointCommand:
        """Read, tick, write. A failing robot is an emergency stop; the command still goes out if it can."""
        sample, controller, worker = self._sample, self.controller, self.controller.worker
        timing.follow(worker)
        self._robot_stop: str | None = None
        if not self._attempt(f"robot {self.robot.name!r} failed to read", self._read):
            sample.lose()
        self._consult()
        sample.answered, sample.delay_ticks = controller.answered, timing.delay_ticks
        try:
            command = controller.tick(tick, sample)
        except Exception as error:
            self._failed = True
            command = controller.give_up(f"the controller failed: {error!r}")
        if worker.inferences != timing.inferences:
            timing.inferences = worker.inferences
            timing.step.add(worker.inference_ns)
            timing.to_skip -= 1
            if not worker.immediate and timing.to_skip < 0:
                timing.latencies_ns.append(worker.inference_ns)
                period_ns = controller.contract.control_period_ns
                timing.delay_ticks = _needed_ticks(timing.latencies_ns, period_ns)
        self._unheeded &= controller.state is State.READY
        if command.mode != "disabled":
            self._attempt(f"robot {self.robot.name!r} failed to write", self.robot.write, command)
        return command

    def _read(self) -> None:
        found = self.robot.read()
        self._robot_stop = found.operator.e_stop
        self._sample.take(found)

    def _consult(self) -> None:
        """Put into the sample what operator, robot and other threads want."""
        wants, wishes = self._sample.operator, self._wishes
        wishes.start = wishes.stop = False
        wishes.e_stop = None
        if self.operator is not None:
            self._attempt("operator's device failed", self.operator.poll, wishes, self._sample.now_ns)
        self._attempt("operator's device failed", wants.take, wishes)
        # A confirmation is for now: what it meets with later is not what the operator has seen.
        if confirmed := self._confirmed:
            wants.start, self._confirmed = True, False
        self._unheeded = confirmed or (wants.start and not self._wanted)
        self._wanted = wants.start
        wants.stop |= self.stopping is not None
        for reason in (self._robot_stop, self._e_stop):
            wants.e_stop = reason if wants.e_stop is None else wants.e_stop

    def _attempt(self, what: str, act: Callable[..., object], *arguments: object) -> bool:
        """Call what others wrote. Whatever it raises, the robot must be stopped before anybody is told."""
        try:
            act(*arguments)
        except Exception as error:
            self._failed = True
            self._e_stop = f"{what}: {error!r}"
            return False
        return True

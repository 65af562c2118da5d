"""`andante run`: a policy file on a robot, at rate."""

from __future__ import annotations

import signal
import sys
import termios
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import tyro

from ..cli import discard_output
from ..controller import Controller
from ..errors import AndanteError
from ..loop import Observer, RealtimeLoop
from ..operator import command_components, open_operator
from ..planner import Mode
from ..policy import load_policy
from ..profile import load_profile
from ..realtime import VirtualClock
from ..recorder.options import NOT_RECORDED, RecordingOptions
from ..robots.base import open_robot
from ..view.options import NOT_VIEWED, ViewOptions
from ..worker import AsynchronousWorker


def run(
    policy: Annotated[Path, tyro.conf.Positional],
    robot: str = "null",
    robot_option: tuple[str, ...] = (),
    command: str = "none",
    profile: Path | None = None,
    seconds: float = 60.0,
    execution_horizon: int | None = None,
    inference_delay: int | None = None,
    mode: Mode | None = None,
    overlap: int | None = None,
    asynchronous: bool = False,
    fifo_priority: int | None = None,
    cpu: int | None = None,
    report: Path | None = None,
    yes: bool = False,
    fast: bool = False,
    recording: Annotated[RecordingOptions, tyro.conf.arg(name="")] = NOT_RECORDED,
    viewing: Annotated[ViewOptions, tyro.conf.arg(name="")] = NOT_VIEWED,
) -> int:
    """Run a policy file on a robot, at rate.

    Starts softly, runs, stops softly; prints a report. Ctrl-C stops softly, a second one is an emergency
    stop; so do SIGTERM and SIGHUP. Exit status: 0, 1 after a fault or if the policy never ran, 130 after
    Ctrl-C.

    Args:
        policy: exported policy file.
        robot: `null`, `sim`, `udp`, `replay`, or one that another package registers.
        robot_option: options of that robot, as `name=value`; `local` and `remote` addresses of `udp`,
            `recording` of `replay`.
        command: the operator's device: `keyboard`, `gamepad[:DEVICE]`, `udp[:HOST:PORT]` or `none`; in
            simulation also `fixed:VALUES`, as in `fixed:0.8,0,0`.
        profile: robot profile (YAML); the shipped one of the policy's robot model when left out.
        seconds: how long the policy runs.
        execution_horizon: ticks between decisions; the policy's default when left out.
        inference_delay: ticks from an observation until its chunk acts; the policy's default when left out.
        mode: how chunks follow each other; what the policy was trained for when left out.
        overlap: ticks over which a new chunk takes over in mode `blend`; a third of it when left out.
        asynchronous: decide in a thread of its own while the current chunk plays.
        fifo_priority: priority for SCHED_FIFO, 1 to 99.
        cpu: the core to run on.
        report: also write the report to this file, as JSON.
        yes: confirm without asking, where the profile wants an operator's confirmation.
        fast: do not wait for the clock; with `--robot sim`.
    """
    session = load_policy(policy)
    robot_profile = load_profile(session.contract.robot_model if profile is None else profile)
    worker = AsynchronousWorker(session) if asynchronous else None
    controller = Controller(session, robot_profile, execution_horizon, worker, inference_delay, mode, overlap)
    if report is not None:
        _write(report, b"", "ab")  # what is wrong with it is told before the run
    if fast and robot != "sim":
        raise AndanteError(f"--fast is for --robot sim, whose clock is the simulation's, found {robot!r}")
    observers: list[Observer] = []
    with ExitStack() as opened:
        opened.callback(controller.close)
        recorder = recording.open(controller, fifo_priority is not None)
        if recorder is not None:
            opened.callback(recorder.close)
            observers.append(recorder.add)
        machine = open_robot(robot, robot_option, session.contract, robot_profile)
        opened.callback(machine.close)
        page = viewing.open(controller, machine, lambda: loop)
        if page is not None:
            opened.callback(page.close)
            observers.append(page.after_tick)
            print(f"view at {page.url}", flush=True)
        if command.startswith("fixed") and robot != "sim":
            raise AndanteError(
                f"--command {command}: for --robot sim only, found {robot!r}: nobody could let go"
            )
        operator = open_operator(command, command_components(session.contract))
        if operator is not None:
            opened.callback(operator.close)
        driven = machine if page is None else page.robot
        clock = VirtualClock() if fast else None

        def on_ready() -> None:
            if yes:
                loop.confirm()
            elif operator is not None and operator.hint:
                print(f"ready; {operator.hint}", flush=True)
            else:
                asking.ask()

        loop = RealtimeLoop(controller, driven, fifo_priority, cpu, clock, on_ready, operator, observers)
        asking = _Asking(loop)
        with _interrupts(loop) as received:
            result = loop.run(seconds)
        link = getattr(machine, "link", None)
    try:
        if report is not None:
            _write(report, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    finally:
        told = {"datagrams": link, "recording": recorder and recorder.told, "view": page and page.error}
        lines = [f"{name:<12} {text}" for name, text in told.items() if text is not None]
        _print("\n".join([str(result), *lines]), result.faults)
    if received and not result.faults:
        return 128 + received[-1]
    return 1 if result.faults or not result.decisions else 0


def _write(path: Path, content: bytes, mode: str = "wb") -> None:
    try:
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}, cannot write the report") from None


def _print(text: str, faults: tuple[str, ...]) -> None:
    try:
        print(text, flush=True)
    except OSError as error:  # whoever read the output has left
        discard_output()
        told = "; ".join(faults) or "none"
        with suppress(OSError):
            print(f"andante: cannot print the report ({error.strerror}); faults: {told}", file=sys.stderr)


@contextmanager
def _interrupts(loop: RealtimeLoop) -> Iterator[list[int]]:
    """While in force, the first SIGINT, SIGTERM or SIGHUP stops softly, the next one at once.

    Yields:
        The signals received.
    """
    received: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if received:
            loop.emergency_stop("operator interrupted twice")
        received.append(number)
        loop.stop()

    numbers = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` means it
        numbers.append(signal.SIGHUP)
    previous = {number: signal.signal(number, handle) for number in numbers}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Asking:
    """Asks at standard input, with one reader for the life of a loop: a second would take its line."""

    def __init__(self, loop: RealtimeLoop) -> None:
        self._loop = loop
        self._asked = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)

    def ask(self) -> None:
        """Ask; the answer comes from a thread, while the loop goes on."""
        with suppress(termios.error):  # no terminal; in one, what was typed before is no answer
            termios.tcflush(0, termios.TCIFLUSH)
        self._asked.set()
        print("ready; press Enter to let the policy run", flush=True)
        if not self._reader.ident:
            self._reader.start()

    def _read(self) -> None:
        while self._asked.wait() and sys.stdin.readline():
            self._asked.clear()
            with suppress(AndanteError):  # READY no longer
                self._loop.confirm()
        print("andante: nobody at standard input; --yes confirms without asking", file=sys.stderr)
        self._loop.stop()

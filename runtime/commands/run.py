"""`andante run`: a policy file on a robot, at rate."""

from __future__ import annotations

import os
import signal
import sys
import termios
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import tyro

from ..controller import Controller
from ..errors import AndanteError
from ..loop import RealtimeLoop
from ..operator import command_components, open_operator
from ..planner import Mode
from ..policy import load_policy
from ..profile import load_profile
from ..realtime import VirtualClock
from ..recorder.options import NOT_RECORDED, RecordingOptions
from ..robots.base import open_robot
from ..view.options import NOT_VIEWED, ViewOptions
from ..worker import AsynchronousWorker
from . import discard_output


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
    Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.

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
    if robot != "sim" and (fast or command.startswith("fixed")):
        raise AndanteError(f"--fast and --command fixed are for --robot sim only, found {robot!r}")
    recording.check(report)
    if report is not None:
        _write(report, b"")  # what is wrong with it is told before the run
    running: list[RealtimeLoop] = []
    troubles: list[str] = []
    with _interrupts(running) as received, ExitStack() as opened:
        opened.callback(_attempt, troubles, "close the controller", controller.close)
        machine = open_robot(robot, robot_option, session.contract, robot_profile)
        opened.callback(_attempt, troubles, f"close robot {robot!r}", machine.close)
        page = viewing.open(controller, machine, lambda: loop)
        if page is not None:
            opened.callback(_attempt, troubles, "close the page", page.close)
            print(f"view at {page.url}", flush=True)
        operator = open_operator(command, command_components(session.contract))
        if operator is not None:
            opened.callback(_attempt, troubles, "close the operator's device", operator.close)
        driven = machine if page is None else page.robot
        clock = VirtualClock() if fast else None
        loop = RealtimeLoop(controller, driven, fifo_priority, cpu, clock, operator=operator)
        loop.on_ready = loop.confirm if yes else _Asking(loop, getattr(operator, "hint", "")).ready.set
        running.append(loop)
        recorder = recording.open(controller, fifo_priority is not None)
        if recorder is not None:
            opened.callback(_attempt, troubles, "close the recording", recorder.close)
        # The page may restart the controller: what the tick was is recorded before.
        loop.observers = [each for each in (recorder and recorder.add, page and page.after_tick) if each]
        result = loop.run(seconds)
        if report is not None:
            text = msgspec.json.format(msgspec.json.encode(result)) + b"\n"
            opened.callback(_attempt, troubles, "write the report", _write, report, text)
    link = getattr(machine, "link", None)
    told = {"datagrams": link, "recording": recorder and recorder.told, "view": page and page.error}
    lines = [f"{name:<12} {text}" for name, text in told.items() if text is not None]
    _print("\n".join([str(result), *lines]), result.faults)
    if troubles:
        raise AndanteError("; ".join(troubles))
    if received and not result.faults:
        return 128 + received[-1]
    return 1 if result.faults or not result.decisions else 0


def _attempt(troubles: list[str], what: str, act: Callable[..., None], *arguments: object) -> None:
    try:
        act(*arguments)
    except Exception as error:  # the rest must be closed and told nevertheless
        troubles.append(str(error) if isinstance(error, AndanteError) else f"cannot {what}: {error!r}")


def _write(path: Path, content: bytes) -> None:
    """All of it or nothing; without content only try, and take away an older one."""
    target = Path(os.path.realpath(path))
    part = Path(f"{target}.{os.getpid()}.part")
    try:
        if target.exists() and not target.is_file():
            raise AndanteError(f"{path}: no regular file, cannot write the report")
        part.write_bytes(content)
        target.unlink(missing_ok=True)
        if content:
            part.replace(target)
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}, cannot write the report") from None
    finally:
        with suppress(OSError):
            part.unlink()


def _print(text: str, faults: tuple[str, ...]) -> None:
    try:
        print(text, flush=True)
    except (OSError, KeyboardInterrupt) as error:  # whoever read the output has left, or reads no more
        discard_output()
        told, why = "; ".join(faults) or "none", getattr(error, "strerror", "interrupted")
        with suppress(OSError):
            print(f"andante: cannot print the report ({why}); faults: {told}", file=sys.stderr)


@contextmanager
def _interrupts(running: list[RealtimeLoop]) -> Iterator[list[int]]:
    """While in force, the first SIGINT, SIGTERM or SIGHUP stops the loop softly, the next one at once.

    Before a loop is `running` they end the command.

    Yields:
        The signals received.
    """
    received: list[int] = []

    def handle(number: int, _frame: FrameType | None) -> None:
        if not running:
            raise KeyboardInterrupt if number == signal.SIGINT else SystemExit(128 + number)
        if received:
            running[0].emergency_stop("operator interrupted twice")
        received.append(number)
        running[0].stop()

    ignored = signal.getsignal(signal.SIGHUP) is signal.SIG_IGN  # `nohup` means it
    numbers = [signal.SIGINT, signal.SIGTERM] + [signal.SIGHUP] * (not ignored)
    previous = {number: signal.signal(number, handle) for number in numbers}
    for number in (signal.SIGTTIN, signal.SIGTTOU):  # a question from a shell's background stops no loop
        previous[number] = signal.signal(number, signal.SIG_IGN)
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


class _Asking:
    """Tells that the robot is ready, and asks at standard input where the operator has no device.

    In threads of its own: neither who does not read nor who does not answer may stop the loop. One reader for
    the life of the loop: a second would take its line.
    """

    def __init__(self, loop: RealtimeLoop, hint: str) -> None:
        self._loop, self._hint = loop, hint
        self.ready, self._asked = threading.Event(), threading.Event()
        for serve in (self._tell, self._read):
            threading.Thread(target=serve, daemon=True).start()

    def _tell(self) -> None:
        with suppress(OSError):
            while self.ready.wait():
                self.ready.clear()
                if not self._hint:
                    with suppress(termios.error):  # no terminal; in one, what was typed before is no answer
                        termios.tcflush(0, termios.TCIFLUSH)
                    self._asked.set()
                waiting = self._loop.controller.waiting
                ready = "ready" if waiting is None else f"not started: {waiting}"
                text = f"{ready}; {self._hint or 'press Enter to let the policy run'}\n"
                if sys.stdout is not None:  # whose lock `print` would hold for as long as nobody reads
                    os.write(sys.stdout.fileno(), text.encode())
        self._loop.stop("nobody reads the output")

    def _read(self) -> None:
        with suppress(OSError, ValueError):  # cannot be read, or is no text
            while self._asked.wait() and sys.stdin is not None and sys.stdin.readline():
                self._asked.clear()
                with suppress(AndanteError):  # READY no longer
                    self._loop.confirm()
        self._loop.stop("nobody at standard input")
        print("andante: nobody at standard input; --yes confirms without asking", file=sys.stderr)

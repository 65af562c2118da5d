"""`andante run`: a policy file on a robot, at rate."""

from __future__ import annotations

import signal
import sys
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
from ..operator import OperatorSource, command_components, open_operator
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
        command: the operator's device: `keyboard`, `gamepad[:DEVICE]`, `udp[:HOST:PORT]` or `none`.
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
        operator = open_operator(command, command_components(session.contract))
        if operator is not None:
            opened.callback(operator.close)
        driven = machine if page is None else page.robot
        clock = VirtualClock() if fast else None

        def on_ready() -> None:
            _ask(loop, operator, yes)

        loop = RealtimeLoop(controller, driven, fifo_priority, cpu, clock, on_ready, operator, observers)
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


def _ask(loop: RealtimeLoop, operator: OperatorSource | None, yes: bool) -> None:
    """Wait for the operator: at the device, or at standard input in a thread while the loop goes on."""
    if yes:
        loop.confirm()
        return
    if operator is not None:
        print(f"ready; {operator.hint}", flush=True)
        return
    print("ready; press Enter to let the policy run", flush=True)

    def wait() -> None:
        if not sys.stdin.readline():
            print("andante: nobody at standard input; --yes confirms without asking", file=sys.stderr)
            loop.stop()
            return
        with suppress(AndanteError):  # READY no longer
            loop.confirm()

    threading.Thread(target=wait, daemon=True).start()

"""`andante run`: a policy file on a robot, at rate."""

from __future__ import annotations

import signal
import sys
import threading
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Annotated

import msgspec
import tyro

from ..cli import discard_output
from ..controller import Controller
from ..errors import AndanteError
from ..loop import LoopReport, RealtimeLoop
from ..policy import load_policy
from ..profile import load_profile
from ..robots.base import find_robot
from ..states import State


def run(
    policy: Annotated[Path, tyro.conf.Positional],
    robot: str = "null",
    profile: Path | None = None,
    seconds: float = 60.0,
    execution_horizon: int | None = None,
    fifo_priority: int | None = None,
    cpu: int | None = None,
    report: Path | None = None,
    yes: bool = False,
) -> int:
    """Run a policy file on a robot, at rate.

    Starts softly, runs, stops softly; prints a report. Ctrl-C stops softly, a second one is an emergency
    stop; so do SIGTERM and SIGHUP. Exit status: 0, 1 after a fault or if the policy never ran, 130 after
    Ctrl-C.

    Args:
        policy: exported policy file.
        robot: `null`, `sim`, or one that another package registers.
        profile: robot profile (YAML); the shipped one of the policy's robot model when left out.
        seconds: how long the policy runs.
        execution_horizon: ticks between decisions; the policy's default when left out.
        fifo_priority: priority for SCHED_FIFO, 1 to 99.
        cpu: the core to run on.
        report: also write the report to this file, as JSON.
        yes: confirm without asking, where the profile wants an operator's confirmation.
    """
    session = load_policy(policy)
    robot_profile = load_profile(session.contract.robot_model if profile is None else profile)
    controller = Controller(session, robot_profile, execution_horizon)
    if report is not None:
        _write(report, b"", "ab")  # what is wrong with it is told before the run
    machine = find_robot(robot)(session.contract, robot_profile)
    try:
        on_ready = controller.confirm if yes else lambda: _ask(controller)
        loop = RealtimeLoop(controller, machine, fifo_priority, cpu, on_ready=on_ready)
        with _Interrupts(loop, controller) as interrupts:
            result = loop.run(seconds)
    finally:
        machine.close()
    try:
        if report is not None:
            _write(report, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    finally:
        _print(result)
    if interrupts.received and not result.faults:
        return 128 + interrupts.received
    return 1 if result.faults or not result.decisions else 0


def _write(path: Path, content: bytes, mode: str = "wb") -> None:
    try:
        with path.open(mode) as file:
            file.write(content)
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}, cannot write the report") from None


def _print(result: LoopReport) -> None:
    try:
        print(result, flush=True)
    except OSError as error:  # whoever read the output has left
        discard_output()
        faults = "; ".join(result.faults) or "none"
        with suppress(OSError):
            print(f"andante: cannot print the report ({error.strerror}); faults: {faults}", file=sys.stderr)


class _Interrupts:
    """While in force, the first SIGINT, SIGTERM or SIGHUP stops softly, the next one at once."""

    def __init__(self, loop: RealtimeLoop, controller: Controller) -> None:
        self.received = 0
        self._loop = loop
        self._controller = controller

    def __enter__(self) -> _Interrupts:
        numbers = [signal.SIGINT, signal.SIGTERM]
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # `nohup` means it
            numbers.append(signal.SIGHUP)
        self._previous = {number: signal.signal(number, self._handle) for number in numbers}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        if self.received:
            self._controller.emergency_stop("operator interrupted twice")
        self.received = number
        self._loop.stop()


def _ask(controller: Controller) -> None:
    """Wait for the operator in a thread of its own: the loop goes on meanwhile."""
    print("ready; press Enter to let the policy run", flush=True)

    def wait() -> None:
        if not sys.stdin.readline():
            print("andante: nobody at standard input; --yes confirms without asking", file=sys.stderr)
            controller.stop()
        elif controller.state is State.READY:
            controller.confirm()

    threading.Thread(target=wait, daemon=True).start()

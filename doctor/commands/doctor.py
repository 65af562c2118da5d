"""`andante doctor`: what is to be changed in a machine, or in a robot's profile."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable
from pathlib import Path

from andante.runtime.contract import NO_ASSERTION, SCHEMA, Contract, Licences, Trained, Verification
from andante.runtime.errors import AndanteError
from andante.runtime.profile import Profile, load_profile
from andante.runtime.robots.base import open_robot

from ..machine import inspect_machine, judge_jitter, load, measure_jitter
from ..motion import Instruction
from ..robot import examine

POLL_S = 0.02


def doctor(
    robot: str | None = None,
    profile: Path | None = None,
    robot_option: tuple[str, ...] = (),
    seconds: float = 5.0,
    rate: float = 50.0,
    fifo_priority: int = 50,
    cpu: int | None = None,
) -> int:
    """Inspect this machine, or a robot.

    Without `--robot`: tells what the machine grants a control loop, how late it wakes one up, idle and with
    every core busy, and what to change; the exit status is 0 all the same. With `--robot`: asks for every
    joint to be moved and every axis to be tilted by hand, commands nothing, and names wrong order, sign,
    offset or frame; the exit status is 1 when something is wrong.

    Args:
        robot: `udp`, or one that another package registers.
        profile: of that robot.
        robot_option: options of that robot, as `name=value`.
        seconds: for which wake-ups are measured, twice.
        rate: of the loop to come, Hz.
        fifo_priority: to ask for, 1 to 99.
        cpu: core to measure on.
    """
    if robot is None:
        if profile is not None or robot_option:
            raise AndanteError("--profile and --robot-option are for --robot")
        _inspect(seconds, rate, fifo_priority, cpu)
        return 0
    if robot == "sim":
        raise AndanteError("--robot sim: nobody can move a simulated robot by hand")
    if profile is None:
        raise AndanteError("--robot needs --profile: what the robot is compared with")
    owned = load_profile(profile)
    machine = open_robot(robot, robot_option, _contract_of(owned), owned)
    try:
        found = examine(machine, owned, _ask)
    finally:
        machine.close()
    print("\n".join(found) or "order, signs, offsets and frames are those of the profile")
    return 1 if found else 0


def _inspect(seconds: float, rate: float, fifo_priority: int, cpu: int | None) -> None:
    for option, value in (("seconds", seconds), ("rate", rate)):
        if not 0.0 < value < 1e6:
            raise AndanteError(f"--{option} must be positive and below 1e6, found {value}")
    found = inspect_machine(fifo_priority, cpu)
    granted = any(finding.name == "SCHED_FIFO" and finding.found == "ok" for finding in found)
    print(*found, sep="\n", flush=True)
    idle = measure_jitter(rate, seconds, fifo_priority, cpu)
    print(judge_jitter("jitter, idle", idle, rate, granted), flush=True)
    with load(len(os.sched_getaffinity(0))):
        loaded = measure_jitter(rate, seconds, fifo_priority, cpu)
    print(judge_jitter("jitter, loaded", loaded, rate, granted))


def _ask(words: str, instruction: Instruction) -> Callable[[], bool]:
    print(f"{words}: {instruction}; then press Enter", flush=True)
    return _is_entered


def _is_entered() -> bool:
    if sys.stdin is not None and not select.select([sys.stdin], [], [], POLL_S)[0]:
        return False
    if sys.stdin is None or not sys.stdin.readline():  # none: it was closed before this process began
        raise AndanteError("nobody at standard input")
    return True


def _contract_of(profile: Profile) -> Contract:
    """Of a policy that reads and drives nothing: robots are opened with one."""
    return Contract(
        schema=SCHEMA,
        task="doctor",
        robot_model=profile.robot_model,
        control_period_ns=round(POLL_S * 1e9),
        decimation=1,
        chunk_size=1,
        execution_horizon=Trained(values=(1,), default=1),
        inference_delay=Trained(values=(0,), default=0),
        max_gap_ticks=0,
        sources=(),
        actions=(),
        states=(),
        licences=Licences(policy=NO_ASSERTION, robot_model=NO_ASSERTION, data=NO_ASSERTION),
        provenance={},
        verification=Verification(decisions=0, resets=0, max_action_error=0.0, max_state_error=0.0),
    )

"""The simulated robot in a process of its own, in real time, behind UDP."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import numpy as np
import tyro

from andante.runtime.artifact import read_artifact
from andante.runtime.command import JointCommand
from andante.runtime.contract import Contract
from andante.runtime.errors import AndanteError
from andante.runtime.loop import LONGEST_S
from andante.runtime.profile import Profile, load_profile
from andante.runtime.realtime import Clock, MonotonicClock
from andante.runtime.robots.udp import BRIDGE, CONTROLLER

from .motor_bridge import MotorBridge
from .robot import SimRobot


class UdpSimulator:
    """A `SimRobot` behind a `MotorBridge`, which looks for a command before every physics step."""

    robot: SimRobot

    def __init__(
        self, contract: Contract, profile: Profile, bridge: MotorBridge, clock: Clock | None = None
    ) -> None:
        """Build the simulation; `bridge` stays the caller's.

        Raises:
            AndanteError: contract and profile do not fit, or there is no such task or robot model.
        """
        step_ns, rest_ns = divmod(contract.control_period_ns, contract.decimation)
        if rest_ns == 0:  # the same physics, in as many ticks as it has steps
            contract = msgspec.structs.replace(contract, control_period_ns=step_ns, decimation=1)
        self.robot = SimRobot(contract, profile)
        self._period_ns = contract.control_period_ns
        self._bridge = bridge
        self._clock = MonotonicClock() if clock is None else clock
        self._host = profile.pd_loop == "host"
        self._actuated = np.flatnonzero([joint.actuated for joint in profile.joints])

    def run(
        self,
        going_on: Callable[[], bool] = lambda: True,
        on_change: Callable[[bool], None] = lambda valid: None,
    ) -> None:
        """Simulate in real time while `going_on()`; time that was missed is simulated at once.

        `on_change` is told whenever commands begin or cease to be valid.
        """
        start_ns, tick, valid = self._clock.now_ns(), 0, False
        while going_on():
            self._bridge.send(self.robot.read())
            self._clock.sleep_until_ns(start_ns + tick * self._period_ns)
            now_ns = self._clock.now_ns()
            tick = (now_ns - start_ns) // self._period_ns
            self._step(tick, now_ns)
            tick += 1
            if self._bridge.valid is not valid:
                valid = self._bridge.valid
                on_change(valid)

    def _step(self, tick: int, now_ns: int) -> None:
        command = self._bridge.command(now_ns)
        command.tick = tick
        if self._host and not self._bridge.valid:
            self._brake(command)
        self.robot.write(command)

    def _brake(self, command: JointCommand) -> None:
        """Drives without a loop of their own get their damping as torque."""
        velocity = self.robot.read().values["joint_velocity"][self._actuated]
        np.multiply(command.kd, -velocity, out=command.tau_ff)


def simulate(
    policy: Annotated[Path, tyro.conf.Positional],
    profile: Path | None = None,
    local: str = BRIDGE,
    remote: str = CONTROLLER,
    on_expiry: Literal["damping", "zero"] = "damping",
    seconds: float | None = None,
) -> None:
    """Simulate a policy's robot in real time behind UDP, for `andante run --robot udp`, until Ctrl-C.

    Args:
        policy: exported policy file; says which robot, and which physics it was trained in.
        profile: robot profile (YAML); the shipped one of the policy's robot model when left out.
        local: address (`host:port`) to take commands at.
        remote: address of the controller.
        on_expiry: what the motors do without a valid command: the profile's gains `damping`, or no torque.
        seconds: how long; without end when left out.
    """
    if seconds is not None and not 0.0 < seconds <= LONGEST_S:
        raise AndanteError(f"--seconds must be positive and at most {LONGEST_S:g}, found {seconds}")
    contract = read_artifact(policy).contract
    robot_profile = load_profile(contract.robot_model if profile is None else profile)
    damping = robot_profile.kd("damping") if on_expiry == "damping" else None
    bridge = MotorBridge(robot_profile, damping, local, remote)
    clock = MonotonicClock()
    end_ns = None if seconds is None else clock.now_ns() + round(seconds * 1e9)
    stopped: list[int] = []
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: stopped.append(number))

    def going_on() -> bool:
        return not stopped and (end_ns is None or clock.now_ns() < end_ns)

    def tell(valid: bool) -> None:
        print("commands are valid" if valid else f"no valid command: {on_expiry}", flush=True)

    try:
        simulator = UdpSimulator(contract, robot_profile, bridge, clock)
        print(f"simulating {contract.robot_model} at {local} for {remote}", flush=True)
        simulator.run(going_on, tell)
        print(f"datagrams: {bridge.link}", flush=True)
    finally:
        bridge.close()

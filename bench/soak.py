"""Random faults without end: the loop in fast mode on simulated robots, whatever their sensors and links do.

    python bench/soak.py [--ticks 1000000] [--robots pendulum arm quadruped]

Runs follow each other, each with other faults. Every tick is checked: exactly one command, finite, positions
within the profile's range, torques (by the measurement that the controller had) within its effort, unless the
robot's drives see to that (the quadruped's do). The last line is JSON: how often each was violated, and how
much memory grew over the last four fifths of the ticks (in short runs the allocator's heap is still growing).
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
from collections import Counter
from pathlib import Path

import msgspec
import numpy as np
from common import gru_contract, gru_policy

from andante.runtime.command import FIELDS, JointCommand, Sample
from andante.runtime.controller import Controller
from andante.runtime.loop import RealtimeLoop
from andante.runtime.profile import Profile, load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.robots.base import Robot
from andante.sim.faults import Fault, FaultyRobot, random_faults
from andante.sim.robot import SimRobot

RUN_TICKS = 500
"""Of a policy; the start and the stop come on top."""
GAP = 150
"""Mean ticks between two faults."""
GROWTH_KB = 2000
ROUNDING = 1e-9
VIOLATIONS = ("exceptions", "not one command", "not finite", "position outside", "torque outside")


class Auditor:
    """Stands between the loop and a robot, and checks every tick's command."""

    def __init__(self, robot: Robot, profile: Profile, counts: Counter[str]) -> None:
        self.name, self.joints, self.carries = robot.name, robot.joints, robot.carries
        self.read, self.close = robot.read, robot.close
        self._robot, self._counts = robot, counts
        self._effort = np.array([joint.effort for joint in profile.actuated]) * (1 + ROUNDING)
        self._low, self._high = np.array(
            [joint.position or (-np.inf, np.inf) for joint in profile.actuated]
        ).T
        self._columns = np.flatnonzero([joint.actuated for joint in profile.joints])
        self._limited = profile.effort_limited_by == "controller"
        self._last, self._written = -1, 0

    def write(self, command: JointCommand) -> None:
        self._written += 1
        self._robot.write(command)

    def check(self, tick: int, sample: Sample, command: JointCommand, *_: int) -> None:
        """Called by the loop after every tick."""
        counts = self._counts
        counts["ticks"] += 1
        counts["not one command"] += not (
            self._written == (command.mode != "disabled") and command.tick == tick > self._last
        )
        self._last, self._written = tick, 0
        counts["not finite"] += not all(np.isfinite(getattr(command, name)).all() for name in FIELDS)
        if command.mode != "disabled":
            counts["position outside"] += bool(((command.q < self._low) | (command.q > self._high)).any())
        if not self._limited:
            return  # by the drives
        q, dq = (
            np.nan_to_num(sample.values[signal][self._columns], nan=0.0, posinf=0.0, neginf=0.0)
            for signal in ("joint_position", "joint_velocity")
        )
        torque = command.kp * (command.q - q) + command.kd * (command.dq - dq) + command.tau_ff
        counts["torque outside"] += bool((np.abs(torque) > self._effort).any())


def run(controller: Controller, robot: Robot, faults: list[Fault], counts: Counter[str]) -> None:
    """One run of the loop under these faults, from activation to a stop or a latched fault."""
    clock, profile = VirtualClock(), controller.profile

    def sleep(seconds: float) -> None:
        clock.sleep_until_ns(clock.now_ns() + round(seconds * 1e9))

    auditor = Auditor(FaultyRobot(robot, faults, sleep), profile, counts)
    loop = RealtimeLoop(
        controller, auditor, clock=clock, on_ready=lambda: loop.confirm(), observers=[auditor.check]
    )
    try:
        report = loop.run(RUN_TICKS * controller.contract.control_period_ns * 1e-9)
    except Exception as error:  # the next run goes on
        counts["exceptions"] += 1
        print(f"{profile.robot_model}: {error!r}")
    else:
        counts["runs"] += 1
        counts["decisions"] += report.decisions
        counts.update(f"fault {fault.partition(':')[0]}" for fault in report.faults)
    controller.deactivate()
    controller.clear()


def soak(name: str, ticks: int, seed: int) -> tuple[Counter[str], int]:
    """-> what happened, and growth of memory, kB."""
    contract, profile = gru_contract(name, horizon=2, chunk_size=6), load_profile(name)
    if name == "arm":  # one whose drives leave the torque to the controller
        profile = msgspec.structs.replace(profile, effort_limited_by="controller")
    controller, robot = Controller(gru_policy(contract), profile), SimRobot(contract, profile, seed)
    start = robot.data.qpos.copy(), robot.data.qvel.copy()
    counts: Counter[str] = Counter()
    random, memory = np.random.default_rng(seed), 0
    while counts["ticks"] < ticks:
        robot.set_state(*start)
        faults = random_faults(int(random.integers(2**31)), 3 * RUN_TICKS, list(profile.signals), GAP)
        run(controller, robot, faults, counts)
        if not memory and counts["ticks"] > ticks / 5:
            memory = resident_kb()
    return counts, resident_kb() - memory


def resident_kb() -> int:
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize() // 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ticks", type=int, default=1_000_000, help="of all robots together")
    parser.add_argument("--robots", nargs="+", default=["pendulum", "arm", "quadruped"])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    total: Counter[str] = Counter()
    grown = 0
    for name in options.robots:
        counts, growth = soak(name, -(-options.ticks // len(options.robots)), options.seed)
        print(f"{name}: memory +{growth} kB;", ", ".join(f"{key} {n}" for key, n in counts.items()))
        total.update(counts)
        grown = max(grown, growth)
    value = {key: total[key] for key in ("ticks", *VIOLATIONS)} | {"memory_growth_kb": grown}
    target = {"ticks": options.ticks} | dict.fromkeys(VIOLATIONS, 0) | {"memory_growth_kb": GROWTH_KB}
    holds = value["ticks"] >= options.ticks and all(value[k] <= target[k] for k in target if k != "ticks")
    print(json.dumps({"name": "soak", "value": value, "target": target, "holds": holds}))


if __name__ == "__main__":
    main()

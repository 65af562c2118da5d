"""One run with faults on the shipped robots of 29 and of 12 joints: looped, checked, and replayed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
import yaml
from faults.figure import PERIOD_NS, Attendant, FakeClock, Figure, figure_policy
from faults.steps import Log, Speller, expected_targets, spell

from andante.runtime.command import FIELDS, JointCommand, OperatorInput
from andante.runtime.controller import Controller
from andante.runtime.loop import LoopReport, RealtimeLoop
from andante.runtime.operator import command_components
from andante.runtime.policy import PolicySession, load_policy
from andante.runtime.profile import SHIPPED, Profile, load_profile
from andante.runtime.recorder.recorder import Recorder
from andante.sim.faults import Fault, FaultyRobot

Deeds = dict[int, Callable[[Controller], object]]
Wishes = Callable[[int, OperatorInput], None]
ROBOTS = ("humanoid29", "quadruped")
RUN = {"humanoid29": 176, "quadruped": 151}
"""The first tick of the policy, which decides every third tick from there on."""
CROUCH = {"humanoid29": 75, "quadruped": 50}
"""Ticks of the fallback's way to the crouch."""
UNGUARDED = {"humanoid29": "linear_acceleration", "quadruped": "angular_velocity"}
"""The policy's first source, which has no hard limit: beyond 88 it makes the network NaN."""
AT = 7
"""Ticks of the policy before a fault: in the middle of a chunk's executed part."""
FOREVER = 10_000
SECOND = 1e9
Q = "joint_position"


@dataclass
class Bench:
    """What every row of one robot shares."""

    robot: str
    profile: Profile
    policy: PolicySession
    twin: PolicySession
    """A session of the same policy, for replays and oracles."""

    @classmethod
    def of(cls, robot: str, folder: Path) -> Bench:
        path = folder / "policy.onnx"
        # Stops come at once: `test_runtime_controller.py` has what comes to rest first.
        profile = msgspec.structs.replace(load_profile(robot), settle_s=None)
        return cls(robot, profile, figure_policy(path, robot), load_policy(path))


@dataclass
class Run:
    """A finished one."""

    report: LoopReport
    log: Log
    spelt: str
    """Commands since the tick at which the policy begins."""
    whole: str
    """All commands."""
    labels: list[str]
    """One for each command."""


def same(first, second) -> bool:
    fields = ("tick", "mode", "valid_for_ns", *FIELDS)
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in fields)


def replay(log: Log, controller: Controller, deeds: Deeds) -> None:
    """Direct calls with the recorded samples: the same commands, bit by bit, and the same reason."""
    recorded = log.controller
    controller.activate()
    for moment in log:
        deeds.get(moment.tick, bool)(controller)
        assert same(controller.tick(moment.tick, moment.sample), moment.command), moment.tick
        assert controller.state is moment.state
    assert (controller.fault, controller.counters) == (recorded.fault, recorded.counters)
    controller.deactivate()


def run(
    bench,
    faults=(),
    wishes=None,
    late_ns=None,
    profile=None,
    seconds=3.0,
    worker=None,
    delay=0,
    lost=(),
    deeds=None,
    told=True,
    record=None,
) -> Run:
    """Run, check every number of every command, and replay it.

    All ticks are counted from the one at which the policy begins.

    Args:
        faults: of the measurement.
        wishes: what the operator does, called with every tick and the input.
        late_ns: by how much the loop oversleeps, by tick.
        profile: another one than the shipped.
        seconds: of the policy.
        worker: makes what decides with a policy.
        delay: ticks until a chunk acts.
        lost: ticks whose decisions come to nothing.
        deeds: what is done to the controller just before a tick.
        told: whether it is one policy that runs; if not, commands are not checked.
        record: also the file of a recording.
    """
    profile = profile or bench.profile
    first = RUN[bench.robot]
    deeds = {first + tick: deed for tick, deed in (deeds or {}).items()}
    clock = FakeClock({first + tick: ns for tick, ns in (late_ns or {}).items()})
    robot = FaultyRobot(Figure(profile, clock), [fault(first) for fault in faults], clock.work)
    controller = Controller(bench.policy, profile, worker=worker and worker(bench.policy))
    log = Log(controller)

    def attend(tick, operator):
        deeds.get(tick, bool)(controller)
        if wishes is not None:
            wishes(tick - first, operator)

    attendant = Attendant(attend)
    recorder = None if record is None else Recorder(controller, record)
    observers = [log] if recorder is None else [log, recorder.add]
    loop = RealtimeLoop(controller, robot, clock=clock, operator=attendant, observers=observers)
    report = loop.run(seconds)
    if recorder is not None:
        recorder.close()
    labels = []
    if told:
        targets = expected_targets(log, bench.twin, delay, {first + tick for tick in lost})
        labels = Speller(profile, bench.policy).labels(log, targets)
    replay(log, Controller(bench.twin, profile), deeds)
    since = sum(moment.tick < first for moment in log)
    return Run(report, log, spell(labels[since:]), spell(labels), labels)


def drive(controller: Controller, ticks: int) -> list[JointCommand]:
    """So many ticks after an activation, by direct calls, on a robot at the crouch."""
    clock = FakeClock()
    robot, attendant = FaultyRobot(Figure(controller.profile, clock), []), Attendant()
    size = len(command_components(controller.contract))
    commands = []
    controller.activate()
    for tick in range(ticks):
        sample = robot.read()
        sample.operator.command = np.zeros(size)
        attendant.poll(sample.operator, sample.now_ns)
        commands.append(controller.tick(tick, sample).copy())
        robot.write(commands[-1])
        clock.time_ns += PERIOD_NS
    controller.deactivate()
    return commands


def rest(spelt: str, expected: str) -> bool:
    """Whether these commands are the expected ones; how many there are of the last is not told."""
    return spelt.rpartition(" ")[0] == expected


def ladder(bench, ticks: int, *before: str) -> str:
    """The policy for so many ticks, then a crouch, then damping."""
    return ", ".join([f"policy {ticks}", *before, f"crouch {CROUCH[bench.robot]}", "damp"])


def fault(kind: str, signal: str | None = None, amount: float = 0.0, begin: int = AT, ticks: int = FOREVER):
    """A fault that begins so many ticks after the policy."""
    return lambda first: Fault(
        kind=kind,
        from_tick=max(0, first + begin),
        to_tick=first + begin + ticks,
        signal=signal,
        amount=amount,
    )


DAMPED = f"policy {AT}, damp"
LOST = fault("drop", Q)
NAN = fault("nan", Q, ticks=1)


def wishes_until(at: int, how: str | None, then: Callable[[OperatorInput], None]) -> Callable:
    """An operator who does not confirm, or stops; and then something else, for a tick."""

    def wishes(tick, operator):
        operator.start = how != "unconfirmed"
        operator.stop = how == "stopped" and tick == AT
        if tick == at:
            then(operator)

    return wishes


def press(operator):
    operator.e_stop = "red button"


def fall_silent(operator):
    operator.heartbeat_ns -= 501_000_000


def vanish(operator):
    operator.heartbeat_ns = None


def changed_profile(bench: Bench, folder: Path, change: Callable[[dict], object]) -> Profile:
    """The shipped profile after a change to its content."""
    content = yaml.safe_load((SHIPPED / f"{bench.robot}.yaml").read_text())
    change(content)
    path = folder / "changed.yaml"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return load_profile(path)

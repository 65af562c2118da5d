"""The real-time loop: deadlines, skipped ticks, soft stops, robots that fail; and robots found by name."""

from __future__ import annotations

import copy
import gc
import os
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from arm import arm_policy, arm_profile
from hypothesis import given, strategies as st
from rig import finite
from small_policy import write_small_policy

from andante.doctor.null_robot import NullRobot
from andante.runtime.command import FIELDS, Sample
from andante.runtime.contract import Trained
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError, ProfileError
from andante.runtime.histogram import Histogram
from andante.runtime.loop import RealtimeLoop
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.realtime import MonotonicClock, SteadyClock, tuned
from andante.runtime.robots.base import find_robot
from andante.runtime.states import State
from andante.runtime.worker import AsynchronousWorker, Worker
from andante.sim.robot import SimRobot

PERIOD_NS = 20_000_000


class FakeClock:
    """Time passes only while the loop sleeps, and when a test says so."""

    def __init__(self, lateness_ns=None):
        self.time_ns = 10**12
        self.start_ns = self.time_ns
        self.lateness_ns = lateness_ns or {}

    def now_ns(self) -> int:
        return self.time_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        late_ns = self.lateness_ns.get((deadline_ns - self.start_ns) // PERIOD_NS, 0)
        self.time_ns = max(self.time_ns, deadline_ns + late_ns)


class LoggingRobot(SimRobot):
    """The simulated pendulum; logs commands, and does at a tick what the test gives it to do."""

    def __init__(self, contract, profile):
        super().__init__(contract, profile)
        self.commands = []
        self.on_write = {}

    def write(self, command):
        self.commands.append(command.copy())
        self.on_write.get(len(self.commands), lambda: None)()
        super().write(command)


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("pendulum") / "policy.onnx")


@pytest.fixture
def pendulum(policy_path):
    """A controller and a robot, ready for a loop."""
    policy, profile = load_policy(policy_path), load_profile("pendulum")
    return Controller(policy, profile), LoggingRobot(policy.contract, profile)


def same(first, second) -> bool:
    fields = ("tick", "mode", "valid_for_ns", *FIELDS)
    return all(np.array_equal(getattr(first, name), getattr(second, name)) for name in fields)


def test_loop_and_direct_calls_give_bit_equal_commands(pendulum, policy_path):
    controller, robot = pendulum
    clock = FakeClock({7: 45_000_000, 40: 19_999_999, 52: 20_000_000, 60: 90_000_000})
    report = RealtimeLoop(controller, robot, clock=clock).run(seconds=1.0)
    assert (report.state, report.faults, report.missed) == ("disabled", (), 2 + 0 + 1 + 4)

    direct = Controller(load_policy(policy_path), load_profile("pendulum"))
    twin = LoggingRobot(direct.contract, direct.profile)
    direct.activate()
    for logged in robot.commands:
        sample = twin.read()
        sample.operator.stop = direct.state is State.RUN and logged.mode == "damping"
        twin.write(direct.tick(logged.tick, sample))
    assert len(robot.commands) == report.ticks
    assert all(map(same, robot.commands, twin.commands))
    assert {command.mode for command in robot.commands} == {"damping", "track"}


def test_recorded_run_replays_bit_by_bit(pendulum, policy_path):
    controller, robot = pendulum
    clock, record = FakeClock({33: 45_000_000, 41: 20_000_000}), []

    def keep(tick, sample, command, *_):
        record.append((tick, copy.deepcopy(sample), command.copy()))

    loop = RealtimeLoop(controller, robot, clock=clock, observers=[keep])
    robot.on_write = {60: lambda: loop.emergency_stop("red button"), 80: loop.stop}
    report = loop.run(seconds=60.0)
    assert (report.faults, report.missed) == (("e_stop: red button",), 3)
    replay = Controller(load_policy(policy_path), load_profile("pendulum"))
    replay.activate()
    assert all(same(replay.tick(tick, sample), command) for tick, sample, command in record)
    assert len(record) == report.ticks == 80 and replay.fault == controller.fault


class Buttons:
    """An operator's device that is pressed by the test."""

    def __init__(self, **presses):
        self.presses, self.polls = presses, 0

    def poll(self, operator, now_ns):
        self.polls += 1
        operator.start = self.polls == self.presses.get("start")
        operator.stop = self.polls == self.presses.get("stop")
        operator.e_stop = "button" if self.polls == self.presses.get("e_stop") else None
        if self.polls == self.presses.get("fails"):
            raise OSError("unplugged")


@pytest.mark.parametrize(
    ("presses", "stopped", "faults"),
    [
        ({"start": 20, "stop": 40}, "asked to", ()),
        ({"start": 5}, "never confirmed", ()),  # not READY yet
        ({"start": 20, "e_stop": 40}, "fault", ("e_stop: button",)),
        ({"start": 20, "fails": 40}, "fault", ("e_stop: operator's device failed: OSError('unplugged')",)),
    ],
)
def test_operator_starts_and_stops_the_policy(tmp_path, presses, stopped, faults):
    policy, profile = arm_policy(tmp_path), arm_profile(tmp_path)
    robot = NullRobot(policy.contract, profile)
    sample = robot.read()
    robot.read = lambda: sample
    controller = Controller(policy, profile)
    report = RealtimeLoop(controller, robot, clock=FakeClock(), operator=Buttons(**presses)).run(2.0)
    assert (report.stopped, report.faults) == (stopped, faults)
    assert report.decisions == (0 if stopped == "never confirmed" else 4)


def test_emergency_stop_of_the_robot_itself_is_one(pendulum):
    controller, robot = pendulum
    read = robot.read

    def pressed():
        sample = read()
        sample.operator.e_stop = "mushroom"
        return sample

    robot.on_write = {30: lambda: setattr(robot, "read", pressed)}
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=0.5)
    assert report.faults == ("e_stop: mushroom",)


def test_emergency_stop_of_the_robot_is_told_even_if_its_sample_is_of_no_use(pendulum):
    controller, robot = pendulum
    read = robot.read

    def pressed():
        sample = replace(read(), values={})
        sample.operator.e_stop = "mushroom"
        return sample

    robot.on_write = {30: lambda: setattr(robot, "read", pressed)}
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=0.5)
    assert report.faults == ("e_stop: mushroom",)


@pytest.mark.parametrize("asleep", [False, True])
def test_clock_that_goes_back_is_a_fault_and_every_tick_has_its_command(pendulum, asleep):
    controller, robot = pendulum
    clock = FakeClock()
    sleep = clock.sleep_until_ns

    def go_back():
        clock.time_ns -= 10**12

    def fall_asleep(deadline_ns):
        sleep(deadline_ns)
        clock.sleep_until_ns = sleep
        go_back()

    if asleep:
        robot.on_write = {40: lambda: setattr(clock, "sleep_until_ns", fall_asleep)}
    else:
        robot.on_write = {40: go_back}
    report = RealtimeLoop(controller, robot, clock=clock).run(seconds=1.0)
    assert report.faults == ("e_stop: the clock went back by 1000000.0 ms",)
    assert (report.state, report.missed) == ("fault", 0)
    assert [command.tick for command in robot.commands] == list(range(26 + 50))
    assert [command.mode for command in robot.commands[39:42]] == ["track", "damping", "damping"]


def test_observer_that_fails_is_a_reported_fault(pendulum):
    controller, robot = pendulum

    def observe(tick, sample, command, *_):
        if tick == 40:
            raise OSError("disk full")

    report = RealtimeLoop(controller, robot, clock=FakeClock(), observers=[observe]).run(seconds=60.0)
    assert report.faults == ("e_stop: observer failed: OSError('disk full')",)
    assert report.ticks == 42


def test_ticks_are_those_of_the_clock_and_late_ones_are_skipped(pendulum):
    controller, robot = pendulum
    late = {30: 19_000_000, 33: 20_000_000, 36: 3 * PERIOD_NS + 1}
    report = RealtimeLoop(controller, robot, clock=FakeClock(late)).run(seconds=0.3)
    ticks = [command.tick for command in robot.commands]
    assert ticks == [tick for tick in range(ticks[-1] + 1) if tick not in (33, 36, 37, 38)]
    assert report.missed == 4 == controller.counters.skipped
    assert report.jitter_us.max == pytest.approx(60_000.001)


def test_seconds_are_of_the_policy_and_the_end_is_soft(pendulum):
    controller, robot = pendulum
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=0.4)
    modes = [command.mode for command in robot.commands]
    assert modes == ["damping"] * 26 + ["track"] * 20 + ["damping"] * 50
    assert (report.state, report.decisions) == ("disabled", 4)


def test_stop_request_plays_the_stop_sequence(pendulum):
    controller, robot = pendulum
    loop = RealtimeLoop(controller, robot, clock=FakeClock())
    robot.on_write = {30: loop.stop}
    report = loop.run(seconds=60.0)
    modes = [command.mode for command in robot.commands]
    assert modes == ["damping"] * 26 + ["track"] * 4 + ["damping"] * 50
    assert report.state == "disabled"


def test_work_beyond_the_next_deadline_is_an_overrun(pendulum):
    controller, robot = pendulum
    clock = FakeClock()

    def work():
        clock.time_ns += PERIOD_NS + 1

    robot.on_write = dict.fromkeys(range(30, 36), work)
    report = RealtimeLoop(controller, robot, clock=clock).run(seconds=0.4)
    assert (report.overruns, report.missed) == (6, 0)
    assert report.tick_us.max == pytest.approx(20_000.001)


@pytest.mark.parametrize("verb", ["read", "write"])
def test_robot_that_fails_is_a_reported_fault(pendulum, verb):
    controller, robot = pendulum

    def fail():
        def raise_error(*_):
            raise OSError("cable out")

        setattr(robot, verb, raise_error)

    robot.on_write = {40: fail}
    written = robot.commands
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=60.0)
    assert report.faults == (f"e_stop: robot 'sim' failed to {verb}: OSError('cable out')",)
    assert report.state == "fault"
    assert report.ticks < 45
    if verb == "read":  # it can still be told to brake
        assert written[-1].mode == "damping" and finite(written[-1])


def test_last_measurement_before_a_failed_read_gives_no_torque(pendulum):
    controller, robot = pendulum

    def fail():
        raise OSError("cable out")

    robot.on_write = {
        40: lambda: robot.set_state(np.zeros(1), np.full(1, 5.0)),
        41: lambda: setattr(robot, "read", fail),
    }
    RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=60.0)
    assert robot.commands[40].tau_ff.any()
    assert not robot.commands[41].tau_ff.any()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda sample: None, "AttributeError"),
        (
            lambda sample: replace(sample, values={"joint_position": np.zeros(1)}),
            "KeyError('joint_velocity')",
        ),
        (
            lambda sample: replace(sample, values=dict.fromkeys(sample.values, np.zeros(2))),
            "joint_position has shape (2,), expected (1,)",
        ),
        (lambda sample: replace(sample, now_ns=None), "TypeError"),
    ],
    ids=["none", "signal missing", "shape", "no time"],
)
def test_sample_that_cannot_be_used_is_a_failed_read(pendulum, change, message):
    controller, robot = pendulum
    read = robot.read
    robot.on_write = {40: lambda: setattr(robot, "read", lambda: change(read()))}
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=60.0)
    assert report.faults[0].startswith("e_stop: robot 'sim' failed to read: ") and message in report.faults[0]
    assert (report.state, robot.commands[-1].mode) == ("fault", "damping")


def test_missed_ticks_in_a_row_are_an_event(pendulum):
    controller, robot = pendulum
    late = dict.fromkeys(range(30, 1000), PERIOD_NS)
    report = RealtimeLoop(controller, robot, clock=FakeClock(late)).run(seconds=1.0)
    assert report.faults == ("overrun: work ended after the next deadline, or a tick was missed",)
    # Every second tick is missed: ten ticks are tolerated.
    modes = [command.mode for command in robot.commands if command.tick >= 30]
    assert modes[:6] == ["track"] * 5 + ["damping"]
    assert report.overruns == 0


@pytest.mark.parametrize("failure", [None, "read"])
def test_loop_runs_again_after_a_stop_and_after_a_failure(pendulum, failure):
    controller, robot = pendulum
    loop = RealtimeLoop(controller, robot, clock=FakeClock())
    read = robot.read

    def fail():
        raise OSError("cable out")

    robot.on_write = {30: (lambda: setattr(robot, "read", fail)) if failure else loop.stop}
    loop.run(seconds=60.0)
    controller.deactivate()
    controller.clear()
    robot.read, robot.on_write = read, {len(robot.commands) + 40: lambda: robot.set_state([0.0], [99.0])}
    again = loop.run(seconds=1.0)
    assert again.faults[0].startswith("limit: ")
    assert (again.state, again.ticks) == ("fault", 26 + 50)


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), 1e300, -1.0, 0.0])
def test_impossible_duration_is_refused_before_anything_moves(pendulum, seconds):
    controller, robot = pendulum
    with pytest.raises(AndanteError, match=r"seconds must be positive and at most 1e\+09, found"):
        RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds)
    assert controller.state is State.DISABLED and not robot.commands


def test_fault_is_commanded_until_the_time_is_over(pendulum):
    controller, robot = pendulum
    robot.on_write = {40: lambda: robot.set_state(np.zeros(1), np.full(1, 99.0))}
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=1.0)
    assert report.faults[0].startswith("limit: joint_velocity of joint 'hinge' is ")
    assert (report.state, report.ticks) == ("fault", 26 + 50)
    assert {command.mode for command in robot.commands[41:]} == {"damping"}


def test_profile_that_wants_confirmation_waits_for_it(tmp_path):
    policy, profile = arm_policy(tmp_path), arm_profile(tmp_path)
    robot = NullRobot(policy.contract, profile)
    controller = Controller(policy, profile)
    called = []
    loop = RealtimeLoop(
        controller, robot, clock=FakeClock(), on_ready=lambda: called.append(controller.state)
    )
    sample = robot.read()  # stamped by the real clock: read once, it never ages
    robot.read = lambda: sample
    assert loop.run(seconds=1.0).decisions == 0
    assert called == [State.READY]
    confirmed = RealtimeLoop(controller, robot, clock=FakeClock(), on_ready=lambda: confirmed.confirm())
    assert confirmed.run(seconds=1.0).decisions > 0


class Waiting:
    """An arm in the loop, whose operator does at the n-th question what the test says."""

    def __init__(self, folder, *answers, **profile):
        policy = arm_policy(folder)
        self.controller = Controller(policy, arm_profile(folder, **profile))
        robot = NullRobot(policy.contract, self.controller.profile)
        self.sample = robot.read()
        robot.read = lambda: self.sample  # stamped by the real clock: read once, it never ages
        self.clock, self.answers, self.asked, self.commands = FakeClock(), list(answers), [], []
        robot.write = lambda command: self.commands.append(command.copy())
        self.loop = RealtimeLoop(self.controller, robot, clock=self.clock, on_ready=self.ask)

    def ask(self):
        self.asked.append(self.controller.waiting)
        if self.answers:
            self.answers.pop(0)(self)

    def confirm(self):
        self.loop.confirm()

    def age(self, seconds):
        stamp = self.sample.now_ns - round(seconds * 1e9)
        self.sample.received_ns["joint_velocity"] = stamp

    def oversleep(self, ticks):
        tick = (self.clock.time_ns - self.clock.start_ns) // PERIOD_NS + 1
        self.clock.lateness_ns = {tick: ticks * PERIOD_NS}


def test_confirmation_that_cannot_be_heeded_is_asked_for_again_with_the_reason(tmp_path):
    def in_vain(arm):
        arm.age(1.0)
        arm.confirm()

    def again(arm):
        arm.age(0.0)
        arm.confirm()

    arm = Waiting(tmp_path, in_vain, again)
    report = arm.loop.run(1.0)
    assert arm.asked == [None, "joint_velocity is 1000.0 ms old"]
    assert (report.decisions > 0, report.faults, report.stopped) == (True, (), "time over")


def test_confirmation_that_could_not_be_heeded_is_not_for_later(tmp_path):
    def in_vain(arm):
        arm.age(1.0)
        arm.confirm()

    arm = Waiting(tmp_path, in_vain, lambda arm: arm.age(0.0))  # all is well again, and nobody says so
    report = arm.loop.run(1.0)
    assert arm.asked == [None, "joint_velocity is 1000.0 ms old"]
    assert (report.decisions, report.stopped) == (0, "never confirmed")


@pytest.mark.parametrize("amid_the_tick", [False, True])
def test_confirmation_is_asked_for_again_after_a_long_gap(tmp_path, amid_the_tick):
    """It was given while nobody saw the robot sag."""

    def confirm(arm):
        arm.oversleep(5)
        if not amid_the_tick:
            arm.confirm()
            return
        tick = arm.controller.tick

        def confirmed_meanwhile(*arguments):
            arm.controller.tick = tick
            arm.confirm()
            return tick(*arguments)

        arm.controller.tick = confirmed_meanwhile

    damping = {"action": "damping", "gains": "damping"}
    events = ("stale_source", "starvation", "non_finite", "limit", "e_stop")
    table = {"overrun": [{"action": "keep", "ticks": 9}, damping], **{key: [damping] for key in events}}
    arm = Waiting(tmp_path, confirm, fallback=table)
    report = arm.loop.run(1.0)
    assert (arm.asked, report.missed) == ([None, None], 5)
    assert (report.decisions, report.stopped) == (0, "never confirmed")


def test_start_that_its_conditions_do_not_allow_is_told(tmp_path):
    arm = Waiting(tmp_path, conditions={"position": {"lift": [0.9, 1.0]}})
    arm.sample.values["joint_position"][0] = 0.5
    report = arm.loop.run(0.5)
    assert report.stopped == "never ready: joint 'lift' is at 0.5, to start it must be in [0.9, 1]"
    assert (report.decisions, report.faults, report.state) == (0, (), "disabled")
    assert {command.mode for command in arm.commands} == {"damping"}


class Broken(Worker):
    """Fails where its policy does not."""

    def request(self, tick, epoch):
        if self.inferences == 2:
            raise MemoryError("no more")
        super().request(tick, epoch)


def test_tick_that_raises_ends_in_damping_with_a_latched_fault_and_a_report(policy_path):
    policy, profile = load_policy(policy_path), load_profile("pendulum")
    controller = Controller(policy, profile, worker=Broken(policy))
    robot = LoggingRobot(controller.contract, profile)
    robot.on_write = {26 + 10: lambda: robot.set_state([0.3], [2.0])}  # the third decision is next
    seen = []

    def observe(tick, sample, *_):
        seen.append((tick, controller.state, sample.values["joint_velocity"].item()))

    report = RealtimeLoop(controller, robot, clock=FakeClock(), observers=[observe]).run(60.0)
    assert report.faults == ("non_finite: the controller failed: MemoryError('no more')",)
    assert (report.stopped, report.state, report.decisions) == ("fault", "fault", 2)
    *before, last = robot.commands
    assert {command.mode for command in before[26:]} == {"track"} and len(before) == 36
    assert (last.mode, last.tick, seen[-1][:2]) == ("damping", 36, (36, State.FAULT))
    assert last.tau_ff == pytest.approx(-0.2 * seen[-1][2]) and seen[-1][2] > 1.0 and not last.gains.any()
    with pytest.raises(AndanteError, match="cannot activate in state FAULT"):
        controller.activate()
    controller.clear()
    assert (controller.state, controller.fault) == (State.DISABLED, None)
    np.testing.assert_array_equal(policy.state(), np.full(8, 0.1, np.float32))


DAMP = {"action": "damping", "gains": "damping"}
EXTERNAL = {"action": "external"}


def falling_arm(folder, **ladders) -> tuple[Waiting, list]:
    """An arm that runs at once; and for every tick the controller's state with the command's mode."""
    events = ("stale_source", "starvation", "overrun", "non_finite", "limit", "e_stop")
    arm = Waiting(folder, confirm=False, fallback={event: [DAMP] for event in events} | ladders)
    seen = []
    arm.loop.observers = [lambda tick, sample, command, *_: seen.append((arm.controller.state, command.mode))]
    return arm, seen


@pytest.mark.parametrize(("what", "at_last"), [("_watch", "disabled"), ("_compose", "damping")])
def test_ticks_that_raise_for_good_climb_the_ladder_and_end(tmp_path, what, at_last):
    arm, seen = falling_arm(tmp_path, non_finite=[DAMP | {"duration_s": 0.1}, EXTERNAL])
    whole = getattr(arm.controller, what)

    def act(*arguments):
        if (State.RUN, "track") in seen:
            raise RuntimeError("worn out")
        return whole(*arguments)

    setattr(arm.controller, what, act)
    report = arm.loop.run(1.0)
    assert report.faults == ("non_finite: the controller failed: RuntimeError('worn out')",)
    assert report.state == "fault" and report.fell.startswith("in RUN at tick ")
    fallen = [mode for state, mode in seen if state in (State.FALLBACK, State.FAULT)]
    assert fallen == ["damping"] * 5 + [at_last]


def test_failure_in_a_latched_fault_climbs_its_own_ladder_to_its_end_and_is_told(tmp_path):
    hold = {"action": "hold", "gains": "hold"}
    fall = [hold | {"duration_s": 0.1}, DAMP]
    arm, seen = falling_arm(tmp_path, limit=[hold], e_stop=fall, stale_source=fall)
    q, robot = arm.sample.values["joint_position"], arm.loop.robot

    def read():
        if (State.RUN, "track") in seen:
            q[0] = 1.6
        if len(seen) == 100:
            raise OSError("bus gone")
        return arm.sample

    robot.read = read
    report = arm.loop.run(60.0)
    assert report.faults[0].startswith("limit: ")
    assert report.faults[1:] == ("e_stop: robot 'null' failed to read: OSError('bus gone')",)
    assert [mode for _, mode in seen[99:]] == ["track"] * 6 + ["damping"]


class Button:
    """An operator's device without a hint; its button is down in some of the ticks."""

    hint = ""

    def __init__(self, arm, pressed):
        self.arm, self.pressed, self.polls = arm, pressed, 0

    def poll(self, operator, now_ns):
        self.polls += 1
        operator.start = self.pressed(self.polls)

    def close(self):
        pass


def test_button_that_cannot_be_heeded_is_told_once_however_long_it_is_held(tmp_path):
    arm = Waiting(tmp_path, lambda arm: arm.age(1.0))
    arm.loop.operator = Button(arm, lambda poll: arm.controller.state is State.READY)
    report = arm.loop.run(1.0)
    assert arm.asked == [None, "joint_velocity is 1000.0 ms old"]
    assert (report.decisions, report.faults) == (0, ("stale_source: joint_velocity is 1000.0 ms old",))


def test_sensors_that_never_come_are_told(pendulum):
    controller, robot = pendulum
    silent = Sample.allocate(controller.profile.signals, len(controller.profile.joints))
    robot.read = lambda: silent
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=0.5)
    assert (report.decisions, report.faults) == (0, ())
    assert report.stopped == "never ready: joint_position has not arrived"


def test_question_that_fails_is_a_reported_fault(tmp_path):
    policy, profile = arm_policy(tmp_path), arm_profile(tmp_path)
    robot = NullRobot(policy.contract, profile)
    sample = robot.read()
    robot.read = lambda: sample
    modes = []
    robot.write = lambda command: modes.append(command.mode)

    def ask():
        raise BrokenPipeError("nobody reads")

    report = RealtimeLoop(Controller(policy, profile), robot, clock=FakeClock(), on_ready=ask).run(60.0)
    assert report.faults == ("e_stop: operator failed to confirm: BrokenPipeError('nobody reads')",)
    assert report.state == "fault"
    assert modes[-6:] == ["track"] * 5 + ["damping"]  # the ladder of e_stop, to its last step


def test_output_that_cannot_carry_the_fallback_is_refused(tmp_path):
    policy, profile = arm_policy(tmp_path), arm_profile(tmp_path)
    robot = NullRobot(policy.contract, profile)
    robot.carries = frozenset({"q"})
    with pytest.raises(ProfileError, match="cannot carry dq, kd, kp, tau_ff"):
        RealtimeLoop(Controller(policy, profile), robot)


def test_policy_that_has_not_decided_yet_counts_no_inference_after_a_swap(pendulum, tmp_path):
    controller, robot = pendulum
    other = load_policy(write_small_policy(tmp_path / "other.onnx", seed=5))
    before = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=0.4)
    assert before.decisions == 4
    robot.on_write = {len(robot.commands) + 5: lambda: controller.swap(other)}  # long before RUN
    report = RealtimeLoop(controller, robot, clock=FakeClock()).run(seconds=0.1)
    assert (report.decisions, controller.policy is other) == (1, True)
    assert report.step_us.p50 == report.step_us.max > 0.0


@pytest.mark.parametrize("by_the_loop", [False, True])
def test_thread_of_a_swapped_policy_gets_the_priority_of_inference_and_any_core(tmp_path, by_the_loop):
    delays = {"inference_delay": Trained(values=(0, 1, 2), default=0)}
    delays["execution_horizon"] = Trained(values=(3,), default=3)
    paths = [write_small_policy(tmp_path / f"{seed}.onnx", seed=seed, **delays) for seed in (0, 5)]
    policy, other = map(load_policy, paths)
    controller = Controller(policy, load_profile("pendulum"), worker=AsynchronousWorker(policy))
    robot = LoggingRobot(policy.contract, controller.profile)
    scheduling = {}

    def note(name):
        thread = controller.next_worker.thread_id
        priority = os.sched_getparam(thread).sched_priority
        scheduling[name] = os.sched_getscheduler(thread), priority, os.sched_getaffinity(thread)

    def swap():
        asking = threading.Thread(target=controller.swap, args=(other,))
        controller.swap(other) if by_the_loop else (asking.start(), asking.join())

    robot.on_write = {3: lambda: note("first"), 4: swap, 5: lambda: note("second")}
    cores = os.sched_getaffinity(0)
    loop = RealtimeLoop(controller, robot, fifo_priority=20, cpu=min(cores), clock=FakeClock())
    report = loop.run(seconds=0.1)
    note("afterwards")
    controller.close()
    if report.tuning["SCHED_FIFO"] != "ok":
        pytest.skip(f"SCHED_FIFO: {report.tuning['SCHED_FIFO']}")
    assert report.tuning["SCHED_FIFO of inference"] == "ok"
    assert scheduling["first"] == scheduling["second"] == (os.SCHED_FIFO, 19, cores)
    assert scheduling["afterwards"] == (os.SCHED_OTHER, 0, cores)


def test_system_clock_that_goes_back_while_it_sleeps_does_not_sleep_on(monkeypatch):
    found = {"time_ns": 10**12, "slept_ns": 0}

    def sleep(seconds):
        found["time_ns"] += round(seconds * 1e9) if found["slept_ns"] else -(10**11)
        found["slept_ns"] += round(seconds * 1e9)

    with monkeypatch.context() as patch:
        patch.setattr(time, "sleep", sleep)
        patch.setattr(time, "monotonic_ns", lambda: found["time_ns"])
        clock = SteadyClock(MonotonicClock())
        clock.sleep_until_ns(10**12 + PERIOD_NS)
        now_ns = clock.now_ns()
    assert found["slept_ns"] == PERIOD_NS
    assert (now_ns, clock.lost_ns) == (10**12 + PERIOD_NS, 10**11 + PERIOD_NS)


@pytest.mark.parametrize("ahead_ns", [-PERIOD_NS, 0, 1, 999_999])
def test_system_clock_returns_at_the_deadline_or_later(ahead_ns):
    deadline_ns = time.monotonic_ns() + ahead_ns
    MonotonicClock().sleep_until_ns(deadline_ns)
    assert time.monotonic_ns() >= deadline_ns


def test_tuning_is_reported_and_undone():
    scheduler, interval = os.sched_getscheduler(0), sys.getswitchinterval()
    affinity = os.sched_getaffinity(0)
    with tuned(fifo_priority=1000, cpu=min(affinity)) as (results, _):
        assert results["SCHED_FIFO"] == "Invalid argument"
        assert results["affinity"] == results["gc"] == results["switch interval"] == "ok"
        assert os.sched_getaffinity(0) == {min(affinity)}
        assert not gc.isenabled() and sys.getswitchinterval() < interval
    assert gc.isenabled() and gc.get_freeze_count() == 0
    assert (os.sched_getscheduler(0), sys.getswitchinterval()) == (scheduler, interval)
    assert os.sched_getaffinity(0) == affinity
    with tuned(None, None) as (results, _):
        assert {results[name] for name in ("SCHED_FIFO", "affinity", "idle states")} == {"not asked for"}


def test_cores_do_not_sleep_while_a_tuned_loop_runs():
    device = Path("/dev/cpu_dma_latency")
    held = lambda: [link for link in Path("/proc/self/fd").iterdir() if link.resolve() == device]  # noqa: E731
    before = len(held())
    with tuned(50, None) as (results, _):
        granted = results["idle states"] == "ok"
        assert len(held()) == before + granted
        if granted:
            assert int.from_bytes(device.read_bytes()[:4], sys.byteorder) == 0
    assert len(held()) == before
    assert granted or not os.access(device, os.W_OK), results["idle states"]


@pytest.mark.parametrize(
    ("option", "value", "name", "result"),
    [
        ("cpu", -1, "affinity", "negative CPU number"),
        ("cpu", 99, "affinity", "Invalid argument"),
        ("cpu", 99999999999, "affinity", "CPU number too large"),
        ("fifo_priority", 1000, "SCHED_FIFO", "Invalid argument"),
        ("fifo_priority", 99999999999, "SCHED_FIFO", "sched_priority out of range"),
    ],
)
def test_impossible_tuning_is_reported(pendulum, option, value, name, result):
    report = RealtimeLoop(*pendulum, clock=FakeClock(), **{option: value}).run(seconds=0.1)
    assert (report.state, report.tuning[name]) == ("disabled", result)


def test_tuning_that_fails_half_way_is_undone_and_nothing_becomes_active(pendulum, monkeypatch):
    controller, robot = pendulum
    affinity = os.sched_getaffinity(0)

    def fail():
        raise MemoryError

    monkeypatch.setattr(gc, "freeze", fail)
    with pytest.raises(MemoryError):
        RealtimeLoop(controller, robot, clock=FakeClock(), cpu=min(affinity)).run(seconds=1.0)
    assert os.sched_getaffinity(0) == affinity
    assert controller.state is State.DISABLED


@given(st.lists(st.integers(0, 3 * 10**8), min_size=1))
def test_histogram_quantiles_are_those_of_the_durations(durations):
    histogram = Histogram()
    for duration in durations:
        histogram.add(duration)
    found = histogram.quantiles()
    assert found.max == max(durations) * 1e-3
    for q, value in ((0.5, found.p50), (0.99, found.p99)):
        exact = np.quantile(durations, q, method="inverted_cdf") * 1e-3
        if exact < 99_999:
            assert exact <= value <= exact + 1.001


def test_null_robot_measures_within_the_hard_limits(tmp_path):
    policy = arm_policy(tmp_path)
    joints = [{"name": name, "sign": 1, "zero_offset": 0.0, "velocity": 1.0} for name in ("lift", "spin")]
    joints[0] |= {"actuated": True, "effort": 1.0, "position": [0.2, 1.5]}
    joints[1] |= {"actuated": True, "effort": 1.0, "position": None}
    sample = NullRobot(policy.contract, arm_profile(tmp_path, joints=joints)).read()
    np.testing.assert_allclose(sample.values["joint_position"], [0.2, 0.0], atol=1e-5)
    assert sample.received_ns["joint_velocity"] == sample.now_ns > 0


def test_unknown_robot_lists_the_known_ones():
    with pytest.raises(AndanteError, match="no robot 'bender'; robots: null, replay, sim"):
        find_robot("bender")


def test_robot_whose_package_is_missing_names_the_extra(monkeypatch):
    for name in ("mujoco", "andante.sim.robot"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(AndanteError, match=r"robot 'sim' needs .*, which is not .*pip install '\.\[sim\]'"):
        find_robot("sim")

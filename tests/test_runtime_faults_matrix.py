"""The fault matrix, what is left of it: other signals than positions, other states, operators and clocks."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from faults.figure import PERIOD_NS, Attendant, FakeClock, Figure
from faults.steps import Log, Speller, expected_targets
from faults.trial import (
    AT,
    DAMPED,
    FOREVER,
    ROBOTS,
    RUN,
    SECOND,
    UNGUARDED,
    Bench,
    Q,
    fault,
    rest,
    run,
)

from andante.runtime.controller import Controller
from andante.runtime.loop import RealtimeLoop
from andante.runtime.states import State
from andante.runtime.worker import AsynchronousWorker


@pytest.fixture(scope="module", params=ROBOTS)
def bench(request, tmp_path_factory):
    return Bench.of(request.param, tmp_path_factory.mktemp(request.param))


# Signals that are late, frozen or out of order

STRICT = {
    "humanoid29": (
        (10, "is 80.0 ms old"),
        {Q: 10, "joint_velocity": 10, "orientation": 20, "angular_velocity": 20, "linear_acceleration": 20},
    ),
    "quadruped": (
        (11, "is 100.0 ms old"),
        {Q: 12, "joint_velocity": 12, "orientation": 12, "angular_velocity": 12},
    ),
}
"""By robot: the policy's ticks without a signal, and after how many equal measurements it is frozen."""
PAIRED = {"humanoid29": 0, "quadruped": 1}
"""A signal at rest moves by its noise every second tick: so many equal ones there are before the fault."""
ESTIMATED = ("linear_velocity", "position")
SLOW = ("joint_temperature", "battery_voltage")
"""Of the humanoid's, without clocks of their own or a count of equal values; these may be a second old."""


def trouble(robot: str, signal: str, kind: str) -> tuple[int, str] | None:
    """The policy's ticks, and the reason; None if the robot's profile has nothing against it."""
    missing, frozen_after = STRICT[robot]
    if kind == "drop" and signal in SLOW:
        return 59, "is 1060.0 ms old"
    if kind == "drop":
        return missing
    if signal in ESTIMATED + SLOW:
        return None
    if kind == "freeze":
        equal = frozen_after[signal] + 2  # two ticks are tolerated
        return AT + equal - 2 - PAIRED[robot], f"is frozen: {equal} equal measurements in a row"
    return (15, "has a stamp 20.0 ms before the one before") if kind == "reorder" else missing


TIMES = [
    (robot, signal, kind)
    for robot in ROBOTS
    for signal in (*STRICT[robot][1], *(ESTIMATED + SLOW if robot == "humanoid29" else ()))
    for kind in ("drop", "duplicate", "freeze", "reorder")
    if signal != Q
]


@pytest.mark.parametrize(("bench", "signal", "kind"), TIMES, indirect=["bench"])
def test_a_signal_that_is_missing_repeated_frozen_or_overtaken(bench, signal, kind):
    expected = trouble(bench.robot, signal, kind)
    found = run(bench, [fault(kind, signal)], seconds=2.0 if signal in SLOW else 0.8)
    if expected is None:
        assert found.spelt.startswith(f"policy {100 if signal in SLOW else 40}, ")
        assert (found.report.faults, found.report.state) == ((), "disabled")
    else:
        ticks, reason = expected
        assert found.spelt.startswith(f"policy {ticks}, crouch ")
        assert found.report.faults == (f"stale_source: {signal} {reason}",)


# Joints that change places


@pytest.mark.parametrize("begin", [AT, -FOREVER])
def test_positions_of_permuted_joints_leave_the_hard_limits(bench, begin):
    """Each joint's are another's: no message says so, but hardly a pose fits all ranges of its neighbours."""
    found = run(bench, [fault("permute", Q, begin=begin, ticks=2 * FOREVER)], seconds=2.0)
    measured = found.log[max(0, RUN[bench.robot] + begin)].sample.values[Q]
    limits = [joint.position for joint in bench.profile.joints]
    beyond = next(i for i, (low, high) in enumerate(limits) if not low <= measured[i] <= high)
    low, high = limits[beyond]
    name = bench.profile.joint_names[beyond]
    assert found.report.faults == (
        f"limit: {Q} of joint {name!r} is {measured[beyond]:.4g}, hard limits [{low:.4g}, {high:.4g}]",
    )
    if begin == AT:
        expected = {"humanoid29": f"policy {AT}, hold 15, crouch 75, damp", "quadruped": DAMPED}
        assert rest(found.spelt, expected[bench.robot])
    else:
        assert rest(found.whole, "damp")


@pytest.mark.parametrize("signal", ["joint_velocity", "angular_velocity"])
def test_a_permutation_within_the_limits_is_read_as_it_is(bench, signal):
    """Nothing in a message tells one joint from another: that is for the operator who tries each of them."""
    found = run(bench, [fault("permute", signal)], seconds=0.5)
    assert found.spelt.startswith("policy 25, ")
    assert found.report.faults == ()


# Not a number, in every state before and after the policy's


class Hand:
    """Direct calls on a robot of perfect drives; a measurement may be changed before it is used."""

    def __init__(self, bench: Bench, lean: float = 0.0):
        self.bench = bench
        self.controller = Controller(bench.policy, bench.profile)
        self.controller.activate()
        self.clock = FakeClock()
        self.robot = Figure(bench.profile, self.clock)
        self.attendant = Attendant(self.wish)
        self.log = Log(self.controller)
        self.operator = replace(self.robot.sample.operator, command=np.zeros(3))
        self.start = self.stop = False
        w, x, y, z = self.robot.sample.values["orientation"]
        # A turn about the sensor's own second axis, which is horizontal on both robots.
        cos, sin = np.cos(lean / 2), np.sin(lean / 2)
        self.robot.sample.values["orientation"][:] = [
            w * cos - y * sin,
            x * cos - z * sin,
            w * sin + y * cos,
            z * cos + x * sin,
        ]

    def wish(self, _, operator):
        operator.start, operator.stop = self.start, self.stop

    def tick(self, change: Callable[[dict[str, np.ndarray]], object] = bool):
        sample = self.robot.read()
        sample = replace(sample, values={name: value.copy() for name, value in sample.values.items()})
        sample.operator = self.operator
        self.attendant.poll(self.operator, self.clock.now_ns())
        change(sample.values)
        command = self.controller.tick(len(self.log), sample)
        self.log(len(self.log), sample, command)
        self.robot.write(command)
        self.clock.time_ns += PERIOD_NS

    def until(self, state: State):
        self.start = self.stop = False
        for _ in range(300):
            self.tick()
            if self.controller.state is state:
                return self
            self.start, self.stop = state is State.STOP, self.controller.state is State.RUN
        raise AssertionError(f"not in {state}")


LEANS = {"humanoid29": 0.3, "quadruped": 0.7}
"""Too much to start with, and no fault yet."""
STATES = (State.WAIT_SENSORS, State.START, State.READY, State.STOP)


def signals_of(robot: str) -> list[str]:
    more = ["linear_acceleration", *ESTIMATED, *SLOW] if robot == "humanoid29" else []
    return [Q, "joint_velocity", "orientation", "angular_velocity", *more]


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize(
    ("bench", "signal"), [(robot, each) for robot in ROBOTS for each in signals_of(robot)], indirect=["bench"]
)
def test_a_signal_that_is_not_finite_is_damped_at_once_in_every_state(bench, signal, state):
    joint = f" of joint {bench.profile.joint_names[3]!r}" if signal.startswith("joint_") else ""
    for value in (np.nan, np.inf, -np.inf):
        hand = Hand(bench, LEANS[bench.robot] if state is State.WAIT_SENSORS else 0.0).until(state)
        if state is State.WAIT_SENSORS:
            assert hand.controller.waiting.startswith("the base leans by ")
        if state is State.START:
            for _ in range(30):  # the humanoid's begins with damping
                hand.tick()
        before = len(hand.log)

        def spoil(values, value=value):
            values[signal][3 if joint else -1] = value

        hand.tick(spoil)
        for _ in range(3):
            hand.tick()
        labels = Speller(bench.profile, bench.policy).labels(hand.log, expected_targets(hand.log, bench.twin))
        assert labels[before:] == ["damp"] * 4
        assert (labels[before - 1] == "damp") == (state is State.WAIT_SENSORS)
        assert [moment.state for moment in hand.log[before - 1 :]] == [state] + [State.FAULT] * 4
        assert hand.controller.fault == f"non_finite: {signal}{joint} is not finite"
        hand.controller.deactivate()


def test_what_is_not_finite_before_everything_has_arrived_is_waited_for(bench):
    hand = Hand(bench)
    silent = hand.robot.sample

    def read():
        silent.now_ns = hand.clock.now_ns()
        return silent

    hand.robot.read = read
    for _ in range(5):
        hand.tick(lambda values: [value.fill(np.nan) for value in values.values()])
    assert (hand.controller.state, hand.controller.fault) == (State.WAIT_SENSORS, None)
    assert hand.controller.waiting == f"{Q} has not arrived"
    commands = [moment.command for moment in hand.log]
    assert {command.mode for command in commands} == {"damping"}
    assert all(np.isfinite(command.rows).all() for command in commands)
    hand.controller.deactivate()


# The network in a thread of its own


class Prompt(AsynchronousWorker):
    """Nobody goes on before it has answered, so that a run can be foretold."""

    def request(self, tick, epoch):
        super().request(tick, epoch)
        while not self.ready:
            time.sleep(0)


def test_a_network_in_a_thread_that_is_not_finite_is_damped_when_its_answer_is_due(bench):
    found = run(bench, [fault("set", UNGUARDED[bench.robot], 100.0)], worker=Prompt, delay=1, seconds=0.5)
    found.log.controller.worker.close()
    assert rest(found.spelt, "stand 1, policy 9, damp")
    assert found.report.faults == ("non_finite: the policy's chunk or memory is not finite",)


# Operators


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (np.zeros(2), "the command has shape (2,), expected (3,)"),
        (np.zeros((3, 1)), "the command has shape (3, 1), expected (3,)"),
        ([0.1, 0.2], "the command has shape (2,), expected (3,)"),
        (0.5, "the command has shape (), expected (3,)"),
        (None, "the command has shape (), expected (3,)"),
        (["left", "right", "0.1"], "could not convert string to float"),
        ("forward", "could not convert string to float"),
    ],
    ids=["too few", "a column", "a list too short", "one for all", "none", "words", "a word"],
)
def test_a_command_of_another_shape_or_kind_is_an_emergency_stop(bench, value, told):
    def wishes(tick, operator):
        if tick == AT:
            operator.command = value

    found = run(bench, wishes=wishes, seconds=0.5)
    assert rest(found.spelt, DAMPED)
    (reason,) = found.report.faults
    assert reason.startswith("e_stop: operator's device failed: ") and told in reason


@pytest.mark.parametrize("bench", ["humanoid29"], indirect=True)
def test_an_operator_without_a_link_cannot_start_the_policy_and_is_told(bench):
    def wishes(_, operator):
        operator.command_ns -= 1_100_000_000

    found = run(bench, wishes=wishes, seconds=1.0)
    assert found.whole == "damp 25, stand 200, crouch 150, damp 50, off 1"
    assert found.report.stopped == "never ready: no command for 1100.0 ms"
    assert (found.report.faults, found.report.decisions) == ((), 0)


class Lister(Attendant):
    """Commands by a list of numbers."""

    def poll(self, operator, now_ns):
        operator.command = np.zeros(3)
        super().poll(operator, now_ns)
        operator.command = [0.25, 0.25, 0.25]


def test_a_command_in_a_list_is_the_same_as_in_an_array(bench):
    logs = []
    for attendant in (Attendant(), Lister()):
        clock = FakeClock()
        controller = Controller(bench.policy, bench.profile)
        log = Log(controller)
        robot = Figure(bench.profile, clock)
        report = RealtimeLoop(controller, robot, clock=clock, operator=attendant, observers=[log]).run(0.3)
        assert report.faults == ()
        logs.append([moment.command.rows for moment in log])
    np.testing.assert_array_equal(*logs)


# The loop's own clock


def test_a_clock_that_goes_back_is_an_emergency_stop_at_the_next_tick(bench):
    found = run(bench, [fault("slow_read", amount=-5 * SECOND, ticks=1)], seconds=0.5)
    assert rest(found.spelt, f"policy {AT + 1}, damp")
    assert found.report.faults == ("e_stop: the clock went back by 5000.0 ms",)
    assert [moment.tick for moment in found.log] == list(range(len(found.log)))
    assert found.report.missed == 0

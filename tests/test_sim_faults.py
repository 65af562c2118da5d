"""Injected faults: what each does to a reading, deterministic, and nothing outside its ticks."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest

from andante.runtime.command import NEVER_NS, JointCommand, Sample
from andante.runtime.errors import AndanteError
from andante.sim.faults import KINDS, Fault, FaultyRobot, random_faults

PERIOD_NS = 20_000_000
SIGNALS = ("joint_position", "angular_velocity")


class Counting:
    """A robot whose every reading is the number of commands so far, stamped accordingly."""

    name = "counting"
    joints = ("a", "b")
    carries = frozenset({"tau_ff"})

    def __init__(self, clock_offset_ns: int = 0):
        self.sample = Sample.allocate(SIGNALS, 2)
        self.count = 0
        self.clock_offset_ns = clock_offset_ns
        self.written = []
        self.closed = False

    def read(self) -> Sample:
        self.sample.now_ns = self.count * PERIOD_NS
        for signal, values in self.sample.values.items():
            values[:] = self.count + 0.25 * np.arange(len(values))
            self.sample.received_ns[signal] = self.sample.now_ns
            self.sample.source_ns[signal] = self.sample.now_ns + self.clock_offset_ns
        return self.sample

    def write(self, command: JointCommand) -> None:
        self.written.append(command.tick)
        self.count += 1

    def close(self) -> None:
        self.closed = True


def play(robot: FaultyRobot, ticks: int, first: int = 0) -> list[Sample]:
    command = JointCommand.allocate(2, PERIOD_NS)
    samples = []
    for tick in range(first, first + ticks):
        samples.append(robot.read())
        command.tick = tick
        robot.write(command)
    return samples


def injected(ticks: int = 10, clock_offset_ns: int = 0, **fault) -> list[Sample]:
    return play(FaultyRobot(Counting(clock_offset_ns), [Fault(**fault)]), ticks)


def values(samples, signal="joint_position") -> list[float]:
    return [sample.values[signal][0] for sample in samples]


def ages(samples, signal="joint_position") -> list[int]:
    return [(sample.now_ns - sample.received_ns[signal]) // PERIOD_NS for sample in samples]


def sources(samples, signal="joint_position") -> list[int]:
    return [sample.source_ns[signal] // PERIOD_NS for sample in samples]


def table(samples) -> list[tuple]:
    return [
        (
            sample.now_ns,
            *(array.tobytes() for array in sample.values.values()),
            *sample.received_ns.values(),
            *sample.source_ns.values(),
        )
        for sample in samples
    ]


HEALTHY = list(range(10))


def test_without_faults_it_is_the_robot_itself():
    robot = Counting()
    faulty = FaultyRobot(robot, [])
    assert (faulty.name, faulty.joints, faulty.carries) == ("counting", ("a", "b"), {"tau_ff"})
    assert table(play(faulty, 10)) == table(play(FaultyRobot(Counting(), []), 10))
    samples = play(FaultyRobot(Counting(), []), 10)
    assert (values(samples), ages(samples), sources(samples)) == (HEALTHY, [0] * 10, HEALTHY)
    assert robot.written == HEALTHY
    faulty.close()
    assert robot.closed


@pytest.mark.parametrize(
    ("fault", "expected_values", "expected_ages", "expected_sources"),
    [
        ({"kind": "drop"}, [2, 2, 2, 2, 2], [1, 2, 3, 4, 5], [2, 2, 2, 2, 2]),
        ({"kind": "freeze"}, [2, 2, 2, 2, 2], [0, 0, 0, 0, 0], [3, 4, 5, 6, 7]),
        ({"kind": "duplicate"}, [2, 2, 2, 2, 2], [0, 0, 0, 0, 0], [2, 2, 2, 2, 2]),
        ({"kind": "delay", "amount": 2}, [2, 2, 3, 4, 5], [1, 2, 0, 0, 0], [2, 2, 3, 4, 5]),
        ({"kind": "reorder"}, [2, 4, 3, 6, 5], [1, 0, 0, 0, 0], [2, 4, 3, 6, 5]),
        ({"kind": "set", "amount": 9.5}, [9.5] * 5, [0] * 5, [3, 4, 5, 6, 7]),
        ({"kind": "permute"}, [3.25, 4.25, 5.25, 6.25, 7.25], [0] * 5, [3, 4, 5, 6, 7]),
        ({"kind": "stamp_zero"}, [3, 4, 5, 6, 7], [0] * 5, [0] * 5),
        ({"kind": "stamp_jump", "amount": -4 * PERIOD_NS}, [3, 4, 5, 6, 7], [0] * 5, [-1, 0, 1, 2, 3]),
    ],
)
def test_a_fault_of_a_signal_lasts_its_ticks_and_befalls_no_other(
    fault, expected_values, expected_ages, expected_sources
):
    samples = injected(from_tick=3, to_tick=8, signal="joint_position", **fault)
    assert values(samples) == [0, 1, 2, *expected_values, 8, 9]
    assert ages(samples) == [0, 0, 0, *expected_ages, 0, 0]
    assert sources(samples) == [0, 1, 2, *expected_sources, 8, 9]
    other = "angular_velocity"
    assert (values(samples, other), ages(samples, other), sources(samples, other)) == (
        HEALTHY,
        [0] * 10,
        HEALTHY,
    )


@pytest.mark.parametrize("kind", ["nan", "inf"])
def test_values_that_are_not_finite_are_of_every_signal_when_none_is_named(kind):
    samples = injected(kind=kind, from_tick=3, to_tick=5)
    for signal in SIGNALS:
        bad = [not np.isfinite(sample.values[signal]).any() for sample in samples]
        assert bad == [tick in (3, 4) for tick in range(10)]


def test_what_is_dropped_from_the_start_has_never_arrived():
    sample = injected(kind="drop", from_tick=0, to_tick=2)[0]
    assert sample.received_ns == sample.source_ns == dict.fromkeys(SIGNALS, NEVER_NS)


@pytest.mark.parametrize("jump", [-3, 5])
def test_a_clock_jump_displaces_what_arrives_and_not_what_had_arrived(jump):
    faults = [
        Fault(kind="clock_jump", from_tick=3, to_tick=6, amount=jump * PERIOD_NS),
        Fault(kind="drop", from_tick=2, to_tick=6, signal="angular_velocity"),
    ]
    samples = play(FaultyRobot(Counting(), faults), 8)
    assert [sample.now_ns // PERIOD_NS for sample in samples] == [
        0,
        1,
        2,
        *(t + jump for t in (3, 4, 5)),
        6,
        7,
    ]
    assert ages(samples) == [0] * 8
    assert sources(samples)[3] == 3 + jump
    assert ages(samples, "angular_velocity")[3:6] == [2 + jump, 3 + jump, 4 + jump]


def test_a_clock_jump_leaves_a_sensors_own_clock_alone():
    samples = injected(
        kind="clock_jump", from_tick=3, to_tick=6, amount=PERIOD_NS, clock_offset_ns=7 * PERIOD_NS
    )
    assert sources(samples) == [tick + 7 for tick in range(10)]


def test_a_slow_reading_takes_its_time():
    slept = []
    robot = FaultyRobot(
        Counting(), [Fault(kind="slow_read", from_tick=2, to_tick=4, amount=30e6)], slept.append
    )
    assert values(play(robot, 6)) == list(range(6))
    assert slept == [pytest.approx(0.03)] * 2


def test_a_driver_that_raises_does_so_in_its_ticks_and_recovers():
    robot = Counting()
    faulty = FaultyRobot(
        robot,
        [
            Fault(kind="raise_read", from_tick=1, to_tick=2),
            Fault(kind="raise_write", from_tick=3, to_tick=5),
        ],
    )
    command, failed = JointCommand.allocate(2, PERIOD_NS), []
    for tick in range(6):
        command.tick = tick
        for verb, call in (("read", faulty.read), ("write", lambda: faulty.write(command))):
            try:
                call()
            except OSError as error:
                failed.append((verb, tick, str(error)))
    assert failed == [
        ("read", 1, "injected at tick 1"),
        ("write", 3, "injected at tick 3"),
        ("write", 4, "injected at tick 4"),
    ]
    assert robot.written == [0, 1, 2, 5]


def test_faults_come_again_when_ticks_start_again():
    robot = FaultyRobot(Counting(), [Fault(kind="nan", from_tick=3, to_tick=4)])
    for _ in range(2):
        bad = [bool(np.isnan(value)) for value in values(play(robot, 6))]
        assert bad == [tick == 3 for tick in range(6)]


def test_skipped_ticks_may_hide_a_fault_or_its_beginning():
    robot = FaultyRobot(
        Counting(),
        [
            Fault(kind="nan", from_tick=2, to_tick=3),
            Fault(kind="drop", from_tick=4, to_tick=9, signal="joint_position"),
        ],
    )
    play(robot, 2)
    command = JointCommand.allocate(2, PERIOD_NS)
    command.tick = 5
    robot.read()
    robot.write(command)
    assert robot.read().values["joint_position"][0] == 2


@pytest.mark.parametrize("kind", ["drop", "duplicate", "delay", "reorder", "freeze"])
def test_what_never_arrived_is_no_message_to_another_fault(kind):
    blind = FaultyRobot(Counting(), [Fault(kind="drop", from_tick=0, to_tick=6)])
    robot = FaultyRobot(blind, [Fault(kind=kind, from_tick=3, to_tick=8, amount=3.0)])
    samples = play(robot, 10)
    for tick, sample in enumerate(samples):
        never = sample.received_ns["joint_position"] == NEVER_NS
        late = kind in ("drop", "duplicate", "delay") or (kind == "reorder" and tick == 7)
        assert never == (tick < 6 or (late and tick < 8)), tick


def test_readings_are_independent_of_each_other():
    first, second = play(FaultyRobot(Counting(), []), 2)
    first.values["joint_position"][:] = -1
    assert second.values["joint_position"][0] == 1
    assert first.received_ns is not second.received_ns


def test_random_faults_are_of_every_kind_and_equal_for_equal_seeds():
    faults = random_faults(3, 20_000, SIGNALS, gap=50)
    assert faults == random_faults(3, 20_000, SIGNALS, gap=50) != random_faults(4, 20_000, SIGNALS, gap=50)
    assert {fault.kind for fault in faults} == set(KINDS)
    assert {fault.signal for fault in faults} == {None, *SIGNALS}
    assert all(a.to_tick < b.from_tick for a, b in itertools.pairwise(faults))
    assert faults[-1].to_tick < 20_000
    quiet = [fault for fault in faults if not fault.kind.startswith("raise")]
    runs = [table(play(FaultyRobot(Counting(), quiet, lambda _: None), 3000)) for _ in range(2)]
    assert runs[0] == runs[1] != table(play(FaultyRobot(Counting(), []), 3000))


def test_faults_are_written_as_text():
    fault = Fault(kind="delay", from_tick=3, to_tick=8, signal="joint_position", amount=2.0)
    assert msgspec.json.decode(msgspec.json.encode(fault), type=Fault) == fault


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"from_tick": 8}, r"drop: empty range of ticks \[8, 8\)"),
        ({"from_tick": -1}, "empty range of ticks"),
        ({"kind": "delay"}, "delay: amount must be 1 to 1000 ticks, found 0"),
        ({"kind": "set", "amount": float("nan")}, "set: amount must be finite, found nan"),
    ],
)
def test_an_impossible_fault_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        Fault(**{"kind": "drop", "from_tick": 3, "to_tick": 8} | changes)


def test_a_fault_of_a_signal_that_is_not_measured_is_refused():
    fault = Fault(kind="drop", from_tick=0, to_tick=1, signal="position")
    with pytest.raises(
        AndanteError, match="fault drop: no signal 'position'; signals: joint_position, angular"
    ):
        FaultyRobot(Counting(), [fault])

"""What is watched beyond ranges: time, frozen sensors, tilt, heat, battery, operator, own predicates."""

from __future__ import annotations

from importlib.metadata import EntryPoint

import numpy as np
import pytest
from arm import arm_policy, arm_profile
from humanoid import humanoid_policy, humanoid_profile
from rig import Rig

from andante.runtime import safety
from andante.runtime.command import NEVER_NS
from andante.runtime.errors import ProfileError
from andante.runtime.states import State

PERIOD_NS = 20_000_000
DAMP = {"action": "damping", "gains": "damping"}


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return arm_policy(tmp_path_factory.mktemp("arm"))


class Timed(Rig):
    """A rig whose stamps and values are set by the test, signal by signal."""

    def __init__(self, policy, folder, quality, **profile):
        signals = {"joint_position": {"max_age_s": 0.1}, "joint_velocity": {"max_age_s": 0.03} | quality}
        super().__init__(policy, arm_profile(folder, signals=signals, **profile), 1)
        self.go(State.RUN)

    def tick(self, **options):
        self.dq[0] += 1e-9
        return super().tick(**options)

    def stamp(self, received_ns=0, source_ns=0, moved=True):
        """One tick; stamps of `joint_velocity` relative to the tick's time."""
        sample = self.sample
        sample.now_ns = self.next * PERIOD_NS
        for signal in sample.received_ns:
            sample.received_ns[signal] = sample.source_ns[signal] = sample.now_ns
        sample.received_ns["joint_velocity"] += received_ns
        if received_ns == NEVER_NS:
            sample.lose()
        sample.source_ns["joint_velocity"] += source_ns
        if moved:
            self.dq[0] += 1e-9
        self.controller.tick(self.next, sample)
        self.next += 1
        return self.controller._measured.stale


@pytest.fixture
def timed(policy, tmp_path):
    rigs = []

    def make(**quality):
        rigs.append(Timed(policy, tmp_path, quality))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.controller.deactivate()


def test_source_stamps_mean_nothing_where_the_profile_says_so(timed):
    rig = timed()
    for source_ns in (0, -(10**15), 10**15, -5):
        assert rig.stamp(source_ns=source_ns) is None


def test_stamp_that_goes_back_is_told_and_one_that_stands_still_grows_old(timed):
    rig = timed(clock="progress")
    assert rig.stamp(source_ns=-(10**12)) == "joint_velocity has a stamp 999980.0 ms before the one before"
    assert rig.stamp(source_ns=-(10**12)) is None  # the sensor began to count anew
    assert rig.stamp(source_ns=-(10**12) - PERIOD_NS) is None  # the same stamp: 20 ms old
    assert rig.stamp(source_ns=-(10**12) - 2 * PERIOD_NS) == "joint_velocity is 40.0 ms old"


def test_zero_stamps_make_no_progress(timed):
    rig = timed(clock="progress")
    told = [rig.stamp(source_ns=-rig.next * PERIOD_NS) for _ in range(3)]
    assert told[0].startswith("joint_velocity has a stamp ")
    assert told[1:] == ["joint_velocity is 40.0 ms old", "joint_velocity is 60.0 ms old"]


def test_synchronised_stamps_count_as_age_and_must_not_be_of_the_future(timed):
    rig = timed(clock="synchronised")
    assert rig.stamp(source_ns=-31_000_000) == "joint_velocity is 31.0 ms old"
    assert rig.stamp(source_ns=2_000_000) == "joint_velocity is stamped 2.0 ms in the future"
    assert rig.stamp(source_ns=1_000_001) == "joint_velocity is stamped 1.0 ms in the future"
    assert rig.stamp(source_ns=1_000_000) is None  # clocks agree only so well
    assert rig.stamp() is None


def test_measurement_received_before_the_one_before_is_told(timed):
    rig = timed()
    assert rig.stamp(received_ns=-25_000_000) == "joint_velocity was received 5.0 ms before the one before"
    assert rig.stamp() is None


def test_gap_between_measurements_is_told_once(timed):
    rig = timed(max_gap_s=0.025)
    assert rig.stamp(received_ns=-20_000_000) is None  # the one of the tick before
    assert rig.stamp() == "joint_velocity had a gap of 40.0 ms"
    assert rig.stamp() is None
    rig = timed(max_gap_s=0.04)
    assert rig.stamp(received_ns=-20_000_000) is None
    assert rig.stamp() is None  # so much is allowed


def test_lost_and_found_again_is_no_gap(timed):
    rig = timed(max_gap_s=0.025)
    assert rig.stamp(received_ns=NEVER_NS) == "joint_position has not arrived"
    assert rig.stamp() is None


def test_equal_measurements_in_a_row_are_a_frozen_sensor(timed):
    rig = timed(frozen_after=3)
    rig.stamp()
    assert [rig.stamp(moved=False) for _ in range(3)] == [
        None,
        "joint_velocity is frozen: 3 equal measurements in a row",
        "joint_velocity is frozen: 4 equal measurements in a row",
    ]
    assert rig.stamp() is None
    rig.stamp(received_ns=-PERIOD_NS, moved=False)  # the same measurement again is not another one
    assert rig.stamp(moved=False) is None


def test_what_was_seen_of_a_signal_is_forgotten_at_activation(timed):
    rig = timed(clock="progress", frozen_after=3, max_gap_s=0.025)
    rig.stamp()
    rig.stamp(moved=False)
    rig.controller.deactivate()
    rig.next += 5
    rig.controller.activate()
    assert rig.stamp(moved=False, source_ns=-(10**12)) is None


@pytest.fixture(scope="module")
def humanoid(tmp_path_factory):
    return humanoid_policy(tmp_path_factory.mktemp("humanoid")), humanoid_profile()


@pytest.fixture
def walker(humanoid):
    """A humanoid that stands, all its devices alive."""
    rig = Rig(*humanoid, 1)
    tick, values = rig.tick, rig.sample.values
    rig.q[:] = rig.controller.profile.actuated_values(rig.controller.profile.keyframes["stand"])
    values["orientation"][:] = [0.0, 1.0, 0.0, 0.0]
    rig.silent_ns = rig.quiet_ns = 0

    def alive(**options):
        now_ns = (rig.next + options.get("skip", 0)) * PERIOD_NS
        rig.operator.heartbeat_ns = None if rig.silent_ns is None else now_ns - rig.silent_ns
        rig.operator.command_ns = now_ns - rig.quiet_ns
        for signal in ("joint_position", "joint_velocity", "angular_velocity", "linear_acceleration"):
            values[signal][0] += 1e-9
        values["orientation"][0] += 1e-9
        return tick(**options)

    rig.tick = alive
    yield rig
    rig.controller.deactivate()


def test_standing_humanoid_runs(walker):
    walker.go(State.RUN)
    assert (walker.controller.fault, walker.controller._measured.tilt) == (None, pytest.approx(0.0, abs=1e-3))


@pytest.mark.parametrize(
    ("angle", "axis", "falls"), [(0.69, 1, False), (0.71, 1, True), (-0.71, 2, True), (np.pi, 1, True)]
)
def test_base_that_leans_too_far_is_an_event(walker, angle, axis, falls):
    walker.go(State.RUN)
    turn = np.zeros(4)
    turn[0], turn[axis] = np.cos(angle / 2), np.sin(angle / 2)
    w, x, y, z = turn  # times the mounting's half turn about x
    walker.sample.values["orientation"][:] = [-x, w, z, -y]
    walker.tick()
    assert (walker.state is State.FAULT) == falls
    if falls:
        assert walker.controller.fault == f"tilt: the base leans by {abs(angle):.3g} rad, at most 0.7"


def test_orientation_that_is_no_rotation_is_no_number(walker):
    walker.go(State.RUN)
    walker.sample.values["orientation"][:] = [0.0, 0.5, 0.0, 0.0]
    walker.tick()
    assert walker.controller.fault == "non_finite: orientation is no rotation: its norm is 0.5"


@pytest.mark.parametrize(
    ("signal", "value", "fault"),
    [
        ("joint_temperature", 86.0, "temperature: joint_temperature of joint 'left_knee' is 86, at most 85"),
        ("battery_voltage", 43.9, "battery: battery_voltage is 43.9, at least 44"),
        ("battery_voltage", np.nan, "non_finite: battery_voltage is not finite"),
        ("position", np.inf, "non_finite: position is not finite"),
    ],
)
def test_signal_beyond_its_limit_raises_its_own_event(walker, signal, value, fault):
    walker.go(State.RUN)
    walker.sample.values[signal][3 if signal == "joint_temperature" else 0] = value
    for _ in range(101):
        walker.tick()
    assert walker.controller.fault == fault


@pytest.mark.parametrize("state", [State.WAIT_SENSORS, State.START, State.READY, State.RUN, State.STOP])
@pytest.mark.parametrize(
    ("silent_ns", "fault"),
    [
        (301_000_000, "the emergency-stop device has been silent for 301.0 ms"),
        (-1_500_000, "the emergency-stop device's last word is stamped 1.5 ms in the future"),
        (None, "no emergency-stop device"),
    ],
)
def test_lost_heartbeat_is_an_emergency_stop_in_every_state(walker, state, silent_ns, fault):
    walker.go(state)
    walker.silent_ns = silent_ns
    walker.tick()
    assert walker.state is State.FAULT
    assert walker.controller.fault == f"e_stop: {fault}"


@pytest.mark.parametrize("silent_ns", [0, 300_000_000])
def test_heartbeat_of_now_or_just_in_time_is_one(walker, silent_ns):
    walker.go(State.RUN)
    walker.silent_ns = silent_ns
    walker.tick()
    assert (walker.state, walker.controller.fault) == (State.RUN, None)


def test_operator_who_falls_silent_is_an_event_of_the_running_policy(walker):
    walker.quiet_ns = 1_100_000_000
    walker.go(State.READY)
    for _ in range(20):
        walker.tick(start=True)
    assert (walker.state, walker.controller.fault) == (State.READY, None)  # not started without a link
    walker.quiet_ns = 0
    walker.tick(start=True)
    walker.quiet_ns = 1_100_000_000
    for _ in range(10):
        walker.tick()
    assert walker.state is State.RUN
    walker.tick()
    assert walker.controller.fault == "operator: no command for 1100.0 ms"


@pytest.mark.parametrize(
    ("signal", "at", "value", "waiting"),
    [
        ("orientation", 0, 0.3, "the base leans by "),
        ("joint_velocity", 4, 0.6, "joint 'left_ankle_pitch' moves at 0.6, to start it must be in [0, 0.5]"),
    ],
)
def test_start_waits_for_the_profiles_conditions(walker, signal, at, value, waiting):
    values = walker.sample.values[signal]
    before = values[at]
    values[at] = value
    if signal == "orientation":
        values[:] = [0.0, np.cos(0.15), 0.0, np.sin(0.15)]
    walker.controller.activate()
    for _ in range(3):
        command = walker.tick()
    assert (walker.state, command.mode, walker.controller.fault) == (State.WAIT_SENSORS, "damping", None)
    assert walker.controller.waiting.startswith(waiting)
    values[at] = before
    if signal == "orientation":
        values[:] = [0.0, 1.0, 0.0, 0.0]
    walker.tick()
    assert (walker.state, walker.controller.waiting) == (State.START, None)


def test_robot_with_a_low_battery_does_not_start(walker):
    walker.sample.values["battery_voltage"][:] = 43.0
    walker.controller.activate()
    modes = {walker.tick().mode for _ in range(50)}  # so many are tolerated
    assert (walker.state, modes) == (State.WAIT_SENSORS, {"damping"})
    assert walker.controller.waiting == "battery_voltage is 43, at least 44"
    assert walker.tick().mode == "damping"
    assert (walker.state, walker.controller.fault) == (
        State.FAULT,
        "battery: battery_voltage is 43, at least 44",
    )


def test_start_waits_for_a_joint_to_be_in_its_range(policy, tmp_path):
    rig = Rig(policy, arm_profile(tmp_path, conditions={"position": {"lift": [0.0, 1.0]}}))
    rig.q[0] = 1.2
    rig.controller.activate()
    rig.tick()
    assert rig.controller.waiting == "joint 'lift' is at 1.2, to start it must be in [0, 1]"
    rig.q[0] = 1.0
    rig.tick()
    assert rig.state is State.START
    rig.controller.deactivate()


def near_the_edge(measured):
    if measured.q[0] > 1.0:
        return f"lift at {measured.q[0]:.2f}"
    if measured.signals["joint_velocity"][2] > 5.0:
        raise ValueError("wheel")
    return None


@pytest.fixture
def predicate(monkeypatch, policy, tmp_path):
    entry = EntryPoint("edge", f"{__name__}:near_the_edge", safety.GROUP)
    monkeypatch.setattr(safety, "entry_points", lambda group: [entry])
    fallback = arm_profile(tmp_path).fallback
    table = {
        event: [DAMP]
        for event in ("stale_source", "starvation", "overrun", "non_finite", "limit", "e_stop", "custom")
    }
    assert fallback.custom is None
    return lambda *names: Rig(policy, arm_profile(tmp_path, predicates=list(names), fallback=table), 1)


def test_own_predicate_raises_its_event_with_its_reason(predicate):
    rig = predicate("edge").go(State.RUN)
    rig.q[0] = 1.1
    rig.tick()
    assert (rig.state, rig.controller.fault) == (State.FAULT, "custom: edge: lift at 1.10")
    rig.controller.clear()
    rig.q[0] = 0.5
    rig.go(State.RUN)
    rig.dq[2] = 6.0
    rig.tick()
    assert rig.controller.fault == "custom: edge: failed: ValueError('wheel')"
    rig.controller.clear()


def test_unknown_predicate_lists_the_known_ones(predicate):
    with pytest.raises(ProfileError, match="no safety predicate 'wall'; predicates: edge"):
        predicate("wall")

"""Every step of the fallback table: what it commands, how it ends, and what comes next."""

from __future__ import annotations

import numpy as np
import pytest
from arm import arm_policy, arm_profile
from hypothesis import given, strategies as st
from rig import Rig

from andante.runtime.command import NEVER_NS
from andante.runtime.motion import BrakingMotion
from andante.runtime.states import State

DAMP = {"action": "damping", "gains": "damping"}
PERIOD_NS = 20_000_000
LIFT = {"name": "lift", "actuated": True, "sign": -1, "zero_offset": 0.5, "position": [-0.5, 1.5]}
SPIN = {"name": "spin", "actuated": True, "sign": 1, "zero_offset": 0.0, "position": None}
LIMITS = {"velocity": 20.0, "effort": 10.0, "acceleration": 50.0, "jerk": 2000.0}


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return arm_policy(tmp_path_factory.mktemp("arm"))


def profile(folder, **ladders):
    events = ("stale_source", "starvation", "overrun", "non_finite", "limit", "e_stop")
    table = {event: [DAMP] for event in events}
    joints = [LIFT | LIMITS, SPIN | LIMITS]
    return arm_profile(folder, joints=joints, fallback=table | ladders, confirm=False)


@pytest.fixture
def arm(policy, tmp_path):
    rigs = []

    def make(**ladders):
        rigs.append(Rig(policy, profile(tmp_path, **ladders), 1))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.controller.deactivate()
        rig.controller.clear()


def test_crouch_goes_smoothly_to_its_keyframe_and_then_damps(arm):
    crouch = {"action": "track", "gains": "hold", "duration_s": 0.2, "pose": {"lift": 0.0, "spin": 1.0}}
    rig = arm(e_stop=[crouch, DAMP]).go(State.RUN)
    rig.q[:] = [0.4, 0.2]
    commands = [rig.tick(e_stop="crouch")]
    while rig.state is State.FALLBACK:
        commands.append(rig.tick())
    path = np.array([command.q for command in commands if command.mode == "track"])
    assert len(path) == 10 and rig.state is State.FAULT
    np.testing.assert_allclose(path[-1], [0.0, 1.0], atol=1e-9)
    assert np.abs(path[0] - [0.4, 0.2]).max() < 0.01
    assert (np.diff(path[:, 0]) <= 0).all() and (np.diff(path[:, 1]) >= 0).all()
    assert commands[-1].mode == "damping"


def test_crouch_that_needs_longer_gets_it(arm):
    crouch = {"action": "track", "gains": "hold", "duration_s": 0.02, "pose": {"lift": 1.5, "spin": 0.0}}
    rig = arm(e_stop=[crouch, DAMP]).go(State.RUN)
    rig.q[0] = -0.5
    speeds = [rig.tick(e_stop="crouch").dq[0]]
    while rig.state is State.FALLBACK:
        speeds.append(rig.tick().dq[0])
    assert len(speeds) > 8 and 15.0 < max(speeds) <= 20.0


def test_brake_ends_at_rest_within_acceleration_and_jerk_and_stays(arm):
    rig = arm(e_stop=[{"action": "brake", "gains": "hold"}]).go(State.RUN)
    rig.q[1], rig.dq[1] = 0.3, 4.0
    targets, speeds = [0.3], [4.0]
    for _ in range(30):
        command = rig.tick(e_stop="brake")
        targets.append(command.q[1])
        speeds.append(command.dq[1])
    assert rig.state is State.FAULT and command.mode == "track"
    rates = np.diff(speeds) / 0.02
    assert (rates <= 1e-9).all() and rates.min() == pytest.approx(-50.0)
    assert np.diff(rates).min() >= -2000.0 * 0.02 - 1e-6
    assert speeds[-1] == 0.0 and targets[-1] == targets[-2] > 0.3 + 4.0**2 / (2 * 50.0)
    assert rig.controller.counters.yields == 0


def test_brake_from_above_the_hard_velocity_begins_at_it(arm):
    rig = arm(limit=[{"action": "brake", "gains": "hold"}]).go(State.RUN)
    rig.dq[1] = 25.0
    speeds = [rig.tick().dq[1] for _ in range(3)]
    assert rig.controller.fault.startswith("limit: joint_velocity of joint 'spin' is 25")
    assert speeds[0] == pytest.approx(20.0 - 40.0 * 0.02)  # the jerk of a tick
    assert speeds == sorted(speeds, reverse=True)


def test_second_brake_builds_up_its_deceleration_anew(policy_profile):
    motion, fresh = (BrakingMotion(policy_profile, PERIOD_NS) for _ in range(2))
    begin = np.array([[0.0, 0.3], [0.0, 4.0]])
    motion.begin(*begin)
    for _ in range(3):
        motion.advance()
    assert motion.dq[1] < 4.0
    for each in (motion, fresh):
        each.begin(*begin)
        each.advance()
    assert motion.dq.tolist() == fresh.dq.tolist() and fresh.dq[1] == pytest.approx(4.0 - 40.0 * 0.02)


def test_brake_yields_acceleration_before_it_leaves_the_position_range(arm):
    rig = arm(e_stop=[{"action": "brake", "gains": "hold"}]).go(State.RUN)
    rig.q[0], rig.dq[0] = 1.4, 8.0  # 0.64 m would be needed
    commands = [rig.tick(e_stop="brake") for _ in range(20)]
    targets = [command.q[0] for command in commands]
    assert max(targets) <= 1.5 and targets[-1] == pytest.approx(1.5, abs=0.02)
    assert all(command.dq[0] < 0.5 for command in commands if command.q[0] > 1.499)
    assert rig.controller.counters.yields > 0


@given(st.floats(-0.5, 1.5), st.floats(-19.0, 19.0), st.floats(-19.0, 19.0))
def test_braking_never_leaves_the_range_nor_turns_around(policy_profile, q, lift_speed, spin_speed):
    motion = BrakingMotion(policy_profile, PERIOD_NS)
    motion.begin(np.array([q, 0.0]), np.array([lift_speed, spin_speed]))
    before = motion.dq.copy()
    for _ in range(200):
        motion.advance()
        assert -0.5 <= motion.q[0] <= 1.5
        assert (motion.dq * before >= 0).all() and (np.abs(motion.dq) <= np.abs(before) + 1e-12).all()
        before = motion.dq.copy()
    assert not motion.dq.any()


@pytest.fixture(scope="module")
def policy_profile(tmp_path_factory):
    return profile(tmp_path_factory.mktemp("profile"))


def test_external_sends_nothing_more_until_it_is_cleared(arm):
    rig = arm(e_stop=[{"action": "hold", "gains": "hold", "duration_s": 0.1}, {"action": "external"}]).go(
        State.RUN
    )
    modes = [rig.tick(e_stop="out").mode for _ in range(8)]
    assert modes == ["track"] * 5 + ["disabled"] * 3
    assert (rig.state, rig.controller.fault) == (State.FAULT, "e_stop: out")


def test_external_is_possible_where_the_pose_is_not_known(arm):
    rig = arm(e_stop=[{"action": "external"}]).go(State.WAIT_SENSORS)
    assert rig.tick(age_ns=-NEVER_NS, e_stop="out").mode == "disabled"


def test_ladder_depends_on_the_state_where_the_table_says_so(arm):
    hold = {"action": "hold", "gains": "hold"}
    table = {"run": [{"action": "keep", "ticks": 2}, hold], "otherwise": [DAMP]}
    for state, modes in ((State.START, ["damping"] * 3), (State.RUN, ["track"] * 3)):
        rig = arm(limit=table).go(state)
        rig.q[0] = 1.6
        assert [rig.tick().mode for _ in range(3)] == modes
        assert rig.state is State.FAULT
        rig.controller.clear()
        rig.q[0] = 0.5
        rig.go(State.RUN)


@pytest.mark.parametrize("first", ["brake", "hold", "damping"])
def test_harder_step_takes_over_and_a_softer_one_never(arm, first):
    steps = {
        "brake": {"action": "brake", "gains": "hold"},
        "hold": {"action": "hold", "gains": "hold"},
        "damping": DAMP,
    }
    rig = arm(limit=[steps[first]], e_stop=[steps["hold"]], stale_source=[{"action": "external"}]).go(
        State.RUN
    )
    rig.q[0] = 1.6
    rig.tick()
    before = rig.controller._fallback._player._step.kind
    rig.tick(e_stop="hold")
    after = rig.controller._fallback._player._step.kind
    assert (after is before) == (first != "brake")
    assert rig.tick(age_ns=10**9).mode == "disabled"
    assert rig.controller.fault.startswith("limit: ")


HOLD = {"action": "hold", "gains": "hold"}
HOLD_A_WHILE = HOLD | {"duration_s": 0.1}
CROUCH = {"action": "track", "gains": "hold", "duration_s": 0.2, "pose": {"lift": 0.0, "spin": 1.0}}


def modes_until(rig: Rig, ticks: int, **operator) -> str:
    """A letter per tick: what is commanded."""
    return "".join(rig.tick(**operator).mode[0] for _ in range(ticks))


def test_emergency_stop_climbs_its_ladder_while_another_event_is_held_for_good(arm):
    rig = arm(limit=[HOLD], e_stop=[HOLD_A_WHILE, DAMP]).go(State.RUN)
    rig.q[0] = 1.6
    assert modes_until(rig, 3) == "ttt" and rig.state is State.FAULT
    assert modes_until(rig, 8, e_stop="pressed") == "ttttt" + "ddd"
    assert rig.state is State.FAULT and rig.controller.fault.startswith("limit: ")


def test_each_event_climbs_at_its_own_pace_and_the_hardest_step_is_played(arm):
    rig = arm(limit=[HOLD | {"duration_s": 10.0}, DAMP], e_stop=[HOLD_A_WHILE, DAMP]).go(State.RUN)
    rig.q[0] = 1.6
    rig.tick()
    assert modes_until(rig, 7, e_stop="pressed") == "ttttt" + "dd"
    assert rig.state is State.FAULT


def test_a_harder_end_is_reached_although_another_ladder_has_begun_harder(arm):
    rig = arm(e_stop=[HOLD_A_WHILE, {"action": "external"}], limit=[DAMP]).go(State.RUN)
    rig.tick(e_stop="pressed")
    rig.q[0] = 1.6
    seen = [(rig.tick().mode, rig.state) for _ in range(6)]
    assert seen == [("damping", State.FALLBACK)] * 4 + [("disabled", State.FAULT)] * 2


def test_another_events_time_ends_a_motion_that_is_under_way(arm):
    rig = arm(limit=[CROUCH, DAMP], e_stop=[HOLD_A_WHILE, DAMP]).go(State.RUN)
    rig.q[0] = 1.6
    rig.tick()
    assert modes_until(rig, 7, e_stop="pressed") == "ttttt" + "dd"


@pytest.mark.parametrize("state", [State.FALLBACK, State.FAULT])
def test_after_a_long_gap_a_step_begins_anew_from_where_the_joints_are(arm, state):
    ladder = [HOLD] if state is State.FAULT else [HOLD | {"duration_s": 100.0}, DAMP]
    rig = arm(e_stop=ladder).go(State.RUN)
    rig.q[:] = [0.2, 0.0]
    assert rig.tick(e_stop="pressed").q.tolist() == [0.2, 0.0]
    rig.q[:] = [0.9, 1.0]
    assert rig.tick(skip=2).q.tolist() == [0.2, 0.0]  # no more than the contract allows
    assert rig.tick(skip=40).q.tolist() == [0.9, 1.0]
    assert rig.state is state
    assert rig.tick().q.tolist() == [0.9, 1.0]


def test_after_a_long_gap_a_crouch_goes_on_smoothly_and_to_its_end(arm):
    rig = arm(e_stop=[CROUCH, DAMP]).go(State.RUN)
    rig.q[:] = [0.4, 0.2]
    for _ in range(4):
        rig.tick(e_stop="crouch")
    rig.q[:] = [0.9, -0.5]
    commands = [rig.tick(skip=40)]
    assert np.abs(commands[0].q - [0.9, -0.5]).max() < 0.02
    while rig.state is State.FALLBACK:
        commands.append(rig.tick())
    assert [command.mode for command in commands] == ["track"] * 10 + ["damping"]
    np.testing.assert_allclose(commands[-2].q, [0.0, 1.0], atol=1e-9)


def test_a_skipped_tick_delays_a_crouch_and_does_not_cut_it_short(arm):
    rig = arm(e_stop=[CROUCH, DAMP]).go(State.RUN)
    rig.q[:] = [0.4, 0.2]
    commands = [rig.tick(e_stop="crouch")]
    for i in range(10):
        commands.append(rig.tick(skip=2 if i == 3 else 0))
    assert [command.mode for command in commands] == ["track"] * 10 + ["damping"]
    np.testing.assert_allclose(commands[-2].q, [0.0, 1.0], atol=1e-9)


def test_tolerance_of_a_new_run_does_not_depend_on_when_an_event_was_before(arm):
    rig = arm(overrun=[{"action": "keep", "ticks": 3}, DAMP]).go(State.RUN)
    for _ in range(100):
        rig.tick()
    rig.tick(overrun=True)
    rig.controller.deactivate()
    rig.next = 0
    rig.go(State.RUN)
    assert modes_until(rig, 5, overrun=True) == "ttt" + "dd"
    assert rig.controller.fault.startswith("overrun: ")


def test_gaps_again_and_again_do_not_keep_a_step_from_its_end(arm):
    rig = arm(e_stop=[HOLD | {"duration_s": 0.5}, DAMP]).go(State.RUN)
    modes = [rig.tick(e_stop="pressed").mode]
    while len(modes) < 6:
        modes.append(rig.tick(skip=6).mode)
    assert modes == ["track"] * 4 + ["damping"] * 2  # 25 ticks are over with the 28th


def test_a_crouch_that_another_event_asks_for_as_well_goes_on_to_its_end(arm):
    far = CROUCH | {"duration_s": 0.04}  # the joints' velocity makes it longer
    rig = arm(e_stop=[far, DAMP], limit=[far, DAMP]).go(State.RUN)
    rig.q[:] = [1.4, -3.0]
    commands = [rig.tick(e_stop="crouch")]
    rig.q[0] = 1.6
    while rig.state is State.FALLBACK:
        commands.append(rig.tick())
    path = [command for command in commands if command.mode == "track"]
    assert len(path) > 10
    np.testing.assert_allclose(path[-1].q, [0.0, 1.0], atol=1e-9)
    np.testing.assert_allclose(path[-1].dq, 0.0, atol=1e-9)


@pytest.mark.parametrize(("before", "mode"), [(HOLD, "damping"), ({"action": "external"}, "disabled")])
def test_a_controller_that_failed_goes_by_the_table_from_then_on(arm, before, mode):
    rig = arm(e_stop=[before]).go(State.RUN)
    rig.tick(e_stop="pressed")
    rig.q[:] = [1.2, 2.0]
    assert rig.controller.give_up("no more").mode == mode
    assert rig.state is State.FAULT
    assert modes_until(rig, 3) == 3 * mode[0]
    rig.controller.clear()
    assert rig.go(State.RUN).controller.give_up("again").mode == "damping"
    assert rig.controller.fault == "non_finite: again"


def test_step_is_forgotten_when_a_new_run_begins(arm):
    rig = arm(e_stop=[{"action": "external"}]).go(State.RUN)
    rig.tick(e_stop="out")
    rig.controller.clear()
    rig.go(State.RUN)
    rig.q[0] = 1.6
    assert rig.tick().mode == "damping"


def test_two_reasons_for_one_event_in_a_tick_use_its_tolerance_once(arm):
    rig = arm(limit=[{"action": "keep", "ticks": 3}, DAMP]).go(State.RUN)
    rig.q[0], rig.dq[1] = 1.6, 21.0
    assert [rig.tick().mode for _ in range(5)] == ["track"] * 3 + ["damping"] * 2

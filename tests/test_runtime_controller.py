"""`Controller.tick`: states and what their edges reset, the grid of decisions, a command whatever happens."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from arm import EFFORT, LIFT_RANGE, arm_policy, arm_profile
from hypothesis import given, settings, strategies as st
from msgspec import structs
from rig import Rig, finite
from small_policy import write_small_policy

from andante.runtime.command import FIELDS, NEVER_NS
from andante.runtime.contract import Trained
from andante.runtime.errors import AndanteError
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.states import EDGES, Reset, State
from andante.runtime.worker import Answer

S = State
LIVE = (S.WAIT_SENSORS, S.START, S.READY, S.RUN, S.STOP)


@pytest.fixture(scope="module")
def pendulum(tmp_path_factory):
    path = write_small_policy(tmp_path_factory.mktemp("pendulum") / "policy.onnx")
    return lambda horizon=None: Rig(load_policy(path), load_profile("pendulum"), horizon)


@pytest.fixture(scope="module")
def arms(tmp_path_factory):
    folders = {loop: tmp_path_factory.mktemp(loop) for loop in ("host", "drive")}
    return {loop: (arm_policy(folder, loop), arm_profile(folder, loop)) for loop, folder in folders.items()}


@pytest.fixture(scope="module")
def arm(arms):
    return lambda horizon=None: Rig(*arms["drive"], horizon)


def initial_state(rig: Rig) -> np.ndarray:
    return np.full(rig.policy.contract.state_size, 0.1, np.float32)


def swing(rig: Rig, ticks: int) -> list[np.ndarray]:
    """Commands while every joint moves in its own way."""
    torques = []
    for i in range(ticks):
        rig.q[:] = 0.3 * np.sin(0.1 * i + np.arange(len(rig.q)))
        torques.append(rig.tick().tau_ff)
    return torques


def test_golden_table_of_edges():
    table = {
        (S.DISABLED, S.WAIT_SENSORS): "memory sequence events signals counters",
        (S.WAIT_SENSORS, S.START): "sequence",
        (S.WAIT_SENSORS, S.FALLBACK): "memory",
        (S.WAIT_SENSORS, S.DISABLED): "memory",
        (S.START, S.READY): "",
        (S.START, S.STOP): "sequence events",
        (S.START, S.FALLBACK): "memory",
        (S.START, S.DISABLED): "memory",
        (S.READY, S.START): "sequence",
        (S.READY, S.RUN): "memory events",
        (S.READY, S.STOP): "sequence events",
        (S.READY, S.FALLBACK): "memory",
        (S.READY, S.DISABLED): "memory",
        (S.RUN, S.STOP): "memory sequence events",
        (S.RUN, S.FALLBACK): "memory",
        (S.RUN, S.DISABLED): "memory",
        (S.STOP, S.FALLBACK): "memory",
        (S.STOP, S.DISABLED): "memory",
        (S.FALLBACK, S.FAULT): "",
        (S.FALLBACK, S.DISABLED): "memory",
        (S.FAULT, S.DISABLED): "memory",
    }
    assert {edge: {reset.value for reset in resets} for edge, resets in EDGES.items()} == {
        edge: set(resets.split()) for edge, resets in table.items()
    }
    assert set().union(*EDGES.values()) == set(Reset)


def test_life_of_a_run(pendulum):
    rig = pendulum()
    states = []
    rig.controller.activate()
    rig.tick(age_ns=-NEVER_NS)
    for i in range(200):
        states.append(rig.state)
        command = rig.tick(stop=i == 100)
        assert (command.mode == "disabled") == (rig.state is S.DISABLED)
    expected = [S.WAIT_SENSORS, *[S.START] * 25, S.READY, *[S.RUN] * 74, *[S.STOP] * 50, *[S.DISABLED] * 49]
    assert states == expected


@pytest.mark.parametrize("state", S)
def test_calls_lead_where_the_table_says_or_are_refused(arm, state):
    calls = {S.DISABLED: {"activate", "clear", "warmup"}, S.FAULT: {"clear"}}
    for call in ("activate", "clear", "warmup"):
        rig = arm()
        if state is not S.DISABLED:
            rig.go(state)
        if call in calls.get(state, ()):
            getattr(rig.controller, call)()
        else:
            with pytest.raises(AndanteError, match=rf"cannot {call} in state {state.name}"):
                getattr(rig.controller, call)()
        rig.controller.deactivate()
        assert rig.state is S.DISABLED
        rig.controller.clear()


@pytest.mark.parametrize(
    ("state", "after"),
    [
        (S.WAIT_SENSORS, S.DISABLED),
        (S.START, S.STOP),
        (S.READY, S.STOP),
        (S.RUN, S.STOP),
        (S.STOP, S.STOP),
        (S.FALLBACK, S.FALLBACK),
        (S.FAULT, S.FAULT),
    ],
)
def test_soft_stop_from_every_state(arm, state, after):
    rig = arm().go(state)
    rig.tick(stop=True)
    assert rig.state is after
    rig.controller.deactivate()
    rig.controller.clear()


def test_nothing_is_commanded_when_disabled(arm):
    rig = arm()
    command = rig.tick()
    assert command.mode == "disabled"
    assert not any(getattr(command, field).any() for field in FIELDS)


def test_waits_until_every_signal_is_fresh(arm):
    rig = arm()
    rig.controller.activate()
    rig.q[:] = np.nan  # nothing has arrived yet
    for signal in ("joint_position", "joint_velocity"):
        command = rig.tick(age_ns=-NEVER_NS, stale=signal)
        assert (rig.state, command.mode, finite(command)) == (S.WAIT_SENSORS, "damping", True)
        rig.q[:] = 0.0
    rig.tick()
    assert rig.state is S.START
    rig.controller.deactivate()


def test_start_moves_from_the_measured_pose_without_a_jump(arm):
    rig = arm()
    rig.q[:] = [0.2, 0.6, 0.0]
    rig.controller.activate()
    commands = []
    while rig.state is not S.READY:
        commands.append(rig.tick())
        rig.q[:2], rig.dq[:2] = commands[-1].q, commands[-1].dq  # a robot that follows
    rig.controller.deactivate()
    path = np.array([[0.2, 0.6]] + [command.q for command in commands])
    steps = np.abs(np.diff(path, axis=0))
    assert steps[0].max() < 0.01 and steps.max() < 0.2
    np.testing.assert_allclose(path[-1], [1.0, 0.0])
    assert (np.diff(path, axis=0) * [1, -1] >= 0).all()
    # The velocity target is the path's own: half the distance at half the time.
    middle = np.argmax([abs(command.dq[0]) for command in commands])
    np.testing.assert_allclose(commands[middle].dq, 1.875 * np.array([0.8, -0.6]) / 0.2, rtol=0.01)


def test_second_phase_begins_where_the_robot_is_then(arm, tmp_path):
    profile = load_profile("cartpole")  # stops by damping, then goes to the middle
    policy = load_policy(write_small_policy(tmp_path / "p.onnx", "cartpole"))
    rig = Rig(policy, profile).go(S.STOP)
    while rig.tick().mode == "damping":
        rig.q[0] += 0.02  # it rolls on
    assert rig.state is S.STOP
    assert rig.tick().q[0] == pytest.approx(rig.q[0], abs=1e-3)
    assert rig.q[0] > 0.3


def test_motion_never_asks_for_more_than_the_hard_velocity(arms, tmp_path):
    start = [{"action": "track", "gains": "hold", "duration_s": 0.04, "pose": {"lift": 1.0, "spin": 0.0}}]
    rig = Rig(arms["drive"][0], arm_profile(tmp_path, start=start))
    rig.q[0] = -0.5
    rig.controller.activate()
    commands = []
    while rig.state is not S.READY:
        commands.append(rig.tick())
    speeds = [abs(command.dq[0]) for command in commands]
    assert 15.0 < max(speeds) <= 18.0
    assert len(speeds) == 8 + 1  # 1.875 * 1.5 rad / (0.9 * 20 rad/s) is 7.8 ticks, then one in READY
    rig.controller.deactivate()


def sag(rig: Rig, skip: int, **operator) -> np.ndarray:
    """The robot moves while nobody commands it; how far the next command is from it, in rad."""
    rig.q[:2] = [-0.3, 0.4]
    return np.abs(rig.tick(skip, **operator).q - rig.q[:2])


def test_long_gap_in_start_begins_the_sequence_at_the_measured_pose(arm):
    for skip, state in ((3, S.START), (2, S.READY)):  # the sequence has ten ticks
        rig = arm().go(S.START)
        for _ in range(5):
            rig.tick()
        jump = sag(rig, skip)
        assert (jump < 0.02).all() == (skip == 3)
        for _ in range(3):
            rig.tick()
        assert rig.state is S.START
        rig.tick()
        assert rig.state is state
        rig.controller.deactivate()


def test_long_gap_in_ready_begins_the_start_anew_and_asks_for_another_confirmation(arm):
    rig = arm().go(S.READY)
    assert (sag(rig, skip=3, start=True) < 0.02).all()
    assert rig.state is S.START
    for _ in range(20):
        rig.tick()
    assert rig.state is S.READY
    assert (sag(rig, skip=2, start=True) > 0.1).any()
    assert rig.state is S.RUN
    rig.controller.deactivate()


def test_long_gap_in_stop_begins_the_sequence_anew(arm):
    for skip, state in ((3, S.STOP), (2, S.DISABLED)):  # five ticks of damping
        rig = arm().go(S.STOP)
        for _ in range(3):
            rig.tick()
        rig.tick(skip)
        rig.tick()
        assert rig.state is state
        rig.controller.deactivate()


def test_first_decision_is_at_the_first_tick_of_run_from_the_initial_memory(pendulum):
    rig = pendulum().go(S.READY)
    rig.q[0] = 0.7
    command = rig.tick(start=True)
    state = rig.policy.state()
    rig.policy.reset()
    rig.policy.inputs["joint_position"][:] = 0.7
    chunk = rig.policy.infer().copy()
    rig.policy.commit()
    assert command.tau_ff == chunk[0]
    np.testing.assert_array_equal(state, rig.policy.state())


@pytest.mark.parametrize("horizon", [1, 2, 5])
def test_chunk_actions_are_played_at_their_ticks(pendulum, horizon):
    rig = pendulum(horizon).go(S.READY)
    played = np.concatenate(swing(rig, 20))
    decisions = rig.controller.counters.decisions
    rig.policy.reset()
    expected = []
    for i in range(0, 20, horizon):
        rig.policy.inputs["joint_position"][:] = 0.3 * np.sin(0.1 * i)
        expected.extend(rig.policy.infer()[:horizon, 0].astype(float))
        rig.policy.commit()
    np.testing.assert_array_equal(played, expected[:20])
    assert decisions == len(range(0, 20, horizon))


def test_untrained_horizon_is_refused(pendulum):
    with pytest.raises(AndanteError, match=r"horizon 6 was not trained; trained: \[1, 2, 3, 4, 5\]"):
        pendulum(6)


def test_skipped_ticks_are_counted_and_their_actions_never_played(pendulum):
    steady, skipping = pendulum(), pendulum()
    steady.go(S.RUN)
    skipping.go(S.RUN)
    torques = [steady.tick().tau_ff for _ in range(4)]
    assert skipping.tick(skip=2).tau_ff == torques[2]
    assert skipping.tick().tau_ff == torques[3]
    assert skipping.controller.counters.skipped == 2


def test_decisions_stay_on_the_grid_when_its_tick_is_skipped(pendulum):
    rig = pendulum(3).go(S.RUN)
    first = rig.next - 1
    decided, starved = [0], []
    for skip in (0, 1, 0, 0, 0, 0, 2, 0, 0, 0):
        before = rig.controller.counters.decisions, rig.controller.counters.starved
        rig.tick(skip)
        if rig.controller.counters.decisions > before[0]:
            decided.append(rig.next - 1 - first)
        if rig.controller.counters.starved > before[1]:
            starved.append(rig.next - 1 - first)
    # 2 is skipped, later 8 and 9: the decision of 9 is dropped, 6's tail plays at 10, none is left at 11.
    assert decided == [0, 3, 6, 12]
    assert starved == []
    assert (rig.controller.counters.dropped, rig.controller.counters.off_grid) == (1, 1)
    assert rig.state is S.RUN


def test_gap_longer_than_the_contract_allows_resets_memory_and_grid(pendulum):
    rig = pendulum(5).go(S.RUN)
    swing(rig, 12)
    rig.q[0] = 0.4
    command = rig.tick(skip=rig.controller.contract.max_gap_ticks + 1)
    assert rig.controller.counters.gaps == 1
    state = rig.policy.state()
    rig.policy.reset()
    rig.policy.inputs["joint_position"][:] = 0.4
    assert command.tau_ff == rig.policy.infer()[0].astype(float)
    rig.policy.commit()
    np.testing.assert_array_equal(state, rig.policy.state())


def test_gap_that_the_contract_allows_keeps_the_memory(pendulum):
    rig = pendulum(5).go(S.RUN)
    swing(rig, 11)
    before = rig.policy.state()
    rig.tick(skip=rig.controller.contract.max_gap_ticks)
    np.testing.assert_array_equal(rig.policy.state(), before)
    assert rig.controller.counters.gaps == 0


def test_first_tick_may_have_any_number(pendulum):
    rig = pendulum()
    rig.controller.activate()
    rig.tick(skip=1000)
    rig.tick(skip=1)
    assert rig.controller.counters.skipped == 1
    rig.controller.deactivate()


def test_command_is_valid_for_the_longest_gap_that_keeps_the_memory(pendulum):
    rig = pendulum().go(S.RUN)
    assert rig.controller.contract.max_gap_ticks == 2
    assert rig.tick().valid_for_ns == 3 * 20_000_000


def test_ticks_must_increase(pendulum):
    rig = pendulum().go(S.RUN)
    rig.next -= 1
    with pytest.raises(AndanteError, match=r"tick 26 after tick 26: ticks must increase"):
        rig.tick()


def test_activation_starts_over_bit_by_bit(pendulum):
    rig = pendulum()
    runs = []
    for leave in ("stop", "deactivate", "stop"):
        rig.q[:] = 0.0
        rig.go(S.READY)
        runs.append(swing(rig, 33))
        assert not np.array_equal(rig.policy.state(), initial_state(rig))
        if leave == "deactivate":
            rig.controller.deactivate()
        while rig.state is not S.DISABLED:
            rig.tick(stop=True)
        np.testing.assert_array_equal(rig.policy.state(), initial_state(rig))
    np.testing.assert_array_equal(runs[0], runs[1])
    np.testing.assert_array_equal(runs[0], runs[2])


def test_saturations_are_counted_from_the_activation_on(arm):
    rig = arm().go(S.RUN)
    rig.dq[0] = 19.0
    rig.tick(e_stop="operator")
    assert rig.controller.counters.saturations > 0
    rig.controller.deactivate()
    rig.controller.clear()
    rig.dq[0] = 0.0
    rig.go(S.START)
    assert rig.controller.counters.saturations == 0
    rig.controller.deactivate()


def test_warmup_leaves_nothing_in_the_memory(pendulum):
    rig = pendulum()
    rig.policy.inputs["joint_position"][:] = 1.0
    rig.controller.warmup()
    np.testing.assert_array_equal(rig.policy.state(), initial_state(rig))


@pytest.mark.parametrize("state", (*LIVE, S.FALLBACK, S.FAULT))
@pytest.mark.parametrize("signal", ["joint_position", "joint_velocity"])
@pytest.mark.parametrize("value", [np.nan, np.inf, -1e39])
def test_measurement_that_is_not_finite_is_a_fault_in_every_state(arm, state, signal, value):
    rig = arm().go(state)
    rig.sample.values[signal][1] = value
    for _ in range(3):
        command = rig.tick()
        assert finite(command) and command.mode == "damping"
        assert rig.state is S.FAULT
        np.testing.assert_array_equal(rig.policy.state(), initial_state(rig))
    if state in LIVE:
        assert rig.controller.fault == f"non_finite: {signal} of joint 'spin' is not finite"
    rig.controller.clear()
    rig.sample.values[signal][1] = 0.0
    rig.go(S.RUN)
    rig.controller.deactivate()


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
def test_command_that_is_not_finite_is_no_torque_and_a_fault(arms, tmp_path):
    gains = {
        "damping": {"kd": {"lift": 4.0, "spin": 1.0}},
        "hold": {"kp": {"lift": 30.0, "spin": 1e308}, "kd": {"lift": 2.0, "spin": 1e308}},
    }
    rig = Rig(arms["drive"][0], arm_profile(tmp_path, gains=gains)).go(S.READY)
    rig.q[1], rig.dq[1] = -100.0, 19.0  # infinitely forward, and infinitely back
    command = rig.tick()
    assert command.mode == "damping"
    assert not any(getattr(command, field).any() for field in FIELDS)
    assert rig.controller.fault == "non_finite: the command"
    rig.controller.deactivate()


def test_network_that_is_not_finite_is_a_fault(pendulum):
    rig = pendulum().go(S.RUN)
    swing(rig, 7)
    rig.q[0] = 100.0  # finite, but the network of `small_policy` overflows
    while rig.state is S.RUN:
        command = rig.tick()
        assert finite(command)
    assert rig.controller.fault == "non_finite: the policy's chunk or memory is not finite"
    assert command.mode == "damping"
    np.testing.assert_array_equal(rig.policy.state(), initial_state(rig))


def test_fault_is_latched_until_cleared(arm):
    rig = arm().go(S.RUN)
    rig.q[0] = np.nan
    rig.tick()
    rig.q[0] = 0.5
    for _ in range(100):
        assert rig.tick(stop=True).mode == "damping"
    assert rig.state is S.FAULT
    rig.controller.deactivate()
    assert rig.state is S.DISABLED
    with pytest.raises(AndanteError, match=r"fault is latched \(non_finite: joint_position of joint 'lift'"):
        rig.controller.activate()
    rig.controller.clear()
    assert rig.controller.fault is None
    rig.go(S.RUN)
    rig.controller.deactivate()


def test_emergency_stop_lasts_while_it_is_pressed(arm):
    rig = arm()
    rig.controller.activate()
    rig.tick(e_stop="red button")
    assert rig.controller.fault == "e_stop: red button"
    rig.controller.deactivate()
    rig.controller.clear()
    rig.controller.activate()
    rig.tick(e_stop="")
    assert (rig.state, rig.controller.fault) == (S.FAULT, "e_stop: ")
    rig.controller.clear()
    rig.go(S.RUN)
    rig.controller.deactivate()


def test_stale_source_drops_the_decision_and_the_tail_plays(pendulum):
    rig = pendulum(3).go(S.RUN)
    rig.tick()
    rig.tick()
    before = rig.policy.state()
    command = rig.tick(age_ns=51_000_000)  # the contract allows 50 ms, the profile 60
    assert (rig.state, rig.controller.counters.dropped) == (S.RUN, 1)
    np.testing.assert_array_equal(rig.policy.state(), before)
    rig.policy.reset()
    rig.policy.inputs["joint_position"][:] = 0.0
    assert command.tau_ff == rig.policy.infer()[3].astype(float)


def test_stale_source_is_tolerated_for_the_ticks_in_the_table_and_no_longer(arm):
    rig = arm(1).go(S.RUN)
    for _ in range(5):  # three are tolerated, again and again
        for _ in range(3):
            rig.tick(age_ns=31_000_000, stale="joint_velocity")
            assert rig.state is S.RUN
        for _ in range(6):
            rig.tick(age_ns=30_000_000, stale="joint_velocity")
    for _ in range(4):
        rig.tick(age_ns=31_000_000, stale="joint_velocity")
    assert rig.state is S.FALLBACK
    assert rig.controller.fault == "stale_source: joint_velocity is 31.0 ms old"
    rig.controller.deactivate()
    rig.controller.clear()


@pytest.mark.parametrize(("every", "tolerated"), [(2, 5), (3, 100)])
def test_source_that_is_stale_again_and_again_exhausts_its_tolerance(arm, every, tolerated):
    rig = arm(1).go(S.RUN)
    for _ in range(tolerated):
        rig.tick(age_ns=10**9)
        for _ in range(every - 1):
            rig.tick()
    assert rig.state is S.RUN
    rig.tick(age_ns=10**9)
    assert (rig.state is S.FALLBACK) == (every == 2)
    rig.controller.deactivate()
    rig.controller.clear()


def test_what_was_tolerated_before_the_policy_runs_does_not_count_while_it_runs(arm):
    rig = arm(1).go(S.READY)
    for _ in range(3):  # so many are tolerated
        rig.tick(overrun=True)
    rig.tick(start=True)
    for _ in range(3):
        rig.tick(overrun=True)
    assert rig.state is S.RUN
    rig.tick(overrun=True)
    assert rig.state is S.FALLBACK
    rig.controller.deactivate()
    rig.controller.clear()


def test_tolerance_is_of_ticks_skipped_ones_included(arm):
    rig = arm(1).go(S.RUN)
    rig.tick(age_ns=10**9)
    rig.tick(skip=1, age_ns=10**9)
    assert rig.state is S.RUN  # three ticks
    rig.tick(age_ns=10**9)
    assert rig.state is S.FALLBACK
    rig.controller.deactivate()
    rig.controller.clear()


def test_measurement_from_the_future_is_stale(arm):
    rig = arm(1).go(S.RUN)
    for _ in range(4):
        assert rig.state is S.RUN
        rig.tick(age_ns=-1_500_000, stale="joint_velocity")
    assert rig.controller.fault == "stale_source: joint_velocity is stamped 1.5 ms in the future"
    rig.controller.deactivate()
    rig.controller.clear()


def test_policy_does_not_start_on_a_stale_source(arm):
    rig = arm().go(S.READY)
    rig.tick(age_ns=10**9, start=True)
    assert rig.state is S.READY
    rig.tick(start=True)
    assert rig.state is S.RUN
    rig.controller.deactivate()


@pytest.mark.parametrize(("end", "beyond"), [(0, -0.01), (1, 0.01)])
def test_limit_takes_the_ladder_step_by_step(arm, end, beyond):
    rig = arm().go(S.RUN)
    rig.q[:] = [LIFT_RANGE[end] + beyond, 0.2, 0.0]
    commands = [rig.tick()]
    found = f"joint_position of joint 'lift' is {LIFT_RANGE[end] + beyond:.4g}"
    assert rig.controller.fault == f"limit: {found}, hard limits [-0.5, 1.5]"
    rig.q[0] = 0.0
    for _ in range(9):
        commands.append(rig.tick())
    assert [command.mode for command in commands] == ["track"] * 5 + ["damping"] * 5
    assert rig.state is S.FAULT
    np.testing.assert_allclose(commands[0].q, [LIFT_RANGE[end], 0.2])
    np.testing.assert_allclose(commands[5].kd, [4.0, 1.0])
    rig.controller.clear()


def test_velocity_of_a_passive_joint_beyond_its_limit_is_an_event(arm):
    rig = arm().go(S.RUN)
    rig.dq[2] = -20.5
    rig.tick()
    assert rig.controller.fault == "limit: joint_velocity of joint 'wheel' is -20.5, hard limits [-20, 20]"
    rig.controller.deactivate()
    rig.controller.clear()


def test_fallback_only_escalates(arm):
    rig = arm().go(S.RUN)
    assert rig.tick(e_stop="operator").mode == "track"
    rig.dq[1] = np.nan
    assert rig.tick().mode == "damping"
    rig.dq[1] = 0.0
    rig.dq[0] = 30.0  # limit would hold
    assert rig.tick().mode == "damping"
    assert rig.controller.fault == "e_stop: operator"
    rig.controller.clear()


def test_unknown_pose_is_damped_not_held(arm):
    rig = arm().go(S.WAIT_SENSORS)
    assert rig.tick(age_ns=-NEVER_NS, e_stop="operator").mode == "damping"
    assert rig.state is S.FAULT
    rig.controller.clear()


def test_overruns_in_a_row_are_an_event(arm):
    rig = arm().go(S.RUN)
    for overrun in (True, True, True, False, False, True):
        rig.tick(overrun=overrun)
    assert rig.state is S.RUN
    rig.tick(overrun=True)
    assert rig.controller.fault == "overrun: work ended after the next deadline, or a tick was missed"
    rig.controller.deactivate()
    rig.controller.clear()


class DelayedWorker:
    """Answers after a number of ticks that the test sets, through the controller's own interface."""

    ready = idle = immediate = True

    def __init__(self, policy):
        self.inference_ns = self.inferences = 0
        self.policy = policy
        self.delay = 0
        self.answers: list[tuple[int, Answer]] = []
        self.polls = 0

    def request(self, tick: int, epoch: int) -> None:
        answer = Answer(tick, epoch, self.policy.infer().copy())
        self.answers.append((self.polls + self.delay, answer))

    def poll(self) -> Answer | None:
        self.polls += 1
        if self.answers and self.answers[0][0] < self.polls:
            self.last = self.answers.pop(0)[1]
            return self.last
        return None


@pytest.fixture
def delayed(tmp_path):
    delay = Trained(values=(0, 1, 2), default=0)
    horizons = Trained(values=(3,), default=3)
    path = write_small_policy(tmp_path / "p.onnx", inference_delay=delay, execution_horizon=horizons)
    policy = load_policy(path)
    worker = DelayedWorker(policy)
    return Rig(policy, load_profile("pendulum"), worker=worker).go(S.RUN), worker


def test_late_chunk_is_accepted_up_to_the_trained_delay(delayed):
    rig, worker = delayed
    worker.delay = 2
    rig.tick()
    rig.tick()
    before = rig.policy.state()
    for _ in range(2):  # decided at tick 3, not there yet: the old tail plays
        rig.tick()
        np.testing.assert_array_equal(rig.policy.state(), before)
    command = rig.tick()
    assert not np.array_equal(rig.policy.state(), before)
    assert command.tau_ff == worker.last.chunk[2].astype(float)
    assert rig.controller.counters.starved == 0


def test_refused_chunk_leaves_the_memory_bit_identical(delayed):
    rig, worker = delayed
    rig.tick()
    rig.tick()
    before = rig.policy.state()
    worker.delay = 2
    for skip in (0, 0, 1):  # the answer is due on a tick that is skipped, and comes a tick too late
        assert rig.controller.counters.refused == 0
        rig.tick(skip)
    assert rig.controller.counters.refused == 1
    np.testing.assert_array_equal(rig.policy.state(), before)


def test_answer_from_before_a_reset_is_refused(delayed):
    rig, worker = delayed
    worker.delay = 2
    for _ in range(3):
        rig.tick()
    rig.controller.deactivate()  # with one answer on its way
    rig.go(S.RUN)
    rig.tick()
    assert rig.controller.counters.refused == 1
    np.testing.assert_array_equal(rig.policy.state(), initial_state(rig))


def test_answer_from_before_a_reset_may_be_anything(delayed):
    rig, worker = delayed
    worker.delay = 2
    rig.q[0] = 100.0  # finite, but the network overflows
    for _ in range(3):
        rig.tick()
    rig.controller.deactivate()
    rig.q[0] = 0.0
    rig.go(S.RUN)
    rig.tick()
    assert (rig.state, rig.controller.counters.refused) == (S.RUN, 1)


def test_joints_are_damped_until_a_first_chunk_that_is_late_acts(delayed):
    rig, worker = delayed
    swing(rig, 6)
    rig.controller.deactivate()
    worker.delay = 1
    rig.q[0], rig.dq[0] = 0.0, 1.0
    rig.go(S.RUN)
    command = rig.controller._command
    assert (command.mode, rig.controller.counters.starved) == ("damping", 1)
    assert command.tau_ff == pytest.approx([-0.2])
    assert rig.tick().mode == "track"


@pytest.mark.parametrize("robot", ["pendulum", "arm"])
def test_nothing_is_allocated_in_ten_thousand_ticks(pendulum, arm, robot):
    rig = (pendulum() if robot == "pendulum" else arm(1)).go(S.RUN)
    controller, sample, tick = rig.controller, rig.sample, rig.next
    sample.received_ns = dict.fromkeys(sample.received_ns, sample.now_ns)
    rig.operator.start = False

    def run(ticks):
        nonlocal tick
        for _ in range(ticks):
            controller.tick(tick, sample)
            tick += 1

    run(1000)
    tracemalloc.start()
    run(100)
    before = tracemalloc.get_traced_memory()[0]
    run(10_000)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 500  # the counters' own integers
    controller.deactivate()


@st.composite
def days(draw):
    """What happens tick by tick: a measurement, a call, or both."""
    normal = st.lists(st.floats(-0.4, 1.4), min_size=3, max_size=3)
    wild = st.lists(st.sampled_from([0.0, np.nan, np.inf, 1e300, 3.0, -25.0]), min_size=3, max_size=3)
    moment = st.tuples(
        st.sampled_from([0] * 8 + [1, 2, 9]),
        st.sampled_from([0] * 18 + [10**8, 10**9]),
        st.sampled_from(["joint_position", "joint_velocity"]),
        st.one_of(*[normal] * 9, wild),
        st.sampled_from([""] * 24 + ["clear"] * 12 + ["stop", "e_stop", "overrun", "deactivate"]),
        st.integers(1, 12),
    )
    return draw(st.lists(moment, min_size=30, max_size=60))


@pytest.mark.parametrize("loop", ["host", "drive"])
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_whatever_happens_every_tick_has_one_finite_command_within_limits(arms, loop, data):
    rig = Rig(*arms[loop])
    controller, effort = rig.controller, np.array([EFFORT["lift"], EFFORT["spin"]])
    controller.activate()
    for skip, age_ns, signal, values, call, repeats in data.draw(days()):
        rig.sample.values[signal][:] = values
        if call == "deactivate" or (call == "clear" and rig.state is S.FAULT):
            getattr(controller, call)()
        if rig.state is S.DISABLED:
            controller.clear()
            controller.activate()
        for i in range(repeats):
            fault = controller.fault
            command = rig.tick(
                skip if i == 0 else 0,
                age_ns,
                signal,
                overrun=call == "overrun",
                start=True,
                stop=call == "stop" and i == 0,
                e_stop="operator" if call == "e_stop" else None,
            )
            assert command.tick == rig.next - 1
            assert finite(command)
            assert (command.mode == "disabled") == (rig.state is S.DISABLED)
            assert fault is None or controller.fault == fault
            assert fault is None or rig.state in (S.FALLBACK, S.FAULT)
            if rig.state is not S.RUN:
                np.testing.assert_array_equal(rig.policy.state(), initial_state(rig))
            q, dq = (np.where(np.abs(x[:2]) < 1e9, x[:2], 0.0) for x in (rig.q, rig.dq))
            torque = command.tau_ff + command.kp * (command.q - q) + command.kd * (command.dq - dq)
            assert (np.abs(torque) <= effort + 1e-6).all()
            assert LIFT_RANGE[0] <= command.q[0] <= LIFT_RANGE[1]


def test_equal_controllers_give_equal_commands(arm, tmp_path):
    twins = arm(2), Rig(arm_policy(tmp_path), arm_profile(tmp_path), 2)
    for rig in twins:
        rig.go(S.RUN)
    first, second = (swing(rig, 50) for rig in twins)
    np.testing.assert_array_equal(first, second)
    twins[0].controller.deactivate()


def test_sample_with_one_value_for_all_joints_is_refused(arm):
    rig = arm().go(S.RUN)
    rig.sample.values["joint_position"] = np.zeros(1)
    with pytest.raises(AndanteError, match=r"joint_position has shape \(1,\), expected \(3,\)"):
        rig.tick()
    rig.controller.deactivate()


def test_controller_takes_the_contracts_default_horizon(pendulum):
    assert pendulum().controller.planner.execution.horizon == 5


# Coming to rest


class Walker(Rig):
    """A quadruped that is told to walk, and has ten ticks to come to rest before its stop sequence."""

    def __init__(self, path):
        profile = load_profile("quadruped")
        steady = {name: structs.replace(each, frozen_after=None) for name, each in profile.signals.items()}
        super().__init__(load_policy(path), structs.replace(profile, settle_s=0.2, signals=steady))

    def walk(self, **wanted):
        self.operator.command[:] = 0.8, 0.2, 0.5
        period_ns = self.controller.contract.control_period_ns
        self.tick(command_ns=(self.next + wanted.get("skip", 0)) * period_ns, **wanted)


@pytest.fixture
def walker(tmp_path):
    return Walker(write_small_policy(tmp_path / "policy.onnx", "quadruped")).go(S.RUN)


def test_a_stop_lets_the_command_go_before_the_sequence_even_if_pressed_for_one_tick(walker):
    command = walker.controller.planner.inputs.command
    for _ in range(60):
        walker.walk()
    assert command.values.tolist() == pytest.approx([0.8, 0.2, 0.5])
    walker.walk(stop=True)
    seen = [command.values.copy()]
    for _ in range(9):
        walker.walk()
        assert walker.state is S.RUN
        seen.append(command.values.copy())
    steps = np.diff(seen, axis=0)
    limits = [-0.02 * component.slew for component in command.components]
    assert (steps <= 0.0).all() and (steps >= np.array(limits) - 1e-12).all()
    assert seen[-1][0] < 0.5 and seen[-1][1] == 0.0
    walker.walk()
    assert walker.state is S.STOP


def test_a_fault_does_not_wait_until_the_robot_is_at_rest(walker):
    walker.walk(stop=True)
    walker.walk(e_stop="operator")
    assert walker.state is S.FAULT


def test_a_long_gap_does_not_forget_that_a_stop_was_asked_for(walker):
    walker.walk(stop=True)
    walker.walk(skip=walker.controller.contract.max_gap_ticks + 1)
    for _ in range(12):
        walker.walk()
    assert walker.state is S.STOP


def test_a_swap_does_not_let_the_command_through_again_while_a_robot_comes_to_rest(walker, tmp_path):
    walker.walk(stop=True)
    walker.controller.swap(load_policy(write_small_policy(tmp_path / "other.onnx", "quadruped", seed=7)))
    before = walker.controller.planner
    seen = []
    for _ in range(8):
        walker.walk()
        assert walker.state is S.RUN
        if walker.controller.planner is not before:
            seen.append(walker.controller.planner.inputs.command.values.tolist())
    assert len(seen) == 5 and set(map(tuple, seen)) == {(0.0, 0.0, 0.0)}


def test_a_policy_that_is_commanded_otherwise_cannot_take_over(walker, tmp_path):
    contract = load_policy(write_small_policy(tmp_path / "same.onnx", "quadruped", seed=3)).contract
    sources = []
    for source in contract.sources:
        if source.kind == "command":
            source = structs.replace(source, components=(*source.components[1:], source.components[0]))
        sources.append(source)
    path = write_small_policy(tmp_path / "turned.onnx", "quadruped", seed=3, sources=tuple(sources))
    with pytest.raises(AndanteError, match=r"commanded by .*lin_vel_y.* cannot take over from one by"):
        walker.controller.swap(load_policy(path))
    assert not walker.controller.swapping


class SwapsAgain(Walker):
    """Another policy is asked for in the very tick in which one takes over."""

    def __init__(self, path, other):
        super().__init__(path)
        adopt = self.controller._adopt

        def adopt_and_ask(incoming):
            if other is not None and incoming.policy is not other:
                self.controller.swap(other)
            adopt(incoming)

        self.controller._adopt = adopt_and_ask


def test_a_swap_asked_for_while_another_one_happens_is_not_lost(tmp_path):
    first, second, third = (
        write_small_policy(tmp_path / f"{seed}.onnx", "quadruped", seed=seed) for seed in (1, 2, 3)
    )
    last = load_policy(third)
    rig = SwapsAgain(first, last).go(S.RUN)
    rig.controller.swap(load_policy(second))
    for _ in range(20):
        rig.walk()
    assert rig.policy is last

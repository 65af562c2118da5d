"""The safety filter and the gains behind it: hand-computed torques, limits, conventions, and no NaN."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from arm import EFFORT, LIFT_KD, LIFT_KP, LIFT_OFFSET, LIFT_RANGE, arm_policy, arm_profile
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays
from rig import Rig, finite
from small_policy import small_contract, write_small_policy

from andante.runtime.command import FIELDS, JointCommand
from andante.runtime.controller import Controller
from andante.runtime.errors import ProfileError
from andante.runtime.policy import load_policy
from andante.runtime.profile import SHIPPED, load_profile
from andante.runtime.safety import SafetyFilter, SaturationCounter
from andante.runtime.states import State

LIFT, SPIN = 0, 1


def all_usable(size: int) -> np.ndarray:
    return np.ones(size, bool)


@pytest.fixture(scope="module")
def arm(tmp_path_factory):
    """Per loop: a policy and a profile of the arm."""
    folders = {loop: tmp_path_factory.mktemp(loop) for loop in ("host", "drive")}
    return {loop: (arm_policy(path, loop), arm_profile(path, loop)) for loop, path in folders.items()}


def test_host_loop_turns_damping_into_torque_from_the_measured_velocity(arm):
    rig = Rig(*arm["host"]).go(State.START)
    rig.dq[:] = [0.5, -2.0, 7.0]
    command = rig.tick(stop=True)
    assert (rig.state, command.mode) == (State.STOP, "damping")
    assert command.tau_ff == pytest.approx([-4.0 * 0.5, -1.0 * -2.0])
    assert not command.kp.any() and not command.kd.any()


@pytest.mark.parametrize(("kind", "lift"), [("q", -4.0), ("dq", 0.0)])
def test_host_loop_damps_a_joint_whose_velocity_is_finite_whatever_its_position_is(arm, kind, lift):
    rig = Rig(*arm["host"]).go(State.RUN)
    rig.dq[:] = [1.0, -2.0, 0.0]
    getattr(rig, kind)[LIFT] = np.nan
    command = rig.tick()
    assert (rig.state, command.mode) == (State.FAULT, "damping")
    assert command.tau_ff == pytest.approx([lift, 2.0])


def test_host_loop_gives_no_torque_from_a_stale_measurement_after_a_fault(arm):
    rig = Rig(*arm["host"]).go(State.FAULT)
    rig.dq[:] = [1.0, -2.0, 0.0]
    assert rig.tick().tau_ff == pytest.approx([-4.0, 2.0])
    assert not rig.tick(age_ns=10**9, stale="joint_velocity").tau_ff.any()


OTHERS = ("battery_voltage", "joint_temperature", "angular_velocity", "orientation")


@pytest.fixture(scope="module")
def sensed(tmp_path_factory):
    """A host loop with more sensors than it needs, at rest or holding its pose after an emergency stop."""
    path = tmp_path_factory.mktemp("sensed")
    signals = {name: {"max_age_s": 0.03} for name in ("joint_position", "joint_velocity", *OTHERS)}
    damping = {"action": "damping", "gains": "damping"}
    ladder = [{"action": "hold", "gains": "hold", "duration_s": 0.1}, damping]
    events = ("stale_source", "starvation", "overrun", "limit", "e_stop", "temperature")
    table = dict.fromkeys(events, ladder) | {"non_finite": [damping]}
    profile = arm_profile(path, "host", signals=signals, base="stand", fallback=table)
    return lambda: Rig(arm_policy(path, "host"), profile)


@pytest.mark.parametrize("state", [State.WAIT_SENSORS, State.FALLBACK, State.FAULT])
@pytest.mark.parametrize("stale", ["joint_position", "joint_velocity", *OTHERS])
def test_host_loop_damps_or_holds_as_long_as_it_knows_what_that_needs(sensed, state, stale):
    rig = sensed().go(state)
    rig.q[:2], rig.dq[:] = [0.3, 0.1], [1.0, -2.0, 0.0]
    damped, holds = [-4.0, 2.0], state is State.FALLBACK
    if state is State.WAIT_SENSORS:
        fresh = damped
    else:
        fresh = rig.tick().tau_ff
        assert holds or fresh.tolist() == damped
    command = rig.tick(age_ns=10**9, stale=stale)
    blind = stale == "joint_velocity" or (stale == "joint_position" and holds)
    assert rig.state is state and command.mode == ("track" if holds else "damping")
    assert command.tau_ff == pytest.approx([0.0, 0.0] if blind else fresh)
    assert not command.gains.any() and np.abs(fresh).min() > 0.0
    if state is not State.WAIT_SENSORS:  # and from the next measurement on it is not blind any more
        assert rig.tick().tau_ff == pytest.approx(fresh)
    rig.controller.deactivate()


@pytest.mark.parametrize(("lift_reading", "saturates"), [(0.4, True), (0.7, False)])
@pytest.mark.parametrize("loop", ["host", "drive"])
def test_action_reaches_its_joint_in_the_robots_convention(arm, loop, lift_reading, saturates):
    policy, profile = arm[loop]
    rig = Rig(policy, profile, horizon=1).go(State.READY)
    rig.q[:] = [lift_reading, 0.2, 0.0]
    rig.dq[:] = [0.3, -0.1, 0.0]
    command = rig.tick(start=True)
    policy.reset()
    policy.inputs["q"][0] = [0.2, -(lift_reading - LIFT_OFFSET)]
    policy.inputs["dq"][0] = [-0.1, -0.3]
    spin, lift = np.clip(policy.infer()[0].astype(float), [-EFFORT["spin"], -1.0], [EFFORT["spin"], 0.9])
    target = LIFT_OFFSET - lift
    torque = LIFT_KP * (target - lift_reading) - LIFT_KD * 0.3
    assert (abs(torque) > EFFORT["lift"]) == saturates
    limited = np.clip(torque, -EFFORT["lift"], EFFORT["lift"])
    if loop == "host":
        assert command.tau_ff == pytest.approx([limited, spin])
    else:
        assert command.q[0] == pytest.approx(target) and command.tau_ff == pytest.approx([0.0, spin])
        assert command.kp == pytest.approx([LIFT_KP * limited / torque, 0.0])
        assert command.kd == pytest.approx([LIFT_KD * limited / torque, 0.0])


numbers = st.floats(-1e3, 1e3)
gains = st.one_of(st.just(0.0), st.floats(1e-3, 1e4))


@given(
    *(arrays(np.float64, 2, elements=numbers) for _ in range(5)),
    *(arrays(np.float64, 2, elements=gains) for _ in range(2)),
)
def test_implied_torque_of_any_drive_command_stays_in_its_limit(arm, q, dq, tau_ff, q_now, dq_now, kp, kd):
    policy, profile = arm["drive"]
    command = JointCommand(0, 0, "track", q, dq, tau_ff, kp, kd).copy()
    assert SafetyFilter(policy.contract, profile).limit_command(
        command, np.array([q_now, dq_now]), all_usable(2)
    )
    terms = np.array([command.tau_ff, command.kp * (command.q - q_now), command.kd * (command.dq - dq_now)])
    assert (np.abs(terms.sum(0)) <= np.array([EFFORT["lift"], EFFORT["spin"]]) + 1e-6).all()
    assert (command.kd <= kd).all() and (command.kd >= 0).all()
    assert (command.kp <= kp).all() and (command.kp >= 0).all()
    assert LIFT_RANGE[0] <= command.q[LIFT] <= LIFT_RANGE[1]


def test_drive_that_has_braked_is_not_pulled_the_other_way_nor_out_of_its_range(arm):
    rig = Rig(*arm["drive"]).go(State.RUN)
    rig.q[LIFT], rig.dq[LIFT] = 1.4, 19.0  # the drive brakes within the tick, far faster than the controller
    command = rig.tick(e_stop="operator")
    assert command.mode == "track"
    assert command.q[LIFT] == 1.4
    assert command.kd[LIFT] * -19.0 == pytest.approx(-EFFORT["lift"])


def test_torque_that_the_drives_limit_themselves_is_counted_and_left_to_them(arm):
    policy, profile = arm["drive"]
    drives = msgspec.structs.replace(profile, effort_limited_by="drive")
    command = JointCommand.allocate(2, 0)
    command.set_track(np.array([0.5, 0.0]), 0.0, np.array([1e4, 0.0]), np.array([1.0, 1.0]))
    wanted = command.copy()
    command.tau_ff[:] = 1e4
    limits = SafetyFilter(policy.contract, drives)
    assert limits.limit_command(command, np.zeros((2, 2)), all_usable(2))
    for field in ("q", "dq", "kp", "kd"):
        np.testing.assert_array_equal(getattr(command, field), getattr(wanted, field))
    np.testing.assert_array_equal(command.tau_ff, [EFFORT["lift"], EFFORT["spin"]])
    assert limits.saturations == 1


def test_command_within_all_limits_is_left_as_it_is(arm):
    policy, profile = arm["drive"]
    command = JointCommand.allocate(2, 0)
    command.set_track(np.array([0.1, 0.2]), 0.0, np.array([10.0, 1.0]), np.array([1.0, 0.1]))
    wanted = command.copy()
    SafetyFilter(policy.contract, profile).limit_command(
        command, np.array([[0.0] * 2, [1.0] * 2]), all_usable(2)
    )
    for field in FIELDS:
        np.testing.assert_array_equal(getattr(command, field), getattr(wanted, field))


@pytest.mark.filterwarnings("ignore:.*encountered in:RuntimeWarning")
@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_command_that_is_not_finite_is_told(arm, field, value):
    policy, profile = arm["drive"]
    command = JointCommand.allocate(2, 0)
    getattr(command, field)[1] = value
    told = SafetyFilter(policy.contract, profile).limit_command(command, np.zeros((2, 2)), all_usable(2))
    # Infinite q and tau_ff are clamped where a limit says to what.
    assert told == finite(command)
    assert not told or (field == "tau_ff" and value == np.inf)


def test_effort_is_clamped_to_the_stricter_of_contract_and_profile(tmp_path):
    text = (SHIPPED / "pendulum.yaml").read_text()
    path = tmp_path / "weak.yaml"
    path.write_text(text.replace("effort: 0.7", "effort: 0.3"))
    filters = {
        "profile": SafetyFilter(small_contract("pendulum"), load_profile(path)),
        "contract": SafetyFilter(small_contract("pendulum"), load_profile("pendulum")),
    }
    action = np.array([0.69])
    filters["contract"].limit_action(action)
    assert action == 0.69
    filters["profile"].limit_action(action)
    assert action == 0.3
    for name, low in (("contract", -0.7), ("profile", -0.3)):
        action[:] = -5.0
        filters[name].limit_action(action)
        assert action == low


def test_policy_whose_range_the_profile_excludes_is_refused(tmp_path):
    policy = arm_policy(tmp_path)
    profile = arm_profile(tmp_path)
    far = msgspec.structs.replace(profile.joints[0], zero_offset=-10.0)
    profile = msgspec.structs.replace(profile, joints=(far, *profile.joints[1:]))
    with pytest.raises(ProfileError, match=r"joint 'lift': the policy's position range \[-2, 0.9\]"):
        Controller(policy, profile)


def test_saturation_counts_once_until_the_value_is_well_inside_again():
    counter = SaturationCounter(np.array([-1.0]), np.array([1.0]))
    counts = []
    for value in (0.5, 1.0, 1.2, 1.0, 0.99, 1.3, 0.97, 1.1, -1.1, 1.0 + 1e-7):
        counter.update(np.array([value]))
        counts.append(counter.count)
    assert counts == [0, 0, 1, 1, 1, 1, 1, 2, 2, 2]


def test_output_that_cannot_carry_the_fallback_is_refused(arm):
    with pytest.raises(
        ProfileError, match=r"cannot carry dq, kd, kp, which robot 'arm'.*it carries q, tau_ff"
    ):
        Controller(*arm["drive"]).check_output({"q", "tau_ff"})
    with pytest.raises(ProfileError, match=r"cannot carry tau_ff"):
        Controller(*arm["host"]).check_output({"q", "dq", "kp", "kd"})
    Controller(*arm["host"]).check_output({"tau_ff"})
    Controller(*arm["drive"]).check_output(set(FIELDS))


def test_shipped_robots_need_an_output_for_torque_only(tmp_path):
    for robot in ("pendulum", "cartpole"):
        policy = load_policy(write_small_policy(tmp_path / f"{robot}.onnx", robot))
        Controller(policy, load_profile(robot)).check_output({"tau_ff"})

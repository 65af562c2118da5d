"""What the policy reads: every kind of source, in the policy's convention, with its history."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from arm import arm_policy, arm_profile
from humanoid import CLOCK_NS, HISTORY, humanoid_policy, humanoid_profile
from msgspec.structs import replace
from rig import Rig
from small_policy import small_contract

from andante.runtime.command import NEVER_NS
from andante.runtime.contract import CommandComponent, Source
from andante.runtime.errors import AndanteError, ProfileError
from andante.runtime.profile import check_fit
from andante.runtime.states import State

PERIOD_NS = 20_000_000
UPSIDE_DOWN = np.diag([1.0, -1.0, -1.0])


@pytest.fixture(scope="module")
def humanoid(tmp_path_factory):
    return humanoid_policy(tmp_path_factory.mktemp("humanoid")), humanoid_profile()


class Walk:
    """Drives a humanoid's controller with moving values, and keeps what it was told."""

    def __init__(self, humanoid, horizon=1, **options):
        self.rig = Rig(*humanoid, horizon, **options)
        self.random = np.random.default_rng(3)
        self.stand = self.rig.controller.profile.keyframes["stand"]
        self.log: list[dict[str, np.ndarray]] = []
        self.rest()
        self.rig.tick = self._alive(self.rig.tick)
        self.rig.go(State.RUN)
        self.note()

    def rest(self):
        rig = self.rig
        rig.q[:] = rig.controller.profile.actuated_values(self.stand)
        rig.sample.values["orientation"][:] = [0.0, 1.0, 0.0, 0.0]
        rig.operator.command[:] = [0.5, 0.9, -0.2]

    def _alive(self, tick):
        def alive(**options):
            rig, random = self.rig, self.random
            now_ns = (rig.next + options.get("skip", 0)) * PERIOD_NS
            rig.operator.heartbeat_ns = now_ns
            rig.operator.command_ns = now_ns if self.commanding else NEVER_NS
            rig.q[:] += random.normal(size=29) * 1e-3
            rig.dq[:] = random.normal(size=29) * 1e-2
            for signal in ("angular_velocity", "linear_acceleration", "linear_velocity", "position"):
                rig.sample.values[signal][:] = random.normal(size=3)
            tilt = random.normal() * 0.05
            # Half a turn about x, then a lean about the world's y.
            rig.sample.values["orientation"][:] = [0.0, np.cos(tilt / 2), 0.0, -np.sin(tilt / 2)]
            return tick(**options)

        return alive

    commanding = True

    def note(self):
        planner = self.rig.controller.planner
        self.log.append(
            {name: values[0].copy() for name, values in self.rig.policy.inputs.items()}
            | {signal: values.copy() for signal, values in self.rig.sample.values.items()}
            | {"action": planner.inputs.raw.copy(), "executed": planner.inputs.limited.copy()}
        )

    def go(self, ticks):
        for _ in range(ticks):
            self.rig.tick()
            self.note()
        return self.log


@pytest.fixture
def walk(humanoid):
    return Walk(humanoid)


def near(found, expected):
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def test_joints_are_read_in_the_policys_order(walk):
    log = walk.go(4)
    near(log[-1]["q"], log[-1]["joint_position"][::-1])
    near(log[-1]["dq"][-1], log[-1]["joint_velocity"][::-1])


def test_history_is_of_the_last_ticks_and_of_the_first_value_at_a_reset(walk):
    log = walk.go(5)
    near(log[0]["dq"], [log[0]["joint_velocity"][::-1]] * HISTORY)
    near(log[1]["dq"], [log[i]["joint_velocity"][::-1] for i in (0, 0, 1)])
    for i in range(2, 6):
        near(log[i]["dq"], [log[j]["joint_velocity"][::-1] for j in (i - 2, i - 1, i)])
        near(log[i]["gyro"], [UPSIDE_DOWN @ log[j]["angular_velocity"] for j in (i - 2, i - 1, i)])


def test_history_begins_anew_after_a_long_gap_and_repeats_over_a_short_one(walk):
    walk.go(4)
    walk.rig.tick(skip=1)
    walk.note()
    log = walk.log
    near(log[-1]["dq"], [log[i]["joint_velocity"][::-1] for i in (-2, -2, -1)])
    walk.rig.tick(skip=3)
    walk.note()
    assert walk.rig.controller.counters.gaps == 1
    near(log[-1]["dq"], [log[-1]["joint_velocity"][::-1]] * HISTORY)
    near(log[-1]["phase"], [0.0])


def test_body_vectors_are_turned_as_the_sensor_is_mounted(walk):
    log = walk.go(2)
    near(log[-1]["accelerometer"], UPSIDE_DOWN @ log[-1]["linear_acceleration"])
    near(log[-1]["velocity"], log[-1]["linear_velocity"])
    near(log[-1]["place"], log[-1]["position"])


def test_gravity_points_down_the_bodys_own_axes(walk):
    log = walk.go(1)
    _, x, _, z = log[-1]["orientation"]
    lean = -2 * np.arctan2(z, x)  # about y, forwards
    near(log[-1]["gravity"], [np.sin(lean), 0.0, -np.cos(lean)])
    assert abs(lean) > 1e-3


def test_executed_actions_are_those_of_the_tick_before(walk):
    log = walk.go(6)
    center = np.array(walk.rig.controller.contract.action_center)
    near(log[0]["raw"], center)
    near(log[0]["limited"], [center, center])
    near(log[1]["limited"], [center, log[0]["executed"]])
    for i in range(2, 7):
        near(log[i]["raw"], log[i - 1]["action"])
        near(log[i]["limited"], [log[i - 2]["executed"], log[i - 1]["executed"]])


def test_limits_are_what_the_second_stage_tells(humanoid):
    policy, profile = humanoid
    narrow = []
    for joint in profile.joints:
        low, high = joint.position
        if joint.name.endswith(("pitch", "knee", "elbow")):
            high = low + 0.8 * (high - low)
        narrow.append(replace(joint, position=(low, high)))
    walk = Walk((policy, replace(profile, joints=tuple(narrow))))
    highest = np.array([joint.position[1] for joint in reversed(narrow)])
    log = walk.go(3)
    near(log[-1]["limited"][-1], np.minimum(log[-1]["raw"], highest))
    assert (log[-1]["raw"] > highest + 1e-3).any()


def test_committed_actions_are_those_until_the_chunk_acts(humanoid):
    walk = Walk(humanoid, horizon=2, inference_delay=1)
    planner = walk.rig.controller.planner
    decided = 0
    for _ in range(12):
        before = walk.rig.controller.counters.decisions
        walk.rig.tick()
        walk.note()
        if walk.rig.controller.counters.decisions > before:
            committed = walk.log[-1]["committed"]
            near(committed[0], walk.log[-1]["action"])
            near(committed[1], 0.0)
            decided += 1
    assert (decided, planner.delay, walk.rig.controller.planner.execution.mode) == (6, 1, "prefix")


def test_nothing_is_committed_without_delay(walk):
    near(walk.go(3)[-1]["committed"], np.zeros((2, 29)))


def test_clock_counts_from_the_memorys_reset_and_never_drifts(humanoid):
    walk = Walk(humanoid)
    log = walk.go(45)
    for i, entry in enumerate(log):
        near(entry["phase"], [i * PERIOD_NS % CLOCK_NS / CLOCK_NS])
    inputs = walk.rig.controller.planner.inputs
    inputs.collect(10**12 + 7, 0, walk.rig.operator, walk.rig.sample.now_ns)
    inputs.gather(0, walk.rig.controller.planner._chunks, 0)
    near(walk.rig.policy.inputs["phase"], [[7 / 20]])


def test_command_is_clipped_slewed_and_times_out_to_its_harmless_value(humanoid):
    walk = Walk(humanoid)
    log = walk.go(8)
    near([entry["command"][0] for entry in log[:8]], [0.08, 0.16, 0.24, 0.32, 0.4, 0.48, 0.5, 0.5])
    near(log[-1]["command"][1:], [0.5, -0.2])  # 0.9 is beyond what was trained
    walk.commanding = False
    near(walk.go(1)[-1]["command"], [0.42, 0.0, 0.0])
    walk.commanding = True
    near(walk.go(1)[-1]["command"], [0.5, 0.5, -0.2])
    walk.rig.operator.command[0] = 0.0
    walk.rig.tick(skip=2)
    near(walk.rig.policy.inputs["command"][0, 0], 0.5 - 3 * 0.08)


def test_command_stamped_in_the_future_is_no_command(humanoid):
    walk = Walk(humanoid)
    sample = walk.rig.sample
    tick = walk.rig.controller.tick

    def early(number, sample):
        sample.operator.command_ns = sample.now_ns + 1
        return tick(number, sample)

    walk.rig.controller.tick = early
    near(walk.go(1)[-1]["command"], np.zeros(3))
    del walk.rig.controller.tick
    assert sample.operator.command_ns > sample.now_ns


def test_command_that_is_not_finite_is_a_fault(humanoid):
    walk = Walk(humanoid)
    walk.rig.operator.command[1] = np.nan
    walk.rig.tick()
    assert walk.rig.controller.fault == "non_finite: command 'vy' is not finite"


def test_command_of_another_size_is_refused(humanoid):
    walk = Walk(humanoid)
    walk.rig.operator.command = np.zeros(2)
    with pytest.raises(AndanteError, match=r"the command has shape \(2,\), expected \(3,\)"):
        walk.rig.tick()


def test_gear_ratio_sign_and_offset_are_undone(tmp_path):
    joints = [
        {"name": "lift", "actuated": True, "sign": -1, "zero_offset": 0.5, "position": [-5.0, 5.0]},
        {"name": "spin", "actuated": True, "sign": 1, "zero_offset": 0.0, "position": None},
    ]
    for joint in joints:
        joint |= {"velocity": 100.0, "effort": 10.0, "gear_ratio": 4.0}
    rig = Rig(arm_policy(tmp_path), arm_profile(tmp_path, joints=joints), 1).go(State.READY)
    rig.q[:], rig.dq[:] = [0.9, 2.0], [8.0, -4.0]
    command = rig.tick(start=True)
    near(rig.policy.inputs["q"][0], [2.0 / 4.0, -(0.9 - 0.5) / 4.0])
    near(rig.policy.inputs["dq"][0], [-1.0, -2.0])
    spin, lift = rig.controller.planner.inputs.limited
    near(command.tau_ff, [0.0, spin / 4.0])
    near(command.q[0], -4.0 * lift + 0.5)
    # kp (q* - q) of the joint's side is a quarter on the motor's, of an angle four times as large.
    torque = command.kp[0] * (command.q[0] - 0.9) - command.kd[0] * 8.0
    near(torque, np.clip((40.0 * (lift + 0.1) - 2.0 * -2.0 * -1 * -1) / -4.0, -10.0, 10.0))
    rig.controller.deactivate()


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (Source(name="lidar", kind="reading", unit="1", size=4, max_age_ns=1), "'lidar' of kind reading"),
        (
            Source(name="gyro", kind="angular_velocity", unit="rad/s", frame="torso", max_age_ns=1),
            r"'gyro' needs the signal 'angular_velocity' of 'torso', the robot measures: joint_position",
        ),
    ],
)
def test_source_that_the_robot_cannot_serve_is_refused(humanoid, source, message):
    policy, profile = humanoid
    contract = small_contract(
        robot_model="humanoid29", actions=policy.contract.actions, sources=(source,), task="none"
    )
    with pytest.raises(ProfileError, match=message):
        check_fit(contract, profile)


def test_command_component_starts_at_its_timeout_value(tmp_path):
    component = CommandComponent(name="speed", unit="rad/s", low=1.0, high=3.0, slew=5.0, timeout_value=1.0)
    speed = Source(name="speed", kind="command", unit="", components=(component,), max_age_ns=50_000_000)
    q = Source(name="q", kind="joint_position", joints=("spin", "lift"), unit="rad", max_age_ns=50_000_000)
    rig = Rig(arm_policy(tmp_path, sources=(q, speed)), arm_profile(tmp_path), 1).go(State.READY)
    rig.operator.command[0] = 2.0
    found = []
    for _ in range(4):
        rig.operator.command_ns = rig.next * PERIOD_NS
        rig.tick(start=True)
        found.append(rig.policy.inputs["speed"][0, 0])
    near(found, [1.1, 1.2, 1.3, 1.4])
    rig.controller.deactivate()


def test_nothing_is_allocated_with_29_joints_and_every_source(humanoid):
    rig = Walk(humanoid, horizon=2).rig
    controller, sample = rig.controller, rig.sample
    values = [sample.values[name] for name in ("joint_position", "joint_velocity", "orientation")]
    values += [sample.values[name] for name in ("angular_velocity", "linear_acceleration")]

    def run(ticks):
        for _ in range(ticks):
            sample.now_ns = rig.next * PERIOD_NS
            for signal in sample.received_ns:
                sample.received_ns[signal] = sample.source_ns[signal] = sample.now_ns
            rig.operator.heartbeat_ns = rig.operator.command_ns = sample.now_ns
            for array in values:
                array[0] += 1e-9
            controller.tick(rig.next, sample)
            rig.next += 1

    run(1000)
    tracemalloc.start()
    run(100)
    before = tracemalloc.get_traced_memory()[0]
    tracemalloc.reset_peak()
    run(10_000)
    after, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (controller.state, controller.fault) == (State.RUN, None)
    assert after - before < 500  # the counters' own integers
    assert peak - before < 4000  # small objects come and go, no arrays of any size

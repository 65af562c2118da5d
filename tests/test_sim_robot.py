"""The simulated robot: training's physics behind a robot's interface."""

from __future__ import annotations

import dataclasses
import math

import msgspec
import mujoco
import numpy as np
import pytest
import torch
from sled import sled_profile, sled_task, sources
from small_policy import small_contract, write_small_policy

import andante.sim.spec
import andante.sim.tasks
from andante.runtime.command import FIELDS, JointCommand
from andante.runtime.contract import ActionTerm
from andante.runtime.errors import AndanteError
from andante.runtime.operator import command_components
from andante.runtime.policy import load_policy
from andante.runtime.profile import Profile, load_profile
from andante.sim import make
from andante.sim.closed_loop import closed_loop
from andante.sim.env import Env
from andante.sim.fixed_command import FixedCommand
from andante.sim.observe import gravity_direction
from andante.sim.robot import SimRobot
from andante.sim.spec import get_spec
from andante.sim.spec.models import build_model

PERIOD_NS = 20_000_000


def command(tick: int, valid_ticks: int = 3, mode="track", **fields) -> JointCommand:
    made = JointCommand.allocate(1, valid_ticks * PERIOD_NS)
    made.tick, made.mode = tick, mode
    for field, value in fields.items():
        getattr(made, field)[:] = value
    return made


def pendulum(profile: Profile | None = None, **changes) -> SimRobot:
    robot = SimRobot(small_contract("pendulum", **changes), profile or load_profile("pendulum"))
    robot.set_state([2.0], [0.3])
    return robot


def changed_profile(joint: dict, **changes) -> Profile:
    """The pendulum's, with another hinge."""
    profile = load_profile("pendulum")
    hinge = msgspec.structs.replace(profile.joints[0], **joint)
    return msgspec.structs.replace(profile, joints=(hinge,), **changes)


def state(robot: SimRobot) -> list[float]:
    return [*robot.data.qpos, *robot.data.qvel]


@pytest.mark.parametrize("name", ["pendulum", "cartpole"])
def test_for_the_same_torques_the_robot_equals_the_worlds_of_training(name):
    contract = small_contract(name)
    env = make(contract.task, 1, seed=4)
    env.reset()
    robot = SimRobot(contract, load_profile(name))
    positions = slice(1, 1 + robot.model.nq)
    start = env.state_dict()["state"][0]
    robot.set_state(start[positions], start[positions.stop :])
    high = contract.actions[0].high[0]
    torques = (torch.rand(60, generator=torch.Generator().manual_seed(0)) * 2 - 1) * high / 2
    for tick, torque in enumerate(torques):
        env.step(torque.view(1, 1, 1))
        robot.write(command(tick, tau_ff=torque.item()))
        expected = env.state_dict()["state"][0]
        assert torch.equal(torch.tensor(state(robot)), expected[1:])
        reading = robot.read().values["joint_position"]
        assert torch.equal(torch.tensor(reading), expected[positions])


def test_skipped_ticks_go_on_under_the_last_command():
    jumping, steady = pendulum(), pendulum()
    for tick in range(3):
        steady.write(command(tick, tau_ff=0.4))
    steady.write(command(3, tau_ff=-0.2))
    jumping.write(command(0, tau_ff=0.4))
    jumping.write(command(3, tau_ff=-0.2))
    assert state(jumping) == state(steady)
    assert jumping.read().now_ns == steady.read().now_ns == 4 * PERIOD_NS


def test_a_command_is_not_obeyed_beyond_its_validity():
    jumping, steady = pendulum(), pendulum()
    for tick, torque in enumerate((0.4, 0.4, 0.0, 0.0, -0.2)):
        steady.write(command(tick, tau_ff=torque))
    jumping.write(command(0, valid_ticks=2, tau_ff=0.4))
    jumping.write(command(4, tau_ff=-0.2))
    assert state(jumping) == state(steady)


def test_no_tick_is_made_up_before_the_first_command_or_when_ticks_start_again():
    robot, steady = pendulum(), pendulum()
    for tick in (1000, 0, 1):
        robot.write(command(tick, tau_ff=0.3))
    for tick in range(3):
        steady.write(command(tick, tau_ff=0.3))
    assert state(robot) == state(steady)


def test_a_disabled_robot_moves_freely():
    disabled, free = pendulum(), pendulum()
    disabled.write(command(0, tau_ff=0.5))
    disabled.set_state([2.0], [0.3])
    disabled.write(command(0, mode="disabled", tau_ff=0.5))
    free.write(command(0))
    assert state(disabled) == state(free)


def test_torque_beyond_the_profiles_limit_does_not_reach_the_joint():
    strong, limited = pendulum(), pendulum()
    strong.write(command(0, tau_ff=100.0))
    limited.write(command(0, tau_ff=0.7))
    assert state(strong) == state(limited)


def test_readings_and_torques_follow_the_profiles_sign_and_offset():
    plain = pendulum()
    mirrored = pendulum(changed_profile({"sign": -1, "zero_offset": 0.25}))
    for tick in range(20):
        plain.write(command(tick, tau_ff=0.3))
        mirrored.write(command(tick, tau_ff=-0.3))
    assert state(mirrored) == state(plain)
    values = mirrored.read().values
    assert values["joint_position"] == [-plain.data.qpos[0] + 0.25]
    assert values["joint_velocity"] == [-plain.data.qvel[0]]


POSITION = ActionTerm(
    name="angle",
    kind="position",
    joints=("hinge",),
    unit="rad",
    low=(-4.0,),
    high=(4.0,),
    kp=(3.0,),
    kd=(0.2,),
    closed_by="drive",
)


@pytest.mark.parametrize(("sign", "offset"), [(1, 0.0), (-1, 0.5)])
def test_a_drive_closes_the_position_loop_as_in_training_at_every_physics_step(sign, offset):
    changes = {"sign": sign, "zero_offset": offset, "effort": 50.0}
    robot = pendulum(changed_profile(changes, pd_loop="drive"), actions=(POSITION,))
    assert robot.carries == frozenset(FIELDS)
    model = build_model(dataclasses.replace(get_spec("pendulum-swingup-blind"), actions=(POSITION,)))
    data = mujoco.MjData(model)
    data.qpos[:], data.qvel[:] = robot.data.qpos, robot.data.qvel
    for tick, target in enumerate(np.linspace(1.0, 3.0, 30)):
        data.ctrl[:] = target
        mujoco.mj_step(model, data, 2)
        robot.write(command(tick, q=sign * target + offset, kp=3.0, kd=0.2))
    assert state(robot) == pytest.approx([*data.qpos, *data.qvel], rel=1e-12)
    if sign == 1:
        assert state(robot) == [*data.qpos, *data.qvel]


def test_a_drive_adds_velocity_target_and_feed_forward_torque():
    profile = changed_profile({"effort": 50.0}, pd_loop="drive")
    drive, torque = pendulum(profile), pendulum(profile)
    drive.write(command(0, q=2.5, dq=1.0, tau_ff=0.1, kp=3.0, kd=0.2))
    # kp (q* - q) + kd (dq* - dq) + tau_ff at the start of the tick, which is held in `torque` only.
    torque.write(command(0, tau_ff=3.0 * 0.5 + 0.2 * 0.7 + 0.1))
    first = [drive.data.qvel[0], torque.data.qvel[0]]
    assert first[0] == pytest.approx(first[1], rel=0.05)
    assert first[0] != first[1]


def test_a_robot_of_torque_drives_carries_nothing_else_and_ignores_gains():
    plain, gains = pendulum(), pendulum()
    assert plain.carries == {"tau_ff"}
    plain.write(command(0, tau_ff=0.2))
    gains.write(command(0, tau_ff=0.2, q=1.0, dq=1.0, kp=5.0, kd=1.0))
    assert state(plain) == state(gains)


def test_samples_carry_the_profiles_signals_fresh_on_the_simulated_clock():
    robot = pendulum()
    robot.write(command(0))
    sample = robot.read()
    assert sample.now_ns == PERIOD_NS
    assert sample.received_ns == {"joint_position": PERIOD_NS, "joint_velocity": PERIOD_NS}


def test_the_robot_starts_where_its_task_does_by_seed():
    starts = [
        state(SimRobot(small_contract(), load_profile("pendulum"), seed=seed)) for seed in (0, 0, 1, 2, 3)
    ]
    assert starts[0] == starts[1]
    assert len({tuple(start) for start in starts}) == 4
    assert all(abs(angle - np.pi) <= 0.5 and abs(speed) <= 1 for angle, speed in starts)


def test_a_profile_with_a_joint_that_the_model_lacks_is_refused_by_name():
    profile = load_profile("pendulum")
    wrist = msgspec.structs.replace(profile.joints[0], name="wrist", actuated=False, effort=None)
    with pytest.raises(AndanteError, match="no joint 'wrist', which the profile names; joints: hinge"):
        SimRobot(small_contract(), msgspec.structs.replace(profile, joints=(*profile.joints, wrist)))


@pytest.mark.parametrize("robot", ["pendulum", "cartpole"])
def test_closed_loop_returns_are_those_of_the_worlds_of_training(robot, tmp_path):
    path = write_small_policy(tmp_path / "policy.onnx", robot, seed=3)
    policy = load_policy(path)
    expected = []
    for world in range(4):
        env = make(policy.contract.task, 4, seed=11)
        observation, done, total = env.reset(), False, 0.0
        policy.reset()
        while not done:
            for name, values in observation.sources.items():
                policy.inputs[name][:] = values[world : world + 1]
            chunk = torch.from_numpy(policy.infer())
            policy.commit()
            outcome = env.step(chunk.expand(4, -1, -1))
            total += outcome.reward[world].sum().item()
            observation, done = outcome.observation, outcome.done[world]
        expected.append(total)
    loop = closed_loop(path, policy.contract.task, episodes=4, seed=11)
    assert loop.returns == pytest.approx(expected, rel=1e-6)
    assert loop.returns.max() > 0
    assert loop.faults == ()


def sled_contract(spec, **changes):
    fields = {
        "task": "sled",
        "robot_model": "sled",
        "control_period_ns": spec.control_period_ns,
        "decimation": spec.decimation,
        "sources": spec.sources,
        "actions": tuple(
            msgspec.structs.replace(each, center=(center,))
            for each, center in zip(spec.actions, spec.action_center, strict=True)
        ),
    }
    return fields | changes


@pytest.fixture
def sled(tmp_path, monkeypatch):
    """The sled as a task that can be found by name."""
    task = sled_task(tmp_path, pushes=None, episode_ticks=60, sources=sources(history=3))
    monkeypatch.setitem(andante.sim.spec.TASKS, "sled", task.spec)
    monkeypatch.setitem(andante.sim.tasks.TASKS, "sled", task)
    return task


def test_a_floating_robot_measures_what_the_worlds_of_training_observe(sled, tmp_path):
    robot = SimRobot(small_contract(**sled_contract(sled.spec)), sled_profile(tmp_path))
    env = Env(sled, 1, seed=5)
    observed = env.reset().sources
    positions = slice(1, 1 + robot.model.nq)
    start = env.state_dict()["state"][0]
    robot.set_state(start[positions], start[positions.stop :])
    actions = torch.rand(30, 3, generator=torch.Generator().manual_seed(0)) - 0.5
    for tick in range(31):
        values = {name: torch.from_numpy(found).float() for name, found in robot.read().values.items()}
        assert torch.equal(values["joint_position"], observed["q"][0, -1])
        assert torch.equal(values["joint_velocity"][[1, 0]], observed["dq"][0])
        assert torch.equal(values["angular_velocity"], observed["angular_velocity of imu"][0, -1])
        assert torch.equal(values["linear_acceleration"], observed["linear_acceleration of imu"][0])
        assert torch.equal(values["linear_velocity/boom"], observed["linear_velocity of boom"][0])
        assert torch.equal(values["position/boom"], observed["position of boom"][0])
        gravity = gravity_direction(values["orientation"])
        torch.testing.assert_close(gravity, observed["gravity of imu"][0, -1], atol=1e-6, rtol=0)
        if tick == 30:
            break
        action = actions[tick].double().numpy()
        made = JointCommand.allocate(3, 3 * PERIOD_NS)
        made.tick, made.mode = tick, "track"
        made.q[0], made.kp[0], made.kd[0] = action[0], 8.0, 1.0
        made.tau_ff[1] = action[1]
        made.dq[2], made.kd[2] = action[2], 0.02
        robot.write(made)
        observed = env.step(actions[None, None, tick]).observation.sources


def test_a_geared_joint_moves_as_without_gear_for_what_the_drive_is_told(sled, tmp_path):
    contract = small_contract(**sled_contract(sled.spec))
    joint = {"position": None, "velocity": 100.0, "actuated": True, "zero_offset": 0.0, "sign": 1}
    joints = [joint | {"name": name, "effort": 20.0} for name in ("pan", "tilt", "wheel")]
    geared = [joints[0] | {"gear_ratio": 4.0, "sign": -1, "zero_offset": 0.3}, *joints[1:]]
    plain = SimRobot(contract, sled_profile(tmp_path))
    robot = SimRobot(contract, sled_profile(tmp_path, joints=geared))
    for each, scale, offset in ((plain, 1.0, 0.0), (robot, -4.0, 0.3)):
        for tick in range(20):
            made = JointCommand.allocate(3, 3 * PERIOD_NS)
            made.tick, made.mode = tick, "track"
            made.q[0], made.dq[0] = scale * 0.5 + offset, scale * 0.2
            made.tau_ff[0] = 0.1 / scale
            made.kp[0], made.kd[0] = 8.0 / scale**2, 1.0 / scale**2
            each.write(made)
    assert state(robot) == pytest.approx(state(plain), rel=1e-9, abs=1e-12)
    assert robot.read().values["joint_position"][0] == pytest.approx(-4 * plain.data.qpos[7] + 0.3)
    assert abs(plain.effort()[0]) > 0.001
    assert robot.effort() == pytest.approx(plain.effort() / (-4.0, 1.0, 1.0))


def test_a_negative_seed_is_refused():
    with pytest.raises(AndanteError, match="seed must not be negative, found -1"):
        SimRobot(small_contract("pendulum"), load_profile("pendulum"), seed=-1)


def test_a_turned_sensor_measures_along_its_own_axes(sled, tmp_path):
    contract = small_contract(**sled_contract(sled.spec))
    mounting = [math.cos(0.3), 0.0, 0.0, math.sin(0.3)]
    age = {"max_age_s": 0.06}
    signals = {
        "joint_position": age,
        "joint_velocity": age,
        "orientation": age | {"mounting": mounting},
        "angular_velocity": age | {"mounting": mounting},
        "linear_acceleration": age,
        "linear_velocity/boom": age,
        "position/boom": age,
    }
    plain = SimRobot(contract, sled_profile(tmp_path))
    turned = SimRobot(contract, sled_profile(tmp_path, signals=signals))
    for robot in (plain, turned):
        robot.data.qvel[3:6] = [0.4, 0.2, 1.0]
        robot.set_state(robot.data.qpos, robot.data.qvel)
    body, sensor = plain.read().values, turned.read().values
    matrix = np.zeros(9)
    mujoco.mju_quat2Mat(matrix, np.array(mounting))
    matrix = matrix.reshape(3, 3)
    assert matrix @ sensor["angular_velocity"] == pytest.approx(body["angular_velocity"])
    both = [gravity_direction(torch.tensor(values["orientation"])).numpy() for values in (body, sensor)]
    assert matrix @ both[1] == pytest.approx(both[0])
    assert sensor["linear_acceleration"] == pytest.approx(body["linear_acceleration"])


def test_a_simulated_robot_is_charged_and_cool(sled, tmp_path):
    signals = ("joint_position", "joint_velocity", "joint_temperature", "battery_voltage")
    bodies = (
        "orientation",
        "angular_velocity",
        "linear_acceleration",
        "linear_velocity/boom",
        "position/boom",
    )
    profile = sled_profile(
        tmp_path,
        more_events=("battery", "temperature"),
        signals={signal: {"max_age_s": 0.06} for signal in (*signals, *bodies, "position/boom")},
        min_battery_voltage=20.0,
    )
    values = SimRobot(small_contract(**sled_contract(sled.spec)), profile).read().values
    assert values["battery_voltage"] == [25.0]
    assert values["joint_temperature"].tolist() == [25.0] * 3


def test_a_closed_loop_with_commands_and_variables_returns_what_training_does(sled, tmp_path):
    fields = sled_contract(sled.spec)
    path = write_small_policy(tmp_path / "policy.onnx", seed=4, **fields)
    policy = load_policy(path)
    env = Env(sled, 3, seed=11)
    expected = []
    for world in range(3):
        env = Env(sled, 3, seed=11)
        observation, done, total = env.reset(), False, 0.0
        policy.reset()
        while not done:
            for name, values in observation.sources.items():
                policy.inputs[name][:] = values[world : world + 1]
            chunk = torch.from_numpy(policy.infer())
            policy.commit()
            outcome = env.step(chunk.expand(3, -1, -1))
            total += outcome.reward[world].sum().item()
            observation, done = outcome.observation, outcome.done[world]
        expected.append(total)
    loop = closed_loop(path, "sled", episodes=3, seed=11, profile=sled_profile(tmp_path))
    assert loop.faults == ()
    assert loop.returns == pytest.approx(expected, rel=1e-3)
    assert len({round(value, 3) for value in expected}) == 3


def test_a_fixed_command_for_a_policy_without_one_is_refused():
    components = command_components(small_contract("pendulum"))
    with pytest.raises(AndanteError, match=r"^fixed command: this policy has no command, found '0.8,0,0'$"):
        FixedCommand(components, "0.8,0,0")

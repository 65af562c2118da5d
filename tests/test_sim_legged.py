"""Velocity tasks of legged robots: shipped ones, and others described by a file."""

from __future__ import annotations

import math
from dataclasses import replace

import msgspec
import mujoco
import numpy as np
import pytest
import torch
from small_policy import write_small_policy

from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.states import State
from andante.sim import make
from andante.sim.robot import SimRobot
from andante.sim.spec import TASKS, get_spec
from andante.sim.spec.describe import describe
from andante.sim.spec.legged import REWARD, LeggedRobot
from andante.sim.spec.legged.file import EXAMPLES, LeggedFile
from andante.sim.spec.models import ROBOTS, build_model
from andante.sim.spec.quadruped import QUADRUPED
from andante.sim.spec.yaml_file import read_yaml
from andante.sim.task import ORDERS, Sensors, Ticks, sensor_columns
from andante.sim.tasks import get_task, hexapod, quadruped
from andante.train.ppo import PPO
from andante.train.recipes import get_recipe

FLAT, ROUGH, HEXAPOD = "quadruped-velocity", "quadruped-velocity-rough", "hexapod-velocity"
DT = 0.02


class Bench:
    """A task's functions on one state of plain MuJoCo."""

    def __init__(self, name: str):
        self.task = get_task(name)
        self.spec = self.task.spec
        self.model = build_model(self.spec)
        self.functions = self.task.bind(self.model)
        self.data = mujoco.MjData(self.model)
        self.data.qpos[:3] = self.spec.base.position
        self.data.qpos[7:] = [start.position for start in self.spec.start]
        self.data.ctrl[:] = self.spec.action_middle

    def ticks(self, command=(0.0, 0.0, 0.0), tick: int = 0, **changes) -> Ticks:
        mujoco.mj_forward(self.model, self.data)
        variables = {name: torch.zeros(1, 1, size) for name, size in self.functions.variables.sizes.items()}
        sensors = Sensors(self._row(self.data.sensordata), sensor_columns(self.model))
        ticks = Ticks(
            qpos=self._row(self.data.qpos),
            qvel=self._row(self.data.qvel),
            sensors=sensors,
            actions=torch.tensor(self.spec.action_middle).repeat(1, ORDERS + 1, 1),
            command=torch.tensor([[command]]),
            tick=torch.tensor([[tick]]),
            variables=variables,
            qpos_before=self._row(self.data.qpos),
            qvel_before=self._row(self.data.qvel),
        )
        return replace(ticks, **changes)

    def reward(self, *args, **changes) -> dict[str, float]:
        """Terms per second."""
        terms = self.functions.reward(self.ticks(*args, **changes))
        return {name: term.item() / DT for name, term in terms.items()}

    def terminated(self) -> bool:
        return bool(self.functions.terminated(self.ticks()).item())

    @staticmethod
    def _row(values) -> torch.Tensor:
        return torch.tensor(np.array(values), dtype=torch.float32)[None, None]


@pytest.fixture
def bench() -> Bench:
    return Bench(FLAT)


def turn(data: mujoco.MjData, axis: tuple[float, float, float], angle: float) -> None:
    mujoco.mju_axisAngle2Quat(data.qpos[3:7], np.array(axis), angle)


@pytest.mark.parametrize("name", [FLAT, HEXAPOD])
def test_the_default_pose_stands(name):
    bench = Bench(name)
    mujoco.mj_step(bench.model, bench.data, 1000)
    ticks = bench.ticks()
    assert not bench.terminated()
    assert bench.data.qpos[2] == pytest.approx(bench.task.bind.keywords["robot"].height, abs=0.02)
    assert abs(bench.data.qvel).max() < 0.01
    assert bench.data.qpos[3] > 0.999
    feet = [ticks.sensors[f"contact/{foot}"].item() for foot in bench.task.bind.keywords["robot"].feet]
    assert all(feet)


def test_random_actions_make_the_quadruped_fall():
    env, random = make(FLAT, 32, seed=0), torch.Generator().manual_seed(0)
    env.reset()
    fallen = torch.zeros(32, dtype=torch.bool)
    middle = torch.tensor(env.spec.action_middle)
    for _ in range(100):
        fallen |= env.step(middle + torch.randn(32, 2, 12, generator=random)).terminated.any(1)
    assert fallen.all()


def test_tracking_is_scored_along_the_heading_whatever_the_world_axes_are(bench):
    turn(bench.data, (0, 0, 1), 2.0)
    forward = np.array([math.cos(2.0), math.sin(2.0), 0.0])
    bench.data.qvel[:3] = 0.8 * forward
    bench.data.qvel[5] = 0.3
    good = bench.reward((0.8, 0.0, 0.3))
    assert good["linear_velocity"] == pytest.approx(3.0, rel=1e-5)
    assert good["yaw_rate"] == pytest.approx(1.5, rel=1e-5)
    off = bench.reward((0.8, 0.5, 0.8))
    assert off["linear_velocity"] == pytest.approx(3.0 * math.exp(-1), rel=1e-4)
    assert off["yaw_rate"] == pytest.approx(1.5 * math.exp(-1), rel=1e-4)
    left = bench.reward((0.0, 0.8, 0.0))
    bench.data.qvel[:3] = 0.8 * np.array([-math.sin(2.0), math.cos(2.0), 0.0])
    assert bench.reward((0.0, 0.8, 0.0))["linear_velocity"] > 2 * left["linear_velocity"]


def test_penalties_are_what_mujoco_says_of_a_random_state(bench):
    random = np.random.default_rng(0)
    bench.data.qpos[3:7] = random.normal(size=4) * 0.1 + [1, 0, 0, 0]
    bench.data.qpos[3:7] /= np.linalg.norm(bench.data.qpos[3:7])
    bench.data.qpos[2] = 0.4
    bench.data.qpos[7:] += 0.2 * random.normal(size=12)
    bench.data.qvel[:] = 0.5 * random.normal(size=18)
    before = bench.data.qvel + 0.1 * random.normal(size=18)
    actions = torch.tensor(bench.spec.action_middle).repeat(1, ORDERS + 1, 1)
    actions[:, -1, 3] += 0.2
    found = bench.reward((0.5, 0.0, 0.0), qvel_before=bench._row(before), actions=actions)
    rotation = bench.data.body("trunk").xmat.reshape(3, 3)
    gravity = rotation.T @ [0, 0, -1]
    deviation = bench.data.qpos[7:] - QUADRUPED.pose
    acceleration = (bench.data.qvel - before)[6:] / DT
    turning = rotation[2] @ bench.data.qvel[3:6]
    expected = {
        "yaw_rate": 1.5 * math.exp(-(turning**2) / 0.25),
        "alive": 0.1,
        "vertical_velocity": -2.0 * bench.data.qvel[2] ** 2,
        "roll_pitch_rate": -0.05 * (bench.data.qvel[3:5] ** 2).sum(),
        "tilt": -2.5 * (gravity[:2] ** 2).sum(),
        "height": -20.0 * (0.4 - 0.29) ** 2,
        "torque": -2e-4 * (bench.data.actuator_force**2).sum(),
        "acceleration": -2.5e-7 * (acceleration**2).sum(),
        "action_rate": -0.01 * (0.2 / 0.5) ** 2,
        "pose": -0.05 * (deviation**2).sum(),
        "sideways": -0.25 * (deviation[::3] ** 2).sum(),
        "slip": 0.0,
        "air_time": 0.0,
    }
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-3, abs=1e-6)
    assert bench.functions.critic(bench.ticks())[0, 0, 3:6].tolist() == pytest.approx(gravity, abs=1e-6)
    standing = bench.reward((0.0, 0.0, 0.0))
    assert standing["pose"] == pytest.approx(5 * expected["pose"], rel=1e-3)


def test_torques_are_limited_as_the_robots_drives_are(bench):
    bench.data.ctrl[:] += 2.0
    bench.data.qpos[9] = -2.7
    mujoco.mj_forward(bench.model, bench.data)
    torque = bench.ticks().sensors
    assert torque["torque/FL_hip"].item() == pytest.approx(23.7)
    assert torque["torque/FL_calf"].item() == pytest.approx(35.5)


def test_a_slipping_foot_costs_and_only_while_it_touches(bench):
    mujoco.mj_step(bench.model, bench.data, 1000)
    bench.data.qvel[:] = 0
    bench.data.qvel[0] = 0.5
    assert bench.reward()["slip"] == pytest.approx(-0.05 * 4 * 0.25, rel=1e-3)
    bench.data.qpos[2] += 0.1
    assert bench.reward()["slip"] == 0


def test_the_gait_term_follows_the_clock_that_the_policy_reads(bench):
    clock = next(source for source in bench.spec.sources if source.kind == "clock")
    assert clock.period_ns == 400_000_000
    mujoco.mj_step(bench.model, bench.data, 1000)
    ticks = bench.ticks((0.5, 0.0, 0.0), tick=5)  # a quarter of the period: FL and RR are at their highest

    def gait(lift: dict[str, float], **changes) -> float:
        for foot in QUADRUPED.feet:
            ticks.sensors[f"position/{foot}"][0, 0, 2] = 0.023 + lift.get(foot, 0.0)
        return bench.functions.reward(replace(ticks, **changes))["gait"].item() / DT

    assert gait({"FL": 0.07, "RR": 0.07}) == pytest.approx(0.8, rel=1e-5)
    assert gait({}) == pytest.approx(0.4 + 0.4 * math.exp(-((7 / 3) ** 2)), rel=1e-3)
    # Half a period later it is the other pair's turn, and after years of ticks still.
    later = torch.tensor([[15 + 20 * 10**9]])
    assert gait({"FR": 0.07, "RL": 0.07}, tick=later) == pytest.approx(0.8, rel=1e-4)
    # Told to stand, all feet belong on the ground.
    assert gait({}, command=torch.zeros(1, 1, 3)) == pytest.approx(0.8, rel=1e-5)


def test_a_landing_is_worth_the_time_in_the_air_between_a_short_and_a_long_step(bench):
    variables, functions = bench.functions.variables, bench.functions
    ticks = bench.ticks((0.5, 0.0, 0.0))
    now = variables.start(torch.zeros(1, 0))
    worth = []
    for step in range(60):
        # FL lands after 20 ticks in the air, RR after 60; the others stay down.
        contact = {"FL": step >= 20, "FR": True, "RL": True, "RR": step == 59}
        for foot, touches in contact.items():
            ticks.sensors[f"contact/{foot}"][:] = float(touches)
        now = variables.advance(now, replace(ticks, variables={}))
        known = {name: values[:, None] for name, values in now.items()}
        worth.append(functions.reward(replace(ticks, variables=known))["air_time"].item() / DT)
        if step == 19:
            assert now["air_time"][0].tolist() == pytest.approx([0.4, 0, 0, 0.4], abs=1e-5)
    assert worth[20] == pytest.approx(0.42 - 0.25, abs=1e-4)
    assert worth[59] == pytest.approx(0.25, abs=1e-4)
    assert sum(map(abs, worth)) == pytest.approx(worth[20] + worth[59], abs=1e-5)


def test_falling_ends_the_episode(bench):
    assert not bench.terminated()
    turn(bench.data, (1, 0, 0), 0.9)
    assert not bench.terminated()
    turn(bench.data, (0, 1, 0), 1.1)
    assert bench.terminated()
    turn(bench.data, (0, 0, 1), 3.0)
    assert not bench.terminated()
    bench.data.qpos[2] = 0.14
    assert bench.terminated()


def test_a_trunk_that_touches_the_ground_ends_the_episode(bench):
    # Nose down, but neither too low nor too far.
    turn(bench.data, (0, 1, 0), 0.95)
    bench.data.qpos[2] = 0.17
    assert bench.terminated()
    bench.data.qpos[2] = 0.2
    assert not bench.terminated()


def test_the_sum_of_the_terms_is_never_negative():
    env = make(FLAT, 16, seed=0)
    env.reset()
    wild = torch.tensor(env.spec.action_middle) + 3 * torch.randn(
        16, 20, 12, generator=torch.Generator().manual_seed(0)
    )
    outcome = env.step(wild)
    assert sum(term.item() for term in outcome.terms.values()) < 0
    assert outcome.reward.min() == 0


def test_the_policy_sees_what_a_robot_can_measure_and_the_critic_the_rest():
    kinds = {source.kind for source in get_spec(FLAT).sources}
    assert kinds == {
        "angular_velocity",
        "gravity",
        "command",
        "joint_position",
        "joint_velocity",
        "executed_action",
        "clock",
    }
    bench = Bench(FLAT)
    base = bench.functions.critic(bench.ticks())
    assert base.shape == (1, 1, bench.task.critic_size)
    bench.data.qvel[0] = 1.0
    assert (bench.functions.critic(bench.ticks()) - base).abs().max() == pytest.approx(1.0)


def test_what_the_critic_sees_is_of_order_one(bench):
    still = bench.functions.critic(bench.ticks())[0, 0]
    bench.data.qpos[2] += 0.1
    bench.data.qpos[8] += 0.2
    bench.data.qvel[4] = 2.0
    bench.data.qvel[6:] = 4.0
    ticks = bench.ticks((0.5, 0.25, -0.5), tick=5)
    ticks.actions[:, -1, 2] += 0.5
    ticks.variables["air_time"][..., 1] = 0.3
    change = (bench.functions.critic(ticks)[0, 0] - still).tolist()
    expected = [0.0] * 51
    expected[7], expected[9:12], expected[13] = 0.5, [1.0, 0.5, -0.5], 0.2
    expected[24:36], expected[38], expected[48:51] = [0.2] * 12, 0.25, [1.0, -1.0, 1.0]
    assert change[:51] == pytest.approx(expected, abs=1e-5)
    assert change[56] == pytest.approx(0.6)
    # Three feet rise with the trunk; the other's thigh has moved.
    assert change[60:] == pytest.approx([1.0] * 3, abs=1e-4)


@pytest.mark.parametrize("name", [FLAT, ROUGH, HEXAPOD])
def test_a_docstring_has_the_tasks_table(name):
    module = hexapod if name == HEXAPOD else quadruped
    assert describe(TASKS[name]) in module.__doc__
    assert all(f"{term}: " in describe(TASKS[name]) for term in REWARD)


# A robot of its own: no floor, a sensor with a name that the task wants, an actuator and a keyframe that are
# not the task's, a free joint without a name, a passive tail, the IMU at a body, legs in an order of its own.
STOOL = """
<mujoco model="stool">
  <compiler angle="radian" autolimits="true"/>
  <worldbody>
    <body name="seat" pos="0 0 .4">
      <freejoint/>
      <geom type="box" size=".15 .12 .03" mass="3"/>
      <body name="tail" pos="-.2 0 0"><joint name="tail" axis="0 1 0" stiffness="2" damping=".1"/>
        <geom type="sphere" size=".02" mass=".05"/></body>
      {legs}
    </body>
  </worldbody>
  <actuator><motor name="tail" joint="tail"/></actuator>
  <sensor><framepos name="position/a" objtype="body" objname="tail"/></sensor>
  <keyframe><key name="home" qpos="0 0 .4 1 0 0 0 0 0 0 0 0 0 0 0 0" ctrl="0"/></keyframe>
</mujoco>
"""
LEG = """
<body name="{n}_upper" pos="{x} {y} 0"><joint name="{n}_hip" axis="0 1 0" range="-1 1" armature=".01"/>
  <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".02" mass=".4" contype="0" conaffinity="0"/>
  <body name="{n}_lower" pos="0 0 -.15"><joint name="{n}_knee" axis="0 1 0" range="-2 2" armature=".01"/>
    <geom type="capsule" fromto="0 0 0 0 0 -.15" size=".015" mass=".2" contype="0" conaffinity="0"/>
    <geom name="{n}" type="sphere" pos="0 0 -.15" size=".02" mass=".05"/></body></body>
"""
CORNERS = {"a": (0.13, 0.1), "b": (0.13, -0.1), "c": (-0.13, 0.1), "d": (-0.13, -0.1)}
STOOL_YAML = """
mjcf: stool.xml
base: seat
imu: seat
feet: [a, b, c, d]
joints:
  - {name: d_hip, pose: 0.4, kp: 30.0, kd: 1.0}
  - {name: d_knee, pose: -0.8, kp: 30.0, kd: 1.0}
  - {name: a_hip, pose: 0.4, kp: 30.0, kd: 1.0}
  - {name: a_knee, pose: -0.8, kp: 30.0, kd: 1.0, target: [-1.5, 0.5]}
  - {name: b_hip, pose: 0.4, kp: 30.0, kd: 1.0}
  - {name: b_knee, pose: -0.8, kp: 30.0, kd: 1.0}
  - {name: c_hip, pose: 0.4, kp: 30.0, kd: 1.0}
  - {name: c_knee, pose: -0.8, kp: 30.0, kd: 1.0}
gait: {phases: [0.0, 0.5, 0.5, 0.0], foot_height: 0.02}
height: 0.29
start_height: 0.32
action_scale: 0.4
command: {lin_vel_x: [-0.5, 1.5]}
weights: {alive: 7.0}
"""


@pytest.fixture
def stool(tmp_path):
    """Its file, which `write` changes."""
    legs = "".join(LEG.format(n=n, x=x, y=y) for n, (x, y) in CORNERS.items())
    (tmp_path / "stool.xml").write_text(STOOL.format(legs=legs))

    def write(*changes: tuple[str, str]) -> str:
        text = STOOL_YAML
        for old, new in changes:
            assert old in text
            text = text.replace(old, new, 1)
        (tmp_path / "stool.yaml").write_text(text)
        return f"legged/{tmp_path / 'stool.yaml'}"

    return write


def test_a_robot_of_ones_own_runs_by_its_file_alone(stool):
    name = stool()
    spec, env = get_spec(name), make(name, 8, seed=0)
    assert spec.name == name
    assert spec.robot_name == "stool"
    joints = tuple(f"{leg}_{joint}" for leg in "dabc" for joint in ("hip", "knee"))
    assert spec.action_joints == joints
    assert spec.action_low[:4] == (-1.0, -2.0, -1.0, -1.5)
    assert [start.joint for start in spec.start][:3] == ["tail", "a_hip", "a_knee"]
    assert spec.command_source.components[0].high == 1.5
    stand = torch.tensor(spec.action_middle).expand(8, 5, -1)
    first = env.reset()
    assert first.sources["joint_position"].shape == (8, 8)
    outcomes = [env.step(stand) for _ in range(20)]
    assert not any(outcome.done.any() for outcome in outcomes)
    found = outcomes[-1].observation
    assert (found.sources["joint_position"][:, ::2] - 0.4).abs().max() < 0.2
    assert (found.sources["gravity"] - torch.tensor([0, 0, -1.0])).abs().max() < 0.1
    assert outcomes[-1].terms["alive"] == pytest.approx(7 * DT)
    for _ in range(20):
        assert env.step(stand + torch.randn(8, 5, 8)).reward.isfinite().all()


def test_rough_ground_is_there_for_every_robot(stool):
    env = make(stool(("base: seat", "base: seat\nrough: true")), 32)
    env.reset()
    assert len(env.state_dict()["level"].unique()) > 4
    stand = torch.tensor(env.spec.action_middle).expand(32, 5, -1)
    assert sum(env.step(stand).terminated.sum() for _ in range(10)) <= 2


def test_the_quadruped_under_another_name_with_its_joints_in_another_order_is_the_same_robot(tmp_path):
    (tmp_path / "beast.xml").write_text((ROBOTS / "quadruped.xml").read_text())
    order = [*range(6, 12), *range(6)]
    joints = "".join(
        f"  - {{name: {joint.name}, pose: {joint.pose}, kp: {joint.kp}, kd: {joint.kd}, "
        f"target: {list(joint.target)}, sideways: {str(joint.sideways).lower()}}}\n"
        for joint in (QUADRUPED.joints[i] for i in order)
    )
    (tmp_path / "beast.yaml").write_text(
        "mjcf: beast.xml\nbase: trunk\nimu: imu\nfeet: [FL, FR, RL, RR]\n"
        f"joints:\n{joints}gait: {{phases: [0.0, 0.5, 0.5, 0.0]}}\n"
        "height: 0.29\nstart_height: 0.34\naction_scale: 0.5\npush_force: 60.0\n"
    )
    ours, theirs = make(FLAT, 4, seed=3), make(f"legged/{tmp_path / 'beast.yaml'}", 4, seed=3)
    ours.reset(), theirs.reset()
    actions = torch.tensor(ours.spec.action_middle) + 0.3 * torch.randn(4, 10, 12)
    a, b = ours.step(actions), theirs.step(actions[..., order])
    assert torch.equal(a.observation.sources["gyro"], b.observation.sources["gyro"])
    for name in ("joint_position", "joint_velocity", "last_action"):
        assert torch.equal(a.observation.sources[name][:, order], b.observation.sources[name])
    assert (a.reward - b.reward).abs().max() < 1e-6


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("mjcf: stool.xml", "mjcf: chair.xml"), r"stool.yaml: mjcf: no file .*chair.xml"),
        (("base: seat", "base: bench"), r"stool.yaml: base: the MJCF has no body 'bench'; it has .*seat"),
        (
            ("base: seat", "base: a_upper"),
            r"stool.yaml: base: body 'a_upper' .* has no free joint",
        ),
        (("imu: seat", "imu: chip"), r"stool.yaml: imu: the MJCF has no site or body 'chip'"),
        (("[a, b, c, d]", "[a, b, c, e]"), r"stool.yaml: feet: the MJCF has no geom, site or body 'e'"),
        (("[a, b, c, d]", "[a, b, c, c]"), r"stool.yaml: foot named twice: c"),
        (
            ("name: b_hip", "name: b_ankle"),
            r"stool.yaml: joints: the MJCF has no joint 'b_ankle'; .*b_knee",
        ),
        (("name: b_hip", "name: a_hip"), r"stool.yaml: joint named twice: a_hip"),
        (("name: b_hip", "name: tail"), r"stool.yaml: joints: 'tail' needs a target range"),
        (("pose: -0.8, kp", "pose: -2.8, kp"), r"stool.yaml: joint 'd_knee': pose must be within target"),
        (
            ("[-0.5, 1.5]", "[1.5, -0.5]"),
            r"stool.yaml: lin_vel_x must be \[low, high\], low below high, found \[1.5, -0.5\]",
        ),
        (
            ("[-0.5, 1.5]", "[0, 0]"),
            r"stool.yaml: lin_vel_x must be \[low, high\], low below high, found \[0",
        ),
        (("[-1.5, 0.5]", "[0.5, -1.5]"), r"stool.yaml: joint 'a_knee': target must be \[low, high\]"),
        (("[0.0, 0.5, 0.5, 0.0]", "[0.0, 0.5]"), r"gait: phases must have one value per foot, 4, found 2"),
        (("alive: 7.0", "fun: 7.0"), r"weights: no reward term 'fun'; terms: linear_velocity"),
        (
            ("height: 0.29", "heigth: 0.29"),
            r"stool.yaml: .*unknown field `heigth`; fields: base, imu, .*mjcf",
        ),
        (
            ("foot_height: 0.02", "frequency: 2"),
            r"`frequency` - at `\$.gait`; fields: phases, frequency_hz, foot_height, swing_height$",
        ),
        (
            ("pose: 0.4, kp", "pse: 0.4, kp"),
            r"unknown field `pse` - at `\$.joints\[0\]`; fields: name, pose, kp, kd, target, sideways$",
        ),
        (("height: 0.29", "height: 0.29\nheight: 0.3"), r"stool.yaml: .*key 'height' given twice"),
        (("kp: 30.0", "kp: -30.0"), r"stool.yaml: Expected `float` > 0.0 - at `\$.joints\[0\].kp`"),
        (("mjcf: stool.xml", "mjcf: stool.xml\nmenagerie: go1"), r"either mjcf or menagerie must say"),
        (("mjcf: stool.xml", "menagerie: unitree_stool"), r"stool.yaml: menagerie: Unknown robot"),
    ],
)
def test_a_fault_of_a_robots_file_is_named_in_one_line(stool, change, message):
    with pytest.raises(AndanteError, match=message) as raised:
        get_spec(stool(change))
    assert "\n" not in str(raised.value)


def test_an_mjcf_that_does_not_parse_is_one_line(stool, tmp_path):
    name = stool()
    (tmp_path / "stool.xml").write_text("<mujoco>\n<worldbody>\n<geom type='egg'/></worldbody></mujoco>")
    with pytest.raises(AndanteError, match=r"stool.yaml: .*stool.xml: .*egg") as raised:
        get_spec(name)
    assert "\n" not in str(raised.value)


def test_a_file_without_its_family_is_answered_with_the_family():
    with pytest.raises(AndanteError, match=r"^no task 'go1.yaml'; did you mean 'legged/go1.yaml'\?$"):
        get_spec("go1.yaml")


def test_a_file_that_is_not_there_is_answered_with_the_examples():
    with pytest.raises(AndanteError, match=r"no file 'zebra.yaml' in /.*; examples: g1.yaml, go1.yaml"):
        get_spec("legged/zebra.yaml")


@pytest.mark.parametrize(("name", "joints"), [("go1", 12), ("g1", 29)])
def test_the_examples_are_sound(name, joints):
    robot = read_yaml(EXAMPLES / f"{name}.yaml", LeggedFile)
    assert robot.menagerie == f"unitree_{name}"
    assert isinstance(robot, LeggedRobot)
    assert len(robot.joints) == joints


def test_a_model_of_the_menagerie_is_found_by_its_name(stool, tmp_path, monkeypatch):
    pytest.importorskip("mujoco_menagerie")
    name = stool(("mjcf: stool.xml", "menagerie: unitree_go1"))
    (tmp_path / "unitree_go1").mkdir()
    (tmp_path / "stool.xml").rename(tmp_path / "unitree_go1" / "go1.xml")
    monkeypatch.setenv("MENAGERIE_ROOT", str(tmp_path))
    spec = get_spec(name)
    assert spec.robot_name == "go1"
    assert spec.robot_licence == "BSD-3-Clause"
    make(name, 2).reset()


@pytest.mark.parametrize(("robot", "low", "high"), [("quadruped", 0.15, 0.27), ("hexapod", 0.07, 0.09)])
def test_a_robot_that_lies_stands_up_by_its_profile_and_lies_down_again(tmp_path, robot, low, high):
    policy = load_policy(write_small_policy(tmp_path / "policy.onnx", robot))
    simulated = SimRobot(policy.contract, profile := load_profile(robot))
    controller = Controller(policy, profile)
    controller.check_output(simulated.carries)
    controller.warmup()
    # Dropped with its legs wherever they are, it comes to lie on its belly.
    mujoco.mj_step(simulated.model, simulated.data, 400)
    assert simulated.data.qpos[2] < low
    controller.activate()
    heights = []
    for tick in range(400):
        simulated.write(controller.tick(tick, simulated.read()))
        heights.append(simulated.data.qpos[2])
        if controller.state is State.READY and tick > 300:
            break
    assert controller.state is State.READY, controller.fault
    assert heights[-1] > high
    assert simulated.data.body(1).xmat[8] > 0.99
    sample = simulated.read()
    sample.operator.stop = True
    for later in range(tick + 1, tick + 301):
        simulated.write(controller.tick(later, sample))
        sample = simulated.read()
        if controller.state is State.DISABLED:
            break
    assert controller.state is State.DISABLED, controller.fault
    assert simulated.data.qpos[2] < low


def test_a_robot_of_ones_own_trains(stool):
    config = msgspec.structs.replace(get_recipe(stool()), num_worlds=16)
    trainer = PPO.from_config(config)
    metrics = [trainer.iterate() for _ in range(2)]
    assert trainer.ticks == 2 * 16 * 8 * 5
    assert all(math.isfinite(value) for each in metrics for value in each.values())

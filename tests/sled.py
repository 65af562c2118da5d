"""A sled with an arm of two joints: a floating base that stays upright whatever the arm does.

It has all kinds of sources, a command, pushes and a variable of its own; a fourth column drives its flag, an
actuator that the MJCF has, and has first.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

import torch
import yaml

from andante.runtime.contract import ActionTerm, CommandComponent, Source
from andante.runtime.profile import Profile, load_profile
from andante.sim.spec.task import BaseStart, CommandSampling, Feature, JointStart, Pushes, TaskSpec
from andante.sim.task import Functions, Task, Ticks, Variables

JOINTS = ("pan", "tilt", "wheel")
PERIOD_NS = 20_000_000
AGE_NS = 50_000_000
MJCF = """
<mujoco model="sled">
  <compiler angle="radian" autolimits="true"/>
  <worldbody>
    <geom name="floor" type="plane" size="5 5 .1" friction=".3"/>
    <body name="sled" pos="0 0 .1">
      <freejoint name="base"/>
      <geom name="sled" type="box" size=".4 .3 .1" mass="8" friction=".3"/>
      <site name="imu" pos=".1 0 .05" euler="0 .2 0"/>
      <body name="mast" pos="0 0 .1">
        <joint name="pan" axis="0 0 1" damping=".1"/>
        <geom type="capsule" fromto="0 0 0 0 0 .2" size=".02" mass=".3" contype="0" conaffinity="0"/>
        <body name="boom" pos="0 0 .2">
          <joint name="tilt" axis="0 1 0" damping=".1"/>
          <geom type="capsule" fromto="0 0 0 .2 0 0" size=".02" mass=".2" contype="0" conaffinity="0"/>
        </body>
      </body>
      <body name="wheel" pos="-.3 0 .12">
        <joint name="wheel" axis="0 1 0" damping=".01"/>
        <geom type="cylinder" size=".05 .01" mass=".1" contype="0" conaffinity="0"/>
      </body>
    </body>
  </worldbody>
  <actuator>
    <general name="flag" joint="wheel" gainprm=".05"/>
    <motor name="unused" joint="tilt"/>
  </actuator>
  <keyframe><key name="home" ctrl="0 0"/></keyframe>
</mujoco>
"""


def term(name: str, kind: str, joint: str, unit: str, limit: float, kp: float = 0.0, kd: float = 0.0):
    return ActionTerm(
        name=name,
        kind=kind,
        joints=(joint,),
        unit=unit,
        low=(-limit,),
        high=(limit,),
        kp=(kp,),
        kd=(kd,),
        closed_by="drive",
    )


ACTIONS = (
    term("angle", "position", "pan", "rad", 1.0, kp=8.0, kd=1.0),
    term("torque", "effort", "tilt", "N m", 0.5),
    term("speed", "velocity", "wheel", "rad/s", 5.0, kd=0.02),
)
FLAG = term("flag", "actuator", "flag", "1", 1.0)
COMMAND = Source(
    name="command",
    kind="command",
    unit="",
    max_age_ns=AGE_NS,
    components=(
        CommandComponent(name="speed", unit="m/s", low=-1.0, high=2.0, slew=4.0),
        CommandComponent(name="turn", unit="rad/s", low=-3.0, high=3.0),
    ),
)


def body_source(kind: str, unit: str, frame: str = "imu", **options) -> Source:
    return Source(name=f"{kind} of {frame}", kind=kind, frame=frame, unit=unit, max_age_ns=AGE_NS, **options)


def joint_source(name: str, kind: str, unit: str, joints: tuple[str, ...], **options) -> Source:
    return Source(name=name, kind=kind, joints=joints, unit=unit, max_age_ns=AGE_NS, **options)


def sources(history: int = 1, actions: tuple[ActionTerm, ...] = ACTIONS) -> tuple[Source, ...]:
    columns = tuple(joint for each in actions for joint in each.joints)
    return (
        Source(
            name="q", kind="joint_position", joints=JOINTS, unit="rad", max_age_ns=AGE_NS, history=history
        ),
        Source(name="dq", kind="joint_velocity", joints=("tilt", "pan"), unit="rad/s", max_age_ns=AGE_NS),
        body_source("angular_velocity", "rad/s", history=history),
        body_source("linear_acceleration", "m/s^2"),
        body_source("gravity", "1", history=history),
        body_source("linear_velocity", "m/s", frame="boom"),
        body_source("position", "m", frame="boom"),
        COMMAND,
        Source(name="raw", kind="executed_action", joints=columns, unit="", stage="raw", history=history),
        Source(name="limited", kind="executed_action", joints=columns, unit="", stage="after_limits"),
        Source(name="committed", kind="committed_actions", joints=columns, unit="", history=2),
        Source(name="clock", kind="clock", period_ns=7 * PERIOD_NS, unit="1", history=history),
    )


def sled_spec(folder: Path, **changes) -> TaskSpec:
    path = folder / "sled.xml"
    path.write_text(MJCF)
    fields = {
        "name": "sled",
        "summary": "",
        "robot_model": str(path),
        "control_period_ns": PERIOD_NS,
        "decimation": 4,
        "episode_ticks": 200,
        "sources": sources(),
        "features": (Feature("q"),),
        "actions": ACTIONS,
        "start": tuple(JointStart(joint, 0.1, position_spread=0.3, velocity_spread=0.5) for joint in JOINTS),
        "base": BaseStart("base", (0.0, 0.0, 0.1), (0.5, 0.5, 0.0), yaw_spread=3.0, linear_spread=0.3),
        "action_center": (0.2, 0.0, -1.0),
        "reward": "",
        "termination": "",
        "command": CommandSampling(interval_ticks=11, zero_probability=0.2),
        "pushes": Pushes("sled", interval_ticks=17, duration_ticks=3, force=60.0),
    }
    return TaskSpec(**(fields | changes))


def with_flag(spec: TaskSpec) -> TaskSpec:
    """The same with a fourth column, for the actuator that the MJCF has."""
    actions = (*ACTIONS, FLAG)
    center = (*(spec.action_center or ()), 0.0)
    return dataclasses.replace(spec, actions=actions, sources=sources(actions=actions), action_center=center)


def reward(ticks: Ticks) -> dict[str, torch.Tensor]:
    return {
        "follow": -(ticks.qvel[..., 0] - ticks.command[..., 0]).square(),
        "smooth": -0.1 * ticks.action_difference(1).square().sum(-1),
        "travel": ticks.variables["travel"][..., 0],
        "sway": -0.01 * ticks.sensors["angular_velocity/imu"].square().sum(-1),
    }


def start_variables(uniform: torch.Tensor) -> dict[str, torch.Tensor]:
    return {"travel": uniform}


def advance_variables(before, ticks: Ticks) -> dict[str, torch.Tensor]:
    moved = (ticks.qpos - ticks.qpos_before)[:, 0, :2].norm(dim=-1, keepdim=True)
    return {"travel": 0.9 * before["travel"] + moved + 0.01 * ticks.command[:, 0, 1:]}


def critic(ticks: Ticks) -> torch.Tensor:
    sensors = ticks.sensors["linear_acceleration/imu"] / 10
    return torch.cat((ticks.qpos[..., :3], ticks.qvel, sensors, ticks.command, ticks.variables["travel"]), -1)


def terminated(ticks: Ticks) -> torch.Tensor:
    return ticks.qpos[..., 0].abs() > 3.0


FUNCTIONS = Functions(
    reward,
    terminated,
    critic,
    variables=Variables({"travel": 1}, start_variables, advance_variables, draws=1),
    least_reward=-2.0,
)


def sled_task(folder: Path, **changes) -> Task:
    return Task(sled_spec(folder, **changes), 3 + 9 + 3 + 2 + 1, lambda model: FUNCTIONS)


def sled_profile(folder: Path, more_events: tuple[str, ...] = (), **changes) -> Profile:
    damping = [{"action": "damping", "gains": "damping"}]
    joint = {"sign": 1, "zero_offset": 0.0, "position": None, "velocity": 100.0, "actuated": True}
    age = {"max_age_s": 0.06}
    events = ("stale_source", "starvation", "overrun", "limit", "non_finite", "e_stop", "tilt")
    signals = ("joint_position", "joint_velocity", "orientation", "angular_velocity", "linear_acceleration")
    content = {
        "schema": 1,
        "robot_model": "sled",
        "pd_loop": "drive",
        "floating_base": True,
        "base": "imu",
        "max_tilt": 1.0,
        "joints": [joint | {"name": name, "effort": 20.0} for name in JOINTS],
        "signals": {
            **dict.fromkeys(signals, age),
            "linear_velocity/boom": age,
            "position/boom": age,
        },
        "gains": {"damping": {"kd": dict.fromkeys(JOINTS, 0.05)}},
        "confirm": True,
        "start": [{"action": "damping", "gains": "damping", "duration_s": 0.1}],
        "stop": [{"action": "damping", "gains": "damping", "duration_s": 0.1}],
        "fallback": dict.fromkeys((*events, *more_events), damping),
    }
    path = folder / "sled.yaml"
    path.write_text(yaml.safe_dump(content | changes))
    return load_profile(path)

"""Reward, termination and critic state of the velocity task of any legged robot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cache, partial
from typing import NamedTuple

import mujoco
import torch
from torch import Tensor

from ..observe import columns
from ..spec.legged import REWARD, LeggedRobot
from ..spec.legged.spec import LOWEST, MAX_TILT
from ..spec.task import TaskSpec
from ..spec.terrain import Terrain
from ..task import Functions, Levels, Task, Ticks, Variables
from .ground import Ground

YAW_RATE_WIDTH = 0.25
"""Square of the error at which tracking is worth 1/e, rad^2/s^2."""
CLEARANCE_WIDTH = 3 / 7
"""Error at which a foot's clearance is worth 1/e, as a share of the swing's height."""
SHORT_STEP, LONG_STEP = 0.25, 0.5
"""Time in the air that is worth nothing, and from which on more is worth no more, s."""
STANDING_FACTOR = 5.0
STILL = 0.1
"""A smaller command is one to stand."""
UP, DOWN = 0.8, 0.5
"""Share of the commanded way, walked without a fall, that leads to a harder row, or less to an easier one."""
LEAST_WAY = 2.0
"""Only after a longer commanded way does the level rise, m."""


def velocity_task(spec: TaskSpec, robot: LeggedRobot, terrain: Terrain | None = None) -> Task:
    """The task of a declaration that `velocity_spec` made for this robot and terrain."""
    critic_size = 15 + 3 * len(robot.joints) + 3 * len(robot.feet)
    return Task(spec, critic_size, partial(_bind, spec=spec, robot=robot, terrain=terrain))


def _bind(model: mujoco.MjModel, spec: TaskSpec, robot: LeggedRobot, terrain: Terrain | None) -> Functions:
    @cache
    def on(device: torch.device) -> Velocity:
        return Velocity(model, spec, robot, terrain, device)

    sizes = {"air_time": len(robot.feet), "landing": len(robot.feet)}
    if terrain is not None:
        sizes |= {"walked": 1, "commanded": 1}

    def start(uniform: Tensor) -> dict[str, Tensor]:
        return {name: torch.zeros(len(uniform), size, device=uniform.device) for name, size in sizes.items()}

    return Functions(
        reward=lambda ticks: on(ticks.qpos.device).reward(ticks),
        terminated=lambda ticks: on(ticks.qpos.device).terminated(ticks),
        critic=lambda ticks: on(ticks.qpos.device).critic(ticks),
        variables=Variables(sizes, start, lambda before, ticks: on(ticks.qpos.device).advance(before, ticks)),
        least_reward=0.0,
        levels=None if terrain is None else _levels(terrain),
    )


class _Motion(NamedTuple):
    """What several of the functions need of the same ticks."""

    velocity: Tensor
    """Of the base along its heading, m/s [B, n, 2]: forward and left."""
    gravity: Tensor
    """Its direction along the base's axes [B, n, 3]."""
    height: Tensor
    """Of the base above the ground, m [B, n]."""
    deviation: Tensor
    """Of the joints from their pose, rad [B, n, J]."""
    clearance: Tensor
    """Of each foot above the ground, m [B, n, F]."""
    contact: Tensor
    """Whether each foot touches something, 0 or 1 [B, n, F]."""
    angle: Tensor
    """Of the clock, as the policy reads it after the tick, rad [B, n]."""


class Velocity:
    """The task's functions for one model, with their constants on one device.

    Shapes: B worlds, n ticks, J joints, F feet.
    """

    def __init__(
        self,
        model: mujoco.MjModel,
        spec: TaskSpec,
        robot: LeggedRobot,
        terrain: Terrain | None,
        device: torch.device,
    ):
        """Look the joints up in `model`."""
        assert spec.base is not None
        self._robot = robot
        self._dt = spec.control_dt
        self._period_ns = spec.control_period_ns
        self._clock_ns = next(source.period_ns for source in spec.sources if source.period_ns)
        self._ground = None if terrain is None else Ground(terrain, device)
        base = model.joint(spec.base.joint)
        self._position, self._velocity = int(base.qposadr[0]), int(base.dofadr[0])
        joints = [model.joint(name) for name in robot.joint_names]
        self._qpos = columns([int(joint.qposadr[0]) for joint in joints], device)
        self._qvel = columns([int(joint.dofadr[0]) for joint in joints], device)
        self._torques = [f"torque/{name}" for name in robot.joint_names]
        self._positions, self._velocities, self._contacts = (
            [f"{quantity}/{foot}" for foot in robot.feet] for quantity in ("position", "velocity", "contact")
        )
        constant = partial(torch.tensor, dtype=torch.float32, device=device)
        self._pose = constant(robot.pose)
        self._sideways = constant([float(joint.sideways) for joint in robot.joints])
        self._phases = 2 * math.pi * constant(robot.gait.phases)
        self._weights = self._dt * constant([*robot.reward_weights.values()])[:, None, None]
        # By number of columns: see `critic`.
        j, f = len(robot.joints), len(robot.feet)
        scales = [(1.0, 6), (0.25, 3), (2.0, 2), (1.0, 1 + j), (0.05, j), (0.25 / robot.action_scale, j)]
        scales += [(1.0, 2), (10.0, 1), (1.0, f), (2.0, f), (10.0, f)]
        self._critic_scale = constant([scale for scale, columns in scales for _ in range(columns)])

    def reward(self, ticks: Ticks) -> dict[str, Tensor]:
        """Weighted terms [B, n], see `REWARD`."""
        motion, spin, command = self._motion(ticks), self._spin(ticks), ticks.command
        yaw_rate = -(motion.gravity * spin).sum(-1)
        error = (motion.velocity - command[..., :2]).square().sum(-1)
        moving = command.square().sum(-1) > STILL**2
        landing = ticks.variables["landing"]
        steps = (landing.clamp(max=LONG_STEP) - SHORT_STEP) * (landing > 0)
        clearance_error = motion.clearance - self._wanted_clearance(motion.angle, moving)
        clearance_width = CLEARANCE_WIDTH * self._robot.gait.swing_height
        foot_x, foot_y, _ = self._feet(ticks, self._velocities).unbind(-1)
        squares = torch.stack(
            (
                ticks.sensors.together(self._torques),
                (ticks.qvel[..., self._qvel] - ticks.qvel_before[..., self._qvel]) / self._dt,
                ticks.action_difference(1) / self._robot.action_scale,
                motion.deviation,
            )
        ).square()
        torque, acceleration, action_rate, pose = squares.sum(-1)
        terms = {
            "linear_velocity": (error / -self._robot.velocity_width).exp(),
            "yaw_rate": ((yaw_rate - command[..., 2]).square() / -YAW_RATE_WIDTH).exp(),
            "alive": torch.ones_like(error),
            "gait": (-(clearance_error / clearance_width).square()).exp().mean(-1),
            "air_time": steps.sum(-1) * moving,
            "vertical_velocity": ticks.qvel[..., self._velocity + 2].square(),
            "roll_pitch_rate": spin[..., :2].square().sum(-1),
            "tilt": motion.gravity[..., :2].square().sum(-1),
            "height": (motion.height - self._robot.height).square(),
            "torque": torque,
            "acceleration": acceleration,
            "action_rate": action_rate,
            "pose": pose * torch.where(moving, 1.0, STANDING_FACTOR),
            "sideways": (squares[-1] * self._sideways).sum(-1),
            "slip": ((foot_x.square() + foot_y.square()) * motion.contact).sum(-1),
        }
        weighted = self._weights * torch.stack([terms[name] for name in REWARD])
        return dict(zip(REWARD, weighted, strict=True))

    def terminated(self, ticks: Ticks) -> Tensor:
        """Fallen, or about to [B, n]."""
        motion = self._motion(ticks)
        toppled = motion.gravity[..., 2] > -math.cos(MAX_TILT)
        low = motion.height < LOWEST * self._robot.height
        return (ticks.sensors["contact/base"][..., 0] > 0) | toppled | low

    def critic(self, ticks: Ticks) -> Tensor:
        """True motion, joints, last action, clock, height; contact, air time and clearance of each foot."""
        motion = self._motion(ticks)
        clock = (motion.angle.sin(), motion.angle.cos(), motion.height - self._robot.height)
        parts = (
            motion.velocity,
            ticks.qvel[..., self._velocity + 2, None],
            motion.gravity,
            self._spin(ticks),
            ticks.command,
            motion.deviation,
            ticks.qvel[..., self._qvel],
            ticks.action - self._pose,
            torch.stack(clock, -1),
            motion.contact,
            ticks.variables["air_time"],
            motion.clearance,
        )
        return torch.cat(parts, -1).mul_(self._critic_scale)

    def advance(self, before: Mapping[str, Tensor], ticks: Ticks) -> dict[str, Tensor]:
        """Air times and the way walked, after one tick."""
        contact = ticks.sensors.together(self._contacts)[:, 0] > 0
        aloft = before["air_time"] + self._dt
        after = {
            "air_time": aloft.masked_fill(contact, 0.0),
            "landing": aloft * (contact & (before["air_time"] > 0)),
        }
        if "walked" in before:
            wanted = ticks.command[:, 0, :2]
            speed = wanted.norm(dim=-1, keepdim=True)
            heading, _ = self._attitude(ticks)
            along = (self._along(heading, ticks)[:, 0] * wanted).sum(-1, keepdim=True)
            after["walked"] = before["walked"] + self._dt * along / speed.clamp(min=1e-6)
            after["commanded"] = before["commanded"] + self._dt * speed
        return after

    def _motion(self, ticks: Ticks) -> _Motion:
        if "motion" not in ticks.shared:
            heading, gravity = self._attitude(ticks)
            x, y, height = ticks.qpos[..., self._position : self._position + 3].unbind(-1)
            feet = self._feet(ticks, self._positions)
            contact = ticks.sensors.together(self._contacts)
            clock = (ticks.tick * self._period_ns % self._clock_ns).to(torch.float32)
            ticks.shared["motion"] = _Motion(
                velocity=self._along(heading, ticks),
                gravity=gravity,
                height=self._above_ground(x, y, height),
                deviation=ticks.qpos[..., self._qpos] - self._pose,
                clearance=self._above_ground(*feet.unbind(-1)),
                contact=(contact > 0).to(contact.dtype),
                angle=clock * (2 * math.pi / self._clock_ns),
            )
        motion: _Motion = ticks.shared["motion"]
        return motion

    def _attitude(self, ticks: Ticks) -> tuple[Tensor, Tensor]:
        """The base's x axis along the ground [B, n, 2], not of length 1; gravity along its axes [B, n, 3]."""
        w, x, y, z = ticks.qpos[..., self._position + 3 : self._position + 7].unbind(-1)
        yy = y * y
        halves = torch.stack(
            (0.5 - yy - z * z, x * y + w * z, w * y - x * z, -w * x - y * z, x * x + yy - 0.5), -1
        )
        attitude = 2 * halves
        return attitude[..., :2], attitude[..., 2:]

    def _along(self, heading: Tensor, ticks: Ticks) -> Tensor:
        """The base's velocity, m/s [B, n, 2]: forward and left."""
        ahead, aside = heading.unbind(-1)
        x, y = ticks.qvel[..., self._velocity : self._velocity + 2].unbind(-1)
        length = torch.hypot(ahead, aside).clamp(min=1e-6)
        velocity = torch.stack((x * ahead + y * aside, y * ahead - x * aside), -1)
        return velocity / length[..., None]

    def _spin(self, ticks: Ticks) -> Tensor:
        """Angular velocity along the base's axes, rad/s [B, n, 3]."""
        return ticks.qvel[..., self._velocity + 3 : self._velocity + 6]

    def _above_ground(self, x: Tensor, y: Tensor, z: Tensor) -> Tensor:
        return z if self._ground is None else z - self._ground.height(x, y)

    def _wanted_clearance(self, angle: Tensor, moving: Tensor) -> Tensor:
        gait = self._robot.gait
        lift = (angle[..., None] + self._phases).sin().clamp(min=0.0) * moving[..., None]
        return gait.foot_height + gait.swing_height * lift

    def _feet(self, ticks: Ticks, sensors: list[str]) -> Tensor:
        """[B, n, F, 3]."""
        found = ticks.sensors.together(sensors)
        return found.view(*found.shape[:-1], -1, 3)


def _levels(terrain: Terrain) -> Levels:
    spawns = torch.from_numpy(terrain.spawns - terrain.home)

    def place(level: Tensor, uniform: Tensor) -> Tensor:
        column = (uniform * terrain.columns).long()
        return spawns.to(level.device)[level, column]

    def move(variables: Mapping[str, Tensor], terminated: Tensor) -> Tensor:
        walked, commanded = variables["walked"][:, 0], variables["commanded"][:, 0]
        up = ~terminated & (walked >= UP * commanded) & (commanded > LEAST_WAY)
        down = terminated | (walked < DOWN * commanded)
        return up.long() - down.long()

    return Levels(terrain.rows, move, place)

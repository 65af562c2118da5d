"""A policy file in the loop that runs on robots, in simulation, scored by its task."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from andante.runtime.command import JointCommand
from andante.runtime.contract import Contract
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.policy import load_policy
from andante.runtime.profile import Profile, load_profile
from andante.runtime.states import State

from .commands import Commands
from .levels import WorldLevels
from .pushes import Shoves
from .randomness import Draws
from .robot import SimRobot
from .spec.models import build_model
from .spec.start import Start
from .task import ORDERS, Sensors, Task, Ticks, sensor_columns
from .tasks import get_task

CPU = torch.device("cpu")


@dataclass(frozen=True)
class ClosedLoop:
    """How the episodes went."""

    returns: NDArray[np.float64]
    """Sum of rewards of each episode [episodes]."""
    faults: tuple[str, ...]
    """What made the controller fall back; the return of such an episode is that of the fallback."""


def closed_loop(
    policy_path: str | Path, task: str, episodes: int, seed: int, profile: Profile | None = None
) -> ClosedLoop:
    """Run a policy file through `Controller` and `SimRobot`.

    Episode i starts where world i of `Env(task, seed=seed)` starts its episode 0, and has its commands and
    pushes: after the profile's start sequence the robot is put there, and the policy takes over.

    Args:
        policy_path: the policy file.
        task: scores it, and says what the operator commands.
        episodes: how many.
        seed: of their starts and commands.
        profile: of the robot; the shipped one of the policy's robot model when None.

    Raises:
        AndanteError: unknown task, a file that is no sound policy or does not fit, or a start that fails.
    """
    scored = get_task(task)
    policy = load_policy(policy_path)
    profile = profile or load_profile(policy.contract.robot_model)
    robot = SimRobot(policy.contract, profile)
    controller = Controller(policy, profile)
    controller.check_output(robot.carries)
    controller.warmup()
    score = _Score(scored, robot, policy.contract, profile)
    returns, faults = np.zeros(episodes), []
    for episode in range(episodes):
        start = score.begin(seed, episode)
        robot.set_state(*start)
        controller.activate()
        tick = _bring_to_ready(controller, robot)
        robot.set_state(*start)
        returns[episode] = _run_episode(controller, robot, score, tick)
        if controller.fault is not None:
            faults.append(f"episode {episode}: {controller.fault}")
        controller.deactivate()
        controller.clear()
    return ClosedLoop(returns, tuple(faults))


def _bring_to_ready(controller: Controller, robot: SimRobot) -> int:
    """Play the start sequence; returns the next tick."""
    tick = 0
    while controller.state is not State.READY:
        if controller.fault is not None:
            raise AndanteError(f"the start sequence ended in a fault: {controller.fault}")
        sample = robot.read()
        sample.operator.start = False
        robot.write(controller.tick(tick, sample))
        tick += 1
    return tick


def _run_episode(controller: Controller, robot: SimRobot, score: _Score, tick: int) -> float:
    total, ended = 0.0, False
    for i in range(score.task.spec.episode_ticks):
        sample = robot.read()
        sample.operator.start = True
        np.copyto(sample.operator.command, score.command)
        sample.operator.command_ns = sample.now_ns
        score.before()
        command = controller.tick(tick + i, sample)
        robot.write(command)
        reward, ended = score.after(command)
        total += reward
        if ended:
            break
    return total


class _Score:
    """Scores one robot's episode as the worlds of training are scored."""

    def __init__(self, task: Task, robot: SimRobot, contract: Contract, profile: Profile) -> None:
        self.task = task
        self._robot = robot
        model = build_model(task.spec)
        self._functions = task.bind(model)
        self._start = Start(model, task.spec)
        self._sensors = sensor_columns(robot.model)
        self._commands = Commands(task.spec, 1, CPU)
        names = [joint.name for joint in profile.actuated]
        kinds = [term.kind for term in contract.actions for _ in term.joints]
        self._columns = [
            (kind, names.index(joint)) for kind, joint in zip(kinds, contract.action_joints, strict=True)
        ]
        self._scale = [joint.scale for joint in profile.actuated]
        self._offset = [joint.zero_offset for joint in profile.actuated]

    @property
    def command(self) -> NDArray[np.float32]:
        """What the operator wants at the next tick [k]; the controller leads the policy there."""
        return self._commands.target[0].numpy()

    def begin(self, seed: int, episode: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Begin the episode; returns qpos [nq] and qvel [nv] to start from."""
        self._key = seed, torch.tensor([episode]), torch.tensor([0])
        self._tick = torch.tensor([0])
        draws = self._draws(torch.tensor([0]), self._tick)
        self._commands.restart(torch.tensor([0]), draws, lambda: draws)
        self._executed = torch.tensor(self.task.spec.action_middle).repeat(1, ORDERS, 1)
        self._robot.data.xfrc_applied[:] = 0.0
        self._shoves = Shoves(self.task.spec, self._robot.model, 1, CPU)
        self._shoves.restart(torch.tensor([0]), draws, lambda: draws)
        variables = self._functions.variables
        self._variables = {} if variables is None else variables.begin(draws)
        levels = WorldLevels(self._functions.levels, 1, CPU)
        levels.begin(draws)
        shift = levels.place(torch.tensor([0]), draws)
        uniform = draws.uniform("initial_state", self._start.draws).numpy()
        qpos, qvel = self._start(uniform, None if shift is None else shift.numpy())
        return qpos[0], qvel[0]

    def before(self) -> None:
        """Note the state at the beginning of a tick, and push the robot as the task does."""
        self._before = self._state()
        self._robot.data.xfrc_applied[:] = 0.0
        for body, forces in (self._shoves.forces(self._tick, 1, self._draws) or {}).items():
            self._robot.data.xfrc_applied[body] = forces[0, 0]

    def after(self, command: JointCommand) -> tuple[float, bool]:
        """The reward of the tick that `command` was for, and whether the episode ends there."""
        executed = torch.cat((self._executed, self._action(command)), 1)
        qpos, qvel = self._state()
        sensors = torch.from_numpy(self._robot.data.sensordata)[None, None].to(self.task.dtype)
        self._tick = self._tick + 1
        ticks = Ticks(
            qpos=qpos,
            qvel=qvel,
            sensors=Sensors(sensors, self._sensors),
            actions=executed,
            command=self._commands.advance(self._tick - 1, 1, self._draws)[:, :1],
            tick=self._tick[:, None],
            variables={},
            qpos_before=self._before[0],
            qvel_before=self._before[1],
        )
        if self._functions.variables is not None:
            ticks = replace(ticks, variables=self._functions.variables.over(self._variables, ticks))
            self._variables = {name: values[:, -1] for name, values in ticks.variables.items()}
        self._executed = executed[:, 1:]
        reward, _ = self._functions.score(ticks)
        return reward.item(), bool(self._functions.terminated(ticks))

    def _draws(self, worlds: Tensor, tick: Tensor) -> Draws:
        seed, world, episode = self._key
        return Draws(seed, world[worlds], episode[worlds], tick)

    def _state(self) -> tuple[Tensor, Tensor]:
        data = self._robot.data
        qpos, qvel = (torch.from_numpy(values)[None, None] for values in (data.qpos, data.qvel))
        # A copy even where the type is right: MuJoCo goes on writing into its own.
        return qpos.to(self.task.dtype, copy=True), qvel.to(self.task.dtype, copy=True)

    def _action(self, command: JointCommand) -> Tensor:
        """What the command means as an action [1, 1, A]."""
        values = []
        for kind, i in self._columns:
            if kind == "position":
                values.append((command.q[i] - self._offset[i]) / self._scale[i])
            elif kind == "velocity":
                values.append(command.dq[i] / self._scale[i])
            else:
                values.append(command.tau_ff[i] * self._scale[i])
        return torch.tensor([[values]], dtype=torch.float32)

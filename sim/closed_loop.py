"""A policy file in the loop that runs on robots, in simulation, scored by its task."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.states import State

from .randomness import Draws
from .robot import SimRobot
from .task import Task
from .tasks import get_task


@dataclass(frozen=True)
class ClosedLoop:
    """How the episodes went."""

    returns: np.ndarray
    """Sum of rewards of each episode [episodes], float64."""
    faults: tuple[str, ...]
    """What made the controller fall back; the return of such an episode is that of the fallback."""


def closed_loop(policy_path: str | Path, task: str, episodes: int, seed: int) -> ClosedLoop:
    """Run a policy file through `Controller` and `SimRobot`, with the shipped profile of its robot model.

    Episode i starts where world i of `Env(task, seed=seed)` starts its episode 0: after the profile's start
    sequence the robot is put there, and the policy takes over.

    Raises:
        AndanteError: unknown task, a file that is no sound policy or does not fit, or a start that fails.
    """
    scored = get_task(task)
    policy = load_policy(policy_path)
    profile = load_profile(policy.contract.robot_model)
    robot = SimRobot(policy.contract, profile)
    controller = Controller(policy, profile)
    controller.check_output(robot.carries)
    controller.warmup()
    zeros = torch.zeros(episodes, dtype=torch.int64)
    starts = scored.initial_state(Draws(seed, torch.arange(episodes), zeros, zeros))
    returns, faults = np.zeros(episodes), []
    for episode, (qpos, qvel) in enumerate(zip(*starts, strict=True)):
        robot.set_state(qpos, qvel)
        controller.activate()
        tick = _bring_to_ready(controller, robot)
        robot.set_state(qpos, qvel)
        controller.confirm()
        returns[episode] = _run_episode(controller, robot, scored, tick)
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
        robot.write(controller.tick(tick, robot.read()))
        tick += 1
    return tick


def _run_episode(controller: Controller, robot: SimRobot, task: Task, tick: int) -> float:
    total = 0.0
    for i in range(task.spec.episode_ticks):
        robot.write(controller.tick(tick + i, robot.read()))
        qpos, qvel = torch.from_numpy(robot.data.qpos).float(), torch.from_numpy(robot.data.qvel).float()
        total += task.reward(qpos, qvel).item()
        if task.terminated(qpos, qvel):
            break
    return total

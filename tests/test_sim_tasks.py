"""With the true state the tasks can be solved at 10 decisions a second; by chance or without memory, no."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from andante.sim import make
from andante.sim.env import Env
from andante.sim.spec import get_spec
from andante.sim.spec.models import build_model
from andante.sim.task import Functions, Sensors, Ticks
from andante.sim.tasks import get_task

PENDULUM, CARTPOLE = "pendulum-swingup-blind", "cartpole-swingup-blind"
HOLD = 5
"""Ticks between decisions, the action held."""


def functions_of(name: str) -> Functions:
    return get_task(name).bind(build_model(get_spec(name)))


def ticks(qpos: torch.Tensor, qvel: torch.Tensor) -> Ticks:
    """One tick of each world; qpos and qvel [B, joints]."""
    none = torch.empty(len(qpos), 1, 0)
    return Ticks(
        qpos[:, None], qvel[:, None], {}, none, none, torch.ones(len(qpos), 1, dtype=torch.int64), {}
    )


def returns(env: Env, policy, ticks: int = 500) -> torch.Tensor:
    """Of one episode per world, under `policy(critic) -> actions [B, n, A]`."""
    critic, total = env.reset().critic, torch.zeros(env.num_worlds)
    running = torch.ones(env.num_worlds, dtype=torch.bool)
    while running.any() and ticks > 0:
        outcome = env.step(policy(critic))
        total += (outcome.reward * running[:, None]).sum(1)
        running &= ~outcome.done
        critic, ticks = outcome.observation.critic, ticks - outcome.reward.shape[1]
    return total


class Swing:
    """Energy shaping (Astrom and Furuta, 2000), then a linear-quadratic regulator of the held action."""

    def __init__(self, name: str, state_cost: list[float], action_cost: float):
        spec = get_spec(name)
        model = build_model(spec)
        data = mujoco.MjData(model)
        a, b = np.zeros((2 * model.nv, 2 * model.nv)), np.zeros((2 * model.nv, 1))
        mujoco.mjd_transitionFD(model, data, 1e-6, True, a, b, None, None)
        steps = HOLD * spec.decimation
        b = sum(np.linalg.matrix_power(a, i) @ b for i in range(steps))
        a = np.linalg.matrix_power(a, steps)
        cost = np.diag(state_cost)
        value = cost
        for _ in range(500):
            gain = np.linalg.solve(action_cost + b.T @ value @ b, b.T @ value @ a)
            value = cost + a.T @ value @ (a - b @ gain)
        self.gain = torch.from_numpy(gain[0]).float()
        self.inertia = model.dof_M0[-1]
        data.qpos[-1] = math.pi / 2
        mujoco.mj_forward(model, data)
        self.gravity = -data.qfrc_bias[-1]
        self.limit = spec.actions[0].high[0]

    def energy(self, angle: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        """Zero at rest upright."""
        return self.inertia * speed**2 / 2 + self.gravity * (angle.cos() - 1)

    def speed_in_mid_hold(self, angle: torch.Tensor, speed: torch.Tensor) -> torch.Tensor:
        return speed + self.gravity / self.inertia * angle.sin() * 0.05

    def held(self, action: torch.Tensor) -> torch.Tensor:
        return action.clamp(-self.limit, self.limit)[:, None, None].expand(-1, HOLD, 1)


def pendulum_expert():
    swing = Swing(PENDULUM, [1.0, 0.1], 1.0)

    def policy(critic):
        angle, speed = torch.atan2(critic[:, 0], critic[:, 1]), 5 * critic[:, 2]
        balance = -torch.stack((angle, speed), 1) @ swing.gain
        pump = -4 * swing.energy(angle, speed) * swing.speed_in_mid_hold(angle, speed).sign()
        return swing.held(torch.where(balance.abs() < 1.2, balance, pump))

    return policy


def cartpole_expert():
    swing = Swing(CARTPOLE, [2.0, 5.0, 0.2, 0.2], 0.02)

    def policy(critic):
        cart, cart_speed = 1.5 * critic[:, 0], 2 * critic[:, 3]
        angle, speed = torch.atan2(critic[:, 1], critic[:, 2]), 5 * critic[:, 4]
        balance = -torch.stack((cart, angle, cart_speed, speed), 1) @ swing.gain
        energy = swing.energy(angle, speed)
        direction = (swing.speed_in_mid_hold(angle, speed) * (angle + 0.05 * speed).cos()).sign()
        pump = 1.25 * ((25 * energy * direction).clamp(-8, 8) - 8 * cart - 2 * cart_speed)
        near = (angle.abs() < 0.7) & (energy.abs() < 1)
        return swing.held(torch.where(near, balance, pump))

    return policy


@pytest.mark.parametrize(("name", "expert"), [(PENDULUM, pendulum_expert), (CARTPOLE, cartpole_expert)])
def test_a_controller_that_knows_the_velocity_solves_the_task_at_10_hz(name, expert):
    found = returns(make(name, 32, seed=1), expert())
    assert found.mean() > 350
    assert found.min() > 300


@pytest.mark.parametrize("name", [PENDULUM, CARTPOLE])
@pytest.mark.parametrize("hold", [1, HOLD])
def test_random_actions_earn_little(name, hold):
    env, random = make(name, 64, seed=1), torch.Generator().manual_seed(0)
    high = env.spec.actions[0].high[0]

    def policy(_):
        return (high * (2 * torch.rand(64, 1, 1, generator=random) - 1)).expand(-1, hold, 1)

    assert returns(env, policy).mean() < 50


def test_feedback_of_the_angle_alone_cannot_hold_the_pendulum_up():
    env = make(PENDULUM, 256, seed=1)
    env.reset()
    saved = env.state_dict()
    saved["state"][:, 1], saved["state"][:, 2] = 0.1, 0.2
    env.load_state_dict(saved)
    gains = torch.linspace(0, 30, 256)
    angle = torch.full((256,), 0.1)
    rewards = []
    for _ in range(100):
        action = (-gains * angle).clamp(-0.7, 0.7)[:, None, None].expand(-1, HOLD, 1)
        outcome = env.step(action)
        rewards.append(outcome.reward)
        angle = torch.atan2(*outcome.observation.critic[:, :2].unbind(1))
    assert torch.cat(rewards, 1)[:, 250:].mean(1).max() < 0.4


def test_spinning_does_not_pay():
    functions = functions_of(PENDULUM)
    angle = torch.linspace(0, 2 * math.pi, 1000)[:, None]
    # Just enough energy to pass the top at the speed at which the reward is down to 1/e.
    swing = Swing(PENDULUM, [1.0, 0.1], 1.0)
    speed = (4.0 + 2 * swing.gravity / swing.inertia * (1 - angle.cos())).sqrt()
    reward = functions.score(ticks(angle, speed))[0][:, 0]
    time_weighted = (reward / speed[:, 0]).sum() / (1 / speed).sum()
    assert time_weighted < 0.15


@pytest.mark.parametrize("name", [PENDULUM, CARTPOLE])
def test_rewards_are_between_zero_and_one_and_one_at_rest_upright(name):
    functions, joints = functions_of(name), len(get_spec(name).start)
    random = torch.Generator().manual_seed(0)
    reward, _ = functions.score(ticks(*(10 * torch.randn(2, 1000, joints, generator=random))))
    assert reward.min() >= 0
    assert reward.max() <= 1
    assert functions.score(ticks(*torch.zeros(2, 1, joints)))[0].item() == 1


def test_the_cart_may_go_to_the_end_of_its_rail_and_no_further():
    functions, still = functions_of(CARTPOLE), torch.zeros(3, 2)
    qpos = torch.tensor([[1.49, 0.0], [-1.51, 0.0], [1.51, 3.0]])
    assert functions.terminated(ticks(qpos, still))[:, 0].tolist() == [False, True, True]


def test_sensors_are_read_together_whether_they_are_neighbours_or_not():
    values = torch.arange(12.0).view(2, 1, 6)
    sensors = Sensors(values, {"a": slice(0, 2), "b": slice(2, 3), "c": slice(3, 6)})
    together = sensors.together(["a", "b"])
    assert together.tolist() == values[..., :3].tolist()
    assert together.data_ptr() == values.data_ptr()
    assert sensors.together(["c", "a"]).tolist() == [[[3, 4, 5, 0, 1]], [[9, 10, 11, 6, 7]]]
    assert sensors.at(0)["b"].tolist() == [[[2]], [[8]]]

"""The quadrotor: thrust, twist and lag of its rotors, and a task that what it measures can solve."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch

from andante.sim import make
from andante.sim.spec import get_spec
from andante.sim.spec.describe import describe
from andante.sim.spec.models import build_model
from andante.sim.spec.quadrotor import HOVER, MAX_THRUST, TARGET
from andante.sim.task import ORDERS, Functions, Ticks
from andante.sim.tasks import get_task, quadrotor

HOVERING = "quadrotor-hover"
ARM, TWIST = 0.085, 0.016
MIX = torch.tensor(
    [[1, 1, 1, 1], [ARM, -ARM, ARM, -ARM], [-ARM, -ARM, ARM, ARM], [-TWIST, TWIST, TWIST, -TWIST]]
)
"""Thrusts fl, fr, rl, rr -> sum, torque about x, y, z."""


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return build_model(get_spec(HOVERING))


@pytest.fixture(scope="module")
def functions(model) -> Functions:
    return get_task(HOVERING).bind(model)


def tick(position=TARGET, tilt_degrees=0.0, speed=0.0, spin=0.0, change=0.0) -> Ticks:
    """One tick of one world, as if it had left this behind; the tilt is about y."""
    half, actions = math.radians(tilt_degrees) / 2, torch.full((1, ORDERS + 1, 4), HOVER)
    actions[:, -1, 0] += change
    return Ticks(
        qpos=torch.tensor([*position, math.cos(half), 0.0, math.sin(half), 0.0]).view(1, 1, 7),
        qvel=torch.tensor([speed, 0.0, 0.0, 0.0, 0.0, spin]).view(1, 1, 6),
        sensors={},
        actions=actions,
        command=torch.zeros(1, 1, 0),
        tick=torch.ones(1, 1, dtype=torch.int64),
        variables={},
    )


def hover(sources):
    """A proportional-derivative law of what is measured, for headings near the start's."""
    gravity, spin = sources["gravity"], sources["angular_velocity"]
    offset = sources["position"] - torch.tensor(TARGET)
    wanted = (-4 * offset - 3 * sources["linear_velocity"]).clamp(-4, 4)
    direction = torch.nn.functional.normalize(-gravity + wanted / 9.81, dim=-1)
    thrust = 0.6 * (9.81 - wanted[:, 2] * gravity[:, 2])
    inertia = torch.tensor([0.0021, 0.0021, 0.0039])
    turn = 60 * torch.stack((-direction[:, 1], direction[:, 0], torch.zeros(len(spin))), -1)
    torque = inertia * (turn - 14 * spin)
    wrench = torch.cat((thrust[:, None], torque), -1)
    return torch.linalg.solve(MIX, wrench.T).T.clamp(0, MAX_THRUST)[:, None]


def zero(sources):
    return torch.full((len(sources["gravity"]), 1, 4), HOVER)


def noise():
    generator = torch.Generator().manual_seed(0)
    return lambda sources: HOVER + 2 * torch.rand(len(sources["gravity"]), 1, 4, generator=generator) - 1


def first_episodes(act, worlds=32, seed=0):
    """Return and length of one episode per world under `act(sources) -> [B, 1, 4]`."""
    env = make(HOVERING, num_worlds=worlds, seed=seed)
    sources, total, length = env.reset().sources, torch.zeros(worlds), torch.zeros(worlds)
    running = torch.ones(worlds, dtype=torch.bool)
    for _ in range(env.spec.episode_ticks):
        outcome = env.step(act(sources))
        total += outcome.reward[:, 0] * running
        length += running
        running &= ~outcome.done
        sources = outcome.observation.sources
    return total, length


def test_the_tasks_docstring_is_its_table():
    assert describe(get_spec(HOVERING)) in quadrotor.__doc__


def test_what_is_measured_suffices_to_hover():
    total, length = first_episodes(hover)
    assert length.min() == 500
    assert total.min() > 380


def test_steady_thrust_drifts_off_and_noise_crashes():
    for act in (zero, noise()):
        total, length = first_episodes(act)
        assert total.mean() < 100
        assert length.max() < 500


def test_four_hovering_thrusts_carry_the_weight(model):
    data = mujoco.MjData(model)
    data.act[:] = data.ctrl[:] = HOVER
    mujoco.mj_forward(model, data)
    assert data.qacc == pytest.approx(np.zeros(6), abs=1e-6)


@pytest.mark.parametrize("rotor", range(4))
def test_each_rotor_lifts_its_corner_and_twists_the_body(model, rotor):
    data = mujoco.MjData(model)
    data.qpos[2] = 1.0
    data.act[rotor] = 1.0
    mujoco.mj_forward(model, data)
    assert data.qfrc_actuator == pytest.approx([0, 0, *MIX[:, rotor].tolist()], abs=1e-6)


def test_a_rotor_follows_with_a_lag_of_40_ms(model):
    data = mujoco.MjData(model)
    data.ctrl[0] = 1.0
    mujoco.mj_step(model, data, round(0.04 / model.opt.timestep))
    assert data.act[0] == pytest.approx(1 - 1 / math.e, abs=0.05)


def test_the_lag_continues_from_a_saved_state():
    env = make(HOVERING, num_worlds=2, seed=0, threads=1)
    env.reset()
    action = torch.full((2, 3, 4), 3.0)
    env.step(action)
    saved = env.state_dict()
    expected = env.step(action).observation.sources
    env.load_state_dict(saved)
    again = env.step(action).observation.sources
    assert all(torch.equal(expected[name], again[name]) for name in expected)


def test_the_rotors_stand_still_when_an_episode_starts():
    env = make(HOVERING, num_worlds=1, seed=0, threads=1)
    env.reset()
    while not (outcome := env.step(torch.full((1, 1, 4), MAX_THRUST))).done:
        pass
    start = outcome.observation.sources["linear_velocity"][0, 2]
    later = env.step(torch.zeros(1, 5, 4)).observation.sources["linear_velocity"][0, 2]
    assert later - start == pytest.approx(-9.81 * 0.05, abs=0.1)


def test_the_reward_is_one_at_the_target_and_falls_with_distance_and_motion(functions):
    def total(ticks: Ticks) -> float:
        return sum(term.item() for term in functions.reward(ticks).values())

    assert total(tick()) == pytest.approx(1)
    assert functions.reward(tick(position=(0.3, 0.0, 1.0)))["position"].item() == pytest.approx(0.5)
    assert total(tick(tilt_degrees=30.0)) == pytest.approx(1 - 0.1 * 0.25)
    assert total(tick(spin=2.0)) == pytest.approx(1 - 0.02 * 4)
    assert total(tick(speed=2.0)) == pytest.approx(1 - 0.05 * 4)
    assert total(tick(change=2.0)) == pytest.approx(1 - 0.02 * 4)


def test_the_critic_sees_which_way_is_up(functions):
    seen = functions.critic(tick(tilt_degrees=90.0))[0, 0]
    assert seen[6:12].tolist() == pytest.approx([2, 0, 0, 0, 0, -1], abs=1e-6)


@pytest.mark.parametrize(
    ("state", "ends"),
    [
        ({}, False),
        ({"tilt_degrees": 74.0}, False),
        ({"tilt_degrees": 76.0}, True),
        ({"tilt_degrees": -170.0}, True),
        ({"position": (0.0, 0.0, 0.11)}, False),
        ({"position": (0.0, 0.0, 0.09)}, True),
        ({"position": (1.5, 1.2, 1.0)}, False),
        ({"position": (1.5, 1.5, 1.0)}, True),
    ],
)
def test_crashing_toppling_and_leaving_end_the_episode(functions, state, ends):
    assert functions.terminated(tick(**state)).item() is ends

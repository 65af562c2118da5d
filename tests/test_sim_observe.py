"""What robots measure in simulation: histories, clocks, gravity, executed actions, and how old it all is."""

from __future__ import annotations

import mujoco
import numpy as np
import pytest
import torch
from sled import PERIOD_NS, sled_task, sources

from andante.sim.env import Env
from andante.sim.observe import clock_phase, gravity_direction

WORLDS = 5


def actions_for(env: Env, ticks: int, seed: int = 0) -> torch.Tensor:
    """Beyond the limits at times."""
    high = torch.tensor(env.spec.action_high)
    random = torch.Generator().manual_seed(seed)
    return 0.7 * high * torch.randn(env.num_worlds, ticks, env.spec.action_size, generator=random)


@pytest.fixture
def env(tmp_path) -> Env:
    return Env(sled_task(tmp_path), WORLDS, seed=3)


def test_a_history_has_the_last_ticks_oldest_first_however_they_are_grouped(tmp_path):
    single, grouped = (Env(sled_task(tmp_path, sources=sources(history=4)), WORLDS, seed=3) for _ in range(2))
    seen = [single.reset().sources]
    first = grouped.reset().sources
    for name in ("q", "angular_velocity of imu", "gravity of imu", "raw", "clock"):
        assert torch.equal(first[name], first[name][:, :1].expand(-1, 4, -1)), name
    actions = actions_for(single, 12)
    for i in range(12):
        seen.append(single.step(actions[:, i : i + 1]).observation.sources)
    tick = 0
    for n in (1, 2, 3, 6):
        found = grouped.step(actions[:, tick : tick + n]).observation.sources
        tick += n
        for name, values in found.items():
            assert torch.equal(values, seen[tick][name]), name
        for row in range(4):
            then = seen[max(0, tick - 3 + row)]
            assert torch.equal(found["q"][:, row], then["q"][:, -1])
    assert not torch.equal(found["q"][:, 0], found["q"][:, 1])


def test_a_clock_is_exact_after_ten_million_ticks():
    period_ns = 333_333_333
    ticks = [10_000_000 + i for i in range(20)]
    expected = [tick * PERIOD_NS % period_ns / period_ns for tick in ticks]
    assert clock_phase(torch.tensor(ticks), PERIOD_NS, period_ns).tolist() == pytest.approx(
        expected, abs=1e-7
    )


def test_the_clock_of_a_long_episode_goes_on(tmp_path):
    env = Env(sled_task(tmp_path, episode_ticks=2**40), 1)
    env.reset()
    saved = env.state_dict()
    saved["tick"][:] = 7 * 10_000_000
    env.load_state_dict(saved)
    phases = [env.step(torch.zeros(1, 1, 3)).observation.sources["clock"].item() for _ in range(8)]
    assert phases == pytest.approx([1 / 7, 2 / 7, 3 / 7, 4 / 7, 5 / 7, 6 / 7, 0, 1 / 7], abs=1e-6)


def test_gravity_points_down_in_a_level_frame_and_forward_when_the_nose_is_down():
    nose_down = [np.cos(np.pi / 4), 0.0, np.sin(np.pi / 4), 0.0]
    found = gravity_direction(torch.tensor([[1.0, 0.0, 0.0, 0.0], nose_down]).float())
    torch.testing.assert_close(found, torch.tensor([[0.0, 0.0, -1.0], [1.0, 0.0, 0.0]]), atol=1e-6, rtol=0)


def test_gravity_is_what_mujoco_says_of_any_orientation():
    random = np.random.default_rng(0)
    for _ in range(20):
        quaternion, matrix = random.normal(size=4), np.zeros(9)
        quaternion /= np.linalg.norm(quaternion)
        mujoco.mju_quat2Mat(matrix, quaternion)
        expected = matrix.reshape(3, 3).T @ [0, 0, -1]
        assert gravity_direction(torch.tensor(quaternion)).numpy() == pytest.approx(expected, abs=1e-12)


def test_joints_are_of_now_and_other_signals_one_physics_step_older(env):
    env.reset()
    model, data = env._backend.model, mujoco.MjData(env._backend.model)
    state = env.state_dict()["state"][0].numpy()
    mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
    env._shoves._pushes = None
    actions = actions_for(env, 6)
    for i in range(6):
        found = env.step(actions[:, i : i + 1]).observation.sources
        data.ctrl[:] = actions[0, i]
        mujoco.mj_step(model, data, env.spec.decimation - 1)
        before = mujoco.MjData(model)
        mujoco.mj_copyData(before, model, data)
        mujoco.mj_step(model, data)
        mujoco.mj_forward(model, before)
        for kind, frame in (
            ("angular_velocity", "imu"),
            ("linear_acceleration", "imu"),
            ("position", "boom"),
        ):
            expected = torch.tensor(before.sensor(f"{kind}/{frame}").data).float()
            assert torch.equal(found[f"{kind} of {frame}"][0], expected), kind
        assert torch.equal(found["q"][0], torch.tensor(data.qpos[7:]).float())
        assert torch.equal(found["dq"][0], torch.tensor(data.qvel[[7, 6]]).float())
        mujoco.mj_forward(model, data)
        assert not torch.equal(found["angular_velocity of imu"][0], torch.tensor(data.sensor(0).data).float())


def test_a_fresh_world_measures_its_state_without_any_torque(env):
    found = env.reset().sources
    model, data = env._backend.model, mujoco.MjData(env._backend.model)
    for world, state in enumerate(env.state_dict()["state"].numpy()):
        mujoco.mj_setState(model, data, state, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_ACTUATION
        mujoco.mj_forward(model, data)
        model.opt.disableflags &= ~mujoco.mjtDisableBit.mjDSBL_ACTUATION.value
        for kind in ("angular_velocity", "linear_acceleration"):
            expected = torch.tensor(data.sensor(f"{kind}/imu").data).float()
            assert torch.equal(found[f"{kind} of imu"][world], expected)
    assert not model.opt.disableflags & mujoco.mjtDisableBit.mjDSBL_ACTUATION


def test_executed_actions_are_raw_or_limited_and_begin_at_the_center(env):
    first = env.reset().sources
    center = torch.tensor(env.spec.action_center).expand(WORLDS, -1)
    assert torch.equal(first["raw"], center)
    assert torch.equal(first["limited"], center)
    actions = torch.tensor([[0.5, -2.0, 3.0]]).expand(WORLDS, 2, -1) * torch.tensor([[1.0], [4.0]])
    found = env.step(actions).observation.sources
    assert torch.equal(found["raw"][0], torch.tensor([2.0, -8.0, 12.0]))
    assert torch.equal(found["limited"][0], torch.tensor([1.0, -0.5, 5.0]))
    assert torch.equal(found["committed"], torch.zeros(WORLDS, 2, 3))


def test_observations_are_not_overwritten_by_the_next_call(env):
    first = env.reset().sources
    copies = {name: values.clone() for name, values in first.items()}
    env.step(actions_for(env, 3))
    assert all(torch.equal(first[name], copy) for name, copy in copies.items())

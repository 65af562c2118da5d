"""Rough ground, what lies under a point of it, and how worlds move between its rows."""

from __future__ import annotations

import math

import mujoco
import numpy as np
import pytest
import torch
from small_policy import write_small_policy

from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.sim import make
from andante.sim.closed_loop import _Score
from andante.sim.robot import SimRobot
from andante.sim.spec.models import build_model
from andante.sim.spec.quadruped import QUADRUPED, ROUGH, ROUGH_GROUND
from andante.sim.spec.terrain import CELL, EDGE, PLATFORM, TILE, Terrain
from andante.sim.tasks import get_task
from andante.sim.tasks.ground import Ground

NAME = "quadruped-velocity-rough"


@pytest.fixture(scope="module")
def model() -> mujoco.MjModel:
    return build_model(ROUGH)


@pytest.fixture(scope="module")
def levels():
    return get_task(NAME).bind(build_model(ROUGH)).levels


def standing_env(worlds: int, seed: int = 0):
    env = make(NAME, worlds, seed=seed)
    return env, torch.tensor(env.spec.action_middle).expand(worlds, 5, -1)


def test_the_first_row_is_flat_and_the_others_are_ever_rougher():
    heights = ROUGH_GROUND.heights
    assert heights.shape <= (128, 128)
    rows = heights.reshape(ROUGH_GROUND.rows, -1)
    assert not rows[0].any()
    assert (np.diff(rows.max(1)) > 0).all()
    assert (np.diff(rows.std(1)) > 0).all()
    assert heights.min() == 0


def test_a_terrain_is_a_function_of_its_seed():
    assert (Terrain(seed=1).heights == Terrain(seed=1).heights).all()
    assert (Terrain(seed=1).heights != Terrain(seed=2).heights).any()


def test_every_start_is_in_the_middle_of_a_level_square():
    heights, (x0, y0) = ROUGH_GROUND.heights, ROUGH_GROUND.half_size
    for row in range(ROUGH_GROUND.rows):
        for column in range(ROUGH_GROUND.columns):
            x, y = ROUGH_GROUND.spawns[row, column]
            j, i = round((x + x0) / CELL), round((y + y0) / CELL)
            assert (i // TILE, j // TILE) == (row, column)
            square = heights[i - PLATFORM : i + PLATFORM + 1, j - PLATFORM : j + PLATFORM + 1]
            assert np.ptp(square) == 0


def test_the_ground_is_where_mujoco_has_it(model):
    data, random = mujoco.MjData(model), np.random.default_rng(0)
    data.qpos[2] = 50
    mujoco.mj_forward(model, data)
    # Some lie off the field, on the plane around it.
    points = random.uniform(-1, 1, (500, 2)) * np.array(ROUGH_GROUND.half_size) * 1.2
    down, geom = np.array([0.0, 0.0, -1.0]), np.zeros(1, np.int32)
    expected = [
        5 - mujoco.mj_ray(model, data, np.array([x, y, 5.0]), down, None, 1, -1, geom) for x, y in points
    ]
    x, y = torch.from_numpy(points).float().unbind(1)
    found = Ground(ROUGH_GROUND, torch.device("cpu")).height(x, y)
    assert (found - torch.tensor(expected)).abs().max() < 1e-5
    assert (found == -EDGE).sum() > 100


def test_a_long_commanded_way_walked_without_a_fall_leads_up_and_a_fall_or_little_way_down(levels):
    commanded = torch.tensor([10.0, 10.0, 10.0, 10.0, 1.0])
    walked = torch.tensor([9.0, 6.0, 4.0, 9.0, 1.0])
    fell = torch.tensor([False, False, False, True, False])
    moves = levels.move({"walked": walked[:, None], "commanded": commanded[:, None]}, fell)
    assert moves.tolist() == [1, 0, -1, -1, 0]


def test_only_what_is_walked_along_the_command_counts():
    env, _ = standing_env(1)
    env.reset()
    saved = env.state_dict()
    speed, heading = 0.5, 2.0
    saved["state"][0, 3] += 1.0  # in the air, where nothing brakes it
    saved["state"][0, 4:8] = torch.tensor([math.cos(heading / 2), 0.0, 0.0, math.sin(heading / 2)])
    saved["state"][0, 20:22] = speed * torch.tensor([math.cos(heading), math.sin(heading)])
    for angle in (0.0, 1.0, math.pi):
        command = torch.tensor([[0.4 * math.cos(angle), 0.4 * math.sin(angle), 0.0]])
        saved["commands"] = dict.fromkeys(saved["commands"], command)
        env.load_state_dict(saved)
        env.step(torch.tensor(env.spec.action_middle).expand(1, 5, -1))
        after = env.state_dict()["variables"]
        assert after["commanded"].item() == pytest.approx(0.4 * 0.1, rel=1e-4)
        assert after["walked"].item() == pytest.approx(speed * math.cos(angle) * 0.1, abs=0.003)


def test_worlds_start_on_the_row_of_their_level():
    env, _ = standing_env(64)
    env.reset()
    saved = env.state_dict()
    assert saved["level"].bincount(minlength=ROUGH_GROUND.rows).min() > 0
    x, y, z = saved["state"][:, 1:4].unbind(1)
    row = torch.from_numpy(ROUGH_GROUND.spawns[:, 0, 1])[saved["level"]]
    assert (y - row).abs().max() <= 0.2
    ground = Ground(ROUGH_GROUND, torch.device("cpu")).height(x.float(), y.float())
    assert (z - ground - QUADRUPED.start_height).abs().max() < 1e-5
    assert len(x.round().unique()) == ROUGH_GROUND.columns


def test_robots_stand_where_they_start_on_every_row():
    env, stand = standing_env(64)
    env.reset()
    ends = sum(env.step(stand).terminated.sum() for _ in range(20))
    assert ends <= 2


def test_a_level_outlives_the_episode_and_moves_with_how_it_went():
    env, stand = standing_env(16)
    env.reset()
    before = env.state_dict()
    # Told to walk, and standing until the time is over.
    saved = before | {"tick": torch.full((16,), env.spec.episode_ticks - 5)}
    saved["variables"] = before["variables"] | {"commanded": torch.full((16, 1), 10.0)}
    env.load_state_dict(saved)
    outcome = env.step(stand)
    assert outcome.truncated[:, -1].all()
    after = env.state_dict()
    assert after["level"].tolist() == (before["level"] - 1).clamp(min=0).tolist()
    assert not any(values.any() for name, values in after["variables"].items() if name != "landing")
    env.step(stand)
    assert env.state_dict()["level"].tolist() == after["level"].tolist()


def test_a_world_on_the_last_row_stays_there_however_well_it_walks():
    env, stand = standing_env(16)
    env.reset()
    saved = env.state_dict()
    saved |= {
        "tick": torch.full((16,), env.spec.episode_ticks - 5),
        "level": torch.full((16,), ROUGH_GROUND.rows - 1),
        "variables": saved["variables"]
        | {"commanded": torch.full((16, 1), 10.0), "walked": torch.full((16, 1), 10.0)},
    }
    env.load_state_dict(saved)
    env.step(stand)
    assert env.state_dict()["level"].tolist() == [ROUGH_GROUND.rows - 1] * 16


def test_levels_are_part_of_what_continues_a_run():
    env, stand = standing_env(8)
    env.reset()
    env.step(stand)
    saved = env.state_dict()
    other, _ = standing_env(8, seed=3)
    other.reset()
    other.load_state_dict(saved)
    assert other.state_dict()["level"].tolist() == saved["level"].tolist()
    assert torch.equal(env.step(stand).observation.critic, other.step(stand).observation.critic)


def test_only_a_reset_of_the_environment_draws_levels_anew():
    env, _ = standing_env(64)
    env.reset()
    first = env.state_dict()["level"]
    env.reset()
    assert env.state_dict()["level"].tolist() != first.tolist()


def test_a_policy_files_closed_loop_starts_where_the_worlds_of_training_do(tmp_path):
    env, _ = standing_env(3, seed=7)
    env.reset()
    starts = env.state_dict()["state"]
    policy = load_policy(write_small_policy(tmp_path / "policy.onnx", "quadruped", task=NAME))
    profile = load_profile("quadruped")
    robot = SimRobot(policy.contract, profile)
    score = _Score(get_task(NAME), robot, policy.contract, profile)
    for world in range(3):
        qpos, qvel = score.begin(7, world)
        assert starts[world, 1 : 1 + len(qpos)].tolist() == qpos.tolist()
        robot.set_state(qpos, qvel)
        assert robot.data.ncon == 0

"""The batched Gymnasium tasks against Gymnasium: same states and actions, same numbers."""

from __future__ import annotations

import importlib.util
import warnings

import gymnasium
import mujoco
import numpy as np
import pytest
import torch

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.spec import get_spec
from andante.sim.spec.models import build_model

PLANAR = ("HalfCheetah-v5", "Hopper-v5", "Walker2d-v5", "InvertedPendulum-v5")
NAMES = (*PLANAR, "Ant-v5")
FORCES = 78
"""Numbers of the ant's observation that are contact forces, the last ones."""
SPREADS = {
    "HalfCheetah-v5": (0.2, 1.0),
    "Hopper-v5": (0.02, 0.2),
    "Walker2d-v5": (0.02, 0.5),
    "Ant-v5": (0.2, 1.0),
    "InvertedPendulum-v5": (0.05, 0.2),
}
"""Of the positions (uniform) and velocities (normal) of random states."""


class Twins:
    """One world of a task, and Gymnasium's environment of it, put into the same states."""

    def __init__(self, name: str, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)  # Gymnasium's parsing of its files leaves a log
        self.env = make(name, 1, seed=0)
        self.env.reset()
        self.gym = gymnasium.make(name).unwrapped
        self.gym.model.opt.disableflags |= mujoco.mjtDisableBit.mjDSBL_WARMSTART
        self.random = np.random.default_rng(0)
        self.spreads = SPREADS[name]

    def place(self, **columns: float) -> None:
        """At random, but for some `qpos_` or `qvel_` columns."""
        model, (position, velocity) = self.gym.model, self.spreads
        qpos = self.gym.init_qpos + self.random.uniform(-position, position, model.nq)
        qvel = self.random.normal(0.0, velocity, model.nv)
        for name, value in columns.items():
            (qpos if name.startswith("qpos") else qvel)[int(name[5:])] = value
        self.gym.reset()
        self.gym.set_state(qpos, qvel)
        saved = self.env.state_dict()
        saved["state"][0, 1:] = torch.from_numpy(np.concatenate((qpos, qvel)))
        saved["tick"].zero_()
        self.env.load_state_dict(saved)

    def step(self):
        space = self.gym.action_space
        action = self.random.uniform(space.low, space.high).astype(np.float32)
        return self.gym.step(action), self.env.step(torch.from_numpy(action)[None, None])


def sources(outcome) -> np.ndarray:
    return torch.cat(list(outcome.observation.sources.values()), 1)[0].numpy()


def test_placing_the_twins_differently_is_noticed(monkeypatch, tmp_path):
    twins = Twins("HalfCheetah-v5", monkeypatch, tmp_path)
    twins.place()
    twins.gym.data.qvel[3] += 1e-3
    (observation, *_), outcome = twins.step()
    assert np.abs(outcome.critic[0, 0].numpy() - observation).max() > 1e-5


@pytest.mark.parametrize("name", PLANAR)
def test_observations_rewards_and_ends_are_gymnasiums(name, monkeypatch, tmp_path):
    twins, ends, clipped = Twins(name, monkeypatch, tmp_path), 0, False
    twins.place()
    for _ in range(600):
        (observation, reward, terminated, _, _), outcome = twins.step()
        np.testing.assert_allclose(outcome.critic[0, 0], observation, rtol=1e-7, atol=1e-6)
        assert outcome.reward.item() == pytest.approx(reward, abs=1e-6)
        assert outcome.terminated.item() == terminated
        clipped |= bool((np.abs(twins.gym.data.qvel) > 10).any())
        if terminated:
            ends += 1
            twins.place()
        else:
            np.testing.assert_allclose(sources(outcome), observation, rtol=1e-7, atol=1e-6)
    assert (ends > 0) == (name != "HalfCheetah-v5")
    assert clipped or name in ("InvertedPendulum-v5", "Hopper-v5")


def test_ant_equals_gymnasium_but_for_what_the_last_stage_held(monkeypatch, tmp_path):
    twins, ends = Twins("Ant-v5", monkeypatch, tmp_path), 0
    forces, costs, velocities = [], [], []
    twins.place()
    for _ in range(600):
        before = twins.gym.data.qpos[0]
        (observation, _, terminated, _, info), outcome = twins.step()
        critic, terms = outcome.critic[0, 0].numpy(), {k: v.item() for k, v in outcome.terms.items()}
        np.testing.assert_allclose(critic[:-FORCES], observation[:-FORCES], rtol=1e-7, atol=1e-6)
        assert outcome.terminated.item() == terminated
        assert terms["healthy"] == info["reward_survive"]
        assert terms["control"] == pytest.approx(info["reward_ctrl"], abs=1e-6)
        assert terms["forward"] == pytest.approx((twins.gym.data.qpos[0] - before) / 0.05, abs=1e-6)
        assert outcome.reward.item() == pytest.approx(sum(terms.values()), abs=1e-6)
        forces.append(np.abs(critic[-FORCES:] - observation[-FORCES:]))
        costs.append(abs(terms["contact"] - info["reward_contact"]))
        velocities.append(abs(terms["forward"] - info["reward_forward"]))
        if terminated:
            ends += 1
            twins.place()
        else:
            assert np.array_equal(sources(outcome), critic)
    assert ends > 0
    assert np.mean(np.array(forces) > 0.1) < 0.04
    assert np.mean(costs) < 0.002
    assert np.mean(velocities) < 0.01
    assert max(velocities) < 0.2


def test_ants_contact_forces_are_mujocos_at_the_start_of_the_last_physics_step(monkeypatch, tmp_path):
    twins = Twins("Ant-v5", monkeypatch, tmp_path)
    model, compared = twins.env._backend.model, 0
    data = mujoco.MjData(model)
    twins.place()
    for _ in range(60):
        data.qpos[:], data.qvel[:] = twins.gym.data.qpos, twins.gym.data.qvel
        _, outcome = twins.step()
        data.ctrl[:] = twins.gym.data.ctrl
        for _ in range(4):
            mujoco.mj_step(model, data)
        mujoco.mj_forward(model, data)
        mujoco.mj_rnePostConstraint(model, data)
        expected = np.clip(data.cfrc_ext[1:], -1, 1).ravel()
        np.testing.assert_allclose(outcome.critic[0, 0, -FORCES:], expected, atol=1e-5)
        compared += int((np.abs(expected) > 0).sum())
        cost = outcome.terms["contact"].item()
        assert cost == pytest.approx(-5e-4 * np.square(expected).sum(), abs=1e-6)
        if outcome.done:
            twins.place()
    assert compared > 100


@pytest.mark.parametrize(
    ("name", "columns", "ends"),
    [
        ("Hopper-v5", {"qpos_1": 0.6}, True),
        ("Hopper-v5", {"qpos_1": 1.25, "qvel_0": 101.0}, True),
        ("Hopper-v5", {"qpos_1": 1.25, "qvel_0": -90.0}, False),
        ("Hopper-v5", {"qpos_2": -0.25}, True),
        ("Walker2d-v5", {"qpos_1": 2.1}, True),
        ("Walker2d-v5", {"qpos_1": 0.75}, True),
        ("Walker2d-v5", {"qpos_2": 0.9}, False),
        ("Walker2d-v5", {"qpos_2": 1.1}, True),
        ("Ant-v5", {"qpos_2": 1.2}, True),
        ("Ant-v5", {"qpos_2": 0.9}, False),
        ("InvertedPendulum-v5", {"qpos_1": -0.3}, True),
    ],
)
def test_episodes_end_where_gymnasiums_do(name, columns, ends, monkeypatch, tmp_path):
    twins = Twins(name, monkeypatch, tmp_path)
    twins.place(**columns)
    (_, _, terminated, _, _), outcome = twins.step()
    assert (terminated, outcome.terminated.item()) == (ends, ends)


@pytest.mark.parametrize("name", NAMES)
def test_model_action_time_limit_and_start_are_gymnasiums(name, monkeypatch, tmp_path):
    twins, spec = Twins(name, monkeypatch, tmp_path), get_spec(name)
    model, theirs = build_model(spec), twins.gym.model
    assert (model.opt.integrator, model.opt.timestep) == (theirs.opt.integrator, theirs.opt.timestep)
    assert (spec.decimation, spec.control_dt) == (twins.gym.frame_skip, pytest.approx(twins.gym.dt))
    assert spec.episode_ticks == gymnasium.spec(name).max_episode_steps
    assert spec.action_low == tuple(twins.gym.action_space.low)
    assert spec.action_high == tuple(twins.gym.action_space.high)
    assert model.actuator_trnid.tolist() == theirs.actuator_trnid.tolist()
    assert not model.opt.disableflags ^ theirs.opt.disableflags ^ mujoco.mjtDisableBit.mjDSBL_AUTORESET
    many = make(name, 512, seed=1)
    many.reset()
    starts = many.state_dict()["state"][:, 1:]
    samples = np.array(
        [
            np.concatenate((twins.gym.data.qpos, twins.gym.data.qvel))
            for seed in range(512)
            if twins.gym.reset(seed=seed)
        ]
    )
    if name == "Ant-v5":
        samples[:, 3:7] /= np.linalg.norm(samples[:, 3:7], axis=1, keepdims=True)
    spread = samples.std(0)
    np.testing.assert_allclose(starts.mean(0), samples.mean(0), atol=4 * spread.max() / np.sqrt(512))
    np.testing.assert_allclose(starts.std(0), spread, rtol=0.15, atol=0.01 * spread.max())


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    for declare in (get_spec, make):
        with pytest.raises(AndanteError, match=r"Ant-v5 needs gymnasium.*pip install '.\[gym\]'"):
            declare("Ant-v5")


def test_loading_a_model_neither_warns_nor_leaves_a_log(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        make("HalfCheetah-v5", 1)
    assert list(tmp_path.iterdir()) == []

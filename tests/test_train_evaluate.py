"""Deterministic evaluation: reproducible, of first episodes only, and a true record."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from andante.sim import make
from andante.sim.tasks import get_task
from andante.train import Policy
from andante.train.evaluate import evaluate, random_return
from andante.train.finite import NonFiniteError

TASK = "cartpole-swingup-blind"


def make_policy() -> Policy:
    torch.manual_seed(2)
    env = make(TASK, num_worlds=1)
    policy = Policy.for_env(env, hidden_size=16, chunk_size=4, execution_horizon=3)
    with torch.no_grad():
        policy.decoder.means.weight.mul_(100.0)
    return policy


def test_evaluation_repeats_itself_and_leaves_torch_s_random_numbers_alone():
    policy = make_policy()
    before = torch.random.get_rng_state()
    first = evaluate(policy, TASK, 8, seed=5).returns
    assert torch.equal(torch.random.get_rng_state(), before)
    assert torch.equal(evaluate(policy, TASK, 8, seed=5).returns, first)
    assert not torch.equal(evaluate(policy, TASK, 8, seed=6).returns, first)


def test_worlds_do_not_depend_on_their_number():
    policy = make_policy()
    few, many = evaluate(policy, TASK, 3, seed=5).returns, evaluate(policy, TASK, 9, seed=5).returns
    torch.testing.assert_close(few, many[:3], atol=1e-2, rtol=1e-2)


def test_returns_are_those_of_the_first_episodes_of_the_recorded_actions():
    policy = make_policy()
    evaluation = evaluate(policy, TASK, 6, seed=5, record=True)
    recording = evaluation.recording
    decisions, horizon, worlds, _ = recording.actions.shape
    assert (horizon, worlds) == (3, 6)
    assert recording.reset.shape == (decisions, 6)
    env = make(TASK, num_worlds=6, seed=5)
    observation, returns = env.reset(), torch.zeros(6)
    running = torch.ones(6, dtype=torch.bool)
    for k in range(decisions):
        for name, value in observation.sources.items():
            assert torch.equal(recording.sources[name][k], value)
        outcome = env.step(recording.actions[k].transpose(0, 1))
        returns += outcome.reward.sum(1) * running
        running &= ~outcome.done
        observation = outcome.observation
    assert not running.any()
    torch.testing.assert_close(returns, evaluation.returns)


def test_a_return_that_is_no_number_is_named(monkeypatch):
    task = get_task(TASK)

    def bind(model):
        return dataclasses.replace(
            task.bind(model), reward=lambda ticks: {"none": ticks.qpos[..., 0] * torch.nan}
        )

    broken = dataclasses.replace(task, bind=bind)
    monkeypatch.setattr("andante.sim.tasks.get_task", lambda name: broken)
    with pytest.raises(NonFiniteError, match="return is not finite"):
        evaluate(make_policy(), TASK, 2, seed=5)


@pytest.mark.parametrize("task", ["pendulum-swingup-blind", "cartpole-swingup-blind"])
def test_random_actions_score_low_and_the_same_again(task):
    found = random_return(task, 16, seed=1)
    assert 0.0 < found < 10.0
    assert random_return(task, 16, seed=1) == found

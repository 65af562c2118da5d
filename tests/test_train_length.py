"""Episodes of any length: what is played there, and how large the memory's state grows."""

from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from torch import Tensor

from andante.cli import main
from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.spec import get_spec
from andante.sim.spec.randomization import Randomization
from andante.train import Policy
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.evaluate import evaluate
from andante.train.learn import learn
from andante.train.length import QUANTILES, at_length, evaluate_length
from andante.train.memory import MemoryCell, StateSpec
from andante.train.ppo import PPO
from andante.train.scheduler import ChunkScheduler

PENDULUM, CARTPOLE = "pendulum-swingup-blind", "cartpole-swingup-blind"


class Counter(MemoryCell):
    """Its state is the number of decisions since the reset."""

    def __init__(self, input_size: int, size: int) -> None:
        super().__init__(input_size, size)
        self.read = torch.nn.Linear(1, size)

    def state_spec(self) -> tuple[StateSpec, ...]:
        return (StateSpec("count", 1, (0.0,)),)

    def step(self, x: Tensor, h: Tensor) -> tuple[Tensor, Tensor]:
        return torch.tanh(self.read(h)), h + 1.0


def counting_policy(task: str, **options) -> Policy:
    torch.manual_seed(0)
    policy = Policy.for_env(get_spec(task), hidden_size=8, **options)
    policy.memory = Counter(8, 8)
    return policy


def test_norms_are_of_all_states_of_the_whole_episode_and_of_its_first_segment():
    policy = counting_policy(PENDULUM, chunk_size=3, execution_horizon=2)
    found = evaluate_length(policy, ticks=2000, segment=20, episodes=2, seed=0)
    assert found.mean_ticks == found.ticks == 2000
    assert found.state_norm == (500, 899, 989, 999)
    assert found.first_state_norm == (5, 8, 9, 9)


def test_worlds_whose_episode_has_ended_do_not_count():
    policy, length = counting_policy(CARTPOLE, chunk_size=4, execution_horizon=3), 2000
    with torch.no_grad():
        policy.decoder.means.weight.mul_(100.0)
    found = evaluate_length(policy, length, segment=9, episodes=6, seed=5)
    spec = dataclasses.replace(get_spec(CARTPOLE), episode_ticks=length)
    scheduler = ChunkScheduler(make(spec, num_worlds=6, seed=5, device="cpu"), policy)
    lives, returns, ended = torch.zeros(6), torch.zeros(6), torch.zeros(6, dtype=torch.bool)
    while not ended.all():
        outcome = scheduler.advance().outcome
        lives += outcome.valid.sum(1) * ~ended
        returns += outcome.reward.sum(1) * ~ended
        ended |= outcome.done
    assert len(set(lives.tolist())) > 1
    assert lives.max() < length
    assert found.mean_ticks == pytest.approx(float(lives.mean()))
    assert found.mean_return == pytest.approx(float(returns.mean()))
    assert found.reward_per_tick == pytest.approx(float(returns.sum() / lives.sum()))
    counts = sorted(count for life in lives.int().tolist() for count in range(-(-life // 3)))
    assert found.state_norm == tuple(counts[round(share * (len(counts) - 1))] for share in QUANTILES)


@pytest.mark.parametrize("task", [PENDULUM, "repeat-previous"])
def test_at_the_tasks_own_length_the_return_is_that_of_an_evaluation(task):
    policy = counting_policy(task, chunk_size=4)
    expected = float(evaluate(policy, task, 4, seed=3).returns.mean())
    found = evaluate_length(policy, get_spec(task).episode_ticks, 20, episodes=4, seed=3)
    assert found.mean_return == pytest.approx(expected)
    assert evaluate_length(policy, 20, 20, episodes=4, seed=3).mean_return != pytest.approx(expected)


def test_a_memory_that_repeats_symbols_is_asked_beyond_its_tasks_episode():
    policy = counting_policy("repeat-previous/2", chunk_size=1)
    assert evaluate_length(policy, 500, 100, episodes=2, seed=0).mean_ticks == 500


def test_decisions_that_are_not_on_time_advance_the_state_once_each():
    policy = counting_policy(PENDULUM, chunk_size=4, execution_horizon=2)
    late = Randomization(inference_delay=1)
    found = evaluate_length(policy, 40, 20, episodes=2, seed=0, randomization=late)
    assert (found.first_state_norm[-1], found.state_norm[-1]) == (10, 20)


def test_a_t_maze_is_made_longer_by_its_corridor():
    assert at_length(get_spec("tmaze/1-100"), 5000) == get_spec("tmaze/5000")


def test_episodes_of_other_packages_have_a_length_of_their_own():
    with pytest.raises(AndanteError, match="gym/Pendulum-v1: the length of its episodes can't be chosen"):
        at_length(get_spec("gym/Pendulum-v1"), 100)


@pytest.fixture(scope="module")
def maze_run(tmp_path_factory):
    """A run that learned corridors of up to 8 ticks, in segments of 16."""
    folder = tmp_path_factory.mktemp("maze") / "run"
    config = TrainConfig(
        task="tmaze/1-8",
        ticks=40_000,
        num_worlds=64,
        policy=PolicyConfig(memory="mingru-hard", chunk_size=1, hidden_size=32),
        ppo=PPOConfig(decisions=16, minibatches=2, gae_lambda=0.5, entropy_bonus=0.0, learning_rate=3e-3),
        evaluations=1,
    )
    learn(PPO.from_config(config), config, folder)
    return folder


def test_a_memory_that_does_not_fade_finds_its_way_at_a_hundred_times_the_segment(maze_run, capsys):
    assert main(["evaluate", str(maze_run), "--episodes", "16", "--lengths", "1", "100", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["return"] == 1.0
    assert report["standard_error"] == 0.0
    assert report["segment_ticks"] == 16
    assert [found["ticks"] for found in report["lengths"]] == [16, 1600]
    assert [found["mean_return"] for found in report["lengths"]] == [1.0, 1.0]


def test_the_table_has_a_row_for_each_length_and_one_for_the_first_segment(maze_run, capsys):
    assert main(["evaluate", str(maze_run), "--episodes", "8", "--lengths", "2", "3"]) == 0
    summary, _, head, *rows = capsys.readouterr().out.splitlines()
    assert summary == "tmaze/1-8: return 1.00 +- 0.00 over 8 episodes"
    assert head.split()[:4] == ["length", "ticks", "lived", "return"]
    assert [row.split()[:4] for row in rows[:2]] == [["2x", "32", "33", "1.00"], ["3x", "48", "49", "1.00"]]
    assert rows[2].startswith("first segment alone")


def test_episodes_are_new_ones_for_each_seed(maze_run, capsys):
    seeds = []
    for options in ([], ["--seed", "1"]):
        assert main(["evaluate", str(maze_run), "--json", *options]) == 0
        seeds.append(json.loads(capsys.readouterr().out)["seed"])
    assert seeds == [10_000_000, 10_000_001]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--episodes", "1"], "episodes must be at least 2, found 1"),
        (["--lengths", "1", "0"], "lengths must be at least 1, found 0"),
        (["--seed", "-1"], "seed must be 0 to 2^62 - 1, found -1"),
    ],
)
def test_impossible_numbers_are_one_line(options, message, tmp_path, capsys):
    assert main(["evaluate", str(tmp_path), *options]) == 1
    assert capsys.readouterr().err == f"andante: {message}\n"

"""Every kind of task trains."""

from __future__ import annotations

import math

import pytest

from andante.sim.spec import TASKS
from andante.train.config import PolicyConfig, PPOConfig, TrainConfig
from andante.train.ppo import PPO

ON_DEMAND = (
    "tmaze",
    "tmaze/10000",
    "repeat-previous/2",
    "gym/Pendulum-v1",
    "popgym/AutoencodeEasy-v0",
    "popgym/MineSweeperEasy-v0",
    "HalfCheetah-v5",
    "Hopper-v5",
    "Walker2d-v5",
    "Ant-v5",
    "InvertedPendulum-v5",
)


@pytest.mark.parametrize("task", [*TASKS, *ON_DEMAND])
def test_a_task_trains_for_ten_iterations(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config = TrainConfig(
        task=task,
        ticks=1,
        num_worlds=8,
        policy=PolicyConfig(hidden_size=16),
        ppo=PPOConfig(decisions=4, epochs=1, minibatches=2),
    )
    trainer = PPO.from_config(config)
    before = [parameter.clone() for parameter in trainer.policy.parameters()]
    for _ in range(10):
        losses = trainer.iterate()
    assert all(map(math.isfinite, losses.values()))
    assert losses["diverged_worlds"] == 0
    changed = [bool((old != new).any()) for old, new in zip(before, trainer.policy.parameters(), strict=True)]
    assert all(changed)

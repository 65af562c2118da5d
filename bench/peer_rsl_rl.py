"""The side of rsl_rl in `ppo_update.py`: CPU seconds of an update of its recurrent PPO, on one thread.

    python bench/peer_rsl_rl.py ROLLOUT {recurrent,feed-forward} EPOCHS MINIBATCHES WIDTH

ROLLOUT is an .npz file with a rollout of T ticks in B worlds: actor and critic, the observations of each
[T, B, n]; reward, done and time_out [T, B]; action_size. Acting on it fills the storage as in training, with
states of the memory and values; only returns and update are measured, normalisers and means of losses
included. The actor is a GRU of WIDTH, then a layer of WIDTH. A recurrent critic, what rsl_rl's recurrent
configurations have, is the same; a feed-forward one has two layers of WIDTH.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from peer import serve
from rsl_rl.algorithms import PPO
from rsl_rl.models import MLPModel, RNNModel
from rsl_rl.storage import RolloutStorage
from tensordict import TensorDict


def make_learner(
    observation: TensorDict, shape: tuple[int, int], action_size: int, options: list[str]
) -> PPO:
    critic_kind, epochs, minibatches, width = options[0], *map(int, options[1:])
    ticks, worlds = shape
    groups = {"actor": ["actor"], "critic": ["critic"]}
    shared: dict[str, Any] = {"activation": "elu", "obs_normalization": True}
    recurrent = {"hidden_dims": [width], "rnn_type": "gru", "rnn_hidden_dim": width}
    gaussian = {"class_name": "GaussianDistribution", "init_std": 1.0}
    actor = RNNModel(
        observation, groups, "actor", action_size, distribution_cfg=gaussian, **recurrent, **shared
    )
    if critic_kind == "recurrent":
        critic = RNNModel(observation, groups, "critic", 1, **recurrent, **shared)
    else:
        critic = MLPModel(observation, groups, "critic", 1, hidden_dims=[width, width], **shared)
    storage = RolloutStorage("rl", worlds, ticks, observation, [action_size])
    learner = PPO(actor, critic, storage, num_learning_epochs=epochs, num_mini_batches=minibatches)
    learner.train_mode()
    return learner


def prepare() -> Callable[[], float]:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    file, *options = sys.argv[1:]
    with np.load(file) as saved:
        rollout = {name: torch.from_numpy(saved[name]) for name in saved.files}
    shape = tuple(rollout["reward"].shape)
    observations = [
        TensorDict({"actor": actor, "critic": critic}, batch_size=shape[1:])
        for actor, critic in zip(rollout["actor"], rollout["critic"], strict=True)
    ]
    learner = make_learner(observations[0], shape, int(rollout["action_size"]), options)

    def measure() -> float:
        with torch.inference_mode():
            for t, observation in enumerate(observations):
                learner.act(observation)
                after = observations[min(t + 1, len(observations) - 1)]
                extras = {"time_outs": rollout["time_out"][t]}
                learner.process_env_step(after, rollout["reward"][t], rollout["done"][t], extras)
        start = time.process_time()
        with torch.inference_mode():
            learner.compute_returns(observations[-1])
        learner.update()
        return time.process_time() - start

    return measure


if __name__ == "__main__":
    serve(prepare)

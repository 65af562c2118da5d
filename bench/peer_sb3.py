"""The side of sb3-contrib in `train_rate.py`: env steps/s of RecurrentPPO in training, at its defaults.

    python bench/peer_sb3.py {dummy,subproc} ENVS THREADS

LSTM of 128 and 4 epochs; otherwise its own settings: 128 steps per environment, batches of 128, a critic with
an LSTM of its own, Gymnasium's HalfCheetah-v5 with a Monitor around it.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import torch
from peer import serve
from sb3_contrib import RecurrentPPO
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import DummyVecEnv, SubprocVecEnv

ITERATIONS = 2
"""In one turn."""


def prepare() -> Callable[[], float]:
    kind, envs, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    env = make_vec_env(
        "HalfCheetah-v5",
        int(envs),
        seed=0,
        vec_env_cls={"dummy": DummyVecEnv, "subproc": SubprocVecEnv}[kind],
    )
    learner = RecurrentPPO(
        "MlpLstmPolicy", env, n_epochs=4, policy_kwargs={"lstm_hidden_size": 128}, seed=0, device="cpu"
    )
    steps = ITERATIONS * learner.n_steps * env.num_envs

    def measure() -> float:
        start = time.perf_counter()
        learner.learn(steps, reset_num_timesteps=False)
        return steps / (time.perf_counter() - start)

    return measure


if __name__ == "__main__":
    serve(prepare)

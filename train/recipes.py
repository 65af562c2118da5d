"""What each task is trained with unless told otherwise. Figures: docs/results.md."""

from __future__ import annotations

import msgspec

from andante.sim.spec import get_spec

from .config import PolicyConfig, PPOConfig, TrainConfig

_SWINGUP = TrainConfig(
    task="pendulum-swingup-blind",
    ticks=2_000_000,
    policy=PolicyConfig(hidden_size=64, chunk_size=5),
    ppo=PPOConfig(gamma=0.99, decisions=32, minibatches=8, entropy_bonus=0.001, critic_size=64),
)

RECIPES: dict[str, TrainConfig] = {
    "pendulum-swingup-blind": _SWINGUP,
    "cartpole-swingup-blind": msgspec.structs.replace(
        _SWINGUP, task="cartpole-swingup-blind", ticks=4_000_000
    ),
}


def get_recipe(task: str) -> TrainConfig:
    """The defaults of a task.

    Raises:
        AndanteError: unknown task; lists the names.
    """
    return RECIPES[get_spec(task).name]

"""What each task is trained with unless told otherwise, and what to expect of it.

`andante train TASK --memory MEMORY --seed SEED --run-dir DIR`, returns in result.json (at most 500):

| task | gru, seeds 0 to 3 | mlp, seeds 0 and 1 |
|---|---|---|
| pendulum-swingup-blind | 377, 376, 366, 380 | 25, 28 |
| cartpole-swingup-blind | 434, 437, 396, 400 | 57, 60 |
"""

from __future__ import annotations

import msgspec

from andante.sim.spec import get_spec

from .config import PolicyConfig, PPOConfig, TrainConfig

VELOCITY = TrainConfig(
    task="quadruped-velocity",
    ticks=3_000_000,
    policy=PolicyConfig(hidden_size=128, initial_std=0.8),
    ppo=PPOConfig(
        decisions=8,
        minibatches=4,
        gamma=0.98,
        gae_lambda=0.95,
        entropy_bonus=0.005,
        max_learning_rate=2e-3,
        critic_size=128,
    ),
)
"""Of every legged robot."""

RECIPES: dict[str, TrainConfig] = {
    recipe.task: recipe
    for recipe in (
        TrainConfig(task="pendulum-swingup-blind", ticks=3_000_000),
        TrainConfig(task="cartpole-swingup-blind", ticks=3_000_000),
        VELOCITY,
        msgspec.structs.replace(VELOCITY, task="quadruped-velocity-rough", ticks=10_000_000),
        msgspec.structs.replace(VELOCITY, task="hexapod-velocity"),
        TrainConfig(task="arm-reach", ticks=6_000_000, policy=PolicyConfig(initial_std=0.5)),
        TrainConfig(task="quadrotor-hover", ticks=3_000_000, policy=PolicyConfig(initial_std=0.5)),
    )
}


def get_recipe(task: str) -> TrainConfig:
    """The defaults of a task, whether or not it was tuned.

    Raises:
        AndanteError: unknown task; lists the names.
    """
    name = get_spec(task).name
    if name.startswith("legged/"):
        return msgspec.structs.replace(VELOCITY, task=name)
    # Environments of other packages are stepped one after the other, in Python.
    worlds = 32 if name.startswith(("gym/", "popgym/")) else 256
    return RECIPES.get(name) or TrainConfig(task=name, ticks=3_000_000, num_worlds=worlds)

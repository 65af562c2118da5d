"""What each task is trained with unless told otherwise; what to expect of it is the task's `expected`."""

from __future__ import annotations

import msgspec

from andante.runtime.contract import Record
from andante.sim.spec import get_spec

from .config import PolicyConfig, PPOConfig, TrainConfig

VELOCITY = TrainConfig(
    task="quadruped-velocity",
    ticks=2_500_000,
    policy=PolicyConfig(hidden_size=128, initial_std=0.8),
    ppo=PPOConfig(
        decisions=8,
        minibatches=4,
        gamma=0.98,
        gae_lambda=0.95,
        entropy_bonus=0.005,
        max_learning_rate=2e-3,
        target_kl=0.02,
        final_std=0.1,
        final_std_ticks=1_500_000,
        critic_size=128,
    ),
)
"""Of every legged robot."""

GYMNASIUM = TrainConfig(
    task="HalfCheetah-v5",
    ticks=4_000_000,
    policy=PolicyConfig(chunk_size=1, initial_std=0.7),
    ppo=PPOConfig(decisions=24, minibatches=4, gamma=0.99, gae_lambda=0.95, critic_size=128),
)
"""Of Gymnasium's tasks, whose ticks are 8 to 50 ms long: a decision at every one."""

TMAZE = TrainConfig(
    task="tmaze",
    ticks=400_000,
    num_worlds=64,
    policy=PolicyConfig(memory="mingru-hard", chunk_size=1),
    # The critic knows the sign and the way that is left: nothing but the turn itself is a surprise.
    ppo=PPOConfig(decisions=128, minibatches=4, gamma=0.99, gae_lambda=0.5, entropy_bonus=0.0),
)
REPEAT_PREVIOUS = TrainConfig(
    task="repeat-previous",
    ticks=200_000,
    num_worlds=64,
    policy=PolicyConfig(chunk_size=1),
    # An answer changes nothing but its own reward.
    ppo=PPOConfig(gamma=0.5, gae_lambda=0.0),
)

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
        TMAZE,
        REPEAT_PREVIOUS,
        GYMNASIUM,
        msgspec.structs.replace(GYMNASIUM, task="InvertedPendulum-v5", ticks=1_000_000),
        *(
            msgspec.structs.replace(GYMNASIUM, task=task, ticks=3_000_000)
            for task in ("Hopper-v5", "Walker2d-v5", "Ant-v5")
        ),
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


def recipe_options(task: str) -> list[str]:
    """A task's recipe, every field of it, as options of `andante train`.

    Raises:
        AndanteError: unknown task; lists the names.
    """
    recipe = get_recipe(task)
    options = []
    for prefix, part in (("", recipe), ("", recipe.policy), ("ppo.", recipe.ppo)):
        for name, value in msgspec.structs.asdict(part).items():
            if not isinstance(value, Record) and name != "task":
                values = value if isinstance(value, tuple) else (value,)
                options.append(" ".join([f"--{prefix}{name.replace('_', '-')}", *map(str, values)]))
    return options


INCIDENTAL = ("seed", "device", "threads", "checkpoint_seconds")
"""Fields of `TrainConfig` that an expected result does not depend on."""


def expected_return(config: TrainConfig) -> tuple[float, float] | None:
    """The range that the task declares for its recipe; None for another configuration, or where none is."""
    recipe = get_recipe(config.task)
    incidental = {name: getattr(config, name) for name in INCIDENTAL}
    is_recipe = config == msgspec.structs.replace(recipe, **incidental)
    return get_spec(config.task).expected if is_recipe else None

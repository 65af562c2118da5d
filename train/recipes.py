"""What each task is trained with unless told otherwise, and what to expect of it.

`andante train TASK --memory MEMORY --seed SEED --run-dir DIR`, returns in result.json (at most 500):

| task | gru, seeds 0 to 3 | mlp, seeds 0 and 1 |
|---|---|---|
| pendulum-swingup-blind | 377, 376, 366, 380 | 25, 28 |
| cartpole-swingup-blind | 434, 437, 396, 400 | 57, 60 |
"""

from __future__ import annotations

from andante.sim.spec import get_spec

from .config import TrainConfig

RECIPES: dict[str, TrainConfig] = {
    recipe.task: recipe
    for recipe in (
        TrainConfig(task="pendulum-swingup-blind", ticks=3_000_000),
        TrainConfig(task="cartpole-swingup-blind", ticks=3_000_000),
    )
}


def get_recipe(task: str) -> TrainConfig:
    """The defaults of a task.

    Raises:
        AndanteError: unknown task; lists the names.
    """
    return RECIPES[get_spec(task).name]

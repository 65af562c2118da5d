"""What each task is trained with unless told otherwise, and what that has given."""

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

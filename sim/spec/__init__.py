"""Tasks as declared, without torch: their sources, actions and rates, and the robots' models."""

from __future__ import annotations

from andante.runtime.errors import AndanteError

from .cartpole import CARTPOLE
from .pendulum import PENDULUM
from .task import Feature, JointStart, TaskSpec

TASKS: dict[str, TaskSpec] = {spec.name: spec for spec in (PENDULUM, CARTPOLE)}


def get_spec(name: str) -> TaskSpec:
    """The task of that name.

    Raises:
        AndanteError: unknown name; lists the names.
    """
    if name not in TASKS:
        raise AndanteError(f"no task {name!r}; tasks: {', '.join(TASKS)}")
    return TASKS[name]


__all__ = ["TASKS", "Feature", "JointStart", "TaskSpec", "get_spec"]

"""The torch halves of the tasks, one file each."""

from __future__ import annotations

from ..spec import get_spec
from ..task import Task
from . import cartpole, pendulum

TASKS: dict[str, Task] = {module.TASK.spec.name: module.TASK for module in (pendulum, cartpole)}


def get_task(name: str) -> Task:
    """The task of that name.

    Raises:
        AndanteError: unknown name; lists the names.
    """
    return TASKS[get_spec(name).name]

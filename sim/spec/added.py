"""Tasks that other packages bring."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

from andante.runtime.errors import AndanteError

from .task import TaskSpec

GROUP = "andante.tasks"
"""Entry-point group under which packages register a `Task` by its name."""


def added_names() -> tuple[str, ...]:
    """What other packages have registered; nothing is loaded."""
    return tuple(sorted(entry.name for entry in entry_points(group=GROUP)))


def added_task(name: str) -> Any:
    """The `andante.sim.task.Task` that another package registered under that name; None without one.

    Loading it brings torch, which declarations of this package do without.

    Raises:
        AndanteError: what is registered can't be loaded, or is no task of that name.
    """
    entry = next((entry for entry in entry_points(group=GROUP) if entry.name == name), None)
    if entry is None:
        return None
    try:
        task = entry.load()
    except Exception as error:  # whatever a module of somebody else raises
        raise AndanteError(f"task {name!r}: can't load {entry.value}: {error!r}") from error
    spec = getattr(task, "spec", None)
    if not isinstance(spec, TaskSpec):
        raise AndanteError(
            f"task {name!r}: expected an andante.sim.task.Task at {entry.value}, found {task!r}"
        )
    if spec.name != name:
        raise AndanteError(f"task {name!r}: the task at {entry.value} is named {spec.name!r}")
    return task

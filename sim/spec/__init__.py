"""Tasks as declared, without torch: their sources, actions and rates, and the robots' models."""

from __future__ import annotations

from collections.abc import Callable

from andante.runtime.errors import AndanteError

from .added import added_names, added_task
from .arm_push import ARM_PUSH
from .arm_reach import ARM_REACH
from .cartpole import CARTPOLE
from .foreign import foreign_spec
from .gymnasium import DECLARATIONS, gymnasium_spec
from .hexapod import FLAT as HEXAPOD_FLAT
from .pendulum import PENDULUM
from .quadrotor import QUADROTOR
from .quadruped import FLAT as QUADRUPED_FLAT, ROUGH as QUADRUPED_ROUGH
from .repeat_previous import repeat_previous_spec
from .task import Feature, JointStart, TaskSpec
from .tmaze import tmaze_spec

TASKS: dict[str, TaskSpec] = {
    spec.name: spec
    for spec in (
        PENDULUM,
        CARTPOLE,
        ARM_REACH,
        ARM_PUSH,
        QUADROTOR,
        QUADRUPED_FLAT,
        QUADRUPED_ROUGH,
        HEXAPOD_FLAT,
    )
}


def legged_spec(name: str) -> TaskSpec:
    """The velocity task of a robot file, see `legged.file.load_legged`."""
    # Not before: it compiles the robot's model, and declarations are listed without MuJoCo.
    from .legged.file import load_legged

    return load_legged(name).spec


FAMILIES: dict[str, Callable[[str], TaskSpec]] = {
    "tmaze": tmaze_spec,
    "tmaze/LENGTH": tmaze_spec,
    "repeat-previous": repeat_previous_spec,
    "repeat-previous/K": repeat_previous_spec,
    "legged/FILE.yaml": legged_spec,
    "gym/ID": foreign_spec,
    "popgym/ID": foreign_spec,
    **dict.fromkeys(DECLARATIONS, gymnasium_spec),
}
"""Tasks declared on demand, most with something to fill in: how to write them -> name -> declaration."""


def has_physics(name: str) -> bool:
    """Whether MuJoCo moves the worlds of a task, in which there is something to see then."""
    return name.partition("/")[0] not in ("tmaze", "repeat-previous", "gym", "popgym")


def get_spec(name: str) -> TaskSpec:
    """The task of that name, of this package or of another.

    Raises:
        AndanteError: unknown name; lists the names. Or what comes after its slash is not right.
    """
    if name in TASKS:
        return TASKS[name]
    if (added := added_task(name)) is not None:
        declared: TaskSpec = added.spec
        return declared
    family, slash, _ = name.partition("/")
    for form, declare in FAMILIES.items():
        if form == name or (slash and form.startswith(family + slash)):
            return declare(name)
    if name.endswith((".yaml", ".yml")):
        raise AndanteError(f"no task {name!r}; did you mean 'legged/{name}'?")
    raise AndanteError(f"no task {name!r}; tasks: {', '.join([*TASKS, *FAMILIES, *added_names()])}")


__all__ = ["FAMILIES", "TASKS", "Feature", "JointStart", "TaskSpec", "get_spec", "has_physics"]

"""The torch halves of the tasks, one file each."""

from __future__ import annotations

from collections.abc import Callable

from andante.runtime.errors import AndanteError

from ..probe import Probe
from ..spec import get_spec
from ..spec.added import added_task
from ..spec.legged.file import load_legged
from ..task import Task
from . import arm_push, arm_reach, cartpole, hexapod, pendulum, quadrotor, quadruped
from .gymnasium import GYMNASIUM
from .legged import velocity_task
from .repeat_previous import repeat_previous
from .tmaze import tmaze

TASKS: dict[str, Task] = {
    module.TASK.spec.name: module.TASK
    for module in (pendulum, cartpole, arm_reach, arm_push, quadrotor, hexapod)
} | {task.spec.name: task for task in quadruped.TASKS}
PROBES: dict[str, Callable[[str], Probe]] = {"tmaze": tmaze, "repeat-previous": repeat_previous}
"""What comes before the slash, if there is one -> the probe of a full name."""


def get_task(name: str) -> Task:
    """The task of that name, of this package or of another.

    Raises:
        AndanteError: unknown name; lists the names. Or a robot file that is not right, or a task that is
            declared alone.
    """
    if name.startswith("legged/"):
        robot = load_legged(name)
        return velocity_task(robot.spec, robot.robot, robot.terrain)
    if name in GYMNASIUM:
        return GYMNASIUM[name]()
    if name in TASKS:
        return TASKS[name]
    if (added := added_task(name)) is not None:
        task: Task = added
        return task
    get_spec(name)
    raise AndanteError(f"task {name!r} is declared, but nothing scores it: no Task in andante.sim.tasks")

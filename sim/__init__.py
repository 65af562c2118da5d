"""MuJoCo: tasks, batched environments and the simulated robot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .spec.randomization import Randomization
    from .spec.task import TaskSpec
    from .worlds import Worlds


def make(
    task: str | TaskSpec,
    num_worlds: int = 256,
    seed: int = 0,
    threads: int | None = None,
    device: str = "auto",
    randomization: Randomization | None = None,
) -> Worlds:
    """Parallel worlds of one task.

    Args:
        task: Its name, or its declaration with changes, such as other sources of actions.
        num_worlds: B.
        seed: Of every random draw.
        threads: Native simulation threads; all usable cores by default. Results do not depend on it.
        device: `cuda` or `cuda:N` is MuJoCo Warp with all tensors there, `cpu` MuJoCo's C engine; `auto`
            takes CUDA where there is one and the task has physics. `warp-cpu`: MuJoCo Warp on the CPU, slow.
        randomization: What differs from world to world and from episode to episode; nothing when None.

    Raises:
        AndanteError: unknown task, no world, no thread, a device that there is not, or something
            to be randomised that the task does not have.
    """
    # `andante.sim.spec` and `andante.sim.robot` live in this package and must not pull in torch.
    from dataclasses import replace

    from andante.runtime.errors import AndanteError

    from .env import Env
    from .foreign import ForeignEnv
    from .probe import ProbeEnv
    from .spec import get_spec
    from .tasks import PROBES, get_task

    for key, value in (("num_worlds", num_worlds), ("threads", threads)):
        if value is not None and value < 1:
            raise AndanteError(f"{key} must be at least 1, found {value}")
    name = task if isinstance(task, str) else task.name
    family = name.partition("/")[0]
    if family not in ("gym", "popgym", *PROBES):
        functions = get_task(name)
        if not isinstance(task, str):
            functions = replace(functions, spec=task)
        return Env(
            functions, num_worlds, seed=seed, threads=threads, randomization=randomization, device=device
        )
    if randomization is not None and not randomization.nominal:
        raise AndanteError(f"task {name!r} has no robot: nothing of it can be randomised or delayed")
    if device not in ("auto", "cpu"):
        raise AndanteError(f"task {name!r} has no physics of ours: it runs on 'cpu', not on {device!r}")
    if not isinstance(task, str) and task.sources != get_spec(name).sources:
        raise AndanteError(
            f"task {name!r} has no robot: it cannot tell a policy what it did or is about to do"
        )
    if family in PROBES:
        probe = PROBES[family](name)
        return ProbeEnv(probe if isinstance(task, str) else replace(probe, spec=task), num_worlds, seed)
    return ForeignEnv(name, num_worlds, seed)


__all__ = ["make"]

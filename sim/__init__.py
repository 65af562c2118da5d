"""MuJoCo: tasks, batched environments and the simulated robot."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .env import Env


def make(
    name: str, num_worlds: int = 256, seed: int = 0, threads: int | None = None, device: str = "auto"
) -> Env:
    """Parallel worlds of one task.

    Args:
        name: Task.
        num_worlds: B.
        seed: Of every random draw.
        threads: Native simulation threads; all usable cores by default. Results do not depend on it.
        device: Where tensors live; the C engine knows `cpu`, which `auto` picks.

    Raises:
        AndanteError: unknown task, no world, no thread, or a device that the engine does not run on.
    """
    # `andante.sim.spec` and `andante.sim.robot` live in this package and must not pull in torch.
    from andante.runtime.errors import AndanteError

    from .env import Env
    from .tasks import get_task

    if device not in ("auto", "cpu"):
        raise AndanteError(f"device {device!r}: the mujoco backend runs on 'cpu'")
    for key, value in (("num_worlds", num_worlds), ("threads", threads)):
        if value is not None and value < 1:
            raise AndanteError(f"{key} must be at least 1, found {value}")
    return Env(get_task(name), num_worlds, seed=seed, threads=threads)


__all__ = ["make"]

"""Repeating what a run stopped on."""

from __future__ import annotations

from pathlib import Path

from andante.runtime.errors import AndanteError

from .checkpoint import Checkpoint
from .finite import NonFiniteError
from .learn import evaluate_for_selection
from .ppo import PPO


def replay_dump(path: str | Path, task: str | None = None) -> str:
    """Run the iteration that a dump was taken before, then an evaluation; returns what was not finite.

    Raises:
        AndanteError: not a dump, one of another task than `task`, or the iteration now ends otherwise.
    """
    dump = Checkpoint.read(Path(path))
    if dump.reason is None:
        raise AndanteError(f"{path}: a checkpoint, not the dump of a run that stopped")
    if task not in (None, dump.config.task):
        raise AndanteError(f"{path}: dump of a run on {dump.config.task!r}, expected {task!r}")
    trainer = PPO.from_config(dump.config)
    trainer.load_state_dict(dump.trainer)
    try:
        trainer.iterate()
        evaluate_for_selection(trainer.policy, dump.config)
    except NonFiniteError as error:
        if error.name == dump.reason:
            return error.name
        raise AndanteError(f"{path}: expected {dump.reason} not to be finite, found {error.name}") from None
    raise AndanteError(f"{path}: expected {dump.reason} not to be finite, but the iteration passed")

"""Beginning a run with the policy of another one."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError

from .checkpoint import Checkpoint, load_run
from .files import CHECKPOINT

if TYPE_CHECKING:
    from .ppo import PPO

NETWORK = ("memory", "memory_layers", "decoder", "hidden_size", "chunk_size")
"""Fields of `PolicyConfig` that a policy's weights are made for."""
TASK = ("control_period_ns", "sources", "features", "actions", "action_center", "action_scale")
"""Fields of `TaskSpec` that they are made for."""


def warm_start(trainer: PPO, run_dir: Path) -> str:
    """Give a new trainer a run's best policy, normaliser included, and its critic where the sizes agree.

    The optimiser stays new. The run may be of another task, if the policy reads and does the same there.

    Returns:
        What was taken, for the provenance.

    Raises:
        AndanteError: no run is there, or its policy does not fit: names the field, the expected, the found.
    """
    run = load_run(run_dir)
    for owner, names, new, old in (
        ("policy", NETWORK, trainer.policy.config, run.policy.config),
        ("task", TASK, trainer.policy.spec, run.policy.spec),
    ):
        for name in names:
            _require_equal(run_dir, f"{owner}.{name}", getattr(new, name), getattr(old, name))
    trainer.policy.load_state_dict(run.policy.state_dict())
    critic = Checkpoint.read(run_dir / CHECKPOINT).trainer["critic"]
    fits = _shapes(critic) == _shapes(trainer.critic.state_dict())
    if fits:
        trainer.critic.load_state_dict(critic)
    return f"{run_dir}: {run.spec.name}, {run.ticks} ticks, {'with its' if fits else 'without its'} critic"


def _require_equal(run_dir: Path, name: str, expected: Any, found: Any) -> None:
    """Compare two values, and name the innermost field that differs."""
    if expected == found:
        return
    fields = _fields(expected), _fields(found)
    if fields[0].keys() == fields[1].keys() and fields[0]:
        for key, value in fields[0].items():
            _require_equal(run_dir, f"{name}.{key}", value, fields[1][key])
    if fields[0] and isinstance(expected, tuple):
        expected, found = list(fields[0]), list(fields[1])
    raise AndanteError(f"{run_dir}: its policy does not fit: {name}: expected {expected!r}, found {found!r}")


def _fields(value: Any) -> dict[str, Any]:
    """The parts of a declaration, or of a tuple of declarations by their names; {} of anything else."""
    if isinstance(value, Record):
        return {name: getattr(value, name) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, tuple) and value and _fields(value[0]):
        return {getattr(part, "name", None) or part.source: part for part in value}
    return {}


def _shapes(state: dict[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(value.shape) for name, value in state.items()}

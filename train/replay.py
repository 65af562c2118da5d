"""Repeating what went wrong in a run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.env import Observation
from andante.sim.spec.task import TaskSpec

from .checkpoint import Checkpoint, restore
from .divergence import Divergence
from .episode import Episode, Player
from .finite import NonFiniteError
from .ppo import PPO
from .selection import challenge


def replay_dump(path: str | Path, task: str | None = None) -> str:
    """Run the iteration that a dump was taken before, then an evaluation; returns what was not finite.

    Raises:
        AndanteError: not a dump, one of another task than `task`, or the iteration now ends otherwise.
    """
    dump = Checkpoint.read(Path(path))
    if dump.reason is None:
        raise AndanteError(f"{path}: a checkpoint, not the dump of a run that stopped")
    _require_task(path, dump.config.task, task)
    trainer = PPO.from_config(dump.config)
    restore(trainer, dump.trainer, Path(path))
    try:
        trainer.iterate()
        challenge(trainer.policy, dump.config, dump.best)
    except NonFiniteError as error:
        if error.name == dump.reason:
            return error.name
        raise AndanteError(f"{path}: expected {dump.reason} not to be finite, found {error.name}") from None
    raise AndanteError(f"{path}: expected {dump.reason} not to be finite, but the iteration passed")


def replay_divergence(path: str | Path, divergence: Divergence, task: str | None = None) -> Episode:
    """What the dump at `path` holds of the episode in which physics diverged, to its last tick.

    Raises:
        AndanteError: it is one of another task than `task`, or physics does not diverge again.
    """
    config = divergence.config
    _require_task(path, config.task, task)
    env = make(config.spec, 1, threads=1, device=divergence.device, randomization=config.randomization)
    env.load_state_dict(divergence.before)
    first = Observation(divergence.sources, divergence.critic)
    player = Player(_Recorded(config.spec, divergence.actions), env, first)
    ticks = [player.tick()]
    while not ticks[-1].done:
        ticks.append(player.tick())
    if not ticks[-1].diverged:
        raise AndanteError(f"{path}: expected physics to diverge again, but the episode ended otherwise")
    return Episode.of(env.spec, ticks)


class _Recorded:
    """Does what was done, as an `agents.Agent`."""

    def __init__(self, spec: TaskSpec, actions: Tensor) -> None:
        self.spec = spec
        self._left: Iterator[Tensor] = iter(actions)

    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        for actions in self._left:
            return actions[None]
        raise AndanteError("the actions on record do not make physics diverge again")


def _require_task(path: str | Path, found: str, expected: str | None) -> None:
    if expected not in (None, found):
        raise AndanteError(f"{path}: dump of a run on {found!r}, expected {expected!r}")

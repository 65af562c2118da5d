"""What every kind of parallel environment has in common, whatever moves its worlds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import torch
from torch import Tensor

from andante.runtime.errors import AndanteError

from .spec.randomization import Randomization
from .spec.task import TaskSpec

if TYPE_CHECKING:
    from .env import Observation, Outcome
    from .randomize.timing import Timing


class Worlds(Protocol):
    """B worlds of one task, stepped by any number of ticks per call; `env.Env` says what the parts mean."""

    spec: TaskSpec
    num_worlds: int
    critic_size: int
    diverged: int
    device: torch.device
    """Where all tensors live."""
    device_name: str
    """What `sim.make` calls the device and the engine on it."""

    @property
    def randomization(self) -> Randomization:
        """What differs between worlds and between episodes."""
        return Randomization()

    @property
    def timing(self) -> Timing | None:
        """How decisions are timed in each world; None where nothing holds them up."""
        return None

    def curriculum_statistics(self) -> dict[str, float]:
        """Figures of the curriculum for a log, by name; none without a curriculum."""
        return {}

    def reset(self) -> Observation:
        """Start a new episode in every world."""
        ...

    def step(self, actions: Tensor) -> Outcome:
        """Apply `actions` [B, n, A], one per tick."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """What a continuation needs, `seed`, `episode` [B] and `tick` [B] among it."""
        ...

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """Continue where `state_dict` was taken."""
        ...


class Ends(NamedTuple):
    """Which ticks of a call ended episodes, and which still belonged to one; see `env.Outcome`."""

    terminated: Tensor
    """Bool [B, n]."""
    truncated: Tensor
    """Bool [B, n]."""
    valid: Tensor
    """Bool [B, n]."""
    done: Tensor
    """Bool [B]."""

    @classmethod
    def of(cls, terminated: Tensor, truncated: Tensor) -> Ends:
        """From conditions bool [B, n] that may hold together, and again after the first end."""
        ended = terminated | truncated
        # The end itself still belongs to the episode.
        valid = ended.cumsum(1) - ended.long() == 0
        terminated = terminated & valid
        return cls(terminated, truncated & valid & ~terminated, valid, ended.any(1))


def check_actions(actions: Tensor, episode: Tensor, action_size: int) -> None:
    """Raise `AndanteError` unless `actions` are finite and of shape [B, n, A], n at least 1, and the worlds'
    `episode` [B] has begun.
    """
    num_worlds = len(episode)
    shape = (len(actions), actions.shape[-1]) if actions.dim() == 3 else ()
    if shape != (num_worlds, action_size) or actions.shape[1] == 0:
        raise AndanteError(f"actions: expected [{num_worlds}, n, {action_size}], found {list(actions.shape)}")
    # Two operations: what is not finite leaves NaN, which is not zero.
    if (actions - actions).any():
        world, tick, column = (~actions.isfinite()).nonzero()[0].tolist()
        raise AndanteError(
            f"actions: expected finite values, found {actions[world, tick, column].item()} "
            f"(world {world}, tick {tick}, column {column})"
        )
    if episode[0] < 0:
        raise AndanteError("step before reset: no episode has begun")


def check_saved(saved: dict[str, Any], num_worlds: int, keys: set[str]) -> None:
    """Raise `AndanteError` unless `saved` has these keys and is of as many worlds."""
    if set(saved) != keys:
        raise AndanteError(f"environment state: expected {sorted(keys)}, found {sorted(saved)}")
    if len(saved["world"]) != num_worlds:
        raise AndanteError(f"environment state: expected {num_worlds} worlds, found {len(saved['world'])}")


def world_ids(num_worlds: int, ids: Tensor | None) -> Tensor:
    """The int64 [B] that key the worlds' random draws: `ids`, or 0 .. B-1."""
    return torch.arange(num_worlds) if ids is None else ids.clone()

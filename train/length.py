"""Length generalisation: how a policy does, and how large its state grows, in episodes of any length.

A policy learns from segments of `decisions` x execution horizon ticks. What its memory does in longer
episodes training never saw: states that it did not explore (arXiv 2507.02782), often ever larger ones.
"""

from __future__ import annotations

import copy
import dataclasses

import torch
from torch import Tensor

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.spec import get_spec
from andante.sim.spec.randomization import Randomization
from andante.sim.spec.task import TaskSpec

from .finite import require_finite
from .policy import Policy
from .timed import make_scheduler

QUANTILES = (0.5, 0.9, 0.99, 1.0)


class LengthResult(Record, frozen=True):
    """Means over worlds of one episode each, of one length; norms over all times at which a world lived."""

    ticks: int
    """After which time ends an episode."""
    mean_ticks: float
    """That an episode lasted."""
    mean_return: float
    """Undiscounted."""
    reward_per_tick: float
    """Over all that were lived through."""
    state_norm: tuple[float, ...]
    """`QUANTILES` of the Euclidean norm of the packed state."""
    first_state_norm: tuple[float, ...]
    """The same within the first segment."""


def at_length(spec: TaskSpec, ticks: int) -> TaskSpec:
    """The task with episodes that time ends after so many ticks; a T-maze with a corridor of that length.

    Raises:
        AndanteError: an environment of another package, which has a time limit of its own.
    """
    family = spec.name.partition("/")[0]
    if family in ("gym", "popgym"):
        raise AndanteError(f"task {spec.name}: the length of its episodes can't be chosen")
    if family == "tmaze":
        return get_spec(f"tmaze/{ticks}")
    return dataclasses.replace(spec, episode_ticks=ticks)


def evaluate_length(
    policy: Policy,
    ticks: int,
    segment: int,
    episodes: int,
    seed: int,
    randomization: Randomization | None = None,
) -> LengthResult:
    """Play the policy's means for one episode of `ticks` in each of `episodes` worlds, on the CPU.

    Args:
        policy: Of the task that is made longer, or shorter.
        ticks: See `at_length`.
        segment: Ticks that training learned from at a time.
        episodes: Number of worlds.
        seed: The environment's.
        randomization: What differs between worlds and between episodes.

    Raises:
        NonFiniteError: an observation, an action or a return is not finite.
        AndanteError: see `at_length`.
    """
    policy = copy.deepcopy(policy).to("cpu")
    spec = at_length(policy.spec, ticks)
    env = make(spec, num_worlds=episodes, seed=seed, device="cpu", randomization=randomization)
    scheduler = make_scheduler(env, policy)
    returns, lived, elapsed = torch.zeros(episodes), torch.zeros(episodes), 0
    running = torch.ones(episodes, dtype=torch.bool)
    norms: list[Tensor] = []
    first = 0
    while running.any():
        norms.append(scheduler.h[running].norm(dim=-1))
        first += elapsed < segment
        outcome = scheduler.advance().outcome
        returns += outcome.reward.sum(1) * running
        lived += outcome.valid.sum(1) * running
        running &= ~outcome.done
        elapsed += outcome.reward.shape[1]
    require_finite("return", returns)
    return LengthResult(
        ticks=ticks,
        mean_ticks=float(lived.mean()),
        mean_return=float(returns.mean()),
        reward_per_tick=float(returns.sum() / lived.sum()),
        state_norm=_quantiles(norms),
        first_state_norm=_quantiles(norms[:first]),
    )


def _quantiles(norms: list[Tensor]) -> tuple[float, ...]:
    # Not torch's, which takes no more than 2^24 values.
    ordered = torch.cat(norms).sort().values
    return tuple(float(ordered[round(share * (len(ordered) - 1))]) for share in QUANTILES)

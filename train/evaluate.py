"""How good a policy is: deterministic, in an environment of its own."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from andante.runtime.errors import AndanteError
from andante.sim import make
from andante.sim.env import Outcome
from andante.sim.spec import TaskSpec, get_spec
from andante.sim.spec.randomization import Randomization

from .finite import require_finite
from .pipeline import ActionDecoder
from .policy import Policy
from .scheduler import Decision
from .timed import make_scheduler

RANDOM_TICKS = 25
"""Ticks per call of the environment under random actions; does not change the distribution."""


@dataclass(frozen=True)
class Recording:
    """What N worlds went through in K decisions of s ticks; worlds that end begin another episode."""

    sources: dict[str, Tensor]
    """What was decided on {name: [K, N, n]}."""
    reset: Tensor
    """Bool [K, N]: decided from the initial state."""
    actions: Tensor
    """Executed actions [K, s, N, A], SI units."""


@dataclass(frozen=True)
class Evaluation:
    """One episode in each of N worlds."""

    returns: Tensor
    """Undiscounted sum of rewards [N]."""
    recording: Recording | None = None


def evaluate(
    policy: Policy,
    task: str | TaskSpec,
    episodes: int,
    seed: int,
    record: bool = False,
    randomization: Randomization | None = None,
) -> Evaluation:
    """Play the policy's means for one episode in each of `episodes` worlds; `seed` is the environment's.

    `task` may be another one than the policy's, with the same sources and actions.
    On the CPU, by MuJoCo's C engine, wherever the policy is: figures of all runs are comparable.

    Raises:
        NonFiniteError: an observation, an action or a return is not finite.
        AndanteError: a recording of decisions that are not on time.
    """
    policy = copy.deepcopy(policy).to("cpu")
    declared = get_spec(task) if isinstance(task, str) else task
    spec = replace(declared, sources=policy.spec.sources)
    env = make(spec, num_worlds=episodes, seed=seed, device="cpu", randomization=randomization)
    scheduler = make_scheduler(env, policy)
    if record and env.timing is not None:
        raise AndanteError(f"{', '.join(env.timing.fields)}: only decisions on time can be recorded")
    decisions: list[Decision] = []

    def advance() -> Outcome:
        step = scheduler.advance()
        if record and isinstance(step, Decision):
            decisions.append(step)
        return step.outcome

    returns = _first_returns(advance, episodes)
    require_finite("return", returns)
    return Evaluation(returns, _join(decisions, policy) if record else None)


def random_return(task: str, episodes: int, seed: int, randomization: Randomization | None = None) -> float:
    """Mean return of actions drawn uniformly from their range, a new one at every tick."""
    env = make(task, num_worlds=episodes, seed=seed, device="cpu", randomization=randomization)
    decode = ActionDecoder(env.spec)
    generator = torch.Generator().manual_seed(seed)
    env.reset()

    def advance() -> Outcome:
        return env.step(decode.random((episodes, RANDOM_TICKS), generator))

    return float(_first_returns(advance, episodes).mean())


def _first_returns(advance: Callable[[], Outcome], episodes: int) -> Tensor:
    returns = torch.zeros(episodes)
    running = torch.ones(episodes, dtype=torch.bool)
    while running.any():
        outcome = advance()
        returns += outcome.reward.sum(1) * running
        running &= ~outcome.done
    return returns


def _join(decisions: list[Decision], policy: Policy) -> Recording:
    return Recording(
        sources={
            name: torch.stack([decision.sources[name] for decision in decisions])
            for name in policy.features.sources
        },
        reset=torch.stack([decision.reset for decision in decisions]),
        actions=torch.stack([decision.actions.transpose(0, 1) for decision in decisions]),
    )

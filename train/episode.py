"""An agent in one world, recorded tick by tick."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from andante.sim import make
from andante.sim.env import Env, Observation, Outcome
from andante.sim.spec.randomization import Randomization
from andante.sim.spec.task import TaskSpec
from andante.sim.worlds import Worlds

from .agents import Agent, Trained
from .policy import Policy
from .timed import TimedScheduler


@dataclass(frozen=True)
class Tick:
    """One tick; `state` and `sources` are as they were before it."""

    sources: dict[str, np.ndarray]
    """{name: [*shape]}, SI units."""
    state: np.ndarray
    """MuJoCo's full physics state [n], float64; n = 0 in a world without physics."""
    action: np.ndarray
    """[A], SI units."""
    decided: bool
    """A decision was made."""
    reward: float
    done: bool
    """The episode ended with it."""
    diverged: bool
    """It ended because physics left all bounds."""


@dataclass(frozen=True)
class Episode:
    """T ticks; `state` and `sources` are as they were before each tick."""

    spec: TaskSpec
    sources: dict[str, np.ndarray]
    """{name: [T, *shape]}, SI units."""
    actions: np.ndarray
    """[T, A], SI units."""
    rewards: np.ndarray
    """[T]."""
    decided: np.ndarray
    """Bool [T]: a decision was made at this tick."""
    states: np.ndarray
    """MuJoCo's full physics state [T, n], float64; n = 0 in a world without physics."""

    @classmethod
    def of(cls, spec: TaskSpec, ticks: Sequence[Tick]) -> Episode:
        """From its ticks, one at least."""
        return cls(
            spec,
            {name: np.stack([tick.sources[name] for tick in ticks]) for name in ticks[0].sources},
            np.stack([tick.action for tick in ticks]),
            np.array([tick.reward for tick in ticks]),
            np.array([tick.decided for tick in ticks]),
            np.stack([tick.state for tick in ticks]),
        )


class Player:
    """Lets an agent act in the one world of an environment, through one episode after the other.

    All its decisions come through at once.
    """

    def __init__(self, agent: Agent, env: Worlds, observation: Observation | None = None):
        """Begin an episode, or go on from `observation`, which the environment has just given."""
        self.env = env
        self._agent = agent
        self._plan = torch.empty(1, 0, 0)
        self._next = 0
        self._first = True
        self._observation = env.reset() if observation is None else observation

    def restart(self) -> None:
        """Begin the next episode at once."""
        self._observation = self.env.reset()
        self._forget()

    def tick(self) -> Tick:
        """Play one; after the last one of an episode the next begins."""
        decided = self._next == self._plan.shape[1]
        if decided:
            self._plan = self._agent.decide(self._observation.sources, self._first)
            self._next, self._first = 0, False
        sources, state = self._observation.sources, _state(self.env)
        action = self._plan[:, self._next : self._next + 1]
        outcome = self.env.step(action)
        self._observation = outcome.observation
        self._next += 1
        if outcome.done:
            self._forget()
        return _tick(sources, state, action, decided, outcome)

    def _forget(self) -> None:
        self._plan, self._next, self._first = torch.empty(1, 0, 0), 0, True


class TimedPlayer:
    """Lets a policy act, as `Player`, where its decisions are late, at another rate, or lost."""

    def __init__(self, policy: Policy, env: Env) -> None:
        """Begin an episode.

        Raises:
            AndanteError: horizons that do not go with the policy's chunks.
        """
        self.env = env
        self._scheduler = TimedScheduler(env, policy)

    def restart(self) -> None:
        """Begin the next episode at once."""
        self._scheduler.restart()

    def tick(self) -> Tick:
        """Play one; after the last one of an episode the next begins."""
        state = _state(self.env)
        step = self._scheduler.advance()
        # Also one beside the grid, which memory does not keep.
        begun = step.plan.planned[0, 0] & (step.plan.index[0, 0] == 0)
        return _tick(step.sources, state, step.action, bool(step.decided[0] | begun), step.outcome)


def make_player(agent: Agent, env: Worlds) -> Player | TimedPlayer:
    """For an environment of one world; only of a run's policy are decisions anything but on time."""
    if env.timing is None or not isinstance(agent, Trained):
        return Player(agent, env)
    assert isinstance(env, Env)
    return TimedPlayer(agent.policy, env)


def _state(env: Worlds) -> np.ndarray:
    return env.state_dict()["state"][0].numpy() if isinstance(env, Env) else np.empty(0)


def _tick(
    sources: dict[str, Tensor], state: np.ndarray, action: Tensor, decided: bool, outcome: Outcome
) -> Tick:
    return Tick(
        {name: value[0].numpy() for name, value in sources.items()},
        state,
        action[0, 0].numpy(),
        decided,
        outcome.reward.item(),
        bool(outcome.done),
        outcome.diverged is not None and bool(outcome.diverged.any()),
    )


def play_episode(
    agent: Agent,
    seed: int,
    ticks: int | None = None,
    randomization: Randomization | None = None,
) -> Episode:
    """Play the first episode of world 0 of `seed`, or its first `ticks`."""
    env = make(agent.spec, num_worlds=1, seed=seed, threads=1, device="cpu", randomization=randomization)
    player = make_player(agent, env)
    played = [player.tick()]
    while not played[-1].done and len(played) != ticks:
        played.append(player.tick())
    return Episode.of(player.env.spec, played)

"""What can act on a task in one world: nothing, noise, a demonstrator, a run, or a policy file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import torch
from torch import Generator, Tensor

from andante.runtime.errors import AndanteError
from andante.runtime.policy import PolicySession, load_policy
from andante.sim.demonstrator import Demonstrator
from andante.sim.spec.randomization import Randomization
from andante.sim.spec.task import TaskSpec

from .checkpoint import load_run
from .pipeline import ActionDecoder
from .policy import Policy

DEMONSTRATORS: dict[str, Callable[[], Demonstrator]] = {"arm-push": Demonstrator}


class Agent(Protocol):
    """Decides what to do until the next decision."""

    spec: TaskSpec
    """The task, with the sources that it reads."""

    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        """Sources {name: [1, *shape]} -> the s actions to execute [1, s, A], SI units.

        With the `first` decision of an episode, what is remembered of the one before is forgotten.
        """
        ...


class Zero:
    """The task's `action_center` at every tick."""

    def __init__(self, spec: TaskSpec) -> None:
        self.spec = spec
        self._action = torch.tensor(spec.action_middle).view(1, 1, -1)

    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        """See `Agent`."""
        return self._action


class Random:
    """Uniform over the action range, anew at every tick."""

    def __init__(self, spec: TaskSpec, seed: int) -> None:
        self.spec = spec
        self._decode = ActionDecoder(spec)
        self._generator = Generator().manual_seed(seed)

    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        """See `Agent`."""
        return self._decode.random((1, 1), self._generator)


class Demonstrated:
    """A scripted demonstrator, anew at every tick."""

    def __init__(self, spec: TaskSpec, demonstrator: Demonstrator) -> None:
        self.spec = spec
        self._demonstrator = demonstrator

    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        """See `Agent`."""
        return self._demonstrator.decide(sources)


class Trained:
    """The means of a policy in torch."""

    def __init__(self, policy: Policy) -> None:
        self.spec = policy.spec
        self.policy = policy
        self._h = policy.initial_state(1)

    @torch.no_grad()
    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        """See `Agent`."""
        h = self.policy.initial_state(1) if first else self._h
        mean, after = self.policy.decide(sources, h)
        self._h = self.policy.remember(after, mean)
        chunk = self.policy.chunk(mean, h)
        actions: Tensor = self.policy.decode(chunk[:, : self.policy.execution_horizon])
        return actions


class Exported:
    """A policy file, in onnxruntime."""

    def __init__(self, spec: TaskSpec, session: PolicySession) -> None:
        self.spec = replace(spec, sources=session.contract.sources)
        self._session = session

    def decide(self, sources: dict[str, Tensor], first: bool) -> Tensor:
        """See `Agent`."""
        if first:
            self._session.reset()
        for name, value in sources.items():
            self._session.inputs[name][:] = value.numpy()
        actions = torch.from_numpy(self._session.infer().copy())
        self._session.commit()
        return actions[None, : self._session.contract.execution_horizon.default]


def make_agent(name: str, spec: TaskSpec, seed: int) -> Agent:
    """`zero`, `random`, `demonstrator`, a run folder or a policy file.

    Raises:
        AndanteError: none of these, trained on another task, or nobody demonstrates this one.
    """
    if name == "zero":
        return Zero(spec)
    if name == "random":
        return Random(spec, seed)
    if name == "demonstrator":
        if spec.name not in DEMONSTRATORS:
            known = ", ".join(DEMONSTRATORS)
            raise AndanteError(f"no demonstrator of {spec.name!r}: there is one of {known}")
        return Demonstrated(spec, DEMONSTRATORS[spec.name]())
    path = Path(name)
    if path.is_dir():
        run = load_run(path)
        _require_task(path, run.spec.name, spec.name)
        return Trained(run.policy)
    if path.is_file():
        session = load_policy(path)
        _require_task(path, session.contract.task, spec.name)
        return Exported(spec, session)
    raise AndanteError(
        f"no agent {name!r}: expected zero, random, demonstrator, a run folder or a policy file"
    )


def trained_with(name: str) -> Randomization:
    """What was randomised in the training of an agent, if it is a run folder; else nothing."""
    path = Path(name)
    return load_run(path).config.randomization.whole if path.is_dir() else Randomization()


def _require_task(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise AndanteError(f"{path}: trained on {found!r}, expected {expected!r}")

"""What can act on a task in one world: nothing, noise, a run, or a policy file."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

import torch
from torch import Generator, Tensor

from andante.runtime.errors import AndanteError
from andante.runtime.policy import PolicySession, load_policy
from andante.sim.spec.task import TaskSpec

from .checkpoint import load_run
from .pipeline import ActionDecoder
from .policy import Policy


class Agent(Protocol):
    """Decides what to do until the next decision, from the start of one episode."""

    def decide(self, sources: dict[str, Tensor]) -> Tensor:
        """Sources {name: [1, n]} -> the s actions to execute [1, s, A], SI units."""
        ...


class Zero:
    """Action 0 at every tick."""

    def __init__(self, spec: TaskSpec) -> None:
        self._action = torch.zeros(1, 1, spec.action_size)

    def decide(self, sources: dict[str, Tensor]) -> Tensor:
        """See `Agent`."""
        return self._action


class Random:
    """Uniform over the action range, anew at every tick."""

    def __init__(self, spec: TaskSpec, seed: int) -> None:
        self._decode = ActionDecoder(spec)
        self._shape = (1, 1, spec.action_size)
        self._generator = Generator().manual_seed(seed)

    def decide(self, sources: dict[str, Tensor]) -> Tensor:
        """See `Agent`."""
        actions: Tensor = self._decode(2.0 * torch.rand(self._shape, generator=self._generator) - 1.0)
        return actions


class Trained:
    """The means of a policy in torch."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._h = policy.initial_state(1)

    @torch.no_grad()
    def decide(self, sources: dict[str, Tensor]) -> Tensor:
        """See `Agent`."""
        mean, self._h = self._policy.decide(sources, self._h)
        actions: Tensor = self._policy.decode(mean[:, : self._policy.execution_horizon])
        return actions


class Exported:
    """A policy file, in onnxruntime."""

    def __init__(self, session: PolicySession) -> None:
        self._session = session

    def decide(self, sources: dict[str, Tensor]) -> Tensor:
        """See `Agent`."""
        for name, value in sources.items():
            self._session.inputs[name][:] = value.numpy()
        actions = torch.from_numpy(self._session.infer().copy())
        self._session.commit()
        return actions[None, : self._session.contract.execution_horizon.default]


def make_agent(name: str, spec: TaskSpec, seed: int) -> Agent:
    """`zero`, `random`, a run folder or a policy file.

    Raises:
        AndanteError: none of these, or trained on another task.
    """
    if name == "zero":
        return Zero(spec)
    if name == "random":
        return Random(spec, seed)
    path = Path(name)
    if path.is_dir():
        run = load_run(path)
        _require_task(path, run.spec.name, spec.name)
        return Trained(run.policy)
    if path.is_file():
        session = load_policy(path)
        _require_task(path, session.contract.task, spec.name)
        return Exported(session)
    raise AndanteError(f"no agent {name!r}: expected zero, random, a run folder or a policy file")


def _require_task(path: Path, found: str, expected: str) -> None:
    if found != expected:
        raise AndanteError(f"{path}: trained on {found!r}, expected {expected!r}")

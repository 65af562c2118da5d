"""Checkpoints: one file that is always whole, and the run folder around it."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import torch
from torch import Tensor

from andante.runtime.contract import Record
from andante.runtime.errors import AndanteError
from andante.sim.spec import get_spec
from andante.sim.spec.task import TaskSpec

from .config import TrainConfig
from .files import CHECKPOINT, RESULT, decode_config, write_atomically
from .policy import Policy

SCHEMA = 3


class Result(Record, frozen=True):
    """`result.json`: how the best policy of a finished run did, deterministically, beside random actions."""

    task: str
    memory: str
    returned: float = msgspec.field(name="return")
    """Mean undiscounted return."""
    random_return: float
    episodes: int
    seed: int
    """Of the evaluation's environment, not of the training."""
    ticks: int
    """Of training."""
    train_ticks_per_s: float
    """Simulation, inference and update together, without evaluations."""
    expected: tuple[float, float] | None = None
    """Range of the return that the task declares for its recipe; None for a run of anything else."""
    as_expected: bool | None = None
    """Whether the return is in that range."""
    returns: tuple[float, ...] = ()
    """Of each episode."""


@dataclass
class Best:
    """The policy that did best in the deterministic evaluations so far."""

    returned: float
    """The lower of its two, see `selection`."""
    policy: dict[str, Tensor]


@dataclass
class Checkpoint:
    """All that an exact continuation needs."""

    config: TrainConfig
    provenance: dict[str, str]
    trainer: dict[str, Any]
    """`PPO.state_dict`."""
    best: Best | None
    seconds: float
    """Spent on training so far."""
    reason: str | None = None
    """In the dump of a run that had to stop: what was not finite."""

    def write(self, path: Path) -> None:
        """Write atomically."""
        content = {
            "schema": SCHEMA,
            **vars(self),
            "config": msgspec.json.encode(self.config).decode(),
            "best": self.best and vars(self.best),
        }
        buffer = io.BytesIO()
        torch.save(content, buffer)
        write_atomically(path, buffer.getvalue())

    @classmethod
    def read(cls, path: Path) -> Checkpoint:
        """Read one; tensors and plain values only, no code is run.

        Raises:
            AndanteError: no such file, not a checkpoint, or one of another schema.
        """
        try:
            if not path.is_file():
                raise AndanteError(f"{path}: no such checkpoint")
            content = torch.load(path, weights_only=True, map_location="cpu")
            schema = content.pop("schema")
            if schema != SCHEMA:
                raise AndanteError(f"{path}: checkpoint of schema {schema}, expected {SCHEMA}")
            config, best = decode_config(content.pop("config"), str(path)), content.pop("best")
            return cls(config=config, best=best and Best(**best), **content)
        except AndanteError:
            raise
        except Exception as error:  # torch raises a dozen types for files that are foreign or cut
            raise AndanteError(f"{path}: not a checkpoint ({type(error).__name__})") from None


@dataclass(frozen=True)
class Run:
    """A run folder that was read."""

    policy: Policy
    """The best so far, or the current one before the first evaluation."""
    evaluated: bool
    """Whether there is a best one."""
    ticks: int
    """Of training so far."""
    spec: TaskSpec
    config: TrainConfig
    result: Result | None
    """None until the run has finished."""
    provenance: dict[str, str]


def load_run(run_dir: str | Path) -> Run:
    """Read a run folder, finished or not.

    Raises:
        AndanteError: there is no run, or its files are damaged.
    """
    folder = Path(run_dir)
    if not (folder / CHECKPOINT).is_file():
        raise AndanteError(f"{folder}: not a run folder, it has no {CHECKPOINT}")
    checkpoint = Checkpoint.read(folder / CHECKPOINT)
    spec = get_spec(checkpoint.config.task)
    policy = Policy(spec, checkpoint.config.policy)
    name, state = "policy", checkpoint.trainer["policy"]
    if checkpoint.best is not None:
        name, state = "best.policy", checkpoint.best.policy
    restore(policy, state, folder / CHECKPOINT, name)
    config = checkpoint.config
    per_iteration = config.num_worlds * config.ppo.decisions * policy.execution_horizon
    return Run(
        policy=policy,
        evaluated=checkpoint.best is not None,
        ticks=checkpoint.trainer["iteration"] * per_iteration,
        spec=spec,
        config=config,
        result=read_result(folder / RESULT),
        provenance=checkpoint.provenance,
    )


class Stateful(Protocol):
    """A module of torch, or a trainer."""

    def state_dict(self) -> dict[str, Any]:
        """All its state, by name."""
        ...

    def load_state_dict(self, state: dict[str, Any]) -> Any:
        """Continue from `state_dict`."""
        ...


def restore(owner: Stateful, state: Any, path: Path, name: str = "") -> None:
    """Have `owner` continue from a state in the checkpoint at `path`, there called `name`.

    Raises:
        AndanteError: the state is not one of such an owner; names the tensor, the expected and the found.
    """
    _require_like(path, name, owner.state_dict(), state)
    owner.load_state_dict(state)


def _require_like(path: Path, name: str, expected: Any, found: Any) -> None:
    if isinstance(expected, Tensor):
        # What is empty in a new owner grows.
        whole = slice(None) if expected.shape[:1] != (0,) else slice(1, None)
        shape = list(found.shape) if isinstance(found, Tensor) else type(found).__name__
        if not isinstance(found, Tensor) or found.shape[whole] != expected.shape[whole]:
            raise AndanteError(f"{path}: {name}: expected a tensor {list(expected.shape)}, found {shape}")
    elif isinstance(expected, dict) and expected:
        prefix = f"{name}." if name else ""
        keys = found.keys() if isinstance(found, dict) else set()
        for key in sorted(expected.keys() ^ keys, key=str):
            what = "missing" if key in expected else "not known here"
            raise AndanteError(f"{path}: {prefix}{key} is {what}")
        for key, value in expected.items():
            _require_like(path, f"{prefix}{key}", value, found[key])


def read_result(path: Path) -> Result | None:
    """Read a `result.json`; None where there is none.

    Raises:
        AndanteError: it is wrong.
    """
    if not path.is_file():
        return None
    try:
        return msgspec.json.decode(path.read_bytes(), type=Result)
    except msgspec.DecodeError as error:
        raise AndanteError(f"{path}: {error}") from None

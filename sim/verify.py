"""What `andante verify --run` checks: the closed loop against the training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np

from andante.runtime.artifact import Artifact
from andante.runtime.errors import AndanteError
from andante.runtime.profile import Profile

from .closed_loop import closed_loop
from .spec.randomization import Randomization

RETURN_TOLERANCE = 0.01
"""Largest difference of the closed loop's mean return, in units of (return - random return)."""


class RunResult(msgspec.Struct, frozen=True):
    """What is needed of a run's `result.json`; other keys are the trainer's."""

    task: str
    trained: float = msgspec.field(name="return")
    random_return: float
    episodes: Annotated[int, msgspec.Meta(ge=1)]
    seed: int


@dataclass(frozen=True)
class ClosedLoopCheck:
    """Mean return of the policy file in the simulated robot, beside that of the training's evaluation."""

    measured: float
    faults: tuple[str, ...]
    """What made the controller fall back."""
    result: RunResult

    @property
    def deviation(self) -> float:
        """Difference of the returns in units of (return - random return)."""
        return abs(self.measured - self.result.trained) / abs(self.result.trained - self.result.random_return)

    @property
    def acceptable(self) -> bool:
        """Whether the file does in closed loop what the run did, without a fault."""
        return self.deviation <= RETURN_TOLERANCE and not self.faults

    def __str__(self) -> str:
        run = self.result
        returns = f"return {self.measured:.3f}, the run's {run.trained:.3f}, random {run.random_return:.3f}"
        apart = f"{self.deviation:.2%} apart (at most {RETURN_TOLERANCE:.0%})"
        faults = f"{len(self.faults)} of {run.episodes} episodes ended in a fault; " if self.faults else ""
        return f"{faults}{returns}, {run.episodes} episodes: {apart}"


def check_closed_loop(artifact: Artifact, run_dir: Path, profile: Profile | None = None) -> ClosedLoopCheck:
    """Run the episodes of the run's evaluation with the policy file: same seed, same initial states.

    `profile` is as of `closed_loop`.

    Raises:
        AndanteError: `run_dir` has no readable `result.json`, a run that is no better than random, or one
            whose result is of randomised worlds: the closed loop's are nominal.
    """
    result = read_result(run_dir)
    _require_nominal(run_dir)
    if result.task != artifact.contract.task:
        raise AndanteError(f"{run_dir}: a run of task {result.task!r}, policy for {artifact.contract.task!r}")
    loop = closed_loop(artifact.path, artifact.contract.task, result.episodes, result.seed, profile)
    return ClosedLoopCheck(float(np.mean(loop.returns)), loop.faults, result)


def read_result(run_dir: Path) -> RunResult:
    """The evaluation that a run ended with.

    Raises:
        AndanteError: names the file, and what is wrong with it.
    """
    path = run_dir / "result.json"
    try:
        result = msgspec.json.decode(path.read_bytes(), type=RunResult)
    except OSError as error:
        raise AndanteError(f"{path}: {error.strerror}; expected the folder of a finished run") from None
    except msgspec.DecodeError as error:
        raise AndanteError(f"{path}: {error}") from None
    if result.trained == result.random_return:
        raise AndanteError(f"{path}: return equals random_return, {result.trained}: nothing to compare with")
    return result


class _RunConfig(msgspec.Struct):
    """What matters here of `config.json`."""

    randomization: Randomization = Randomization()


def _require_nominal(run_dir: Path) -> None:
    path = run_dir / "config.json"
    if not path.exists():
        return
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_RunConfig).randomization
    except (OSError, msgspec.DecodeError) as error:
        raise AndanteError(f"{path}: {error}") from None
    if not found.nominal:
        names = ", ".join(dict.fromkeys(entry.field for entry in found.entries()))
        raise AndanteError(
            f"{run_dir}: its return is of worlds with {names}, the closed loop is of nominal ones: "
            "they cannot be compared"
        )

"""What `andante verify --run` checks: the closed loop against the training run."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
from numpy.typing import NDArray

from andante.runtime.artifact import Artifact
from andante.runtime.errors import AndanteError

from .closed_loop import closed_loop
from .spec.randomization import Randomization

RETURN_TOLERANCE = 0.01
"""Largest difference of the closed loop's mean return, in units of (return - random return)."""
LARGEST_TOLERANCE = 0.02
"""The same where episodes differ so much from each other that it is within two standard errors.

An episode at the edge of a fall may end otherwise: motors are limited at every physics step of training, but
a command's gains for a whole tick. One in 64 that falls is no proof of a difference; a second one is.
"""


class RunResult(msgspec.Struct, frozen=True):
    """What is needed of a run's `result.json`; other keys are the trainer's."""

    task: str
    trained: float = msgspec.field(name="return")
    random_return: float
    episodes: Annotated[int, msgspec.Meta(ge=1)]
    seed: int
    returns: tuple[float, ...] = ()
    """Of each episode; of older runs there is none."""


@dataclass(frozen=True)
class ClosedLoopCheck:
    """Mean return of the policy file in the simulated robot, beside that of the training's evaluation."""

    measured: float
    standard_error: float
    """Of the difference of the two, episode by episode; 0 where the run does not tell its own."""
    faults: tuple[str, ...]
    """What made the controller fall back."""
    result: RunResult

    @property
    def deviation(self) -> float:
        """Difference of the returns in units of (return - random return)."""
        return abs(self.measured - self.result.trained) / self._unit

    @property
    def tolerance(self) -> float:
        """Largest acceptable deviation."""
        return min(max(RETURN_TOLERANCE, 2.0 * self.standard_error / self._unit), LARGEST_TOLERANCE)

    @property
    def acceptable(self) -> bool:
        """Whether the file does in closed loop what the run did, without a fault."""
        return self.deviation <= self.tolerance and not self.faults

    @property
    def _unit(self) -> float:
        return abs(self.result.trained - self.result.random_return)

    def __str__(self) -> str:
        run = self.result
        returns = f"return {self.measured:.3f}, the run's {run.trained:.3f}, random {run.random_return:.3f}"
        apart = f"{self.deviation:.2%} apart (at most {self.tolerance:.2%})"
        return f"{returns}, {run.episodes} episodes: {apart}"


def check_closed_loop(artifact: Artifact, run_dir: Path) -> ClosedLoopCheck:
    """Run the episodes of the run's evaluation with the policy file: same seed, same initial states.

    Raises:
        AndanteError: `run_dir` has no readable `result.json`, a run that is no better than random, or one
            whose result is of randomised worlds: the closed loop's are nominal.
    """
    result = read_result(run_dir)
    _require_nominal(run_dir)
    if result.task != artifact.contract.task:
        raise AndanteError(f"{run_dir}: a run of task {result.task!r}, policy for {artifact.contract.task!r}")
    loop = closed_loop(artifact.path, artifact.contract.task, result.episodes, result.seed)
    return compare(loop.returns, loop.faults, result)


def compare(returns: NDArray[np.float64], faults: tuple[str, ...], result: RunResult) -> ClosedLoopCheck:
    """The check of a closed loop's returns [episodes] and faults."""
    difference = returns - result.returns if result.returns else np.zeros(len(returns))
    error = float(np.std(difference) / np.sqrt(len(returns)))
    return ClosedLoopCheck(float(np.mean(returns)), error, faults, result)


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
    if len(result.returns) not in (0, result.episodes):
        raise AndanteError(f"{path}: expected {result.episodes} returns, found {len(result.returns)}")
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

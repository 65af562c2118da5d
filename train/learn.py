"""The life of a run: iterate, evaluate, keep the best, write checkpoints, stop cleanly."""

from __future__ import annotations

import copy
import platform
import signal
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from tqdm import tqdm

from andante.runtime.errors import AndanteError

from .checkpoint import CHECKPOINT, CONFIG, DIVERGED, DUMP, RESULT, Best, Checkpoint, Result, write_atomically
from .config import TrainConfig
from .divergence import Divergence
from .evaluate import evaluate, random_return
from .finite import NonFiniteError
from .folder import claim, leftovers
from .policy import Policy

if TYPE_CHECKING:
    from .ppo import PPO

SELECTION_EPISODES = 64
RESULT_EPISODES = 64
SELECTION_SEED = 1_000_000
"""Added to a run's seed: episodes that choose the best policy are neither trained on nor reported."""
RESULT_SEED = 2_000_000
"""Added to a run's seed: the reported episodes."""


def learn(
    trainer: PPO, config: TrainConfig, run_dir: Path, resume: bool = False, overwrite: bool = False
) -> bool:
    """Train until the budget of ticks is used up, then evaluate the best policy and write `result.json`.

    A run that was resumed computes bit for bit what it would have computed without the interruption
    (same machine, same number of threads). Ctrl-C finishes the iteration and writes a checkpoint.

    Args:
        trainer: as `PPO.from_config` makes it.
        config: what the trainer was made from.
        run_dir: folder of the run.
        resume: continue the run in that folder.
        overwrite: replace the run in that folder.

    Returns:
        Whether the run was finished, rather than interrupted.

    Raises:
        AndanteError: something became non-finite (`dump.pt` then holds the start of that iteration), a
            folder that can't be used, a trainer that has trained before, or a run without ticks left.
    """
    if trainer.ticks and not resume:
        raise AndanteError(f"{run_dir}: a run begins with a new trainer, found one of {trainer.ticks} ticks")
    with claim(run_dir, resume, overwrite):
        if resume:
            current = Checkpoint.read(run_dir / CHECKPOINT)
            current.config = config
            trainer.load_state_dict(current.trainer)
            if trainer.ticks >= config.ticks and (run_dir / RESULT).exists():
                raise AndanteError(
                    f"{run_dir}: finished after {trainer.ticks} ticks, budget {config.ticks}; "
                    "a larger --ticks continues it"
                )
        else:
            current = Checkpoint(config, _provenance(trainer), trainer.state_dict(), best=None, seconds=0.0)
        _begin(run_dir, current, resume)
        if not _train(trainer, config, run_dir, current):
            return False
        _conclude(trainer, config, run_dir, current)
    return True


def _train(trainer: PPO, config: TrainConfig, run_dir: Path, current: Checkpoint) -> bool:
    """Use up the budget; False if interrupted before."""
    last_written = time.monotonic()
    with _logs(trainer, config, run_dir) as (writer, bar), _interrupts() as interrupted:
        while trainer.ticks < config.ticks:
            start = time.monotonic()
            current.trainer, diverged = _copy(trainer.state_dict()), trainer.env.diverged
            try:
                metrics = trainer.iterate()
                current.seconds += time.monotonic() - start
                if trainer.env.diverged > diverged:
                    _dump_divergence(trainer, config, run_dir / DIVERGED, current.trainer)
                if _evaluation_due(trainer, config):
                    metrics["return"] = _select(trainer, config, current)
            except NonFiniteError as error:
                current.reason = error.name
                current.write(run_dir / DUMP)
                raise AndanteError(
                    f"stopped at {trainer.ticks} ticks: {error}; "
                    f"`andante play {config.task} --from-dump {run_dir / DUMP}` repeats it"
                ) from None
            bar.update(min(trainer.ticks, config.ticks) - bar.n)
            bar.set_postfix_str(f"reward/tick {metrics['reward_per_tick']:.3f}")
            if "return" in metrics:
                bar.write(
                    f"{trainer.ticks:>10,} ticks  return {metrics['return']:8.2f}  "
                    f"{trainer.ticks / current.seconds:,.0f} ticks/s"
                )
            for name, value in metrics.items():
                writer.add_scalar(name, value, trainer.ticks)
            finished = trainer.ticks >= config.ticks
            if finished or interrupted or time.monotonic() - last_written > config.checkpoint_seconds:
                writer.flush()
                current.trainer = trainer.state_dict()
                current.write(run_dir / CHECKPOINT)
                last_written = time.monotonic()
            if interrupted and not finished:
                return False
    return True


def _dump_divergence(trainer: PPO, config: TrainConfig, path: Path, start: dict[str, Any]) -> None:
    """Keep a run's first divergence of physics, in the iteration that began at `start`."""
    if path.exists():
        return
    divergence = Divergence.find(trainer, config, start)
    if divergence is not None:
        divergence.write(path)
        tqdm.write(f"{divergence}; `andante play {config.task} --from-dump {path}` repeats it")


def _begin(run_dir: Path, start: Checkpoint, resume: bool) -> None:
    stale = [run_dir / RESULT, *leftovers(run_dir)]
    if not resume:
        stale += [run_dir / DUMP, run_dir / DIVERGED, *run_dir.glob("events.out.tfevents.*")]
    # Before the checkpoint: a process killed in between must not leave it beside another run's result.
    for path in stale:
        path.unlink(missing_ok=True)
    start.write(run_dir / CHECKPOINT)
    write_atomically(run_dir / CONFIG, msgspec.json.format(msgspec.json.encode(start.config)) + b"\n")


def _evaluation_due(trainer: PPO, config: TrainConfig) -> bool:
    iterations = -(-config.ticks // trainer.ticks_per_iteration)
    interval = max(1, iterations // config.evaluations)
    return trainer.iteration % interval == 0 or trainer.iteration >= iterations


def evaluate_for_selection(policy: Policy, config: TrainConfig) -> float:
    """Mean return by which the best policy of a run is chosen.

    Raises:
        NonFiniteError: an observation, an action or a return is not finite.
    """
    seed = SELECTION_SEED + config.seed
    evaluation = evaluate(
        policy, config.task, SELECTION_EPISODES, seed, randomization=config.randomization.whole
    )
    return float(evaluation.returns.mean())


def _select(trainer: PPO, config: TrainConfig, current: Checkpoint) -> float:
    """Evaluate the policy, and keep a copy if it is the best so far."""
    returned = evaluate_for_selection(trainer.policy, config)
    if current.best is None or returned > current.best.returned:
        current.best = Best(returned, _copy(trainer.policy.state_dict()))
    return returned


def _conclude(trainer: PPO, config: TrainConfig, run_dir: Path, current: Checkpoint) -> None:
    if current.best is None:
        _select(trainer, config, current)
        current.write(run_dir / CHECKPOINT)
    assert current.best is not None
    policy = copy.deepcopy(trainer.policy)
    policy.load_state_dict(current.best.policy)
    seed, whole = RESULT_SEED + config.seed, config.randomization.whole
    result = Result(
        task=config.task,
        memory=config.policy.memory,
        returned=float(
            evaluate(policy, config.task, RESULT_EPISODES, seed, randomization=whole).returns.mean()
        ),
        random_return=random_return(config.task, RESULT_EPISODES, seed, whole),
        episodes=RESULT_EPISODES,
        seed=seed,
        ticks=trainer.ticks,
        train_ticks_per_s=trainer.ticks / current.seconds,
    )
    write_atomically(run_dir / RESULT, msgspec.json.format(msgspec.json.encode(result)) + b"\n")
    print(
        f"{run_dir}: return {result.returned:.2f} over {result.episodes} episodes, random actions "
        f"{result.random_return:.2f}; {result.ticks:,} ticks at {result.train_ticks_per_s:,.0f} ticks/s"
    )


def _copy(state: Any) -> Any:
    """The same nested state with tensors of its own."""
    if isinstance(state, torch.Tensor):
        return state.clone()
    if isinstance(state, dict):
        return {key: _copy(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)(_copy(value) for value in state)
    return state


@contextmanager
def _logs(trainer: PPO, config: TrainConfig, run_dir: Path) -> Iterator[tuple[Any, Any]]:
    # Not before: it takes a second to import.
    from torch.utils.tensorboard import SummaryWriter

    # What a killed process logged after its last checkpoint is computed again.
    writer = SummaryWriter(str(run_dir), purge_step=trainer.ticks + 1)
    bar = tqdm(
        total=config.ticks, initial=trainer.ticks, unit="tick", unit_scale=True, mininterval=0.5, disable=None
    )
    try:
        yield writer, bar
    finally:
        bar.close()
        writer.close()


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that Ctrl-C makes non-empty; a second Ctrl-C raises KeyboardInterrupt. Main thread only."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: FrameType | None) -> None:
        if received:
            raise KeyboardInterrupt
        received.append(number)

    previous = signal.signal(signal.SIGINT, note)
    try:
        yield received
    finally:
        signal.signal(signal.SIGINT, previous)


def _provenance(trainer: PPO) -> dict[str, str]:
    packages = {f"train.{name}": version(name) for name in ("andante", "torch", "mujoco")}
    run = {
        "train.python": platform.python_version(),
        "train.seed": str(trainer.seed),
        "train.device": trainer.env.device_name,
    }
    return {**packages, **run, **_git_state()}


def _git_state() -> dict[str, str]:
    """Commit that the code is at, if it runs from its repository."""
    file = Path(__file__).resolve()
    git = ["git", "-C", str(file.parent)]
    try:
        subprocess.run([*git, "ls-files", "--error-unmatch", file.name], capture_output=True, check=True)
        describe = [*git, "describe", "--always", "--dirty", "--abbrev=40"]
        return {"train.git": subprocess.check_output(describe, text=True).strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}

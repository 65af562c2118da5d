"""The life of a run: iterate, evaluate, keep the best, write checkpoints, stop cleanly."""

from __future__ import annotations

import copy
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import torch
from tqdm import tqdm

from andante.runtime.errors import AndanteError

from .checkpoint import Best, Checkpoint, Result, restore
from .config import TrainConfig
from .divergence import Divergence
from .evaluate import random_return
from .files import (
    CHECKPOINT,
    CONFIG,
    CURVE,
    DIVERGED,
    DUMP,
    METRICS,
    PROVENANCE,
    RESULT,
    WANDB_ID,
    write_json,
)
from .finite import NonFiniteError
from .folder import claim, leftovers
from .logs import Logs
from .provenance import find_provenance
from .recipes import expected_return
from .selection import EPISODES, RESULT_SEED, challenge, episode_returns
from .wandb import load_wandb
from .warm_start import warm_start

if TYPE_CHECKING:
    from .ppo import PPO


def learn(
    trainer: PPO,
    config: TrainConfig,
    run_dir: Path,
    resume: bool = False,
    overwrite: bool = False,
    init_from: Path | None = None,
    wandb: str | None = None,
) -> bool:
    """Train until the budget of ticks is used up, then evaluate the best policy and write `result.json`.

    A run that was resumed computes bit for bit what it would have computed without the interruption
    (same machine, same number of threads). Ctrl-C or SIGTERM finishes the iteration and writes a checkpoint.
    The folder has a learning curve from then on.

    Args:
        trainer: as `PPO.from_config` makes it.
        config: what the trainer was made from.
        run_dir: folder of the run.
        resume: continue the run in that folder.
        overwrite: replace the run in that folder.
        init_from: folder of a run whose best policy a new run begins with, see `warm_start`.
        wandb: project of Weights & Biases to log to as well.

    Returns:
        Whether the run was finished, rather than interrupted.

    Raises:
        AndanteError: something became non-finite (`dump.pt` then holds the start of that iteration), a
            folder that can't be used, a trainer that has trained before, a policy to begin with that does not
            fit, or a run without ticks left.
    """
    if trainer.ticks and not resume:
        raise AndanteError(f"{run_dir}: a run begins with a new trainer, found one of {trainer.ticks} ticks")
    if resume and init_from is not None:
        raise AndanteError(
            f"{run_dir}: a run that is resumed has its policy, and can't begin with {init_from}'s"
        )
    if wandb is not None:
        load_wandb()
    origin = {} if init_from is None else {"train.init_from": warm_start(trainer, init_from)}
    with claim(run_dir, resume, overwrite):
        if resume:
            current = Checkpoint.read(run_dir / CHECKPOINT)
            current.config = config
            restore(trainer, current.trainer, run_dir / CHECKPOINT)
            if trainer.ticks >= config.ticks and (run_dir / RESULT).exists():
                raise AndanteError(
                    f"{run_dir}: finished after {trainer.ticks} ticks, budget {config.ticks}; "
                    "a larger --ticks continues it"
                )
        else:
            provenance = find_provenance(trainer) | origin
            current = Checkpoint(config, provenance, trainer.state_dict(), best=None, seconds=0.0)
        _begin(run_dir, current, resume)
        finished = _train(trainer, config, run_dir, current, wandb)
        if finished:
            _conclude(trainer, config, run_dir, current)
        _draw(config, run_dir)
    return finished


def _train(trainer: PPO, config: TrainConfig, run_dir: Path, current: Checkpoint, wandb: str | None) -> bool:
    """Use up the budget; False if interrupted before."""
    began = last_written = time.monotonic()
    before = trainer.ticks
    with _logs(trainer, config, run_dir, wandb) as (logs, bar), _interrupts() as interrupted:
        while trainer.ticks < config.ticks:
            start = time.monotonic()
            current.trainer, diverged = _copy(trainer.state_dict()), trainer.env.diverged
            try:
                metrics = trainer.iterate()
                current.seconds += time.monotonic() - start
                if trainer.env.diverged > diverged:
                    _dump_divergence(trainer, config, run_dir / DIVERGED, current.trainer)
                if _evaluation_due(trainer, config):
                    metrics |= _select(trainer, config, current)
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
                elapsed = time.monotonic() - began
                left = elapsed / (trainer.ticks - before) * max(config.ticks - trainer.ticks, 0)
                bar.write(
                    f"{trainer.ticks:>10,} ticks  return {metrics['return']:8.2f}  "
                    f"{trainer.ticks / current.seconds:,.0f} ticks/s  "
                    f"{tqdm.format_interval(elapsed)} elapsed, about {tqdm.format_interval(left)} left"
                )
            logs.write(trainer.iteration, trainer.ticks, current.seconds, metrics)
            finished = trainer.ticks >= config.ticks
            if finished or interrupted or time.monotonic() - last_written > config.checkpoint_seconds:
                logs.flush()
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
        stale += [run_dir / name for name in (DUMP, DIVERGED, METRICS, CURVE, WANDB_ID)]
        stale += run_dir.glob("events.out.tfevents.*")
    # Before the checkpoint: a process killed in between must not leave it beside another run's result.
    for path in stale:
        path.unlink(missing_ok=True)
    start.write(run_dir / CHECKPOINT)
    write_json(run_dir / CONFIG, start.config)
    write_json(run_dir / PROVENANCE, start.provenance)


def _evaluation_due(trainer: PPO, config: TrainConfig) -> bool:
    iterations = -(-config.ticks // trainer.ticks_per_iteration)
    interval = max(1, iterations // config.evaluations)
    return trainer.iteration % interval == 0 or trainer.iteration >= iterations


def _select(trainer: PPO, config: TrainConfig, current: Checkpoint) -> dict[str, float]:
    """Evaluate the policy, and keep a copy if it is the best so far; returns what to log."""
    returned, score = challenge(trainer.policy, config, current.best)
    if score is not None:
        current.best = Best(score, _copy(trainer.policy.state_dict()))
    assert current.best is not None  # any score beats none
    return {"return": returned, "best_return": current.best.returned}


def _conclude(trainer: PPO, config: TrainConfig, run_dir: Path, current: Checkpoint) -> None:
    if current.best is None:
        _select(trainer, config, current)
        current.write(run_dir / CHECKPOINT)
    assert current.best is not None
    policy = copy.deepcopy(trainer.policy)
    policy.load_state_dict(current.best.policy)
    returns, expected = episode_returns(policy, config, RESULT_SEED), expected_return(config)
    returned = float(returns.mean())
    seed = config.seed + RESULT_SEED
    result = Result(
        task=config.task,
        memory=config.policy.memory,
        returned=returned,
        random_return=random_return(config.task, EPISODES, seed, config.randomization.whole),
        episodes=EPISODES,
        seed=seed,
        ticks=trainer.ticks,
        train_ticks_per_s=trainer.ticks / current.seconds,
        expected=expected,
        as_expected=expected and expected[0] <= returned <= expected[1],
        returns=tuple(returns.tolist()),
    )
    write_json(run_dir / RESULT, result)
    judgement = "" if expected is None else f", expected {expected[0]:g} to {expected[1]:g}"
    print(
        f"{run_dir}: return {result.returned:.2f}{judgement} over {result.episodes} episodes, random actions "
        f"{result.random_return:.2f}; {result.ticks:,} ticks at {result.train_ticks_per_s:,.0f} ticks/s"
    )


def _draw(config: TrainConfig, run_dir: Path) -> None:
    # Not before: it takes a second to import.
    from .curve import draw_learning_curve

    title = f"{config.task}, {config.policy.memory}, seed {config.seed}"
    draw_learning_curve(run_dir, title, expected_return(config))


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
def _logs(trainer: PPO, config: TrainConfig, run_dir: Path, wandb: str | None) -> Iterator[tuple[Logs, Any]]:
    logs = Logs(run_dir, config, trainer.iteration, trainer.ticks, wandb)
    bar = tqdm(
        total=config.ticks, initial=trainer.ticks, unit="tick", unit_scale=True, mininterval=0.5, disable=None
    )
    try:
        yield logs, bar
    finally:
        bar.close()
        logs.close()


@contextmanager
def _interrupts() -> Iterator[list[int]]:
    """A list that Ctrl-C or SIGTERM makes non-empty; a second Ctrl-C raises KeyboardInterrupt.

    Main thread only.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received
        return

    def note(number: int, frame: FrameType | None) -> None:
        if number == signal.SIGINT and number in received:
            raise KeyboardInterrupt
        received.append(number)

    previous = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)

"""`andante evaluate`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
from tyro.conf import Positional, arg

from andante.runtime.errors import AndanteError

from .config import check_seed

if TYPE_CHECKING:
    from .length import LengthResult

FRESH_SEED = 10_000_000
"""Added to a run's seed: far from the episodes that it trained on, chose by and reported."""


def evaluate(
    run: Annotated[Positional[Path], arg(metavar="RUN")],
    episodes: int = 64,
    seed: int = 0,
    lengths: Annotated[tuple[int, ...], arg(help_behavior_hint="(default: none)")] = (),
    json: bool = False,
) -> None:
    """Play a run's best policy, deterministically, in episodes that the run has not seen.

    Args:
        run: Folder of a training run.
        episodes: Number of episodes, each in a world of its own.
        seed: Chooses other episodes.
        lengths: Also play episodes of so many segments (what training learned from at a time), say 1 10 100,
            and tell how large the memory's state grows; in a T-maze, corridors of that length.
        json: Print one JSON object instead.
    """
    if episodes < 2:
        raise AndanteError(f"episodes must be at least 2, found {episodes}")
    for length in lengths:
        if length < 1:
            raise AndanteError(f"lengths must be at least 1, found {length}")
    check_seed(seed)
    # Not before: `--help` answers without torch.
    import torch

    from .checkpoint import load_run
    from .evaluate import evaluate as play
    from .length import evaluate_length

    trained = load_run(run)
    config, policy, whole = trained.config, trained.policy, trained.config.randomization.whole
    torch.set_num_threads(1)
    seed += FRESH_SEED + config.seed
    segment = config.ppo.decisions * policy.execution_horizon
    returns = play(policy, config.task, episodes, seed, randomization=whole).returns.double()
    mean = float(returns.mean())
    error = float(returns.std()) / math.sqrt(episodes)
    results = [evaluate_length(policy, n * segment, segment, episodes, seed, whole) for n in lengths]
    if json:
        report = {
            "task": config.task,
            "episodes": episodes,
            "seed": seed,
            "return": mean,
            "standard_error": error,
            "segment_ticks": segment,
            "lengths": results,
        }
        print(msgspec.json.encode(report).decode())
        return
    print(f"{config.task}: return {mean:.2f} +- {error:.2f} over {episodes} episodes")
    if results:
        print("\n".join(_table(lengths, results, segment)))


def _table(lengths: Sequence[int], results: Sequence[LengthResult], segment: int) -> list[str]:
    from .length import QUANTILES

    columns = [f"{100 * share:.0f} %" for share in QUANTILES]
    lines = [
        f"Lengths in segments of {segment} ticks, with quantiles over time of the state's norm:",
        _line("length", "ticks", "lived", "return", "per tick", *columns),
    ]
    for length, result in zip(lengths, results, strict=True):
        figures = (f"{result.mean_ticks:.0f}", f"{result.mean_return:.2f}", f"{result.reward_per_tick:.4f}")
        norms = (f"{norm:.3g}" for norm in result.state_norm)
        lines.append(_line(f"{length}x", str(result.ticks), *figures, *norms))
    first = (f"{norm:.3g}" for norm in results[0].first_state_norm)
    return [*lines, _line("first segment alone", "", "", "", "", *first)]


def _line(name: str, *cells: str) -> str:
    return name.ljust(20) + "".join(cell.rjust(10) for cell in cells)

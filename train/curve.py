"""`learning_curve.png`: how a run has learned so far."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .files import CURVE, METRICS, write_atomically
from .metrics import Row, read_metrics

REWARD = "reward/"
"""What the names of reward terms begin with."""


def draw_learning_curve(run_dir: Path, title: str, expected: tuple[float, float] | None) -> None:
    """Plot a run's `metrics.jsonl` over ticks: return, reward and its terms, divergence, exploration.

    `expected` is the range of the return, drawn as a band. Does nothing where no iteration was logged.
    """
    rows = read_metrics(run_dir / METRICS)
    if not rows:
        return
    ticks = np.array([row["ticks"] for row in rows])
    figure = Figure(figsize=(9, 10), layout="constrained")
    returns, rewards, kl, std = figure.subplots(4, sharex=True, height_ratios=(2, 2, 1, 1))
    if expected is not None:
        returns.axhspan(*expected, color="tab:green", alpha=0.15, label="expected of the recipe")
    _draw(returns, ticks, rows, "best_return", "best so far, the lower of two", drawstyle="steps-post")
    _draw(returns, ticks, rows, "return", "evaluated", marker="o")
    terms = sorted({name for row in rows for name in row if name.startswith(REWARD)})
    for name in terms if len(terms) > 1 else ():
        _draw(rewards, ticks, rows, name, name.removeprefix(REWARD), linewidth=0.8)
    _draw(rewards, ticks, rows, "reward_per_tick", "all", color="black")
    _draw(kl, ticks, rows, "kl", "kl")
    _draw(std, ticks, rows, "action_std", "std")
    for panel, label in (
        (returns, "return,\ndeterministic"),
        (rewards, "reward per tick,\nwith exploration"),
        (kl, "KL divergence\nper tick"),
        (std, "standard deviation\nof exploration"),
    ):
        panel.set_ylabel(label)
        panel.grid(alpha=0.3)
    for panel in (returns, rewards):
        panel.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="x-small", frameon=False)
    std.set_xlabel("ticks")
    figure.suptitle(title)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=100, format="png")
    write_atomically(run_dir / CURVE, picture.getvalue())


def _draw(panel: Axes, ticks: np.ndarray, rows: list[Row], name: str, label: str, **style: Any) -> None:
    """The iterations that have this figure."""
    values = np.array([row.get(name, np.nan) for row in rows])
    there = np.isfinite(values)
    panel.plot(ticks[there], values[there], label=label, **style)

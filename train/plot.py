"""A picture of an episode: what was measured, what was done, what it earned."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from .episode import Episode
from .files import write_atomically

NAMED, LINES = 12, 24
"""So many elements are named in a legend; more than the second are drawn as a map, a row each."""
PANEL_HEIGHT = 1.7
"""Inches."""


def plot_episode(episode: Episode, title: str, path: Path) -> None:
    """Write a plot over time with a panel for each source, action term and the reward; marks at decisions.

    Raises:
        AndanteError: it cannot be written.
    """
    spec = episode.spec
    time_s = np.arange(len(episode.rewards)) * spec.control_dt
    rows = len(spec.sources) + len(spec.actions) + 1
    figure = Figure(figsize=(11, 1.0 + PANEL_HEIGHT * max(rows, 3)), layout="constrained")
    panels = iter(figure.subplots(rows, sharex=True))
    for source in spec.sources:
        values = episode.sources[source.name].reshape(len(time_s), source.history, -1)
        # This tick's row: the last one of a history, the first one of a plan.
        now = values[:, 0 if source.kind == "committed_actions" else -1]
        _draw(next(panels), time_s, now, source.elements, f"{source.name}\n[{source.unit or 'SI'}]")
    column = 0
    for term in spec.actions:
        panel, columns = next(panels), slice(column, column + len(term.joints))
        column = columns.stop
        label = f"{term.name}\n[{term.unit}]"
        _draw(panel, time_s, episode.actions[:, columns], term.joints, label, held=True)
        panel.plot(
            time_s[episode.decided],
            np.full(int(episode.decided.sum()), 0.03),
            "|",
            color="0.4",
            transform=panel.get_xaxis_transform(),
        )
    earned = next(panels)
    earned.plot(time_s, episode.rewards, color="tab:green", marker=_marker(time_s))
    earned.set_ylabel("reward\nper tick")
    earned.set_xlabel("time [s]; marks below the actions: decisions")
    figure.suptitle(title)
    picture = io.BytesIO()
    figure.savefig(picture, dpi=100, format="png")
    write_atomically(path, picture.getvalue())


def _draw(
    panel: Axes, time_s: np.ndarray, values: np.ndarray, names: Sequence[str], label: str, held: bool = False
) -> None:
    """Values [T, n] over time: lines with a legend, lines, or a map; `held` from one tick to the next."""
    panel.set_ylabel(label)
    if len(names) > LINES:
        extent = (time_s[0], time_s[-1] or 1.0, len(names) - 0.5, -0.5)
        image = panel.imshow(values.T, aspect="auto", interpolation="nearest", extent=extent)
        panel.figure.colorbar(image, ax=panel)
        return
    style = "steps-post" if held else "default"
    for name, line in zip(names, values.T, strict=True):
        panel.plot(time_s, line, drawstyle=style, linewidth=1.0, label=name, marker=_marker(time_s))
    if len(names) <= NAMED:
        columns = -(-len(names) // 8)
        panel.legend(
            loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="x-small", ncols=columns, frameon=False
        )


def _marker(time_s: np.ndarray) -> str:
    """Of each tick: a line through one alone does not show."""
    return "." if len(time_s) == 1 else ""

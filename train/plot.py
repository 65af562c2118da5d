"""A picture of an episode: what was measured, what was done, what it earned."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from .episode import Episode


def plot_episode(episode: Episode, title: str, path: Path) -> None:
    """Write a plot over time with a panel each for sources, actions and reward; ticks at the decisions."""
    spec = episode.spec
    time_s = np.arange(len(episode.rewards)) * spec.control_dt
    figure = Figure(figsize=(9, 7), layout="constrained")
    measured, acted, earned = figure.subplots(3, sharex=True)
    for source in spec.sources:
        for joint, values in zip(source.joints, episode.sources[source.name].T, strict=True):
            measured.plot(time_s, values, label=f"{joint} [{source.unit}]")
    columns = [(joint, term.unit) for term in spec.actions for joint in term.joints]
    for (joint, unit), values in zip(columns, episode.actions.T, strict=True):
        acted.step(time_s, values, where="post", label=f"{joint} [{unit}]")
    acted.plot(
        time_s[episode.decided],
        np.full(int(episode.decided.sum()), 0.02),
        "|",
        color="0.4",
        transform=acted.get_xaxis_transform(),
        label="decision",
    )
    earned.plot(time_s, episode.rewards, color="tab:green")
    measured.set_ylabel("sources")
    acted.set_ylabel("actions")
    earned.set_ylabel("reward per tick")
    earned.set_xlabel("time [s]")
    for panel in (measured, acted):
        panel.legend(loc="upper right", fontsize="small")
    figure.suptitle(title)
    figure.savefig(path, dpi=120)

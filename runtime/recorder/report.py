"""A recording as a picture, or as a page that explains itself."""

from __future__ import annotations

import base64
import html
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..errors import AndanteError
from ..states import State
from .recording import Recording
from .row import ROWS, STATES

if TYPE_CHECKING:
    from matplotlib.axes import Axes

POINTS = 4000
"""Drawn per line; of more, the smallest and the largest of every stretch are drawn."""
FORMATS = (".html", ".png")
"""By the ending of the file."""
COLOURS = {
    State.DISABLED: "0.95",
    State.WAIT_SENSORS: "0.85",
    State.START: "lightblue",
    State.READY: "lightcyan",
    State.RUN: "palegreen",
    State.STOP: "khaki",
    State.FALLBACK: "orange",
    State.FAULT: "tomato",
}
"""Of states."""
UNITS = {"joint_position": "rad or m", "joint_velocity": "rad/s or m/s", "angular_velocity": "rad/s"}
"""Of axes, by kind of signal."""


def write_report(recording: Recording, output: Path) -> None:
    """Plot a recording over time: states, measurements, actions, commands, ages and timings.

    Args:
        recording: with at least one tick.
        output: `.png`, or `.html` with what is known about the run too.

    Raises:
        AndanteError: another kind of file, nothing to plot, not writable, or the extra is not installed.
    """
    if output.suffix not in FORMATS:
        raise AndanteError(f"{output}: a report is one of {', '.join(FORMATS)}")
    if not len(recording.rows):
        raise AndanteError(f"{recording.where}: no ticks in it")
    picture = _draw(recording)
    if output.suffix == ".html":
        picture = _page(recording, picture).encode()
    try:
        output.write_bytes(picture)
    except OSError as error:
        raise AndanteError(f"{output}: {error.strerror}, cannot write the report") from None


def facts(recording: Recording) -> dict[str, str]:
    """What there is to say about a recording in few words."""
    header, counters = recording.header, recording.layout.names("counters")
    time_ns = recording.integers("time_ns")
    work, late = (recording.integers("timing", f"{name}_ns") * 1e-3 for name in ("work", "lateness"))
    told = {
        "robot model": header.robot_model,
        "policy digest": header.policy_digest,
        "profile digest": header.profile_digest,
        "execution": f"{header.mode}, s = {header.execution_horizon}, d = {header.inference_delay}, "
        f"{'asynchronous' if header.asynchronous else 'within the tick'}",
        "ticks": f"{len(recording.rows)} in {(time_ns[-1] - time_ns[0]) * 1e-9:.2f} s",
        "lateness": f"p50 {np.quantile(late, 0.5):.0f}, p99 {np.quantile(late, 0.99):.0f} us",
        "work": f"p50 {np.quantile(work, 0.5):.0f}, p99 {np.quantile(work, 0.99):.0f} us",
        "counters": ", ".join(f"{recording.integers('counters', name)[-1]} {name}" for name in counters),
        "versions": ", ".join(f"{name} {value}" for name, value in header.versions.items()),
    }
    return told | ({"damage": recording.damage} if recording.damage else {})


def _events(recording: Recording) -> list[tuple[float, str]]:
    """Seconds and words of everything that changed."""
    time_ns = recording.integers("time_ns")
    events, last = [], None
    for now_ns, status in zip(time_ns, recording.statuses, strict=True):
        if status is not last:
            words = [f"tick {status.tick}", status.state, status.fault, status.waiting, status.e_stop]
            events.append(((now_ns - time_ns[0]) * 1e-9, "; ".join(word for word in words if word)))
            last = status
    return events


def _panels(recording: Recording) -> Iterator[tuple[str, NDArray[np.float64], tuple[str, ...]]]:
    """Title, columns `[N, n]` and their names, of every plot."""
    names, numbers = recording.layout.names, recording.numbers
    for signal in names("signals"):
        yield f"{signal} {UNITS.get(signal, '')}", numbers("signals", signal), names("signals", signal)
    if names("wanted"):
        yield "operator's command", numbers("wanted"), names("wanted")
    for stage in names("action"):
        yield f"action, {stage}", numbers("action", stage), names("action", stage)
    for field in ROWS:
        if numbers("target", field).any():
            yield f"command: {field}", numbers("target", field), names("target", field)
    yield "norm of the memory", numbers("state_norm"), ("h",)
    yield "age ms", numbers("age_ms"), names("age_ms")
    timing = np.multiply(recording.integers("timing"), 1e-6, dtype=np.float64)
    yield "timing ms", timing, tuple(name.removesuffix("_ns") for name in names("timing"))


def _draw(recording: Recording) -> bytes:
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise AndanteError(
            f"a report needs {error.name}, which is not installed: in andante's folder: "
            "pip install '.[record]'"
        ) from None
    panels = list(_panels(recording))
    time_ns = recording.integers("time_ns")
    seconds = (time_ns - time_ns[0]) * 1e-9
    figure = Figure(figsize=(12, 1.8 * len(panels)), layout="constrained")
    for axes, (title, values, names) in zip(
        figure.subplots(len(panels), 1, sharex=True), panels, strict=True
    ):
        _shade(axes, recording, seconds)
        for column, name in enumerate(names):
            axes.plot(*_thin(seconds, values[:, column]), linewidth=0.8, label=name)
        axes.set_ylabel(title, rotation=0, ha="right", va="center")
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5), fontsize=6, ncols=1 + len(names) // 10)
    axes.set_xlabel("s")
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=100)
    return buffer.getvalue()


def _shade(axes: Axes, recording: Recording, seconds: NDArray[np.float64]) -> None:
    """The state as the ground's colour, the first tick of a fault as a line."""
    states = recording.integers("state")
    edges = np.flatnonzero(np.diff(states)) + 1
    for start, stop in zip([0, *edges], [*edges, len(states) - 1], strict=True):
        axes.axvspan(
            seconds[start],
            seconds[stop],
            color=COLOURS[STATES[states[start]]],
            linewidth=0,
            zorder=0,
            alpha=0.3,
        )
    fault = None
    for second, status in zip(seconds, recording.statuses, strict=True):
        if status.fault is not None and fault is None:
            axes.axvline(second, color="red", linewidth=1.0)
        fault = status.fault


def _thin(
    seconds: NDArray[np.float64], values: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    stretch = 2 * len(values) // POINTS
    if stretch < 2:
        return seconds, values
    count = len(values) // stretch
    blocks = values[: count * stretch].reshape(count, stretch)
    times = seconds[: count * stretch].reshape(count, stretch)
    ends = np.stack([np.fmin.reduce(blocks, 1), np.fmax.reduce(blocks, 1)], 1)
    return times[:, [0, stretch // 2]].ravel(), ends.ravel()


def _page(recording: Recording, picture: bytes) -> str:
    def table(rows: list[tuple[str, str]]) -> str:
        cells = "".join(
            f"<tr><th>{html.escape(key)}</th><td>{html.escape(value)}</td></tr>" for key, value in rows
        )
        return f"<table>{cells}</table>"

    events = [(f"{second:.3f} s", text) for second, text in _events(recording)]
    key = "".join(
        f'<span style="background:{"#" + 3 * f"{round(255 * float(c)):02x}" if c[0] == "0" else c}">'
        f"&nbsp;{state.value}&nbsp;</span> "
        for state, c in COLOURS.items()
    )
    title = html.escape(recording.where)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
        "<style>body{font-family:sans-serif;margin:2em}th{text-align:left;vertical-align:top;"
        "padding-right:1em}img{max-width:100%}</style>"
        f"<h1>{title}</h1>{table(list(facts(recording).items()))}<h2>What happened</h2>{table(events)}"
        f'<h2>Over time</h2><p>{key}</p><img alt="plots of the run" '
        f'src="data:image/png;base64,{base64.b64encode(picture).decode()}"></html>\n'
    )

"""What the page says, as HTML."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from ..contract import Contract, Record
from ..profile import Profile
from ..steps import EVENTS, Damping, Keep, Ladder, Track
from .messages import Snapshot

COLOURS = {"run": "#2b8a3e", "fallback": "#c92a2a", "fault": "#c92a2a", "disabled": "#495057"}
"""Of states."""
OTHER_COLOUR = "#1864ab"
"""Of all other states."""


def facts(snapshot: Snapshot, contract: Contract) -> str:
    """State, and why."""
    colour = COLOURS.get(snapshot.state, OTHER_COLOUR)
    seconds = snapshot.tick * contract.control_period_ns * 1e-9
    told = {
        "fault": snapshot.fault,
        "waiting": snapshot.waiting,
        "stopping": snapshot.stopping,
        "mode": snapshot.mode,
        "wanted": " ".join(f"{value:.4g}" for value in snapshot.wanted) or None,
        "time": f"{seconds:.1f} s",
        "counters": ", ".join(f"{name} {count}" for name, count in snapshot.counters.items() if count),
    }
    lines = [f"<b>{name}</b> {escape(text)}" for name, text in told.items() if text is not None]
    head = f'<span style="font-size: 1.6em; font-weight: bold; color: {colour}">{snapshot.state}</span>'
    return _block("<br/>".join([head, *lines]))


def reason(snapshot: Snapshot) -> str | None:
    """Why the controller is in its state, where that is not as it goes."""
    reasons = {
        "wait_sensors": snapshot.waiting,
        "stop": snapshot.stopping,
        "fallback": snapshot.fault,
        "fault": snapshot.fault,
    }
    return reasons.get(snapshot.state)


def fallback(profile: Profile, event: str | None) -> str:
    """The profile's table, with the row of `event` marked."""
    rows = []
    for name in EVENTS:
        steps = getattr(profile.fallback, name)
        if steps is None:
            continue
        tables = steps.items() if isinstance(steps, dict) else [("", steps)]
        told = "<br/>".join(escape(f"{state} {ladder_words(ladder)}".strip()) for state, ladder in tables)
        rows.append((f"<mark>{name}</mark>" if name == event else name, told))
    return _table((), rows)


def ladder_words(ladder: Ladder) -> str:
    """The steps of a ladder: `keep 2 ticks, hold 1 s, damping`."""
    return ", ".join(map(_step_words, ladder))


def _step_words(step: Record) -> str:
    name = str(step.__struct_config__.tag)
    if isinstance(step, Keep):
        return f"{name} {step.ticks} ticks"
    if isinstance(step, Track) and isinstance(step.pose, str):
        name = f"{name} {step.pose}"
    if isinstance(step, Damping) and step.gains != "damping":
        name = f"{name} {step.gains}"
    seconds = getattr(step, "duration_s", None)
    return name if seconds is None else f"{name} {seconds:g} s"


def measured(snapshot: Snapshot) -> str:
    """Signals, and how old they are."""
    rows = []
    for name, values in snapshot.values.items():
        age_ms = snapshot.ages_ms[name]
        numbers = " ".join(f"{value:.3f}" for value in values)
        rows.append((escape(name), "never" if age_ms is None else f"{age_ms:.1f}", numbers))
    return _table(("signal", "age [ms]", "values"), rows)


def command(snapshot: Snapshot, joints: Sequence[str]) -> str:
    """What the joints are told."""
    columns = zip(*snapshot.command.values(), strict=True)
    rows = [
        (escape(joint), *(f"{value:.3g}" for value in values))
        for joint, values in zip(joints, columns, strict=True)
    ]
    return _table(("joint", *snapshot.command), rows)


def timings(snapshot: Snapshot) -> str:
    """Histograms, side by side, from the shortest duration seen to the longest."""
    most = {name: max(1, *counts) for name, counts in snapshot.timings.items()}
    seen = [any(counts) for counts in zip(*snapshot.timings.values(), strict=True)]
    if not any(seen):
        return ""
    bins = range(seen.index(True), len(seen) - seen[::-1].index(True))
    rows = [
        (
            f"&lt; {_duration(1 << k)}" if k < len(seen) - 1 else "more",
            *(_bar(counts[k], most[name]) for name, counts in snapshot.timings.items()),
        )
        for k in bins
    ]
    return _table(("", *snapshot.timings), rows)


def log(lines: Iterable[str]) -> str:
    """What happened, newest first."""
    return _block("<br/>".join(map(escape, lines)))


def _duration(us: int) -> str:
    return f"{us} us" if us < 1024 else f"{us / 1000:.0f} ms"


def _bar(count: int, most: int) -> str:
    style = f"background: #74c0fc; width: {3.5 * count / most:.2f}em; display: inline-block"
    return f'<span style="{style}">&nbsp;</span> {count or ""}'


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    cells = [("th", head)] if head else []
    lines = [
        "".join(f'<{tag} style="text-align: left; padding-right: 0.8em">{cell}</{tag}>' for cell in row)
        for tag, row in [*cells, *(("td", row) for row in rows)]
    ]
    return _block(f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>")


def _block(content: str) -> str:
    return f'<div style="padding: 0 0.8em; font-size: 0.8em; overflow-x: auto">{content}</div>'

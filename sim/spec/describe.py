"""A task's table: sources, actions, units, reward, ends."""

from __future__ import annotations

from collections.abc import Iterator

from andante.runtime.contract import Source

from .task import TaskSpec


def describe(spec: TaskSpec) -> str:
    """The declaration as text, for `andante tasks NAME` and the task's docstring."""
    rows: list[tuple[str, ...]] = [("tensor", "direction", "element", "kind", "unit", "low", "high")]
    for source in spec.sources:
        rows += _source_rows(source)
    for term in spec.actions:
        rows += [
            (term.name, "action", joint, term.kind, term.unit, f"{low:g}", f"{high:g}")
            for joint, low, high in zip(term.joints, term.low, term.high, strict=True)
        ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]
    facts = {
        "robot model": spec.robot_name,
        "rate": f"{1 / spec.control_dt:g} Hz, {spec.decimation} physics steps per tick",
        "episode": f"{spec.episode_ticks} ticks ({spec.episode_ticks * spec.control_dt:g} s)",
        "start": "; ".join(_starts(spec)),
        "command": _command(spec),
        "reward": f"{spec.reward}, per tick",
        "ends early": spec.termination,
        "expected": _expected(spec),
    }
    lines += ["", *(f"{key + ':':<13}{value}" for key, value in facts.items() if value)]
    return "\n".join([f"{spec.name}: {spec.summary}", "", *lines])


def _source_rows(source: Source) -> list[tuple[str, ...]]:
    kind = source.kind if not source.frame else f"{source.kind} of {source.frame}"
    if source.history > 1:
        kind += f", {source.history} ticks"
    if source.period_ns:
        kind += f" of {source.period_ns * 1e-9:g} s"
    if source.kind == "command":
        return [
            (source.name, "source", part.name, kind, part.unit, f"{part.low:g}", f"{part.high:g}")
            for part in source.components
        ]
    return [(source.name, "source", element, kind, source.unit, "", "") for element in source.elements]


def _starts(spec: TaskSpec) -> Iterator[str]:
    if spec.base is not None:
        base = spec.base
        position = ", ".join(
            f"{middle:.4g} +- {spread:g}"
            for middle, spread in zip(base.position, base.position_spread, strict=True)
        )
        yield (
            f"{base.joint} at ({position}) m, yaw +- {base.yaw_spread:g}, tilt +- {base.tilt_spread:g}, "
            f"velocity +- {base.linear_spread:g} m/s and {base.angular_spread:g} rad/s"
        )
    for start in spec.start:
        yield (
            f"{start.joint} {start.position:.4g} +- {start.position_spread:g}, "
            f"velocity +- {start.velocity_spread:g}"
        )


def _expected(spec: TaskSpec) -> str:
    if spec.expected is None:
        return ""
    low, high = spec.expected
    return f"return {low:g} to {high:g} from `andante train {spec.name} --run-dir DIR`"


def _command(spec: TaskSpec) -> str:
    if spec.command is None:
        return ""
    seconds = spec.command.interval_ticks * spec.control_dt
    return f"drawn anew every {seconds:g} s, with a share of {spec.command.zero_probability:g} zero"

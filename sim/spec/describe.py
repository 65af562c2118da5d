"""A task's table: sources, actions, units, reward, ends."""

from __future__ import annotations

from .task import TaskSpec


def describe(spec: TaskSpec) -> str:
    """The declaration as text, for `andante tasks NAME` and the task's docstring."""
    table = [("tensor", "direction", "joint", "kind", "unit", "low", "high")]
    for source in spec.sources:
        table += [(source.name, "source", joint, source.kind, source.unit, "", "") for joint in source.joints]
    for term in spec.actions:
        table += [
            (term.name, "action", joint, term.kind, term.unit, f"{low:g}", f"{high:g}")
            for joint, low, high in zip(term.joints, term.low, term.high, strict=True)
        ]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = ["  ".join(map(str.ljust, row, widths)).rstrip() for row in table]
    facts = {
        "robot model": spec.robot_model,
        "rate": f"{1 / spec.control_dt:g} Hz, {spec.decimation} physics steps per tick",
        "episode": f"{spec.episode_ticks} ticks ({spec.episode_ticks * spec.control_dt:g} s)",
        "start": "; ".join(
            f"{start.joint} {start.position:.4g} +- {start.position_spread:g}, "
            f"velocity +- {start.velocity_spread:g}"
            for start in spec.start
        ),
        "reward": f"{spec.reward}, per tick",
        "ends early": spec.termination,
    }
    lines += ["", *(f"{key + ':':<13}{value}" for key, value in facts.items())]
    return "\n".join([f"{spec.name}: {spec.summary}", "", *lines])

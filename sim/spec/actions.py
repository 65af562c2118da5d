"""What a policy is told of its own actions, beside what its task has it told anyway."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec

from andante.runtime.contract import Source

from .task import Feature, TaskSpec

EXECUTED, COMMITTED = "executed_actions", "committed_actions"
"""Names of the sources, where the task has none of that kind."""


def with_actions(spec: TaskSpec, history: int = 0, committed: int = 0) -> TaskSpec:
    """The task with longer sources of actions, or more of them.

    Args:
        spec: Task.
        history: Ticks, of what was executed after limits.
        committed: Ticks from this one on, of what earlier decisions have fixed: at least the inference delay.
    """
    spec = _with_source(spec, EXECUTED, "executed_action", history, stage="after_limits")
    return _with_source(spec, COMMITTED, "committed_actions", committed)


def _with_source(spec: TaskSpec, name: str, kind: str, history: int, **options: Any) -> TaskSpec:
    if not history:
        return spec
    for i, source in enumerate(spec.sources):
        if source.kind == kind and source.joints == spec.action_joints:
            longer = msgspec.structs.replace(source, history=max(history, source.history))
            return replace(spec, sources=(*spec.sources[:i], longer, *spec.sources[i + 1 :]))
    source = Source(name=name, kind=kind, joints=spec.action_joints, unit="", history=history, **options)
    feature = Feature(name, offset=spec.action_middle, scale=tuple(1.0 / unit for unit in spec.action_unit))
    return replace(spec, sources=(*spec.sources, source), features=(*spec.features, feature))

"""Environments of other packages as tasks: `gym/<id>` (Gymnasium) and `popgym/<id>` (POPGym)."""

from __future__ import annotations

import importlib
import math
from typing import Any

import numpy as np

from andante.runtime.contract import ActionTerm
from andante.runtime.errors import AndanteError

from .probe import TICK_NS, reading, scores
from .task import Feature, TaskSpec

ENDLESS = 1000
"""Ticks after which an episode is cut whose environment declares no limit."""


def open_env(name: str) -> Any:
    """One environment of task `gym/<id>` or `popgym/<id>`.

    Raises:
        AndanteError: the package is not installed, has no such environment, or cannot open it.
    """
    family, _, env_id = name.partition("/")
    gymnasium = _package("gymnasium", name)
    if family == "popgym":
        _package("popgym", name)
        env_id = f"popgym-{env_id.removeprefix('popgym-')}"
    try:
        return gymnasium.make(env_id, disable_env_checker=True)
    except (gymnasium.error.Error, ImportError) as error:
        raise AndanteError(f"task {name}: {' '.join(str(error).split())}") from None


def foreign_spec(name: str) -> TaskSpec:
    """The declaration of `gym/<id>` or `popgym/<id>`, with shapes and limits as the environment tells them.

    Raises:
        AndanteError: see `open_env`; or observations or actions of a kind that a policy cannot take or give.
    """
    env = open_env(name)
    _check_spaces(name, env)
    raw = env.unwrapped
    declared = env.spec.max_episode_steps if env.spec else None
    tick_ns = _tick_ns(env)
    sources = [reading("observation", _flat_size(env.observation_space), tick_ns)]
    actions = _action_term(name, env.action_space)
    if needs_previous_action(env):
        sources.append(reading("previous_action", len(actions.joints), tick_ns))
    spec = TaskSpec(
        name=name,
        summary=f"{type(raw).__name__}, stepped one world after the other through its own interface",
        robot_model=name,
        control_period_ns=tick_ns,
        decimation=1,
        episode_ticks=declared or getattr(raw, "max_episode_length", None) or ENDLESS,
        sources=tuple(sources),
        features=tuple(Feature(source.name) for source in sources),
        actions=(actions,),
        start=(),
        reward="the environment's own",
        termination="the environment's own, or an observation or reward that is not finite",
        robot_licence="NOASSERTION",
    )
    env.close()
    return spec


def needs_previous_action(env: Any) -> bool:
    """Whether its observations mean nothing without the action that they answer (a POPGym attribute)."""
    return bool(getattr(env.unwrapped, "obs_requires_prev_action", False))


def choices(space: Any) -> list[int] | None:
    """How many values each discrete action of the space has; None for continuous ones."""
    if hasattr(space, "nvec"):
        return [int(count) for count in np.ravel(space.nvec)]
    return [int(space.n)] if hasattr(space, "n") else None


def _package(package: str, name: str) -> Any:
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        raise AndanteError(
            f"task {name} needs {error.name}, which is not installed: "
            "in andante's folder: pip install '.[gym]'"
        ) from None


def _check_spaces(name: str, env: Any) -> None:
    spaces = importlib.import_module("gymnasium.spaces")
    observation, action = env.observation_space, env.action_space
    if name.startswith("gym/"):
        for what, space in (("observation", observation), ("action", action)):
            if not isinstance(space, spaces.Box):
                raise AndanteError(f"task {name}: expected a Box {what} space, found {space}")
    if not observation.is_np_flattenable:
        raise AndanteError(f"task {name}: expected an observation space of fixed size, found {observation}")
    if not isinstance(action, spaces.Box | spaces.Discrete | spaces.MultiDiscrete):
        raise AndanteError(f"task {name}: expected Box, Discrete or MultiDiscrete actions, found {action}")
    if isinstance(action, spaces.Box) and not action.is_bounded():
        raise AndanteError(f"task {name}: expected actions with finite bounds, found {action}")


def _flat_size(space: Any) -> int:
    return int(importlib.import_module("gymnasium.spaces").flatdim(space))


def _action_term(name: str, space: Any) -> ActionTerm:
    counts = choices(space)
    if counts is not None:
        return scores(*(f"choice_{i}_{value}" for i, count in enumerate(counts) for value in range(count)))
    low, high = (tuple(np.ravel(bound).astype(float).tolist()) for bound in (space.low, space.high))
    return ActionTerm(
        name="action",
        kind="actuator",
        joints=tuple(f"action_{i}" for i in range(len(low))),
        unit="1",
        low=low,
        high=high,
        kp=(0.0,) * len(low),
        kd=(0.0,) * len(low),
        closed_by="drive",
    )


def _tick_ns(env: Any) -> int:
    """The environment's own time step, or its frame rate where it tells none, or a nominal one."""
    seconds = getattr(env.unwrapped, "dt", None)
    if not isinstance(seconds, int | float) and (fps := env.metadata.get("render_fps")):
        seconds = 1.0 / fps
    if isinstance(seconds, int | float) and math.isfinite(seconds) and 0.0 < seconds <= 1.0:
        return round(seconds * 1e9)
    return TICK_NS

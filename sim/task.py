"""The torch half of a task: functions over batched true state that know nothing of chunks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from itertools import pairwise
from typing import Any

import mujoco
import torch
from torch import Tensor

from .randomness import Draws
from .spec.task import TaskSpec

ORDERS = 3
"""Earlier actions that a task sees before each tick's own: enough for a third difference."""


class Sensors(Mapping[str, Tensor]):
    """Sensors by name, cut out of all values [B, n, N] when they are asked for: most are not."""

    def __init__(self, values: Tensor, columns: Mapping[str, slice]):
        self._values = values
        self._columns = columns

    def __getitem__(self, name: str) -> Tensor:
        return self._values[..., self._columns[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._columns)

    def __len__(self) -> int:
        return len(self._columns)

    def at(self, i: int) -> Sensors:
        """Those of tick i alone."""
        return Sensors(self._values[:, i : i + 1], self._columns)

    def together(self, names: Sequence[str]) -> Tensor:
        """Several side by side [B, n, k]; a view where they are neighbours."""
        columns = [self._columns[name] for name in names]
        if all(left.stop == right.start for left, right in pairwise(columns)):
            return self._values[..., columns[0].start : columns[-1].stop]
        return torch.cat([self._values[..., each] for each in columns], -1)


@dataclass(frozen=True)
class Ticks:
    """What n consecutive ticks of B worlds left behind; true values, float32 unless the task wants more, on
    the backend's device.

    For the critic and for what is measured, `command` is that of the *next* tick, as a decision there sees
    it. Where a world begins an episode, the environment makes one of these with n = 1 and `tick` 0.
    """

    qpos: Tensor
    """[B, n, nq] after the tick, in the order of the robot model's joints."""
    qvel: Tensor
    """[B, n, nv]."""
    sensors: Sensors
    """Every MuJoCo sensor by name [B, n, k]; of the tick's last physics step, so one physics step older."""
    actions: Tensor
    """[B, ORDERS + n, A], SI: the executed stream, with the ORDERS ticks before these in front."""
    command: Tensor
    """[B, n, k] in force during the tick; k = 0 without a command."""
    tick: Tensor
    """Ticks of the episode so far, this one included, int64 [B, n]."""
    variables: Mapping[str, Tensor]
    """The task's own variables [B, n, k] after each tick, see `Variables`."""
    qpos_before: Tensor = field(default_factory=lambda: torch.empty(0))
    """[B, n, nq] before the tick; at the start of an episode the same as `qpos`."""
    qvel_before: Tensor = field(default_factory=lambda: torch.empty(0))
    """[B, n, nv] before the tick."""
    shared: dict[str, Any] = field(default_factory=dict, init=False)
    """What the task's functions compute once for all of them; not of `command` or `variables`."""

    @property
    def action(self) -> Tensor:
        """[B, n, A], SI: executed at each tick."""
        return self.actions[:, ORDERS:]

    def action_difference(self, order: int) -> Tensor:
        """[B, n, A], SI: backward difference of that order of the executed stream, 1 to `ORDERS`."""
        return self.actions[:, ORDERS - order :].diff(n=order, dim=1)

    def given(self, **known: Any) -> Ticks:
        """The same ticks with another `command` or `variables`."""
        ticks = replace(self, **known)
        ticks.shared.update(self.shared)
        return ticks

    def at(self, i: int) -> Ticks:
        """Tick i alone, without variables."""
        now = slice(i, i + 1)
        return Ticks(
            qpos=self.qpos[:, now],
            qvel=self.qvel[:, now],
            sensors=self.sensors.at(i),
            actions=self.actions[:, i : i + ORDERS + 1],
            command=self.command[:, now],
            tick=self.tick[:, now],
            variables={},
            qpos_before=self.qpos_before[:, now],
            qvel_before=self.qvel_before[:, now],
        )


@dataclass(frozen=True)
class Variables:
    """What a task remembers from tick to tick (air times, a target): float32 per world, reset with it."""

    sizes: Mapping[str, int]
    start: Callable[[Tensor], Mapping[str, Tensor]]
    """uniform draws [B, draws] float64 -> {name: [B, size]} at the start of an episode."""
    advance: Callable[[Mapping[str, Tensor], Ticks], Mapping[str, Tensor]]
    """({name: [B, size]} before a tick, that tick alone (n = 1, with `variables` empty)) -> after it."""
    draws: int = 0
    """Uniform draws that `start` needs per world."""

    def begin(self, draws: Draws) -> Mapping[str, Tensor]:
        """{name: [B, size]} at the start of the episodes of `draws`."""
        if self.draws:
            return self.start(draws.uniform("variables", self.draws))
        return self.start(draws.world.new_empty(len(draws.world), 0, dtype=torch.float64))

    def over(self, before: Mapping[str, Tensor], ticks: Ticks) -> dict[str, Tensor]:
        """{name: [B, size]} before n ticks -> {name: [B, n, size]} after each."""
        if ticks.tick.shape[1] == 1:
            return {name: values[:, None] for name, values in self.advance(before, ticks).items()}
        now, history = dict(before), []
        for i in range(ticks.tick.shape[1]):
            now = dict(self.advance(now, ticks.at(i)))
            history.append(now)
        return {name: torch.stack([each[name] for each in history], 1) for name in now}


@dataclass(frozen=True)
class Levels:
    """How hard each world has it, int64 [B] from 0 to `count` - 1.

    Uniform when the environment starts; kept from episode to episode, and moved by how they went.
    """

    count: int
    move: Callable[[Mapping[str, Tensor], Tensor], Tensor]
    """(variables {name: [k, size]} at the end of k episodes, whether for good bool [k]) -> -1, 0 or 1 [k]."""
    place: Callable[[Tensor, Tensor], Tensor]
    """(levels [k], a uniform draw each [k]) -> the base's start, seen from the declared one, m [k, 2]."""


@dataclass(frozen=True)
class Functions:
    """A task's functions, made for one compiled model; each over `Ticks` -> [B, n, ...]."""

    reward: Callable[[Ticks], Mapping[str, Tensor]]
    """Terms of each tick's reward by name [B, n], weighted; the reward is their sum."""
    terminated: Callable[[Ticks], Tensor]
    """Whether the episode ends there for good, bool [B, n]."""
    critic: Callable[[Ticks], Tensor]
    """What the critic sees of the true state [B, n, C], of order one."""
    variables: Variables | None = None
    readings: Mapping[str, Callable[[Ticks], Tensor]] = field(default_factory=dict)
    """What sources of kind `reading` show [B, n, size], where no sensor and no variable has their name."""
    levels: Levels | None = None
    least_reward: float | None = None
    """The sum of the terms is clipped from below at this."""

    def score(self, ticks: Ticks) -> tuple[Tensor, Mapping[str, Tensor]]:
        """The reward of each tick [B, n], float32, and its terms."""
        terms = self.reward(ticks)
        # One after the other: the order of the sum must not depend on the number of worlds.
        total = reduce(torch.add, terms.values()).float()
        return total if self.least_reward is None else total.clamp(min=self.least_reward), terms


def sensor_columns(model: mujoco.MjModel) -> dict[str, slice]:
    """Where each sensor is in MuJoCo's `sensordata`."""
    sensors = map(model.sensor, range(model.nsensor))
    return {sensor.name: slice(sensor.adr[0], sensor.adr[0] + sensor.dim[0]) for sensor in sensors}


@dataclass(frozen=True)
class Task:
    """A declaration and what scores it."""

    spec: TaskSpec
    critic_size: int
    """C."""
    bind: Callable[[mujoco.MjModel], Functions]
    """Look indices up once, and give the functions."""
    dtype: torch.dtype = torch.float32
    """Of the true state in `Ticks`; float64 where the reward is a difference of positions."""

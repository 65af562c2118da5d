"""What an environment asks of the physics engine behind it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import mujoco
import numpy as np
import torch
from torch import Tensor

DERIVED_FROM = ("body_mass", "body_ipos", "dof_armature")
"""Arrays of a model from which MuJoCo derives others."""


def overwrite(model: mujoco.MjModel, arrays: Mapping[str, np.ndarray], i: int) -> None:
    """Give a model the values at `i` of arrays [k, ...] by name; `opt.` begins those of its options."""
    for name, values in arrays.items():
        owner, _, attribute = name.rpartition(".")
        getattr(model.opt if owner else model, attribute)[:] = values[i]


class Physics(NamedTuple):
    """What physics left behind; both are views that the next call of as many ticks overwrites."""

    states: Tensor
    """After each tick, float64 [B, n, S]."""
    sensors: Tensor
    """Of each tick's last physics step, so one step older, in the engine's precision [B, n, N]."""


class Backend(Protocol):
    """Steps B worlds; a state [time | qpos | qvel | ...] is all that the physics of one remembers."""

    device: torch.device
    """Where states, actions and sensors live."""
    model: mujoco.MjModel
    """Nominal."""
    state_size: int
    """S."""

    def separate(self) -> None:
        """Give every world a model of its own, for `write`."""
        ...

    def write(self, worlds: list[int], arrays: Mapping[str, np.ndarray]) -> None:
        """Give `worlds`, after `separate`, other values [k, ...] of arrays of their models, by name."""
        ...

    def initial_state(self, qpos: np.ndarray, qvel: np.ndarray) -> Tensor:
        """The states [k, S] of fresh worlds at qpos [k, nq] and qvel [k, nv]."""
        ...

    def advance(self, state: Tensor, actions: Tensor, forces: Mapping[int, Tensor] | None = None) -> Physics:
        """Run n ticks from `state` float64 [B, S] under `actions` [B, n, A], each held for its tick.

        `forces` [B, n, 6] act on bodies by id, along the world's axes, for their tick: N, then N m. Physics
        that had to stop shows in a time that stays behind.
        """
        ...

    def sense(self, state: Tensor, worlds: Tensor) -> Tensor:
        """Sensors of fresh `worlds` [k] at `state` float64 [k, S], without any actuation [k, N]."""
        ...

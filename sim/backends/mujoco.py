"""The C engine: `mujoco.rollout` over native threads, one call for any number of ticks."""

from __future__ import annotations

import os
from typing import NamedTuple

import mujoco
import mujoco.rollout
import numpy as np
import torch
from torch import Tensor

from ..spec.models import build_model
from ..spec.task import TaskSpec


class _Buffers(NamedTuple):
    control: np.ndarray
    physics: np.ndarray
    sensors: np.ndarray
    ticks: Tensor
    """View of `control` as [B, n, decimation, A]."""
    states: Tensor
    """View of `physics` at the ends of the ticks, [B, n, S]."""


class MujocoBackend:
    """Steps B worlds of one model; a state [time | qpos | qvel] is all that its physics remembers.

    MuJoCo's `sensordata` is one physics step older than the state, by definition; the tasks so far read only
    the state.
    """

    def __init__(self, spec: TaskSpec, num_worlds: int, threads: int | None):
        self.model = build_model(spec.robot_model, spec.actions, spec.control_period_ns, spec.decimation)
        self.decimation = spec.decimation
        self.num_worlds = num_worlds
        threads = len(os.sched_getaffinity(0)) if threads is None else threads
        self.state_size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        # A pool of one would only add the hand-over to it.
        self._rollout = mujoco.rollout.Rollout(nthread=threads if threads > 1 else 0)
        self._models = [self.model] * num_worlds
        self._data = [mujoco.MjData(self.model) for _ in range(threads)]
        self._buffers: dict[int, _Buffers] = {}

    def advance(self, state: Tensor, actions: Tensor) -> Tensor:
        """Run n ticks from `state` float64 [B, S] under `actions` [B, n, A], each held for its tick.

        Returns the states after each tick, float64 [B, n, S]: a view that the next call of this n overwrites.
        """
        buffers = self._buffers_for(actions.shape[1])
        buffers.ticks.copy_(actions.detach().unsqueeze(2))
        self._rollout.rollout(
            self._models,
            self._data,
            state.numpy(),
            buffers.control,
            skip_checks=True,
            nstep=buffers.control.shape[1],
            state=buffers.physics,
            sensordata=buffers.sensors,
        )
        return buffers.states

    def _buffers_for(self, n: int) -> _Buffers:
        if n not in self._buffers:
            shape = (self.num_worlds, n * self.decimation)
            control = np.zeros((*shape, self.model.nu))
            physics = np.zeros((*shape, self.state_size))
            sensors = np.zeros((*shape, self.model.nsensordata))
            ticks = torch.from_numpy(control).view(self.num_worlds, n, self.decimation, self.model.nu)
            states = torch.from_numpy(physics)[:, self.decimation - 1 :: self.decimation]
            self._buffers[n] = _Buffers(control, physics, sensors, ticks, states)
        return self._buffers[n]

"""The C engine: `mujoco.rollout` over native threads, one call for any number of ticks."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

import mujoco
import mujoco.rollout
import numpy as np
import torch
from torch import Tensor

from andante.runtime.errors import AndanteError

from ..spec.models import build_model
from ..spec.task import TaskSpec
from .base import DERIVED_FROM, Physics, overwrite

TENSORS_BYTES = 1000
"""Least that a world's rewards, observations and counters take."""
NO_ACTUATION = mujoco.mjtDisableBit.mjDSBL_ACTUATION.value
CONTROL = mujoco.mjtState.mjSTATE_CTRL.value
CONTROL_AND_FORCES = CONTROL | mujoco.mjtState.mjSTATE_XFRC_APPLIED.value


class _Buffers(NamedTuple):
    control: np.ndarray
    physics: np.ndarray
    sensors: np.ndarray
    actions: Tensor
    """View of `control` as [B, n, decimation, nu]."""
    forces: Tensor
    """View of `control` as [B, n, decimation, 6 nbody]; empty without forces."""
    result: Physics


class MujocoBackend:
    """The `base.Backend` of the C engine, in double precision."""

    device = torch.device("cpu")
    model: mujoco.MjModel
    """Nominal."""
    models: list[mujoco.MjModel]
    """Of each world: one for all, until a world is given its own copy with other values."""

    def __init__(self, spec: TaskSpec, num_worlds: int, threads: int | None):
        self.model = build_model(spec, visuals=False)
        self.decimation = spec.decimation
        threads = len(os.sched_getaffinity(0)) if threads is None else threads
        self.state_size = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        self._require_memory(num_worlds)
        self.models = [self.model] * num_worlds
        # A pool of one would only add the hand-over to it.
        self._alone = mujoco.rollout.Rollout(nthread=0)
        self._rollout = mujoco.rollout.Rollout(nthread=threads) if threads > 1 else self._alone
        self._data = [mujoco.MjData(self.model) for _ in range(threads)]
        self._rest = np.empty(self.state_size)
        mujoco.mj_getState(self.model, self._data[0], self._rest, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        columns = [self.model.actuator(name).id for name in spec.action_joints]
        self._columns = None if columns == list(range(self.model.nu)) else torch.tensor(columns)
        # By number of ticks and pushed bodies: the columns of all other bodies stay zero.
        self._buffers: dict[tuple[int, tuple[int, ...]], _Buffers] = {}

    def _require_memory(self, num_worlds: int) -> None:
        """Raise where not even one tick of so many worlds fits: the system would kill us without a word."""
        numbers = self.state_size + self.model.nsensordata + self.model.nu
        needed = num_worlds * (TENSORS_BYTES + 8 * self.decimation * numbers)
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        if needed > memory:
            raise AndanteError(
                f"num_worlds {num_worlds}: needs at least {needed / 1e9:.0f} GB of memory, "
                f"found {memory / 1e9:.0f} GB"
            )

    def separate(self) -> None:
        """Give every world a model of its own, for `write`."""
        self.models = [copy.copy(self.model) for _ in self.models]

    def write(self, worlds: list[int], arrays: Mapping[str, np.ndarray]) -> None:
        """Give `worlds`, after `separate`, other values [k, ...] of arrays of their models, by name."""
        derive = any(name in arrays for name in DERIVED_FROM)
        for i, world in enumerate(worlds):
            model = self.models[world]
            overwrite(model, arrays, i)
            if derive:
                mujoco.mj_setConst(model, self._data[0])

    def initial_state(self, qpos: np.ndarray, qvel: np.ndarray) -> Tensor:
        """The states [k, S] of fresh worlds at qpos [k, nq] and qvel [k, nv]."""
        states, nq, nv = np.tile(self._rest, (len(qpos), 1)), self.model.nq, self.model.nv
        states[:, 1 : 1 + nq] = qpos
        states[:, 1 + nq : 1 + nq + nv] = qvel
        return torch.from_numpy(states)

    def advance(self, state: Tensor, actions: Tensor, forces: Mapping[int, Tensor] | None = None) -> Physics:
        """Run n ticks from `state` float64 [B, S] under `actions` [B, n, A], each held for its tick.

        `forces` [B, n, 6] act on bodies by id, along the world's axes, for their tick: N, then N m.
        """
        forces = forces or {}
        key = (actions.shape[1], tuple(forces))
        if key not in self._buffers:
            self._buffers[key] = self._allocate(len(self.models), key[0], self.decimation, bool(forces))
        buffers = self._buffers[key]
        held = actions.detach().unsqueeze(2)
        if self._columns is None:
            buffers.actions.copy_(held)
        else:
            buffers.actions[..., self._columns] = held.double()
        for body, force in forces.items():
            buffers.forces[..., 6 * body : 6 * body + 6] = force.unsqueeze(2)
        self._run(len(self._data), self.models, state, buffers.control, buffers.physics, buffers.sensors)
        return buffers.result

    def sense(self, state: Tensor, worlds: Tensor) -> Tensor:
        """Sensors of fresh `worlds` [k] at `state` float64 [k, S], without any actuation: float64 [k, N].

        As `mj_forward` would give them: a physics step computes them from the state that it starts at.
        """
        models = [self.models[world] for world in worlds.tolist()]
        sizes = self.model.nu, self.state_size, self.model.nsensordata
        control, physics, sensors = (np.zeros((len(models), 1, size)) for size in sizes)
        # A world or two are not worth the hand-over to other threads.
        threads = len(self._data) if len(models) > len(self._data) else 1
        with _without_actuation(models):
            self._run(threads, models, state, control, physics, sensors)
        return torch.from_numpy(sensors[:, 0])

    def _run(
        self,
        threads: int,
        models: list[mujoco.MjModel],
        state: Tensor,
        control: np.ndarray,
        physics: np.ndarray,
        sensors: np.ndarray,
    ) -> None:
        (self._rollout if threads > 1 else self._alone).rollout(
            models,
            self._data[:threads],
            state.numpy(),
            control,
            control_spec=CONTROL if control.shape[-1] == self.model.nu else CONTROL_AND_FORCES,
            skip_checks=True,
            nstep=control.shape[1],
            state=physics,
            sensordata=sensors,
        )

    def _allocate(self, worlds: int, ticks: int, decimation: int, forced: bool) -> _Buffers:
        nu, steps = self.model.nu, ticks * decimation
        control = np.zeros((worlds, steps, nu + forced * 6 * self.model.nbody))
        physics = np.zeros((worlds, steps, self.state_size))
        sensors = np.zeros((worlds, steps, self.model.nsensordata))
        by_tick = torch.from_numpy(control).view(worlds, ticks, decimation, control.shape[-1])
        last = slice(decimation - 1, None, decimation)
        result = Physics(torch.from_numpy(physics)[:, last], torch.from_numpy(sensors)[:, last])
        return _Buffers(control, physics, sensors, by_tick[..., :nu], by_tick[..., nu:], result)


@contextmanager
def _without_actuation(models: list[mujoco.MjModel]) -> Iterator[None]:
    """Switch off the actuators of models, which may be the same one many times."""
    unique = {id(model): model for model in models}.values()
    for model in unique:
        model.opt.disableflags |= NO_ACTUATION
    try:
        yield
    finally:
        for model in unique:
            model.opt.disableflags &= ~NO_ACTUATION

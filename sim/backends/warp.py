"""MuJoCo Warp: all worlds in one launch, in single precision, on CUDA; on a CPU for tests.

On CUDA, results are not the same to the last bit from run to run: sums are made in whatever order the device
comes to.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from andante.runtime.errors import AndanteError

from ..spec.models import build_model
from ..spec.task import TaskSpec
from .base import DERIVED_FROM, Physics, overwrite

wp.config.log_level = wp.LOG_ERROR

NO_ACTUATION = mjw.DisableBit.ACTUATION.value
AUTORESET = mujoco.mjtDisableBit.mjDSBL_AUTORESET.value
"""MuJoCo Warp knows no automatic reset, nor the flag that switches it off."""
DERIVED = (
    "body_subtreemass",
    "body_invweight0",
    "dof_invweight0",
    "tendon_length0",
    "tendon_invweight0",
    "actuator_acc0",
)
"""What `mj_setConst` derives and MuJoCo Warp reads."""
UNREAD = ("body_sameframe", "geom_sameframe", "site_sameframe")
"""Arrays that MuJoCo Warp does not have: it looks at all positions."""
SHARED_ROOM = mjw.OverflowType.BROADPHASE | mjw.OverflowType.NARROWPHASE
OWN_ROOM = mjw.OverflowType.NEFC | mjw.OverflowType.NJMAX_NNZ | mjw.OverflowType.CCD
MOST_CONTACTS = 64
"""Of one world on average: bounds memory for robots that could touch themselves everywhere."""


class WarpBackend:
    """The `base.Backend` of MuJoCo Warp.

    A world whose contacts or constraints find no room is stopped for the rest of a call. Room for contacts is
    shared: where it is short, the worlds that hold the most are stopped; others may miss contacts for a tick.
    """

    device: torch.device
    model: mujoco.MjModel
    """Nominal."""

    def __init__(self, spec: TaskSpec, num_worlds: int, device: str):
        """B = `num_worlds` on a torch `device`, `cpu` or `cuda`.

        Raises:
            AndanteError: the model has something that MuJoCo Warp does not simulate.
        """
        self.device = torch.device(device)
        self.model = build_model(spec, visuals=False)
        self.decimation = spec.decimation
        nq, nv, na = self.model.nq, self.model.nv, self.model.na
        self.state_size = 1 + nq + nv + na
        full = mujoco.mj_stateSize(self.model, mujoco.mjtState.mjSTATE_FULLPHYSICS)
        if full != self.state_size:
            raise AndanteError(
                f"robot model {spec.robot_name!r}: its state has {full} numbers, of which MuJoCo Warp keeps "
                f"the {self.state_size} of time, positions, velocities and activations"
            )
        self._rest = mujoco.MjData(self.model).act.copy()
        self._dt = self.decimation * self.model.opt.timestep
        self._num_worlds = num_worlds
        columns = [self.model.actuator(name).id for name in spec.action_joints]
        self._columns = torch.tensor(columns, device=self.device)
        self._warp_device = wp.get_device(device)
        simulated = copy.copy(self.model)
        simulated.opt.disableflags &= ~AUTORESET
        with wp.ScopedDevice(self._warp_device):
            try:
                self._model = mjw.put_model(simulated)
            except (NotImplementedError, ValueError) as error:
                raise AndanteError(f"robot model {spec.robot_name!r}: MuJoCo Warp: {error}") from None
            self._model.opt.warn_overflow = 0
            if self._warp_device.is_cuda:
                self._model.opt.graph_conditional = wp.is_conditional_graph_supported()
            self._share, rows = room(self.model, self._model.nxn_geom_pair_filtered.numpy())
            self._data = mjw.make_data(simulated, num_worlds, nconmax=self._share, njmax=rows)
        data = self._data
        self._control, self._wrench = wp.to_torch(data.ctrl), wp.to_torch(data.xfrc_applied)
        self._sensors, self._overflow = wp.to_torch(data.sensordata), wp.to_torch(data.overflow)
        self._contacts, self._contact_world = wp.to_torch(data.nacon), wp.to_torch(data.contact.worldid)
        self._parts = [
            (slice(1, 1 + nq), wp.to_torch(data.qpos)),
            (slice(1 + nq, 1 + nq + nv), wp.to_torch(data.qvel)),
            (slice(1 + nq + nv, self.state_size), wp.to_torch(data.act)),
        ]
        self._graphs: dict[str, Any] = {}
        self._results: dict[int, Physics] = {}

    def separate(self) -> None:
        """Nothing: an array is given to every world when it is first written to."""

    def write(self, worlds: list[int], arrays: Mapping[str, np.ndarray]) -> None:
        """Give `worlds` other values [k, ...] of arrays of their models, by name."""
        index = torch.tensor(worlds, device=self.device)
        for name, values in {**arrays, **self._derive(len(worlds), arrays)}.items():
            if name not in UNREAD:
                own = self._own(name)
                own[index] = torch.from_numpy(values).to(own).reshape(len(worlds), *own.shape[1:])

    def initial_state(self, qpos: np.ndarray, qvel: np.ndarray) -> Tensor:
        """The states [k, S] of fresh worlds at qpos [k, nq] and qvel [k, nv]."""
        parts = (np.zeros((len(qpos), 1)), qpos, qvel, np.tile(self._rest, (len(qpos), 1)))
        return torch.from_numpy(np.hstack(parts)).to(self.device)

    def advance(self, state: Tensor, actions: Tensor, forces: Mapping[int, Tensor] | None = None) -> Physics:
        """See `base.Backend`."""
        n = actions.shape[1]
        states, sensors = result = self._result(n)
        tick = self._program("tick", self._tick)
        for columns, values in self._parts:
            values.copy_(state[:, columns])
        self._wrench.zero_()
        self._overflow.zero_()
        time = state[:, 0]
        for i in range(n):
            self._control[:, self._columns] = actions[:, i].to(self._control)
            for body, force in (forces or {}).items():
                self._wrench[:, body] = force[:, i]
            tick()
            time = torch.where(self._stopped(), time, time + self._dt)
            states[:, i, 0] = time
            for columns, values in self._parts:
                states[:, i, columns] = values
            sensors[:, i] = self._sensors
        return result

    def sense(self, state: Tensor, worlds: Tensor) -> Tensor:
        """See `base.Backend`; the other worlds are computed along, and what they hold is of no account."""
        forward = self._program("forward", self._forward)
        for columns, values in self._parts:
            values[worlds] = state[:, columns].to(values)
        self._wrench.zero_()
        forward()
        sensors: Tensor = self._sensors[worlds]
        return sensors

    def _tick(self) -> None:
        with wp.ScopedDevice(self._warp_device):
            for _ in range(self.decimation):
                mjw.step(self._model, self._data)

    def _forward(self) -> None:
        options = self._model.opt
        options.disableflags |= NO_ACTUATION
        with wp.ScopedDevice(self._warp_device):
            mjw.forward(self._model, self._data)
        options.disableflags &= ~NO_ACTUATION

    def _program(self, name: str, run: Callable[[], None]) -> Callable[[], None]:
        """What does the same as `run` in one launch of a graph, which is captured at first: data changes."""
        cuda = self._warp_device.is_cuda
        if name not in self._graphs:
            if cuda:
                torch.cuda.synchronize(self.device)
            run()  # compiles and loads, which a capture must not
            with wp.ScopedCapture(self._warp_device) as capture:
                run()
            wp.synchronize_device(self._warp_device)
            self._graphs[name] = capture.graph
        stream = wp.stream_from_torch(self.device) if cuda else None  # type: ignore[no-untyped-call]
        return partial(wp.capture_launch, self._graphs[name], stream=stream)

    def _stopped(self) -> Tensor:
        """Worlds that found no room since the overflow was cleared, bool [B]."""
        slot = torch.arange(len(self._contact_world), device=self.device)
        held = torch.zeros(self._num_worlds, dtype=torch.int64, device=self.device)
        held.index_add_(0, self._contact_world.long(), (slot < self._contacts).long())
        short = (self._overflow & int(SHARED_ROOM)) != 0
        stopped: Tensor = ((self._overflow & int(OWN_ROOM)) != 0) | (
            short & (held >= held.max().clamp(max=self._share))
        )
        return stopped

    def _result(self, n: int) -> Physics:
        if n not in self._results:
            self._results[n] = Physics(
                torch.zeros(self._num_worlds, n, self.state_size, dtype=torch.float64, device=self.device),
                torch.zeros(self._num_worlds, n, self.model.nsensordata, device=self.device),
            )
        return self._results[n]

    def _own(self, name: str) -> Tensor:
        """An array of the model [B, ...] that has values for each world, as a view."""
        owner, _, attribute = name.rpartition(".")
        holder = self._model.opt if owner else self._model
        array = getattr(holder, attribute)
        if array.shape[0] != self._num_worlds:
            shared = wp.to_torch(array)
            own = shared.repeat(self._num_worlds, *[1] * (shared.dim() - 1))
            array = wp.from_torch(own, dtype=array.dtype)
            setattr(holder, attribute, array)
            self._graphs.clear()
        view: Tensor = wp.to_torch(array)
        return view

    def _derive(self, count: int, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What follows for the models of `count` worlds from arrays [count, ...]."""
        if not any(name in arrays for name in DERIVED_FROM):
            return {}
        model = copy.copy(self.model)
        data, derived = mujoco.MjData(model), []
        for i in range(count):
            overwrite(model, arrays, i)
            mujoco.mj_setConst(model, data)
            derived.append([getattr(model, name).copy() for name in DERIVED])
        return {
            name: np.stack(values) for name, values in zip(DERIVED, zip(*derived, strict=True), strict=True)
        }


def room(model: mujoco.MjModel, pairs: np.ndarray) -> tuple[int, int]:
    """Contacts and rows of constraints that one world can have, its geoms colliding in `pairs` [P, 2].

    Of contacts `MOST_CONTACTS` at most; of a height field, as many as geoms much larger than its cells hardly
    have.
    """
    sphere = mujoco.mjtGeom.mjGEOM_SPHERE
    field = mujoco.mjtGeom.mjGEOM_HFIELD
    types = model.geom_type[pairs]
    single = (types == sphere).any(1) & (types != field).all(1)
    contacts = int(np.clip(np.where(single, 1, 8).sum(), 1, MOST_CONTACTS))
    condim = max(int(model.geom_condim.max(initial=1)), int(model.pair_dim.max(initial=1)))
    pyramid = model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    rows_per_contact = 2 * (condim - 1) if pyramid and condim > 1 else condim
    limits = int(model.jnt_limited.sum() + model.tendon_limited.sum())
    friction = int((model.dof_frictionloss > 0).sum() + (model.tendon_frictionloss > 0).sum())
    return contacts, limits + friction + 6 * model.neq + rows_per_contact * contacts

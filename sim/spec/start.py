"""Where episodes start: states of a model as a function of uniform draws, without torch."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import NDArray

from andante.runtime.errors import AndanteError

from .models import SCALAR_JOINTS
from .task import BaseStart, TaskSpec

Floats = NDArray[np.float64]
BASE_DRAWS = 12


class Start:
    """Initial states of a task's episodes; what the task does not place is where the model has it."""

    draws: int
    """Uniform draws that one state takes."""

    def __init__(self, model: mujoco.MjModel, spec: TaskSpec):
        """Look up where the joints are.

        Raises:
            AndanteError: the task does not place all hinges and slides of the model, in its order, or its
                base is no free joint of it.
        """
        joints = [model.joint(i) for i in range(model.njnt)]
        scalar = [joint for joint in joints if joint.type[0] in SCALAR_JOINTS]
        expected, found = [joint.name for joint in scalar], [start.joint for start in spec.start]
        if expected != found:
            raise AndanteError(f"task {spec.name!r}: start must list the joints {expected}, found {found}")
        self._model = model
        self._scalar_qpos = np.array([joint.qposadr[0] for joint in scalar], np.int64)
        self._scalar_qvel = np.array([joint.dofadr[0] for joint in scalar], np.int64)
        self._middle = np.array([start.position for start in spec.start])
        self._spread = np.array([[start.position_spread, start.velocity_spread] for start in spec.start])
        self._spread = self._spread.reshape(-1, 2).T
        self.draws = 2 * len(scalar)
        self._base = spec.base
        if spec.base is not None:
            free = {joint.name: joint for joint in joints if joint.type[0] == mujoco.mjtJoint.mjJNT_FREE}
            if spec.base.joint not in free:
                raise AndanteError(
                    f"robot model {spec.robot_name!r} has no free joint {spec.base.joint!r} (base of task "
                    f"{spec.name!r}); it has: {', '.join(free)}"
                )
            self._base_qpos = int(free[spec.base.joint].qposadr[0])
            self._base_qvel = int(free[spec.base.joint].dofadr[0])
            self.draws += BASE_DRAWS

    def __call__(self, uniform: Floats, shift: Floats | None = None) -> tuple[Floats, Floats]:
        """Draws [k, draws] from [0, 1) -> qpos [k, nq], qvel [k, nv], in MuJoCo's order and convention.

        `shift` [k, 2] moves the base along the world's x and y, m.
        """
        noise, joints = 2.0 * uniform - 1.0, len(self._middle)
        qpos = np.tile(self._model.qpos0, (len(noise), 1))
        qvel = np.zeros((len(noise), self._model.nv))
        qpos[:, self._scalar_qpos] = self._middle + self._spread[0] * noise[:, :joints]
        qvel[:, self._scalar_qvel] = self._spread[1] * noise[:, joints : 2 * joints]
        if self._base is not None:
            at, pace = (
                slice(self._base_qpos, self._base_qpos + 7),
                slice(self._base_qvel, self._base_qvel + 6),
            )
            qpos[:, at], qvel[:, pace] = self._place(self._base, noise[:, 2 * joints :], shift)
        return qpos, qvel

    def _place(self, base: BaseStart, noise: Floats, shift: Floats | None) -> tuple[Floats, Floats]:
        position = np.array(base.position) + np.array(base.position_spread) * noise[:, :3]
        if shift is not None:
            position[:, :2] += shift
        position[:, 2] += surface_height(self._model, position[:, :2])
        yaw = base.yaw_spread * noise[:, 3]
        pitch, roll = base.tilt_spread * noise[:, 4], base.tilt_spread * noise[:, 5]
        linear, angular = base.linear_spread * noise[:, 6:9], base.angular_spread * noise[:, 9:12]
        return np.hstack((position, _quaternion(yaw, pitch, roll))), np.hstack((linear, angular))


def surface_height(model: mujoco.MjModel, xy: Floats) -> Floats:
    """Height of the terrain at points [k, 2], m: the highest corner of the height field's cell; else 0."""
    height = np.zeros(len(xy))
    if model.nhfield == 0:
        return height
    for geom in np.flatnonzero(model.geom_type == mujoco.mjtGeom.mjGEOM_HFIELD):
        field = model.geom_dataid[geom]
        rows, columns = model.hfield_nrow[field], model.hfield_ncol[field]
        size, first = model.hfield_size[field], model.hfield_adr[field]
        grid = model.hfield_data[first : first + rows * columns].reshape(rows, columns)
        share = (xy - model.geom_pos[geom, :2]) / (2.0 * size[:2]) + 0.5
        cell = share * (columns - 1, rows - 1)
        low = np.clip(np.floor(cell).astype(np.int64), 0, (columns - 2, rows - 2))
        corners = [grid[low[:, 1] + i, low[:, 0] + j] for i in (0, 1) for j in (0, 1)]
        height = np.maximum(height, model.geom_pos[geom, 2] + size[2] * np.max(corners, axis=0))
    return height


def _quaternion(yaw: Floats, pitch: Floats, roll: Floats) -> Floats:
    """w, x, y, z [k, 4] of a roll about x, then a pitch about y, then a yaw about z, of the world's axes."""
    (cy, cp, cr), (sy, sp, sr) = (trig(np.stack((yaw, pitch, roll)) / 2) for trig in (np.cos, np.sin))
    return np.stack(
        (
            cy * cp * cr + sy * sp * sr,
            cy * cp * sr - sy * sp * cr,
            cy * sp * cr + sy * cp * sr,
            sy * cp * cr - cy * sp * sr,
        ),
        axis=1,
    )

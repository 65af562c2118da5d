"""A robot in the browser, drawn from its model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import mujoco
import numpy as np
import viser
from mjviser import ViserMujocoScene

from andante.runtime.contract import Contract
from andante.runtime.profile import Profile

from .spec import get_spec
from .spec.models import build_model

FAR = 10.0
"""How far from the ground a robot is still lowered onto it, m."""


class Scene:
    """What MuJoCo's own viewer would show of `model`, and switches for it."""

    def __init__(self, server: viser.ViserServer, model: mujoco.MjModel):
        """Add it to the server's pages."""
        self._scene = ViserMujocoScene(server, model, num_envs=1)
        # The default draws from the page's thread, and MuJoCo's data belongs to ours.
        self._scene.set_refresh_handler(lambda: None)
        with server.gui.add_folder("View", expand_by_default=False):
            self._scene.create_scene_gui(camera_distance=min(2.0 * model.stat.extent, 3.0))
            self._scene.create_overlay_gui()

    @property
    def outdated(self) -> bool:
        """Whether a switch has been moved since it was drawn last."""
        return self._scene.needs_update

    def draw(self, data: mujoco.MjData) -> None:
        """Show how things are; `data` must be consistent (`mj_forward`)."""
        self._scene.needs_update = False
        self._scene.update_from_mjdata(data)


class MeasuredScene:
    """A robot as its sensors see it.

    Joints are where they are measured, the base leans as it is measured, and it stands on the ground where
    its position is not measured.
    """

    data: mujoco.MjData

    def __init__(self, server: viser.ViserServer, contract: Contract, profile: Profile):
        """Build the model that the policy was trained in.

        Raises:
            AndanteError: the task or the robot model is unknown, or has not the profile's joints.
        """
        spec = get_spec(contract.task)
        model = self._model = build_model(spec)
        self.data = mujoco.MjData(model)
        self._qpos = np.array([model.joint(name).qposadr[0] for name in profile.joint_names])
        self._scale = np.array([joint.scale for joint in profile.joints])
        self._offset = np.array([joint.zero_offset for joint in profile.joints])
        self._base = None
        if spec.base is not None:
            self._base = _Base(model, spec.base.joint, profile)
        self._scene = Scene(server, model)
        self._shown = np.empty(0)

    def show(self, values: Mapping[str, Sequence[float]]) -> None:
        """Draw it from the signals, in the robot's own convention; all of them finite."""
        self.data.qpos[self._qpos] = (np.array(values["joint_position"]) - self._offset) / self._scale
        if self._base is not None:
            self._base.place(self.data, values)
        if self._scene.outdated or not np.array_equal(self.data.qpos, self._shown):
            self._shown = self.data.qpos.copy()
            mujoco.mj_forward(self._model, self.data)
            self._scene.draw(self.data)


class _Base:
    """Where a floating base is, as far as it is measured."""

    def __init__(self, model: mujoco.MjModel, joint: str, profile: Profile):
        self._model = model
        begin = model.joint(joint).qposadr[0]
        self._position, self._rotation = slice(begin, begin + 3), slice(begin + 3, begin + 7)
        site = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_SITE, profile.base or "")
        self._sensor_at = model.site_pos[site] if site >= 0 else np.zeros(3)
        turned = model.site_quat[site] if site >= 0 else np.array([1.0, 0.0, 0.0, 0.0])
        quality = profile.signals.get("orientation")
        self._turned = np.empty(4)
        """From the sensor's frame to the base's."""
        mujoco.mju_mulQuat(self._turned, turned, np.array((quality and quality.mounting) or (1, 0, 0, 0.0)))
        floor = (int(mujoco.mjtGeom.mjGEOM_PLANE), int(mujoco.mjtGeom.mjGEOM_HFIELD))
        touching = (model.geom_contype != 0) | (model.geom_conaffinity != 0)
        self._floors = np.flatnonzero(np.isin(model.geom_type, floor) & (model.geom_bodyid == 0))
        self._solids = np.flatnonzero(touching & (model.geom_bodyid != 0))

    def place(self, data: mujoco.MjData, values: Mapping[str, Sequence[float]]) -> None:
        position, rotation = data.qpos[self._position], data.qpos[self._rotation]
        if "orientation" in values:
            mujoco.mju_mulQuat(rotation, np.array(values["orientation"]), self._turned * (1, -1, -1, -1))
            mujoco.mju_normalize4(rotation)
        if "position" in values:
            reached = np.empty(3)
            mujoco.mju_rotVecQuat(reached, self._sensor_at, rotation)
            position[:] = np.array(values["position"]) - reached
            return
        mujoco.mj_kinematics(self._model, data)
        gaps = [
            mujoco.mj_geomDistance(self._model, data, floor, solid, FAR, None)
            for floor in self._floors
            for solid in self._solids
        ]
        position[2] -= min(gaps, default=0.0)

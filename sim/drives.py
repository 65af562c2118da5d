"""The drives of a simulated robot: they close the loop of a `JointCommand` at every physics step."""

from __future__ import annotations

import mujoco
import numpy as np

from andante.runtime.command import JointCommand
from andante.runtime.profile import Profile


class Drives:
    """Makes actuators obey commands: torque = kp (q* - q) + kd (dq* - dq) + tau_ff, within effort limits.

    A command becomes the parameters of MuJoCo's affine actuators (force = gain ctrl + bias . [1, q, dq]), so
    that the engine does the work, bit-equal to the actuators of training. With `pd_loop: host`, only `tau_ff`
    arrives.
    """

    def __init__(self, model: mujoco.MjModel, profile: Profile):
        """Turn the actuators of `model` into drives with the profile's effort limits."""
        self._model = model
        self._closes_loop = profile.pd_loop == "drive"
        self._ids = np.array([model.actuator(joint.name).id for joint in profile.actuated])
        # Reading per radian of the joint; torque of the joint per torque of the drive.
        self._scale = np.array([joint.scale for joint in profile.actuated], np.float64)
        self._offset = np.array([joint.zero_offset for joint in profile.actuated])
        effort = np.array([joint.effort for joint in profile.actuated], np.float64) * np.abs(self._scale)
        model.actuator_gaintype[:] = mujoco.mjtGain.mjGAIN_FIXED
        model.actuator_biastype[:] = mujoco.mjtBias.mjBIAS_AFFINE
        model.actuator_ctrllimited[:] = False
        model.actuator_forcelimited[:] = True
        model.actuator_forcerange[self._ids] = np.stack((-effort, effort), 1)

    def release(self, data: mujoco.MjData) -> None:
        """No torque."""
        data.ctrl[:] = 0.0
        self._model.actuator_gainprm[:, 0] = 0.0
        self._model.actuator_biasprm[:, :3] = 0.0

    def obey(self, data: mujoco.MjData, command: JointCommand) -> None:
        """Take over a command; mode `disabled` is no torque."""
        self.release(data)
        if command.mode == "disabled":
            return
        bias = self._model.actuator_biasprm
        bias[self._ids, 0] = self._scale * command.tau_ff
        if self._closes_loop:
            kp, kd = command.kp * np.square(self._scale), command.kd * np.square(self._scale)
            data.ctrl[self._ids] = (command.q - self._offset) / self._scale
            self._model.actuator_gainprm[self._ids, 0] = kp
            bias[self._ids, 0] += command.kd * self._scale * command.dq
            bias[self._ids, 1] = -kp
            bias[self._ids, 2] = -kd

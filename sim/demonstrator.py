"""A scripted demonstrator of `arm-push`: good episodes to learn from where the reward alone is too sparse."""

from __future__ import annotations

import mujoco
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .spec.arm import POSITION_TARGETS
from .spec.arm_push import GOAL_RADIUS, RADIUS
from .spec.models import ROBOTS

Vector = NDArray[np.float64]

TOOL_RADIUS = 0.015
LOW, HIGH = 0.025, 0.1
"""Height of the tip when it pushes, and when it passes over the puck, m."""
GAP = 0.025
"""Between the tool and the puck where the tool comes down, m."""
LATERAL = 0.012
"""A tool further beside the line through puck and target takes a new run, m."""
REACH = 0.05
"""How far ahead of the tip its next position is set, m: its speed."""


class Demonstrator:
    """Brings the tool behind the puck, as the target sees it, and pushes it there; anew if it slips off.

    An action depends on joint positions, puck and target at its tick alone. Acts in any number of worlds.
    """

    def __init__(self) -> None:
        self._kinematics = Kinematics()
        self._low, self._high = np.array(POSITION_TARGETS.low), np.array(POSITION_TARGETS.high)

    def decide(self, sources: dict[str, Tensor]) -> Tensor:
        """Sources {name: [B, n]} of `arm-push` -> the next action [B, 1, 6], rad."""
        names = ("joint_position", "puck_position", "target")
        worlds = zip(*(sources[name].double().cpu().numpy() for name in names), strict=True)
        actions = np.stack([self._act(*world) for world in worlds])
        return torch.from_numpy(actions).to(sources["target"])[:, None]

    def _act(self, joints: Vector, puck: Vector, target: Vector) -> Vector:
        tip = self._kinematics.tip(joints)
        wanted = next_tip(tip, puck[:2], target)
        return np.clip(self._kinematics.reach(joints, wanted), self._low, self._high)


def next_tip(tip: Vector, puck: Vector, target: Vector) -> Vector:
    """Where the tip should go next [3], from where it is [3], the puck [2] and the target [2], m."""
    way = target - puck
    left = float(np.linalg.norm(way))
    if left < GOAL_RADIUS / 2:
        return np.array([*tip[:2], HIGH])
    ahead = way / left
    beside = np.array([-ahead[1], ahead[0]])
    along, lateral = (tip[:2] - puck) @ ahead, (tip[:2] - puck) @ beside
    contact = RADIUS + TOOL_RADIUS
    behind = puck - (contact + GAP) * ahead
    if along < -contact / 2 and abs(lateral) < LATERAL and tip[2] < HIGH / 2:
        step = min(REACH, left / 2 + max(0.0, float(-along) - contact))
        return np.array([*(tip[:2] + step * ahead - 2 * lateral * beside), LOW])
    off = behind - tip[:2]
    distance = float(np.linalg.norm(off))
    if distance < LATERAL / 2:
        return np.array([*behind, LOW])
    if tip[2] < 0.8 * HIGH:
        return np.array([*tip[:2], HIGH])
    return np.array([*(tip[:2] + off * min(1.0, REACH / distance)), HIGH])


class Kinematics:
    """The arm's forward and inverse kinematics, and the torque that carries it."""

    def __init__(self) -> None:
        self._model = mujoco.MjModel.from_xml_path(str(ROBOTS / "arm.xml"))
        self._data = mujoco.MjData(self._model)
        self._tip = self._model.site("tip").id
        self._jacobian = np.zeros((6, self._model.nv))
        self._kp = np.array(POSITION_TARGETS.kp)

    def tip(self, joints: Vector) -> Vector:
        """Position of the tip [3], m, at joint positions [6], rad."""
        self._data.qpos[:] = joints
        mujoco.mj_kinematics(self._model, self._data)
        return np.array(self._data.site_xpos[self._tip])

    def reach(self, joints: Vector, tip: Vector) -> Vector:
        """Position targets [6], rad, that hold the tip there with the tool hanging down.

        Damped least squares from `joints` on; then as much more as gravity takes from the drives.
        """
        joints = joints.copy()
        for _ in range(4):
            found = self.tip(joints)
            mujoco.mj_comPos(self._model, self._data)
            mujoco.mj_jacSite(self._model, self._data, self._jacobian[:3], self._jacobian[3:], self._tip)
            axis = self._data.site_xmat[self._tip].reshape(3, 3)[:, 2]
            error = np.concatenate((tip - found, 0.3 * np.cross(axis, (0.0, 0.0, -1.0))))
            jacobian = self._jacobian * np.array([1.0, 1.0, 1.0, 0.3, 0.3, 0.3])[:, None]
            square = jacobian @ jacobian.T + 1e-4 * np.eye(6)
            joints += jacobian.T @ np.linalg.solve(square, error)
        self._data.qpos[:] = joints
        mujoco.mj_forward(self._model, self._data)
        return np.asarray(joints + self._data.qfrc_bias / self._kp)

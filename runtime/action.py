"""From an action in the policy's convention to a command in the robot's, by maps made once."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .command import JointCommand
from .contract import Contract
from .profile import Profile


class ActionMap:
    """Puts every column of the action where its joint is."""

    def __init__(self, contract: Contract, profile: Profile) -> None:
        """Make the map; contract and profile must fit each other."""
        columns = {
            joint: (term.kind, term.kp[i], term.kd[i])
            for term in contract.actions
            for i, joint in enumerate(term.joints)
        }
        joints = profile.actuated
        # Rows tau_ff, q, dq; then kp, kd: as in `JointCommand.rows`.
        self._columns = np.array([[contract.action_joints.index(joint.name) for joint in joints]] * 3)
        self._values, self._slopes, self._offsets = np.zeros((3, 3, len(joints)))
        self._gains = np.zeros((2, len(joints)))
        for j, joint in enumerate(joints):
            kind, kp, kd = columns[joint.name]
            row = ("effort", "position", "velocity").index(kind)
            self._slopes[row, j] = joint.sign / joint.gear_ratio if kind == "effort" else joint.scale
            self._offsets[row, j] = joint.zero_offset if kind == "position" else 0.0
            # Power is the same on both sides of a gear.
            self._gains[:, j] = np.array([kp, kd]) / joint.gear_ratio**2
        self._no_target = np.array([columns[joint.name][0] != "position" for joint in joints])
        self._any_without = bool(self._no_target.any())

    def fill(self, command: JointCommand, action: NDArray[np.float64], q: NDArray[np.float64]) -> None:
        """Fill a command from an action `[A]`, SI units; `q` `[Ja]` is where the joints are."""
        action.take(self._columns, None, self._values, "clip")
        np.multiply(self._slopes, self._values, out=self._values)
        np.add(self._values, self._offsets, out=command.targets)
        if self._any_without:
            np.copyto(command.q, q, where=self._no_target)
        command.gains[:] = self._gains
        command.mode = "track"

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
            joint: (term.kind == "effort", term.kp[i], term.kd[i])
            for term in contract.actions
            for i, joint in enumerate(term.joints)
        }
        order = [joint.name for joint in profile.actuated]
        self._column = np.array([contract.action_joints.index(name) for name in order])
        self._effort = np.array([columns[name][0] for name in order])
        # An effort column has no position to hold: gains would add torque that training did not have.
        self._kp = np.array([0.0 if columns[name][0] else columns[name][1] for name in order])
        self._kd = np.array([0.0 if columns[name][0] else columns[name][2] for name in order])
        self._sign = np.array([joint.sign for joint in profile.actuated], np.float64)
        self._offset = np.array([joint.zero_offset for joint in profile.actuated])
        self._values = np.zeros(len(order))

    def fill(self, command: JointCommand, action: NDArray[np.float64], q: NDArray[np.float64]) -> None:
        """Fill a command from an action `[A]`, SI units; `q` `[Ja]` is where the joints are."""
        np.take(action, self._column, out=self._values)
        np.multiply(self._values, self._sign, out=self._values)
        command.set_track(self._values, 0.0, self._kp, self._kd)
        np.add(command.q, self._offset, out=command.q)
        np.copyto(command.q, q, where=self._effort)
        np.copyto(command.tau_ff, self._values, where=self._effort)

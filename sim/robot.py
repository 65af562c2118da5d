"""The simulated robot: the physics of training behind the interface of a real robot. No torch in here."""

from __future__ import annotations

import mujoco
import numpy as np
from numpy.typing import ArrayLike

from andante.runtime.command import FIELDS, JointCommand, Sample
from andante.runtime.contract import Contract
from andante.runtime.errors import AndanteError
from andante.runtime.profile import Profile, check_fit

from .drives import Drives
from .spec import get_spec
from .spec.models import build_model


class SimRobot:
    """A robot in MuJoCo that advances in lockstep: each command moves it by the tick that it is for, and its
    clock is what has been simulated.

    For the same torques it is bit-equal to the worlds of training. `model` and `data` are there for viewers.
    """

    model: mujoco.MjModel
    data: mujoco.MjData

    def __init__(self, contract: Contract, profile: Profile, seed: int = 0):
        """Put the robot where its task starts.

        Args:
            contract: of the policy; says which physics it was trained in.
            profile: of the robot; says in which convention it talks.
            seed: of the initial state.

        Raises:
            AndanteError: contract and profile do not fit, or the task, the robot model or a joint is unknown.
        """
        check_fit(contract, profile)
        self.name = "sim"
        self.joints = profile.joint_names
        self.model = build_model(
            contract.robot_model, contract.actions, contract.control_period_ns, contract.decimation
        )
        known = [self.model.joint(i).name for i in range(self.model.njnt)]
        for joint in self.joints:
            if joint not in known:
                raise AndanteError(
                    f"robot model {contract.robot_model!r} has no joint {joint!r}, which the profile names; "
                    f"joints: {', '.join(known)}"
                )
        self.data = mujoco.MjData(self.model)
        self._drives = Drives(self.model, profile)
        self.carries = frozenset(FIELDS) if profile.pd_loop == "drive" else frozenset({"tau_ff"})
        self._decimation = contract.decimation
        self._period_ns = contract.control_period_ns
        self._qpos = np.array([self.model.joint(name).qposadr[0] for name in self.joints])
        self._qvel = np.array([self.model.joint(name).dofadr[0] for name in self.joints])
        self._sign = np.array([joint.sign for joint in profile.joints], np.float64)
        self._offset = np.array([joint.zero_offset for joint in profile.joints])
        self._sample = Sample.allocate(profile.signals, len(self.joints))
        self._now_ns = 0
        start = get_spec(contract.task).start
        noise = np.random.default_rng(seed).uniform(-1.0, 1.0, (len(start), 2))
        self.set_state(
            [joint.position + joint.position_spread * x for joint, (x, _) in zip(start, noise, strict=True)],
            [joint.velocity_spread * v for joint, (_, v) in zip(start, noise, strict=True)],
        )

    def set_state(self, qpos: ArrayLike, qvel: ArrayLike) -> None:
        """Move the robot to `qpos` [nq] and `qvel` [nv] (MuJoCo's order and convention), without torque."""
        self.data.qpos[:] = qpos
        self.data.qvel[:] = qvel
        self._drives.release(self.data)
        mujoco.mj_forward(self.model, self.data)
        self._tick: int | None = None
        self._valid_ns = 0

    def read(self) -> Sample:
        """The state now, in the robot's convention; the same object every time."""
        readings = {
            "joint_position": self._sign * self.data.qpos[self._qpos] + self._offset,
            "joint_velocity": self._sign * self.data.qvel[self._qvel],
        }
        self._sample.now_ns = self._now_ns
        for signal, values in self._sample.values.items():
            np.copyto(values, readings[signal])
            self._sample.received_ns[signal] = self._sample.now_ns
        return self._sample

    def write(self, command: JointCommand) -> None:
        """Simulate the tick of `command`, and before it the ticks that were skipped since the last one.

        A skipped tick goes on under the last command while that is valid, then without torque. A tick that is
        not later than the last one begins a new count.
        """
        skipped = 0 if self._tick is None else max(0, command.tick - self._tick - 1)
        obeyed = min(skipped, max(0, -(-self._valid_ns // self._period_ns) - 1))
        self._advance(obeyed)
        if skipped > obeyed:
            self._drives.release(self.data)
            self._advance(skipped - obeyed)
        self._drives.obey(self.data, command)
        self._advance(1)
        self._tick = command.tick
        self._valid_ns = command.valid_for_ns

    def close(self) -> None:
        """Nothing is held."""

    def _advance(self, ticks: int) -> None:
        if ticks:
            mujoco.mj_step(self.model, self.data, ticks * self._decimation)
            self._now_ns += ticks * self._period_ns

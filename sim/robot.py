"""The simulated robot: the physics of training behind the interface of a real robot. No torch in here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import mujoco
import numpy as np
from numpy.typing import ArrayLike, NDArray

from andante.runtime.command import FIELDS, JointCommand, Sample
from andante.runtime.contract import SOURCE_KINDS, Contract, Source
from andante.runtime.errors import AndanteError
from andante.runtime.profile import Profile, check_fit

from .drives import Drives
from .spec import get_spec
from .spec.models import SENSORS, build_model
from .spec.start import Start
from .spec.task import TaskSpec

if TYPE_CHECKING:
    from .trial import TrialRobot

Reading = Callable[[], NDArray[np.float64]]
WARM = 25.0
"""Temperature of every joint, degrees Celsius."""
CHARGED = 1.25
"""Battery voltage, in units of the lowest that the profile allows."""


class SimRobot:
    """A robot in MuJoCo that advances in lockstep: each command moves it by the tick that it is for, and its
    clock is what has been simulated.

    For the same torques it is bit-equal to the worlds of training, and what it measures is what they observe:
    joints as they are, other signals one physics step older. `model` and `data` are there for viewers.
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
            AndanteError: contract and profile do not fit, the task, the robot model, a joint or a body is
                unknown, or the seed is negative.
        """
        if seed < 0:
            raise AndanteError(f"seed must not be negative, found {seed}")
        check_fit(contract, profile)
        self.name = "sim"
        self.joints = profile.joint_names
        spec = _measured_by(profile, get_spec(contract.task), contract)
        self.model = build_model(spec)
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
        commands = [source for source in contract.sources if source.kind == "command"]
        self._sample = Sample.allocate(
            profile.signals, len(self.joints), len(commands[0].elements) if commands else 0
        )
        self._dofs = np.array([self.model.joint(name).dofadr[0] for name in self.joints])
        self._scale = np.array([joint.scale for joint in profile.joints], np.float64)
        self._readings = {signal: self._reading(signal, profile) for signal in profile.signals}
        self._now_ns = 0
        start = Start(self.model, spec)
        qpos, qvel = start(np.random.default_rng(seed).uniform(size=(1, start.draws)))
        self.set_state(qpos[0], qvel[0])

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
        self._sample.now_ns = self._now_ns
        for signal, read in self._readings.items():
            np.copyto(self._sample.values[signal], read())
            self._sample.received_ns[signal] = self._sample.source_ns[signal] = self._now_ns
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

    def effort(self) -> NDArray[np.float64]:
        """What every joint's drive gives now `[J]`, in the robot's convention, N m or N."""
        effort: NDArray[np.float64] = self.data.qfrc_actuator[self._dofs] / self._scale
        return effort

    def on_trial(self) -> TrialRobot:
        """This robot, with faults that begin when they are asked for."""
        from .trial import TrialRobot

        return TrialRobot(self)

    def close(self) -> None:
        """Nothing is held."""

    def _advance(self, ticks: int) -> None:
        if ticks:
            mujoco.mj_step(self.model, self.data, ticks * self._decimation)
            self._now_ns += ticks * self._period_ns

    def _reading(self, signal: str, profile: Profile) -> Reading:
        kind, _, body = signal.partition("/")
        data = self.data
        scale = self._scale
        offset = np.array([joint.zero_offset for joint in profile.joints])
        if kind == "joint_position":
            qpos = np.array([self.model.joint(name).qposadr[0] for name in self.joints])
            return lambda: scale * data.qpos[qpos] + offset
        if kind == "joint_velocity":
            return lambda: scale * data.qvel[self._dofs]
        if kind == "joint_temperature":
            return lambda: np.full(len(self.joints), WARM)
        if kind == "battery_voltage":
            return lambda: np.array([CHARGED * (profile.min_battery_voltage or 0.0)])
        values = data.sensor(f"{_source_kind(kind)}/{body or profile.base}").data
        mounting = profile.signals[signal].mounting
        return _mounted(kind, values, np.array(mounting)) if mounting else lambda: values


def _source_kind(kind: str) -> str:
    """The kind of source, and so of MuJoCo sensor, that a kind of signal is measured for."""
    return "gravity" if kind == "orientation" else kind


def _measured_by(profile: Profile, spec: TaskSpec, contract: Contract) -> TaskSpec:
    """The task as the contract has it, with a source for each of the profile's signals that bodies have."""
    bodies = [
        (_source_kind(kind), body) for kind, _, body in (name.partition("/") for name in profile.signals)
    ]
    signals = tuple(
        Source(
            name=kind,
            kind=kind,
            frame=body or profile.base or "",
            unit=SOURCE_KINDS[kind].units[0],
            max_age_ns=1,
        )
        for kind, body in bodies
        if kind in SENSORS
    )
    return replace(
        spec,
        control_period_ns=contract.control_period_ns,
        decimation=contract.decimation,
        sources=(*contract.sources, *signals),
        actions=contract.actions,
    )


def _mounted(kind: str, values: NDArray[np.float64], mounting: NDArray[np.float64]) -> Reading:
    """What a sensor measures whose frame is turned by `mounting` w, x, y, z against the body's."""
    turned = np.empty(len(values))
    inverse = mounting * (1.0, -1.0, -1.0, -1.0)

    def read() -> NDArray[np.float64]:
        if kind == "orientation":
            mujoco.mju_mulQuat(turned, values, mounting)
        else:
            mujoco.mju_rotVecQuat(turned, values, inverse)
        return turned

    return read

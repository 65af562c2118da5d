"""A controller and the sample it is fed, for tests that set every measurement by hand."""

from __future__ import annotations

import numpy as np

from andante.runtime.command import FIELDS, NEVER_NS, JointCommand, Sample
from andante.runtime.controller import Controller
from andante.runtime.policy import PolicySession
from andante.runtime.profile import Profile
from andante.runtime.states import State
from andante.runtime.worker import Worker


def finite(command: JointCommand) -> bool:
    return all(np.isfinite(getattr(command, field)).all() for field in FIELDS)


class Rig:
    """Ticks a controller; measurements stay until changed, and are fresh unless a tick says otherwise."""

    def __init__(
        self,
        policy: PolicySession,
        profile: Profile,
        horizon: int | None = None,
        worker: Worker | None = None,
        **options,
    ):
        self.controller = Controller(policy, profile, horizon, worker, **options)
        self.controller.warmup()
        commands = [source for source in policy.contract.sources if source.kind == "command"]
        self.sample = Sample.allocate(
            profile.signals, len(profile.joints), len(commands[0].elements) if commands else 0
        )
        self.operator = self.sample.operator
        self.q = self.sample.values["joint_position"]
        self.dq = self.sample.values.get("joint_velocity", np.zeros(len(profile.joints)))
        for i, joint in enumerate(profile.joints):
            self.q[i] = 0.0 if joint.position is None else sum(joint.position) / 2
        for signal, values in self.sample.values.items():
            if signal.startswith("orientation"):
                values[:] = [1.0, 0.0, 0.0, 0.0]
            if signal == "battery_voltage":
                values[:] = 1000.0
        self.next = 0

    @property
    def policy(self) -> PolicySession:
        return self.controller.policy

    @property
    def state(self) -> State:
        return self.controller.state

    def tick(
        self,
        skip: int = 0,
        age_ns: int = 0,
        stale: str = "joint_position",
        overrun: bool = False,
        **operator,
    ) -> JointCommand:
        """One tick, after skipping some; the signal `stale` is `age_ns` old. A copy of the command.

        `operator` says what is wanted at this tick: `start`, `stop` or `e_stop`.
        """
        tick = self.next + skip
        self.next = tick + 1
        sample = self.sample
        sample.now_ns = tick * self.controller.contract.control_period_ns
        for signal in sample.received_ns:
            received_ns = sample.now_ns - (age_ns if signal == stale else 0)
            sample.received_ns[signal] = sample.source_ns[signal] = received_ns
        sample.overrun = overrun
        wanted = {"start": False, "stop": False, "e_stop": None} | operator
        for name, value in wanted.items():
            setattr(self.operator, name, value)
        return self.controller.tick(tick, sample).copy()

    def go(self, state: State) -> Rig:
        """Tick until that state is reached, the way an operator would."""
        controller = self.controller
        if state is State.WAIT_SENSORS:
            controller.activate()
            self.tick(age_ns=-NEVER_NS)
        elif state is State.START:
            controller.activate()
            self.tick()
        elif state is State.READY:
            self.go(State.START)
            self._tick_to(State.READY)
        elif state is State.RUN:
            self.go(State.READY)
            self.tick(start=True)
        elif state is State.STOP:
            self.go(State.RUN)
            self.tick(stop=True)
            self._tick_to(state)
        elif state in (State.FALLBACK, State.FAULT):
            self.go(State.RUN)
            self.tick(e_stop="operator")
            self._tick_to(state)
        assert self.state is state
        return self

    def _tick_to(self, state: State) -> None:
        for _ in range(1000):
            if self.state is state:
                return
            self.tick()

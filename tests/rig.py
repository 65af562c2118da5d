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
    ):
        self.policy = policy
        self.controller = Controller(policy, profile, horizon, worker)
        self.controller.warmup()
        self.sample = Sample.allocate(profile.signals, len(profile.joints))
        self.q = self.sample.values["joint_position"]
        self.dq = self.sample.values["joint_velocity"]
        for i, joint in enumerate(profile.joints):
            self.q[i] = 0.0 if joint.position is None else sum(joint.position) / 2
        self.next = 0

    @property
    def state(self) -> State:
        return self.controller.state

    def tick(self, skip: int = 0, age_ns: int = 0, stale: str = "joint_position") -> JointCommand:
        """One tick, after skipping some; the signal `stale` is `age_ns` old. A copy of the command."""
        tick = self.next + skip
        self.next = tick + 1
        self.sample.now_ns = tick * self.controller.contract.control_period_ns
        for signal in self.sample.received_ns:
            self.sample.received_ns[signal] = self.sample.now_ns - (age_ns if signal == stale else 0)
        return self.controller.tick(tick, self.sample).copy()

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
            controller.confirm()
            self.tick()
        elif state is State.STOP:
            self.go(State.RUN)
            controller.stop()
            self.tick()
        elif state in (State.FALLBACK, State.FAULT):
            self.go(State.RUN)
            controller.emergency_stop()
            self._tick_to(state)
        assert self.state is state
        return self

    def _tick_to(self, state: State) -> None:
        for _ in range(1000):
            if self.state is state:
                return
            self.tick()

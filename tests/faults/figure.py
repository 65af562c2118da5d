"""A robot with perfect drives and whoever watches it, for runs whose every command can be foretold."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
from humanoid import humanoid_contract
from small_policy import small_contract, write_small_policy

from andante.runtime.command import FIELDS, JointCommand, OperatorInput, Sample
from andante.runtime.contract import Contract, Trained
from andante.runtime.policy import PolicySession, load_policy
from andante.runtime.profile import Profile

PERIOD_NS = 20_000_000
NOISE = 1e-9
"""Of every reading that a frozen sensor would repeat."""


def figure_contract(robot: str, **changes) -> Contract:
    """Chunks of 6, a decision every 3 ticks; the gains are not those of the profile's poses.

    The first source is one that no hard limit guards, so that it can make the network fail.
    """
    fields = {
        "chunk_size": 6,
        "execution_horizon": Trained(values=(1, 2, 3, 4), default=3),
        "inference_delay": Trained(values=(0, 1), default=0),
    } | changes
    if robot == "quadruped":
        return small_contract(robot, **fields)
    contract = humanoid_contract(**fields)
    term = contract.actions[0]
    softer = msgspec.structs.replace(term, kd=tuple(kd / 2 for kd in term.kd))
    first = sorted(contract.sources, key=lambda source: source.kind != "linear_acceleration")
    return msgspec.structs.replace(contract, **({"sources": tuple(first), "actions": (softer,)} | changes))


def figure_policy(path: Path, robot: str, seed: int = 0, **changes) -> PolicySession:
    contract = figure_contract(robot, **changes)
    names = ("control_period_ns", "chunk_size", "execution_horizon", "inference_delay", "sources", "actions")
    fields = {name: getattr(contract, name) for name in names}
    write_small_policy(path, "quadruped", seed, robot_model=robot, **fields)
    return load_policy(path)


class FakeClock:
    """Time passes only while the loop sleeps; it may oversleep at a tick."""

    def __init__(self, late_ns: dict[int, int] | None = None):
        self.time_ns = self.start_ns = 10**12
        self.late_ns = late_ns or {}

    def now_ns(self) -> int:
        return self.time_ns

    def sleep_until_ns(self, deadline_ns: int) -> None:
        late_ns = self.late_ns.get((deadline_ns - self.start_ns) // PERIOD_NS, 0)
        self.time_ns = max(self.time_ns, deadline_ns + late_ns)

    def work(self, seconds: float) -> None:
        """Have something take its time."""
        self.time_ns += round(seconds * 1e9)


class Figure:
    """Upright, charged and cool; every joint is where it was last told to be."""

    name = "figure"
    carries = frozenset(FIELDS)

    def __init__(self, profile: Profile, clock: FakeClock):
        self.joints = profile.joint_names
        self.clock = clock
        self.sample = Sample.allocate(profile.signals, len(self.joints))
        still = {
            "joint_position": profile.actuated_values(profile.keyframes["crouch"]),
            "joint_temperature": 40.0,
            "battery_voltage": 50.0,
        }
        for signal, values in self.sample.values.items():
            mounting = profile.signals[signal].mounting or (1.0, 0.0, 0.0, 0.0)
            values[:] = mounting if signal == "orientation" else still.get(signal, 0.0)
        self.noise = NOISE

    def read(self) -> Sample:
        sample = self.sample
        sample.now_ns = self.clock.now_ns()
        self.noise = NOISE - self.noise
        for signal, values in sample.values.items():
            values[-1] += -self.noise if values[-1] > 0.0 else self.noise
            sample.received_ns[signal] = sample.source_ns[signal] = sample.now_ns
        return sample

    def write(self, command: JointCommand) -> None:
        if command.mode == "track":
            np.copyto(self.sample.values["joint_position"], command.q)

    def close(self) -> None:
        pass


class Attendant:
    """Commands, confirms at once, and has the emergency stop's device send heartbeats, tick by tick.

    What `wishes` changes of the operator's input counts from then on only as long as it changes it.
    """

    hint = ""

    def __init__(self, wishes: Callable[[int, OperatorInput], None] | None = None):
        self.wishes = wishes
        self.poll_count = 0

    def poll(self, operator: OperatorInput, now_ns: int) -> None:
        operator.command[:] = 0.25
        operator.command_ns = operator.heartbeat_ns = now_ns
        operator.start = True
        if self.wishes is not None:
            self.wishes(self.poll_count, operator)
        self.poll_count += 1

    def close(self) -> None:
        pass

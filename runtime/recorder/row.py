"""One tick as a row of numbers: everything that `Controller.tick` depends on, and all that it gave."""

from __future__ import annotations

import struct
import time
from dataclasses import fields
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from ..command import NEVER_NS, JointCommand, Mode, Sample
from ..contract import Contract
from ..controller import Controller
from ..operator import command_components
from ..planner import Counters, Planner
from ..profile import Profile
from ..states import State
from .layout import BOOL, DOUBLE, ENUM, INT, Layout, Tree

MODES: tuple[str, ...] = get_args(Mode)
"""By the number that a row carries."""
STATES = tuple(State)
"""By the number that a row carries."""
AXES = {1: ("value",), 3: ("x", "y", "z"), 4: ("w", "x", "y", "z")}
"""Names of the elements of a signal of that many."""
ROWS = ("tau_ff", "q", "dq", "kp", "kd")
"""As in `JointCommand.rows`."""


def tick_layout(contract: Contract, profile: Profile) -> Layout:
    """Of every tick. The integers come first, in the order in which `Row.fill` gathers them."""
    signals = Sample.allocate(profile.signals, len(profile.joints)).values
    elements = {
        signal: profile.joint_names if signal.startswith("joint_") else AXES[len(values)]
        for signal, values in signals.items()
    }
    joints = {joint.name: DOUBLE for joint in profile.actuated}
    action = dict.fromkeys(contract.action_joints, DOUBLE)
    tree: dict[str, Tree | str] = {
        "tick": INT,
        "begins": BOOL,
        "state": " ".join([ENUM, *(state.name for state in STATES)]),
        "decided": BOOL,
        "delay": INT,
        "lost": INT,
        "time_ns": INT,
        "sample": {
            "now_ns": INT,
            "overrun": BOOL,
            "answered": BOOL,
            "delay_ticks": INT,
            "received_ns": dict.fromkeys(signals, INT),
            "source_ns": dict.fromkeys(signals, INT),
        },
        "operator": {
            "start": BOOL,
            "stop": BOOL,
            "command_ns": INT,
            "has_heartbeat": BOOL,
            "heartbeat_ns": INT,
        },
        "command": {"mode": " ".join([ENUM, *MODES]), "valid_for_ns": INT},
        "timing": {"lateness_ns": INT, "work_ns": INT, "inference_ns": INT},
        "counters": {field.name: INT for field in fields(Counters)},
        "state_norm": DOUBLE,
        "age_ms": dict.fromkeys(signals, DOUBLE),
        "signals": {signal: dict.fromkeys(names, DOUBLE) for signal, names in elements.items()},
        "wanted": {component.name: DOUBLE for component in command_components(contract)},
        "action": {"raw": action, "limited": action},
        "target": dict.fromkeys(ROWS, joints),
    }
    return Layout("Tick", tree)


def sources_layout(contract: Contract) -> Layout:
    """Of what the policy read, for every decision."""
    tree: dict[str, Tree | str] = {"tick": INT}
    for source in contract.sources:
        size = int(np.prod(source.shape))
        names = source.elements if len(set(source.elements)) == size else tuple(map(str, range(size)))
        tree[source.name if source.name != "tick" else "tick_"] = dict.fromkeys(names, DOUBLE)
    return Layout("Sources", tree)


class Row:
    """The row of the present tick; filled in place, without allocating arrays."""

    values: NDArray[np.float64]
    """Numbers of a tick, and behind them those of the last decision's sources."""

    def __init__(self, controller: Controller) -> None:
        """Lay out rows for a controller's policy and profile."""
        contract, profile = controller.contract, controller.profile
        self.layout = tick_layout(contract, profile)
        self.sources = sources_layout(contract)
        self.values = np.zeros(self.layout.width + self.sources.width)
        place, values = self.layout.place, self.values
        self._memory = values.data.cast("B")
        self._controller = controller
        self._period_ns = contract.control_period_ns
        self._pack_into = struct.Struct(f"<{place('state_norm').start}q").pack_into
        self._norm = place("state_norm").start
        self._signals = [(name, values[place("signals", name)]) for name in profile.signals]
        self._wanted = values[place("wanted")]
        self._raw, self._limited = values[place("action", "raw")], values[place("action", "limited")]
        self._target = values[place("target")].reshape(len(ROWS), -1)
        self._sources = values[self.layout.width + 1 :]
        self._source_tick = values[self.layout.width : self.layout.width + 1].view(np.int64)
        self._states = {state: i for i, state in enumerate(STATES)}
        self._counters: Counters | None = None
        self._asked = 0
        self._started_ns = 0
        self._bind(controller.planner)

    def fill(
        self, tick: int, sample: Sample, command: JointCommand, lateness_ns: int, work_ns: int, lost: int
    ) -> None:
        """Take over a tick; `lost` ticks before it are not in the recording."""
        controller = self._controller
        planner, counters, operator = controller.planner, controller.counters, sample.operator
        if planner is not self._planner:
            self._bind(planner)
        begins = counters is not self._counters
        if begins:  # every activation has counters of its own
            self._counters, self._asked = counters, 0
            self._started_ns = time.time_ns() - tick * self._period_ns
        asked = counters.decisions + counters.off_grid
        decided, self._asked = asked != self._asked and bool(self._inputs), asked
        heartbeat_ns = operator.heartbeat_ns
        numbers = (
            self._memory,
            0,
            tick,
            begins,
            self._states[controller.state],
            decided,
            planner.delay,
            lost,
            self._started_ns + tick * self._period_ns,
            sample.now_ns,
            sample.overrun,
            sample.answered,
            sample.delay_ticks,
            *sample.received_ns.values(),
            *sample.source_ns.values(),
            operator.start,
            operator.stop,
            operator.command_ns,
            heartbeat_ns is not None,
            0 if heartbeat_ns is None else heartbeat_ns,
            MODES.index(command.mode),
            command.valid_for_ns,
            lateness_ns,
            work_ns,
            planner.worker.inference_ns,
            *vars(counters).values(),
        )
        try:
            self._pack_into(*numbers)
        except struct.error:
            self._pack_into(*numbers[:2], *map(_fitting, numbers[2:]))
        self.values[self._norm] = planner.policy.state_norm()
        for name, view in self._signals:
            np.copyto(view, sample.values[name])
        np.copyto(self._wanted, operator.command)
        if self._fits:
            np.copyto(self._raw, planner.inputs.raw)
            np.copyto(self._limited, planner.inputs.limited)
        np.copyto(self._target, command.rows)
        if decided:
            self._source_tick[0] = tick
            for view, values in self._inputs:
                np.copyto(view, values)

    def _bind(self, planner: Planner) -> None:
        """Follow a policy; of one with other joints or sources, actions and sources are left out."""
        self._planner = planner
        policy = planner.policy
        sizes = [values.size for values in policy.inputs.values()]
        self._fits = planner.contract.action_joints == self.layout.names("action", "raw")
        self._inputs = []
        if not self._fits or sources_layout(planner.contract).tree != self.sources.tree:
            self.values[self.layout.place("action")] = np.nan
            return
        end = np.cumsum(sizes)
        for values, size, stop in zip(policy.inputs.values(), sizes, end, strict=True):
            self._inputs.append((self._sources[stop - size : stop], values.reshape(-1)))


def _fitting(number: object) -> int:
    """The nearest integer of 64 bits: one odd stamp must not cost its fault's recording."""
    return min(max(int(number), -(2**63)), 2**63 - 1) if isinstance(number, int | np.integer) else NEVER_NS


def ages_ms(values: NDArray[np.float64], layout: Layout) -> None:
    """Fill in how old each signal of a row is; NaN where it has never arrived."""
    integers = values.view(np.int64)
    received_ns = integers[layout.place("sample", "received_ns")]
    ages = (integers[layout.place("sample", "now_ns")] - received_ns) * 1e-6
    values[layout.place("age_ms")] = np.where(received_ns == NEVER_NS, np.nan, ages)

"""The policy's inputs: measurements, command and the controller's own actions, gathered by maps made once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from .chunk import ChunkBuffer
from .command import NEVER_NS, Floats, OperatorInput
from .contract import JOINT_KINDS, CommandComponent
from .errors import AndanteError
from .frames import gravity_direction
from .measurement import Measurement
from .policy import PolicySession
from .profile import Profile

COMPUTED = ("command", "clock", "gravity")
"""Kinds of source that are worked out at every tick."""


class Inputs:
    """Keeps one row of all that sources can read, its history over ticks, and fills the policy's tensors."""

    raw: Floats
    """The policy's last action `[A]`."""
    limited: Floats
    """What limits left of it `[A]`."""

    def __init__(self, policy: PolicySession, profile: Profile, measured: Measurement) -> None:
        """Make the maps; contract and profile must fit each other."""
        contract = policy.contract
        self._policy = policy
        self._measured = measured
        self._period_ns = contract.control_period_ns
        self._center = np.array(contract.action_center)
        gathered = [source for source in contract.sources if source.kind != "committed_actions"]
        self._committed = [
            policy.inputs[s.name].reshape(s.history, -1) for s in contract.sources if s not in gathered
        ]
        self._rows = max([source.history for source in gathered], default=1)
        width, size = len(contract.action_joints), len(measured.values)
        end = size + 2 * width
        self._row = np.zeros(end + sum(len(s.elements) for s in gathered if s.kind in COMPUTED))
        self._own = self._row[:size]
        self.raw, self.limited = self._row[size:end].reshape(2, width)
        self.command = CommandFilter((), 0, self._row[:0], 0.0)
        self._clocks: list[tuple[int, int]] = []
        self._levels: list[tuple[int, Callable[[int], float], list[list[float]]]] = []
        # Where in the window of rows each element of the flat input is found; padding is a measured zero.
        self._index = np.full(len(policy.flat_inputs), (self._rows - 1) * len(self._row) + size - 1)
        for source in gathered:
            columns = np.arange(len(source.elements))
            signal = profile.signal_of(source)
            begin = end
            if source.kind == "command":
                values, age_ns = self._row[begin : begin + len(columns)], source.max_age_ns or 0
                self.command = CommandFilter(source.components, age_ns, values, self._period_ns * 1e-9)
            elif source.kind == "clock":
                self._clocks.append((begin, source.period_ns or 1))
            elif source.kind == "executed_action":
                begin = size if source.stage == "raw" else size + width
            elif signal is not None and source.kind == "gravity":
                axes = profile.signals[signal].rotation.tolist()
                self._levels.append((begin, measured.signals[signal].item, axes))
            elif signal is not None:
                begin = measured.places[signal].start
            if source.kind in COMPUTED:
                end += len(columns)
            if source.kind in JOINT_KINDS:
                columns = np.array([profile.joint_names.index(joint) for joint in source.joints])
            rows = np.arange(self._rows - source.history, self._rows) * len(self._row) + begin
            self._index[policy.input_places[source.name]] = (rows[:, None] + columns).reshape(-1)
        # Reading = scale * (policy's value) + offset.
        self._offset, self._scale = np.zeros(size), np.ones(size)
        self._offset[measured.places["joint_position"]] = [joint.zero_offset for joint in profile.joints]
        for kind in JOINT_KINDS:
            if kind in measured.places:
                self._scale[measured.places[kind]] = [joint.scale for joint in profile.joints]
        self._turns = [
            (quality.rotation, measured.signals[name], self._row[measured.places[name]])
            for name, quality in profile.signals.items()
            if quality.mounting is not None and not name.startswith("orientation")
        ]
        self._gathered = np.zeros(len(self._index))
        # Every row is written twice, so that the last k ticks are always one contiguous window.
        ring = np.zeros((2 * self._rows, end))
        self._ring = list(ring)
        self._windows: list[Callable[..., object]] = [
            ring[i + 1 : i + 1 + self._rows].reshape(-1).take for i in range(self._rows)
        ]
        self._position = 0
        self.restart()

    def restart(self) -> None:
        """No action has been executed; every row of a history will be the first value."""
        self.raw[:] = self._center
        self.limited[:] = self._center
        self.command.reset()
        self._begun = False

    def collect(self, ticks: int, skipped: int, operator: OperatorInput, now_ns: int) -> None:
        """Fill this tick's row, and keep it.

        Args:
            ticks: since the memory's reset.
            skipped: ticks left out just before this one; they repeat what was known.
            operator: its command.
            now_ns: time of the sample.
        """
        row, own = self._row, self._own
        if self._begun:
            for _ in range(min(skipped, self._rows - 1)):
                self._push()
        np.subtract(self._measured.values, self._offset, out=own)
        np.divide(own, self._scale, out=own)
        for matrix, vector, turned in self._turns:
            np.dot(matrix, vector, out=turned)
        for place, item, axes in self._levels:
            x, y, z = gravity_direction(item(0), item(1), item(2), item(3))
            for i, axis in enumerate(axes):
                row[place + i] = axis[0] * x + axis[1] * y + axis[2] * z
        self.command.advance(operator, now_ns, skipped + 1)
        for place, period_ns in self._clocks:
            row[place] = ticks * self._period_ns % period_ns / period_ns
        if not self._begun:
            for _ in range(self._rows - 1):
                self._push()
        self._begun = True
        self._push()

    def gather(self, tick: int, chunks: ChunkBuffer, delay: int) -> None:
        """Fill the policy's tensors for a decision at `tick`, whose chunk acts `delay` ticks later."""
        self._windows[self._position](self._index, None, self._gathered, "clip")
        self._policy.flat_inputs[:] = self._gathered
        for rows in self._committed:
            for ahead, row in enumerate(rows):
                action = chunks.action_at(tick + ahead) if ahead < delay else None
                row[:] = 0.0 if action is None else action

    def _push(self) -> None:
        self._position = (self._position + 1) % self._rows
        self._ring[self._position][:] = self._row
        self._ring[self._position + self._rows][:] = self._row


@dataclass
class CommandFilter:
    """The operator's command as the policy may see it: in its range, slewed, and harmless when it is old."""

    components: tuple[CommandComponent, ...]
    """None for a policy that is not commanded."""
    max_age_ns: int
    """An older command becomes the timeout value."""
    values: Floats
    """What the policy sees `[k]`."""
    control_dt: float
    """One tick, s."""
    released: bool = False
    """The policy is to come to rest, whatever the operator commands."""

    def reset(self) -> None:
        """Nothing has been commanded."""
        self.values[:] = [component.timeout_value for component in self.components]

    def wrong(self, operator: OperatorInput) -> str | None:
        """What is not finite in an operator's command, as a phrase.

        Raises:
            AndanteError: the command has another size than the contract's.
        """
        if not self.components or operator.command_ns == NEVER_NS:
            return None
        found, expected = operator.command.shape, self.values.shape
        if found != expected:
            raise AndanteError(f"the command has shape {found}, expected {expected}")
        for i, component in enumerate(self.components):
            if not math.isfinite(operator.command.item(i)):
                return f"command {component.name!r} is not finite"
        return None

    def silence_ns(self, operator: OperatorInput, now_ns: int) -> int:
        """How long ago the operator commanded; 0 for a policy that is not commanded."""
        return now_ns - operator.command_ns if self.components else 0

    def advance(self, operator: OperatorInput, now_ns: int, ticks: int) -> None:
        """Let `ticks` pass, and take over the operator's command."""
        current = not self.released and 0 <= now_ns - operator.command_ns <= self.max_age_ns
        for i, component in enumerate(self.components):
            wanted, value = component.timeout_value, self.values.item(i)
            if current:
                wanted = min(max(operator.command.item(i), component.low), component.high)
            if component.slew is not None:
                step = component.slew * self.control_dt * ticks
                wanted = min(max(wanted, value - step), value + step)
            self.values[i] = wanted

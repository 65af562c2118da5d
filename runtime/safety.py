"""The safety filter, in one place: the stricter limits of profile and contract, and torque."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .command import JointCommand
from .contract import Contract
from .errors import ProfileError
from .profile import Joint, Profile

RELEASE = 0.01
"""A saturation ends when the value is back inside by this fraction of the range."""
ROUNDING = 1e-6
"""Fraction of the range by which float32 rounding may exceed a limit without counting as saturated."""


class SaturationCounter:
    """Counts how often values saturate; hovering at a limit counts once."""

    count: int

    def __init__(self, low: NDArray[np.float64], high: NDArray[np.float64]) -> None:
        self._middle = (low + high) / 2
        self._half = (high - low) / 2
        self._over = np.zeros(len(low), np.bool_)
        self._near = np.zeros(len(low), np.bool_)
        self._active = np.zeros(len(low), np.bool_)
        self._excess = np.zeros(len(low))
        self.count = 0

    def update(self, values: NDArray[np.float64]) -> None:
        """Count the values that have begun to exceed their limits."""
        np.subtract(values, self._middle, out=self._excess)
        np.abs(self._excess, out=self._excess)
        np.divide(self._excess, self._half, out=self._excess)
        np.greater(self._excess, 1 + 2 * ROUNDING, out=self._over)
        np.greater(self._excess, 1 - 2 * RELEASE, out=self._near)
        np.logical_and(self._active, self._near, out=self._active)
        np.greater(self._over, self._active, out=self._near)
        self.count += int(np.count_nonzero(self._near))
        np.logical_or(self._active, self._over, out=self._active)

    def reset(self) -> None:
        """Nothing is saturated, nothing counted."""
        self._active.fill(False)
        self.count = 0


class SafetyFilter:
    """Limits a policy's action, then a whole command; keeps nothing but saturation counts."""

    def __init__(self, contract: Contract, profile: Profile) -> None:
        """Find the limits in force.

        Raises:
            ProfileError: no action of some joint satisfies both contract and profile.
        """
        joints = {joint.name: joint for joint in profile.actuated}
        limits = [
            _stricter(term.kind, joints[name], low, high)
            for term in contract.actions
            for name, low, high in zip(term.joints, term.low, term.high, strict=True)
        ]
        self._action_low, self._action_high = np.array(limits, np.float64).T.copy()
        self._effort = np.array([joint.effort for joint in profile.actuated], np.float64)
        self._effort_low = -self._effort
        ranges = [joint.position or (-np.inf, np.inf) for joint in profile.actuated]
        self._q_low, self._q_high = np.array(ranges, np.float64).T.copy()
        self._host = profile.pd_loop == "host"
        self._actions = SaturationCounter(self._action_low, self._action_high)
        self._torques = SaturationCounter(self._effort_low, self._effort)
        size = len(self._effort)
        self._pd, self._damping, self._allowed, self._low, self._high = np.zeros((5, size))
        self._blind, self._beyond, self._finite = np.zeros((3, size), np.bool_)

    @property
    def saturations(self) -> int:
        """How often an action or a joint's torque began to exceed its limit."""
        return self._actions.count + self._torques.count

    def reset(self) -> None:
        """Nothing is saturated, nothing counted."""
        self._actions.reset()
        self._torques.reset()

    def limit_action(self, action: NDArray[np.float64]) -> None:
        """Clamp a finite action `[A]` (policy's convention) in place."""
        self._actions.update(action)
        np.clip(action, self._action_low, self._action_high, out=action)

    def limit_command(
        self,
        command: JointCommand,
        q: NDArray[np.float64],
        dq: NDArray[np.float64],
        usable: NDArray[np.bool_],
    ) -> bool:
        """Limit position and torque in place; with `pd_loop: host`, turn gains into `tau_ff`.

        Args:
            command: what is wanted.
            q: measured positions `[Ja]`.
            dq: measured velocities `[Ja]`.
            usable: `[Ja]`; without a usable measurement the host's loop gives no torque.

        Returns:
            Whether the command is finite: the last line of defence.
        """
        np.clip(command.q, self._q_low, self._q_high, out=command.q)
        np.clip(command.tau_ff, self._effort_low, self._effort, out=command.tau_ff)
        np.subtract(command.q, q, out=self._pd)
        np.multiply(self._pd, command.kp, out=self._pd)
        np.subtract(command.dq, dq, out=self._damping)
        np.multiply(self._damping, command.kd, out=self._damping)
        np.add(self._pd, self._damping, out=self._pd)
        if self._host:
            self._limit_host(command, usable)
        else:
            self._limit_drive(command)
        return self._is_finite(command)

    def _limit_host(self, command: JointCommand, usable: NDArray[np.bool_]) -> None:
        np.logical_not(usable, out=self._blind)
        np.copyto(self._pd, 0.0, where=self._blind)
        np.add(self._pd, command.tau_ff, out=self._pd)
        self._torques.update(self._pd)
        np.clip(self._pd, self._effort_low, self._effort, out=command.tau_ff)
        command.kp.fill(0.0)
        command.kd.fill(0.0)

    def _limit_drive(self, command: JointCommand) -> None:
        """Scale both gains until the drive's torque is in its limit.

        The target stays where it is: one that is moved for the velocity of now pulls the wrong way as soon as
        the drive, faster than the tick, has braked.
        """
        np.add(self._pd, command.tau_ff, out=self._allowed)
        self._torques.update(self._allowed)
        # What is left beside tau_ff: the bounds enclose zero, so the sign of a torque never turns.
        np.subtract(self._effort_low, command.tau_ff, out=self._low)
        np.subtract(self._effort, command.tau_ff, out=self._high)
        np.clip(self._pd, self._low, self._high, out=self._allowed)
        np.not_equal(self._allowed, self._pd, out=self._beyond)
        if not self._beyond.any():
            return
        np.divide(self._allowed, self._pd, out=self._allowed, where=self._beyond)
        np.multiply(command.kp, self._allowed, out=command.kp, where=self._beyond)
        np.multiply(command.kd, self._allowed, out=command.kd, where=self._beyond)

    def _is_finite(self, command: JointCommand) -> bool:
        for array in (command.q, command.dq, command.tau_ff, command.kp, command.kd):
            np.isfinite(array, out=self._finite)
            if not self._finite.all():
                return False
        return True


def _stricter(kind: str, joint: Joint, low: float, high: float) -> tuple[float, float]:
    """An action's limits in the policy's convention."""
    if kind == "effort":
        bound = joint.effort if joint.effort is not None else 0.0
        own = (-bound, bound)
    else:
        ends = joint.position or (-np.inf, np.inf)
        own_low, own_high = sorted(joint.sign * (end - joint.zero_offset) for end in ends)
        own = (own_low, own_high)
    strict = max(low, own[0]), min(high, own[1])
    if not strict[0] < strict[1]:
        raise ProfileError(
            f"joint {joint.name!r}: the policy's {kind} range [{low:g}, {high:g}] and the profile's "
            f"[{own[0]:g}, {own[1]:g}] do not overlap"
        )
    return strict

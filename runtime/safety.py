"""The safety filter, in one place: stricter limits of profile and contract, torque, own predicates."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib.metadata import entry_points

import numpy as np
from numpy.typing import NDArray

from .command import Floats, JointCommand
from .contract import Contract
from .errors import ProfileError
from .measurement import Measurement
from .profile import Profile

GROUP = "andante.safety"
"""Entry-point group under which packages register predicates."""
Predicate = Callable[[Measurement], "str | None"]
"""Judges one tick's measurement, quickly: the reason for the event `custom`, or None."""
RELEASE = 0.01
"""A saturation ends when the value is back inside by this fraction of the range."""
ROUNDING = 1e-6
"""Fraction of the range by which float32 rounding may exceed a limit without counting as saturated."""


class SaturationCounter:
    """Counts how often values saturate; hovering at a limit counts once."""

    count: int
    """How often a value has begun to exceed its limit."""

    def __init__(self, low: Floats, high: Floats) -> None:
        half = (high - low) / 2
        self._middle = (low + high) / 2
        self._inside, self._outside = half * (1 - 2 * RELEASE), half * (1 + 2 * ROUNDING)
        self._over, self._near, self._active = np.zeros((3, len(low)), np.bool_)
        self._excess = np.zeros(len(low))
        self.reset()

    def reset(self) -> None:
        """Nothing is saturated, nothing counted."""
        self._active.fill(False)
        self.count = 0

    def update(self, values: Floats) -> bool:
        """Count the values that have begun to exceed their limits.

        Returns:
            Whether one of them is beyond its limit, or near it.
        """
        np.subtract(values, self._middle, out=self._excess)
        np.abs(self._excess, out=self._excess)
        np.greater(self._excess, self._inside, out=self._near)
        if not np.count_nonzero(self._near):
            self._active.fill(False)
            return False
        np.greater(self._excess, self._outside, out=self._over)
        np.logical_and(self._active, self._near, out=self._active)
        np.greater(self._over, self._active, out=self._near)
        self.count += int(np.count_nonzero(self._near))
        np.logical_or(self._active, self._over, out=self._active)
        return True


class SafetyFilter:
    """Limits a policy's action, then a whole command; keeps nothing but saturation counts."""

    already: int = 0
    """Counted before, with another policy."""

    def __init__(self, contract: Contract, profile: Profile) -> None:
        """Find the limits in force; contract and profile must fit each other."""
        joints, terms = {joint.name: joint for joint in profile.actuated}, contract.actions
        own = [joints[name].action_range(term.kind) for term in terms for name in term.joints]
        own_low, own_high = np.array(own, np.float64).T
        self._action_low = np.maximum(own_low, [low for term in terms for low in term.low])
        self._action_high = np.minimum(own_high, [high for term in terms for high in term.high])
        self._effort = np.array([joint.effort for joint in profile.actuated], np.float64)
        self._effort_low = -self._effort
        q_low, q_high = np.array([joint.position or (-np.inf, np.inf) for joint in profile.actuated]).T
        self._lowest = np.array([self._effort_low, q_low])
        self._highest = np.array([self._effort, q_high])
        self._host = profile.pd_loop == "host"
        self._weakens = profile.effort_limited_by == "controller"
        self._actions = SaturationCounter(self._action_low, self._action_high)
        self._torques = SaturationCounter(self._effort_low, self._effort)
        size = len(self._effort)
        self._pd, self._damping = self._errors = np.zeros((2, size))
        self._total, self._allowed, self._low, self._high = np.zeros((4, size))
        self._blind, self._beyond = np.zeros((2, size), np.bool_)
        self._finite = np.zeros((5, size), np.bool_)

    @property
    def saturations(self) -> int:
        """How often an action or a joint's torque began to exceed its limit."""
        return self.already + self._actions.count + self._torques.count

    def reset(self) -> None:
        """Nothing is saturated, nothing counted."""
        self.already = 0
        self._actions.reset()
        self._torques.reset()

    def limit_action(self, action: Floats) -> None:
        """Clamp a finite action `[A]` (policy's convention) in place."""
        if self._actions.update(action):
            action.clip(self._action_low, self._action_high, out=action)

    def limit_command(self, command: JointCommand, state: Floats, usable: NDArray[np.bool_]) -> bool:
        """Limit position and torque in place; with `pd_loop: host`, turn gains into `tau_ff`.

        A torque that the drives limit themselves is only counted.

        Args:
            command: what is wanted.
            state: measured positions and velocities `[2, Ja]`.
            usable: `[Ja]`; without a usable measurement the host's loop gives no torque.

        Returns:
            Whether the command is finite: the last line of defence.
        """
        limited = command.limited
        np.maximum(limited, self._lowest, out=limited)
        np.minimum(limited, self._highest, out=limited)
        np.subtract(command.state, state, out=self._errors)
        np.multiply(self._errors, command.gains, out=self._errors)
        np.add(self._pd, self._damping, out=self._pd)
        np.add(self._pd, command.tau_ff, out=self._total)
        if self._host:
            self._limit_host(command, usable)
        elif self._torques.update(self._total) and self._weakens:
            self._limit_drive(command)
        np.isfinite(command.rows, out=self._finite)
        return bool(np.count_nonzero(self._finite) == self._finite.size)

    def _limit_host(self, command: JointCommand, usable: NDArray[np.bool_]) -> None:
        if np.count_nonzero(usable) != usable.size:
            np.logical_not(usable, out=self._blind)
            np.copyto(self._total, command.tau_ff, where=self._blind)
        self._torques.update(self._total)
        self._total.clip(self._effort_low, self._effort, out=command.tau_ff)
        command.gains[:] = 0.0

    def _limit_drive(self, command: JointCommand) -> None:
        """Scale both gains until the drive's torque is in its limit.

        The target stays where it is: one that is moved for the velocity of now pulls the wrong way as soon as
        the drive, faster than the tick, has braked.
        """
        # What is left beside tau_ff: the bounds enclose zero, so the sign of a torque never turns.
        np.subtract(self._effort_low, command.tau_ff, out=self._low)
        np.subtract(self._effort, command.tau_ff, out=self._high)
        self._pd.clip(self._low, self._high, out=self._allowed)
        np.not_equal(self._allowed, self._pd, out=self._beyond)
        if np.count_nonzero(self._beyond):
            np.divide(self._allowed, self._pd, out=self._allowed, where=self._beyond)
            np.multiply(command.kp, self._allowed, out=command.kp, where=self._beyond)
            np.multiply(command.kd, self._allowed, out=command.kd, where=self._beyond)


def find_predicates(profile: Profile) -> list[Predicate]:
    """The profile's own predicates; their reasons begin with their names, and a failure is a reason too.

    Raises:
        ProfileError: a name is not registered; lists those that are.
    """
    known = {entry.name: entry for entry in entry_points(group=GROUP)}
    for name in profile.predicates:
        if name not in known:
            names = ", ".join(sorted(known)) or "none"
            raise ProfileError(f"no safety predicate {name!r}; predicates: {names}")
    return [partial(_judge, name, known[name].load()) for name in profile.predicates]


def _judge(name: str, predicate: Predicate, measured: Measurement) -> str | None:
    try:
        verdict = predicate(measured)
    except Exception as error:  # a judge that fails has not judged
        verdict = f"failed: {error!r}"
    return None if verdict is None else f"{name}: {verdict}"

"""Plays the profile's fallback table: tolerates an event for a while, then climbs its ladder."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .command import JointCommand
from .profile import EVENTS, RANK, Damping, Hold, Keep, Profile


class _Step(NamedTuple):
    rank: int
    ticks: float
    kp: NDArray[np.float64] | None
    kd: NDArray[np.float64]


class FallbackPlayer:
    """What is tolerated, and the step in force. It only escalates until `reset`."""

    def __init__(self, profile: Profile, control_period_ns: int) -> None:
        """Resolve gains and durations; one tick lasts `control_period_ns`."""
        self._tolerance: dict[str, int] = {}
        self._ladders: dict[str, tuple[_Step, ...]] = {}
        for event in EVENTS:
            ladder = profile.fallback.ladder(event)
            first = ladder[0]
            self._tolerance[event] = first.ticks if isinstance(first, Keep) else 0
            self._ladders[event] = tuple(
                _Step(
                    RANK[type(step)],
                    math.inf if step.duration_s is None else step.duration_s * 1e9 / control_period_ns,
                    profile.kp(step.gains) if isinstance(step, Hold) else None,
                    profile.kd(step.gains),
                )
                for step in ladder
                if not isinstance(step, Keep)
            )
        self._damping = _Step(RANK[Damping], math.inf, None, profile.kd("damping"))
        self._pose = np.zeros(len(profile.actuated))
        self._count = dict.fromkeys(EVENTS, 0)
        self._last = dict.fromkeys(EVENTS, 0)
        self.reset()

    def reset(self) -> None:
        """Nothing has been tolerated, no step is in force."""
        for event in EVENTS:
            self._count[event] = self._last[event] = 0
        self._steps: tuple[_Step, ...] = ()
        self._end = math.inf

    def tolerates(self, event: str, tick: int, skipped: int) -> bool:
        """Whether to carry on although `event` happened at `tick`, before which some were `skipped`."""
        lasts = self._last[event] == tick - skipped - 1
        self._count[event] = (self._count[event] if lasts else 0) + skipped + 1
        self._last[event] = tick
        return self._count[event] <= self._tolerance[event]

    def escalate(self, event: str, tick: int, q: NDArray[np.float64], pose_known: bool) -> bool:
        """Go to the first step of the event's ladder, unless one as hard is in force.

        Args:
            event: one of `EVENTS`.
            tick: now.
            q: measured positions `[Ja]`, which a hold keeps.
            pose_known: whether `q` can be held; if not, the joints are damped.

        Returns:
            Whether it is a new step.
        """
        ladder = self._ladders[event]
        if not pose_known:
            ladder = tuple(step for step in ladder if step.kp is None) or (self._damping,)
        if self._steps and ladder[0].rank <= self._steps[0].rank:
            return False
        self._enter(ladder, tick, q)
        return True

    def advance(self, tick: int, q: NDArray[np.float64]) -> None:
        """Go to the next step when the present one's time is over."""
        if tick >= self._end:
            self._enter(self._steps[1:], tick, q)

    @property
    def final(self) -> bool:
        """Whether the step in force is the last."""
        return len(self._steps) == 1

    def fill(self, command: JointCommand, q: NDArray[np.float64]) -> None:
        """Fill the command of the step in force from the measured positions `[Ja]`."""
        step = self._steps[0]
        if step.kp is None:
            command.set_damping(q, step.kd)
        else:
            command.set_track(self._pose, 0.0, step.kp, step.kd)

    def _enter(self, steps: tuple[_Step, ...], tick: int, q: NDArray[np.float64]) -> None:
        self._steps = steps
        self._end = tick + steps[0].ticks
        np.copyto(self._pose, q)

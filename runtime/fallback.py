"""Plays the profile's fallback table: tolerates an event for a while, then climbs its ladder."""

from __future__ import annotations

import math

from .command import Floats, JointCommand
from .profile import Profile
from .states import LIVE, State
from .step_player import ResolvedStep, StepPlayer
from .steps import EVENTS, RANK, Damping, External, Keep

FORGOTTEN = 0.5
"""Ticks of an event that one without it makes up for; less than 1: every other tick is too often."""


class FallbackPlayer:
    """What is tolerated, and the step in force. It only escalates until `reset`."""

    def __init__(self, profile: Profile, control_period_ns: int) -> None:
        """Resolve gains, poses and durations; one tick lasts `control_period_ns`."""
        self._player = StepPlayer(profile, control_period_ns)
        self._tolerance: dict[tuple[str, State], int] = {}
        self._ladders: dict[tuple[str, State], tuple[ResolvedStep, ...]] = {}
        for event in EVENTS:
            for state in LIVE:
                ladder = profile.fallback.ladder(event, state.value)
                if ladder is not None:
                    first = ladder[0]
                    self._tolerance[event, state] = first.ticks if isinstance(first, Keep) else 0
                    self._ladders[event, state] = self._player.resolve(ladder)
        self._damping = self._player.resolve([Damping(gains="damping")])
        self._fallen_from = State.WAIT_SENSORS
        self.reset()

    def reset(self) -> None:
        """Nothing has been tolerated, no step is in force."""
        self._count = dict.fromkeys(EVENTS, 0.0)
        self._last = dict.fromkeys(EVENTS, -1)
        self._steps: tuple[ResolvedStep, ...] = ()
        self._end = math.inf

    def tolerates(self, event: str, state: State, tick: int, skipped: int) -> bool:
        """Whether to carry on although `event` happened at `tick`, before which some were `skipped`."""
        if self._last[event] != tick:  # two reasons in one tick are one event
            quiet = tick - skipped - 1 - self._last[event]
            self._count[event] = max(self._count[event] - FORGOTTEN * quiet, 0.0) + skipped + 1
            self._last[event] = tick
        return self._count[event] <= self._tolerance[event, state]

    def escalate(self, event: str, state: State, tick: int, measured: Floats, pose_known: bool) -> bool:
        """Go to the first step of the event's ladder, unless one as hard is in force.

        Args:
            event: one of `EVENTS`.
            state: of the controller; once it has fallen back, the table goes by the state before that.
            tick: now.
            measured: positions and velocities `[2, Ja]`, from which motions begin.
            pose_known: whether they can be relied upon; if not, the joints are damped.

        Returns:
            Whether it is a new step.
        """
        if state in LIVE:
            self._fallen_from = state
        ladder = self._ladders[event, self._fallen_from]
        if not pose_known:
            ladder = tuple(step for step in ladder if step.kind in (Damping, External)) or self._damping
        if self._steps and RANK[ladder[0].kind] <= RANK[self._steps[0].kind]:
            return False
        self._enter(ladder, tick, measured)
        return True

    def advance(self, tick: int, measured: Floats) -> None:
        """Go to the next step when this one's time is over; skipped ticks delay the end of a motion."""
        if tick >= self._end and not self._player.moving:
            self._enter(self._steps[1:], tick, measured)

    @property
    def final(self) -> bool:
        """Whether the step in force is the last."""
        return len(self._steps) == 1

    def fill(self, command: JointCommand, q: Floats) -> bool:
        """Fill the command of the step in force, as `StepPlayer.fill` does; once a tick."""
        return self._player.fill(command, q)

    def _enter(self, steps: tuple[ResolvedStep, ...], tick: int, measured: Floats) -> None:
        self._steps = steps
        self._end = tick + self._player.begin(steps[0], measured)

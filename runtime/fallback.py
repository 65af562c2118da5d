"""Plays the profile's fallback table: tolerates an event for a while, then climbs its ladder."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Floats, JointCommand
from .profile import Profile
from .states import LIVE, State
from .step_player import ResolvedStep, StepPlayer
from .steps import EVENTS, RANK, Damping, External, Keep, Track

FORGOTTEN = 0.5
"""Ticks of an event that one without it makes up for; less than 1: every other tick is too often."""


class FallbackPlayer:
    """What is tolerated, and the step in force: the hardest that any event's ladder has come to."""

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
        self._climbed: dict[str, _Climb] = {}
        self._leader: _Climb | None = None
        self._rank = -1

    def tolerates(self, event: str, state: State, tick: int, skipped: int) -> bool:
        """Whether to carry on although `event` happened at `tick`, before which some were `skipped`."""
        if self._last[event] != tick:  # two reasons in one tick are one event
            quiet = tick - skipped - 1 - self._last[event]
            self._count[event] = max(self._count[event] - FORGOTTEN * quiet, 0.0) + skipped + 1
            self._last[event] = tick
        return self._count[event] <= self._tolerance[event, state]

    def escalate(self, event: str, state: State, tick: int, measured: Floats, pose_known: bool) -> None:
        """Begin to climb the event's ladder, unless that has begun.

        Args:
            event: one of `EVENTS`.
            state: of the controller; once it has fallen back, the table goes by the state before that.
            tick: now.
            measured: positions and velocities `[2, Ja]`, from which motions begin.
            pose_known: whether they can be relied upon; if not, the joints are damped.
        """
        if state in LIVE:
            self._fallen_from = state
        if event in self._climbed:
            return
        ladder = self._ladders[event, self._fallen_from]
        if not pose_known:
            ladder = tuple(step for step in ladder if step.kind in (Damping, External)) or self._damping
        self._climbed[event] = _Climb(ladder, tick + ladder[0].ticks)
        self._lead(tick, measured)

    def advance(self, tick: int, measured: Floats) -> None:
        """Climb where a step's time is over; a motion goes on to its end, unless a harder step comes."""
        for climb in self._climbed.values():
            if tick >= climb.end and not (climb.steps[0].kind is Track and self._player.moving):
                climb.steps = climb.steps[1:]
                climb.end = tick + climb.steps[0].ticks
        self._lead(tick, measured)

    def begin_anew(self, tick: int, measured: Floats) -> None:
        """Begin the step in force once more, from the pose of now; only a motion gets its time anew."""
        if (climb := self._leader) is not None:
            ticks = self._player.begin(climb.steps[0], measured)
            climb.end = tick + ticks if climb.steps[0].kind is Track else climb.end

    @property
    def final(self) -> bool:
        """Whether no harder step than that in force is to come."""
        return all(RANK[climb.steps[-1].kind] <= self._rank for climb in self._climbed.values())

    def fill(self, command: JointCommand, q: Floats) -> bool:
        """Fill the command of the step in force, as `StepPlayer.fill` does; once a tick."""
        return self._player.fill(command, q)

    def _lead(self, tick: int, measured: Floats) -> None:
        for climb in self._climbed.values():
            if (rank := RANK[climb.steps[0].kind]) > self._rank:
                self._rank, self._leader = rank, climb
                climb.end = tick + self._player.begin(climb.steps[0], measured)


@dataclass
class _Climb:
    """How far up its ladder an event has come."""

    steps: tuple[ResolvedStep, ...]
    """The present one, and those to come."""
    end: float
    """Tick at which the present one's time is over."""

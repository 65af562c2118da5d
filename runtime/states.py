"""A controller's states, and what each edge between them resets."""

from __future__ import annotations

from enum import Enum


class State(Enum):
    """Where a controller is in its life. In every state but `DISABLED` every tick emits a command."""

    DISABLED = "disabled"
    """Nothing is written to the robot."""
    WAIT_SENSORS = "wait_sensors"
    """Damping, until every signal is fresh and the profile's conditions hold."""
    START = "start"
    """The profile's start sequence, from the measured pose."""
    READY = "ready"
    """Where the start sequence ended, for a tick or until confirmed; a long gap leads back to `START`."""
    RUN = "run"
    """The policy."""
    STOP = "stop"
    """The profile's stop sequence, from the measured pose."""
    FALLBACK = "fallback"
    """A step of the fallback table that has a duration."""
    FAULT = "fault"
    """The last step of an event's ladder, or a harder one of another's, until cleared."""


class Reset(Enum):
    """A piece of state that is carried across ticks."""

    MEMORY = "memory"
    """The policy's memory, the chunk buffer (a new epoch), the decision grid, the delay, histories, the
    slewed command, the last action, and the way to a new policy's first commands."""
    SEQUENCE = "sequence"
    """Phase of the start and stop sequences."""
    EVENTS = "events"
    """For how many ticks each event has been tolerated."""
    SIGNALS = "signals"
    """When each signal was measured last, and how often in a row it was the same."""
    COUNTERS = "counters"
    """Counters, saturations, and the last tick number."""


LIVE = (State.WAIT_SENSORS, State.START, State.READY, State.RUN, State.STOP)
"""Those in which an event may still be tolerated."""

EDGES: dict[tuple[State, State], frozenset[Reset]] = {
    (State.DISABLED, State.WAIT_SENSORS): frozenset(Reset),
    (State.WAIT_SENSORS, State.START): frozenset({Reset.SEQUENCE}),
    (State.START, State.READY): frozenset(),
    (State.READY, State.START): frozenset({Reset.SEQUENCE}),
    (State.READY, State.RUN): frozenset({Reset.MEMORY, Reset.EVENTS}),
    (State.START, State.STOP): frozenset({Reset.SEQUENCE, Reset.EVENTS}),
    (State.READY, State.STOP): frozenset({Reset.SEQUENCE, Reset.EVENTS}),
    (State.RUN, State.STOP): frozenset({Reset.MEMORY, Reset.SEQUENCE, Reset.EVENTS}),
    **{(state, State.FALLBACK): frozenset({Reset.MEMORY}) for state in LIVE},
    (State.FALLBACK, State.FAULT): frozenset(),
    **{(state, State.DISABLED): frozenset({Reset.MEMORY}) for state in (*LIVE, State.FALLBACK, State.FAULT)},
}
"""Every edge there is. The reason of a fault is no edge's business: `clear` alone takes it away, so it
outlives a deactivation.
"""

"""What a robot has to do about faults, read from its profile's YAML alone: no code of the runtime in here.

`Witness` says which events a tick's measurement brings, `Decisions` which ticks no chunk covers. `Referee`
plays the states and the fallback table on them: every tick's state and step, at the end the reason.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

MADE_UP = 0.5
"""Two ticks without an event make up for one with it."""
AHEAD_NS = 1_000_000
"""So far may a synchronised clock be ahead."""
NEVER_NS = -(2**62)
"""Stamp of what has not arrived."""
LARGEST = float(np.finfo(np.float32).max)
HARDNESS = ("brake", "hold", "track", "damping", "external")
LIVE = ("wait_sensors", "start", "ready", "run", "stop")
MODES = {"damping": "damping", "external": "disabled"}
"""Command mode of a step, where it is not `track`."""


class Step(NamedTuple):
    """A phase of a sequence, or a step of a ladder."""

    action: str
    ticks: float
    gains: str
    pose: dict[str, float]

    @property
    def mode(self) -> str:
        return MODES.get(self.action, "track")


class Table:
    """The sequences and the fallback table of a profile's YAML."""

    def __init__(self, content: dict[str, Any], period_s: float) -> None:
        self.content, self._period_s = content, period_s
        self.settle_ticks = round(content.get("settle_s", 0.0) / period_s)
        self.start = [self._step(phase) for phase in content["start"]]
        self.stop = [self._step(phase) for phase in content["stop"]]

    def ladder(self, event: str, state: str) -> tuple[int, list[Step]]:
        """-> tolerated ticks, and the steps after them."""
        rows = self.content["fallback"][event]
        if isinstance(rows, dict):
            rows = rows.get(state, rows["otherwise"])
        keep = sum(row["ticks"] for row in rows if row["action"] == "keep")
        return keep, [self._step(row) for row in rows if row["action"] != "keep"]

    def _step(self, row: dict[str, Any]) -> Step:
        seconds = row.get("duration_s")
        ticks = math.inf if seconds is None else max(1, math.ceil(seconds / self._period_s - 1e-9))
        pose = row.get("pose", {})
        if isinstance(pose, str):
            pose = self.content["keyframes"][pose]
        return Step(row["action"], ticks, row.get("gains", ""), pose)


@dataclass
class Stamps:
    """What is known of one signal's time."""

    max_age_ns: float
    received: int | None = None
    source: int | None = None
    fresh: int | None = None
    equal: int = 0
    last: bytes = b""


@dataclass
class Seen:
    """What one tick brings, but for the policy."""

    events: list[str]
    """Of the values, and the emergency stop."""
    stale: bool
    blind: bool = False
    """The velocities are among what is stale."""
    unmet: bool = False
    """A condition for the start sequence does not hold."""
    e_stop: bool = False
    silent: bool = False
    """The operator's command is too old for the link that the profile demands."""
    overrun: bool = False
    start: bool = False
    stop: bool = False


class Witness:
    """Judges measurements against the YAML's limits and the ages that it and the policy want."""

    def __init__(self, content: dict[str, Any], contract: Any) -> None:
        self.content = content
        self._stamps = {}
        for name, quality in content["signals"].items():
            ages = [quality["max_age_s"] * 1e9]
            for source in contract.sources:
                kind = "orientation" if source.kind == "gravity" else source.kind
                if kind == name and source.max_age_ns is not None:
                    ages.append(source.max_age_ns)
            self._stamps[name] = Stamps(min(ages))

    def judge(self, sample: Any) -> Seen:
        """Events of a measurement; None is one that failed."""
        if sample is None:
            return Seen([], stale=True, blind=True)
        stale = [name for name, stamps in self._stamps.items() if self._stale(name, stamps, sample)]
        values = {
            name: np.where(np.abs(found) <= LARGEST, found, 0.0) for name, found in sample.values.items()
        }
        events = [
            "non_finite" for name, found in sample.values.items() if not (np.abs(found) <= LARGEST).all()
        ]
        for index, joint in enumerate(self.content["joints"]):
            for name, (low, high) in self._limits(joint).items():
                if name in values and not low <= values[name][index] <= high:
                    events.append("temperature" if name == "joint_temperature" else "limit")
        lowest = self.content.get("min_battery_voltage")
        if lowest is not None and values["battery_voltage"][0] < lowest:
            events.append("battery")
        lean = 0.0
        if "orientation" in values:
            square = float(values["orientation"] @ values["orientation"])
            if abs(square - 1.0) > 0.05:
                events.append("non_finite")
            else:
                _, x, y, _ = values["orientation"]
                lean = math.acos(min(max(1.0 - 2.0 * (x * x + y * y), -1.0), 1.0))
                if lean > self.content.get("max_tilt", math.inf):
                    events.append("tilt")
        return Seen(events, bool(stale), "joint_velocity" in stale, self._unmet(values, lean))

    def _limits(self, joint: dict[str, Any]) -> dict[str, tuple[float, float]]:
        low, high = joint["position"] or (-math.inf, math.inf)
        return {
            "joint_position": (low, high),
            "joint_velocity": (-joint["velocity"], joint["velocity"]),
            "joint_temperature": (-math.inf, joint.get("temperature") or math.inf),
        }

    def _unmet(self, values: dict[str, np.ndarray], lean: float) -> bool:
        wanted = self.content.get("conditions") or {}
        fast = wanted.get("max_speed", math.inf)
        return (
            lean > wanted.get("max_tilt", math.inf)
            or (fast < math.inf and bool((np.abs(values["joint_velocity"]) > fast).any()))
            or any(
                not low <= values["joint_position"][index] <= high
                for index, joint in enumerate(self.content["joints"])
                for low, high in [wanted.get("position", {}).get(joint["name"], (-math.inf, math.inf))]
            )
        )

    def _stale(self, name: str, stamps: Stamps, sample: Any) -> bool:
        """Too old, frozen, with a gap, or with a stamp that went back or lies in the future."""
        quality = self.content["signals"][name]
        received, source, now = sample.received_ns[name], sample.source_ns[name], sample.now_ns
        wrong = False
        if received == NEVER_NS and stamps.received is None:
            return True
        if received != stamps.received:
            last, stamps.received = stamps.received, received
            found = sample.values[name].tobytes()
            stamps.equal, stamps.last = stamps.equal + 1 if found == stamps.last else 1, found
            if last is not None:
                wrong = received < last or received - last > quality.get("max_gap_s", math.inf) * 1e9
            if quality.get("clock", "none") == "none" or stamps.source is None or source > stamps.source:
                stamps.fresh = received
            elif source < stamps.source:
                wrong = True
            stamps.source = source
        age = now - min(received, stamps.fresh)
        if quality.get("clock") == "synchronised":
            age = now - source if source > now + AHEAD_NS else max(age, now - source)
        frozen = stamps.equal >= quality.get("frozen_after", math.inf)
        return wrong or frozen or not 0 <= age <= stamps.max_age_ns


@dataclass
class Asked:
    """A decision that is not answered yet."""

    tick: int
    due: int
    fails: bool
    void: bool = False


@dataclass
class Decisions:
    """The ticks that chunks cover: a decision every s ticks, each for H, acting after d."""

    contract: Any
    waits: bool
    """Whether answers come at later ticks."""
    rests: bool = False
    """At the start pose, until the first chunk acts."""

    def __post_init__(self) -> None:
        self._asked: Asked | None = None
        self.reset()

    def reset(self) -> None:
        """No chunk counts any more."""
        default = self.contract.inference_delay.default
        self._delay = max(default, 1) if self.waits else default
        self._chunks: list[tuple[int, int]] = []
        self._origin: int | None = None
        self._next = 0
        self.acts = self.rests = False
        if self._asked is not None:
            self._asked.void = True

    def tick(self, tick: int, fresh: bool, fails: bool, lateness: int) -> str | None:
        """-> the event that the policy brings.

        Args:
            tick: now.
            fresh: whether the measurement can be relied upon.
            fails: whether a decision that is asked for now will fail.
            lateness: ticks that the answer to it will be late.
        """
        failed = self._receive(tick)
        if self._origin is None and fresh:
            self._origin = self._next = tick
        while self._origin is not None and self._next <= tick:
            if self._next == tick and fresh and self._asked is None:
                self._ask(tick, fails, lateness)
            self._next += self.contract.execution_horizon.default
        failed |= self._receive(tick)
        if not failed and not self._covered(tick) and fresh and self._asked is None and self._delay == 0:
            self._ask(tick, fails, lateness)
            failed = self._receive(tick)
        if failed:
            return "non_finite"
        if self._covered(tick):
            self.acts = True
            return None
        awaited = self._origin is not None and tick < self._origin + self._delay
        return None if awaited else "starvation"

    def _ask(self, tick: int, fails: bool, lateness: int) -> None:
        self._asked = Asked(tick, tick + max(self._delay, 1 + lateness if self.waits else 0), fails)

    def _receive(self, tick: int) -> bool:
        """-> whether the policy failed."""
        asked = self._asked
        if asked is None or tick < asked.due:
            return False
        self._asked = None
        if asked.void:
            return False
        if not asked.fails and tick <= asked.tick + max(self.contract.inference_delay.values):
            self._chunks.append((tick, asked.tick + self.contract.chunk_size))
        return asked.fails

    def _covered(self, tick: int) -> bool:
        return any(first <= tick < end for first, end in self._chunks)


def _hardness(step: Step) -> int:
    return HARDNESS.index(step.action)


@dataclass
class Referee:
    """Plays the states and the table, tick by tick."""

    table: Table
    decisions: Decisions
    max_gap_ticks: int
    state: str = "wait_sensors"
    events: set[str] = field(default_factory=set)
    """All that have happened."""
    reason: str | None = None
    """Event of the fault."""

    def __post_init__(self) -> None:
        self._last: int | None = None
        self._fell_from = self.state
        self._climbs: dict[str, tuple[list[Step], int]] = {}
        self._playing: tuple[str, Step] | None = None
        self._forget()
        self._sequence: list[Step] = []
        self._played = 0
        self._stop_at = math.inf

    def tick(self, tick: int, seen: Seen, fails: bool, lateness: int) -> Step | None:
        """Advance; -> what is to be commanded. None for the policy.

        `fails` and `lateness` as in `Decisions.tick`.
        """
        skipped = 0 if self._last is None else tick - self._last - 1
        self._last = tick
        trouble = self._watch(tick, skipped, seen)
        self._edges(tick, skipped, seen, trouble)
        if self.state == "run":
            event = self.decisions.tick(tick, not seen.stale, fails, lateness)
            if event is not None:
                self._raise(event, tick, skipped)
        return self._step()

    @property
    def at_end(self) -> bool:
        """Whether the step in force has come to its pose."""
        return self._playing is not None and self._played == self._playing[1].ticks

    def _watch(self, tick: int, skipped: int, seen: Seen) -> bool:
        events = [*seen.events, *["e_stop"] * seen.e_stop, *["stale_source"] * seen.stale]
        events += ["operator"] * (seen.silent and self.state in ("ready", "run")) + ["overrun"] * seen.overrun
        if self.state == "wait_sensors" and seen.stale:  # nothing else is believed yet
            events = ["e_stop"] * seen.e_stop
        for event in events:
            self._raise(event, tick, skipped)
        return bool(events) or seen.stale

    def _raise(self, event: str, tick: int, skipped: int) -> None:
        self.events.add(event)
        live = self.state in LIVE
        if live and event == "operator" and self.state != "run":
            return
        keep, steps = self.table.ladder(event, self.state if live else self._fell_from)
        if live:
            count, last = self._counts.get(event, (0.0, tick))
            if last != tick or event not in self._counts:
                quiet = max(tick - skipped - 1 - last, 0)
                count = max(count - MADE_UP * quiet, 0.0) + skipped + 1
                self._counts[event] = count, tick
            if count <= keep:
                return
            self._fell_from = self.state
        if self.state == "wait_sensors":  # nobody knows the pose
            steps = [step for step in steps if step.action in MODES] or [
                Step("damping", math.inf, "damping", {})
            ]
        if event in self._climbs:
            return
        self.reason = self.reason or event
        self._climbs[event] = steps, tick
        self._play_hardest()

    def _climb(self, tick: int) -> None:
        """Every event climbs its ladder at its own pace; but a motion that is played goes on to its end."""
        for event, (steps, since) in self._climbs.items():
            step = None if self._playing is None else self._playing[1]
            moving = step is not None and step.action == "track" and self._played < step.ticks
            if tick >= since + steps[0].ticks and not (moving and steps[0].action == "track"):
                self._climbs[event] = steps[1:], tick
        self._play_hardest()

    def _play_hardest(self) -> None:
        for event, (steps, _) in self._climbs.items():
            if self._playing is None or _hardness(steps[0]) > _hardness(self._playing[1]):
                self._playing, self._played = (event, steps[0]), 0
        assert self._playing is not None
        hardest = max(_hardness(steps[-1]) for steps, _ in self._climbs.values())
        over = hardest == _hardness(self._playing[1])
        self.state = "fault" if self.state == "fault" or over else "fallback"

    def _edges(self, tick: int, skipped: int, seen: Seen, trouble: bool) -> None:
        state = self.state
        if skipped > self.max_gap_ticks:
            if state == "run":
                self.decisions.reset()
            elif state == "ready":
                self._begin("start")
            elif state in ("start", "stop"):
                self._played = 0
            elif self._playing is not None:
                self._played, (event, step) = 0, self._playing
                if step.action == "track":
                    self._climbs[event] = self._climbs[event][0], tick
            state = self.state
        if seen.stop:  # once is enough: a running policy first comes to rest
            self._stop_at = min(self._stop_at, tick + self.table.settle_ticks * (state == "run"))
        stops = tick >= self._stop_at
        over = self._played >= sum(step.ticks for step in self._sequence)
        if stops and state in ("start", "ready", "run"):
            self._begin("stop")
        elif state == "wait_sensors":
            if stops:
                self.state = "disabled"
            elif not trouble and not seen.unmet:
                self._begin("start")
        elif state == "start" and over:
            self.state = "ready"
        elif state == "stop" and over:
            self.state = "disabled"
        elif state in ("fallback", "fault"):
            self._climb(tick)
        elif state == "ready" and not trouble and (seen.start or not self.table.content["confirm"]):
            self.state = "run"
            self.decisions.reset()
            self.decisions.rests = True
            self._forget()

    def _begin(self, state: str) -> None:
        if state == "stop":
            self._forget()
        self.state, self._played = state, 0
        self._sequence = self.table.stop if state == "stop" else self.table.start

    def _forget(self) -> None:
        self._counts: dict[str, tuple[float, int]] = {}

    def _step(self) -> Step | None:
        """What the state calls for now."""
        if self.state == "run" and self.decisions.acts:
            return None
        self._played += 1
        if self.state == "disabled":
            return Step("external", math.inf, "", {})
        if self._playing is not None:
            return self._playing[1]
        if self.state in ("start", "ready", "stop") or (self.state == "run" and self.decisions.rests):
            left = self._played
            for step in self._sequence:
                left -= step.ticks
                if left <= 0:
                    return step
            return self._sequence[-1]
        return Step("damping", math.inf, "damping", {})

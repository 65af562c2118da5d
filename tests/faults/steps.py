"""What a run's commands were, told from their numbers alone: `policy 9, crouch 75, damp 26`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from andante.runtime.command import JointCommand, Sample
from andante.runtime.controller import Controller
from andante.runtime.policy import PolicySession
from andante.runtime.profile import Profile
from andante.runtime.states import State
from andante.runtime.steps import Track

CLOSE = 1e-7
"""Above a measurement's noise, below the first tick of the slowest motion."""


class Moment(NamedTuple):
    """One tick."""

    tick: int
    sample: Sample
    command: JointCommand
    state: State
    asked: tuple[int, int, int]
    """Decisions, evaluations off the grid, and gaps so far."""
    inputs: np.ndarray
    """What the policy has read last."""


def _copy(sample: Sample) -> Sample:
    return replace(
        sample,
        values={signal: values.copy() for signal, values in sample.values.items()},
        received_ns=dict(sample.received_ns),
        source_ns=dict(sample.source_ns),
        operator=replace(sample.operator, command=sample.operator.command.copy()),
    )


class Log(list[Moment]):
    """A loop's observer."""

    def __init__(self, controller: Controller):
        super().__init__()
        self.controller = controller

    def __call__(self, tick: int, sample: Sample, command: JointCommand, *_: int) -> None:
        controller, counters = self.controller, self.controller.counters
        asked = counters.decisions, counters.off_grid, counters.gaps
        inputs = controller.policy.flat_inputs.copy()
        self.append(Moment(tick, _copy(sample), command.copy(), controller.state, asked, inputs))

    def since(self, state: State) -> list[Moment]:
        """From the first tick in that state on."""
        return self[next(i for i, moment in enumerate(self) if moment.state is state) :]


def expected_targets(
    moments: list[Moment], policy: PolicySession, delay: int = 0, lost: Container[int] = ()
) -> dict[int, np.ndarray]:
    """What the policy wants at every tick `[A]`, from its own chunks: each action at its tick, the last held.

    Args:
        moments: of a run.
        policy: a session that shares nothing with the controller's.
        delay: ticks until a chunk acts.
        lost: ticks whose decisions come to nothing.
    """
    policy.reset()
    targets, asked, chunks = {}, (0, 0, 0), []
    for moment in moments:
        decided, off_grid, gaps = (now > before for now, before in zip(moment.asked, asked, strict=True))
        asked = moment.asked
        if gaps:
            policy.reset()
        if (decided or off_grid) and moment.tick not in lost:
            policy.flat_inputs[:] = moment.inputs
            chunks.append((moment.tick, policy.infer().astype(float)))
            if decided:
                policy.commit()
        acting = [(begin, chunk) for begin, chunk in chunks if begin + delay <= moment.tick]
        if acting:
            begin, chunk = acting[-1]
            targets[moment.tick] = chunk[min(moment.tick - begin, len(chunk) - 1)]
    return targets


def spell(labels: list[str]) -> str:
    """How many of each there are in a row."""
    return ", ".join(f"{label} {len(list(group))}" for label, group in groupby(labels))


class Speller:
    """Names commands, and checks every number of each that it names."""

    def __init__(self, profile: Profile, policy: PolicySession):
        self.profile = profile
        (term,) = policy.contract.actions
        columns = [term.joints.index(joint.name) for joint in profile.actuated]
        self.columns = columns
        self.gains = np.array([term.kp, term.kd])[:, columns]
        self.limits = np.array([joint.position for joint in profile.actuated]).T
        self.trained = np.array([term.low, term.high])[:, columns]
        self.effort = np.array([joint.effort for joint in profile.actuated])
        every = [
            step for event in ("stale_source", "limit") for step in profile.fallback.ladder(event, "run")
        ]
        self.tracks = [step for step in (*profile.start, *profile.stop, *every) if isinstance(step, Track)]

    def labels(self, moments: list[Moment], targets: dict[int, np.ndarray]) -> list[str]:
        """One for each command, in order from the first tick on; `targets` are the policy's."""
        self.motion, self.count = None, 0
        return [self._label(moment, targets.get(moment.tick)) for moment in moments]

    def _label(self, moment: Moment, target: np.ndarray | None) -> str:
        command, sample = moment.command, moment.sample
        measured = np.zeros((2, len(self.effort)))
        for row, kind in enumerate(("joint_position", "joint_velocity")):
            found = sample.values[kind]
            measured[row] = np.where(np.abs(found) < 1e38, found, 0.0)
        if command.mode != "track":
            self.motion = None
        if command.mode == "disabled":
            assert not command.rows.any()
            return "off"
        if command.mode == "damping":
            kd = self.profile.kd("damping")
            self._check(command, measured, np.array([0.0 * kd, kd]), measured[0], 0.0)
            return "damp"
        ratio = command.kd / command.kp
        if np.allclose(ratio, self.gains[1] / self.gains[0]):
            self.motion = None
            assert target is not None
            wanted = np.clip(target[self.columns], *self.trained)
            self._check(command, measured, self.gains, wanted, 0.0)
            return "policy"
        return self._motion_label(command, measured)

    def _motion_label(self, command: JointCommand, measured: np.ndarray) -> str:
        candidates = [self.motion] if self.motion else []
        candidates += [(track, measured[0]) for track in self.tracks] + [(None, measured[0])]
        for candidate in candidates:
            count = self.count + 1 if candidate is self.motion else 1
            track, begin = candidate
            if track is None:
                q, dq = begin, 0.0 * begin
            else:
                ticks = round(track.duration_s / 0.02)
                x = min(count / ticks, 1.0)
                way = self.profile.actuated_values(self.profile.pose(track)) - begin
                q = begin + way * x**3 * (10 - 15 * x + 6 * x**2)
                dq = way * 30 * x**2 * (1 - x) ** 2 / track.duration_s
            if np.abs(command.state - (np.clip(q, *self.limits), dq)).max() < CLOSE:
                self.motion, self.count = (track, begin.copy()), count
                gains = "hold" if "hold" in self.profile.gains else "stand"
                both = np.array([self.profile.kp(gains), self.profile.kd(gains)])
                self._check(command, measured, both, q, dq)
                return "hold" if track is None else str(track.pose)
        raise AssertionError(f"tick {command.tick}: no motion of the profile")

    def _check(self, command, measured, gains, q, dq) -> None:
        q = np.clip(q, *self.limits)
        torque = np.abs(gains[0] * (q - measured[0]) + gains[1] * (dq - measured[1]))
        limited = self.profile.effort_limited_by == "controller"
        share = np.minimum(1.0, self.effort / np.maximum(torque, 1e-12)) if limited else 1.0
        assert np.abs(command.state - (q, dq + 0.0 * q)).max() < CLOSE
        np.testing.assert_allclose(command.gains, gains * share, rtol=1e-6)
        assert not command.tau_ff.any()

"""The fault matrix, the measurement's side: for each fault the commands that follow, and the reason told.

Every row runs through the loop with a fake clock, on the shipped profiles of 29 and of 12 joints, and every
number of every command is checked; then what was recorded runs again by direct calls, bit-equal.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
import yaml
from faults.figure import PERIOD_NS, Attendant, FakeClock, Figure
from faults.steps import Log, Speller, expected_targets, spell
from faults.trial import (
    AT,
    CROUCH,
    DAMPED,
    FOREVER,
    ROBOTS,
    RUN,
    SECOND,
    UNGUARDED,
    Bench,
    Q,
    changed_profile,
    fault,
    ladder,
    rest,
    run,
)

from andante.runtime.controller import Controller
from andante.runtime.loop import RealtimeLoop
from andante.runtime.profile import SHIPPED
from andante.runtime.recorder.recording import read_recording
from andante.runtime.recorder.replay import replay
from andante.sim.faults import Fault


@pytest.fixture(scope="module", params=ROBOTS)
def bench(request, tmp_path_factory):
    return Bench.of(request.param, tmp_path_factory.mktemp(request.param))


@dataclass
class Row:
    """A fault, and by robot what follows: commands since the policy began, and the reason (None: no fault).

    A number stands for the policy's ticks until it crouches and then damps.
    """

    name: str
    faults: tuple[Callable[[int], Fault], ...]
    humanoid29: tuple[int | str, str | None]
    quadruped: tuple[int | str, str | None]
    changes: dict[str, Any] = field(default_factory=dict)
    """Of the quality of joint_position in the profile."""
    dropped: tuple[int, int] | None = None
    """Decisions that were due at a tick without a sound measurement, where that is told."""


FINE = (None, None)
ROWS = [
    Row("nothing", (), FINE, FINE),
    # Time.
    Row(
        "missing",
        (fault("drop", Q),),
        (10, f"stale_source: {Q} is 80.0 ms old"),
        (11, f"stale_source: {Q} is 100.0 ms old"),
    ),
    Row(
        "all missing",
        (fault("drop"),),
        (10, f"stale_source: {Q} is 80.0 ms old"),
        (11, "stale_source: joint_position is 100.0 ms old"),
    ),
    Row("missing, and back in time", (fault("drop", Q, ticks=3),), FINE, FINE, dropped=(1, 1)),
    Row(
        "late",
        (fault("delay", Q, 5),),
        (10, f"stale_source: {Q} is 80.0 ms old"),
        (11, f"stale_source: {Q} is 100.0 ms old"),
    ),
    Row(
        "frozen",
        (fault("freeze", Q),),
        (17, f"stale_source: {Q} is frozen: 12 equal measurements in a row"),
        (19, f"stale_source: {Q} is frozen: 14 equal measurements in a row"),
    ),
    Row("frozen, and back in time", (fault("freeze", Q, ticks=10),), FINE, FINE),
    Row(
        "duplicated",
        (fault("duplicate", Q),),
        (10, f"stale_source: {Q} is 80.0 ms old"),
        (11, f"stale_source: {Q} is 100.0 ms old"),
    ),
    # Every second stamp is behind the one before: two ticks are made up for by four, and not by two.
    Row(
        "reordered",
        (fault("reorder", Q),),
        (15, f"stale_source: {Q} has a stamp 20.0 ms before the one before"),
        (15, f"stale_source: {Q} has a stamp 20.0 ms before the one before"),
    ),
    Row(
        "zero stamps",
        (fault("stamp_zero", Q),),
        (9, f"stale_source: {Q} is 60.0 ms old"),
        (10, f"stale_source: {Q} is 80.0 ms old"),
    ),
    Row("stamps go back", (fault("stamp_jump", Q, -10 * SECOND),), FINE, FINE),
    Row("stamps jump on, and back", (fault("stamp_jump", Q, 10 * SECOND, ticks=5),), FINE, FINE),
    Row(
        "stamps of another clock",
        (fault("stamp_jump", amount=1e15, begin=-FOREVER, ticks=2 * FOREVER),),
        FINE,
        FINE,
    ),
    Row(
        "synchronised stamps from the future",
        (fault("stamp_jump", Q, SECOND),),
        (9, f"stale_source: {Q} is stamped 1000.0 ms in the future"),
        (9, f"stale_source: {Q} is stamped 1000.0 ms in the future"),
        {"clock": "synchronised"},
    ),
    Row(
        "synchronised stamps too old",
        (fault("stamp_jump", Q, -0.07 * SECOND),),
        (9, f"stale_source: {Q} is 70.0 ms old"),
        (9, f"stale_source: {Q} is 70.0 ms old"),
        {"clock": "synchronised"},
    ),
    Row(
        "a gap that is too long",
        tuple(fault("drop", Q, begin=begin, ticks=2) for begin in (7, 14, 21)),
        FINE,
        FINE,
        {"max_gap_s": 0.05},
    ),
    Row("robot's clock jumps on", (fault("clock_jump", amount=5 * SECOND),), FINE, FINE),
    Row("robot's clock jumps back", (fault("clock_jump", amount=-5 * SECOND),), FINE, FINE),
    # Values.
    Row(
        "a number that float32 has not",
        (fault("set", Q, 1e39),),
        (DAMPED, f"non_finite: {Q} of joint 'left_hip_pitch' is not finite"),
        (DAMPED, f"non_finite: {Q} of joint 'FL_hip' is not finite"),
    ),
    Row(
        "beyond the limit",
        (fault("set", Q, 2.95, ticks=5),),
        (
            f"policy {AT}, hold 15, crouch 75, damp",
            f"limit: {Q} of joint 'left_hip_pitch' is 2.95, hard limits [-2.5, 2.8]",
        ),
        (DAMPED, f"limit: {Q} of joint 'FL_hip' is 2.95, hard limits [-1, 1]"),
    ),
    Row(
        "no rotation",
        (fault("set", "orientation", 0.0, ticks=1),),
        (DAMPED, "non_finite: orientation is no rotation: its norm is 0"),
        (DAMPED, "non_finite: orientation is no rotation: its norm is 0"),
    ),
    Row(
        "tilt",
        (fault("set", "orientation", 0.5, ticks=1),),
        (DAMPED, "tilt: the base leans by 1.57 rad, at most 0.7"),
        (DAMPED, "tilt: the base leans by 1.57 rad, at most 1"),
    ),
    # Driver.
    Row(
        "reading fails",
        (fault("raise_read", ticks=1),),
        (
            DAMPED,
            f"e_stop: robot 'figure' failed to read: OSError('injected at tick {RUN['humanoid29'] + AT}')",
        ),
        (
            DAMPED,
            f"e_stop: robot 'figure' failed to read: OSError('injected at tick {RUN['quadruped'] + AT}')",
        ),
    ),
    Row(
        "writing fails",
        (fault("raise_write", ticks=1),),
        ("policy 8, damp", f"e_stop: robot 'figure' failed to write: OSError('injected at tick {176 + AT}')"),
        ("policy 8, damp", f"e_stop: robot 'figure' failed to write: OSError('injected at tick {151 + AT}')"),
    ),
    Row("a slow reading", (fault("slow_read", amount=0.025 * SECOND, ticks=1),), FINE, FINE),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_what_follows_a_fault_of_the_measurement(bench, row, tmp_path):
    profile = None
    if row.changes:
        profile = changed_profile(bench, tmp_path, lambda content: content["signals"][Q].update(row.changes))
    found = run(bench, row.faults, profile=profile)
    if row.dropped is not None:
        assert found.report.dropped == row.dropped[ROBOTS.index(bench.robot)]
    after, reason = getattr(row, bench.robot)
    if reason is None:
        end = {"humanoid29": ", crouch 150, damp 50, off", "quadruped": ", stand 50, crouch 75, damp 50, off"}
        assert found.spelt.startswith("policy ") and found.spelt.rpartition(" ")[0].endswith(end[bench.robot])
        assert found.spelt.count("policy") == 1
        assert (found.report.faults, found.report.state) == ((), "disabled")
    else:
        assert rest(found.spelt, after if isinstance(after, str) else ladder(bench, after))
        assert (found.report.faults, found.report.state) == ((reason,), "fault")


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_recording_of_it_replays_bit_by_bit(bench, row, tmp_path):
    path, profile = tmp_path / "rec.mcap", None
    if row.changes:
        profile = changed_profile(bench, tmp_path, lambda content: content["signals"][Q].update(row.changes))
    found = run(bench, row.faults, profile=profile, seconds=0.6, told=False, record=path)
    recording = read_recording(path)
    replayed = replay(recording, bench.twin)
    assert (replayed.equal, replayed.ticks) == (True, len(found.log))
    assert recording.statuses[-1].fault == (found.report.faults[0] if found.report.faults else None)
    assert np.array_equal([m.command.rows.ravel() for m in found.log], recording.numbers("target"))


SIGNALS = [
    (robot, signal, kind)
    for robot in ROBOTS
    for signal in yaml.safe_load((SHIPPED / f"{robot}.yaml").read_text())["signals"]
    for kind in ("nan", "inf")
]


@pytest.mark.parametrize(("bench", "signal", "kind"), SIGNALS, indirect=["bench"])
def test_a_signal_that_is_not_finite_is_damped_at_once(bench, signal, kind):
    found = run(bench, [fault(kind, signal, ticks=1)], seconds=0.5)
    joint = f" of joint {bench.profile.joint_names[0]!r}" if signal.startswith("joint_") else ""
    assert rest(found.spelt, DAMPED)
    assert found.report.faults == (f"non_finite: {signal}{joint} is not finite",)


def test_a_network_that_is_not_finite_is_damped_at_its_decision(bench):
    found = run(bench, [fault("set", UNGUARDED[bench.robot], 100.0)], seconds=0.5)
    assert rest(found.spelt, "policy 9, damp")
    assert found.report.faults == ("non_finite: the policy's chunk or memory is not finite",)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
def test_a_command_that_is_not_finite_is_damped_at_once(bench, value):
    def wishes(tick, operator):
        if tick == AT:
            operator.command[1] = value

    found = run(bench, wishes=wishes, seconds=0.5)
    (source,) = (source for source in bench.policy.contract.sources if source.kind == "command")
    assert rest(found.spelt, DAMPED)
    assert found.report.faults == (f"non_finite: command {source.components[1].name!r} is not finite",)


HUMANOID = pytest.mark.parametrize("bench", ["humanoid29"], indirect=True)


@HUMANOID
@pytest.mark.parametrize(
    ("signal", "value", "ticks", "event", "reason"),
    [
        ("battery_voltage", 43.0, 50, "battery", "battery_voltage is 43, at least 44"),
        (
            "joint_temperature",
            86.0,
            100,
            "temperature",
            "joint_temperature of joint 'left_hip_pitch' is 86, at most 85",
        ),
    ],
)
@pytest.mark.parametrize("longer", [False, True])
def test_a_low_battery_or_a_hot_motor_is_tolerated_for_so_many_ticks(
    bench, signal, value, ticks, event, reason, longer
):
    found = run(bench, [fault("set", signal, value, ticks=ticks + longer)], seconds=4.0)
    if longer:
        assert rest(found.spelt, ladder(bench, AT + ticks))
        assert found.report.faults == (f"{event}: {reason}",)
    else:
        assert found.spelt == "policy 200, crouch 150, damp 50, off 1"


@HUMANOID
def test_a_silent_operator_is_tolerated_for_so_many_ticks(bench):
    def wishes(tick, operator):
        if tick >= AT:
            operator.command_ns -= 1_100_000_000

    found = run(bench, wishes=wishes)
    assert rest(found.spelt, ladder(bench, AT + 10))
    assert found.report.faults == ("operator: no command for 1100.0 ms",)


OVERRUN = "overrun: work ended after the next deadline, or a tick was missed"


@pytest.mark.parametrize(
    ("late_ticks", "falls", "gaps"),
    [
        ((1,), (False, False), 0),
        ((3,), (False, False), 1),
        ((1,) * 6, (True, True), 0),
        ((500,), (True, True), 1),
    ],
)
def test_the_loops_clock_jumps(bench, late_ticks, falls, gaps):
    """Missed ticks count as one event each, and after a long gap the memory begins anew."""
    ticks = itertools.accumulate([AT, *(late + 1 for late in late_ticks[:-1])])
    late_ns = {tick: late * PERIOD_NS for tick, late in zip(ticks, late_ticks, strict=True)}
    found = run(bench, late_ns=late_ns, seconds=14.0 if late_ticks == (500,) else 1.0)
    assert found.report.missed == sum(late_ticks)
    assert found.log.controller.counters.gaps == (0 if falls[0] else gaps)
    tolerated = {"humanoid29": 5, "quadruped": 10}[bench.robot] // 2
    if falls[0]:
        ran = AT if late_ticks == (500,) else AT + tolerated
        assert found.spelt.startswith(f"policy {ran}, crouch {CROUCH[bench.robot]}")
        assert found.report.faults == (OVERRUN,)
    else:
        assert found.spelt.startswith(f"policy {50 - sum(late_ticks)}, ")
        assert found.report.faults == ()


@pytest.mark.parametrize("what", ["missing", "too few", "one for all"])
def test_a_measurement_of_other_joints_is_an_emergency_stop(bench, what):
    """Of a driver that changes its mind in mid-run."""
    clock = FakeClock()
    robot = Figure(bench.profile, clock)
    read = robot.read

    def wrong():
        sample = read()
        if clock.time_ns - clock.start_ns < (RUN[bench.robot] + AT) * PERIOD_NS:
            return sample
        values = dict(sample.values)
        size = len(values[Q])
        if what == "missing":
            del values[Q]
        else:
            values[Q] = values[Q][: size - 1 if what == "too few" else 1]
        return replace(sample, values=values)

    robot.read = wrong
    controller = Controller(bench.policy, bench.profile)
    log = Log(controller)
    report = RealtimeLoop(controller, robot, clock=clock, operator=Attendant(), observers=[log]).run(0.5)
    reasons = {
        "missing": f"KeyError('{Q}')",
        "too few": f"{Q} has shape ({len(robot.joints) - 1},), expected ({len(robot.joints)},)",
        "one for all": f"{Q} has shape (1,), expected ({len(robot.joints)},)",
    }
    assert report.faults[0].startswith("e_stop: robot 'figure' failed to read: ")
    assert reasons[what] in report.faults[0]
    labels = Speller(bench.profile, bench.policy).labels(log, expected_targets(log, bench.twin))
    assert spell(labels[RUN[bench.robot] :]).startswith(f"policy {AT}, damp 1")
    controller.deactivate()

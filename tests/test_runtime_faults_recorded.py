"""The fault matrix and the recorder: what is replayed from a file, and files that cannot be written."""

from __future__ import annotations

import resource
import threading
from dataclasses import dataclass

import numpy as np
import pytest
from faults.figure import PERIOD_NS, Attendant, FakeClock, Figure, figure_policy
from faults.steps import Log
from faults.trial import (
    AT,
    ROBOTS,
    RUN,
    UNGUARDED,
    Bench,
    fall_silent,
    fault,
    press,
    run,
    same,
    wishes_until,
)

from andante.runtime.controller import Controller
from andante.runtime.loop import LoopReport, RealtimeLoop
from andante.runtime.policy import load_policy
from andante.runtime.recorder.parts import Parts
from andante.runtime.recorder.recorder import Recorder
from andante.runtime.recorder.recording import Recording, read_recording
from andante.runtime.recorder.replay import replay


@pytest.fixture(scope="module", params=ROBOTS)
def bench(request, tmp_path_factory):
    return Bench.of(request.param, tmp_path_factory.mktemp(request.param))


# What happened is replayed from the file alone


def replayed(bench, path, found) -> Recording:
    """The recording holds every command of the run, and makes them again bit by bit."""
    recording = read_recording(path)
    assert (recording.damage, len(recording.rows)) == (None, len(found.log))
    assert np.array_equal([m.command.rows.ravel() for m in found.log], recording.numbers("target"))
    assert recording.statuses[-1].fault == (found.report.faults[0] if found.report.faults else None)
    again = replay(recording, bench.twin)
    assert (again.equal, again.ticks) == (True, len(found.log))
    return recording


def give_nan(operator):
    operator.command[1] = np.nan


@pytest.mark.parametrize(
    ("event", "reason"),
    [
        (press, "e_stop: red button"),
        (fall_silent, "e_stop: the emergency-stop device has been silent for 501.0 ms"),
        (give_nan, "non_finite: command "),
    ],
)
def test_an_operators_fault(bench, tmp_path, event, reason):
    path = tmp_path / "rec.mcap"
    found = run(bench, wishes=wishes_until(AT, None, event), seconds=0.4, record=path)
    assert found.report.faults[0].startswith(reason)
    recording = replayed(bench, path, found)
    pressed = recording.statuses[RUN[bench.robot] + AT].e_stop
    assert pressed == ("red button" if event is press else None)


def test_commands_that_change_and_a_stop(bench, tmp_path):
    def wishes(tick, operator):
        operator.command[:] = np.sin([tick, 0.3 * tick, 3.0])
        operator.stop = tick == 20

    path = tmp_path / "rec.mcap"
    found = run(bench, wishes=wishes, seconds=2.0, record=path)
    assert (found.report.faults, found.report.state) == ((), "disabled")
    assert found.spelt.startswith("policy 20, ")
    recording = replayed(bench, path, found)
    wanted = recording.numbers("wanted")[RUN[bench.robot] :][:20]
    np.testing.assert_array_equal(wanted, [np.sin([tick, 0.3 * tick, 3.0]) for tick in range(20)])


@pytest.mark.parametrize("bench", ["humanoid29"], indirect=True)
def test_an_operator_who_falls_silent_and_a_low_battery(bench, tmp_path):
    def wishes(tick, operator):
        if tick >= AT:
            operator.command_ns -= 1_100_000_000

    path = tmp_path / "rec.mcap"
    found = run(bench, wishes=wishes, seconds=1.0, record=path)
    assert found.report.faults == ("operator: no command for 1100.0 ms",)
    replayed(bench, path, found)
    path = tmp_path / "battery.mcap"
    found = run(bench, [fault("set", "battery_voltage", 43.0)], seconds=2.0, record=path)
    assert found.report.faults == ("battery: battery_voltage is 43, at least 44",)
    replayed(bench, path, found)


def test_missed_ticks(bench, tmp_path):
    path = tmp_path / "rec.mcap"
    late_ns = {AT: 3 * PERIOD_NS, AT + 10: PERIOD_NS}
    found = run(bench, late_ns=late_ns, seconds=0.6, record=path)
    assert (found.report.faults, found.report.missed) == ((), 4)
    recording = replayed(bench, path, found)
    assert np.diff(recording.integers("tick")).max() == 4


def test_inference_that_raises(bench, tmp_path, monkeypatch):
    def touchy(policy):
        infer = policy.infer

        def checked():
            if policy.flat_inputs[0] > 50.0:
                raise ValueError("bad weights")
            return infer()

        monkeypatch.setattr(policy, "infer", checked)

    for session in (bench.policy, bench.twin):
        touchy(session)
    path = tmp_path / "rec.mcap"
    faults = [fault("set", UNGUARDED[bench.robot], 60.0)]
    found = run(bench, faults, lost={9}, seconds=0.4, record=path)
    assert found.report.faults == ("non_finite: the policy failed: ValueError('bad weights')",)
    bench.twin.flat_inputs.fill(0.0)  # the policy is warmed up with what was there last
    replayed(bench, path, found)
    # A policy that does not fail is not what was recorded.
    monkeypatch.undo()
    again = replay(read_recording(path), bench.twin)
    assert again.difference is not None and again.ticks == RUN[bench.robot] + 9


def test_a_swap_is_replayed_until_the_other_policy_takes_over(bench, tmp_path):
    other, path = tmp_path / "other.onnx", tmp_path / "rec.mcap"
    digest = figure_policy(other, bench.robot, seed=5).digest
    deeds = {AT: lambda controller: controller.swap(load_policy(other))}
    found = run(bench, deeds=deeds, told=False, seconds=0.5, record=path)
    recording = read_recording(path)
    assert np.array_equal([m.command.rows.ravel() for m in found.log], recording.numbers("target"))
    border = RUN[bench.robot] + 9
    assert [status.policy for status in recording.statuses[border - 1 : border + 1]] == [
        bench.policy.digest,
        digest,
    ]
    again = replay(recording, bench.twin)
    assert (again.difference, again.ticks) == (None, border)
    assert again.unfinished == f"at tick {border} another policy took over"


# Files that cannot be written


@dataclass
class Recorded:
    """A run of the loop."""

    report: LoopReport
    log: Log
    recorder: Recorder | None


def loop(bench, run_s, before_closing=bool, **recording) -> Recorded:
    """Run, with a recorder that is closed at the end where there is to be one."""
    clock = FakeClock()
    controller = Controller(bench.policy, bench.profile)
    log = Log(controller)
    recorder = Recorder(controller, **recording) if recording else None
    observers = [log] if recorder is None else [recorder.add, log]
    figure = Figure(bench.profile, clock)
    report = RealtimeLoop(controller, figure, clock=clock, operator=Attendant(), observers=observers).run(
        run_s
    )
    before_closing()
    if recorder is not None:
        recorder.close()
    return Recorded(report, log, recorder)


def equal(first: Recorded, second: Recorded) -> bool:
    commands = zip(first.log, second.log, strict=True)
    return first.report.faults == second.report.faults and all(
        same(one.command, other.command) and one.state is other.state for one, other in commands
    )


def test_a_disk_that_is_full_changes_no_command_and_is_told(bench, tmp_path):
    path = tmp_path / "rec.mcap"
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, limit[1]))
    try:
        found = loop(bench, 2.0, path=path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert found.report.faults == () and equal(found, loop(bench, 2.0))
    lost = found.recorder.lost
    assert found.recorder.told == f"{path} ({lost} ticks lost; {path}: File too large, cannot record)"
    recording = read_recording(path)
    assert recording.damage.startswith(f"{path}: ends early, after ")
    assert 0 < len(recording.rows) < len(found.log) <= len(recording.rows) + lost
    assert replay(recording, bench.twin).ticks == len(recording.rows)


def test_a_writer_that_stalls_changes_no_command_and_the_ticks_it_loses_are_told(
    bench, tmp_path, monkeypatch
):
    """Until the queue is full, and on: as a network drive does that is gone for a while."""
    path, back, write = tmp_path / "rec.mcap", threading.Event(), Parts.write

    def stalled(parts, *arguments):
        back.wait(30)
        write(parts, *arguments)

    monkeypatch.setattr(Parts, "write", stalled)
    found = loop(bench, 9.0, back.set, path=path, seconds=0.02)
    log, recorder = found.log, found.recorder
    assert found.report.faults == () and equal(found, loop(bench, 9.0))
    queue = len(log) - recorder.lost
    assert recorder.told == f"{path} ({recorder.lost} ticks lost; the files are written too slowly)"
    recording = read_recording(path)
    assert (recording.damage, len(recording.rows)) == (None, queue)
    assert 0 < recorder.lost < len(log)
    assert recording.integers("tick").tolist() == list(range(queue))
    assert replay(recording, bench.twin).ticks == queue

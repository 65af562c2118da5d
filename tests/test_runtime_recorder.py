"""The flight recorder: what it writes, what it survives, and recordings run again, compared and plotted."""

from __future__ import annotations

import resource
import signal
import subprocess
import sys
import time
import tracemalloc
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from humanoid import humanoid_policy, humanoid_profile
from hypothesis import given, strategies as st
from mcap.reader import make_reader
from msgspec import structs
from rig import Rig
from small_policy import write_small_policy

from andante.cli import main
from andante.runtime.command import NEVER_NS
from andante.runtime.contract import Trained
from andante.runtime.controller import Controller
from andante.runtime.errors import AndanteError
from andante.runtime.loop import RealtimeLoop
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.recorder.layout import Layout
from andante.runtime.recorder.recorder import AFTER_S, Recorder
from andante.runtime.recorder.recording import read_recording
from andante.runtime.recorder.replay import compare, replay
from andante.runtime.recorder.report import write_report
from andante.runtime.recorder.robot import ReplayRobot
from andante.runtime.recorder.row import Row
from andante.runtime.states import State
from andante.runtime.worker import AsynchronousWorker
from andante.sim.faults import Fault, FaultyRobot
from andante.sim.robot import SimRobot

ANDANTE = Path(sys.executable).with_name("andante")
PERIOD_S = 0.02


@pytest.fixture(scope="module")
def policy_path(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("recorder") / "policy.onnx")


def record(policy_path, path=None, run_s=2.0, faults=(), faults_in=None, clock=None, run=None, **options):
    """Run the simulated robot as fast as it goes; the recorder, closed, and the report."""
    controller = Controller(load_policy(policy_path), **({"profile": load_profile("pendulum")} | (run or {})))
    robot = FaultyRobot(SimRobot(controller.contract, controller.profile), faults, sleep=lambda _: None)
    recorder = Recorder(controller, path, faults=faults_in, **options)
    loop = RealtimeLoop(controller, robot, clock=clock or VirtualClock(), observers=[recorder.add])
    report = loop.run(run_s)
    recorder.close()
    return recorder, report


# Numbers in messages


@given(st.lists(st.floats(width=64) | st.sampled_from([-0.0, 5e-324, 1e308]), min_size=3, max_size=3))
def test_every_number_survives_bit_by_bit(values):
    tree = {
        "tick": "int",
        "on": "bool",
        "state": "enum A B C",
        "q": dict.fromkeys(["left hip", "2", "é"], "double"),
    }
    layout = Layout("Thing", tree)
    row = np.zeros(layout.width)
    row[layout.place("q")] = values
    row.view(np.int64)[:3] = [NEVER_NS, 1, 2]
    assert layout.decode(layout.encode(row)).tobytes() == row.tobytes()


def parse(schema, data):
    """Through Google's protobuf, which is what viewers do."""
    files = descriptor_pb2.FileDescriptorSet.FromString(schema.data)
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(schema.name)).FromString(data)


def test_others_read_the_file_by_its_own_schema(tmp_path):
    rig = Rig(humanoid_policy(tmp_path), humanoid_profile(), horizon=2)
    recorder = Recorder(rig.controller, tmp_path / "rec.mcap")
    rig.operator.command[:] = [0.5, 0.0, 0.2]
    rig.controller.activate()
    rig.operator.heartbeat_ns = 0
    rig.q[4] = 0.125
    command = rig.tick()
    recorder.add(0, rig.sample, command)
    recorder.close()
    with (tmp_path / "rec.mcap").open("rb") as file:
        reader = make_reader(file, validate_crcs=True)
        messages = {channel.topic: (schema, message) for schema, channel, message in reader.iter_messages()}
        assert [attachment.name for attachment in reader.iter_attachments()] == [
            "contract.json",
            "profile.json",
        ]
    schema, message = messages["/tick"]
    tick = parse(schema, message.data)
    joint = rig.controller.profile.joint_names[4]
    assert getattr(tick.signals.joint_position, joint) == 0.125
    assert getattr(tick.target.kd, joint) == command.kd[4] > 0.0
    assert (tick.wanted.vx, tick.wanted.wz, tick.sample.now_ns) == (0.5, 0.2, 0)
    assert type(tick).DESCRIPTOR.enum_types_by_name["Type_state"].values[tick.state].name == rig.state.name
    assert b'"message":"tick 0: ' + rig.state.name.encode() in messages["/status"][1].data


def test_recorded_sources_are_what_the_policy_read(tmp_path):
    rig = Rig(humanoid_policy(tmp_path), humanoid_profile(), horizon=2)
    recorder, seen = Recorder(rig.controller, tmp_path / "rec.mcap"), []
    tick = rig.tick

    def recorded(*args, **options):
        rig.operator.heartbeat_ns = rig.operator.command_ns = rig.next * 20_000_000
        for values in rig.sample.values.values():
            values += 1e-6 * (-1) ** rig.next
        rig.sample.values["orientation"][:] = [1e-6 * rig.next, 1.0, 0.0, 0.0]
        command = tick(*args, **options)
        recorder.add(rig.next - 1, rig.sample, command)
        if rig.controller.counters.decisions > len(seen):
            seen.append(np.concatenate([values.ravel() for values in rig.policy.inputs.values()]))
        return command

    rig.tick = recorded
    rig.go(State.RUN)
    for _ in range(7):
        rig.tick()
    recorder.close()
    recording = read_recording(tmp_path / "rec.mcap")
    assert len(seen) == 4
    assert np.array_equal(recording.sources[:, 1:], seen)
    assert recording.sources[:, 0].view(np.int64).tolist() == [rig.next - k for k in (8, 6, 4, 2)]
    assert replay(recording, load_policy(next(tmp_path.glob("*.onnx")))).equal


# Replay


FAULTS = {
    "nan": (Fault(kind="nan", from_tick=60, to_tick=62, signal="joint_velocity"),),
    "stale": (Fault(kind="drop", from_tick=60, to_tick=70),),
    "reordered": (Fault(kind="reorder", from_tick=40, to_tick=60),),
    "clock": (Fault(kind="clock_jump", from_tick=50, to_tick=51, amount=-1e9),),
    "driver": (Fault(kind="raise_read", from_tick=50, to_tick=51),),
}


@pytest.mark.parametrize("name", FAULTS)
def test_recording_with_faults_replays_bit_by_bit(policy_path, tmp_path, name):
    _, report = record(policy_path, tmp_path / "rec.mcap", faults=FAULTS[name])
    recording = read_recording(tmp_path / "rec.mcap")
    assert recording.damage is None
    assert (
        (recording.statuses[-1].fault is not None)
        == bool(report.faults)
        == (name not in ("reordered", "clock"))
    )
    assert replay(recording, load_policy(policy_path)).ticks == len(recording.rows) >= report.ticks
    assert replay(recording, load_policy(policy_path)).equal


class LateClock(VirtualClock):
    """Wakes a period too late, from 60 ticks on."""

    def sleep_until_ns(self, deadline_ns):
        super().sleep_until_ns(deadline_ns + (20_000_000 if deadline_ns > 60 * 20_000_000 else 0))


def test_recording_with_missed_ticks_replays_bit_by_bit(policy_path, tmp_path):
    _, report = record(policy_path, tmp_path / "rec.mcap", clock=LateClock())
    assert report.faults[0].startswith("overrun: ") and report.missed > 10
    recording = read_recording(tmp_path / "rec.mcap")
    assert replay(recording, load_policy(policy_path)).equal
    assert recording.integers("timing", "lateness_ns").max() == 20_000_000


@pytest.mark.realtime
@pytest.mark.parametrize("mode", ["receding", "blend"])
def test_recording_with_slow_asynchronous_inference_replays_bit_by_bit(tmp_path, mode):
    path = write_small_policy(
        tmp_path / "policy.onnx",
        inference_delay=Trained(values=(0, 1, 2), default=0),
        chunk_size=6,
        execution_horizon=Trained(values=(3,), default=3),
    )
    policy = load_policy(path)
    infer, durations = policy.infer, np.random.default_rng(0).choice([0.0, 0.03, 0.055], 1000)

    def slow():
        time.sleep(durations[policy_calls.pop()])
        return infer()

    policy_calls = list(range(1000))
    worker = AsynchronousWorker(policy)
    controller = Controller(policy, load_profile("pendulum"), 3, worker, mode=mode)
    policy.infer = slow
    recorder = Recorder(controller, tmp_path / "rec.mcap")
    report = RealtimeLoop(
        controller, SimRobot(controller.contract, controller.profile), observers=[recorder.add]
    ).run(1.5)
    recorder.close()
    worker.close()
    recording = read_recording(tmp_path / "rec.mcap")
    assert set(recording.integers("delay")) >= {0, 1}
    assert report.dropped + report.refused + report.starved > 0
    assert recording.header.asynchronous
    result = replay(recording, load_policy(path))
    assert (result.ticks, result.difference, result.unfinished) == (len(recording.rows), None, None)


def test_two_runs_in_one_recording_replay(policy_path, tmp_path):
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(controller, tmp_path / "rec.mcap")
    loop = RealtimeLoop(
        controller,
        SimRobot(controller.contract, controller.profile),
        clock=VirtualClock(),
        observers=[recorder.add],
    )
    ticks = [loop.run(0.5).ticks for _ in range(2)]
    recorder.close()
    recording = read_recording(tmp_path / "rec.mcap")
    assert np.flatnonzero(recording.integers("begins")).tolist() == [0, ticks[0] + 1]
    assert replay(recording, load_policy(policy_path)) == replay(recording, load_policy(policy_path))
    assert replay(recording, load_policy(policy_path)).ticks == sum(ticks) + 2


def test_replay_names_the_first_tick_that_differs(policy_path, tmp_path):
    record(policy_path, tmp_path / "rec.mcap")
    recording = read_recording(tmp_path / "rec.mcap")
    rows = recording.rows.copy()
    column = recording.layout.place("target", "tau_ff").start
    at = 60
    rows[at, column] = np.nextafter(rows[at, column], np.inf)
    result = replay(replace(recording, rows=rows), load_policy(policy_path))
    assert result.ticks == at
    assert result.difference == (
        f"tick {at}: tau_ff of joint 'hinge': recorded {rows[at, column]!r}, "
        f"replayed {recording.rows[at, column]!r}"
    )
    rows = recording.rows.copy()
    rows[at, recording.layout.place("signals", "joint_position").start] += 1e-3
    assert replay(replace(recording, rows=rows), load_policy(policy_path)).ticks == at  # a torque answers


def test_replay_compares_states_and_faults_too(policy_path, tmp_path):
    record(policy_path, tmp_path / "rec.mcap", faults=FAULTS["nan"])
    recording = read_recording(tmp_path / "rec.mcap")
    at = len(recording.rows) - 5
    fault = recording.statuses[at].fault
    others = tuple(
        msgspec.structs.replace(status, fault="tilt") if status.fault else status
        for status in recording.statuses
    )
    result = replay(replace(recording, statuses=others), load_policy(policy_path))
    assert result.difference == f"tick 60: fault: recorded 'tilt', replayed {fault!r}"
    rows = recording.rows.copy()
    rows.view(np.int64)[at, recording.layout.place("state")] = list(State).index(State.READY)
    result = replay(replace(recording, rows=rows), load_policy(policy_path))
    assert result.difference == f"tick {at}: state: recorded 'READY', replayed 'FAULT'"


def test_policy_of_another_digest_is_refused(policy_path, tmp_path):
    record(policy_path, tmp_path / "rec.mcap", run_s=0.1)
    other = load_policy(write_small_policy(tmp_path / "other.onnx", seed=7))
    with pytest.raises(
        AndanteError, match=r"rec.mcap: recorded with the policy of digest \w{16}\.\.\., found"
    ):
        replay(read_recording(tmp_path / "rec.mcap"), other)


@pytest.mark.parametrize("chunk_size", [3, 5])
def test_replay_ends_where_another_policy_took_over(policy_path, tmp_path, chunk_size):
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(controller, tmp_path / "rec.mcap")
    simulated = SimRobot(controller.contract, controller.profile)
    other = load_policy(write_small_policy(tmp_path / "other.onnx", seed=7, chunk_size=chunk_size))
    write, calls = simulated.write, []

    def swap(command):
        calls.append(command.tick)
        if len(calls) == 60:
            controller.swap(other)
        write(command)

    simulated.write = swap
    RealtimeLoop(controller, simulated, clock=VirtualClock(), observers=[recorder.add]).run(1.0)
    recorder.close()
    assert (recorder.lost, recorder.error) == (0, None)
    recording = read_recording(tmp_path / "rec.mcap")
    assert recording.statuses[-1].policy == other.digest
    read = np.concatenate([values.ravel() for values in other.inputs.values()])
    assert np.array_equal(recording.sources[-1, 1:], read)
    result = replay(recording, load_policy(policy_path))
    assert 60 <= result.ticks <= 65
    assert result.unfinished == f"at tick {result.ticks} another policy took over"


# The ring


def test_fault_writes_what_was_before_and_what_came_after(policy_path, tmp_path):
    faults = (Fault(kind="nan", from_tick=300, to_tick=301, signal="joint_position"),)
    recorder, report = record(policy_path, run_s=20.0, faults=faults, faults_in=tmp_path / "f", seconds=2.0)
    assert report.faults == ("non_finite: joint_position of joint 'hinge' is not finite",)
    (path,) = recorder.written
    assert path.parent == tmp_path / "f" and path.name.startswith("pendulum-fault-")
    recording = read_recording(path)
    ticks = recording.integers("tick")
    assert ticks[0] == 300 - 99 and ticks[-1] == 300 + AFTER_S / PERIOD_S
    assert np.isnan(recording.numbers("signals", "joint_position")[99])
    again = replay(recording, load_policy(policy_path))
    assert again.equal and again.ticks == len(recording.rows) - 10  # a snapshot is taken every ten ticks
    other = structs.replace(recording.snapshot, values={})
    with pytest.raises(AndanteError, match="snapshot is of another version"):
        replay(replace(recording, snapshot=other), load_policy(policy_path))


def test_fault_of_a_robot_that_was_not_running_can_only_be_looked_at(policy_path, tmp_path):
    faults = (Fault(kind="nan", from_tick=300, to_tick=301, signal="joint_position"),)
    profile = structs.replace(load_profile("pendulum"), confirm=True)
    recorder, _ = record(policy_path, None, 20.0, faults, tmp_path, seconds=2.0, run={"profile": profile})
    with pytest.raises(AndanteError, match="begins in the middle of a run, and its policy did not run there"):
        replay(read_recording(*recorder.written), load_policy(policy_path))


@pytest.mark.parametrize("begin", [200, 201, 202])
def test_fault_in_mid_run_of_a_walking_robot_replays(tmp_path, begin):
    path = write_small_policy(
        tmp_path / "policy.onnx",
        "quadruped",
        chunk_size=6,
        inference_delay=Trained(values=(2,), default=2),
        execution_horizon=Trained(values=(3,), default=3),
    )
    profile = load_profile("quadruped")
    joints = tuple(structs.replace(joint, velocity=1e3, position=None) for joint in profile.joints)
    profile = structs.replace(profile, confirm=False, max_tilt=3.2, joints=joints)
    fault = Fault(kind="drop", from_tick=begin, to_tick=9999, signal="joint_position")
    run = {"profile": profile, "mode": "blend", "overlap": 2}
    recorder, report = record(path, None, 20.0, (fault,), tmp_path, seconds=0.5, run=run)
    assert report.faults[0].startswith("stale_source: joint_position")
    recording = read_recording(*recorder.written)
    again = replay(recording, load_policy(path))
    assert again.equal and recording.rows.shape[0] - again.ticks <= 2
    carried = recording.snapshot.arrays
    wrong = {path: bytes(len(data)) for path, data in carried.items() if ".policy._blocks." in path}
    other = structs.replace(recording.snapshot, arrays=carried | wrong)
    assert "recorded" in replay(replace(recording, snapshot=other), load_policy(path)).difference


def test_recording_of_an_early_fault_replays(policy_path, tmp_path):
    recorder, _ = record(policy_path, faults=FAULTS["nan"], faults_in=tmp_path)
    recording = read_recording(*recorder.written)
    assert recording.integers("tick")[0] == 0 and recording.statuses[-1].fault.startswith("non_finite")
    assert replay(recording, load_policy(policy_path)).equal


@pytest.mark.realtime
def test_every_fault_of_a_process_has_its_recording(policy_path, tmp_path):
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(controller, faults=tmp_path)
    robot = SimRobot(controller.contract, controller.profile)
    loop = RealtimeLoop(controller, robot, clock=VirtualClock(), observers=[recorder.add])
    for _ in range(2):
        robot.set_state([0.0], [99.0])
        assert loop.run(10.0).faults
        controller.clear()
        time.sleep(0.5)
    recorder.close()
    first, second = (read_recording(path) for path in recorder.written)
    assert first.integers("tick")[0] == 0
    # All that is still in memory and not in the file before.
    assert second.integers("tick")[0] == first.integers("tick")[-1] + 1
    assert second.integers("begins").sum() == 1
    again = replay(second, load_policy(policy_path))
    assert again.equal and again.ticks == len(second.rows) - np.argmax(second.integers("begins"))


def test_folder_keeps_the_newest_faults(policy_path, tmp_path):
    for i in range(25):
        (tmp_path / f"pendulum-fault-2020{i:02}.mcap").touch()
    recorder, _ = record(policy_path, faults=FAULTS["nan"], faults_in=tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert len(names) == 20
    assert names[0] == "pendulum-fault-202006.mcap" and names[-1] == recorder.written[0].name


def test_run_without_faults_writes_nothing(policy_path, tmp_path):
    recorder, _ = record(policy_path, faults_in=tmp_path / "f")
    assert recorder.told is None and not (tmp_path / "f").exists()


def test_adding_a_tick_leaves_nothing_in_memory(policy_path):
    rig = Rig(load_policy(policy_path), load_profile("pendulum")).go(State.RUN)
    row = Row(rig.controller)
    command = rig.tick()

    def fill():
        for tick in range(1000):
            row.fill(tick, rig.sample, command, 0, 0, 0)

    fill()
    tracemalloc.start()
    fill()
    before = tracemalloc.take_snapshot()
    fill()
    after = tracemalloc.take_snapshot()
    tracemalloc.stop()
    own = [tracemalloc.Filter(True, "*/recorder/*")]
    grown = after.filter_traces(own).compare_to(before.filter_traces(own), "filename")
    assert sum(difference.size_diff for difference in grown) < 500


# What may go wrong


@pytest.mark.realtime
def test_full_queue_loses_ticks_counts_them_and_goes_on(policy_path, tmp_path):
    rig = Rig(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(rig.controller, tmp_path / "rec.mcap", seconds=PERIOD_S)
    rig.controller.activate()
    command = rig.tick()
    for _ in range(20_000):
        recorder.add(rig.next - 1, rig.sample, command)
    time.sleep(0.5)
    recorder.add(rig.next, rig.sample, rig.tick())
    recorder.close()
    recording = read_recording(tmp_path / "rec.mcap")
    assert 0 < recorder.lost < 20_000
    assert recorder.error == "the files are written too slowly"
    assert len(recording.rows) == 20_001 - recorder.lost
    assert recording.integers("lost")[-1] == recorder.lost
    lost = np.flatnonzero(np.diff(recording.integers("lost")))[0] + 1
    same_tick = replace(recording, rows=recording.rows[[0, lost]], statuses=recording.statuses[:2])
    result = replay(same_tick, load_policy(policy_path))
    assert result.ticks == 1 and result.unfinished.endswith("were lost")


def test_sample_that_cannot_be_recorded_is_lost_and_nothing_else(policy_path, tmp_path):
    rig = Rig(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(rig.controller, tmp_path / "rec.mcap")
    rig.controller.activate()
    for tick in range(3):
        command = rig.tick()
        rig.sample.operator.command = np.zeros(9 * (tick % 2))
        recorder.add(tick, rig.sample, command)
    recorder.close()
    assert recorder.lost == 1 and recorder.error.startswith("tick 1: ValueError(")
    assert read_recording(tmp_path / "rec.mcap").integers("tick").tolist() == [0, 2]


def run_into_a_fault(rig, recorder, ticks=20, spoil=lambda sample: None):
    """So many ticks of a policy, and as many after an emergency stop, the ones that are spoilt."""
    rig.go(State.RUN)
    for tick in range(2 * ticks):
        command = rig.tick(e_stop=None if tick < ticks else "operator")
        if tick >= ticks:
            spoil(rig.sample)
        recorder.add(tick, rig.sample, command)
    recorder.close()


@pytest.mark.parametrize("stamp", [2**70, -(2**70), np.int64(5), 0.5, None])
@pytest.mark.parametrize("reason", [5, "\udcff", None])
def test_odd_value_does_not_cost_the_recording_of_its_fault(policy_path, tmp_path, stamp, reason):
    rig = Rig(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(rig.controller, faults=tmp_path)

    def spoil(sample):
        sample.received_ns["joint_position"] = stamp
        sample.received_ns["joint_velocity"] = 2**70
        sample.operator.e_stop = reason

    run_into_a_fault(rig, recorder, spoil=spoil)
    assert (recorder.lost, recorder.error) == (0, None)
    recording = read_recording(*recorder.written)
    assert recording.integers("tick").tolist() == list(range(40))
    nearest = {2**70: 2**63 - 1, -(2**70): -(2**63), 5: 5}.get(stamp, NEVER_NS)
    assert recording.integers("sample", "received_ns")[20:, 0].tolist() == [nearest] * 20
    status = recording.statuses[-1]
    assert status.fault == "e_stop: operator" and status.e_stop == {5: "5", "\udcff": "?"}.get(reason)


def test_fault_whose_ticks_cannot_be_recorded_still_has_what_was_before(policy_path, tmp_path):
    rig = Rig(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(rig.controller, faults=tmp_path)
    run_into_a_fault(rig, recorder, spoil=lambda sample: setattr(sample.operator, "command", np.zeros(9)))
    assert read_recording(*recorder.written).integers("tick").tolist() == list(range(20))
    assert recorder.lost == 20 and recorder.error.startswith("tick 39: ValueError(")


@pytest.mark.parametrize("model", ["a/b", "../../x", "*", "pend[u]lum", "x" * 300])
def test_name_of_a_robot_reaches_no_other_files(tmp_path, model):
    policy = load_policy(write_small_policy(tmp_path / "policy.onnx", robot_model=model))
    rig = Rig(policy, structs.replace(load_profile("pendulum"), robot_model=model))
    folder = tmp_path / "deep" / "faults"
    folder.mkdir(parents=True)
    others = [folder / f"other-fault-{number}.mcap" for number in range(30)]
    for path in others:
        path.touch()
    recorder = Recorder(rig.controller, faults=folder)
    run_into_a_fault(rig, recorder)
    assert recorder.error is None and all(path.exists() for path in others)
    assert {*folder.iterdir()} == {*others, *recorder.written} and len(recorder.written) == 1
    assert read_recording(*recorder.written).header.robot_model == model


def test_old_recording_that_cannot_be_deleted_does_not_cost_a_new_one(policy_path, tmp_path):
    for number in range(25):
        (tmp_path / f"pendulum-fault-2020{number}.mcap").mkdir()  # no file: cannot be unlinked
    recorder, _ = record(policy_path, faults=FAULTS["nan"], faults_in=tmp_path)
    assert recorder.error is None and len(read_recording(*recorder.written).rows) > 60


def test_recording_without_a_tick_is_none(policy_path, tmp_path):
    recorder = Recorder(Controller(load_policy(policy_path), load_profile("pendulum")), tmp_path / "rec.mcap")
    recorder.close()
    assert (recorder.told, recorder.written) == (None, []) and list(tmp_path.iterdir()) == []


def start(*words, **options):
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([ANDANTE, *map(str, words)], text=True, **pipes, **options)


@pytest.mark.realtime
def test_full_disk_ends_the_recording_and_not_the_run(policy_path, tmp_path):
    path = tmp_path / "rec.mcap"

    def limit():
        resource.setrlimit(resource.RLIMIT_FSIZE, (60_000, 60_000))

    words = ("run", policy_path, "--robot", "sim", "--fast", "--seconds", "30", "--record", path)
    process = start(*words, preexec_fn=limit)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (0, "")
    assert "state        disabled" in out and "ticks        1576 (0 missed" in out
    recording = read_recording(path)
    assert path.stat().st_size == 60_000
    assert f"{path}: ends early, after {len(recording.rows)} ticks" in recording.damage
    assert f"recording    {path} (" in out and f"; {path}: File too large, cannot record" in out
    lost = int(out.split(f"recording    {path} (")[1].split()[0])
    assert 0 <= lost + len(recording.rows) - 1577 < 200
    assert replay(recording, load_policy(policy_path)).ticks == len(recording.rows) > 0


@pytest.mark.realtime
def test_fault_after_a_full_disk_is_recorded_with_what_was_before(policy_path, tmp_path):
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(controller, tmp_path / "rec.mcap", faults=tmp_path / "faults")
    robot = SimRobot(controller.contract, controller.profile)
    loop = RealtimeLoop(controller, robot, clock=VirtualClock(), observers=[recorder.add])
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (30_000, limit[1]))
    try:
        loop.run(10.0)
        time.sleep(0.5)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert recorder.told.endswith("rec.mcap: File too large, cannot record)")
    robot.set_state([0.0], [99.0])
    assert loop.run(1.0).faults
    recorder.close()
    recording = read_recording(recorder.written[-1])
    assert recording.integers("begins").sum() == 2 and recording.integers("tick")[0] == 0
    assert recording.statuses[-1].fault.startswith("limit: ")
    assert replay(recording, load_policy(policy_path)).equal


@pytest.mark.realtime
def test_fault_after_a_part_that_cannot_be_begun_is_recorded(policy_path, tmp_path):
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    path = tmp_path / "rec.mcap"
    recorder = Recorder(controller, path, faults=tmp_path / "faults", part_bytes=20_000)
    (tmp_path / "rec-2.mcap").touch()
    robot = SimRobot(controller.contract, controller.profile)
    loop = RealtimeLoop(controller, robot, clock=VirtualClock(), observers=[recorder.add])
    ticks = loop.run(10.0).ticks
    time.sleep(0.5)
    assert recorder.told.endswith(f"{path}: File exists, cannot record)")
    robot.set_state([0.0], [99.0])
    assert loop.run(1.0).faults
    recorder.close()
    first, second = read_recording(path), read_recording(*recorder.written[1:])
    assert first.damage is None and 0 < len(first.rows) < ticks
    assert recorder.lost == ticks + 1 - len(first.rows) + 1  # up to the fault, which has a file of its own
    assert second.statuses[-1].fault.startswith("limit: ")
    assert (tmp_path / "rec-2.mcap").read_bytes() == b""


@pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("room", [0, 200])
def test_disk_that_is_full_in_the_end_is_told(policy_path, tmp_path, room):
    rig = Rig(load_policy(policy_path), load_profile("pendulum")).go(State.RUN)
    path = tmp_path / "rec.mcap"
    recorder = Recorder(rig.controller, path, seconds=PERIOD_S)
    for tick in range(5):
        recorder.add(tick, rig.sample, rig.tick())
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    time.sleep(1.0)  # all is flushed
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, limit[1]))
    try:
        recorder.close()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert recorder.told == f"{path} (0 ticks lost; {path}: File too large, cannot record)"
    assert len(read_recording(path).rows) == 5


@pytest.mark.parametrize("size", [100, 2000])
def test_disk_that_is_full_from_the_first_leaves_no_file(policy_path, tmp_path, size):
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limit[1]))
    try:
        with pytest.raises(AndanteError, match=r"rec.mcap: File too large, cannot record"):
            Recorder(controller, tmp_path / "rec.mcap")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
    assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_is_told_and_the_fault_is_handled(policy_path, tmp_path):
    (tmp_path / "file").touch()
    recorder, report = record(policy_path, faults=FAULTS["nan"], faults_in=tmp_path / "file" / "faults")
    assert report.state == "fault"
    assert (
        recorder.told.startswith("none (") and "file/faults: Not a directory, cannot record" in recorder.told
    )


@pytest.mark.realtime
def test_process_killed_while_it_records_leaves_what_it_had(policy_path, tmp_path):
    path = tmp_path / "rec.mcap"
    process = start("run", policy_path, "--robot", "null", "--seconds", "60", "--record", path)
    deadline, ticks = time.monotonic() + 30, 0
    while not ticks:
        assert time.monotonic() < deadline
        time.sleep(0.02)
        with suppress(AndanteError):
            ticks = len(read_recording(path).rows)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    recording = read_recording(path)
    assert "ends early" in recording.damage
    result = replay(recording, load_policy(policy_path))
    assert result.equal and 0 < result.ticks < 120  # fewer than a full chunk has


def test_truncated_and_damaged_files_are_read_as_far_as_they_go(policy_path, tmp_path):
    record(policy_path, tmp_path / "rec.mcap", run_s=10.0)
    whole = read_recording(tmp_path / "rec.mcap")
    data = (tmp_path / "rec.mcap").read_bytes()
    path, found = tmp_path / "damaged.mcap", []
    for at in np.linspace(9, len(data) - 1, 40, dtype=int).tolist():
        for damaged in (data[:at], data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]):
            path.write_bytes(damaged)
            try:
                recording = read_recording(path)
            except AndanteError as error:  # it does not say any more whose recording it is
                assert str(error).startswith(f"{path}: ") and at < len(data) / 2
                continue
            found.append(len(recording.rows))
            assert recording.rows.tobytes() == whole.rows[: found[-1]].tobytes()
            assert recording.damage is not None or found[-1] == len(whole.rows)
    assert 0 in found and len(whole.rows) in found and len(set(found)) > 3


@pytest.mark.parametrize("length", [2**50, 2**62, 2**64 - 1])
def test_length_that_no_memory_holds_is_damage(policy_path, tmp_path, length):
    path = tmp_path / "rec.mcap"
    record(policy_path, path)
    rows, data = len(read_recording(path).rows), path.read_bytes()
    end = int.from_bytes(data[-28:-20], "little") - 13  # of the data, before its own end record
    attachment = bytes(24) + length.to_bytes(8, "little")
    path.write_bytes(data[:end] + b"\x09" + len(attachment).to_bytes(8, "little") + attachment)
    recording = read_recording(path)
    assert len(recording.rows) == rows
    assert recording.damage.startswith(f"{path}: ends early, after {rows} ticks: ")


@pytest.mark.parametrize("name", ["rec-2.mcap", "rec-13.mcap"])
def test_recording_whose_parts_would_meet_older_ones_is_refused(policy_path, tmp_path, name):
    (tmp_path / name).write_text("precious")
    (tmp_path / "rec-b.mcap").touch()
    controller = Controller(load_policy(policy_path), load_profile("pendulum"))
    with pytest.raises(AndanteError, match=f"{name}: File exists, cannot record"):
        Recorder(controller, tmp_path / "rec.mcap")
    assert sorted(each.name for each in tmp_path.iterdir()) == sorted([name, "rec-b.mcap"])


def test_file_that_exists_or_cannot_be_is_refused_before_anything_moves(policy_path, tmp_path):
    path, report = tmp_path / "rec.mcap", tmp_path / "out.json"
    path.write_text("precious")
    for wrong, reason in ((path, "File exists"), (tmp_path / "nowhere" / "rec.mcap", "No such file")):
        report.write_text("old")
        process = start("run", policy_path, "--robot", "null", "--record", wrong, "--report", report)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out) == (1, "")
        assert err.startswith(f"andante: {wrong}: {reason}")
        assert report.exists() == (wrong == path)  # nothing has been touched
    assert path.read_text() == "precious"


def test_without_the_extra_runs_go_on_and_recording_is_refused(policy_path, tmp_path, monkeypatch, capsys):
    for name in [name for name in sys.modules if name.split(".")[0] == "mcap"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "mcap", None)
    words = ["run", str(policy_path), "--robot", "sim", "--fast", "--seconds", "0.2"]
    assert main(words) == 0
    assert main([*words, "--record", str(tmp_path / "rec.mcap")]) == 1
    assert capsys.readouterr().err == (
        "andante: recordings need mcap, which is not installed: "
        "in andante's folder: pip install '.[record]'\n"
    )


# Parts


def test_parts_are_one_recording(policy_path, tmp_path):
    path = tmp_path / "rec.mcap"
    recorder, _ = record(policy_path, path, run_s=60.0, part_bytes=60_000, parts=99)
    assert recorder.written[:2] == [path, tmp_path / "rec-2.mcap"] and len(recorder.written) > 3
    assert all(path.stat().st_size < 200_000 for path in recorder.written)
    recording = read_recording(*reversed(recorder.written))
    assert recording.damage is None
    assert replay(recording, load_policy(policy_path)).equal
    assert len(recording.rows) == recording.integers("tick")[-1] + 1
    with pytest.raises(AndanteError, match=r"rec-3.mcap: part 3 of a recording .*, expected part 2"):
        read_recording(path, recorder.written[2])


def test_oldest_part_makes_room(policy_path, tmp_path):
    recorder, _ = record(policy_path, tmp_path / "rec.mcap", run_s=60.0, part_bytes=60_000, parts=2)
    assert sorted(recorder.written) == sorted(tmp_path.glob("*.mcap")) and len(recorder.written) == 2
    with pytest.raises(AndanteError, match="begins in the middle of a run"):
        replay(read_recording(*recorder.written), load_policy(policy_path))


# Comparing, plotting, and measuring again


def test_diff_names_the_first_difference_of_every_kind(policy_path, tmp_path, capsys):
    a, b, c = (str(tmp_path / f"{name}.mcap") for name in "abc")
    record(policy_path, Path(a))
    record(policy_path, Path(b))
    fault = Fault(kind="set", from_tick=60, to_tick=66, signal="joint_position", amount=0.25)
    record(policy_path, Path(c), faults=[fault])
    assert main(["diff", a, b]) == 0
    capsys.readouterr()
    assert main(["diff", a, c]) == 1
    found = {line[:20].strip(): line[20:] for line in capsys.readouterr().out.splitlines()}
    assert found["time"].startswith("177 ticks equal") and found["operator"] == "177 ticks equal"
    assert found["measurements"].startswith("60 ticks equal; tick 60: signals.joint_position.hinge ")
    assert found["measurements"].endswith(" and 0.25")
    assert found["memory"].split()[0] == found["actions"].split()[0] in {"60", "61", "62", "63", "64"}
    assert found["commands"].startswith("60 ticks equal; tick 60: target.")
    assert main(["diff", a]) == 1
    assert capsys.readouterr().err == "andante: two recordings can be compared, found 1\n"
    headers, _ = compare(read_recording(Path(a)), read_recording(Path(a)))
    assert headers == []


def test_replay_command_tells_and_exits(policy_path, tmp_path, capsys):
    path = tmp_path / "rec.mcap"
    record(policy_path, path)
    assert main(["replay", str(path), "--policy", str(policy_path)]) == 0
    assert capsys.readouterr().out == "equal: 177 ticks\n"
    other = write_small_policy(tmp_path / "other.onnx", seed=7)
    assert main(["replay", str(path), "--policy", str(other)]) == 1
    assert capsys.readouterr().err.startswith(f"andante: {path}: recorded with the policy of digest ")
    assert main(["replay", str(policy_path), "--policy", str(policy_path)]) == 1
    assert capsys.readouterr().err == (
        f"andante: {policy_path}: not a recording of andante, or damaged at its beginning\n"
    )


def test_report_shows_the_fault(policy_path, tmp_path):
    record(policy_path, tmp_path / "rec.mcap", faults=FAULTS["nan"])
    recording = read_recording(tmp_path / "rec.mcap")
    page, picture = tmp_path / "report.html", tmp_path / "report.png"
    write_report(recording, page)
    write_report(recording, picture)
    assert picture.read_bytes()[:4] == b"\x89PNG" and picture.stat().st_size > 10_000
    text = page.read_text()
    assert "tick 60; FAULT; non_finite: joint_velocity of joint &#x27;hinge&#x27; is not finite" in text
    assert recording.header.policy_digest in text and "data:image/png;base64," in text
    with pytest.raises(AndanteError, match=r"report.pdf: a report is one of \.html, \.png"):
        write_report(recording, tmp_path / "report.pdf")
    with pytest.raises(AndanteError, match="No such file or directory, cannot write the report"):
        write_report(recording, tmp_path / "nowhere" / "report.png")


def test_measurements_are_as_old_as_they_were(policy_path, tmp_path):
    rig = Rig(load_policy(policy_path), load_profile("pendulum"))
    recorder = Recorder(rig.controller, tmp_path / "rec.mcap")
    rig.controller.activate()
    recorder.add(0, rig.sample, rig.tick(age_ns=7_000_000))
    recorder.close()
    robot = ReplayRobot(rig.controller.contract, rig.controller.profile, str(tmp_path / "rec.mcap"))
    sample = robot.read()
    assert sample.now_ns - sample.received_ns["joint_position"] == 7_000_000
    assert sample.received_ns["joint_velocity"] == sample.now_ns


def test_recording_is_a_robot_that_measures_the_same_again(policy_path, tmp_path):
    path = tmp_path / "rec.mcap"
    faults = (
        Fault(kind="drop", from_tick=10, to_tick=12, signal="joint_position"),
        Fault(kind="delay", from_tick=20, to_tick=30, amount=2),
    )
    record(policy_path, path, run_s=0.5, faults=faults)
    recording = read_recording(path)
    policy, profile = load_policy(policy_path), load_profile("pendulum")
    robot = ReplayRobot(policy.contract, profile, str(path))
    still = []
    for i in range(len(recording.rows)):
        last_ns = robot._sample.received_ns["joint_position"]
        sample = robot.read()
        assert np.array_equal(
            sample.values["joint_position"], recording.numbers("signals", "joint_position")[i]
        )
        age_ms = (sample.now_ns - sample.received_ns["joint_position"]) * 1e-6
        received_ns = recording.integers("sample", "received_ns")[:, 0]
        if i and received_ns[i] == received_ns[i - 1]:
            still.append(i)
            assert sample.received_ns["joint_position"] == last_ns
        else:
            assert age_ms == pytest.approx(recording.numbers("age_ms", "joint_position")[i, 0])
            source_age_ms = (sample.now_ns - sample.source_ns["joint_position"]) * 1e-6
            assert source_age_ms == pytest.approx(40.0 if 22 <= i < 30 else 0.0)
    assert still == [10, 11, 20, 21]
    assert recording.numbers("age_ms", "joint_position")[8:13, 0].tolist() == [0.0, 0.0, 20.0, 40.0, 0.0]
    with pytest.raises(AndanteError, match="the recording is over"):
        robot.read()
    with pytest.raises(AndanteError, match="recorded joints hinge; the profile has "):
        ReplayRobot(policy.contract, load_profile("cartpole"), str(path))

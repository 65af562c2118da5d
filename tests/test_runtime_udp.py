"""Robots behind UDP: layout, what is dropped, time-to-live; and two processes, each killed once."""

from __future__ import annotations

import json
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import tracemalloc
import zlib
from pathlib import Path
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
import yaml
from arm import arm_profile
from conftest import free_addresses
from hypothesis import HealthCheck, given, settings, strategies as st
from msgspec.structs import replace
from small_policy import small_contract, write_small_policy

from andante.runtime.command import FIELDS, NEVER_NS, JointCommand, Sample
from andante.runtime.errors import AndanteError
from andante.runtime.frames import gravity_direction
from andante.runtime.packet import LEASE_NS, Sender, measurement_packet, open_socket
from andante.runtime.profile import SHIPPED, Profile, SignalQuality, load_profile
from andante.runtime.recorder.recording import read_recording
from andante.runtime.robots.base import find_robot, open_robot
from andante.runtime.robots.udp import UdpRobot
from andante.runtime.states import State
from andante.sim.motor_bridge import MotorBridge
from andante.sim.udp_robot import UdpSimulator

pytestmark = pytest.mark.realtime

ANDANTE = Path(sys.executable).with_name("andante")
HOST = "127.0.0.1"
DAMPING = np.array([4.0, 1.0])
SIGNALS = ("joint_position", "joint_velocity")


def until(condition, seconds: float = 20.0) -> bool:
    """Whether it came true; the time is that of a machine that hangs."""
    deadline = time.monotonic() + seconds
    while not (found := condition()) and time.monotonic() < deadline:
        time.sleep(0.002)
    return found


@pytest.fixture
def addresses():
    return free_addresses(2)


@pytest.fixture
def profile(tmp_path):
    return arm_profile(tmp_path)


@pytest.fixture
def robot(profile, addresses):
    opened = UdpRobot(None, profile, local=addresses[0], remote=addresses[1])
    yield opened
    opened.close()


@pytest.fixture
def bridge(profile, addresses):
    opened = MotorBridge(profile, DAMPING, local=addresses[1], remote=addresses[0])
    yield opened
    opened.close()


@pytest.fixture
def far_end(addresses):
    """A bare socket where the robot expects its bridge."""
    opened = open_socket(addresses[1])
    yield opened
    opened.close()


def command(tick: int = 7, valid_for_ns: int = 4_000_000_000, mode="track") -> JointCommand:
    made = JointCommand.allocate(2, valid_for_ns)
    made.tick, made.mode = tick, mode
    for i, field in enumerate(FIELDS):
        getattr(made, field)[:] = [tick + i + 1 / 3, -np.pi * i]
    return made


def measurement(profile, stamp: int) -> Sample:
    made = Sample.allocate(profile.signals, 3)
    for i, (signal_, values) in enumerate(made.values.items()):
        values[:] = [stamp + i + 0.1, 1 / 3, -1e-9]
        made.source_ns[signal_] = 10 * stamp + i
    return made


def datagrams(count: int, profile: Profile) -> list[bytes]:
    """Successive measurements of one sender, all values and stamps equal to the number."""
    sink = open_socket(f"{HOST}:0")
    sender = Sender(sink, measurement_packet(profile), f"{HOST}:9")
    made = []
    for number in range(1, count + 1):
        sender.packet.values[:] = number
        sender.send(*[number] * len(profile.signals))
        made.append(bytes(sender.packet.buffer))
    sink.close()
    return made


def deliver(link: socket.socket, robot: UdpRobot, addresses, *packets: bytes) -> Sample:
    for packet in packets:
        link.sendto(packet, (HOST, int(addresses[0].rpartition(":")[2])))
    return robot.read()


def counters(robot: UdpRobot) -> dict[str, int]:
    return {word.split()[0]: int(word.split()[1]) for word in robot.link.split(", ")}


def test_a_command_arrives_bit_for_bit(robot, bridge):
    sent = command()
    robot.write(sent)
    now_ns = time.monotonic_ns()
    found = bridge.command(now_ns)
    assert (found.tick, found.mode, bridge.valid) == (7, "track", True)
    assert all(np.array_equal(getattr(found, field), getattr(sent, field)) for field in FIELDS)
    assert 0 < found.valid_for_ns < 5_000_000_000


def test_a_measurement_arrives_bit_for_bit_with_the_senders_stamps(robot, bridge, profile):
    assert robot.read().received_ns == dict.fromkeys(SIGNALS, NEVER_NS)
    sent = measurement(profile, 3)
    before_ns = time.monotonic_ns()
    bridge.send(sent)
    found = robot.read()
    assert all(np.array_equal(found.values[name], sent.values[name]) for name in SIGNALS)
    assert found.source_ns == sent.source_ns == {"joint_position": 30, "joint_velocity": 31}
    assert all(before_ns - 10**9 <= ns <= found.now_ns for ns in found.received_ns.values())


def test_the_documented_offsets_are_those_on_the_wire(robot, far_end, addresses):
    robot.write(command(tick=9, valid_for_ns=60_000_000, mode="damping"))
    packet = far_end.recv(1000)
    assert (packet[:4], packet[4], packet[5]) == (b"ANDT", 1, 1)
    assert struct.unpack_from("<H", packet, 6) == (len(packet),) == (48 + 2 * 5 * 8,)
    assert struct.unpack_from("<I", packet, 8) == (zlib.crc32(b"lift\nspin"),)
    assert struct.unpack_from("<Q", packet, 16) == (1,)
    assert struct.unpack_from("<qIB", packet, 32) == (9, 60_000, 1)
    expected = command(tick=9)
    for i, field in enumerate(FIELDS):
        assert struct.unpack_from("<2d", packet, 48 + 16 * i) == tuple(getattr(expected, field))

    names = zlib.crc32(b"joint_position\njoint_velocity\nlift\nspin\nwheel")
    header = struct.pack("<4sBBHIIQq", b"ANDT", 1, 2, 96, names, 77, 5, 123)
    body = struct.pack("<2q6d", 1000, 2000, *range(6))
    sample = deliver(far_end, robot, addresses, header + body)
    assert sample.source_ns == {"joint_position": 1000, "joint_velocity": 2000}
    assert np.concatenate(list(sample.values.values())).tolist() == list(range(6))


def test_the_newest_wins_and_the_others_are_counted(robot, far_end, addresses, profile):
    first, second, third, fourth, fifth = datagrams(5, profile)
    sample = deliver(far_end, robot, addresses, first, third, second)
    assert sample.values["joint_position"].tolist() == [3, 3, 3]
    found = counters(robot)
    assert (found["accepted"], found["lost"], found["old"]) == (2, 1, 1)
    sample = deliver(far_end, robot, addresses, third, first, third)
    assert sample.source_ns["joint_position"] == 3
    assert counters(robot)["old"] == 4
    assert deliver(far_end, robot, addresses, fifth, fourth).source_ns["joint_position"] == 5


def test_what_is_dropped_changes_nothing(robot, far_end, addresses, profile):
    good, better = datagrams(2, profile)
    joints = profile.joints
    swapped = datagrams(3, msgspec.structs.replace(profile, joints=(joints[1], joints[0], joints[2])))[2]
    signals = profile.signals | {"battery_voltage": SignalQuality(max_age_s=1.0)}
    more = datagrams(3, msgspec.structs.replace(profile, signals=signals))[2]
    renumbered = [bytes([*better[:at], value, *better[at + 1 :]]) for at, value in ((4, 2), (5, 1), (6, 95))]
    shorter = bytes([*better[:6], 95, *better[7:-1]])
    bad = [b"", b"hello", shorter, better[:-1], better + b"\0", b"X" + better[1:], *renumbered]
    sample = deliver(far_end, robot, addresses, good, swapped, more, *bad)
    assert sample.source_ns["joint_velocity"] == 1
    found = counters(robot)
    assert (found["accepted"], found["mismatched"], found["malformed"]) == (1, 2, len(bad))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        deliver(stranger, robot, addresses, better)
    assert counters(robot) == found | {"foreign": 1}
    assert deliver(far_end, robot, addresses, better).source_ns["joint_velocity"] == 2


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=200), max_size=5), st.integers(0, 95), st.integers(1, 255))
def test_no_bytes_make_a_read_fail(robot, far_end, addresses, profile, noise, at, flip):
    damaged = bytearray(datagrams(1, profile)[0])
    damaged[at] ^= flip
    accepted = counters(robot)["accepted"]
    sample = deliver(far_end, robot, addresses, *noise, bytes(damaged))
    assert set(sample.values) == set(SIGNALS)
    if at < 12:  # what is no measurement of this robot in this version
        assert counters(robot)["accepted"] == accepted


def test_a_second_sender_is_foreign_while_the_first_is_heard_and_a_new_one_after_silence(
    robot, far_end, addresses, profile
):
    first, second = datagrams(2, profile), datagrams(2, profile)
    deliver(far_end, robot, addresses, first[0], second[0])
    assert (counters(robot)["accepted"], counters(robot)["foreign"]) == (1, 1)
    time.sleep(LEASE_NS * 1.1e-9)
    deliver(far_end, robot, addresses, second[1], first[1])
    assert (counters(robot)["accepted"], counters(robot)["foreign"]) == (2, 2)


def test_what_waited_in_the_queue_is_as_old_as_it_is(robot, bridge, profile):
    stamps = iter(range(1, 1000))

    def waited() -> bool:
        bridge.send(measurement(profile, next(stamps)))
        time.sleep(0.1)
        sample = robot.read()
        return sample.now_ns - sample.received_ns["joint_position"] > 90_000_000

    assert until(waited)  # the kernel stamps nothing in the first moments after it was asked to


@pytest.mark.parametrize(("before_s", "after_s"), [(0, 1), (0, -1), (-1, 0), (1, 0)])
def test_what_waited_is_as_old_as_it_is_whenever_the_system_clock_was_set(
    robot, bridge, profile, monkeypatch, before_s, after_s
):
    stamps = iter(range(1, 1000))

    def set_clock(ahead_s):
        clock = {"monotonic_ns": time.monotonic_ns, "time_ns": lambda: time.time_ns() + ahead_s * 10**9}
        monkeypatch.setattr("andante.runtime.packet.time", SimpleNamespace(**clock))

    def age_ns(ahead_s: int) -> int:
        bridge.send(measurement(profile, stamp := next(stamps)))
        time.sleep(0.1)
        set_clock(ahead_s)
        sample = robot.read()
        assert sample.source_ns["joint_position"] == 10 * stamp
        return sample.now_ns - sample.received_ns["joint_position"]

    assert until(lambda: age_ns(0) > 90_000_000)  # the kernel stamps nothing in the first moments
    set_clock(before_s)
    robot.read()
    assert 90_000_000 < age_ns(after_s) < 900_000_000
    assert age_ns(-1) >= 0


def test_a_number_that_the_sender_cannot_have_come_to_is_not_its_own(robot, far_end, addresses, profile):
    first, second = datagrams(2, profile)

    def numbered(number: int) -> bytes:
        return second[:16] + struct.pack("<Q", number) + second[24:]

    deliver(far_end, robot, addresses, first, numbered(2**64 - 1), numbered(10_000), second)
    found = counters(robot)
    assert (found["accepted"], found["foreign"], found["lost"], found["old"]) == (2, 2, 0, 0)
    deliver(far_end, robot, addresses, numbered(1000))
    assert counters(robot)["lost"] == 997
    time.sleep(0.2)
    deliver(far_end, robot, addresses, numbered(3500))  # in 0.2 s a fast sender comes so far
    found = counters(robot)
    assert (found["accepted"], found["foreign"], found["lost"]) == (4, 2, 997 + 2499)


def test_a_signal_whose_stamp_stands_still_grows_old(robot, bridge, profile):
    sent = measurement(profile, 1)
    bridge.send(sent)
    received = dict(robot.read().received_ns)
    sent.source_ns["joint_velocity"] += 1
    sent.values["joint_position"][:] = 9.0
    time.sleep(0.001)
    bridge.send(sent)
    sample = robot.read()
    assert sample.received_ns["joint_position"] == received["joint_position"]
    assert sample.received_ns["joint_velocity"] > received["joint_velocity"]
    assert 9.0 not in sample.values["joint_position"]


@pytest.mark.parametrize(("damping", "mode"), [(DAMPING, "damping"), (None, "disabled")])
def test_no_command_is_obeyed_beyond_its_time_to_live(robot, profile, addresses, damping, mode):
    bridge = MotorBridge(profile, damping, local=addresses[1], remote=addresses[0])
    try:
        assert (bridge.command(time.monotonic_ns()).mode, bridge.valid) == (mode, False)
        robot.write(command(valid_for_ns=5_000_000_000))
        now_ns = time.monotonic_ns()
        last_ns = now_ns + bridge.command(now_ns).valid_for_ns
        assert (bridge.command(last_ns).mode, bridge.valid) == ("track", True)
        expired = bridge.command(last_ns + 1)
        assert (expired.mode, bridge.valid) == (mode, False)
        assert not any(getattr(expired, field).any() for field in ("q", "dq", "tau_ff", "kp"))
        assert expired.kd.tolist() == (DAMPING.tolist() if mode == "damping" else [0.0, 0.0])
        robot.write(command(tick=8))
        assert bridge.command(time.monotonic_ns()).tick == 8
    finally:
        bridge.close()


def test_a_command_that_is_not_finite_never_reaches_the_motors(robot, bridge):
    robot.write(command())
    for bad in (np.nan, np.inf):
        poisoned = command(tick=8)
        poisoned.kp[1] = bad
        robot.write(poisoned)
    assert bridge.command(time.monotonic_ns()).tick == 7
    assert "malformed 2" in bridge.link


def test_a_command_that_cannot_be_sent_is_lost_and_after_its_validity_an_error(profile, addresses):
    robot = UdpRobot(None, profile, local=addresses[0], remote="255.255.255.255:9")  # a broadcast is refused
    try:
        robot.write(command(valid_for_ns=20_000_000))
        robot.write(command(valid_for_ns=20_000_000))
        assert counters(robot)["unsent"] == 2
        time.sleep(0.03)
        with pytest.raises(AndanteError, match="no command could be sent for"):
            robot.write(command(valid_for_ns=20_000_000))
    finally:
        robot.close()


def test_only_this_machine_is_listened_to_unless_asked(profile):
    robot = find_robot("udp")(None, profile)
    try:
        assert robot._link.getsockname() == (HOST, 47001)
    finally:
        robot.close()


@pytest.mark.parametrize(
    ("local", "message"),
    [
        ("47001", "expected an address host:port of a known host, found '47001'"),
        ("127.0.0.1:70000", "expected an address host:port"),
        (":47001", "expected an address host:port"),
        ("no.such.invalid:1", "of a known host, found 'no.such.invalid:1'"),
        ("192.0.2.1:47001", "cannot listen at 192.0.2.1:47001: Cannot assign requested address"),
    ],
)
def test_a_wrong_address_is_named(profile, local, message):
    with pytest.raises(AndanteError, match=message):
        UdpRobot(None, profile, local=local)


def test_an_address_that_is_taken_is_named(robot, profile, addresses):
    with pytest.raises(AndanteError, match=f"cannot listen at {addresses[0]}: Address already in use"):
        UdpRobot(None, profile, local=addresses[0])


def test_memory_does_not_grow_with_the_datagrams(robot, bridge, profile):
    sent, told = measurement(profile, 1), command()

    def exchange(count):
        for _ in range(count):
            sent.source_ns["joint_position"] += 1
            bridge.send(sent)
            robot.read()
            robot.write(told)
            bridge.command(time.monotonic_ns())

    exchange(5000)  # the interpreter keeps up to 2000 empty tuples for later
    tracemalloc.start()
    exchange(10)
    before = tracemalloc.get_traced_memory()[0]
    exchange(500)
    grown = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    assert grown < 1000


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("udp") / "policy.onnx")


def start(*words: str | Path) -> subprocess.Popen:
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([ANDANTE, *map(str, words)], text=True, **pipes)


def start_controller(policy: Path, addresses, report: Path, seconds: float = 2.0) -> subprocess.Popen:
    options = [f"local={addresses[0]}", f"remote={addresses[1]}"]
    return start(
        "run", policy, "--robot", "udp", "--robot-option", *options, "--seconds", seconds, "--report", report
    )


def start_simulator(policy: Path, addresses) -> subprocess.Popen:
    process = start("simulate", policy, "--local", addresses[1], "--remote", addresses[0], "--seconds", 30)
    assert process.stdout.readline().startswith("simulating pendulum at")
    return process


@pytest.fixture
def simulator(policy, addresses):
    process = start_simulator(policy, addresses)
    yield process
    process.kill()
    process.communicate()


def test_a_simulator_and_a_controller_in_two_processes_stay_up(policy, addresses, simulator, tmp_path):
    path = tmp_path / "report.json"
    controller = start_controller(policy, addresses, path)
    out, err = controller.communicate(timeout=60)
    assert (controller.returncode, err) == (0, "")
    report = json.loads(path.read_text())
    assert (report["state"], report["faults"], report["stopped"]) == ("disabled", [], "time over")
    assert report["decisions"] + report["dropped"] >= 20
    link = next(line for line in out.splitlines() if line.startswith("datagrams"))
    assert "malformed 0" in link and "mismatched 0" in link
    simulator.send_signal(signal.SIGTERM)
    told = simulator.communicate(timeout=60)[0].splitlines()
    assert (told[0], told[-2]) == ("commands are valid", "no valid command: damping")
    assert f"accepted {report['ticks']}," in told[-1]


def test_a_killed_simulator_is_a_stale_source_that_is_told(policy, addresses, simulator, tmp_path):
    path = tmp_path / "report.json"
    controller = start_controller(policy, addresses, path, seconds=4.0)
    assert simulator.stdout.readline() == "commands are valid\n"
    time.sleep(1.0)
    simulator.kill()
    out, err = controller.communicate(timeout=60)
    assert err == ""
    report = json.loads(path.read_text())
    assert (controller.returncode, report["state"], report["stopped"]) == (1, "fault", "fault")
    assert report["faults"][0].startswith("stale_source: joint_position is ")
    assert report["faults"][0] in out


@pytest.fixture
def standing(tmp_path):
    """A policy that keeps a quadruped within 0.01 rad of its stand; a profile patient with a busy machine."""
    content = yaml.safe_load((SHIPPED / "quadruped.yaml").read_text())
    for quality in content["signals"].values():
        quality["max_age_s"] = 0.3
    for event in ("stale_source", "overrun", "starvation"):
        content["fallback"][event] = [{"action": "keep", "ticks": 1000}, *content["fallback"]["limit"]]
    path = tmp_path / "robot.yaml"
    path.write_text(yaml.safe_dump(content))
    contract = small_contract("quadruped")
    (term,) = contract.actions
    stand = [content["keyframes"]["stand"][joint] for joint in term.joints]
    low, high = (tuple(q + change for q in stand) for change in (-0.01, 0.01))
    sources = [replace(s, max_age_ns=s.max_age_ns and 300_000_000) for s in contract.sources]
    changes = {"sources": tuple(sources), "actions": (replace(term, low=low, high=high),)}
    return write_small_policy(tmp_path / "policy.onnx", "quadruped", max_gap_ticks=20, **changes), path


def test_a_quadruped_stands_by_drives_in_another_process(standing, addresses, tmp_path):
    policy, profile = standing
    words = policy, "--profile", profile, "--local", addresses[1], "--remote", addresses[0]
    simulator = start("simulate", *words)
    try:
        assert simulator.stdout.readline().startswith("simulating quadruped at")
        options = "--robot-option", f"local={addresses[0]}", f"remote={addresses[1]}", "--seconds", 1.5
        path = tmp_path / "run.mcap"
        words = policy, "--profile", profile, "--yes", "--robot", "udp", *options, "--record", path
        controller = start("run", *words)
        out, err = controller.communicate(timeout=60)
    finally:
        simulator.kill()
        simulator.communicate()
    assert (controller.returncode, err) == (0, ""), out
    recording = read_recording(path)
    running = recording.integers("state") == list(State).index(State.RUN)
    assert np.count_nonzero(running) > 20
    # The controller sends a pose and gains; torque is the drives' business.
    assert not recording.numbers("target", "tau_ff")[running].any()
    assert (recording.numbers("target", "kp")[running] > 0.0).all()
    q, wanted = recording.numbers("signals", "joint_position"), recording.numbers("target", "q")
    assert np.abs(q - wanted)[running].max() < 0.3
    gravity = [gravity_direction(*turn) for turn in recording.numbers("signals", "orientation")[running]]
    assert max(z for _, _, z in gravity) < -0.95  # upright


@pytest.mark.parametrize("on_expiry", ["damping", "zero"])
def test_a_killed_controller_leaves_the_joints_braked_within_the_time_to_live(
    policy, addresses, tmp_path, on_expiry
):
    profile = load_profile("pendulum")
    damping = profile.kd("damping") if on_expiry == "damping" else None
    bridge = MotorBridge(profile, damping, local=addresses[1], remote=addresses[0])
    simulator = UdpSimulator(small_contract(), profile, bridge)
    stop = threading.Event()
    log, times = [], []

    class Watched(type(simulator.robot)):
        def write(self, command):
            velocity = self.data.qvel[0]
            super().write(command)
            log.append((bridge.valid, command.valid_for_ns, velocity, self.data.actuator_force[0]))

    simulator.robot.__class__ = Watched
    simulator.robot.set_state([2.0], [3.0])
    thread = threading.Thread(target=simulator.run, args=(lambda: not stop.is_set(), times.append))
    controller = start_controller(policy, addresses, tmp_path / "report.json", seconds=60.0)
    try:
        thread.start()
        assert until(lambda: True in times)
        time.sleep(1.5)
        controller.kill()
        assert until(lambda: times[-1] is False)
        time.sleep(0.1)
    finally:
        controller.kill()
        controller.communicate()
        stop.set()
        thread.join()
        bridge.close()
    obeyed = [entry for entry in log if entry[0]]
    assert len(obeyed) > 50 and any(force for _, _, _, force in obeyed)
    assert all(left_ns >= 0 for _, left_ns, _, _ in obeyed)
    after = log[len(log) - log[::-1].index(obeyed[-1]) :]
    assert len(after) >= 3
    for _, _, velocity, force in after[1:]:
        braking = 0.0 if damping is None else -damping[0] * velocity
        assert force == pytest.approx(np.clip(braking, -0.7, 0.7))


def test_a_simulator_that_falls_behind_catches_up_under_the_last_command(profile, addresses):
    class Clock:
        time_ns = 10**12

        def now_ns(self):
            return self.time_ns

        def sleep_until_ns(self, deadline_ns):
            self.time_ns = max(self.time_ns, deadline_ns)

    pendulum = load_profile("pendulum")
    bridge = MotorBridge(pendulum, None, local=addresses[1], remote=addresses[0])
    clock = Clock()
    simulator = UdpSimulator(small_contract(), pendulum, bridge, clock)
    rounds = iter(range(10))

    def going_on():
        if (count := next(rounds, None)) == 5:
            clock.time_ns += 95_000_000
        return count is not None

    try:
        simulator.run(going_on)
    finally:
        bridge.close()
    # Ten steps of 10 ms, and eight that were missed.
    assert simulator.robot.read().now_ns == 18 * 10_000_000


def test_a_bridge_of_other_joints_hears_nothing(robot, profile, addresses):
    joints = profile.joints
    swapped = msgspec.structs.replace(profile, joints=(joints[1], joints[0], joints[2]))
    bridge = MotorBridge(swapped, local=addresses[1], remote=addresses[0])
    robot.write(command())
    bridge.command(time.monotonic_ns())
    assert not bridge.valid and "mismatched 1" in bridge.link
    bridge.close()


def test_robot_options_are_checked_by_name(policy):
    process = start("run", policy, "--robot", "udp", "--robot-option", "port=3")
    assert process.communicate(timeout=60) == (
        "",
        "andante: robot 'udp' with options [port=3] of local, remote: Object contains unknown field `port`\n",
    )
    assert process.returncode == 1


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sim", ["seed=abc"], r"'sim' with options \[seed=abc\] of seed: Expected `int`, got `str`"),
        ("sim", ["seed=-1"], "seed must not be negative, found -1"),
        ("sim", ["seed"], "of seed: expected each once, as name=value"),
        ("sim", ["seed=1", "seed=2"], "of seed: expected each once, as name=value"),
        ("replay", [], r"'replay' with options \[\] of recording: Object missing required field `recording`"),
        ("replay", ["recording=123"], "123: No such file"),
        ("udp", ["local=47001"], "expected an address host:port of a known host, found '47001'"),
        ("null", ["seed=1"], r"'null' with options \[seed=1\] of none: .* unknown field `seed`"),
    ],
)
def test_robot_options_are_checked_by_type(name, options, message):
    with pytest.raises(AndanteError, match=message):
        open_robot(name, tuple(options), small_contract(), load_profile("pendulum"))


class Custom:
    """As another package may declare its robot."""

    def __init__(self, contract, profile, port: int, path: Path, fast: bool = False, baud=1, **others):
        self.options = port, path, fast, baud


def test_robot_options_have_the_types_that_the_robot_declares(monkeypatch):
    monkeypatch.setattr("andante.runtime.robots.base.find_robot", lambda name: Custom)
    robot = open_robot("custom", ("port=7", "path=/dev/x=y", "fast=true", "baud=9"), None, None)
    assert robot.options == (7, Path("/dev/x=y"), True, 9)


@pytest.mark.parametrize("seconds", ["nan", "-1", "0", "inf"])
def test_an_impossible_time_is_refused_by_the_simulator(policy, seconds):
    process = start("simulate", policy, "--seconds", seconds)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (1, "")
    assert err.startswith("andante: --seconds must be positive and at most 1e+09, found ")


def test_every_field_of_a_command_is_carried():
    assert UdpRobot.carries == set(FIELDS)


def test_a_simulated_robot_that_has_a_step_of_any_length_is_built():
    contract = msgspec.structs.replace(small_contract(), control_period_ns=20_000_001)
    address = free_addresses(2)
    profile = load_profile("pendulum")
    bridge = MotorBridge(profile, None, *address)
    simulator = UdpSimulator(contract, profile, bridge)
    bridge.close()
    simulator.robot.write(JointCommand.allocate(1, 1))
    assert simulator.robot.read().now_ns == 20_000_001

"""The doctor: of machines, and of profiles that a simulated operator's hands prove wrong."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import msgspec
import mujoco
import numpy as np
import pytest
from conftest import andante, run_andante
from small_policy import small_contract

from andante.doctor.machine import inspect_machine, judge_jitter, load
from andante.doctor.motion import Level, Move, Pose, Tilt, plan, watch
from andante.doctor.robot import examine
from andante.runtime.command import NEVER_NS, JointCommand
from andante.runtime.errors import AndanteError
from andante.runtime.frames import rotation_matrix
from andante.runtime.histogram import Quantiles
from andante.runtime.profile import SHIPPED, load_profile
from andante.sim.robot import SimRobot

STEPS = 10
"""Of a movement."""
AHEAD_UP = (0.5**0.5, 0.0, -(0.5**0.5), 0.0)
"""Mounting of a sensor whose x axis points up."""
XYZW = "wrong order: it is sent as x, y, z, w, must be w, x, y, z"
SIGNALS = ("orientation", "angular_velocity", "linear_acceleration")


class Hands:
    """An operator who obeys, not very exactly; and the robot in the hands, held against gravity."""

    def __init__(self, profile, spoil=lambda sample: None, deaf=0):
        self.sim = SimRobot(small_contract(profile.robot_model), profile)
        self.name, self.joints, self.carries = self.sim.name, self.sim.joints, self.sim.carries
        self.profile, self.spoil, self.deaf, self.tilt = profile, spoil, deaf, 0.35
        self.words = []
        self.still = JointCommand.allocate(len(profile.actuated), 0)
        self.qpos = self.sim.data.qpos.copy()
        if profile.base is not None:
            self.qpos[3:7] = np.cos(0.5), 0.0, 0.0, np.sin(0.5)  # facing anywhere
        self._hold(np.zeros(self.sim.model.nv))

    def read(self):
        sample = self.sim.read()
        if "linear_acceleration" in sample.values:
            body = rotation_matrix(self.qpos[3:7]).T @ (0.0, 0.0, 9.81)
            mounting = self.profile.signals["linear_acceleration"].mounting or (1.0, 0.0, 0.0, 0.0)
            sample.values["linear_acceleration"] = rotation_matrix(mounting).T @ body
        self.spoil(sample)
        return sample

    def write(self, command):
        raise AssertionError("the doctor commands nothing")

    def __call__(self, words, instruction):
        self.words.append(words)
        target = self.qpos.copy()
        if isinstance(instruction, Pose):
            for name, value in instruction.joints.items():
                target[self._place(name)] = value + 0.05
        elif isinstance(instruction, Move) and not self.deaf:
            target[self._place(instruction.joint)] += 0.8 * instruction.by
        elif isinstance(instruction, Level):
            target[3:7] = np.cos(0.5), 0.0, 0.0, np.sin(0.5)
        elif isinstance(instruction, Tilt):
            axis = np.roll((0.9, 0.15, -0.1), "xyz".index(instruction.axis))
            mujoco.mju_axisAngle2Quat(turn := np.zeros(4), axis / np.linalg.norm(axis), self.tilt)
            mujoco.mju_mulQuat(target[3:7], self.qpos[3:7].copy(), turn)
        self.deaf -= bool(self.deaf and isinstance(instruction, Move))
        return self._move(target).__next__

    def _move(self, target):
        velocity, period = np.zeros(self.sim.model.nv), 0.02
        mujoco.mj_differentiatePos(self.sim.model, velocity, STEPS * period, self.qpos, target)
        for _ in range(STEPS):
            mujoco.mj_integratePos(self.sim.model, self.qpos, velocity, period)
            self._hold(velocity)
            yield False
        self._hold(np.zeros_like(velocity))
        yield True

    def _hold(self, velocity):
        self.sim.write(self.still)
        self.sim.set_state(self.qpos, velocity)

    def _place(self, joint):
        return self.sim.model.joint(joint).qposadr[0]


def changed(profile, joint=None, order=None, mounting=None, **changes):
    """A profile with another joint, the joints in another order, or other mountings."""
    joints = [msgspec.structs.replace(j, **changes) if j.name == joint else j for j in profile.joints]
    if order is not None:
        a, b = (profile.joint_names.index(name) for name in order)
        joints[a], joints[b] = joints[b], joints[a]
    signals = dict(profile.signals)
    for name, value in (mounting or {}).items():
        quality = signals.get(name, profile.signals["orientation"])
        signals[name] = msgspec.structs.replace(quality, mounting=value)
    return msgspec.structs.replace(profile, joints=tuple(joints), signals=signals)


@pytest.fixture(scope="module")
def quadruped():
    """With an accelerometer too, all sensors turned."""
    return changed(load_profile("quadruped"), mounting=dict.fromkeys(SIGNALS, AHEAD_UP))


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "arm", "quadruped", "hexapod"])
def test_right_profile_has_no_fault(name):
    profile = load_profile(name)
    assert examine(hands := Hands(profile), profile, hands) == []


def test_right_profile_with_turned_joints_and_sensors_has_no_fault(quadruped):
    true = changed(quadruped, "FL_thigh", sign=-1, zero_offset=0.4, position=(-6.0, 6.0), gear_ratio=4.0)
    assert examine(hands := Hands(true), true, hands) == []


def test_base_may_be_tilted_further_than_asked(quadruped):
    hands = Hands(quadruped)
    hands.tilt = 1.2
    assert examine(hands, quadruped, hands) == []


def test_rates_are_integrated_over_a_movement(quadruped):
    hands = Hands(quadruped)
    motion = watch(hands, hands("", Move(joint="FR_thigh", by=0.3)))
    moved = motion.after["joint_position"] - motion.before["joint_position"]
    assert moved[quadruped.joint_names.index("FR_thigh")] == pytest.approx(0.24)
    np.testing.assert_allclose(motion.turned["joint_velocity"], moved, atol=0.03)


@pytest.mark.parametrize("swapped", [("FL_hip", "RR_calf"), ("FR_thigh", "FL_thigh")])
def test_swapped_joints_are_named(quadruped, swapped):
    a, b = swapped
    hands = Hands(quadruped)
    names = quadruped.joint_names
    found = examine(hands, changed(quadruped, order=swapped), hands)
    expected = [
        f"joint {name!r}: joint_{kind}: wrong order: it is at place {names.index(name)}, "
        f"where the profile has {other!r}"
        for name, other in ((a, b), (b, a))
        for kind in ("position", "velocity")
    ]
    assert sorted(found) == sorted(expected)


@pytest.mark.parametrize("joint", ["FR_hip", "RR_hip"])
def test_wrong_sign_is_named(quadruped, joint):
    hands = Hands(changed(quadruped, joint, sign=-1, position=(-3.0, 3.0)))
    assert examine(hands, quadruped, hands) == [
        f"joint {joint!r}: joint_position: wrong sign: it must be -1, found 1",
        f"joint {joint!r}: joint_velocity: wrong sign: it must be -1, found 1",
    ]


@pytest.mark.parametrize(("joint", "gear"), [("RL_calf", 1.0), ("FL_hip", 6.0), ("FL_hip", 0.4)])
def test_wrong_offset_is_named_with_the_right_one(quadruped, joint, gear):
    wide = {"position": (-30.0, 30.0), "gear_ratio": gear}
    hands = Hands(changed(quadruped, joint, zero_offset=0.5 * gear, **wide))
    [fault] = examine(hands, changed(quadruped, joint, **wide), hands)
    offset = 0.55 * gear  # the hands put every joint 0.05 too far
    assert fault == (
        f"joint {joint!r}: joint_position: wrong zero_offset: it must be about {offset:.2f}, found 0"
    )


def test_wrong_sign_offset_and_order_of_one_joint_are_told_apart(quadruped):
    hands = Hands(changed(quadruped, "RL_hip", sign=-1, zero_offset=-0.6))
    found = examine(hands, changed(quadruped, order=("RL_hip", "RL_thigh")), hands)
    assert [fault for fault in found if "order" not in fault] == [
        "joint 'RL_hip': joint_position: wrong sign: it must be -1, found 1",
        "joint 'RL_hip': joint_position: wrong zero_offset: it must be about -0.65, found 0",
        "joint 'RL_hip': joint_velocity: wrong sign: it must be -1, found 1",
    ]
    assert len(found) == 7


def test_velocities_in_another_order_than_positions_are_named(quadruped):
    def spoil(sample):
        sample.values["joint_velocity"] = np.roll(sample.values["joint_velocity"], 1)

    found = examine(hands := Hands(quadruped, spoil), quadruped, hands)
    assert len(found) == 12
    assert found[0] == (
        "joint 'FL_hip': joint_velocity: wrong order: it is at place 1, where the profile has 'FL_thigh'"
    )


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize(
    ("true", "text"),
    [
        ((0.5**0.5, 0.0, 0.0, 0.5**0.5), "[0.7071, 0.0, 0.0, 0.7071]"),
        ((0.0, 1.0, 0.0, 0.0), "[0.0, 1.0, 0.0, 0.0]"),
        (None, "[1.0, 0.0, 0.0, 0.0]"),
    ],
)
def test_wrong_mounting_is_named_with_the_right_one(quadruped, signal, true, text):
    hands = Hands(changed(quadruped, mounting={signal: true}))
    assert examine(hands, quadruped, hands) == [
        f"{signal}: wrong frame: mounting must be about {text}, found [0.7071, 0.0, -0.7071, 0.0]"
    ]


def test_mounting_off_right_angles_is_found(quadruped):
    partly_left = (np.cos(0.29), 0.0, 0.0, np.sin(0.29))
    hands = Hands(changed(quadruped, mounting={"angular_velocity": partly_left}))
    [fault] = examine(hands, quadruped, hands)
    found = [float(value) for value in fault.partition("[")[2].partition("]")[0].split(", ")]
    assert abs(np.dot(found, partly_left)) > np.cos(0.3 / 2)


def sent(signal, change):
    def spoil(sample):
        sample.values[signal] = change(sample.values[signal])

    return spoil


@pytest.mark.parametrize(
    ("signal", "change", "fault"),
    [
        ("orientation", lambda q: q[[1, 2, 3, 0]], XYZW),
        (
            "orientation",
            lambda q: q * (1, -1, -1, -1),
            "inverted: it must turn vectors of the sensor's frame into the world's",
        ),
        ("orientation", lambda q: q[[1, 2, 3, 0]] * (-1, -1, -1, 1), "inverted, and sent as x, y, z, w"),
        (
            "orientation",
            lambda q: np.eye(4)[0],
            "has not followed the base about each of its axes, in any known convention",
        ),
        ("linear_acceleration", np.negative, "wrong sign: at rest it must point up"),
        (
            "angular_velocity",
            lambda rates: rates * (1, -1, 1),
            "wrong frame: it is left-handed; reversed axes: y",
        ),
        ("angular_velocity", np.zeros_like, "has not followed the base about each of its axes"),
    ],
)
def test_sensor_of_another_convention_is_named(quadruped, signal, change, fault):
    hands = Hands(quadruped, sent(signal, change))
    assert examine(hands, quadruped, hands) == [f"{signal}: {fault}"]


@pytest.mark.parametrize("signal", SIGNALS)
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_sensor_without_finite_readings_is_named(quadruped, signal, value):
    hands = Hands(quadruped, sent(signal, lambda readings: np.full_like(readings, value)))
    assert examine(hands, quadruped, hands) == [f"{signal}: has readings that are not finite"]


def test_rate_that_is_not_finite_for_a_moment_is_named(quadruped):
    rates = iter(range(10**9))
    spoil = sent("angular_velocity", lambda values: values * (np.nan if next(rates) % 30 == 7 else 1.0))
    hands = Hands(quadruped, spoil)
    assert examine(hands, quadruped, hands) == ["angular_velocity: has readings that are not finite"]


@pytest.mark.parametrize("signal", ["orientation", "linear_acceleration"])
def test_sensor_that_reads_zero_is_named(quadruped, signal):
    hands = Hands(quadruped, sent(signal, np.zeros_like))
    assert examine(hands, quadruped, hands) == [f"{signal}: has readings that are zero"]
    at_last = Hands(quadruped)
    at_last.spoil = sent(signal, lambda values: values * (at_last.words[-1:] != ["19/19"]))
    assert examine(at_last, quadruped, at_last) == [f"{signal}: has readings that are zero"]


def test_inverted_orientation_of_an_upside_down_sensor_is_no_other_mounting(quadruped):
    profile = changed(quadruped, mounting={"orientation": (0.0, 1.0, 0.0, 0.0)})
    hands = Hands(profile, sent("orientation", lambda q: q * (1, -1, -1, -1)))
    [fault] = examine(hands, profile, hands)
    assert fault.startswith("orientation: inverted: ")


def test_movement_that_cannot_be_judged_is_asked_for_once_more(quadruped):
    once, twice = Hands(quadruped, deaf=1), Hands(quadruped, deaf=2)
    assert examine(once, quadruped, once) == []
    reason = "joint 'FL_hip': one reading of joint_position must follow it, found none"
    assert once.words[:4] == ["1/19", "2/19", f"{reason}; once more", "3/19"]
    assert examine(twice, quadruped, twice) == [reason]


def test_joints_that_move_together_are_named(quadruped):
    def spoil(sample):
        sample.values["joint_position"][1] = sample.values["joint_position"][0]

    found = examine(hands := Hands(quadruped, spoil), quadruped, hands)
    assert found[0] == (
        "joint 'FL_hip': one reading of joint_position must follow it, found FL_hip, FL_thigh"
    )


def test_signal_that_never_arrives_is_named(quadruped):
    def spoil(sample):
        sample.received_ns["angular_velocity"] = NEVER_NS

    hands = Hands(quadruped, spoil)
    with pytest.raises(AndanteError, match="robot 'sim': signal 'angular_velocity' has never arrived"):
        examine(hands, quadruped, hands)


def test_base_without_a_sensor_on_it_is_not_tilted(quadruped):
    signals = {name: quality for name, quality in quadruped.signals.items() if name.startswith("joint_")}
    profile = load_profile("arm")
    assert not any(isinstance(step, Level | Tilt) for step in plan(profile))
    based = msgspec.structs.replace(
        profile, base="table", signals=signals | {"position": signals["joint_position"]}
    )
    assert len(plan(based)) == len(plan(profile)) == 7


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_joint_is_asked_for_within_its_hard_limits(path):
    profile = load_profile(path)
    pose, *moves = [step for step in plan(profile) if isinstance(step, Pose | Move)]
    assert [move.joint for move in moves] == list(profile.joint_names)
    for joint, move in zip(profile.joints, moves, strict=True):
        low, high = joint.action_range("position")
        assert low <= pose.joints[joint.name] <= high
        assert low <= pose.joints[joint.name] + move.by <= high
        assert abs(move.by) > 0.05


def test_command_line_asks_an_operator_and_fails_on_what_is_wrong():
    words = ("doctor", "--robot", "null", "--profile", "pendulum")
    result = andante(*words, input="\n\n\n")
    assert result.returncode == 1
    lines = result.stdout.splitlines()
    assert lines[0].endswith("put the joints where the policy's robot model has hinge 0; then press Enter")
    assert lines[-1] == "joint 'hinge': one reading of joint_position must follow it, found none"
    alone = andante(*words, input="")
    assert (alone.returncode, alone.stderr) == (1, "andante: nobody at standard input\n")
    nowhere = andante(*words, preexec_fn=lambda: os.close(0))
    assert (nowhere.returncode, nowhere.stderr) == (1, "andante: nobody at standard input\n")
    assert "--robot needs --profile" in andante("doctor", "--robot", "null").stderr
    for options in (("--profile", "pendulum"), ("--robot-option", "seed=1")):
        assert "are for --robot\n" in andante("doctor", *options).stderr
    simulated = andante("doctor", "--robot", "sim", "--profile", "pendulum").stderr
    assert simulated == "andante: --robot sim: nobody can move a simulated robot by hand\n"


def test_machine_is_inspected_and_measured_idle_and_loaded():
    result = run_andante("doctor", "--seconds", "0.2", "--rate", "100")
    found = {line[:18].strip(): line[18:] for line in result.stdout.splitlines()}
    assert found["kernel"].startswith(os.uname().release)
    assert {"SCHED_FIFO", "mlockall", "memlock limit", "governor", "cores", "clock source"} < found.keys()
    for name in ("jitter, idle", "jitter, loaded"):
        assert found[name].startswith("p50 ") and found[name].endswith(" at 100 Hz")
    assert "--rate must be positive" in andante("doctor", "--rate", "0").stderr


def test_right_that_is_refused_comes_with_advice():
    found = {finding.name: finding for finding in inspect_machine(fifo_priority=1000, cpu=9999)}
    assert found["SCHED_FIFO"].found == found["affinity"].found == "Invalid argument"
    assert "rtprio 1000" in found["SCHED_FIFO"].advice
    assert "--cpu" in found["affinity"].advice


def test_jitter_is_judged_by_the_period():
    jitter = Quantiles(p50=10.0, p99=600.0, max=900.0)
    assert judge_jitter("jitter", jitter, rate=50.0, fifo=True).advice is None
    advice = [judge_jitter("jitter", jitter, rate=100.0, fifo=fifo).advice for fifo in (False, True)]
    assert all("above 500 us" in text for text in advice)
    assert ["SCHED_FIFO" in text for text in advice] == [True, False]


def test_jitter_of_a_stopped_process_is_how_long_it_was_stopped():
    script = (
        "from andante.doctor.machine import measure_jitter\n"
        "print('started', flush=True); print(measure_jitter(rate=100.0, seconds=3.0).max)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) as measuring:
        measuring.stdout.readline()
        time.sleep(0.5)
        measuring.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        measuring.send_signal(signal.SIGCONT)
        assert float(measuring.stdout.read()) > 250_000.0


def test_load_keeps_cores_busy_and_ends_with_the_measurement():
    with load(2):
        busy = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        assert len(busy) == 2
        wait_until(lambda: all(cpu_seconds(process) > 0.3 for process in busy))
    assert not any(Path("/proc", process).exists() for process in busy)


def test_load_ends_with_the_process_that_wanted_it():
    script = (
        "import time; from andante.doctor.machine import load\n"
        "with load(1): print('loaded', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as parent:
        parent.stdout.readline()
        [child] = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
        time.sleep(0.3)
        parent.send_signal(signal.SIGKILL)
    wait_until(lambda: not Path("/proc", child).exists())


def cpu_seconds(process: str) -> float:
    return int(Path("/proc", process, "stat").read_text().split()[13]) / os.sysconf("SC_CLK_TCK")


def wait_until(condition) -> None:
    deadline = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)

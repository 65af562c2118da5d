"""The simulated robot under the loop: as fast as possible, in lockstep, and with injected faults."""

from __future__ import annotations

import json

import numpy as np
import pytest
from conftest import andante, run_andante
from small_policy import write_small_policy

from andante.runtime.command import FIELDS
from andante.runtime.controller import Controller
from andante.runtime.loop import RealtimeLoop
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.robots.base import open_robot
from andante.sim.faults import Fault, FaultyRobot, random_faults
from andante.sim.robot import SimRobot


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    return write_small_policy(tmp_path_factory.mktemp("modes") / "policy.onnx")


def run_fast(policy, faults=(), seconds=2.0):
    """The loop's report, and every command as a row of numbers."""
    session, profile = load_policy(policy), load_profile("pendulum")
    controller = Controller(session, profile)
    robot = FaultyRobot(SimRobot(session.contract, profile), faults, sleep=lambda seconds: None)
    rows = []

    def observe(tick, sample, command, *_):
        rows.append([tick, *(getattr(command, field)[0] for field in FIELDS)])

    loop = RealtimeLoop(controller, robot, clock=VirtualClock(), observers=[observe])
    return loop.run(seconds), np.array(rows)


def test_a_fast_run_is_never_late_and_the_same_every_time(policy):
    report, commands = run_fast(policy, seconds=4.0)
    assert (report.missed, report.overruns, report.faults, report.state) == (0, 0, (), "disabled")
    assert report.decisions == 40
    again, same = run_fast(policy, seconds=4.0)
    assert (again.ticks, again.decisions) == (report.ticks, report.decisions)
    assert np.array_equal(commands, same)


def test_a_fast_run_at_the_command_line_waits_for_no_clock(policy, tmp_path):
    path = tmp_path / "report.json"
    run_andante("run", policy, "--robot", "sim", "--fast", "--seconds", "60", "--report", path)
    report = json.loads(path.read_text())
    assert (report["missed"], report["faults"], report["decisions"]) == (0, [], 600)


def test_fast_is_for_simulated_robots(policy):
    result = andante("run", policy, "--robot", "null", "--fast")
    assert result.returncode == 1
    assert result.stderr == ("andante: --fast and --command fixed are for --robot sim only, found 'null'\n")


def test_options_reach_the_simulated_robot(policy):
    contract, profile = load_policy(policy).contract, load_profile("pendulum")
    starts = [
        open_robot("sim", options, contract, profile).read().values["joint_position"][0]
        for options in ((), ("seed=0",), ("seed=1",))
    ]
    assert starts[0] == starts[1] != starts[2]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"kind": "drop"}, "stale_source: joint_position"),
        ({"kind": "nan", "signal": "joint_velocity"}, "non_finite: joint_velocity of joint 'hinge'"),
        ({"kind": "inf"}, "non_finite: joint_position of joint 'hinge'"),
        (
            {"kind": "set", "amount": 1e3, "signal": "joint_velocity"},
            "limit: joint_velocity of joint 'hinge'",
        ),
        ({"kind": "raise_read"}, "e_stop: robot 'sim' failed to read: OSError('injected at tick 60')"),
        ({"kind": "raise_write"}, "e_stop: robot 'sim' failed to write: OSError('injected at tick 60')"),
    ],
)
def test_injected_faults_are_told_as_what_they_are(policy, fault, reason):
    report, commands = run_fast(policy, [Fault(from_tick=60, to_tick=90, **fault)])
    assert report.state == "fault"
    assert report.faults[0].startswith(reason)
    assert np.isfinite(commands).all()


@pytest.mark.parametrize("kind", ["duplicate", "slow_read", "stamp_zero", "stamp_jump"])
def test_faults_that_this_profile_allows_go_unpunished(policy, kind):
    report, _ = run_fast(policy, [Fault(kind=kind, from_tick=60, to_tick=90, amount=-5.0)])
    assert report.faults == ()


def test_random_faults_never_make_a_command_that_is_not_finite(policy):
    signals = ("joint_position", "joint_velocity")
    for seed in range(5):
        faults = [f for f in random_faults(seed, 600, signals, gap=20) if not f.kind.startswith("raise")]
        report, commands = run_fast(policy, faults, seconds=10.0)
        assert np.isfinite(commands).all() and (np.abs(commands[:, 3]) <= 0.7).all()
        assert commands[:, 0].tolist() == list(range(len(commands)))
        assert report.ticks >= len(commands) - 1

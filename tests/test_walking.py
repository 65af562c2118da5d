"""A quadruped that learns to walk by the shipped recipe, and walks in the loop that runs on robots."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from conftest import run_andante

from andante.runtime.controller import Controller
from andante.runtime.loop import RealtimeLoop
from andante.runtime.operator import command_components
from andante.runtime.policy import load_policy
from andante.runtime.profile import load_profile
from andante.runtime.realtime import VirtualClock
from andante.runtime.states import State
from andante.sim.closed_loop import closed_loop
from andante.sim.fixed_command import FixedCommand
from andante.sim.robot import SimRobot

TICKS = 1_750_000


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("walking") / "run"
    run_andante("train", "quadruped-velocity", "--ticks", TICKS, "--evaluations", 3, "--run-dir", folder)
    return folder


@pytest.fixture(scope="module")
def policy(run):
    path = run.parent / "policy.onnx"
    run_andante("export", run, "--output", path)
    return path


def test_the_run_has_learned_far_more_than_to_stand(run):
    result = json.loads((run / "result.json").read_text())
    assert result["return"] > 60.0  # standing still gets about 25


def test_every_episode_of_the_closed_loop_is_that_of_training(run, policy):
    result = json.loads((run / "result.json").read_text())
    found = closed_loop(policy, result["task"], 16, result["seed"])
    assert found.faults == ()
    difference = np.abs(found.returns - result["returns"][:16])
    # float32 is rounded otherwise there, which a stumble may magnify.
    assert np.median(difference) < 1e-3 and difference.max() < 1.0


@pytest.mark.parametrize(("speed", "yaw_rate"), [(0.8, 0.0), (0.5, 0.4)])
def test_it_walks_as_commanded_on_the_simulated_robot(policy, speed, yaw_rate):
    session, profile = load_policy(policy), load_profile("quadruped")
    robot = SimRobot(session.contract, profile)
    controller = Controller(session, profile)
    operator = FixedCommand(command_components(session.contract), f"{speed},0,{yaw_rate}")
    places, leans = [], []

    def observe(tick, sample, command, *_):
        if controller.state is State.RUN:
            places.append(robot.data.qpos[:2].copy())
        x, y = robot.data.qpos[4:6]
        leans.append(math.hypot(x, y))

    loop = RealtimeLoop(
        controller,
        robot,
        clock=VirtualClock(),
        operator=operator,
        on_ready=lambda: loop.confirm(),
        observers=[observe],
    )
    report = loop.run(seconds=10.0)
    assert (report.faults, report.state, report.starved) == ((), "disabled", 0)
    way = np.linalg.norm(np.diff(places[50:500], axis=0), axis=1).sum()
    assert way == pytest.approx(9.0 * speed, rel=0.25)
    assert max(leans) < 0.25
    # It came to rest before the stop sequence.
    assert np.linalg.norm(places[-1] - places[-15]) < 0.05


def test_the_command_line_lets_it_walk(policy, tmp_path):
    path = tmp_path / "report.json"
    words = ("--robot", "sim", "--fast", "--yes", "--command", "fixed:0.6,0,0", "--seconds", "5")
    run_andante("run", policy, *words, "--report", path)
    report = json.loads(path.read_text())
    assert (report["faults"], report["state"]) == ([], "disabled")

"""Policy node and simulated robot, two processes joined by topics."""

from __future__ import annotations

import math
import signal

import numpy as np
from nodes import eventually
from sensor_msgs.msg import JointState

UPRIGHT = 0.95
"""Cosine of the hinge, which is zero when the pendulum is upright."""


def stamp_s(message: JointState) -> float:
    return message.header.stamp.sec + message.header.stamp.nanosec * 1e-9


def longest_upright_s(states: list[JointState]) -> float:
    longest, since = 0.0, None
    for state in states:
        if math.cos(state.position[0]) < UPRIGHT:
            since = None
        else:
            since = stamp_s(state) if since is None else since
            longest = max(longest, stamp_s(state) - since)
    return longest


def start_both(client, start, **parameters):
    simulator = start("mujoco_sim_node")
    policy_node = start("policy_node", autostart=True, **parameters)
    client.await_state("run")
    return simulator, policy_node


def test_a_trained_policy_swings_the_pendulum_up(client, start):
    start_both(client, start)
    assert math.cos(client.states[0].position[0]) < 0.0
    eventually(lambda: longest_upright_s(client.states) >= 2.0, "2 s upright", timeout_s=15.0)


def test_commands_stop_and_a_fault_is_latched_when_the_robot_dies(client, start):
    simulator, _ = start_both(client, start, profile="pendulum")
    simulator.end_by(signal.SIGKILL)
    client.await_state("fault")
    assert client.diagnostics["fault"].startswith("stale_source: joint_")
    client.commands.clear()
    eventually(lambda: len(client.commands) > 10, "commands in FAULT")
    assert set(client.efforts()) == {0.0}


def test_the_robot_gives_no_torque_when_the_policy_dies(client, start):
    _, policy_node = start_both(client, start)
    eventually(lambda: client.states[-1].effort[0] != 0.0, "torque of the policy")
    policy_node.end_by(signal.SIGKILL)
    client.states.clear()
    eventually(lambda: len(client.states) >= 30, "joint states")
    efforts = np.array([state.effort[0] for state in client.states])
    assert (efforts[10:] == 0.0).all()
    assert client.states[-1].position[0] != client.states[-2].position[0], "the simulation stands still"


def test_the_robot_refuses_an_effort_that_is_not_a_number(client, start):
    simulator = start("mujoco_sim_node")
    eventually(lambda: len(client.states) > 0, "joint states")

    def warned() -> bool:
        client.command(name=["hinge"], effort=[math.nan])
        return "effort is not finite" in simulator.log

    eventually(warned, "a warning")
    count = len(client.states)
    eventually(lambda: len(client.states) > count + 5, "joint states")
    assert np.isfinite([state.position[0] for state in client.states]).all()


def test_a_simulator_without_a_policy_file_exits_with_one_line(start):
    simulator = start("mujoco_sim_node", policy="nowhere.onnx")
    assert simulator.exit_status() == 1
    assert simulator.log.count("\n") == 1
    assert "nowhere.onnx" in simulator.log

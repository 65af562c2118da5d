"""Polled joint states and the robot behind them, in one process."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest
import rclpy
from andante_ros.topics import TopicRobot
from nodes import eventually
from rclpy.node import Node
from rclpy.publisher import Publisher
from sensor_msgs.msg import JointState

from andante.runtime.command import NEVER_NS
from andante.runtime.profile import load_profile

OURS = JointState(name=["hinge"], position=[2.0], velocity=[1.0])


@pytest.fixture
def node() -> Iterator[Node]:
    rclpy.init()
    node = rclpy.create_node("robot")
    yield node
    node.destroy_node()
    rclpy.shutdown()


@pytest.fixture
def robot(node) -> TopicRobot:
    return TopicRobot(load_profile("pendulum"), node, "joint_states", "joint_commands")


@pytest.fixture
def publisher(node, robot) -> Publisher:
    publisher = node.create_publisher(JointState, "joint_states", 10)
    eventually(lambda: publisher.get_subscription_count() == 1, "discovery")
    return publisher


def test_a_sample_is_as_old_as_the_message_and_not_as_its_reading(robot, publisher):
    robot.read()
    before_ns = time.monotonic_ns()
    publisher.publish(OURS)
    time.sleep(0.5)
    sample = robot.read()
    assert before_ns <= sample.received_ns["joint_position"] < before_ns + 250_000_000
    assert sample.now_ns - sample.received_ns["joint_position"] > 250_000_000


def test_another_publishers_joints_do_not_hide_ours(robot, publisher):
    publisher.publish(OURS)
    publisher.publish(JointState(name=["gripper"], position=[0.1]))
    eventually(lambda: robot.read() and robot.refused is not None, "both messages")
    assert "lacks joint 'hinge'" in robot.refused
    assert robot.read().values["joint_position"].tolist() == [2.0]
    assert robot.read().values["joint_velocity"].tolist() == [1.0]


def test_a_reset_forgets_what_was_measured_and_what_waits(robot, publisher):
    publisher.publish(OURS)
    eventually(lambda: robot.read().received_ns["joint_position"] != NEVER_NS, "a measurement")
    publisher.publish(OURS)
    time.sleep(0.2)
    robot.reset()
    assert set(robot.read().received_ns.values()) == {NEVER_NS}

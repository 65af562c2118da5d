"""A subscription that its reader polls, and the robot that two joint topics make up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from rclpy.callback_groups import CallbackGroup
from rclpy.node import Node
from rclpy.qos import QoSProfile, ReliabilityPolicy
from sensor_msgs.msg import JointState

from andante.runtime.command import NEVER_NS, JointCommand, Sample
from andante.runtime.errors import AndanteError
from andante.runtime.profile import Profile

from .convert import COMMANDED, MEASURED, JointStateReader, JointStateWriter


class _NeverExecuted(CallbackGroup):
    """Keeps executors away from a subscription."""

    def can_execute(self, entity: Any) -> bool:
        return False

    def beginning_execution(self, entity: Any) -> bool:
        return False

    def ending_execution(self, entity: Any) -> None:
        pass


class PolledTopic:
    """Joint states, taken by the thread that needs them when it needs them.

    So a fast topic costs nothing between polls, and a busy executor (a lifecycle transition waits for the
    stop sequence) cannot starve the control loop of measurements.
    """

    def __init__(self, node: Node, topic: str, depth: int) -> None:
        """Keep the last `depth` messages, from reliable and best-effort publishers alike."""
        self._node = node
        self._depth = depth
        self._polled_ns = time.monotonic_ns()
        self._subscription = node.create_subscription(
            JointState,
            topic,
            lambda message: None,
            QoSProfile(depth=depth, reliability=ReliabilityPolicy.BEST_EFFORT),
            callback_group=_NeverExecuted(),
        )

    def take(self) -> Iterator[tuple[JointState, int]]:
        """The messages since the last poll, oldest first, each with its receive time on the monotonic clock.

        The middleware stamps arrivals with the system clock, which may be set at any time; but no message
        came before the last poll or after this one.
        """
        last_ns, self._polled_ns = self._polled_ns, time.monotonic_ns()
        for _ in range(self._depth):
            taken = self._subscription.handle.take_message(JointState, False)
            if taken is None:
                return
            message, info = taken
            now_ns = time.monotonic_ns()
            age_ns = time.time_ns() - info["received_timestamp"]
            yield message, min(max(now_ns - age_ns, last_ns), now_ns)

    def close(self) -> None:
        """Unsubscribe."""
        self._node.destroy_subscription(self._subscription)


class TopicRobot:
    """A robot behind two topics: joint states come in, joint commands go out."""

    name = "ros"
    carries = frozenset(COMMANDED)
    refused: str | None
    """Why the last message that could not be used was refused."""

    def __init__(self, profile: Profile, node: Node, joint_states_topic: str, command_topic: str) -> None:
        """Subscribe and advertise.

        Raises:
            AndanteError: the profile has a signal that no joint state carries.
        """
        if missing := profile.signals.keys() - MEASURED.keys():
            raise AndanteError(
                f"joint states carry {', '.join(MEASURED)} only; the profile also has {', '.join(missing)}"
            )
        self.joints = profile.joint_names
        self.refused = None
        self._node = node
        self._sample = Sample.allocate(profile.signals, len(self.joints))
        self._signals = {MEASURED[signal]: signal for signal in profile.signals}
        self._reader = JointStateReader(
            self.joints, {field: self._sample.values[signal] for field, signal in self._signals.items()}
        )
        actuated = [joint.name for joint in profile.actuated]
        self._writer = JointStateWriter(JointState(), actuated, COMMANDED.values())
        # Deep enough that another publisher's message, which lacks our joints, does not hide ours.
        self._topic = PolledTopic(node, joint_states_topic, depth=16)
        self._publisher = node.create_publisher(JointState, command_topic, QoSProfile(depth=1))

    def reset(self) -> None:
        """Forget every measurement, and those that wait to be read."""
        for _ in self._topic.take():
            pass
        self.refused = None
        for signal in self._sample.received_ns:
            self._sample.received_ns[signal] = NEVER_NS

    def read(self) -> Sample:
        """The newest measurement of each signal; the same object every time."""
        for message, received_ns in self._topic.take():
            try:
                fields = self._reader.read(message)
            except ValueError as error:
                self.refused = str(error)
                continue
            for field in fields:
                signal = self._signals[field]
                self._sample.received_ns[signal] = self._sample.source_ns[signal] = received_ns
        self._sample.now_ns = time.monotonic_ns()
        return self._sample

    def write(self, command: JointCommand) -> None:
        """Publish one command."""
        for source, field in COMMANDED.items():
            np.copyto(self._writer.arrays[field], getattr(command, source))
        self._writer.message.header.stamp = self._node.get_clock().now().to_msg()
        self._publisher.publish(self._writer.message)

    def close(self) -> None:
        """Unsubscribe, and withdraw the command topic."""
        self._topic.close()
        self._node.destroy_publisher(self._publisher)

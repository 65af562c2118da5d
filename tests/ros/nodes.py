"""Nodes in processes of their own, and a client of theirs in this one."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import rclpy
from diagnostic_msgs.msg import DiagnosticArray
from lifecycle_msgs.msg import Transition
from lifecycle_msgs.srv import ChangeState
from rclpy.executors import SingleThreadedExecutor
from sensor_msgs.msg import JointState
from std_srvs.srv import Trigger

LIMIT_S = 40.0
"""A node that lives longer is killed."""
MEASURE_S = 0.01


def eventually(condition: Callable[[], bool], what: str, timeout_s: float = 15.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {timeout_s} s"
        time.sleep(0.01)


class NodeProcess:
    """One of the package's console scripts."""

    def __init__(self, name: str, parameters: dict[str, object], log: Path) -> None:
        words = [word for key, value in parameters.items() for word in ("-p", f"{key}:={value}")]
        self._log = log
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                [str(Path(sys.executable).with_name(name)), "--ros-args", *words],
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        self._limit = threading.Timer(LIMIT_S, self._process.kill)
        self._limit.start()

    @property
    def log(self) -> str:
        return self._log.read_text()

    def send(self, number: signal.Signals) -> None:
        """Send a signal."""
        self._process.send_signal(number)

    def end_by(self, number: signal.Signals) -> int:
        """Send a signal; the exit status."""
        self._process.send_signal(number)
        return self.exit_status()

    def exit_status(self) -> int:
        return self._process.wait(LIMIT_S)

    def kill(self) -> None:
        self._limit.cancel()
        self._process.kill()
        self._process.wait()


class Client:
    """Records joint commands, joint states and diagnostics; publishes joint states; calls services."""

    def __init__(self) -> None:
        self.commands: list[JointState] = []
        self.states: list[JointState] = []
        self.diagnostics: dict[str, str] = {}
        self._measured: JointState | None = None
        self._node = rclpy.create_node("client")
        self._node.create_subscription(JointState, "joint_commands", self._record, 100)
        self._node.create_subscription(JointState, "joint_states", self.states.append, 100)
        self._node.create_subscription(DiagnosticArray, "/diagnostics", self._diagnose, 10)
        self._commander = self._node.create_publisher(JointState, "joint_commands", 1)
        self._publisher = self._node.create_publisher(JointState, "joint_states", 1)
        # Long before they are used: a service cannot answer a client that it has not discovered yet.
        self._services = {"change_state": self._node.create_client(ChangeState, "/policy_node/change_state")}
        for name in ("start", "stop", "emergency_stop", "clear_fault"):
            self._services[name] = self._node.create_client(Trigger, f"/policy_node/{name}")
        self._node.create_timer(MEASURE_S, self._publish)
        self._executor = SingleThreadedExecutor()
        self._executor.add_node(self._node)
        self._spinner = threading.Thread(target=self._executor.spin)
        self._spinner.start()

    def command(self, **fields: list) -> None:
        """Send one joint command."""
        self._commander.publish(JointState(**fields))

    def measure(self, **fields: list) -> None:
        """Publish this joint state at 100 Hz from now on."""
        self._measured = JointState(**fields)

    def configure(self) -> bool:
        return self._change_state(Transition.TRANSITION_CONFIGURE)

    def activate(self) -> bool:
        return self._change_state(Transition.TRANSITION_ACTIVATE)

    def deactivate(self) -> bool:
        return self._change_state(Transition.TRANSITION_DEACTIVATE)

    def cleanup(self) -> bool:
        return self._change_state(Transition.TRANSITION_CLEANUP)

    def trigger(self, name: str) -> str:
        """Call a service of the policy node; its message, which begins with `refused: ` without success."""
        response = self._call(name, Trigger.Request())
        return response.message if response.success else f"refused: {response.message}"

    def await_state(self, state: str) -> None:
        eventually(lambda: self.diagnostics.get("state") == state, f"state {state}")

    def efforts(self) -> list[float]:
        """The effort of every command since `commands` was cleared."""
        return [message.effort[0] for message in self.commands]

    def close(self) -> None:
        self._executor.shutdown()
        self._spinner.join()
        self._node.destroy_node()

    def _change_state(self, number: int) -> bool:
        request = ChangeState.Request(transition=Transition(id=number))
        return self._call("change_state", request).success

    def _call(self, name: str, request: object):
        service = self._services[name]
        assert service.wait_for_service(LIMIT_S), f"no service {name}"
        future = service.call_async(request)
        eventually(future.done, name)
        return future.result()

    def _record(self, message: JointState) -> None:
        self.commands.append(message)

    def _diagnose(self, message: DiagnosticArray) -> None:
        self.diagnostics = {item.key: item.value for item in message.status[0].values}

    def _publish(self) -> None:
        message = self._measured
        if message is not None:
            message.header.stamp = self._node.get_clock().now().to_msg()
            self._publisher.publish(message)

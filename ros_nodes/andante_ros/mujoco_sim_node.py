"""`mujoco_sim_node`: the simulated robot on joint topics, at wall-clock rate."""

from __future__ import annotations

import threading

import msgspec
import numpy as np
from rclpy.node import Node
from rclpy.qos import QoSProfile
from sensor_msgs.msg import JointState

from andante.runtime import AndanteError, JointCommand, load_profile, read_artifact
from andante.runtime.realtime import MonotonicClock
from andante.sim.robot import SimRobot

from . import params
from .convert import MEASURED, JointStateReader, JointStateWriter
from .process import run_node
from .topics import PolledTopic


class MujocoSimNode(Node):
    """Publishes joint states every tick (effort is what the actuators give), obeys the newest joint command.

    A command is taken at the next physics step; without one for `watchdog_ticks` there is no torque.
    """

    def __init__(self) -> None:
        """Start simulating.

        Raises:
            AndanteError: a parameter, the policy file or the profile is wrong.
        """
        super().__init__("mujoco_sim_node")
        params.declare(self, params.MUJOCO_SIM_NODE)
        values = params.read(self, params.MUJOCO_SIM_NODE)
        contract = read_artifact(values["policy"]).contract
        profile = load_profile(values["profile"] or contract.robot_model)
        if profile.pd_loop != "host":
            raise AndanteError(
                f"pd_loop of robot {profile.robot_model!r} must be 'host', found {profile.pd_loop!r}: "
                "a JointState carries no gains for drives"
            )
        self._decimation = contract.decimation
        self._step_ns = contract.control_period_ns // contract.decimation
        # For the simulated robot one command lasts one physics step.
        stepwise = msgspec.structs.replace(contract, control_period_ns=self._step_ns, decimation=1)
        self._robot = SimRobot(stepwise, profile, seed=values["seed"])
        self._watchdog_steps = values["watchdog_ticks"] * contract.decimation
        actuated = [joint.name for joint in profile.actuated]
        self._command = JointCommand.allocate(len(actuated), self._watchdog_steps * self._step_ns)
        self._reader = JointStateReader(actuated, {"effort": self._command.tau_ff})
        self._fields = {signal: MEASURED[signal] for signal in profile.signals}
        self._writer = JointStateWriter(JointState(), profile.joint_names, [*self._fields.values(), "effort"])
        self._commands = PolledTopic(self, values["command_topic"], depth=1)
        self._states = self.create_publisher(JointState, values["joint_states_topic"], QoSProfile(depth=1))
        self._stopping = False
        self._thread = threading.Thread(target=self._simulate, name="simulation", daemon=True)
        self._thread.start()

    def cut_short(self) -> None:
        """Ending takes no time here."""

    def close(self) -> None:
        """Stop simulating."""
        self._stopping = True
        self._thread.join()

    def _simulate(self) -> None:
        clock = MonotonicClock()
        start_ns = clock.now_ns()
        step, obeyed_until = -1, 0
        while not self._stopping:
            clock.sleep_until_ns(start_ns + (step + 1) * self._step_ns)
            before, step = step, (clock.now_ns() - start_ns) // self._step_ns
            if before // self._decimation != step // self._decimation:
                self._publish()
            if self._take_command():
                obeyed_until = step + self._watchdog_steps
            elif step >= obeyed_until:
                self._command.set_zero("disabled")
            self._command.tick = step
            self._robot.write(self._command)

    def _take_command(self) -> bool:
        obeyed = False
        for message, _ in self._commands.take():
            try:
                if "effort" not in self._reader.read(message):
                    raise ValueError("the message has no effort")
                if not np.isfinite(self._command.tau_ff).all():
                    self._command.tau_ff.fill(0.0)
                    raise ValueError("effort is not finite")
            except ValueError as error:
                self.get_logger().warning(f"joint command refused: {error}", throttle_duration_sec=1.0)
                continue
            self._command.mode = "track"
            obeyed = True
        return obeyed

    def _publish(self) -> None:
        sample = self._robot.read()
        for signal, field in self._fields.items():
            np.copyto(self._writer.arrays[field], sample.values[signal])
        np.copyto(self._writer.arrays["effort"], self._robot.effort())
        self._writer.message.header.stamp = self.get_clock().now().to_msg()
        self._states.publish(self._writer.message)


def main() -> int:
    """Run the node."""
    return run_node(MujocoSimNode)


if __name__ == "__main__":
    raise SystemExit(main())
